//! The output of a warm process on file descriptors 1 and 2, and its assignment to jobs.
//!
//! The shims catch what scripts print in their own language, and write it into the pipe as records that name the job.
//! All other output was written past them: by native code, or by programs that a job started. To assign it, a shim
//! writes another record when a job ends that ran long enough to have started a program. If one job runs at a time,
//! output before a record belongs to that record's job, so that both stand in the order in which they were written.

mod lines;

use std::collections::HashMap;
use std::ops::Range;

use memchr::memmem;

use crate::capped::{CUT_NOTE, CappedLog};
use crate::limits::RECORD_BYTES_MAX;
use crate::output::lines::Lines;

pub use crate::output::lines::{PrintListener, StandardStream};

/// The bytes before a record's nonce, kind, number and length.
const RECORD_START: [u8; 5] = *b"\0GRST";
const NONCE_END: usize = RECORD_START.len() + 8;
const HEAD_BYTES: usize = NONCE_END + 9;

const KIND_ENDED: u8 = 0;
const KIND_PRINTED: u8 = 1;
const KIND_DROPPED: u8 = 2;
const KIND_PRINTED_TO_ERROR: u8 = 3;

/// The output of one process, split by job.
#[derive(Debug)]
pub(crate) struct Output {
    /// The first bytes of a record of this process. The script does not know them, so it cannot forge a record.
    start: [u8; NONCE_END],
    /// Output that no record has claimed yet.
    pub unclaimed: CappedLog,
    /// The numbers of the jobs that the process may have. Records of other jobs are dropped.
    pub numbers: Range<u32>,
    /// True if the process runs one job at a time.
    pub is_one_at_a_time: bool,
    logs: HashMap<u32, CappedLog>,
    /// The output of followed jobs since the last call.
    news: Option<Vec<(u32, Vec<u8>)>>,
    /// The lines on their way to a listener, if there is one.
    lines: Option<Lines>,
    /// The beginning of a possible record.
    partial: Vec<u8>,
}

impl Output {
    pub fn new(nonce: u64, listener: Option<PrintListener>) -> Output {
        let mut start = [0; NONCE_END];
        start[..RECORD_START.len()].copy_from_slice(&RECORD_START);
        start[RECORD_START.len()..].copy_from_slice(&nonce.to_le_bytes());
        Output {
            start,
            unclaimed: CappedLog::default(),
            numbers: 0..0,
            is_one_at_a_time: false,
            logs: HashMap::new(),
            news: None,
            lines: listener.map(Lines::new),
            partial: Vec::new(),
        }
    }

