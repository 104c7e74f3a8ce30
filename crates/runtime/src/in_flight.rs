//! One micro-batch on its way through a process: what is to be sent, what was sent, what is answered.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use gristmill_model::limits::VALUE_BYTES_MAX;
use gristmill_model::{
    Completed, FailedJob, JobError, JobLog, PackedArray, PackedBuilder, PackedError, Positions, Progress,
    Spawn, Suspended,
};
use gristmill_worker::Outcomes;

use crate::capped::CappedLog;
use crate::limits::FINALIZING_BYTES_MAX;
use crate::output::Output;
use crate::pool::Work;
use crate::protocol::{Note, OutcomesFrame, ProtocolError};

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
    positions: Vec<u32>,
    answered: Vec<bool>,
    answered_count: usize,
    /// All jobs before this one are answered.
    first_unanswered: usize,
    /// How many had begun when, as the process said.
    begun: VecDeque<(u32, Instant)>,
    /// When the process last said anything of this piece, or got to it.
    progress_at: Instant,
    logs: HashMap<u32, CappedLog>,
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

/// The answers in a frame, checked against what was sent. Reading changes nothing.
struct Answers {
    /// Indexes, ascending, with their durations and values.
    completed: Option<(Vec<u32>, Vec<u32>, PackedArray)>,
    failed: Vec<(u32, u32, JobError)>,
    spawned: Vec<(u32, u32, Spawn)>,
    logs: Vec<(u32, String, u64)>,
    /// Of jobs that run.
    progress: Vec<(u32, Progress)>,
    stopped: bool,
}

impl Answers {
    fn read(frame: &OutcomesFrame, sent: &SentPiece, kind: &str) -> Result<Answers, ProtocolError> {
        let mut answers = Answers {
            completed: None,
            failed: Vec::new(),
            spawned: Vec::new(),
            logs: Vec::new(),
            progress: Vec::new(),
            stopped: false,
        };
        for note in &frame.notes {
            answers.read_note(note, sent, kind)?;
        }
        if !frame.indexes.is_empty() {
            answers.read_completed(frame)?;
        }
        let mut seen = std::collections::HashSet::new();
        let failed = answers.failed.iter().map(|(index, ..)| *index);
        let failed = failed.chain(answers.spawned.iter().map(|(index, ..)| *index));
        let completed = answers
            .completed
            .iter()
            .flat_map(|(indexes, ..)| indexes.iter().copied());
        // Ascending indexes cannot repeat; only failures among them need the set.
        let mut last = None;
        for index in completed {
            if last >= Some(index) || sent.answered.get(index as usize) != Some(&false) {
                return Err(ProtocolError::UnknownJob);
            }
            last = Some(index);
        }
        for index in failed {
            if !seen.insert(index) || sent.answered.get(index as usize) != Some(&false) {
                return Err(ProtocolError::UnknownJob);
            }
        }
        Ok(answers)
    }

    fn read_note(&mut self, note: &Note, sent: &SentPiece, kind: &str) -> Result<(), ProtocolError> {
        match note {
            Note::Failed {
                index,
                duration_us,
                error,
            } => self.failed.push((*index, *duration_us, error.clone().into())),
            Note::Spawned {
                index,
                duration_us,
                spawn,
            } => {
                let spawn = spawn.clone().into_spawn(kind);
                match Suspended::one(0, spawn.clone()).check() {
                    Ok(()) => self.spawned.push((*index, *duration_us, spawn)),
                    Err(error) => {
                        let error = JobError::new("children", error.to_string()).permanent();
                        self.failed.push((*index, *duration_us, error));
                    }
                }
            }
            Note::Log {
                index,
                text,
                dropped_bytes,
            } => {
                if sent.answered.get(*index as usize) != Some(&false) {
                    return Err(ProtocolError::UnknownJob);
                }
                self.logs.push((*index, text.clone(), *dropped_bytes));
            }
            Note::Progress { index, progress } => match sent.answered.get(*index as usize) {
                Some(false) => self.progress.push((*index, progress.clone())),
                // Said by what the job left running.
                Some(true) => {}
                None => return Err(ProtocolError::UnknownJob),
            },
            Note::Stopped => self.stopped = true,
        }
        Ok(())
    }

