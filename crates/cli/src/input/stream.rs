//! The bytes of an input, with the position and checksum of the accepted bytes.

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use crc32fast::Hasher;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The bytes of one read, which are also the smallest buffer.
const BUFFER_BYTES_MIN: usize = 256 << 10;

/// The time that a batch with an item waits for the next bytes of a pipe.
const QUIET_MAX: Duration = Duration::from_millis(10);

/// The time in which a batch gathers items from a slow pipe, counted from its first item.
const GATHER_MAX: Duration = Duration::from_millis(50);

/// A pipe whose writer may be slow.
struct Pipe {
    descriptor: OwnedFd,
    /// The end of the current batch if the next bytes do not come. `None` while the batch has no item.
    batch_ends_at: Option<Instant>,
}

impl Pipe {
    /// Reports whether the current batch can have the next bytes. Waits for them, but not long.
    fn is_ready(&self) -> bool {
        let Some(ends_at) = self.batch_ends_at else {
            return true;
        };
        let wait = QUIET_MAX.min(ends_at.saturating_duration_since(Instant::now()));
        let mut polled = [PollFd::new(&self.descriptor, PollFlags::IN)];
        let timeout = Timespec::try_from(wait).ok();
        // An error appears when the pipe is read.
        poll(&mut polled, timeout.as_ref()).map_or(true, |ready| ready > 0)
    }
}

/// A buffered reader that keeps bytes until they are accepted, and counts and hashes accepted bytes.
///
/// The readers of lines and rows look ahead in [`pending`](Stream::pending) and accept only whole items, so a later
/// process can always continue at the accepted position. The longest item bounds the look-ahead.
pub(super) struct Stream {
    reader: Box<dyn Read + Send>,
    pipe: Option<Pipe>,
    buffer: Vec<u8>,
    /// The end of the accepted bytes.
    accepted: usize,
    /// The end of the read bytes.
    end: usize,
    /// The end of the hashed bytes: hashing lags behind accepting, because it is faster in bulk.
    hashed: usize,
    hasher: Hasher,
    /// The last hashed byte, if this stream has hashed any.
    last: Option<u8>,
    /// The position of `buffer[0]` in the input.
    offset: u64,
    /// The reader has reported its end. It is not read again, because a terminal would wait for input.
    at_end: bool,
}

impl Stream {
    /// A stream that starts at `offset` of the input. `crc32` covers the bytes before.
    pub fn new(reader: Box<dyn Read + Send>, offset: u64, crc32: u32) -> Stream {
        Stream {
            reader,
            pipe: None,
            buffer: vec![0; BUFFER_BYTES_MIN],
            accepted: 0,
            end: 0,
            hashed: 0,
            hasher: Hasher::new_with_initial(crc32),
            last: None,
            offset,
            at_end: false,
        }
    }

    /// Makes it the stream of a pipe with this descriptor. The descriptor is only polled, to decide when a batch ends.
    pub fn of_pipe(mut self, descriptor: Option<OwnedFd>) -> Stream {
        self.pipe = descriptor.map(|descriptor| Pipe {
            descriptor,
            batch_ends_at: None,
        });
        self
    }

    /// Notes that the current batch has an item. From now on it does not wait long for others.
    pub fn note_item(&mut self) {
        if let Some(pipe) = &mut self.pipe {
            pipe.batch_ends_at
                .get_or_insert_with(|| Instant::now() + GATHER_MAX);
        }
    }

    /// Starts the next batch.
    pub fn begin_batch(&mut self) {
        if let Some(pipe) = &mut self.pipe {
            pipe.batch_ends_at = None;
        }
    }

    /// The bytes that were read and are not accepted yet.
    pub fn pending(&self) -> &[u8] {
        &self.buffer[self.accepted..self.end]
    }

