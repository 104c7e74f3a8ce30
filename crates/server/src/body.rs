//! Reading requests: bodies within their limits, JSON and queries with errors that name the place.

mod decoding;
pub mod lines;

use std::sync::Arc;

use axum::body::Body as AxumBody;
use axum::extract::{FromRequest, FromRequestParts, MatchedPath, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use gristmill_model::bounded::near::with_near_name;
use gristmill_operations::read::read_request;
use http_body_util::BodyExt;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use crate::app::App;
use crate::caller::Caller;
use crate::error::ApiError;
use crate::limits::{BODY_ARRIVES_WITHIN, BODY_BYTES_PER_SECOND_MIN, BODY_GRACE, READ_ASIDE_FROM_BYTES};
use crate::room::Place;

/// A whole body, decompressed. It keeps its place in its room until it is dropped.
#[derive(Debug)]
pub struct Body {
    bytes: Bytes,
    place: Arc<Place>,
}

/// The encoding of a body.
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

fn too_large(what: &str, bytes_max: usize) -> ApiError {
    ApiError::TooLarge {
        what: what.to_owned(),
        limit: format!("{bytes_max} bytes"),
    }
}

impl FromRequest<App> for Body {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let encoding = Encoding::of(&parts.headers)?;
        let path = parts.extensions.get::<MatchedPath>().map(MatchedPath::as_str);
        let room = app.rooms.of(path.unwrap_or_default());
        let announced: Option<usize> = parts
            .headers
            .get(header::CONTENT_LENGTH)
            .and_then(|length| length.to_str().ok())
            .and_then(|length| length.parse().ok());
        if announced.is_some_and(|bytes| bytes > room.wire_bytes_max) {
            return Err(too_large("the request's body", room.wire_bytes_max));
        }
        // The guard of routes has put the caller there.
        let caller = parts.extensions.get::<Caller>();
        let mut place = room.enter(caller.map_or_else(Arc::default, |caller| caller.token.clone()));
        let bytes = arrive(body, &mut place).await?;
        let bytes = match encoding {
            Encoding::Plain => bytes,
            Encoding::Zstd => decoding::decode(bytes, &mut place).await?,
        };
        Ok(Body {
            bytes,
            place: Arc::new(place),
        })
    }
}

/// Reads a body while it arrives fast enough, and takes room for each piece of it.
async fn arrive(mut body: AxumBody, place: &mut Place) -> Result<Bytes, ApiError> {
    let bytes_max = place.room().wire_bytes_max;
    let mut begun = Instant::now();
    let (mut first, mut all) = (Bytes::new(), BytesMut::new());
    loop {
        let received = (first.len() + all.len()) as u64;
        let until = begun + arrives_within(received);
        let frame = timeout_at(until, body.frame())
            .await
            .map_err(|_| ApiError::Slow)?;
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|error| {
            ApiError::invalid(
                format!("the body is incomplete: {error}"),
                "send all bytes that Content-Length announces",
            )
        })?;
        // A frame without data is a trailer.
        let Ok(data) = frame.into_data() else { continue };
        if received as usize + data.len() > bytes_max {
            return Err(too_large("the request's body", bytes_max));
        }
        let waits_from = Instant::now();
        place.grow(data.len()).await?;
        begun += waits_from.elapsed();
        if received == 0 {
            first = data;
        } else {
            all.extend_from_slice(&std::mem::take(&mut first));
            all.extend_from_slice(&data);
        }
    }
    Ok(if all.is_empty() { first } else { all.freeze() })
}

/// The time in which the next piece of a body must arrive, after this many bytes.
fn arrives_within(received: u64) -> std::time::Duration {
    let seconds = std::time::Duration::from_secs(received / BODY_BYTES_PER_SECOND_MIN);
    (BODY_GRACE + seconds).min(BODY_ARRIVES_WITHIN)
}

impl Body {
    /// Reads the body with `read`. A large body is read on a thread of its own. `read` gets the bytes once. The body
    /// keeps its place until it is dropped, because the parsed value is as large as the bytes.
    pub async fn read<R: Send + 'static>(
        &mut self,
        read: impl FnOnce(&[u8]) -> Result<R, ApiError> + Send + 'static,
    ) -> Result<R, ApiError> {
        let bytes = std::mem::take(&mut self.bytes);
        if bytes.len() < READ_ASIDE_FROM_BYTES {
            return read(&bytes);
        }
        let (turn, place) = (self.place.turn().await?, self.place.clone());
        let work = tokio::task::spawn_blocking(move || {
            let _held = (turn, place);
            read(&bytes)
        });
        work.await.unwrap_or(Err(ApiError::Stopping))
    }
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

/// A JSON body, as text.
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
    pub async fn read<T: DeserializeOwned + Send + 'static>(&mut self) -> Result<T, ApiError> {
        self.0.read(|bytes| json(bytes)).await
    }

    /// Reads the body with `read`, outside of the event loop if it is large: [`Body::read`].
    pub async fn read_with<R: Send + 'static>(
        &mut self,
        read: impl FnOnce(&[u8]) -> Result<R, ApiError> + Send + 'static,
    ) -> Result<R, ApiError> {
        self.0.read(read).await
    }
}

/// Reads JSON as `T`, which can borrow from it.
pub fn json<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, ApiError> {
    read_request(bytes).map_err(|error| {
        ApiError::invalid(
            format!("the body cannot be read: {error}"),
            "see this operation in /api/v1/openapi.json",
        )
    })
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
                    format!("the query cannot be read: {}", with_near_name(&error.body_text())),
                    "see this operation in /api/v1/openapi.json",
                )
            })
    }
}

/// The variable part of the path, decoded.
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

/// Refuses any query on a route that reads none, so that a mistyped parameter is not overlooked.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoQuery {}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::stream;

    use super::*;
    use crate::room::Rooms;

    /// A body with this many pieces of this many bytes. One piece arrives each second.
    fn trickling(pieces: u32, bytes: usize) -> AxumBody {
        AxumBody::from_stream(stream::unfold(0, move |sent| async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            (sent < pieces).then(|| (Ok::<_, std::io::Error>(vec![b' '; bytes]), sent + 1))
        }))
    }

    async fn arrived(body: AxumBody) -> (Result<Bytes, ApiError>, u64) {
        let (rooms, begun) = (Rooms::default(), Instant::now());
        let mut place = rooms.of("/jobs").enter("one".into());
        (arrive(body, &mut place).await, begun.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_trickles_ends() {
        let (whole, _) = arrived(trickling(40, 20 << 10)).await;
        assert_eq!(whole.unwrap().len(), 40 * (20 << 10));
        let silent = AxumBody::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
        for (body, after_s) in [
            (silent, 10),
            (trickling(100, 1), 10),
            (trickling(100, 8 << 10), 19),
        ] {
            let (refused, took_s) = arrived(body).await;
            assert!(matches!(refused, Err(ApiError::Slow)));
            assert!((after_s..=after_s + 1).contains(&took_s), "after {took_s} s");
        }
        let (refused, took_s) = arrived(trickling(100, 20 << 10)).await;
        assert!(matches!(refused, Err(ApiError::Slow)), "at the end of its time");
        assert_eq!(took_s, BODY_ARRIVES_WITHIN.as_secs());
    }
}
