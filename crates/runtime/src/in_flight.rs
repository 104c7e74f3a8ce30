//! One micro-batch on its way through a process: what is to be sent, what was sent, what is answered.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use gristmill_model::{FailedJob, JobError, JobLog, PackedArray, PackedError, Positions};
use gristmill_worker::Outcomes;

use crate::answers::Answers;
use crate::capped::CappedLog;
use crate::limits::FINALIZING_BYTES_MAX;
use crate::output::Output;
use crate::pool::Work;
use crate::protocol::{OutcomesFrame, ProtocolError};

/// Jobs that are to be sent together. All positions here are the jobs' places in the micro-batch.
#[derive(Debug)]
struct Piece {
    positions: Positions,
    careful: bool,
}

/// A piece that the process has.
#[derive(Debug)]
pub(crate) struct SentPiece {
    pub sequence: u32,
    careful: bool,
    pub positions: Vec<u32>,
    pub answered: Vec<bool>,
    pub answered_count: usize,
    /// All jobs before this one are answered.
    first_unanswered: usize,
    /// How many had begun when, as the process said.
    begun: VecDeque<(u32, Instant)>,
    /// When the process last said anything of this piece, or got to it.
    progress_at: Instant,
    pub logs: HashMap<u32, CappedLog>,
    stopping: bool,
}

impl SentPiece {
    fn unanswered(&self) -> Positions {
        let pairs = self.positions.iter().zip(&self.answered);
        pairs
            .filter(|(_, answered)| !**answered)
            .map(|(position, _)| *position)
            .collect()
    }

    /// When the job that has run the longest began, as far as it is known.
    fn running_since(&self) -> Instant {
        match self.begun.front() {
            Some((begun, at)) if *begun as usize > self.first_unanswered => *at,
            _ => self.progress_at,
        }
    }

    fn note_begun(&mut self, begun: u32, now: Instant) {
        if self.begun.back().is_none_or(|(known, _)| *known < begun) {
            self.begun.push_back((begun, now));
        }
        self.progress_at = now;
    }

    fn forget_past(&mut self) {
        while self.answered.get(self.first_unanswered) == Some(&true) {
            self.first_unanswered += 1;
        }
        while self
            .begun
            .front()
            .is_some_and(|(begun, _)| *begun as usize <= self.first_unanswered)
        {
            self.begun.pop_front();
        }
    }
}

/// Why a process was replaced while it had work.
#[derive(Debug)]
pub(crate) enum Culprit {
    /// It is known which job did it: it is charged, the others run again.
    Known(JobError),
    /// A job did it, and if it is alone it is charged; otherwise it is looked for.
    Suspected(JobError),
}

/// One micro-batch in the hands of a slot.
#[derive(Debug)]
pub(crate) struct InFlight {
    work: Work,
    waiting: VecDeque<Piece>,
    pub sent: Option<SentPiece>,
    /// The job that runs, where it was cancelled, and when that was seen.
    cancelled: Option<(u32, Instant)>,
}

impl InFlight {
    pub fn new(work: Work) -> InFlight {
        InFlight {
            waiting: VecDeque::from([Piece {
                positions: work.micro_batch.indexes(),
                careful: false,
            }]),
            work,
            sent: None,
            cancelled: None,
        }
    }

    /// Whether nobody waits for its outcomes any more.
    pub fn is_abandoned(&self) -> bool {
        self.work.is_abandoned()
    }

    pub fn is_done(&self) -> bool {
        self.waiting.is_empty() && self.sent.is_none()
    }

    pub fn is_finalizing(&self) -> bool {
        self.work.micro_batch.is_finalizing()
    }

    pub fn timeout_ms(&self) -> Option<u64> {
        self.work.micro_batch.timeout_ms()
    }

    /// How many jobs the process has not answered.
    pub fn unanswered_count(&self) -> usize {
        let sent = self.sent.as_ref();
        sent.map_or(0, |sent| sent.positions.len() - sent.answered_count)
    }

    /// When the job that has run the longest began.
    pub fn running_since(&self) -> Option<Instant> {
        self.sent.as_ref().map(SentPiece::running_since)
    }

    /// Since when it has been known that the job that has run the longest was cancelled.
    pub fn cancelled_since(&mut self, now: Instant) -> Option<Instant> {
        let running = self
            .sent
            .as_ref()
            .and_then(|sent| sent.positions.get(sent.first_unanswered).copied())
            .filter(|position| self.work.signals.cancelled().contains(*position));
        self.cancelled = running.map(|position| match self.cancelled {
            Some((known, since)) if known == position => (known, since),
            _ => (position, now),
        });
        self.cancelled.map(|(_, since)| since)
    }

