//! The promises made to a workload.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// A note of a workload in the trace. Each job has its own number as its payload, and as its value after it completes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Note {
    /// A submit of these jobs begins. The store keeps all of them or none.
    Submitting(Vec<u64>),
    /// The submit of these jobs was acknowledged.
    Submitted {
        /// The numbers of the jobs.
        numbers: Vec<u64>,
        /// The highest id of their batches.
        batch: i64,
    },
    /// The completion of these jobs was acknowledged.
    Completed(Vec<u64>),
    /// The death of these jobs was acknowledged.
    Died(Vec<u64>),
    /// The cancellation of these jobs was acknowledged.
    Cancelled(Vec<u64>),
    /// The submit of this many lines of the run's input was acknowledged.
    RunAt(u64),
    /// The end of the run was acknowledged.
    RunFinished,
    /// The storing of this many messages of the input was acknowledged.
    Ingested(u64),
}

/// The sum of all notes up to a moment.
#[derive(Debug, Clone, Default)]
pub struct Promises {
    /// The jobs of each submit that began.
    pub submits: Vec<Vec<u64>>,
    /// The numbers of the jobs that must be stored.
    pub submitted: BTreeSet<u64>,
    /// The highest batch id of these jobs.
    pub batch_max: i64,
    /// The ends of jobs, by number.
    pub ended: BTreeMap<u64, Ending>,
    /// The smallest number of submitted lines of the run's input. `None` if there may be no run yet.
    pub run_lines: Option<u64>,
    /// The run has finished.
    pub run_finished: bool,
    /// The smallest number of stored messages.
    pub messages: u64,
}

/// The end of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The job completed with its own number as its value.
    Completed,
    /// The job died.
    Died,
    /// The job was cancelled.
    Cancelled,
}

impl Promises {
    /// Adds a note.
    pub fn add(&mut self, note: &Note) {
        match note {
            Note::Submitting(numbers) => self.submits.push(numbers.clone()),
            Note::Submitted { numbers, batch } => {
                self.submitted.extend(numbers);
                self.batch_max = self.batch_max.max(*batch);
            }
            Note::Completed(numbers) => self.end(numbers, Ending::Completed),
            Note::Died(numbers) => self.end(numbers, Ending::Died),
            Note::Cancelled(numbers) => self.end(numbers, Ending::Cancelled),
            Note::RunAt(lines) => {
                assert!(
                    self.run_lines.is_none_or(|before| before <= *lines),
                    "the lines of a run only grow"
                );
                self.run_lines = Some(*lines);
            }
            Note::RunFinished => {
                assert!(self.run_lines.is_some(), "only a run that exists can finish");
                self.run_finished = true;
            }
            Note::Ingested(messages) => {
                assert!(
                    self.messages <= *messages,
                    "the number of ingested messages only grows"
                );
                self.messages = *messages;
            }
        }
    }

    fn end(&mut self, numbers: &[u64], ending: Ending) {
        self.ended.extend(numbers.iter().map(|number| (*number, ending)));
    }
}