    /// Checks the values one by one. One that does not hold fails its job; a wrong number of values
    /// fails the frame.
    fn read_completed(&mut self, frame: &OutcomesFrame) -> Result<(), ProtocolError> {
        let body = frame
            .values
            .strip_prefix('[')
            .and_then(|values| values.strip_suffix(']'));
        let body = body.ok_or(ProtocolError::Parts)?;
        let mut order: Vec<usize> = (0..frame.indexes.len()).collect();
        let ascending = frame.indexes.is_sorted();
        let mut items: Vec<&str> = Vec::new();
        if !ascending {
            order.sort_by_key(|place| frame.indexes[*place]);
            items = body.split("\n,").collect();
        }
        let mut in_order = body.split("\n,");
        let mut values = PackedBuilder::with_item_bytes_max(VALUE_BYTES_MAX);
        let (mut indexes, mut durations_us) =
            (Vec::with_capacity(order.len()), Vec::with_capacity(order.len()));
        for place in order {
            let item = if ascending {
                in_order.next()
            } else {
                items.get(place).copied()
            };
            let item = item.ok_or_else(|| count_error(frame, body))?;
            match values.push(item) {
                Ok(()) => {
                    indexes.push(frame.indexes[place]);
                    durations_us.push(frame.durations_us[place]);
                }
                Err(error) => {
                    let error = JobError::new("NotJson", format!("main returned what is no value: {error}"));
                    self.failed
                        .push((frame.indexes[place], frame.durations_us[place], error));
                }
            }
        }
        if (ascending && in_order.next().is_some()) || items.len() > frame.indexes.len() {
            return Err(count_error(frame, body));
        }
        if !indexes.is_empty() {
            self.completed = Some((indexes, durations_us, values.finish()));
        }
        Ok(())
    }

    /// Marks what is answered, and returns it as outcomes.
    fn into_outcomes(self, sent: &mut SentPiece) -> Option<Outcomes> {
        for (index, text, dropped_bytes) in &self.logs {
            sent.logs
                .entry(*index)
                .or_default()
                .push_cut(text, *dropped_bytes);
        }
        let mut outcomes = Outcomes::default();
        let mut answered: Vec<u32> = self.failed.iter().map(|(index, ..)| *index).collect();
        if let Some((indexes, durations_us, values)) = self.completed {
            outcomes.completed = Some(Completed {
                positions: indexes
                    .iter()
                    .map(|index| sent.positions[*index as usize])
                    .collect(),
                values,
                durations_us,
            });
            answered.extend(indexes);
        }
        outcomes.failed = self
            .failed
            .into_iter()
            .map(|(index, duration_us, error)| FailedJob {
                position: sent.positions[index as usize],
                error,
                duration_us,
            })
            .collect();
        outcomes.suspended = self
            .spawned
            .into_iter()
            .map(|(index, _, spawn)| {
                answered.push(index);
                Suspended::one(sent.positions[index as usize], spawn)
            })
            .collect();
        for index in &answered {
            sent.answered[*index as usize] = true;
        }
        sent.answered_count += answered.len();
        if !sent.logs.is_empty() {
            answered.sort_unstable();
            let logs = answered
                .iter()
                .filter_map(|index| Some((index, sent.logs.remove(index)?)));
            outcomes.logs = logs
                .map(|(index, log)| JobLog {
                    position: sent.positions[*index as usize],
                    text: log.into_text(),
                })
                .collect();
        }
        (!answered.is_empty()).then_some(outcomes)
    }

    fn count(&self) -> usize {
        self.failed.len()
            + self.spawned.len()
            + self.completed.as_ref().map_or(0, |(indexes, ..)| indexes.len())
    }

    fn longest(&self) -> Option<u32> {
        let failed = self
            .failed
            .iter()
            .map(|(index, duration_us, _)| (*duration_us, *index));
        let completed = self
            .completed
            .iter()
            .flat_map(|(indexes, durations_us, _)| durations_us.iter().copied().zip(indexes.iter().copied()));
        let spawned = self
            .spawned
            .iter()
            .map(|(index, duration_us, _)| (*duration_us, *index));
        failed
            .chain(completed)
            .chain(spawned)
            .max()
            .map(|(_, index)| index)
    }
}

fn count_error(frame: &OutcomesFrame, body: &str) -> ProtocolError {
    ProtocolError::Count {
        values: body.split("\n,").count() as u32,
        jobs: frame.indexes.len() as u32,
    }
}
