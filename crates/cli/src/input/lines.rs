//! Lines of a stream, each of bounded length.

use std::io;

use gristmill_model::limits::PAYLOAD_BYTES_MAX;

use super::stream::Stream;

/// The number of bytes that are kept of a line that is too long, to recognise it.
pub(super) const EXCERPT_BYTES_MAX: usize = 1 << 10;

/// The largest line. A longer one would be refused as a payload, with some room for white space around it. Bytes.
const LINE_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + 1_024;

/// The next line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A line in the stream's pending bytes, not accepted yet.
    Whole {
        /// Its length without the line's end.
        text_bytes: usize,
        /// Its length with the line's end: the bytes to accept.
        line_bytes: usize,
    },
    /// A line that is too long. It is accepted already, and was never in memory as a whole.
    TooLong {
        /// Its length.
        bytes: u64,
        /// Its beginning.
        excerpt: Vec<u8>,
    },
    /// No more lines.
    End,
}

/// Finds lines in a stream. It remembers its place, so that no byte is searched twice.
#[derive(Debug, Default)]
pub(super) struct LineFinder {
    searched: usize,
}

impl LineFinder {
    /// Finds the next line. The caller accepts it before it asks for another one. Until then, further calls find the
    /// same line.
    pub fn next(&mut self, stream: &mut Stream) -> io::Result<Line> {
        loop {
            let pending = stream.pending();
            if let Some(offset) = memchr::memchr(b'\n', &pending[self.searched..]) {
                let end = self.searched + offset;
                self.searched = 0;
                let text_bytes = end - usize::from(end > 0 && pending[end - 1] == b'\r');
                return Ok(Line::Whole {
                    text_bytes,
                    line_bytes: end + 1,
                });
            }
            self.searched = pending.len();
            if self.searched > LINE_BYTES_MAX {
                return self.discard_line(stream);
            }
            if !stream.read_more_of_batch()? {
                let left = std::mem::take(&mut self.searched);
                return Ok(match left {
                    0 => Line::End,
                    bytes => Line::Whole {
                        text_bytes: bytes,
                        line_bytes: bytes,
                    },
                });
            }
        }
    }

    fn discard_line(&mut self, stream: &mut Stream) -> io::Result<Line> {
        self.searched = 0;
        let excerpt = stream.pending()[..EXCERPT_BYTES_MAX].to_vec();
        let mut bytes = 0;
        loop {
            let pending = stream.pending();
            let length = pending.len();
            if let Some(end) = memchr::memchr(b'\n', pending) {
                stream.accept(end + 1);
                return Ok(Line::TooLong {
                    bytes: bytes + end as u64,
                    excerpt,
                });
            }
            stream.accept(length);
            bytes += length as u64;
            if !stream.read_more()? {
                return Ok(Line::TooLong { bytes, excerpt });
            }
        }
    }
}
