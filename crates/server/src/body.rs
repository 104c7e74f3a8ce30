//! Reading requests: bodies within their limits, JSON and queries with errors that name the place.

use std::io::Read;

use axum::body::Body as AxumBody;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use tokio::sync::OwnedSemaphorePermit;

use crate::app::App;
use crate::error::ApiError;
use crate::limits::{
    BODIES_KIBIBYTES_MAX, BODY_ARRIVES_WITHIN, REQUEST_BYTES_MAX, REQUEST_DECODED_BYTES_MAX,
    ZSTD_WINDOW_LOG_MAX,
};

/// A whole body, decompressed. It keeps its room among the bodies in memory until it is dropped.
#[derive(Debug)]
pub struct Body {
    /// The bytes.
    pub bytes: Bytes,
    _room: OwnedSemaphorePermit,
}

/// How a body is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Plain,
    Zstd,
}

impl Encoding {
    fn of(headers: &HeaderMap) -> Result<Encoding, ApiError> {
        let Some(value) = headers.get(header::CONTENT_ENCODING) else {
            return Ok(Encoding::Plain);
        };
        match value.to_str().unwrap_or_default().to_ascii_lowercase().as_str() {
            "" | "identity" => Ok(Encoding::Plain),
            "zstd" => Ok(Encoding::Zstd),
            _ => Err(ApiError::invalid(
                "the body's Content-Encoding is neither `zstd` nor `identity`",
                "compress bodies with zstd, or not at all",
            )),
        }
    }
}

fn too_large() -> ApiError {
    ApiError::TooLarge {
        what: "the request's body".to_owned(),
        limit: format!("{REQUEST_BYTES_MAX} bytes"),
    }
}

fn too_large_decoded() -> ApiError {
    ApiError::TooLarge {
        what: "the request's body, decompressed,".to_owned(),
        limit: format!("{REQUEST_DECODED_BYTES_MAX} bytes"),
    }
}

impl FromRequest<App> for Body {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let encoding = Encoding::of(&parts.headers)?;
        let announced: Option<usize> = parts
            .headers
            .get(header::CONTENT_LENGTH)
            .and_then(|length| length.to_str().ok())
            .and_then(|length| length.parse().ok());
        if announced.is_some_and(|bytes| bytes > REQUEST_BYTES_MAX) {
            return Err(too_large());
        }
        let wire_bytes = announced.unwrap_or(REQUEST_BYTES_MAX);
        let needed = match encoding {
            Encoding::Plain => wire_bytes,
            Encoding::Zstd => wire_bytes.saturating_mul(8).min(REQUEST_DECODED_BYTES_MAX),
        };
        let kibibytes = (needed / 1_024 + 1).min(BODIES_KIBIBYTES_MAX as usize) as u32;
        let room = app
            .bodies
            .clone()
            .acquire_many_owned(kibibytes)
            .await
            .map_err(|_| ApiError::Stopping)?;
        let arrived = tokio::time::timeout(BODY_ARRIVES_WITHIN, arrive(body)).await;
        let bytes = arrived.map_err(|_| ApiError::Slow(BODY_ARRIVES_WITHIN.as_secs()))??;
        let bytes = match encoding {
            Encoding::Plain => bytes,
            Encoding::Zstd => decompress(bytes).await?,
        };
        Ok(Body { bytes, _room: room })
    }
}

async fn arrive(body: AxumBody) -> Result<Bytes, ApiError> {
    match Limited::new(body, REQUEST_BYTES_MAX).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(too_large()),
        Err(error) => Err(ApiError::invalid(
            format!("the body is incomplete: {error}"),
            "send all bytes that Content-Length announces",
        )),
    }
}

/// Compressed bodies above this size are decompressed on their own thread, so that they do not block other requests.
const DECOMPRESSED_ASIDE_BYTES: usize = 128 << 10;

async fn decompress(bytes: Bytes) -> Result<Bytes, ApiError> {
    if bytes.len() < DECOMPRESSED_ASIDE_BYTES {
        return decode(&bytes);
    }
    tokio::task::spawn_blocking(move || decode(&bytes))
        .await
        .unwrap_or(Err(ApiError::Stopping))
}

