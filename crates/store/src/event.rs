//! Events of jobs, in commit order, as the stores keep them for listeners.
//!
//! Triggers on the tables of batches, reports, failures and progress write the events, so that changes of every process
//! are covered. They write only while the table `listening` has a row of a listener. On SQLite, the triggers exist only
//! then. Readers page through events from any cursor. Changes of their own process wake them at once, and they poll
//! four times a second for others. On PostgreSQL, events are ordered by transaction, and a reader stops before the
//! oldest open transaction, so that no event appears behind its cursor.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use gristmill_model::{BatchId, JobProgress, JobState, Positions, Timestamp, WorkerId};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A place in the order of events. Each event has one, and later events are read from there. Only the store that gave a
/// cursor understands it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct EventCursor {
    /// The number of the transaction, if the store numbers transactions.
    pub transaction: i64,
    /// The number of the event.
    pub id: i64,
}

impl fmt::Display for EventCursor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.transaction, self.id)
    }
}

/// The text is not a cursor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the cursor of an event: give one as it came with an event, such as 0-17")]
pub struct ParseEventCursorError(String);

impl FromStr for EventCursor {
    type Err = ParseEventCursorError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |part: &str| part.parse().ok().filter(|number: &i64| *number >= 0);
        text.split_once('-')
            .and_then(|(transaction, id)| {
                Some(EventCursor {
                    transaction: number(transaction)?,
                    id: number(id)?,
                })
            })
            .ok_or_else(|| ParseEventCursorError(text.chars().take(60).collect()))
    }
}

impl Serialize for EventCursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for EventCursor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Jobs of one batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventJobs {
    /// Their batch.
    pub batch: BatchId,
    /// The positions of the jobs.
    pub positions: Positions,
    /// Their kind; `None` if the batch was deleted since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Arc<str>>,
    /// Their queue; `None` if the batch was deleted since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<Arc<str>>,
}

/// A change that is on disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Event {
    /// A batch was submitted.
    Submitted {
        /// All jobs of the batch.
        #[serde(flatten)]
        jobs: EventJobs,
    },
    /// Jobs completed.
    Completed {
        /// The jobs.
        #[serde(flatten)]
        jobs: EventJobs,
        /// The attempt that completed.
        attempt: u32,
    },
    /// Attempts failed, and another follows.
    Retried {
        /// The jobs.
        #[serde(flatten)]
        jobs: EventJobs,
        /// The attempt that failed.
        attempt: u32,
        /// The time from which the next attempt can begin.
        run_at: Timestamp,
    },
    /// Jobs are dead.
    Dead {
        /// The jobs.
        #[serde(flatten)]
        jobs: EventJobs,
        /// The last attempt; 0 if there was none.
        attempt: u32,
    },
    /// Jobs were cancelled.
    Cancelled {
        /// The jobs.
        #[serde(flatten)]
        jobs: EventJobs,
        /// The last attempt; 0 if there was none.
        attempt: u32,
    },
    /// Jobs expired.
    Expired {
        /// The jobs.
        #[serde(flatten)]
        jobs: EventJobs,
        /// The last attempt; 0 if there was none.
        attempt: u32,
    },
    /// A worker reported the progress of its jobs.
    Progress {
        /// The worker.
        worker: WorkerId,
        /// The jobs.
        running: Vec<JobProgress>,
    },
    /// Earlier events are missing: there was no listener for over an hour, or there were too many events.
    Missed,
}

impl Event {
    /// The name of its type, as it is written.
    pub const fn name(&self) -> &'static str {
        match self {
            Event::Submitted { .. } => "submitted",
            Event::Completed { .. } => "completed",
            Event::Retried { .. } => "retried",
            Event::Dead { .. } => "dead",
            Event::Cancelled { .. } => "cancelled",
            Event::Expired { .. } => "expired",
            Event::Progress { .. } => "progress",
            Event::Missed => "missed",
        }
    }
}

