//! One micro-batch in a slot: the jobs to send, and the receiver of outcomes.

use std::collections::VecDeque;

use gristmill_model::limits::FINALIZING_BYTES_MAX;
use gristmill_model::{FailedJob, JobError, JobLog, PackedArray, PackedError, Positions};
use gristmill_worker::Outcomes;

use crate::capped::CappedLog;
use crate::pool::Work;

/// Jobs to send. All positions are the jobs' places in the micro-batch.
#[derive(Debug)]
pub(crate) struct Piece {
    pub places: Positions,
    /// True if the jobs are suspected of killing their process. They are sent one by one, each when the process has no
    /// other job.
    pub careful: bool,
}

/// One micro-batch in a slot.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub id: u64,
    pub work: Work,
    waiting: VecDeque<Piece>,
    /// The number of its jobs that the process has.
    pub sent_count: usize,
    /// True if the worker recalls jobs that have not begun.
    pub is_recalled: bool,
    /// True if its output is sent at once.
    pub is_followed: bool,
}

impl InFlight {
    pub fn new(id: u64, work: Work) -> InFlight {
        InFlight {
            id,
            waiting: VecDeque::from([Piece {
                places: work.micro_batch.indexes(),
                careful: false,
            }]),
            work,
            sent_count: 0,
            is_recalled: false,
            is_followed: false,
        }
    }

    pub fn is_done(&self) -> bool {
        self.waiting.is_empty() && self.sent_count == 0
    }

    /// Reports whether to abandon the jobs that have not begun.
    pub fn is_draining(&self) -> bool {
        self.work.signals.is_draining() || self.work.is_abandoned()
    }

    /// Reports whether jobs are to be sent, and whether the next one needs care.
    pub fn next_is_careful(&self) -> Option<bool> {
        self.waiting.front().map(|piece| piece.careful)
    }

    /// Gives waiting jobs back if they should be given up or were recalled. A job that is suspected of killing its
    /// process has begun before and is not recalled.
    pub fn give_up_waiting(&mut self) {
        if self.is_draining() || self.is_recalled {
            let is_draining = self.is_draining();
            let keeps = |piece: &Piece| piece.careful && !is_draining;
            let (kept, given_up): (VecDeque<Piece>, VecDeque<Piece>) =
                std::mem::take(&mut self.waiting).into_iter().partition(keeps);
            assert!(kept.iter().all(|piece| piece.careful), "careful pieces stay");
            self.waiting = kept;
            for piece in given_up {
                self.give_back(piece.places);
            }
        }
    }

    /// Gives back jobs that have not begun.
    fn give_back(&self, places: Positions) {
        if places.is_empty() {
            return;
        }
        let mut outcomes = Outcomes::default();
        if self.is_draining() {
            outcomes.released = places
        } else {
            outcomes.returned = places
        }
        self.work.answer(outcomes);
    }

    fn release(&self, places: Positions) {
        if !places.is_empty() {
            self.work.answer(Outcomes {
                released: places,
                ..Outcomes::default()
            });
        }
    }

    /// Fails a job whose input for finalizing is too large.
    fn refuse(&self, place: u32, error: &PackedError) {
        let error = JobError::new(
            "children",
            format!("the outcomes of its children are too large: {error}"),
        );
        self.fail(&Positions::from(place..place + 1), &error.permanent());
    }

    fn fail(&self, places: &Positions, error: &JobError) {
        let failed = places.iter().map(|position| FailedJob {
            position,
            error: error.clone(),
            duration_us: 0,
        });
        self.work.answer(Outcomes {
            failed: failed.collect(),
            ..Outcomes::default()
        });
    }

    /// The next piece to send, with its payloads and at most `jobs_max` jobs. Jobs that were cancelled meanwhile are
    /// released instead.
    pub fn next_piece(&mut self, jobs_max: u32) -> Option<(PackedArray, Piece)> {
        loop {
            let mut piece = self.waiting.pop_front()?;
            let cancelled = piece.places.intersection(&self.work.signals.cancelled());
            piece.places = piece.places.difference(&cancelled);
            self.release(cancelled);
            if piece.places.is_empty() {
                continue;
            }
            let count = if piece.careful { 1 } else { jobs_max };
            if piece.places.len() > count {
                let places = piece.places.take_first(count);
                let careful = piece.careful;
                self.waiting.push_front(piece);
                piece = Piece { places, careful };
            }
            assert!(
                piece.places.len() <= count,
                "a piece has at most {count} jobs, not {}",
                piece.places.len()
            );
            let micro_batch = &self.work.micro_batch;
            match micro_batch.finalizing_items(&piece.places, FINALIZING_BYTES_MAX) {
                None => return Some((micro_batch.payloads().select(&piece.places), piece)),
                Some(Ok(items)) => return Some((items, piece)),
                Some(Err((place, error))) => {
                    self.refuse(place, &error);
                    let places = piece.places.difference(&Positions::from(place..place + 1));
                    self.waiting.push_front(Piece { places, ..piece });
                }
            }
        }
    }

    /// Takes jobs back from the process in their order, each with whether it needs care. They are sent again before all
    /// waiting jobs, or given up.
    pub fn take_back(&mut self, jobs: &[(u32, bool)]) {
        assert!(
            jobs.len() <= self.sent_count,
            "a process that has {} jobs cannot give back {}",
            self.sent_count,
            jobs.len()
        );
        self.sent_count -= jobs.len();
        for run in jobs.chunk_by(|(_, one), (_, other)| one == other).rev() {
            let places: Positions = run.iter().map(|(place, _)| *place).collect();
            assert_eq!(places.len() as usize, run.len(), "a job comes back once");
            let careful = run[0].1;
            debug_assert!(self.waiting.iter().all(|piece| piece.places.is_disjoint(&places)));
            self.waiting.push_front(Piece { places, careful });
        }
        if self.is_draining() {
            self.give_up_waiting();
        }
    }

    /// Charges a job with the failure of its process.
    pub fn charge(&mut self, place: u32, error: JobError, duration_us: u32, log: CappedLog) {
        assert!(
            self.sent_count > 0,
            "only a job that the process has can be charged"
        );
        self.sent_count -= 1;
        let mut logs = Vec::new();
        if !log.is_empty() {
            logs.push(JobLog {
                position: place,
                text: log.into_text(),
            });
        }
        self.work.answer(Outcomes {
            failed: vec![FailedJob {
                position: place,
                error,
                duration_us,
            }],
            logs,
            ..Outcomes::default()
        });
    }

    /// Gives all waiting jobs back, because no process can run them.
    pub fn give_back_waiting(&mut self) {
        for piece in std::mem::take(&mut self.waiting) {
            self.give_back(piece.places);
        }
    }

    /// Releases all waiting jobs.
    pub fn release_waiting(&mut self) {
        for piece in std::mem::take(&mut self.waiting) {
            self.release(piece.places);
        }
    }
}
