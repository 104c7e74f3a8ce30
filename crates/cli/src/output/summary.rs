//! The summary at the end of a run.

use std::ffi::OsString;

use serde_json::json;

use crate::output::OutputStatistics;
use crate::output::failure_groups::FailureGroup;
use crate::output::progress::{show_children, show_rate};
use crate::output::tally::Tally;
use crate::span::{show_count, show_microseconds, show_number_of};

/// The number of groups of failures to show.
const FAILURE_GROUPS_SHOWN: usize = 5;

/// The end of a run.
#[derive(Debug)]
pub struct Summary<'a> {
    /// Its name.
    pub name: &'a str,
    /// The option that names the store. Empty for the default store.
    pub store_option: String,
    /// The written results of all processes that worked on the run.
    pub statistics: &'a OutputStatistics,
    /// The number of blank lines of the input that were skipped.
    pub blank_lines: u64,
    /// The way to resume the run.
    pub again: Again,
    /// The number of jobs that this process ended.
    pub ended_here: u64,
    /// The number of children of jobs that this process ended.
    pub children: u64,
    /// The duration of this process's work. Seconds.
    pub seconds: f64,
    /// The state of the run.
    pub standing: Standing,
}

/// The way to resume a run in another process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Again {
    /// With this command.
    Command(String),
    /// With the same command and the same items on standard input.
    Piped,
    /// Never: its items were on standard input, and it has no name.
    Never,
}

impl Again {
    /// The way that the input and the name of this process's run allow.
    pub fn of(is_stdin: bool, is_named: bool) -> Again {
        match (is_stdin, is_named) {
            (false, _) => Again::Command(command_with(std::env::args_os(), RETRY_FAILED)),
            (true, true) => Again::Piped,
            (true, false) => Again::Never,
        }
    }
}

/// The option that runs failed items again.
const RETRY_FAILED: &str = "--retry-failed";

/// A command line for a shell. The option stands before the program at its end.
fn command_with(words: impl Iterator<Item = OsString>, option: &str) -> String {
    let mut words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    if !words.iter().any(|word| word == option) {
        let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
        words.insert(end, option.to_owned());
    }
    let quoted = words.iter().map(|word| quote(word));
    quoted.collect::<Vec<_>>().join(" ")
}

/// A word, quoted for a shell.
pub fn quote(word: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "-_./:=,+@%".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// The state of a run at the end of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// All of its input is done.
    Finished,
    /// It had finished before, and nothing ran.
    FinishedBefore,
    /// It stopped at `--limit`.
    Limited,
    /// It was stopped.
    Stopped {
        /// The number of ended jobs, written or not.
        ended: u64,
        /// True if `--halt` stopped it because of its failures.
        is_halted: bool,
    },
}

