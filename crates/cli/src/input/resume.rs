//! Opens an input from its start, or resumes behind the last item of a run.

use gristmill_store::run::RunProgress;

use super::batch_reader::{BatchLimits, BatchReader};
use super::error::InputError;
use super::format::Format;
use super::source::{Fingerprint, Input};
use super::stream::Stream;

/// An input that was read up to some place before.
pub enum Reopened {
    /// It begins with the same bytes; reading continues behind them.
    Unchanged(Box<BatchReader>),
    /// It does not.
    Changed {
        /// The difference, as text.
        what: String,
    },
}

impl Input {
    /// Opens the input at its beginning.
    pub fn open(&self, limits: BatchLimits) -> Result<BatchReader, InputError> {
        Ok(self.open_and_look(limits)?.0)
    }

    /// Opens the input, and says whether places in it are places in a file.
    fn open_and_look(&self, limits: BatchLimits) -> Result<(BatchReader, bool), InputError> {
        let opened = self.open_bytes()?;
        let stream = Stream::new(opened.reader, 0, 0);
        let mut reader = BatchReader::new(
            self.name.clone(),
            self.format,
            stream,
            limits,
            RunProgress::default(),
        );
        let may_be_document = self.path().is_some_and(Format::promises_document);
        reader.begin(may_be_document && self.format == Format::Jsonl)?;
        Ok((reader, opened.is_plain_file))
    }

    /// Opens the input behind what was read of it before. A plain file that is as `remembered` is
    /// entered there at once; anything else is read up to there and compared by its checksum.
    pub fn reopen(
        &self,
        limits: BatchLimits,
        progress: RunProgress,
        remembered: &Fingerprint,
    ) -> Result<Reopened, InputError> {
        let now = self.fingerprint()?;
        if now.path != remembered.path {
            return Ok(changed(format!(
                "it was {}, and is now {}",
                remembered.path, now.path
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
            let stream = Stream::new(
                self.open_at(path, progress.bytes)?,
                progress.bytes,
                progress.crc32,
            );
            let mut there = BatchReader::new(self.name.clone(), self.format, stream, limits, progress);
            there.take_header_of(reader);
            return Ok(Reopened::Unchanged(Box::new(there)));
        }
        let skipped = reader.stream_mut().skip_to(progress.bytes);
        let whole = skipped.map_err(|reason| InputError::Read {
            name: self.name.to_string(),
            line: 1,
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
                "its first {} lines have changed",
                progress.lines
            )));
        }
        reader.set_progress(progress);
        Ok(Reopened::Unchanged(Box::new(reader)))
    }

    /// Opens an input that has changed behind as many lines as were read of it before; at its end
    /// where it has fewer.
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

fn changed(what: String) -> Reopened {
    Reopened::Changed { what }
}

#[cfg(test)]
mod tests;