    /// Reads more bytes after the pending ones. Returns `false` at the end of the input.
    pub fn read_more(&mut self) -> io::Result<bool> {
        if self.at_end {
            return Ok(false);
        }
        self.make_room();
        loop {
            match self.reader.read(&mut self.buffer[self.end..]) {
                Ok(0) => {
                    self.at_end = true;
                    return Ok(false);
                }
                Ok(bytes) => {
                    self.end += bytes;
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Like [`read_more`](Stream::read_more), but fails with [`io::ErrorKind::WouldBlock`] if the current batch has an
    /// item and the writer of the pipe is slow.
    pub fn read_more_of_batch(&mut self) -> io::Result<bool> {
        if self.at_end || self.pipe.as_ref().is_none_or(Pipe::is_ready) {
            self.read_more()
        } else {
            Err(io::ErrorKind::WouldBlock.into())
        }
    }

    /// Accepts the first `bytes` of the pending bytes.
    pub fn accept(&mut self, bytes: usize) {
        self.accepted += bytes;
        debug_assert!(self.accepted <= self.end);
    }

    /// The number of accepted bytes, and the CRC-32 of all bytes up to there.
    pub fn position(&mut self) -> (u64, u32) {
        self.hash_accepted();
        (self.offset + self.accepted as u64, self.hasher.clone().finalize())
    }

    /// Sets the byte before the stream's first byte.
    pub fn set_last(&mut self, last: Option<u8>) {
        self.last = last;
    }

    /// Reports whether the accepted bytes end within a line.
    pub fn is_in_line(&mut self) -> bool {
        self.hash_accepted();
        self.last.is_some_and(|last| !matches!(last, b'\n' | b'\r'))
    }

    /// Accepts everything up to `offset` of the input. Returns `false` if the input ends before.
    pub fn skip_to(&mut self, offset: u64) -> io::Result<bool> {
        loop {
            let left = offset.saturating_sub(self.offset + self.accepted as u64);
            let step = usize::try_from(left)
                .unwrap_or(usize::MAX)
                .min(self.pending().len());
            self.accept(step);
            if left == step as u64 {
                return Ok(true);
            }
            if !self.read_more()? {
                return Ok(false);
            }
        }
    }

    /// The size of the buffer in memory.
    #[cfg(test)]
    pub fn held_bytes(&self) -> usize {
        self.buffer.len()
    }

    fn hash_accepted(&mut self) {
        self.hasher.update(&self.buffer[self.hashed..self.accepted]);
        self.last = self.buffer[self.hashed..self.accepted]
            .last()
            .copied()
            .or(self.last);
        self.hashed = self.accepted;
    }

    /// Moves the pending bytes to the front if that is cheap, and doubles a full buffer.
    fn make_room(&mut self) {
        if self.accepted > 0 && (self.accepted == self.end || self.end == self.buffer.len()) {
            self.hash_accepted();
            self.buffer.copy_within(self.accepted..self.end, 0);
            self.offset += self.accepted as u64;
            self.end -= self.accepted;
            self.accepted = 0;
            self.hashed = 0;
        }
        if self.end == self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_position_and_checksum_cover_only_accepted_bytes() {
        let bytes: Vec<u8> = (0..1_000_000u32).flat_map(u32::to_le_bytes).collect();
        let mut stream = Stream::new(Box::new(io::Cursor::new(bytes.clone())), 0, 0);
        assert!(stream.read_more().unwrap());
        stream.accept(10);
        assert_eq!(stream.position(), (10, crc32fast::hash(&bytes[..10])));
        assert!(stream.skip_to(3_000_001).unwrap());
        assert_eq!(
            stream.position(),
            (3_000_001, crc32fast::hash(&bytes[..3_000_001]))
        );
        assert!(!stream.skip_to(4_000_001).unwrap());
        assert_eq!(stream.position().0, 4_000_000);
    }

    #[test]
    fn a_resumed_stream_has_the_checksum_of_the_whole_input() {
        let bytes = b"first half, second half";
        let mut stream = Stream::new(
            Box::new(io::Cursor::new(&bytes[10..])),
            10,
            crc32fast::hash(&bytes[..10]),
        );
        assert!(stream.skip_to(bytes.len() as u64).unwrap());
        assert_eq!(stream.position(), (bytes.len() as u64, crc32fast::hash(bytes)));
    }
}
