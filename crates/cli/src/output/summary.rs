//! The summary at the end of a run.

use serde_json::json;

use crate::output::OutputStatistics;
use crate::output::failure_groups::FailureGroup;
use crate::output::progress::show_rate;
use crate::span::{show_count, show_microseconds};

/// Groups of failures that are shown.
const FAILURE_GROUPS_SHOWN: usize = 5;

/// A run at its end.
#[derive(Debug)]
pub struct Summary<'a> {
    /// Its name.
    pub name: &'a str,
    /// The store, as it was named; nothing where it is the default.
    pub store_option: String,
    /// Its written results, over all processes that worked on it.
    pub statistics: &'a OutputStatistics,
    /// Blank lines of the input that were skipped.
    pub blank_lines: u64,
    /// Jobs that this process ended.
    pub ended_here: u64,
    /// How long this process worked. Seconds.
    pub seconds: f64,
    /// How the run stands.
    pub standing: Standing,
}

/// How a run stands at the end of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// All of its input is done.
    Finished,
    /// It had been finished before, and nothing was run.
    FinishedBefore,
    /// It stopped at `--limit`.
    Limited,
    /// It was stopped; so many jobs of it had ended.
    Stopped {
        /// Jobs that ended, written or not.
        ended: u64,
    },
}

impl Summary<'_> {
    /// For people: some lines.
    pub fn text(&self) -> String {
        let statistics = self.statistics;
        let mut lines = vec![self.first_line()];
        if self.ended_here > 0 && self.seconds > 0.0 {
            let rate = show_rate(self.ended_here as f64 / self.seconds);
            let mut line = format!("{} jobs/s over {:.1} s", rate, self.seconds);
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
        if self.blank_lines > 0 {
            lines.push(format!(
                "{} blank lines of the input were skipped",
                show_count(self.blank_lines)
            ));
        }
        self.add_failures(&mut lines);
        match self.standing {
            Standing::Finished | Standing::FinishedBefore => {}
            Standing::Limited => {
                lines.push("stopped at --limit; the same command without --limit runs the rest".to_owned())
            }
            Standing::Stopped { .. } => lines.push("run the same command again to resume".to_owned()),
        }
        lines.join("\n")
    }

    fn first_line(&self) -> String {
        let (completed, failed) = (self.statistics.completed, self.statistics.failed);
        let parts = match (completed, failed) {
            (completed, 0) => format!("all {} jobs completed", show_count(completed)),
            (completed, failed) => format!(
                "{} jobs: {} completed, {} failed",
                show_count(completed + failed),
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
            Standing::Stopped { ended } => format!(
                "run `{}` stopped with {} jobs done and committed, {} of them written",
                self.name,
                show_count(ended),
                show_count(completed + failed)
            ),
        }
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
        let options = format!("--state dead --run '{}'{}", self.name, self.store_option);
        lines.push(format!("list them all: gristmill jobs {options}"));
        lines.push(format!(
            "retry them: gristmill retry {options}, and then the same command"
        ));
    }

    /// For programs.
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
            Standing::Stopped { .. } => "stopped",
        };
        json!({
            "run": self.name,
            "state": state,
            "completed": statistics.completed,
            "failed": statistics.failed,
            "jobs_ended": self.ended_here,
            "seconds": (self.seconds * 1_000.0).round() / 1_000.0,
            "jobs_per_second": if self.seconds > 0.0 { (self.ended_here as f64 / self.seconds).round() } else { 0.0 },
            "duration_us_mean": statistics.durations.mean_us(),
            "duration_us_p99": statistics.durations.quantile_us(0.99),
            "blank_lines": self.blank_lines,
            "failures": failures,
            "failures_other": other,
        })
    }
}

#[cfg(test)]
mod tests {
    use gristmill_model::{BatchId, JobError, JobId};

    use super::*;

    #[test]
    fn a_summary_names_totals_durations_failures_and_what_to_do() {
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
        for _ in 0..3 {
            statistics
                .failures
                .record(job, &JobError::new("KeyError", "'text'"));
        }
        let mut summary = Summary {
            name: "a.py:b.jsonl",
            store_option: " --store x.db".to_owned(),
            statistics: &statistics,
            blank_lines: 2,
            ended_here: 100_000,
            seconds: 2.0,
            standing: Standing::Finished,
        };
        assert_eq!(
            summary.text(),
            "run `a.py:b.jsonl`: 100,000 jobs: 99,997 completed, 3 failed\n\
             50,000 jobs/s over 2.0 s; a job took 15.0 µs on average, 99 of 100 at most 15.0 µs\n\
             2 blank lines of the input were skipped\n  \
             3 × KeyError: 'text'  (gristmill show 1:7 --store x.db)\n\
             list them all: gristmill jobs --state dead --run 'a.py:b.jsonl' --store x.db\n\
             retry them: gristmill retry --state dead --run 'a.py:b.jsonl' --store x.db, and then the same command"
        );
        summary.standing = Standing::Stopped { ended: 120_000 };
        assert!(
            summary
                .text()
                .starts_with("run `a.py:b.jsonl` stopped with 120,000 jobs done and committed, 100,000")
        );
        assert!(summary.text().ends_with("run the same command again to resume"));
        assert_eq!(summary.json()["failures"][0]["count"], 3);
    }
}
