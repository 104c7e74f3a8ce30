//! The files of the page, and the headers that isolate it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::sync::LazyLock;

use axum::extract::{Path, RawQuery, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::app::App;
use crate::error::ApiError;

/// The page runs only its own script and style, and reaches only this server.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The time for which browsers keep a file that never changes: a year, which is their limit.
const KEPT: &str = "public, max-age=31536000, immutable";

/// The headers of each answer.
const HEADERS: [(HeaderName, &str); 5] = [
    (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

/// A file of the page.
struct Asset {
    name: &'static str,
    content_type: &'static str,
    plain: &'static [u8],
    gzipped: Bytes,
    /// The hash of its content.
    version: String,
    tag: HeaderValue,
}

impl Asset {
    fn new(name: &'static str, content_type: &'static str, plain: &'static [u8]) -> Asset {
        let mut hasher = DefaultHasher::new();
        plain.hash(&mut hasher);
        let version = format!("{:016x}", hasher.finish());
        let tag =
            HeaderValue::from_str(&format!("\"{version}\"")).unwrap_or(HeaderValue::from_static("\"\""));
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        let gzipped = encoder.write_all(plain).and_then(|()| encoder.finish());
        Asset {
            name,
            content_type,
            plain,
            // Writing to memory cannot fail. Without a gzipped form, the plain file is sent.
            gzipped: gzipped.unwrap_or_default().into(),
            version,
            tag,
        }
    }
}

macro_rules! file {
    ($name:literal, $content_type:literal) => {
        Asset::new(
            $name,
            $content_type,
            include_bytes!(concat!("../../dashboard/", $name)),
        )
    };
}

/// The page's files. Each is compressed once, at the first request.
static FILES: LazyLock<[Asset; 3]> = LazyLock::new(|| {
    [
        file!("app.js", "text/javascript; charset=utf-8"),
        file!("app.css", "text/css; charset=utf-8"),
        file!("icon.svg", "image/svg+xml"),
    ]
});

/// The page itself. It names its files with their versions, so that browsers keep them.
static INDEX: LazyLock<Asset> = LazyLock::new(|| {
    let mut text = include_str!("../../dashboard/index.html").to_owned();
    for file in FILES.iter() {
        let path = format!("\"/assets/{}", file.name);
        text = text.replace(&format!("{path}\""), &format!("{path}?v={}\"", file.version));
    }
    // The page is made once, and lives as long as the program.
    Asset::new("index.html", "text/html; charset=utf-8", text.leak().as_bytes())
});

/// `GET /`.
pub async fn index(headers: HeaderMap) -> Response {
    answer(&INDEX, &headers, "no-store")
}

/// `GET /assets/{file}`. A file with a version in its name never changes.
pub async fn asset(
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    FILES
        .iter()
        .find(|asset| asset.name == name)
        .map(|asset| {
            let asked = query.as_deref().and_then(|query| query.strip_prefix("v="));
            let kept = asked == Some(&asset.version);
            answer(asset, &headers, if kept { KEPT } else { "no-cache" })
        })
        .ok_or_else(|| ApiError::NoSuchPath(format!("/assets/{name}").chars().take(200).collect()))
}

fn answer(asset: &'static Asset, headers: &HeaderMap, cache: &'static str) -> Response {
    let mut response = if headers.get(header::IF_NONE_MATCH) == Some(&asset.tag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else if !asset.gzipped.is_empty() && accepts_gzip(headers) {
        ([(header::CONTENT_ENCODING, "gzip")], asset.gzipped.clone()).into_response()
    } else {
        Bytes::from_static(asset.plain).into_response()
    };
    let own = response.headers_mut();
    own.insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.content_type));
    own.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
    own.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    own.insert(header::ETAG, asset.tag.clone());
    response
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let encodings = headers.get_all(header::ACCEPT_ENCODING).iter();
    encodings
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|coding| match coding.trim().split_once(';') {
            None => coding.trim().eq_ignore_ascii_case("gzip"),
            Some((name, weight)) => {
                name.trim().eq_ignore_ascii_case("gzip") && !["q=0", "q=0.0"].contains(&weight.trim())
            }
        })
}

/// Refuses foreign names in Host or Origin, as every server without tokens does, and adds the headers.
pub async fn protect(State(app): State<App>, request: Request, next: Next) -> Response {
    let mut response = match app.trust.check_origin(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    };
    for (name, value) in HEADERS {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    response
}
