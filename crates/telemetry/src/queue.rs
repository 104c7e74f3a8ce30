//! A queue of encoded spans or logs that wait for their export.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

use crate::limits::{QUEUE_BYTES_MAX, REQUEST_BYTES_TARGET};

/// A bounded queue. A producer holds its lock for a moment, and never waits for the receiver.
#[derive(Debug, Default)]
pub struct Queue {
    waiting: Mutex<Waiting>,
    /// Notified when the queue has enough records for a request.
    pub enough: Notify,
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct Waiting {
    records: VecDeque<String>,
    bytes: usize,
}

/// The records of one request.
#[derive(Debug, Default)]
pub struct Taken {
    /// The records as JSON, with commas between them.
    pub text: String,
    /// The number of records.
    pub count: u64,
}

impl Queue {
    /// Adds a record. If the queue is full, drops and counts the record.
    pub fn put(&self, record: String) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.bytes + record.len() > QUEUE_BYTES_MAX {
            drop(waiting);
            self.drop_counted(1);
            return;
        }
        waiting.bytes += record.len();
        waiting.records.push_back(record);
        assert!(
            waiting.bytes <= QUEUE_BYTES_MAX,
            "the queue holds {} bytes, more than its limit",
            waiting.bytes
        );
        let is_enough = waiting.bytes >= REQUEST_BYTES_TARGET;
        drop(waiting);
        if is_enough {
            self.enough.notify_one();
        }
    }

    /// Takes the oldest records, up to the size of a request.
    pub fn take(&self) -> Taken {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = Taken::default();
        while let Some(record) = waiting.records.front() {
            if taken.count > 0 && taken.text.len() + record.len() > REQUEST_BYTES_TARGET {
                break;
            }
            if taken.count > 0 {
                taken.text.push(',');
            }
            taken.text.push_str(record);
            taken.count += 1;
            let bytes = record.len();
            waiting.records.pop_front();
            assert!(
                waiting.bytes >= bytes,
                "the queue counts the bytes of each of its records"
            );
            waiting.bytes -= bytes;
        }
        assert_eq!(
            waiting.bytes == 0,
            waiting.records.is_empty(),
            "an empty queue has no bytes"
        );
        taken
    }

    /// Counts lost records.
    pub fn drop_counted(&self, records: u64) {
        self.dropped.fetch_add(records, Ordering::Relaxed);
    }

    /// The number of lost records.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_beyond_the_limit_are_dropped_and_counted() {
        let queue = Queue::default();
        let record = "x".repeat(1 << 10);
        let fitting = (QUEUE_BYTES_MAX / record.len()) as u64;
        for _ in 0..fitting + 7 {
            queue.put(record.clone());
        }
        assert_eq!(queue.dropped(), 7);
        let first = queue.take();
        assert_eq!(first.count, (REQUEST_BYTES_TARGET / (record.len() + 1)) as u64);
        assert_eq!(
            first.text.len() as u64,
            first.count * (record.len() as u64 + 1) - 1
        );
        let mut count = first.count;
        loop {
            match queue.take().count {
                0 => break,
                more => count += more,
            }
        }
        assert_eq!(count, fitting);
        queue.put("{}".to_owned());
        assert_eq!(queue.take().text, "{}");
        assert_eq!(queue.take().count, 0);
    }
}
