//! What a workload was promised.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// A workload notes this in the trace. Each job has a number of its own as its payload, and as its value once it completes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Note {
    /// A submit of these jobs begins. It stores all of them or none.
    Submitting(Vec<u64>),
    /// The submit of these jobs was acknowledged, and this is their highest batch.
    Submitted {
        /// The jobs.
        numbers: Vec<u64>,
        /// The batch.
        batch: i64,
    },
    /// The values of these jobs were acknowledged.
    Completed(Vec<u64>),
    /// The end of these jobs as dead was acknowledged.
    Died(Vec<u64>),
    /// The end of these jobs as cancelled was acknowledged.
    Cancelled(Vec<u64>),
    /// The run is acknowledged to have submitted so many lines of its input.
    RunAt(u64),
    /// The run's end was acknowledged.
    RunFinished,
    /// So many messages of the input were acknowledged as stored.
    Ingested(u64),
}

/// All notes up to a moment.
#[derive(Debug, Clone, Default)]
pub struct Promises {
    /// The jobs of each submit that has begun.
    pub submits: Vec<Vec<u64>>,
    /// Jobs that are stored.
    pub submitted: BTreeSet<u64>,
    /// The highest batch of those.
    pub batch_max: i64,
    /// How jobs ended, by number.
    pub ended: BTreeMap<u64, Ending>,
    /// Lines of the run's input that are submitted, at least; `None` where there need not be a run.
    pub run_lines: Option<u64>,
    /// Whether the run has finished.
    pub run_finished: bool,
    /// Messages that are stored, at least.
    pub messages: u64,
}

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// With its own number as its value.
    Completed,
    /// As dead.
    Died,
    /// As cancelled.
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
            Note::RunAt(lines) => self.run_lines = Some(*lines),
            Note::RunFinished => self.run_finished = true,
            Note::Ingested(messages) => self.messages = *messages,
        }
    }

    fn end(&mut self, numbers: &[u64], ending: Ending) {
        self.ended.extend(numbers.iter().map(|number| (*number, ending)));
    }
}
