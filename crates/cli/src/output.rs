//! Writes outcomes as JSON, one line for each job, in the order of the jobs.

#[macro_use]
pub mod terminal;

pub mod color;
pub mod failure_groups;
pub mod json;
pub mod progress;
pub mod summary;
pub mod table;
pub mod tally;
pub mod target;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::ops::Range;
use std::path::Path;

use gristmill_model::{DurationHistogram, JobError, JobId, JobState};
use gristmill_store::{BatchOutcomes, EndedJob};

use crate::output::failure_groups::FailureGroups;
use crate::output::tally::Tally;

/// The size of the write buffer. Bytes.
const BUFFER_BYTES: usize = 256 << 10;

/// The error of an output.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The reader closed the pipe. This is not an error.
    #[error("the output's reader has closed the pipe")]
    PipeClosed,
    /// The file cannot be created.
    #[error("{name} cannot be written: {reason}")]
    Create {
        /// The file.
        name: String,
        /// The system's error.
        reason: io::Error,
    },
    /// The file is a store or another database.
    #[error(
        "{name} is a SQLite database, such as a store, and is not written over: name another file, or remove it first"
    )]
    Database {
        /// The file.
        name: String,
    },
    /// The disk is full.
    #[error("the disk of {name} is full: free some space and run the same command again to resume")]
    DiskFull {
        /// The file.
        name: String,
    },
    /// Another error from the system.
    #[error("{name} cannot be written any further: {reason}; run the same command again to resume")]
    Write {
        /// The file.
        name: String,
        /// The system's error.
        reason: io::Error,
    },
}

impl OutputError {
    /// The error of a write to the file `name`.
    pub fn of(name: String, reason: io::Error) -> OutputError {
        match reason.kind() {
            io::ErrorKind::BrokenPipe => OutputError::PipeClosed,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => OutputError::DiskFull { name },
            _ => OutputError::Write { name, reason },
        }
    }
}

/// The format of the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineForm {
    /// `{"job":"1:7","value":…}` or `{"job":"1:7","error":{…}}`.
    Outcome,
    /// The bare value; `null` for a job that did not complete.
    Value,
}

/// The written lines.
#[derive(Debug, Default)]
pub struct OutputStatistics {
    /// Completed jobs.
    pub completed: u64,
    /// Dead, cancelled and expired jobs.
    pub failed: u64,
    /// Jobs that have not ended and so have no line.
    pub missing: u64,
    /// The durations of the completed jobs.
    pub durations: DurationHistogram,
    /// The errors of jobs that did not complete.
    pub failures: FailureGroups,
    /// The sums over the values, if there are any.
    pub tally: Option<Tally>,
}

/// The destination of outcomes.
pub struct Output {
    name: String,
    sink: BufWriter<Box<dyn Write + Send>>,
    /// The file to sync at the end. `None` for standard output.
    file: Option<File>,
    form: LineForm,
    statistics: OutputStatistics,
    /// The number of jobs of the next batch whose lines are already written.
    begun: u32,
    /// Positions of the next batch whose outcomes come from other jobs, which stand for them.
    standing_for: BTreeMap<u32, JobId>,
}

impl Output {
    /// Creates the file at `path` or empties it. Without a path, or for `-`, writes to standard output.
    pub fn create(path: Option<&Path>, form: LineForm) -> Result<Output, OutputError> {
        let path = path.filter(|path| *path != Path::new("-"));
        let Some(path) = path else {
            return Ok(Output::to(
                "stdout".to_owned(),
                Box::new(io::stdout()),
                None,
                form,
            ));
        };
        let name = path.display().to_string();
        let cannot = |reason| OutputError::Create {
            name: name.clone(),
            reason,
        };
        target::refuse_database(path)?;
        let file = File::create(path).map_err(cannot)?;
        let sink = Box::new(file.try_clone().map_err(cannot)?);
        Ok(Output::to(name, sink, Some(file), form))
    }

    fn to(name: String, sink: Box<dyn Write + Send>, file: Option<File>, form: LineForm) -> Output {
        let sink = BufWriter::with_capacity(BUFFER_BYTES, sink);
        Output {
            name,
            sink,
            file,
            form,
            statistics: OutputStatistics::default(),
            begun: 0,
            standing_for: BTreeMap::new(),
        }
    }

    /// Also sums up the values.
    pub fn counting(mut self, tally: Option<Tally>) -> Output {
        self.statistics.tally = tally;
        self
    }

    /// Sets the jobs whose outcomes stand at these positions of the next batch.
    pub fn stand_for(&mut self, jobs: BTreeMap<u32, JobId>) {
        self.standing_for = jobs;
    }

    /// Writes a line for each ended job of the batch, except for lines that are already written.
    pub fn write_batch(&mut self, outcomes: &BatchOutcomes) -> Result<(), OutputError> {
        let begun = std::mem::take(&mut self.begun);
        let written = self.write_lines(outcomes, &outcomes.jobs(), begun..outcomes.count);
        let completed = outcomes
            .reports
            .iter()
            .filter(|report| report.state == JobState::Completed);
        for duration_us in completed.flat_map(|report| &report.durations_us) {
            self.statistics.durations.record(*duration_us);
        }
        written.map_err(|reason| self.failed(reason))
    }