/// An event with its place and time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordedEvent {
    /// The place of the event, after which the next read continues.
    pub cursor: EventCursor,
    /// The time of the event.
    pub at: Timestamp,
    /// The event.
    #[serde(flatten)]
    pub event: Event,
}

/// A row of the table of events.
#[derive(Debug)]
pub struct EventRow<'r> {
    /// Its place.
    pub cursor: EventCursor,
    /// Its time.
    pub at: Timestamp,
    /// The name of the event.
    pub name: &'r str,
    /// The batch of the jobs.
    pub batch: Option<BatchId>,
    /// The attempt of the jobs.
    pub attempt: u32,
    /// The moment of the next attempt.
    pub run_at: Option<Timestamp>,
    /// The worker of the jobs.
    pub worker: WorkerId,
    /// The jobs.
    pub positions: Positions,
    /// JSON whose form depends on the name of the event.
    pub detail: Option<&'r str>,
    /// The kind of a submitted batch.
    pub kind: Option<Arc<str>>,
    /// The queue of a submitted batch.
    pub queue: Option<Arc<str>>,
}

impl EventRow<'_> {
    /// Adds the row to the events that were read before it. Consecutive failures of one batch and attempt become one
    /// event. Events of a newer program are left out.
    pub fn add_to(self, events: &mut Vec<RecordedEvent>) -> serde_json::Result<()> {
        let (attempt, cursor, at) = (self.attempt, self.cursor, self.at);
        let mut jobs = EventJobs {
            batch: self.batch.unwrap_or(BatchId(0)),
            positions: self.positions,
            kind: self.kind,
            queue: self.queue,
        };
        let state = self.name.parse();
        let event = match (self.name, state) {
            ("submitted", _) => Event::Submitted { jobs },
            ("progress", _) => Event::Progress {
                worker: self.worker,
                running: serde_json::from_str(self.detail.unwrap_or("[]"))?,
            },
            ("retried", _) => {
                let run_at = self.run_at.unwrap_or(at);
                if let Some(last) = events.last_mut()
                    && last.at == at
                    && let Event::Retried {
                        jobs: others,
                        attempt: same,
                        run_at: then,
                    } = &mut last.event
                    && (others.batch, *same, *then) == (jobs.batch, attempt, run_at)
                {
                    jobs.positions = others.positions.union(&jobs.positions);
                    *others = jobs;
                    last.cursor = cursor;
                    return Ok(());
                }
                Event::Retried {
                    jobs,
                    attempt,
                    run_at,
                }
            }
            (_, Ok(JobState::Completed)) => Event::Completed { jobs, attempt },
            (_, Ok(JobState::Dead)) => Event::Dead { jobs, attempt },
            (_, Ok(JobState::Cancelled)) => Event::Cancelled { jobs, attempt },
            (_, Ok(JobState::Expired)) => Event::Expired { jobs, attempt },
            _ => return Ok(()),
        };
        assert!(events.last().is_none_or(|last| last.cursor <= cursor), "in order");
        events.push(RecordedEvent { cursor, at, event });
        Ok(())
    }
}

/// The events after a cursor.
#[derive(Debug, Clone, PartialEq)]
pub struct EventPage {
    /// The events in order. [`Event::Missed`] comes first if earlier events are missing.
    pub events: Vec<RecordedEvent>,
    /// The cursor for the next page.
    pub next: EventCursor,
}

impl EventPage {
    /// Makes an empty page. A store without listeners records nothing, so a later listener learns that events are missing.
    pub fn nothing(after: Option<EventCursor>) -> Self {
        EventPage {
            events: Vec::new(),
            next: after.unwrap_or_default(),
        }
    }

    /// Begins a page of the events after `after`. The store has kept all events after `kept_after`.
    pub fn begin(after: Option<EventCursor>, kept_after: EventCursor, now: Timestamp) -> Self {
        let after = after.unwrap_or(kept_after);
        let mut events = Vec::new();
        if after < kept_after {
            events.push(RecordedEvent {
                cursor: kept_after,
                at: now,
                event: Event::Missed,
            });
        }
        EventPage {
            events,
            next: after.max(kept_after),
        }
    }
}