    /// Processes read bytes.
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
            let Some(head) = bytes.get(at..at + HEAD_BYTES) else {
                break;
            };
            let (kind, number, length) = (
                head[NONCE_END],
                word(head, NONCE_END + 1),
                word(head, NONCE_END + 5),
            );
            // No shim writes a longer record.
            let length = (length as usize).min(RECORD_BYTES_MAX);
            let Some(body) = bytes.get(at + HEAD_BYTES..at + HEAD_BYTES + length) else {
                break;
            };
            self.push_raw(&bytes[..at]);
            self.take_record(kind, number, body);
            bytes = &bytes[at + HEAD_BYTES + length..];
        }
        assert!(self.partial.is_empty(), "kept bytes are part of the next ones");
        let whole = bytes.len() - self.partial_record_bytes(bytes);
        self.push_raw(&bytes[..whole]);
        self.partial.extend_from_slice(&bytes[whole..]);
        assert!(
            self.partial.len() < HEAD_BYTES + RECORD_BYTES_MAX,
            "{} bytes are kept, but a whole record is shorter",
            self.partial.len()
        );
    }

    fn push_raw(&mut self, bytes: &[u8]) {
        self.unclaimed.push(bytes);
        self.tell_listener(StandardStream::Output, bytes);
    }

    fn tell_listener(&mut self, stream: StandardStream, bytes: &[u8]) {
        if let Some(lines) = &mut self.lines {
            lines.push(stream, bytes);
        }
    }

    fn flush_lines(&mut self) {
        if let Some(lines) = &mut self.lines {
            lines.flush();
        }
    }

    /// Assigns raw output to a job.
    fn claim(&mut self, number: u32) {
        if !self.unclaimed.is_empty() {
            let raw = std::mem::take(&mut self.unclaimed);
            self.tell(number, raw.kept());
            self.logs.entry(number).or_default().append(raw);
        }
    }

    fn take_record(&mut self, kind: u8, number: u32, body: &[u8]) {
        if !self.numbers.contains(&number) {
            if kind == KIND_ENDED {
                self.unclaimed = CappedLog::default();
            }
            return;
        }
        match kind {
            KIND_ENDED => {
                self.claim(number);
                self.flush_lines();
            }
            KIND_PRINTED | KIND_PRINTED_TO_ERROR => {
                if self.is_one_at_a_time {
                    self.claim(number);
                }
                self.tell(number, body);
                self.logs.entry(number).or_default().push(body);
                let stream = match kind {
                    KIND_PRINTED => StandardStream::Output,
                    _ => StandardStream::Error,
                };
                self.tell_listener(stream, body);
            }
            KIND_DROPPED => {
                let Ok(bytes) = body.try_into() else { return };
                let log = self.logs.entry(number).or_default();
                let is_first = log.dropped_by_writer(u64::from_le_bytes(bytes));
                if is_first {
                    self.tell_listener(StandardStream::Output, CUT_NOTE.as_bytes());
                }
            }
            _ => {}
        }
    }

    fn tell(&mut self, number: u32, bytes: &[u8]) {
        if let Some(news) = &mut self.news
            && !bytes.is_empty()
        {
            news.push((number, bytes.to_vec()));
        }
    }

    /// The number of bytes at the end that may be the beginning of a record.
    fn partial_record_bytes(&self, bytes: &[u8]) -> usize {
        // A record that lacks only its end begins with the whole start.
        let from = bytes.len().saturating_sub(HEAD_BYTES + RECORD_BYTES_MAX - 1);
        if let Some(at) = memmem::find(&bytes[from..], &self.start) {
            return bytes.len() - from - at;
        }
        let from = bytes.len().saturating_sub(NONCE_END - 1);
        let begins = |at: &usize| {
            let tail = &bytes[*at..];
            tail == &self.start[..tail.len()]
        };
        (from..bytes.len()).find(begins).map_or(0, |at| bytes.len() - at)
    }

    /// Takes the output of a job so far.
    pub fn take_log(&mut self, number: u32) -> Option<CappedLog> {
        self.logs.remove(&number)
    }

    /// The output of a job so far.
    pub fn log(&self, number: u32) -> Option<&CappedLog> {
        self.logs.get(&number)
    }

    /// Adds to a job's log.
    pub fn add_to_log(&mut self, number: u32, log: CappedLog) {
        self.logs.entry(number).or_default().append(log);
    }

    /// The number of jobs with logs.
    pub fn logs_count(&self) -> usize {
        self.logs.len()
    }

    /// Drops the output of jobs that the process no longer has.
    pub fn forget(&mut self, is_expected: impl Fn(u32) -> bool) {
        self.logs.retain(|number, _| is_expected(*number));
    }

    /// Starts or stops keeping output for [`Output::take_news`].
    pub fn follow(&mut self, followed: bool) {
        if followed {
            self.news.get_or_insert_default();
        } else {
            self.news = None;
        }
    }

    /// Reports whether somebody follows a job.
    pub fn is_followed(&self) -> bool {
        self.news.is_some()
    }

    /// Takes the output of jobs since the last call.
    pub fn take_news(&mut self) -> Vec<(u32, Vec<u8>)> {
        self.news.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Takes all remaining raw output.
    pub fn take_unclaimed(&mut self) -> CappedLog {
        let partial = std::mem::take(&mut self.partial);
        self.push_raw(&partial);
        self.flush_lines();
        std::mem::take(&mut self.unclaimed)
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: u64 = 0x0807_0605_0403_0201;

    fn record(nonce: u64, kind: u8, number: u32, body: &[u8]) -> Vec<u8> {
        [
            RECORD_START.as_slice(),
            &nonce.to_le_bytes(),
            &[kind],
            &number.to_le_bytes(),
            &(body.len() as u32).to_le_bytes(),
            body,
        ]
        .concat()
    }

    #[test]
    fn records_assign_output_however_the_bytes_arrive() {
        let forged = record(NONCE + 1, KIND_ENDED, 3, b"");
        let stream = [
            b"one\0",
            &forged[..],
            &record(NONCE, KIND_PRINTED, 4, b"four\0GRST")[..],
            &record(NONCE, KIND_ENDED, 3, b""),
            &record(NONCE, KIND_ENDED, 4, b""),
            b"two",
            &record(NONCE, KIND_PRINTED, 4, b" and more"),
            &record(NONCE, KIND_DROPPED, 4, &7u64.to_le_bytes()),
            &record(NONCE, KIND_ENDED, 5, b""),
            &record(NONCE, KIND_PRINTED, 99, b"of a job that it does not have"),
            b"rest\0GR",
        ]
        .concat();
        for step in 1..stream.len() {
            let mut output = Output::new(NONCE, None);
            output.numbers = 3..6;
            output.follow(true);
            stream.chunks(step).for_each(|bytes| output.push(bytes));
            let mut text = |number| output.take_log(number).map(CappedLog::into_text);
            let expected = [b"one\0".as_slice(), &forged].concat();
            assert_eq!(
                text(3),
                Some(String::from_utf8_lossy(&expected).into_owned()),
                "{step}"
            );
            let four = text(4).unwrap();
            assert!(
                four.starts_with("four\0GRST and more\n… 7 more bytes"),
                "{step}: {four}"
            );
            assert_eq!(text(5).as_deref(), Some("two"), "{step}");
            assert_eq!(text(99), None, "{step}");
            assert_eq!(output.take_unclaimed().into_text(), "rest\0GR", "{step}");
            let news = output.take_news();
            let of_four: Vec<u8> = news
                .iter()
                .filter(|(number, _)| *number == 4)
                .flat_map(|(_, bytes)| bytes.clone())
                .collect();
            assert_eq!(of_four, b"four\0GRST and more", "{step}");
        }
    }

    #[test]
    fn output_of_a_lone_job_and_its_programs_stays_in_order() {
        let heard = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let told = heard.clone();
        let listener = PrintListener::new(move |stream, text| {
            told.lock().unwrap().push((stream, text.to_owned()));
        });
        let stream = [
            &record(NONCE, KIND_PRINTED, 3, b"parent 1\n")[..],
            b"child 1\n",
            &record(NONCE, KIND_PRINTED_TO_ERROR, 3, b"parent 2\n"),
            b"child 2\n",
            &record(NONCE, KIND_DROPPED, 3, &7u64.to_le_bytes()),
            &record(NONCE, KIND_DROPPED, 3, &8u64.to_le_bytes()),
            b"child 3",
            &record(NONCE, KIND_ENDED, 3, b""),
        ]
        .concat();
        for step in 1..stream.len() {
            let mut output = Output::new(NONCE, Some(listener.clone()));
            output.numbers = 3..4;
            output.is_one_at_a_time = true;
            stream.chunks(step).for_each(|bytes| output.push(bytes));
            let log = output.take_log(3).unwrap().into_text();
            assert!(
                log.starts_with("parent 1\nchild 1\nparent 2\nchild 2\nchild 3\n… 8 more bytes"),
                "{step}: {log}"
            );
            let heard = std::mem::take(&mut *heard.lock().unwrap());
            let of = |wanted| {
                let texts = heard.iter().filter(|(stream, _)| *stream == wanted);
                texts.map(|(_, text)| text.as_str()).collect::<String>()
            };
            assert_eq!(of(StandardStream::Error), "parent 2\n", "{step}");
            assert_eq!(
                of(StandardStream::Output),
                format!("parent 1\nchild 1\nchild 2\n{CUT_NOTE}child 3"),
                "{step}"
            );
        }
    }
}
