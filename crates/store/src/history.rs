//! The history of ended jobs: counts and durations, by kind, queue and period.
//!
//! A commit keeps the durations of a report's jobs as counts by bucket (`model::duration_histogram`), so a history
//! reads a short text for each report, and no values. For a report of few jobs, SQLite reads the durations themselves:
//! a small report then needs one row less.

use std::collections::BTreeMap;
use std::sync::Arc;

use gristmill_model::limits::HISTORY_ROWS_MAX;
use gristmill_model::{DurationHistogram, JobState, Timestamp};
use serde::{Deserialize, Serialize};

use crate::StoreError;

/// Which ended jobs are counted, and how they are put together. Conditions that are `None` leave all through.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HistoryFilter {
    /// Only of this kind.
    pub kind: Option<String>,
    /// Only on this queue.
    pub queue: Option<String>,
    /// Only what ended at this moment or later.
    pub since: Option<Timestamp>,
    /// Only what ended before this moment.
    pub until: Option<Timestamp>,
    /// A row for how long a time.
    pub by: HistoryPeriod,
}

/// How long a time a row of the history speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HistoryPeriod {
    /// All of it.
    #[default]
    All,
    /// An hour.
    Hour,
    /// A day, of UTC.
    Day,
}

impl HistoryPeriod {
    /// Its length in milliseconds; `None` where it has none.
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
    /// When the period begins; `None` where it is all of the time.
    pub from: Option<Timestamp>,
    /// Their kind.
    pub kind: Arc<str>,
    /// Their queue.
    pub queue: Arc<str>,
    /// How many completed.
    pub completed: u64,
    /// How many are dead.
    pub dead: u64,
    /// How many were cancelled.
    pub cancelled: u64,
    /// How many expired.
    pub expired: u64,
    /// How long the last attempts of the completed ones took.
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

/// A period's number since 1970, a queue and a kind.
type HistoryKey = (Option<i64>, Arc<str>, Arc<str>);

/// Rows in the making.
#[derive(Debug)]
pub struct HistoryRows {
    period: HistoryPeriod,
    rows: BTreeMap<HistoryKey, HistoryRow>,
}

impl HistoryRows {
    /// No rows yet, in the periods of the filter.
    pub fn new(filter: &HistoryFilter) -> Self {
        HistoryRows {
            period: filter.by,
            rows: BTreeMap::new(),
        }
    }

    /// The row of a period (its number since 1970), a queue and a kind. Refuses one row too many.
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

    /// The rows: the latest period first, then by queue and kind.
    pub fn into_rows(self) -> Vec<HistoryRow> {
        let mut rows: Vec<HistoryRow> = self.rows.into_values().collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.from));
        rows
    }
}
