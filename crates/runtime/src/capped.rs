//! Printed text of a script, cut at a limit. The rest is counted and dropped.

use gristmill_model::limits::LOG_BYTES_MAX;

/// The text that a listener gets where a log is cut.
pub(crate) const CUT_NOTE: &str =
    "\n… what else this job prints is dropped: a job's log is cut at 65536 bytes\n";
const _: () = assert!(LOG_BYTES_MAX == 65_536);

/// The room for the line with the number of dropped bytes.
const NOTE_BYTES: usize = 96;

/// The first bytes of a stream that may be endless.
#[derive(Debug, Default)]
pub(crate) struct CappedLog {
    kept: Vec<u8>,
    dropped_bytes: u64,
    dropped_by_writer_bytes: u64,
}

impl CappedLog {
    /// Adds bytes, or counts them if there is no more room.
    pub fn push(&mut self, bytes: &[u8]) {
        let room = LOG_BYTES_MAX.saturating_sub(self.kept.len()).min(bytes.len());
        self.kept.extend_from_slice(&bytes[..room]);
        self.dropped_bytes += (bytes.len() - room) as u64;
        assert!(
            self.kept.len() <= LOG_BYTES_MAX,
            "a log keeps at most {LOG_BYTES_MAX} bytes"
        );
    }

    /// Notes that the writer itself has dropped this many bytes in total. Returns whether these are the first ones.
    pub fn dropped_by_writer(&mut self, bytes: u64) -> bool {
        std::mem::replace(&mut self.dropped_by_writer_bytes, bytes) == 0
    }

    /// The kept text.
    pub fn kept(&self) -> &[u8] {
        &self.kept
    }

    /// Appends another log.
    pub fn append(&mut self, other: CappedLog) {
        self.push(&other.kept);
        self.dropped_bytes += other.dropped_bytes;
        self.dropped_by_writer_bytes += other.dropped_by_writer_bytes;
    }

    /// Reports whether nothing was printed.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.dropped_bytes == 0 && self.dropped_by_writer_bytes == 0
    }

    /// The last `bytes_max` of the kept bytes, as text.
    pub fn tail(&self, bytes_max: usize) -> String {
        let from = self.kept.len().saturating_sub(bytes_max);
        String::from_utf8_lossy(&self.kept[from..]).trim().to_owned()
    }

    /// The text, at most [`LOG_BYTES_MAX`] long, with a last line that counts the missing bytes.
    pub fn into_text(self) -> String {
        let mut text = String::from_utf8_lossy(&self.kept).into_owned();
        let mut dropped_bytes = self.dropped_bytes + self.dropped_by_writer_bytes;
        // Invalid UTF-8 grows when it is replaced.
        if dropped_bytes > 0 || text.len() > LOG_BYTES_MAX {
            let mut end = text.len().min(LOG_BYTES_MAX - NOTE_BYTES);
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            dropped_bytes += (text.len() - end) as u64;
            text.truncate(end);
            text.push_str(&format!(
                "\n… {dropped_bytes} more bytes were dropped: a job's log is cut at {LOG_BYTES_MAX} bytes\n"
            ));
        }
        assert!(
            text.len() <= LOG_BYTES_MAX,
            "a log with its note has {} bytes",
            text.len()
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_fits_and_counts_the_rest() {
        let mut log = CappedLog::default();
        assert!(log.is_empty());
        for _ in 0..3 {
            log.push("é".repeat(LOG_BYTES_MAX / 4).as_bytes());
        }
        log.push(b"x");
        log.dropped_by_writer(40);
        log.dropped_by_writer(41);
        let text = log.into_text();
        assert!(text.len() <= LOG_BYTES_MAX, "{}", text.len());
        let dropped = LOG_BYTES_MAX / 2 + 42 + NOTE_BYTES;
        assert!(
            text.ends_with(&format!(
                "… {dropped} more bytes were dropped: a job's log is cut at 65536 bytes\n"
            )),
            "{}",
            &text[text.len() - 100..]
        );
    }

    #[test]
    fn text_that_is_not_utf_8_stays_within_the_limit() {
        let mut log = CappedLog::default();
        log.push(&vec![0xff; LOG_BYTES_MAX]);
        assert!(log.into_text().len() <= LOG_BYTES_MAX);
    }
}
