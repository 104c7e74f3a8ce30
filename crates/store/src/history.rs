//! The history of ended jobs: counts and durations, by kind, queue and period.
//!
//! A commit keeps the durations of a report's jobs as counts by bucket (`model::duration_histogram`). So a history
//! reads a short text for each report, and no values. For a report of few jobs, SQLite reads the durations themselves,
//! so that a small report needs one row less.

use std::collections::BTreeMap;
use std::sync::Arc;

use gristmill_model::limits::HISTORY_ROWS_MAX;
use gristmill_model::{DurationHistogram, JobState, Timestamp};
use serde::{Deserialize, Serialize};

use crate::StoreError;

/// The ended jobs to count, and the period of a row. A condition that is `None` allows all jobs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HistoryFilter {
    /// Counts only jobs of this kind.
    pub kind: Option<String>,
    /// Counts only jobs on this queue.
    pub queue: Option<String>,
    /// Counts only jobs that ended at this time or later.
    pub since: Option<Timestamp>,
    /// Counts only jobs that ended before this time.
    pub until: Option<Timestamp>,
    /// The period of each row.
    pub by: HistoryPeriod,
}

/// The period of a row of the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = Period))]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum HistoryPeriod {
    /// All time.
    #[default]
    All,
    /// One hour.
    Hour,
    /// One day in UTC.
    Day,
}

impl HistoryPeriod {
    /// The length in milliseconds; `None` for the whole time.
    pub fn length_ms(self) -> Option<i64> {
        match self {
            HistoryPeriod::All => None,
            HistoryPeriod::Hour => Some(3_600_000),
            HistoryPeriod::Day => Some(86_400_000),
        }
    }
}

/// Jobs of one kind on one queue that ended within one period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryRow {
    /// The beginning of the period; `None` for the whole time.
    pub from: Option<Timestamp>,
    /// Their kind.
    pub kind: Arc<str>,
    /// Their queue.
    pub queue: Arc<str>,
    /// Number of completed jobs.
    pub completed: u64,
    /// Number of dead jobs.
    pub dead: u64,
    /// Number of cancelled jobs.
    pub cancelled: u64,
    /// Number of expired jobs.
    pub expired: u64,
    /// The durations of the last attempts of completed jobs.
    pub durations: DurationHistogram,
}

impl HistoryRow {
    /// Counts jobs that ended in this state.
    pub fn add(&mut self, state: JobState, jobs: u64) {
        match state {
            JobState::Completed => self.completed += jobs,
            JobState::Dead => self.dead += jobs,
            JobState::Cancelled => self.cancelled += jobs,
            JobState::Expired => self.expired += jobs,
            JobState::Blocked
            | JobState::Waiting
            | JobState::Scheduled
            | JobState::Paused
            | JobState::Running => {}
        }
    }
}

/// The number of a period since 1970, a queue and a kind.
type HistoryKey = (Option<i64>, Arc<str>, Arc<str>);

/// Rows of a history that is being made.
#[derive(Debug)]
pub struct HistoryRows {
    period: HistoryPeriod,
    rows: BTreeMap<HistoryKey, HistoryRow>,
}

impl HistoryRows {
    /// Makes an empty history with the periods of the filter.
    pub fn new(filter: &HistoryFilter) -> Self {
        HistoryRows {
            period: filter.by,
            rows: BTreeMap::new(),
        }
    }

    /// The row of a period (its number since 1970), a queue and a kind. Refuses a row beyond the limit.
    pub fn row(
        &mut self,
        period: Option<i64>,
        queue: &Arc<str>,
        kind: &Arc<str>,
    ) -> Result<&mut HistoryRow, StoreError> {
        let key = (period, queue.clone(), kind.clone());
        if self.rows.len() >= HISTORY_ROWS_MAX && !self.rows.contains_key(&key) {
            return Err(StoreError::InvalidInput(format!(
                "the history has more than {HISTORY_ROWS_MAX} rows: name a kind or a queue, a shorter time, or longer periods"
            )));
        }
        let length_ms = self.period.length_ms();
        Ok(self.rows.entry(key).or_insert_with(|| HistoryRow {
            from: period
                .zip(length_ms)
                .map(|(number, length_ms)| Timestamp(number * length_ms)),
            kind: kind.clone(),
            queue: queue.clone(),
            completed: 0,
            dead: 0,
            cancelled: 0,
            expired: 0,
            durations: DurationHistogram::default(),
        }))
    }

    /// Returns the rows, latest period first, and then by queue and kind.
    pub fn into_rows(self) -> Vec<HistoryRow> {
        let mut rows: Vec<HistoryRow> = self.rows.into_values().collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.from));
        rows
    }
}