    /// Writes the lines of the batch's first jobs up to one that has not ended, and flushes them. The rest of the batch
    /// is written later.
    pub fn write_beginning(&mut self, outcomes: &BatchOutcomes) -> Result<(), OutputError> {
        let ended = outcomes.jobs();
        let from_the_first = ended
            .iter()
            .zip(0..)
            .take_while(|(job, position)| job.position == *position);
        let end = from_the_first.count() as u32;
        if end <= self.begun {
            return Ok(());
        }
        let written = self.write_lines(outcomes, &ended, self.begun..end);
        assert!(end <= outcomes.count, "a batch begins with its jobs");
        self.begun = end;
        written.map_err(|reason| self.failed(reason))?;
        self.flush()
    }

    /// Flushes the buffer, so that a reader sees the lines.
    pub fn flush(&mut self) -> Result<(), OutputError> {
        let flushed = self.sink.flush();
        flushed.map_err(|reason| self.failed(reason))
    }

    /// Writes the buffer, syncs the file, and returns the counts of written lines.
    pub fn finish(mut self) -> Result<OutputStatistics, OutputError> {
        self.flush()?;
        if let Some(file) = &self.file
            && file.metadata().is_ok_and(|metadata| metadata.is_file())
            && let Err(reason) = file.sync_all()
        {
            return Err(self.failed(reason));
        }
        Ok(self.statistics)
    }

    fn failed(&self, reason: io::Error) -> OutputError {
        OutputError::of(self.name.clone(), reason)
    }

    fn write_lines(
        &mut self,
        outcomes: &BatchOutcomes,
        ended: &[EndedJob<'_>],
        range: Range<u32>,
    ) -> io::Result<()> {
        let prefix = format!("{{\"job\":\"{}:", outcomes.batch);
        assert!(range.end <= outcomes.count, "a batch has the written jobs");
        let mut number = itoa::Buffer::new();
        let first = ended.partition_point(|job| job.position < range.start);
        let mut ended = ended[first..].iter().peekable();
        for position in range {
            let Some(ended) = ended.next_if(|job| job.position == position) else {
                self.statistics.missing += 1;
                continue;
            };
            let other = self.standing_for.get(&position).copied();
            let job = other.unwrap_or(JobId {
                batch: outcomes.batch,
                position,
            });
            let error = match (ended.failure, ended.report.state) {
                (Some(failure), _) => Some(Cow::Borrowed(&failure.error)),
                (None, JobState::Cancelled) => {
                    Some(Cow::Owned(JobError::new("cancelled", "the job was cancelled")))
                }
                (None, JobState::Expired) => {
                    let error = JobError::new("expired", "no worker started the job in time");
                    Some(Cow::Owned(error))
                }
                (None, _) => None,
            };
            if error.is_none() && ended.value.is_none() {
                self.statistics.missing += 1;
                continue;
            }
            match &error {
                None => {
                    self.statistics.completed += 1;
                    if let (Some(tally), Some(value)) = (&mut self.statistics.tally, ended.value) {
                        tally.add(value);
                    }
                }
                Some(error) => {
                    self.statistics.failed += 1;
                    self.statistics.failures.record(job, ended.report.state, error);
                }
            }
            if self.form == LineForm::Outcome {
                match other {
                    None => self.sink.write_all(prefix.as_bytes())?,
                    Some(other) => write!(self.sink, "{{\"job\":\"{}:", other.batch)?,
                }
                let position = job.position;
                self.sink.write_all(number.format(position).as_bytes())?;
                self.sink.write_all(if error.is_some() {
                    b"\",\"error\":"
                } else {
                    b"\",\"value\":"
                })?;
            }
            match (&error, ended.value, self.form) {
                (None, Some(value), _) => self.sink.write_all(value.as_bytes())?,
                (Some(error), _, LineForm::Outcome) => serde_json::to_writer(&mut self.sink, error)?,
                _ => self.sink.write_all(b"null")?,
            }
            self.sink.write_all(if self.form == LineForm::Outcome {
                b"}\n"
            } else {
                b"\n"
            })?;
        }
        Ok(())
    }
}

/// Writes a line for people or programs to standard output. A terminal gets no control characters.
pub fn print_line(text: &str) -> Result<(), OutputError> {
    if io::stdout().is_terminal() {
        print_harmless(&terminal::harmless(text))
    } else {
        print_harmless(text)
    }
}

/// Writes a line to standard output as it is: without control characters, or with those of the program alone.
pub fn print_harmless(text: &str) -> Result<(), OutputError> {
    let mut stdout = io::stdout().lock();
    let written = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.write_all(b"\n"));
    written
        .and_then(|()| stdout.flush())
        .map_err(|reason| OutputError::of("stdout".to_owned(), reason))
}

#[cfg(test)]
mod tests;
