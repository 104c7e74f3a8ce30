//! Packs the items of an input into batches.

use std::sync::Arc;

use gristmill_batching::EndReason;
use gristmill_model::limits::PAYLOAD_BYTES_MAX;
use gristmill_model::{BatchLimits, JobError, PackedBuilder, PackedError, Rejected};
use gristmill_operations::feeder::InputBatch;
use gristmill_store::run::RunProgress;
use serde::Serialize;

use super::csv_rows::{Row, RowReader, count_lines, leading_line_feeds};
use super::dialect::Dialect;
use super::error::InputError;
use super::format::Format;
use super::lines::{EXCERPT_BYTES_MAX, Line, LineFinder};
use super::parquet::REFUSED_ROW_MARK;
use super::payloads::Payloads;
use super::places::Places;
use super::stream::Stream;

/// The way to find the items of a stream.
enum Items {
    Jsonl(LineFinder),
    Lines(LineFinder),
    Rows(Box<RowReader>),
}

/// Reads an input batch by batch.
pub struct BatchReader {
    name: Arc<str>,
    places: Places,
    stream: Stream,
    items: Items,
    limits: BatchLimits,
    /// The number of jobs after which the reader stops, counted from the beginning of the input.
    jobs_limit: Option<u64>,
    progress: RunProgress,
    builder: PackedBuilder,
    rejected: Vec<Rejected>,
    /// The next batch, if `peek` has read it.
    looked_at: Option<InputBatch>,
    /// Makes payloads of the items.
    payloads: Option<Payloads>,
}

/// The result of one read of the input.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// An item was added, or a blank line skipped.
    Taken,
    /// The next item belongs to the next batch.
    BatchFull,
    /// The next item has not arrived yet.
    NotYet,
    /// There is no next item.
    End,
}

impl BatchReader {
    /// A reader of `stream`, which is at the place `progress`.
    pub(super) fn new(
        (name, places): (Arc<str>, Places),
        (format, dialect): (Format, Dialect),
        stream: Stream,
        limits: BatchLimits,
        progress: RunProgress,
    ) -> BatchReader {
        let items = match format {
            Format::Jsonl | Format::Json => Items::Jsonl(LineFinder::default()),
            Format::Lines => Items::Lines(LineFinder::default()),
            Format::Csv | Format::Tsv => Items::Rows(Box::new(RowReader::new(dialect))),
        };
        BatchReader {
            name,
            places,
            stream,
            items,
            limits,
            jobs_limit: None,
            progress,
            builder: PackedBuilder::new(),
            rejected: Vec::new(),
            looked_at: None,
            payloads: None,
        }
    }

    /// Makes other payloads of the items.
    pub(super) fn with_payloads(mut self, payloads: Option<Payloads>) -> BatchReader {
        self.payloads = payloads;
        self
    }

    /// Reads everything before the first item: a byte order mark, the header of a CSV file.
    pub(super) fn begin(&mut self, refuse_document: bool) -> Result<(), InputError> {
        const MARK: &[u8] = b"\xef\xbb\xbf";
        // The reader waits only for a byte order mark, because the first item may be shorter.
        let mut is_begun = true;
        while is_begun {
            let pending = self.stream.pending();
            is_begun = pending.len() < MARK.len() && MARK.starts_with(pending) && self.read_more()?;
        }
        if let Some(encoding) = other_encoding(self.stream.pending()) {
            return Err(InputError::Encoding {
                name: self.name.to_string(),
                encoding,
            });
        }
        match &mut self.items {
            Items::Rows(_) => self.read_header()?,
            Items::Jsonl(_) | Items::Lines(_) => {
                if self.stream.pending().starts_with(MARK) {
                    self.stream.accept(3);
                }
                let first_line = self.stream.pending().split(|byte| *byte == b'\n').next();
                if refuse_document && matches!(first_line.map(<[u8]>::trim_ascii), Some(b"[" | b"{")) {
                    return Err(InputError::WholeDocument(self.name.to_string()));
                }
            }
        }
        self.note_position();
        Ok(())
    }

    /// Stops after this many jobs, counted from the beginning of the input.
    pub fn with_jobs_limit(mut self, jobs_limit: Option<u64>) -> BatchReader {
        self.jobs_limit = jobs_limit;
        self
    }