impl Summary<'_> {
    /// The summary for people, in some lines.
    pub fn text(&self) -> String {
        let statistics = self.statistics;
        let mut lines = vec![self.first_line()];
        if self.ended_here > 0 && self.seconds > 0.0 {
            let rate = show_rate(self.ended_here as f64 / self.seconds);
            let mut line = format!("{} jobs/s over {:.1} s", rate, self.seconds);
            if self.children > 0 {
                line.push_str(&format!(", and {}", show_children(self.children)));
            }
            if let (Some(mean), Some(p99)) = (
                statistics.durations.mean_us(),
                statistics.durations.quantile_us(0.99),
            ) {
                line.push_str(&format!(
                    "; a job took {} on average, 99 of 100 at most {}",
                    show_microseconds(mean),
                    show_microseconds(p99 as f64)
                ));
            }
            lines.push(line);
        }
        lines.extend(statistics.tally.as_ref().and_then(Tally::text));
        if self.blank_lines > 0 {
            lines.push(format!(
                "{} of the input skipped",
                show_number_of(self.blank_lines, "blank line")
            ));
        }
        if let Standing::Stopped { is_halted: true, .. } = self.standing {
            lines.push("stopped by --halt, because so many jobs failed".to_owned());
        }
        self.add_failures(&mut lines);
        match self.standing {
            Standing::Finished | Standing::FinishedBefore => {}
            Standing::Limited => {
                lines.push("stopped at --limit; the same command without --limit runs the rest".to_owned())
            }
            // The hint about failures also resumes the rest.
            Standing::Stopped { is_halted: true, .. } if self.has_failures_hint() => {}
            Standing::Stopped { .. } => {
                lines.push(match self.again {
                    Again::Never => "a run of standard input resumes only with a --name".to_owned(),
                    _ => "run the same command again to resume".to_owned(),
                });
            }
        }
        lines.join("\n")
    }

    fn first_line(&self) -> String {
        let (completed, failed) = (self.statistics.completed, self.statistics.failed);
        let parts = match (completed, failed) {
            (1, 0) => "1 job completed".to_owned(),
            (completed, 0) => format!("all {} jobs completed", show_count(completed)),
            (completed, failed) => format!(
                "{}: {} completed, {} failed",
                show_number_of(completed + failed, "job"),
                show_count(completed),
                show_count(failed)
            ),
        };
        match self.standing {
            Standing::Finished if completed + failed == 0 => {
                format!("run `{}`: the input has no items", self.name)
            }
            Standing::Finished => format!("run `{}`: {parts}", self.name),
            Standing::FinishedBefore => {
                format!("run `{}` had finished before; nothing ran: {parts}", self.name)
            }
            Standing::Limited => format!("run `{}` so far: {parts}", self.name),
            Standing::Stopped { ended, .. } => format!(
                "run `{}` stopped with {} done and committed, {} of them written",
                self.name,
                show_number_of(ended, "job"),
                show_count(completed + failed)
            ),
        }
    }

    fn has_failures_hint(&self) -> bool {
        self.statistics.failed > 0 && self.again != Again::Never
    }

    fn add_failures(&self, lines: &mut Vec<String>) {
        let (groups, other) = self.statistics.failures.commonest(FAILURE_GROUPS_SHOWN);
        if groups.is_empty() {
            return;
        }
        for FailureGroup {
            error_type,
            message,
            count,
            first,
        } in &groups
        {
            lines.push(format!(
                "  {} × {error_type}: {message}  (gristmill show {first}{})",
                show_count(*count),
                self.store_option
            ));
        }
        if other > 0 {
            lines.push(format!("  {} × others", show_count(other)));
        }
        let states = self.statistics.failures.states().iter();
        let states: String = states.map(|state| format!("--state {} ", state.name())).collect();
        let options = format!("{states}--run '{}'{}", self.name, self.store_option);
        lines.push(format!("list them all: gristmill jobs {options}"));
        let what = match self.standing {
            Standing::Stopped { .. } => "run them and the rest",
            _ => "run them again",
        };
        match &self.again {
            Again::Command(command) => {
                lines.push(format!("correct the script or the lines, and {what}: {command}"))
            }
            Again::Piped => lines.push(format!(
                "correct the script or the lines, and pipe them into the same command with {RETRY_FAILED}"
            )),
            Again::Never => {}
        }
    }

    /// The summary for programs.
    pub fn json(&self) -> serde_json::Value {
        let statistics = self.statistics;
        let (groups, other) = statistics.failures.commonest(FAILURE_GROUPS_SHOWN);
        let failures: Vec<_> = groups
            .iter()
            .map(|group| {
                json!({"type": group.error_type, "message": group.message, "count": group.count, "first": group.first})
            })
            .collect();
        let state = match self.standing {
            Standing::Finished | Standing::FinishedBefore => "finished",
            Standing::Limited => "limited",
            Standing::Stopped { is_halted: true, .. } => "halted",
            Standing::Stopped { .. } => "stopped",
        };
        let mut summary = json!({
            "run": self.name,
            "state": state,
            "completed": statistics.completed,
            "failed": statistics.failed,
            "jobs_ended": self.ended_here,
            "children_ended": self.children,
            "seconds": (self.seconds * 1_000.0).round() / 1_000.0,
            "jobs_per_second": if self.seconds > 0.0 { (self.ended_here as f64 / self.seconds).round() } else { 0.0 },
            "duration_us_mean": statistics.durations.mean_us(),
            "duration_us_p99": statistics.durations.quantile_us(0.99),
            "blank_lines": self.blank_lines,
            "failures": failures,
            "failures_other": other,
        });
        if let Some(tally) = &statistics.tally {
            summary["model_calls"] = tally.json();
        }
        summary
    }
}

#[cfg(test)]
mod tests {
    use gristmill_model::{BatchId, JobError, JobId, JobState};

    use super::*;

    #[test]
    fn a_summary_names_totals_durations_failures_and_remedies() {
        let mut statistics = OutputStatistics {
            completed: 99_997,
            failed: 3,
            ..OutputStatistics::default()
        };
        statistics.durations.record(15);
        let job = JobId {
            batch: BatchId(1),
            position: 7,
        };
        for state in [JobState::Dead, JobState::Cancelled, JobState::Dead] {
            let error = JobError::new("KeyError", "'text'");
            statistics.failures.record(job, state, &error);
        }
        let mut summary = Summary {
            name: "a.py:b.jsonl",
            store_option: " --store x.db".to_owned(),
            statistics: &statistics,
            blank_lines: 2,
            again: Again::Command(command_with(
                ["gristmill", "run", "-i", "a b", "--", "x"]
                    .map(OsString::from)
                    .into_iter(),
                RETRY_FAILED,
            )),
            ended_here: 100_000,
            children: 0,
            seconds: 2.0,
            standing: Standing::Finished,
        };
        assert_eq!(
            summary.text(),
            "run `a.py:b.jsonl`: 100,000 jobs: 99,997 completed, 3 failed\n\
             50,000 jobs/s over 2.0 s; a job took 15.0 µs on average, 99 of 100 at most 15.0 µs\n\
             2 blank lines of the input skipped\n  \
             3 × KeyError: 'text'  (gristmill show 1:7 --store x.db)\n\
             list them all: gristmill jobs --state dead --state cancelled --run 'a.py:b.jsonl' --store x.db\n\
             correct the script or the lines, and run them again: gristmill run -i 'a b' --retry-failed -- x"
        );
        summary.standing = Standing::Stopped {
            ended: 120_000,
            is_halted: false,
        };
        assert!(
            summary
                .text()
                .starts_with("run `a.py:b.jsonl` stopped with 120,000 jobs done and committed, 100,000")
        );
        assert!(summary.text().ends_with("run the same command again to resume"));
        assert_eq!(summary.json()["failures"][0]["count"], 3);
    }
}
