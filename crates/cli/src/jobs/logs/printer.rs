//! Output of jobs on standard output: each piece once, line by line for several jobs, or as JSON.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{IsTerminal, Write};

use gristmill_model::limits::{LIVE_JOBS_MAX, LIVE_OUTPUT_ROWS_MAX};
use gristmill_model::{JobId, JobState, KeptOutput, Printed};
use serde_json::json;

use crate::output::OutputError;
use crate::output::terminal::harmless;

/// The number of last shown bytes, by which the rest is found in the stored log.
const SHOWN_BYTES_KEPT: usize = 4 << 10;

/// Buffered bytes of a job's unfinished line. The printer splits a longer line into several.
const LINE_BYTES_MAX: usize = 8 << 10;

/// The number of remembered jobs: the running ones, and as many that wait for another attempt.
const JOBS_MAX: usize = 2 * LIVE_JOBS_MAX;

/// The number of remembered ids of pieces, because a server may send a piece twice. A store keeps as many.
const READ_MAX: usize = LIVE_OUTPUT_ROWS_MAX as usize;

/// The shown output of a job.
#[derive(Default)]
struct Shown {
    /// For each attempt, the offset of the next piece and the last shown text.
    attempts: BTreeMap<u32, (u64, String)>,
    /// Ended attempts whose stored logs were shown to the end.
    whole: BTreeSet<u32>,
    /// The beginning of a line, if several jobs are printed.
    line: String,
}

impl Shown {
    /// The new text of a piece, after a note if output before it is missing.
    fn take(&mut self, printed: &Printed) -> String {
        if self.whole.contains(&printed.attempt) {
            return String::new();
        }
        let (next, last) = self.attempts.entry(printed.attempt).or_default();
        let missing = printed.offset.saturating_sub(*next);
        *next = printed.offset + printed.text.len() as u64;
        last.push_str(&printed.text);
        let surplus = last.ceil_char_boundary(last.len().saturating_sub(SHOWN_BYTES_KEPT));
        last.drain(..surplus);
        match missing {
            0 => printed.text.clone(),
            _ => format!("\n… {missing} bytes are left out here …\n{}", printed.text),
        }
    }

    /// The part of an attempt's stored log after the shown output. Empty for the second call.
    fn rest<'l>(&mut self, attempt: u32, log: &'l str) -> &'l str {
        if !self.whole.insert(attempt) {
            return "";
        }
        match self.attempts.remove(&attempt) {
            Some((_, last)) if !last.is_empty() => {
                let found = log.rfind(&last);
                found.map_or(log, |at| &log[at + last.len()..])
            }
            _ => log,
        }
    }
}

/// Prints the output of one job as it is, the output of several jobs line by line, or JSON with one object in each line.
pub struct Printer {
    is_json: bool,
    is_of_many: bool,
    is_terminal: bool,
    jobs: BTreeMap<JobId, Shown>,
    read: BTreeSet<i64>,
}

impl Printer {
    /// A printer for this job, or for several if `only` is `None`.
    pub fn new(only: Option<JobId>, is_json: bool) -> Printer {
        Printer {
            is_json,
            is_of_many: only.is_none(),
            is_terminal: std::io::stdout().is_terminal(),
            jobs: BTreeMap::new(),
            read: BTreeSet::new(),
        }
    }

    /// Prints the logs of a job's ended attempts.
    pub fn stored<'l>(
        &self,
        job: JobId,
        logs: impl Iterator<Item = (u32, &'l str)>,
        has_several: bool,
    ) -> Result<(), OutputError> {
        for (attempt, log) in logs {
            if self.is_json {
                self.write_text(job, attempt, log)?;
                continue;
            }
            if has_several {
                self.write(&format!("--- attempt {attempt} ---\n"))?;
            }
            self.write(log)?;
            if !log.ends_with('\n') {
                self.write("\n")?;
            }
        }
        Ok(())
    }

    /// Prints a piece of a running job.
    pub fn piece(&mut self, piece: &KeptOutput) -> Result<(), OutputError> {
        if !self.read.insert(piece.id) {
            return Ok(());
        }
        if self.read.len() > READ_MAX {
            self.read.pop_first();
        }
        let (job, attempt) = (piece.printed.job, piece.printed.attempt);
        let text = self.shown(job)?.take(&piece.printed);
        self.print(job, attempt, &text)
    }

    /// Prints the part of an attempt's log that was not shown yet.
    pub fn attempt_ended(&mut self, job: JobId, attempt: u32, log: &str) -> Result<(), OutputError> {
        let text = self.shown(job)?.rest(attempt, log).to_owned();
        self.print(job, attempt, &text)?;
        self.end_line(job)
    }