    /// The current place of the input.
    pub fn progress(&self) -> RunProgress {
        self.progress
    }

    /// The next batch. `None` at the end of the input or at the limit of jobs.
    pub fn next_batch(&mut self) -> Result<Option<InputBatch>, InputError> {
        if let Some(batch) = self.looked_at.take() {
            return Ok(Some(batch));
        }
        let jobs_before = self.progress.jobs;
        let jobs_max = match self.jobs_limit {
            Some(limit) => u64::from(self.limits.jobs_max).min(limit.saturating_sub(jobs_before)),
            None => u64::from(self.limits.jobs_max),
        };
        let mut end_reason = match self.jobs_limit {
            Some(_) if jobs_max < u64::from(self.limits.jobs_max) => EndReason::Limit,
            _ => EndReason::Full,
        };
        while u64::from(self.builder.count()) < jobs_max {
            end_reason = match self.step()? {
                Step::Taken => {
                    if self.builder.count() > 0 {
                        self.stream.note_item();
                    }
                    continue;
                }
                Step::NotYet => EndReason::Deadline,
                Step::BatchFull => EndReason::Bytes,
                Step::End => EndReason::Drained,
            };
            break;
        }
        self.stream.begin_batch();
        let count = self.builder.count();
        self.progress.jobs = jobs_before + u64::from(count);
        self.note_position();
        if count == 0 {
            return Ok(None);
        }
        Ok(Some(InputBatch {
            payloads: std::mem::take(&mut self.builder).finish(),
            rejected: std::mem::take(&mut self.rejected),
            progress: self.progress,
            end_reason,
        }))
    }

    /// Reports whether there is a next batch.
    pub fn has_next(&mut self) -> Result<bool, InputError> {
        Ok(self.peek()?.is_some())
    }

    /// The next batch, without taking it.
    pub fn peek(&mut self) -> Result<Option<&InputBatch>, InputError> {
        self.looked_at = self.next_batch()?;
        Ok(self.looked_at.as_ref())
    }

    /// Accepts this many lines without making jobs of them. Returns `false` if the input has fewer.
    pub(super) fn skip_lines(&mut self, lines: u64) -> Result<bool, InputError> {
        while self.progress.lines < lines {
            if self.step()? == Step::End {
                return Ok(false);
            }
            self.builder = PackedBuilder::new();
            self.rejected.clear();
        }
        self.note_position();
        Ok(true)
    }

    pub(super) fn stream_mut(&mut self) -> &mut Stream {
        &mut self.stream
    }

    /// Takes over the header of a CSV file that another reader has read.
    pub(super) fn take_header_of(&mut self, other: BatchReader) {
        if let (Items::Rows(rows), Items::Rows(other)) = (&mut self.items, other.items) {
            rows.copy_header_of(*other);
        }
    }

    /// Handles accepted bytes that end within a line, because the file had no line feed at its end. Accepts the line
    /// feed that was written since. Returns `true` if the line continues instead.
    pub(super) fn skip_rest_of_line(&mut self) -> Result<bool, InputError> {
        if !self.stream.is_in_line() {
            return Ok(false);
        }
        while self.stream.pending().len() < 2 && self.read_more()? {}
        let ending = match self.stream.pending() {
            [b'\n', ..] => 1,
            [b'\r', b'\n', ..] => 2,
            [] => 0,
            _ => return Ok(true),
        };
        self.stream.accept(ending);
        // The line feed counts a row's line. The text counts any other line.
        if ending > 0 && matches!(self.items, Items::Rows(_)) {
            self.progress.lines += 1;
        }
        self.note_position();
        Ok(false)
    }

    pub(super) fn set_progress(&mut self, progress: RunProgress) {
        self.progress = progress;
    }

    fn note_position(&mut self) {
        (self.progress.bytes, self.progress.crc32) = self.stream.position();
    }

    fn read_error(&self, reason: std::io::Error) -> InputError {
        InputError::Read {
            place: self.places.show(&self.name, self.progress.lines + 1),
            reason,
        }
    }

    fn read_more(&mut self) -> Result<bool, InputError> {
        self.stream.read_more().map_err(|reason| self.read_error(reason))
    }

