//! The output of followed jobs. The worker passes it to the source four times a second, within limits for each job and
//! each write. An agent learns of followers from heartbeats, and from the next answer to an exchange when the followed
//! jobs change. Without followers a worker sends nothing, and an exchange runs no further query.

use std::collections::BTreeMap;
use std::sync::Arc;

use gristmill_model::limits::{
    LIVE_OUTPUT_BYTES_PER_JOB_MAX, LIVE_OUTPUT_BYTES_PER_WRITE_MAX, PROGRESS_JOBS_MAX,
};
use gristmill_model::{BatchId, Followed, JobId, Positions, Printed};
use tokio::sync::Notify;

use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, lock};

/// Gathers the output of followed jobs. Without followers it costs one read of a flag. Clones share their state.
#[derive(Debug, Clone, Default)]
pub struct LiveOutputBoard(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// A job has a follower.
    used: AtomicBool,
    state: Mutex<State>,
    came: Notify,
}

#[derive(Debug, Default)]
struct State {
    followed: Vec<Followed>,
    /// The gathered output, by job and attempt.
    gathered: BTreeMap<(JobId, u32), Gathered>,
    /// The job that was written last. The next write begins after it, so that every job has its turn.
    written: Option<(JobId, u32)>,
    changed: bool,
}

#[derive(Debug)]
struct Gathered {
    kind: Arc<str>,
    /// The bytes of text before `text` since the job was followed.
    offset: u64,
    text: String,
    /// The first bytes of an incomplete character.
    tail: Vec<u8>,
}

impl Gathered {
    fn add(&mut self, bytes: &[u8]) {
        let mut all = std::mem::take(&mut self.tail);
        all.extend_from_slice(bytes);
        let mut rest = all.as_slice();
        while !rest.is_empty() {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    self.text.push_str(text);
                    break;
                }
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    self.text.push_str(&String::from_utf8_lossy(valid));
                    let Some(wrong) = error.error_len() else {
                        self.tail = after.to_vec();
                        break;
                    };
                    self.text.push(char::REPLACEMENT_CHARACTER);
                    rest = &after[wrong..];
                }
            }
        }
        if self.text.len() > LIVE_OUTPUT_BYTES_PER_JOB_MAX {
            let dropped = self
                .text
                .ceil_char_boundary(self.text.len() - LIVE_OUTPUT_BYTES_PER_JOB_MAX);
            self.text.drain(..dropped);
            self.offset += dropped as u64;
        }
        assert!(
            self.text.len() <= LIVE_OUTPUT_BYTES_PER_JOB_MAX,
            "the gathered output of a job stays within its limit"
        );
    }
}

impl LiveOutputBoard {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }

    /// Sets the followed jobs.
    pub fn follow(&self, followed: Vec<Followed>) {
        if followed.is_empty() && !self.0.used.load(Ordering::Relaxed) {
            return;
        }
        self.0.used.store(!followed.is_empty(), Ordering::Relaxed);
        let mut state = self.state();
        let State {
            followed: before,
            gathered,
            ..
        } = &mut *state;
        *before = followed;
        gathered.retain(|(job, _), gathered| {
            before
                .iter()
                .any(|followed| followed.includes(*job, &gathered.kind))
        });
    }

    /// Reports whether any job has a follower.
    pub fn is_used(&self) -> bool {
        self.0.used.load(Ordering::Relaxed)
    }

    /// Reports whether a job of a kind has a follower.
    pub fn is_followed(&self, job: JobId, kind: &str) -> bool {
        self.0.used.load(Ordering::Relaxed) && self.state().includes(job, kind)
    }

    /// Adds the output of a job, if anyone follows it. Beyond [`PROGRESS_JOBS_MAX`] jobs at once, the output of further
    /// jobs is ignored. The oldest output of a job with too much is dropped.
    pub fn printed(&self, job: JobId, attempt: u32, kind: &Arc<str>, bytes: &[u8]) {
        if bytes.is_empty() || !self.0.used.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.state();
        if !state.includes(job, kind) {
            return;
        }
        if state.gathered.len() >= PROGRESS_JOBS_MAX && !state.gathered.contains_key(&(job, attempt)) {
            return;
        }
        let gathered_jobs = state.gathered.len();
        assert!(
            gathered_jobs <= PROGRESS_JOBS_MAX,
            "the board gathers the output of {gathered_jobs} jobs, more than its limit"
        );
        let gathered = state.gathered.entry((job, attempt)).or_insert_with(|| Gathered {
            kind: kind.clone(),
            offset: 0,
            text: String::new(),
            tail: Vec::new(),
        });
        gathered.add(bytes);
        if !gathered.text.is_empty() {
            state.changed = true;
            drop(state);
            self.0.came.notify_one();
        }
    }

    /// Drops jobs that no longer run. The rest of their output comes with their outcome.
    pub fn forget(&self, batch: BatchId, positions: &Positions) {
        if !self.0.used.load(Ordering::Relaxed) {
            return;
        }
        self.state()
            .gathered
            .retain(|(job, _), _| job.batch != batch || !positions.contains(job.position));
    }

    /// Resolves when there is output to write.
    pub async fn changed(&self) {
        while !self.state().changed {
            self.0.came.notified().await;
        }
    }

    /// Takes the output to write now: at most [`LIVE_OUTPUT_BYTES_PER_WRITE_MAX`] bytes, from each job in turn.
    pub fn take(&self) -> Vec<Printed> {
        let mut state = self.state();
        let State {
            gathered,
            written,
            changed,
            ..
        } = &mut *state;
        let mut jobs: Vec<_> = gathered
            .iter_mut()
            .filter(|(_, gathered)| !gathered.text.is_empty())
            .collect();
        let first = jobs.partition_point(|(job, _)| written.is_some_and(|written| **job <= written));
        jobs.rotate_left(first);
        let mut taken = Vec::new();
        let mut bytes = 0;
        *changed = false;
        for ((job, attempt), gathered) in jobs {
            bytes += gathered.text.len();
            if bytes > LIVE_OUTPUT_BYTES_PER_WRITE_MAX {
                *changed = true;
                break;
            }
            *written = Some((*job, *attempt));
            let text = std::mem::take(&mut gathered.text);
            let offset = gathered.offset;
            gathered.offset += text.len() as u64;
            taken.push(Printed {
                job: *job,
                kind: gathered.kind.clone(),
                attempt: *attempt,
                offset,
                text,
            });
        }
        debug_assert!(
            taken.iter().map(|printed| printed.text.len()).sum::<usize>() <= LIVE_OUTPUT_BYTES_PER_WRITE_MAX,
            "a write of live output stays within its limit"
        );
        taken
    }
}

