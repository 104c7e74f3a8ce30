//! Decompression in steps. Each step takes room before it takes memory.

use std::io::{Cursor, Read};

use bytes::Bytes;
use zstd::stream::read::Decoder;

use super::too_large;
use crate::error::ApiError;
use crate::limits::{DECODED_STEP_BYTES, READ_ASIDE_FROM_BYTES, ZSTD_WINDOW_LOG_MAX};
use crate::room::Place;

/// A partly decompressed body.
struct Decoding {
    decoder: Decoder<'static, Cursor<Bytes>>,
    decoded: Vec<u8>,
    is_whole: bool,
}

/// Decompresses a body up to its limit: a zip bomb costs no more than an honest body. Short bodies are decompressed at
/// once. Longer ones continue outside of the event loop.
pub(super) async fn decode(compressed: Bytes, place: &mut Place) -> Result<Bytes, ApiError> {
    let bytes_max = place.room().decoded_bytes_max;
    let mut decoding = Decoding::new(compressed)?;
    take_room(place, 0, READ_ASIDE_FROM_BYTES).await?;
    decoding.step(READ_ASIDE_FROM_BYTES)?;
    while !decoding.is_whole {
        let before = decoding.decoded.len();
        if before > bytes_max {
            return Err(too_large("the request's body, decompressed,", bytes_max));
        }
        let step = DECODED_STEP_BYTES.min(bytes_max + 1 - before);
        take_room(place, before, step).await?;
        let turn = place.turn().await?;
        let stepped = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            decoding.step(step).map(|()| decoding)
        });
        decoding = stepped.await.unwrap_or(Err(ApiError::Stopping))?;
    }
    if decoding.decoded.len() > bytes_max {
        return Err(too_large("the request's body, decompressed,", bytes_max));
    }
    decoding.decoded.shrink_to_fit();
    place.shrink_to(decoding.decoded.len());
    Ok(decoding.decoded.into())
}

/// Takes room for the next bytes and for the part of the decoder's window that they fill.
async fn take_room(place: &mut Place, before: usize, step: usize) -> Result<(), ApiError> {
    let window = (1usize << ZSTD_WINDOW_LOG_MAX).saturating_sub(before);
    place.grow(step + step.min(window)).await
}

fn wrong(error: std::io::Error) -> ApiError {
    ApiError::invalid(
        format!("the body is not zstd: {error}"),
        "send a whole zstd frame",
    )
}

impl Decoding {
    fn new(compressed: Bytes) -> Result<Decoding, ApiError> {
        let mut decoder = Decoder::with_buffer(Cursor::new(compressed)).map_err(wrong)?;
        decoder.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(wrong)?;
        Ok(Decoding {
            decoder,
            decoded: Vec::new(),
            is_whole: false,
        })
    }

    /// Decompresses this many more bytes, or all that are left.
    fn step(&mut self, bytes: usize) -> Result<(), ApiError> {
        let (mut end, step_end) = (self.decoded.len(), self.decoded.len() + bytes);
        // The decoder must not take more memory than the room that was taken.
        self.decoded.reserve_exact(bytes);
        self.decoded.resize(step_end, 0);
        while end < step_end && !self.is_whole {
            let read = self.decoder.read(&mut self.decoded[end..]).map_err(wrong)?;
            self.is_whole = read == 0;
            end += read;
        }
        self.decoded.truncate(end);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::limits::REQUEST_DECODED_BYTES_MAX;
    use crate::room::Rooms;

    async fn decoded(compressed: &[u8]) -> Result<Bytes, ApiError> {
        let rooms = Rooms::default();
        let mut place = rooms.of("/jobs").enter("one".into());
        decode(Bytes::copy_from_slice(compressed), &mut place).await
    }

    #[tokio::test]
    async fn zip_bombs_stop_at_the_limit() {
        let whole = zstd::encode_all(&vec![0; REQUEST_DECODED_BYTES_MAX][..], 1).unwrap();
        assert_eq!(decoded(&whole).await.unwrap().len(), REQUEST_DECODED_BYTES_MAX);
        let bomb = zstd::encode_all(&vec![0; REQUEST_DECODED_BYTES_MAX + 1][..], 1).unwrap();
        assert!(bomb.len() < 100_000);
        assert!(matches!(decoded(&bomb).await, Err(ApiError::TooLarge { .. })));
    }

    #[tokio::test]
    async fn steps_of_any_number_give_the_whole_body() {
        let first = READ_ASIDE_FROM_BYTES;
        for bytes in [
            0,
            1,
            first - 1,
            first,
            first + 1,
            first + DECODED_STEP_BYTES,
            9 << 20,
        ] {
            let plain: Vec<u8> = (0..bytes).map(|byte| (byte % 251) as u8).collect();
            let compressed = zstd::encode_all(&plain[..], 1).unwrap();
            assert_eq!(decoded(&compressed).await.unwrap(), plain, "{bytes} bytes");
        }
    }

    #[tokio::test]
    async fn what_is_not_zstd_or_cut_or_needs_too_much_memory_is_refused() {
        let whole = zstd::encode_all(&b"hello"[..], 3).unwrap();
        assert_eq!(decoded(&whole).await.unwrap(), "hello");
        for wrong in [&b"hello"[..], &whole[..whole.len() - 1], &whole[1..]] {
            assert!(matches!(decoded(wrong).await, Err(ApiError::Invalid { .. })));
        }
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
        encoder.long_distance_matching(true).unwrap();
        encoder.window_log(27).unwrap();
        encoder.write_all(&[1; 1 << 20]).unwrap();
        let encoded = encoder.finish().unwrap();
        assert!(matches!(decoded(&encoded).await, Err(ApiError::Invalid { .. })));
    }
}
