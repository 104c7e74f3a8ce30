//! A JSON head, followed by raw segments.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::limits::REPORTS_PER_EXCHANGE_MAX;

/// The first bytes of every message.
const MAGIC: &[u8; 4] = b"GMX1";

/// The largest head. It contains failures and logs, so it may be large. Bytes.
const HEAD_BYTES_MAX: usize = 48 << 20;

/// The largest number of segments in a message: two for each report.
const SEGMENTS_MAX: usize = 2 * REPORTS_PER_EXCHANGE_MAX;

/// The error of bytes that are not a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Another format, or another version.
    #[error("the message does not begin with `GMX1`: it has another format or version")]
    Magic,
    /// The bytes end too early.
    #[error("the message ends after {bytes} bytes, in the middle of {place}")]
    Short {
        /// The number of bytes.
        bytes: usize,
        /// The part in which they end.
        place: &'static str,
    },
    /// A length exceeds its limit.
    #[error("the message announces a head of {0} bytes; the limit is {HEAD_BYTES_MAX}")]
    HeadTooLong(usize),
    /// The head is invalid.
    #[error("the message's head is invalid: {0}")]
    Head(String),
    /// The head names another number of segments than there are.
    #[error("the head names {named} segments, but the message has {found}")]
    Segments {
        /// The number in the head.
        named: usize,
        /// The actual number.
        found: usize,
    },
    /// The message has more segments than a head can name.
    #[error("the message has more than {SEGMENTS_MAX} segments")]
    TooManySegments,
    /// A segment is wrong.
    #[error("{0}")]
    Segment(String),
}

/// Writes a message.
pub(super) fn encode<H: Serialize>(head: &H, segments: &[Segment]) -> Bytes {
    // Heads are structs of this crate with string keys; serialising them cannot fail.
    let head = serde_json::to_vec(head).unwrap_or_default();
    assert!(!head.is_empty(), "a head of this crate can be serialised");
    assert!(
        segments.len() <= SEGMENTS_MAX,
        "a message of {} segments is one that its receiver refuses",
        segments.len()
    );
    let size: usize = segments.iter().map(|segment| 4 + segment.bytes().len()).sum();
    let mut message = BytesMut::with_capacity(8 + head.len() + size);
    message.put_slice(MAGIC);
    debug_assert!(head.len() <= HEAD_BYTES_MAX, "the receiver reads the head");
    message.put_u32_le(head.len() as u32);
    message.put_slice(&head);
    for segment in segments {
        message.put_u32_le(segment.bytes().len() as u32);
        message.put_slice(segment.bytes());
    }
    assert_eq!(
        message.len(),
        8 + head.len() + size,
        "a message has the announced length"
    );
    message.freeze()
}

/// A piece of raw bytes to send.
pub(super) enum Segment {
    Text(Arc<str>),
    Bytes(Vec<u8>),
}

impl Segment {
    fn bytes(&self) -> &[u8] {
        match self {
            Segment::Text(text) => text.as_bytes(),
            Segment::Bytes(bytes) => bytes,
        }
    }
}

/// Reads a message: its head, and its segments in order.
pub(super) fn decode<H: DeserializeOwned>(message: &[u8]) -> Result<(H, Vec<&[u8]>), FrameError> {
    let mut rest = message.strip_prefix(MAGIC).ok_or(FrameError::Magic)?;
    let short = |place| FrameError::Short {
        bytes: message.len(),
        place,
    };
    let head_bytes = take_length(&mut rest).ok_or(short("the head's length"))?;
    if head_bytes > HEAD_BYTES_MAX {
        return Err(FrameError::HeadTooLong(head_bytes));
    }
    let head = take(&mut rest, head_bytes).ok_or(short("the head"))?;
    let head = serde_json::from_slice(head).map_err(|error| FrameError::Head(error.to_string()))?;
    let mut segments = Vec::new();
    while !rest.is_empty() {
        if segments.len() >= SEGMENTS_MAX {
            return Err(FrameError::TooManySegments);
        }
        let bytes = take_length(&mut rest).ok_or(short("a segment's length"))?;
        segments.push(take(&mut rest, bytes).ok_or(short("a segment"))?);
    }
    assert!(segments.len() <= SEGMENTS_MAX, "a message has its limit");
    let bytes: usize = segments.iter().map(|segment| 4 + segment.len()).sum();
    assert_eq!(8 + head_bytes + bytes, message.len(), "a message is read whole");
    Ok((head, segments))
}

fn take<'m>(rest: &mut &'m [u8], bytes: usize) -> Option<&'m [u8]> {
    let (taken, left) = rest.split_at_checked(bytes)?;
    *rest = left;
    Some(taken)
}

fn take_length(rest: &mut &[u8]) -> Option<usize> {
    let bytes = take(rest, 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn messages_read_back_as_written(head in ".*", texts in proptest::collection::vec(".*", 0..5)) {
            let segments: Vec<Segment> = texts.iter().map(|text| Segment::Text(text.as_str().into())).collect();
            let message = encode(&head, &segments);
            let (read, found): (String, Vec<&[u8]>) = decode(&message).unwrap();
            prop_assert_eq!(read, head);
            prop_assert_eq!(found, texts.iter().map(|text| text.as_bytes()).collect::<Vec<_>>());
            // A message that is cut anywhere but at a segment's end is refused.
            for end in 0..message.len() {
                if let Ok((_, found)) = decode::<String>(&message[..end]) {
                    prop_assert!(found.len() < texts.len());
                }
            }
        }

        #[test]
        fn any_bytes_are_refused_or_read(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let mut message = MAGIC.to_vec();
            message.extend(bytes);
            let _ = decode::<serde_json::Value>(&message);
        }
    }

    #[test]
    fn other_formats_and_long_heads_are_refused() {
        assert_eq!(decode::<String>(b"{\"a\":1}").unwrap_err(), FrameError::Magic);
        assert!(matches!(
            decode::<String>(b"GMX1\xff\xff\xff\xff").unwrap_err(),
            FrameError::HeadTooLong(_)
        ));
    }
}