impl State {
    fn includes(&self, job: JobId, kind: &str) -> bool {
        self.followed.iter().any(|followed| followed.includes(job, kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(position: u32) -> JobId {
        JobId {
            batch: BatchId(1),
            position,
        }
    }

    fn board(followed: Followed) -> (LiveOutputBoard, Arc<str>) {
        let board = LiveOutputBoard::default();
        board.follow(vec![followed]);
        (board, "work".into())
    }

    #[tokio::test]
    async fn output_of_followed_jobs_is_taken_in_order_and_in_whole_characters() {
        let (board, kind) = board(Followed::Job(job(1)));
        assert!(board.is_followed(job(1), &kind) && !board.is_followed(job(2), &kind));
        board.printed(job(2), 1, &kind, b"nobody follows this");
        board.printed(job(1), 1, &kind, b"one \xc3");
        board.changed().await;
        board.printed(job(1), 1, &kind, b"\xa9 \xff two\xe2\x82");
        let taken = board.take();
        assert_eq!(taken.len(), 1);
        assert_eq!(
            (taken[0].offset, taken[0].text.as_str()),
            (0, "one é \u{fffd} two")
        );
        board.printed(job(1), 1, &kind, b"\xac!");
        let next = board.take();
        assert_eq!(
            (next[0].offset, next[0].text.as_str()),
            (taken[0].text.len() as u64, "€!")
        );
        assert_eq!(board.take(), []);
        board.printed(job(1), 1, &kind, b"rest");
        board.forget(BatchId(1), &"1".parse().unwrap());
        assert_eq!(board.take(), [], "the outcome brings it");
        board.printed(job(1), 2, &kind, b"again");
        board.follow(Vec::new());
        assert_eq!(board.take(), [], "nobody follows any more");
        assert!(!board.is_followed(job(1), &kind));
    }

    #[test]
    fn the_oldest_output_is_dropped_and_each_job_has_its_turn() {
        let (board, kind) = board(Followed::Kind("work".into()));
        let long = "ab€".repeat(LIVE_OUTPUT_BYTES_PER_JOB_MAX);
        for position in 0..20 {
            board.printed(job(position), 1, &kind, long.as_bytes());
        }
        let mut seen = Vec::new();
        let mut writes = 0;
        while seen.len() < 20 {
            let taken = board.take();
            let bytes: usize = taken.iter().map(|printed| printed.text.len()).sum();
            assert!(bytes > 0 && bytes <= LIVE_OUTPUT_BYTES_PER_WRITE_MAX);
            for printed in taken {
                assert!(long.ends_with(&printed.text) && printed.text.len() <= LIVE_OUTPUT_BYTES_PER_JOB_MAX);
                assert_eq!(printed.offset as usize + printed.text.len(), long.len());
                seen.push(printed.job.position);
                // A job that prints without end does not take the turn of another.
                board.printed(printed.job, 1, &kind, b"on");
                board
                    .state()
                    .gathered
                    .get_mut(&(printed.job, 1))
                    .unwrap()
                    .text
                    .clear();
            }
            writes += 1;
        }
        assert!(writes > 1);
        assert_eq!(seen, (0..20).collect::<Vec<_>>());
        for position in 20..20 + 2 * PROGRESS_JOBS_MAX as u32 {
            board.printed(job(position), 1, &kind, b"x");
        }
        assert_eq!(board.state().gathered.len(), PROGRESS_JOBS_MAX);
    }
}
