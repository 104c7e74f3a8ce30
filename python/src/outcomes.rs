//! Outcomes of jobs for Python.

use std::sync::Arc;

use gristmill_model::{BatchId, JobError, JobState, PackedArray, Positions};
use gristmill_store::{BatchOutcomes, JobDetails};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// An event of a batch.
#[derive(Debug)]
pub enum Piece {
    /// It was submitted, with this number of jobs.
    Submitted(BatchId, u32),
    /// These jobs completed, with these packed values.
    Values(BatchId, Positions, Arc<str>),
    /// These jobs ended in other states.
    Failed(BatchId, Vec<Failure>),
    /// Calls were submitted in these batches; the objects stand for their jobs, in order.
    Called(Vec<(BatchId, Vec<Py<PyAny>>)>),
    /// Calls were not submitted, because the store refused them with this error.
    Refused(Vec<Py<PyAny>>, String),
    /// The store has to be asked for ends that nobody tells of.
    Quiet,
    /// Nothing more comes, because submitting or working failed with this error.
    Broken(String),
}

/// A job that ended without completing.
#[derive(Debug)]
pub struct Failure {
    /// Its position.
    pub position: u32,
    /// Its state.
    pub state: JobState,
    /// Its last error, if it had one.
    pub error: Option<JobError>,
}

/// Type, message and traceback of an error.
type ErrorParts = (String, String, Option<String>);

fn error_parts(error: JobError) -> ErrorParts {
    (error.error_type, error.message, error.traceback)
}

fn ranges(positions: &Positions) -> Vec<(u32, u32)> {
    positions
        .ranges()
        .iter()
        .map(|range| (range.start, range.end))
        .collect()
}

impl Piece {
    /// Converts it to a tuple; `_native.pyi` describes the forms.
    pub fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
        match self {
            Piece::Submitted(batch, count) => ("submitted", batch.0, count).into_pyobject(py),
            Piece::Values(batch, positions, values) => {
                ("values", batch.0, ranges(&positions), &*values).into_pyobject(py)
            }
            Piece::Failed(batch, failures) => {
                let failures: Vec<_> = failures
                    .into_iter()
                    .map(|failure| {
                        (
                            failure.position,
                            failure.state.name(),
                            failure.error.map(error_parts),
                        )
                    })
                    .collect();
                ("failed", batch.0, failures).into_pyobject(py)
            }
            Piece::Called(batches) => {
                let batches = batches.into_iter().map(|(batch, futures)| (batch.0, futures));
                ("called", batches.collect::<Vec<_>>()).into_pyobject(py)
            }
            Piece::Refused(futures, reason) => ("refused", futures, reason).into_pyobject(py),
            Piece::Quiet => ("quiet",).into_pyobject(py),
            Piece::Broken(reason) => ("broken", reason).into_pyobject(py),
        }
    }
}

/// The ended jobs of a batch, as pieces.
pub fn pieces(outcomes: &BatchOutcomes) -> Vec<Piece> {
    let batch = outcomes.batch;
    let mut pieces = Vec::new();
    let mut failures = Vec::new();
    for report in &outcomes.reports {
        match &report.values {
            Some(values) => pieces.push(Piece::Values(
                batch,
                report.positions.clone(),
                values.text().clone(),
            )),
            None => failures.extend(report.positions.iter().map(|position| Failure {
                position,
                state: report.state,
                error: outcomes.failure(position).map(|failure| failure.error.clone()),
            })),
        }
    }
    if !failures.is_empty() {
        pieces.push(Piece::Failed(batch, failures));
    }
    pieces
}

/// Selects the values of the wanted positions from a packed array with values of `positions`.
pub fn values_of(values: &PackedArray, positions: &Positions, wanted: &Positions) -> PackedArray {
    values.select(&positions.indexes_of(wanted))
}

/// How a job ended: its state, its value and its last error.
pub type Ended = (&'static str, Option<String>, Option<ErrorParts>);

/// The end of the job with these details.
pub fn ended(details: JobDetails) -> Ended {
    let mut failures = details.failures;
    let error = match details.row.state {
        JobState::Completed => None,
        _ => failures.pop().map(|failure| error_parts(failure.error)),
    };
    let value = details.value.map(|value| value.get().to_owned());
    (details.row.state.name(), value, error)
}