    /// Forgets a job that has ended. As JSON, prints its state before.
    pub fn ended(&mut self, job: JobId, state: JobState) -> Result<(), OutputError> {
        self.forget(job)?;
        if self.is_json {
            self.write(&format!("{}\n", json!({"job": job, "state": state})))
        } else {
            Ok(())
        }
    }

    fn forget(&mut self, job: JobId) -> Result<(), OutputError> {
        self.end_line(job)?;
        self.jobs.remove(&job);
        Ok(())
    }

    fn shown(&mut self, job: JobId) -> Result<&mut Shown, OutputError> {
        if self.jobs.len() >= JOBS_MAX
            && !self.jobs.contains_key(&job)
            && let Some(oldest) = self.jobs.keys().next().copied()
        {
            self.forget(oldest)?;
        }
        Ok(self.jobs.entry(job).or_default())
    }

    /// Ends the unfinished line of a job that prints no more.
    fn end_line(&mut self, job: JobId) -> Result<(), OutputError> {
        match self.jobs.get_mut(&job) {
            Some(shown) if !shown.line.is_empty() => {
                let lines = whole_lines(job, &mut shown.line, "\n");
                self.write(&lines)
            }
            _ => Ok(()),
        }
    }

    fn print(&mut self, job: JobId, attempt: u32, text: &str) -> Result<(), OutputError> {
        if self.is_json {
            return self.write_text(job, attempt, text);
        }
        if !self.is_of_many {
            return self.write(text);
        }
        let Some(shown) = self.jobs.get_mut(&job) else {
            return Ok(());
        };
        let lines = whole_lines(job, &mut shown.line, text);
        self.write(&lines)
    }

    fn write_text(&self, job: JobId, attempt: u32, text: &str) -> Result<(), OutputError> {
        match text {
            "" => Ok(()),
            _ => self.write(&format!(
                "{}\n",
                json!({"job": job, "attempt": attempt, "text": text})
            )),
        }
    }

    fn write(&self, text: &str) -> Result<(), OutputError> {
        if text.is_empty() {
            return Ok(());
        }
        let text = if self.is_terminal {
            harmless(text)
        } else {
            Cow::Borrowed(text)
        };
        let mut stdout = std::io::stdout().lock();
        stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.flush())
            .map_err(|reason| OutputError::of("stdout".to_owned(), reason))
    }
}

/// The lines that become complete with `text`, each with its job at the start. `begun` keeps the unfinished rest.
fn whole_lines(job: JobId, begun: &mut String, text: &str) -> String {
    let mut lines = String::new();
    let mut add = |line: &str| lines.push_str(&format!("{job} | {line}\n"));
    for part in text.split_inclusive('\n') {
        begun.push_str(part);
        if let Some(line) = begun.strip_suffix('\n') {
            add(line);
            begun.clear();
        }
        while begun.len() > LINE_BYTES_MAX {
            let end = begun.floor_char_boundary(LINE_BYTES_MAX);
            add(&begun[..end]);
            begun.drain(..end);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(attempt: u32, offset: u64, text: &str) -> Printed {
        Printed {
            job: "1:0".parse().unwrap(),
            kind: "work".into(),
            attempt,
            offset,
            text: text.to_owned(),
        }
    }

    #[test]
    fn gaps_are_named_and_the_rest_of_the_log_follows_the_shown_part() {
        let mut shown = Shown::default();
        assert_eq!(shown.rest(3, "all"), "all");
        assert_eq!(shown.rest(3, "all"), "", "once");
        assert_eq!(shown.take(&printed(3, 0, "late")), "");
        assert_eq!(shown.take(&printed(1, 0, "one\n")), "one\n");
        assert_eq!(
            shown.take(&printed(1, 10, "two\n")),
            "\n… 6 bytes are left out here …\ntwo\n"
        );
        let mut next = Shown::default();
        next.take(&printed(2, 0, "two\n"));
        next.take(&printed(2, 4, "three"));
        assert_eq!(next.rest(2, "one\ntwo\nthree\nfour\n"), "\nfour\n");
    }

    #[test]
    fn lines_of_many_jobs_are_whole_and_bounded() {
        let job: JobId = "4:2".parse().unwrap();
        let mut begun = String::new();
        assert_eq!(whole_lines(job, &mut begun, "on"), "");
        assert_eq!(whole_lines(job, &mut begun, "e\n\ntw"), "4:2 | one\n4:2 | \n");
        assert_eq!(begun, "tw");
        let long = "€".repeat(LINE_BYTES_MAX);
        let lines = whole_lines(job, &mut begun, &long);
        assert!(lines.lines().all(|line| line.starts_with("4:2 | ")));
        assert!(begun.len() <= LINE_BYTES_MAX);
        let shown: String = lines.lines().map(|line| &line["4:2 | ".len()..]).collect();
        assert_eq!(shown + &begun, format!("tw{long}"), "nothing is lost");
    }
}
