//! What a warm process writes to file descriptors 1 and 2, and which job it belongs to.
//!
//! The shims catch what scripts print in their own language. What comes here was written past them: by
//! native code, or by programs that a job started. To tell whose it is, a shim writes a marker into
//! the same pipe when a job ends that ran long enough to have started anything.

use memchr::memmem;

use crate::capped::CappedLog;

/// Before the marker's nonce, sequence and index.
const MARKER_START: [u8; 5] = *b"\0GRST";
const NONCE_END: usize = MARKER_START.len() + 8;
const MARKER_BYTES: usize = NONCE_END + 8;

/// The output of one process, cut into what belongs to its jobs.
#[derive(Debug)]
pub(crate) struct Output {
    /// How a marker of this process begins: unknown to the script, so that it cannot be forged.
    start: [u8; NONCE_END],
    /// What no marker has claimed yet.
    pub unclaimed: CappedLog,
    claimed: Vec<Claimed>,
    /// The beginning of what may become a marker.
    partial: Vec<u8>,
}

#[derive(Debug)]
struct Claimed {
    sequence: u32,
    index: u32,
    log: CappedLog,
}

impl Output {
    pub fn new(nonce: u64) -> Output {
        let mut start = [0; NONCE_END];
        start[..MARKER_START.len()].copy_from_slice(&MARKER_START);
        start[MARKER_START.len()..].copy_from_slice(&nonce.to_le_bytes());
        Output {
            start,
            unclaimed: CappedLog::default(),
            claimed: Vec::new(),
            partial: Vec::new(),
        }
    }

    /// Takes what was read.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.partial.is_empty() {
            self.split(bytes);
        } else {
            self.partial.extend_from_slice(bytes);
            let bytes = std::mem::take(&mut self.partial);
            self.split(&bytes);
        }
    }

    fn split(&mut self, mut bytes: &[u8]) {
        while let Some(at) = memmem::find(bytes, &self.start) {
            let Some(marker) = bytes.get(at..at + MARKER_BYTES) else {
                break;
            };
            self.unclaimed.push(&bytes[..at]);
            if !self.unclaimed.is_empty() {
                let word = |from: usize| {
                    marker[from..from + 4]
                        .iter()
                        .rev()
                        .fold(0, |word, byte| word << 8 | u32::from(*byte))
                };
                self.claimed.push(Claimed {
                    sequence: word(NONCE_END),
                    index: word(NONCE_END + 4),
                    log: std::mem::take(&mut self.unclaimed),
                });
            }
            bytes = &bytes[at + MARKER_BYTES..];
        }
        let whole = bytes.len() - self.partial_marker_bytes(bytes);
        self.unclaimed.push(&bytes[..whole]);
        self.partial.extend_from_slice(&bytes[whole..]);
    }

    /// How many bytes at the end may be the beginning of a marker.
    fn partial_marker_bytes(&self, bytes: &[u8]) -> usize {
        let from = bytes.len().saturating_sub(MARKER_BYTES - 1);
        let begins = |at: &usize| {
            let tail = &bytes[*at..];
            let known = tail.len().min(NONCE_END);
            tail[..known] == self.start[..known]
        };
        (from..bytes.len()).find(begins).map_or(0, |at| bytes.len() - at)
    }

    /// Takes what markers have claimed for jobs of a sequence.
    pub fn take_claimed(&mut self, sequence: u32) -> impl Iterator<Item = (u32, CappedLog)> {
        // Sequences end in their order: what an earlier one left behind is of no use any more.
        let claimed = std::mem::take(&mut self.claimed).into_iter();
        let (of_this, later) = claimed
            .filter(|claimed| claimed.sequence >= sequence)
            .partition(|claimed| claimed.sequence == sequence);
        self.claimed = later;
        let of_this: Vec<Claimed> = of_this;
        of_this.into_iter().map(|claimed| (claimed.index, claimed.log))
    }

    /// Takes all that is left.
    pub fn take_unclaimed(&mut self) -> CappedLog {
        self.unclaimed.push(&std::mem::take(&mut self.partial));
        std::mem::take(&mut self.unclaimed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: u64 = 0x0807_0605_0403_0201;

    fn marker(nonce: u64, sequence: u32, index: u32) -> Vec<u8> {
        let numbers = [
            nonce.to_le_bytes().as_slice(),
            &sequence.to_le_bytes(),
            &index.to_le_bytes(),
        ]
        .concat();
        [MARKER_START.as_slice(), &numbers].concat()
    }

    #[test]
    fn markers_claim_what_came_before_them_however_the_bytes_arrive() {
        let forged = marker(NONCE + 1, 1, 0);
        let stream = [
            b"one\0",
            &forged[..],
            &marker(NONCE, 7, 3)[..],
            &marker(NONCE, 7, 4),
            b"two",
            &marker(NONCE, 8, 0),
            b"rest\0GR",
        ]
        .concat();
        for step in 1..stream.len() {
            let mut output = Output::new(NONCE);
            stream.chunks(step).for_each(|bytes| output.push(bytes));
            let seven: Vec<_> = output
                .take_claimed(7)
                .map(|(index, log)| (index, log.into_text()))
                .collect();
            let expected = [b"one\0".as_slice(), &forged].concat();
            assert_eq!(
                seven,
                [(3, String::from_utf8_lossy(&expected).into_owned())],
                "{step}"
            );
            let eight: Vec<_> = output
                .take_claimed(8)
                .map(|(index, log)| (index, log.into_text()))
                .collect();
            assert_eq!(eight, [(0, "two".to_owned())]);
            assert_eq!(output.take_unclaimed().into_text(), "rest\0GR");
        }
    }
}