    fn step(&mut self) -> Result<Step, InputError> {
        match &mut self.items {
            Items::Jsonl(finder) | Items::Lines(finder) => {
                let line = finder.next(&mut self.stream);
                if is_not_yet(&line) {
                    return Ok(Step::NotYet);
                }
                let line = line.map_err(|reason| self.read_error(reason))?;
                Ok(self.take_line(line))
            }
            Items::Rows(rows) => {
                let row = rows.next(&mut self.stream);
                if is_not_yet(&row) {
                    return Ok(Step::NotYet);
                }
                let row = row.map_err(|reason| self.read_error(reason))?;
                self.take_row(row)
            }
        }
    }

    /// Reports whether an item with this many bytes belongs to the next batch.
    fn is_full_for(&self, bytes: usize) -> bool {
        self.builder.count() > 0 && self.builder.bytes() + bytes > self.limits.bytes_max
    }

    fn take_line(&mut self, line: Line) -> Step {
        match line {
            Line::End => Step::End,
            Line::TooLong { bytes, excerpt } => {
                self.progress.lines += 1;
                self.reject(
                    &excerpt,
                    "too_large",
                    &over_limit("line", bytes),
                    self.progress.lines,
                );
                Step::Taken
            }
            Line::Whole { text_bytes, .. } if self.is_full_for(text_bytes) => Step::BatchFull,
            Line::Whole {
                text_bytes,
                line_bytes,
            } => {
                self.progress.lines += 1;
                let line = self.progress.lines;
                let text = &self.stream.pending()[..text_bytes];
                let is_json = matches!(self.items, Items::Jsonl(_));
                let blank = is_json && text.trim_ascii().is_empty();
                let pushed = if blank {
                    Ok(())
                } else {
                    push_line(&mut self.builder, text, is_json, self.payloads.as_ref())
                };
                if let Err((error_type, reason)) = pushed {
                    let excerpt = text[..text.len().min(EXCERPT_BYTES_MAX)].to_vec();
                    self.reject(&excerpt, error_type, &reason, line);
                }
                self.stream.accept(line_bytes);
                Step::Taken
            }
        }
    }

    fn take_row(&mut self, row: Row) -> Result<Step, InputError> {
        Ok(match row {
            Row::End => Step::End,
            Row::Misquoted { lines_before, reason } => return Err(self.misquoted(lines_before, reason)),
            Row::TooLong {
                bytes,
                lines_before,
                lines,
                excerpt,
            } => {
                let line = self.progress.lines + lines_before + 1;
                self.progress.lines += lines;
                self.reject(&excerpt, "too_large", &over_limit("row", bytes), line);
                Step::Taken
            }
            Row::Whole { row_bytes } if self.is_full_for(row_bytes) => Step::BatchFull,
            Row::Whole { row_bytes } => {
                let Items::Rows(rows) = &mut self.items else {
                    return Ok(Step::End);
                };
                let raw = &self.stream.pending()[..row_bytes];
                let line = self.progress.lines + leading_line_feeds(raw) + 1;
                self.progress.lines += count_lines(raw);
                let pushed = match rows.object() {
                    Ok(object) => push_made(&mut self.builder, &object, self.payloads.as_ref()),
                    Err(reason) => Err(("bad_row", reason)),
                };
                if let Err((error_type, reason)) = pushed {
                    let text = raw.trim_ascii();
                    let excerpt = text[..text.len().min(EXCERPT_BYTES_MAX)].to_vec();
                    self.reject(&excerpt, error_type, &reason, line);
                }
                if let Items::Rows(rows) = &mut self.items {
                    rows.accept(&mut self.stream);
                }
                Step::Taken
            }
        })
    }

    fn misquoted(&self, lines_before: u64, reason: String) -> InputError {
        InputError::Quotes {
            place: self
                .places
                .show(&self.name, self.progress.lines + lines_before + 1),
            reason,
        }
    }

    /// Adds a job that cannot run. Its payload is the beginning of the item, as a string.
    fn reject(&mut self, excerpt: &[u8], error_type: &str, reason: &str, line: u64) {
        let position = self.builder.count();
        if self
            .builder
            .push_value(&String::from_utf8_lossy(excerpt))
            .is_err()
        {
            return;
        }
        let message = format!("{}: {reason}", self.places.show(&self.name, line));
        let error = JobError::new(error_type, message).permanent();
        self.rejected.push(Rejected { position, error });
    }