    /// The process has got to this micro-batch.
    pub fn is_next(&mut self, now: Instant) {
        if let Some(sent) = &mut self.sent {
            sent.progress_at = sent.progress_at.max(now);
        }
    }

    /// Looks at what the worker wants. Says which sequence is to be stopped, if any.
    pub fn heed_signals(&mut self) -> Option<u32> {
        let draining = self.work.signals.is_draining() || self.work.is_abandoned();
        if draining {
            for piece in std::mem::take(&mut self.waiting) {
                self.release(piece.positions);
            }
        }
        let cancelled = self.work.signals.cancelled();
        let sent = self.sent.as_mut().filter(|sent| !sent.stopping)?;
        // The process skips no single job: it is stopped, and what is left is sent anew.
        let skips = !cancelled.is_empty() && {
            let from = sent.begun.back().map_or(0, |(begun, _)| *begun as usize);
            sent.positions
                .iter()
                .skip(from.max(sent.first_unanswered + 1))
                .any(|position| cancelled.contains(*position))
        };
        if draining || skips {
            sent.stopping = true;
            return Some(sent.sequence);
        }
        None
    }

    fn release(&self, positions: Positions) {
        if !positions.is_empty() {
            self.work.answer(Outcomes {
                released: positions,
                ..Outcomes::default()
            });
        }
    }

    /// Fails a job that cannot be told what it finalizes with.
    fn refuse(&self, position: u32, error: &PackedError) {
        let error = JobError::new(
            "children",
            format!("the outcomes of its children are too much: {error}"),
        );
        self.work.answer(Outcomes {
            failed: vec![FailedJob {
                position,
                error: error.permanent(),
                duration_us: 0,
            }],
            ..Outcomes::default()
        });
    }

    /// The next piece to send, if the process has none: its payloads and whether it is careful.
    /// Jobs that were cancelled meanwhile are released instead. [`InFlight::mark_sent`] follows.
    pub fn next_piece(&mut self) -> Option<(PackedArray, bool, Positions)> {
        while self.sent.is_none() {
            let piece = self.waiting.pop_front()?;
            let cancelled = piece.positions.intersection(&self.work.signals.cancelled());
            let positions = piece.positions.difference(&cancelled);
            self.release(cancelled);
            if positions.is_empty() {
                continue;
            }
            let micro_batch = &self.work.micro_batch;
            match micro_batch.finalizing_items(&positions, FINALIZING_BYTES_MAX) {
                None => {
                    let payloads = micro_batch.payloads().select(&positions);
                    return Some((payloads, piece.careful, positions));
                }
                Some(Ok(items)) => return Some((items, piece.careful, positions)),
                Some(Err((place, error))) => {
                    self.refuse(place, &error);
                    let positions = positions.difference(&Positions::from(place..place + 1));
                    self.waiting.push_front(Piece { positions, ..piece });
                }
            }
        }
        None
    }

    /// The process has got a piece under a sequence number.
    pub fn mark_sent(&mut self, sequence: u32, careful: bool, positions: &Positions, now: Instant) {
        let positions: Vec<u32> = positions.iter().collect();
        self.sent = Some(SentPiece {
            sequence,
            careful,
            answered: vec![false; positions.len()],
            positions,
            answered_count: 0,
            first_unanswered: 0,
            begun: VecDeque::new(),
            progress_at: now,
            logs: HashMap::new(),
            stopping: false,
        });
    }

    /// Takes the outcomes of one frame for the piece that was sent. `output` is what came on the
    /// standard streams: what a job has claimed is its own, and what is left when the piece is over
    /// goes to the job of this frame that ran the longest. Nothing is answered where the frame does
    /// not hold.
    pub fn take(
        &mut self,
        frame: OutcomesFrame,
        output: &mut Output,
        now: Instant,
    ) -> Result<(), ProtocolError> {
        let sent = self.sent.as_mut().ok_or(ProtocolError::UnknownJob)?;
        let mut answers = Answers::read(&frame, sent, self.work.micro_batch.kind())?;
        let progress = std::mem::take(&mut answers.progress);
        if !progress.is_empty() {
            let positions = |(index, progress)| (sent.positions[index as usize], progress);
            self.work.tell(progress.into_iter().map(positions).collect());
        }
        sent.note_begun(frame.begun.min(sent.positions.len() as u32), now);
        for (index, log) in output.take_claimed(sent.sequence) {
            sent.logs.entry(index).or_default().append(log);
        }
        let stopped = answers.stopped;
        let is_last = stopped || sent.answered_count + answers.count() == sent.positions.len();
        if is_last
            && !output.unclaimed.is_empty()
            && let Some(longest) = answers.longest()
        {
            let log = sent.logs.entry(longest).or_default();
            log.append(output.take_unclaimed());
        }
        if let Some(outcomes) = answers.into_outcomes(sent) {
            self.work.answer(outcomes);
        }
        self.sent.as_mut().into_iter().for_each(SentPiece::forget_past);
        if is_last {
            self.take_back(false);
        }
        Ok(())
    }

