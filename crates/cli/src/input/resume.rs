//! Opens an input at its start, or resumes it after the last item of a run.

use std::io::Read;
use std::path::Path;

use gristmill_model::BatchLimits;
use gristmill_store::run::RunProgress;

use super::batch_reader::BatchReader;
use super::error::InputError;
use super::format::Format;
use super::places::Places;
use super::source::{Fingerprint, Input};
use super::stream::Stream;

/// An input of which a part was read before.
pub enum Reopened {
    /// It begins with the same bytes, or with the same lines if more follow. Reading continues after them.
    Unchanged(Box<BatchReader>),
    /// It has changed.
    Changed {
        /// The change, as text.
        what: String,
    },
}

impl Input {
    /// Opens the input at its start.
    pub fn open(&self, limits: BatchLimits) -> Result<BatchReader, InputError> {
        Ok(self.open_and_look(limits)?.0)
    }

    /// Opens the input, and reports whether positions in it are positions in a file.
    fn open_and_look(&self, limits: BatchLimits) -> Result<(BatchReader, bool), InputError> {
        let places = Places::default();
        let opened = self.open_bytes(&places)?;
        let stream = Stream::new(opened.reader, 0, 0).of_pipe(opened.pipe);
        let mut reader = BatchReader::new(
            (self.name.clone(), places),
            (self.format, self.dialect.of(self.format)),
            stream,
            limits,
            RunProgress::default(),
        )
        .with_payloads(self.payloads.clone());
        let may_be_document = !opened.is_array && self.path().is_some_and(Format::promises_document);
        reader.begin(may_be_document && self.format == Format::Jsonl)?;
        Ok((reader, opened.is_plain_file))
    }

    /// Opens the input after the part that was read before. If a plain file still matches `remembered`, reading starts
    /// there at once. Any other input is read up to there and compared by its checksum.
    pub fn reopen(
        &self,
        limits: BatchLimits,
        progress: RunProgress,
        remembered: &Fingerprint,
    ) -> Result<Reopened, InputError> {
        let now = self.fingerprint()?;
        let has_further_files = now
            .path
            .strip_prefix(remembered.path.as_str())
            .is_some_and(|further| further.is_empty() || further.starts_with('\n'));
        if !has_further_files {
            return Ok(changed(format!(
                "it was {}, and is now {}",
                show_paths(&remembered.path),
                show_paths(&now.path)
            )));
        }
        if now.format != remembered.format {
            return Ok(changed(format!(
                "its format was {}, and is now {}",
                remembered.format, now.format
            )));
        }
        let (mut reader, is_plain_file) = self.open_and_look(limits)?;
        if progress.jobs == 0 {
            return Ok(Reopened::Unchanged(Box::new(reader)));
        }
        if let Some(path) = self.path().filter(|_| is_plain_file && now == *remembered) {
            let mut stream = Stream::new(
                self.open_at(path, progress.bytes)?,
                progress.bytes,
                progress.crc32,
            );
            stream.set_last(self.byte_before(path, progress.bytes)?);
            let mut there = BatchReader::new(
                (self.name.clone(), Places::default()),
                (self.format, self.dialect.of(self.format)),
                stream,
                limits,
                progress,
            )
            .with_payloads(self.payloads.clone());
            there.take_header_of(reader);
            if there.skip_rest_of_line()? {
                return Ok(changed(format!("its last line, {}, has grown", progress.lines)));
            }
            return Ok(Reopened::Unchanged(Box::new(there)));
        }
        let skipped = reader.stream_mut().skip_to(progress.bytes);
        let whole = skipped.map_err(|reason| InputError::Read {
            place: self.name.to_string(),
            reason,
        })?;
        let (bytes, crc32) = reader.stream_mut().position();
        if !whole {
            return Ok(changed(format!(
                "it is shorter than before: a run has read {} bytes, and it now has {bytes}",
                progress.bytes
            )));
        }
        if crc32 != progress.crc32 {
            return Ok(changed(format!(
                "at least one of its first {} lines has changed",
                progress.lines
            )));
        }
        reader.set_progress(progress);
        if reader.skip_rest_of_line()? {
            return Ok(changed(format!("its last line, {}, has grown", progress.lines)));
        }
        Ok(Reopened::Unchanged(Box::new(reader)))
    }

    /// The byte before `offset` in a plain file.
    fn byte_before(&self, path: &Path, offset: u64) -> Result<Option<u8>, InputError> {
        let Some(offset) = offset.checked_sub(1) else {
            return Ok(None);
        };
        let mut byte = [0];
        let read = self.open_at(path, offset)?.read_exact(&mut byte);
        read.map_err(|reason| self.cannot_open(reason))?;
        Ok(Some(byte[0]))
    }

    /// Opens a changed input after as many lines as were read before, or at its end if it has fewer.
    pub fn reopen_after_lines(
        &self,
        limits: BatchLimits,
        progress: RunProgress,
    ) -> Result<BatchReader, InputError> {
        let mut reader = self.open(limits)?;
        reader.skip_lines(progress.lines)?;
        let place = reader.progress();
        reader.set_progress(RunProgress {
            jobs: progress.jobs,
            ..place
        });
        Ok(reader)
    }
}

/// The stored absolute paths of an input, as text.
fn show_paths(paths: &str) -> String {
    match paths.split_once('\n') {
        None => paths.to_owned(),
        Some((first, others)) => format!("{first} and {} more files", others.split('\n').count()),
    }
}

fn changed(what: String) -> Reopened {
    Reopened::Changed { what }
}

#[cfg(test)]
mod tests;