    fn read_header(&mut self) -> Result<(), InputError> {
        let Items::Rows(rows) = &mut self.items else {
            return Ok(());
        };
        let chosen = rows.choose_delimiter(&mut self.stream);
        let refused = match chosen.and_then(|()| rows.next(&mut self.stream)) {
            Ok(Row::Misquoted { lines_before, reason }) => return Err(self.misquoted(lines_before, reason)),
            Ok(Row::Whole { row_bytes }) => {
                self.progress.lines += count_lines(&self.stream.pending()[..row_bytes]);
                let taken = rows.take_header();
                rows.accept(&mut self.stream);
                taken.err()
            }
            Ok(Row::TooLong { .. }) => Some("the header is too long".to_owned()),
            Ok(Row::End) => None,
            Err(reason) => return Err(self.read_error(reason)),
        };
        match refused {
            Some(reason) => Err(InputError::Header {
                name: self.name.to_string(),
                reason,
            }),
            None => Ok(()),
        }
    }
}

/// The encoding of text that is not UTF-8, by its first bytes: a byte order mark, or letters with a zero byte each.
pub(super) fn other_encoding(first: &[u8]) -> Option<&'static str> {
    match first {
        [0xff, 0xfe, 0, 0, ..] => Some("utf-32"),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Some("utf-16"),
        [1..=255, 0, 1..=255, 0, ..] => Some("utf-16le"),
        [0, 1..=255, 0, 1..=255, ..] => Some("utf-16be"),
        _ => None,
    }
}

fn is_not_yet<T>(item: &std::io::Result<T>) -> bool {
    item.as_ref()
        .is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

/// Adds a line as JSON or as a string. An error has a type and a reason.
fn push_line(
    builder: &mut PackedBuilder,
    line: &[u8],
    is_json: bool,
    payloads: Option<&Payloads>,
) -> Result<(), (&'static str, String)> {
    let text = std::str::from_utf8(line).map_err(|error| {
        let reason = format!(
            "not UTF-8 at byte {} of the line; convert it with `iconv -t utf-8`",
            error.valid_up_to() + 1
        );
        ("not_utf8", reason)
    })?;
    if is_json {
        if let Some(reason) = text.strip_prefix(REFUSED_ROW_MARK) {
            return Err(("bad_row", reason.to_owned()));
        }
        match payloads {
            None => builder.push(text).map_err(refusal),
            Some(payloads) => push_payload(builder, text, payloads),
        }
    } else {
        push_made(builder, text, payloads)
    }
}

/// Adds an item that is not JSON yet.
fn push_made<T: Serialize + ?Sized>(
    builder: &mut PackedBuilder,
    item: &T,
    payloads: Option<&Payloads>,
) -> Result<(), (&'static str, String)> {
    let Some(payloads) = payloads else {
        return builder.push_value(item).map_err(refusal);
    };
    let item = serde_json::to_string(item).map_err(|error| ("not_json", error.to_string()))?;
    push_payload(builder, &item, payloads)
}

/// Adds the payload that is made of an item.
fn push_payload(
    builder: &mut PackedBuilder,
    item: &str,
    payloads: &Payloads,
) -> Result<(), (&'static str, String)> {
    let payload = (payloads.0)(item).map_err(|reason| ("payload", reason))?;
    builder.push(&payload).map_err(refusal)
}

fn refusal(error: PackedError) -> (&'static str, String) {
    match error {
        // The parser sees only one line, so its line number is useless.
        PackedError::NotJson { reason, .. } => (
            "not_json",
            format!(
                "not JSON: {}",
                reason.replace(" at line 1 column ", " at column ")
            ),
        ),
        PackedError::ItemTooLarge { bytes, .. } => ("too_large", over_limit("item", bytes as u64)),
        other => ("not_json", other.to_string()),
    }
}

fn over_limit(what: &str, bytes: u64) -> String {
    format!(
        "the {what} is {bytes} bytes long; the limit is {PAYLOAD_BYTES_MAX} (16 MiB): store large data elsewhere and pass a reference"
    )
}