    /// Takes back what the process has not answered: it runs again, or is released under a drain.
    fn take_back(&mut self, careful: bool) {
        let Some(sent) = self.sent.take() else { return };
        let positions = sent.unanswered();
        if positions.is_empty() {
            return;
        }
        if self.work.signals.is_draining() || self.work.is_abandoned() {
            self.release(positions);
        } else {
            let careful = careful || sent.careful;
            self.waiting.push_front(Piece { positions, careful });
        }
    }

    /// The process is gone before it got to this micro-batch.
    pub fn rewind(&mut self) {
        self.take_back(false);
    }

    /// The process is gone while it ran this micro-batch. `running` is the index of the job that ran,
    /// where the process said so. A culprit that is known or alone is charged; otherwise the others
    /// run again apart from the suspect, or carefully, one by one, until it shows.
    pub fn blame(&mut self, culprit: Culprit, running: Option<u32>, output: CappedLog, now: Instant) {
        let Some(sent) = &self.sent else { return };
        let named = running
            .map(|index| index as usize)
            .filter(|index| sent.answered.get(*index) == Some(&false));
        let suspect = named.unwrap_or(sent.first_unanswered);
        let alone = sent.positions.len() == 1;
        let since = sent.running_since();
        let (error, charged) = match culprit {
            Culprit::Known(error) => (error, true),
            // A process that died before it got to the job looks alike, unless it named the job.
            Culprit::Suspected(error) => (error, alone && (sent.careful || named.is_some())),
        };
        if charged {
            let duration_us =
                u32::try_from(now.saturating_duration_since(since).as_micros()).unwrap_or(u32::MAX);
            self.charge(suspect, error, duration_us, output);
            self.take_back(false);
        } else if named.is_some() || sent.careful {
            self.isolate(suspect);
        } else {
            self.take_back(true);
        }
    }

    fn charge(&mut self, index: usize, error: JobError, duration_us: u32, output: CappedLog) {
        let Some(sent) = &mut self.sent else { return };
        let position = sent.positions[index];
        let mut log = sent.logs.remove(&(index as u32)).unwrap_or_default();
        log.append(output);
        sent.answered[index] = true;
        sent.answered_count += 1;
        let logs = if log.is_empty() {
            Vec::new()
        } else {
            vec![JobLog {
                position,
                text: log.into_text(),
            }]
        };
        self.work.answer(Outcomes {
            failed: vec![FailedJob {
                position,
                error,
                duration_us,
            }],
            logs,
            ..Outcomes::default()
        });
    }

    /// Has the suspect run alone, and the others apart from it.
    fn isolate(&mut self, suspect: usize) {
        let Some(sent) = &self.sent else { return };
        let position = sent.positions[suspect];
        let careful = sent.careful;
        let others = sent
            .unanswered()
            .difference(&Positions::from(position..position + 1));
        let before = others.intersection(&Positions::from(0..position));
        let after = others.difference(&before);
        self.sent = None;
        for (positions, careful) in [
            (after, careful),
            (Positions::from(position..position + 1), true),
            (before, careful),
        ] {
            if !positions.is_empty() {
                self.waiting.push_front(Piece { positions, careful });
            }
        }
    }

    /// Fails everything that is not answered with one error.
    pub fn fail_all(&mut self, error: &JobError) {
        self.take_back(false);
        for piece in std::mem::take(&mut self.waiting) {
            let failed = piece.positions.iter().map(|position| FailedJob {
                position,
                error: error.clone(),
                duration_us: 0,
            });
            self.work.answer(Outcomes {
                failed: failed.collect(),
                ..Outcomes::default()
            });
        }
    }

    /// Releases everything that is not answered.
    pub fn release_all(&mut self) {
        self.take_back(false);
        for piece in std::mem::take(&mut self.waiting) {
            self.release(piece.positions);
        }
    }
}