/// Decompresses as far as the limit and no further: a zip bomb costs no more than an honest body.
fn decode(bytes: &[u8]) -> Result<Bytes, ApiError> {
    let wrong = |error: std::io::Error| {
        ApiError::invalid(
            format!("the body is not zstd: {error}"),
            "send a whole zstd frame",
        )
    };
    let mut decoder = zstd::stream::read::Decoder::with_buffer(bytes).map_err(wrong)?;
    decoder.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(wrong)?;
    let mut decoded = Vec::new();
    decoder
        .take(REQUEST_DECODED_BYTES_MAX as u64 + 1)
        .read_to_end(&mut decoded)
        .map_err(wrong)?;
    if decoded.len() > REQUEST_DECODED_BYTES_MAX {
        return Err(too_large_decoded());
    }
    Ok(decoded.into())
}

/// Refuses a body of another type than `expected`.
pub fn check_type(headers: &HeaderMap, expected: &'static str) -> Result<(), ApiError> {
    let found = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let essence = found.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case(expected) {
        return Ok(());
    }
    Err(ApiError::MediaType {
        found: found.chars().take(80).collect(),
        expected,
    })
}

/// A JSON body, as text: its reader can borrow from it.
#[derive(Debug)]
pub struct JsonBody(Body);

impl FromRequest<App> for JsonBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        check_type(request.headers(), "application/json")?;
        Ok(JsonBody(Body::from_request(request, app).await?))
    }
}

impl JsonBody {
    /// Reads the body as `T`.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, ApiError> {
        serde_json::from_slice(&self.0.bytes).map_err(|error| {
            ApiError::invalid(
                format!("the body cannot be read: {error}"),
                "see this operation in /api/v1/openapi.json",
            )
        })
    }
}

/// A value that is there, also where it is `null`.
pub fn even_null<'de: 'a, 'a, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// The parameters after the question mark.
#[derive(Debug)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned> FromRequestParts<App> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, ApiError> {
        axum::extract::Query::try_from_uri(&parts.uri)
            .map(|query| Query(query.0))
            .map_err(|error| {
                ApiError::invalid(
                    format!("the query cannot be read: {}", error.body_text()),
                    "see this operation in /api/v1/openapi.json",
                )
            })
    }
}

/// The one part of the path that varies, decoded.
#[derive(Debug)]
pub struct PathText(pub String);

impl FromRequestParts<App> for PathText {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let path = axum::extract::Path::<String>::from_request_parts(parts, app).await;
        path.map(|path| PathText(path.0)).map_err(|error| {
            ApiError::invalid(
                format!("the path cannot be read: {}", error.body_text()),
                "send UTF-8, percent-encoded",
            )
        })
    }
}

/// Refuses a query where none is read, so that a mistyped one is not overlooked.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoQuery {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zip_bombs_stop_at_the_limit() {
        let zeros = vec![0; 1 << 20];
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
        for _ in 0..70 {
            std::io::Write::write_all(&mut encoder, &zeros).unwrap();
        }
        let bomb = encoder.finish().unwrap();
        assert!(bomb.len() < 100_000);
        assert!(matches!(decode(&bomb), Err(ApiError::TooLarge { .. })));
    }

    #[test]
    fn what_is_not_zstd_or_cut_or_needs_too_much_memory_is_refused() {
        let whole = zstd::encode_all(&b"hello"[..], 3).unwrap();
        assert_eq!(decode(&whole).unwrap(), "hello");
        for wrong in [&b"hello"[..], &whole[..whole.len() - 1], &whole[1..]] {
            assert!(matches!(decode(wrong), Err(ApiError::Invalid { .. })));
        }
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
        encoder.long_distance_matching(true).unwrap();
        encoder.window_log(27).unwrap();
        std::io::Write::write_all(&mut encoder, &[1; 1 << 20]).unwrap();
        assert!(matches!(
            decode(&encoder.finish().unwrap()),
            Err(ApiError::Invalid { .. })
        ));
    }
}
