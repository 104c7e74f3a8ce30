//! The thread that drives one warm process. It starts the process, feeds it jobs, passes outcomes on, and replaces it
//! when a job kills it or runs too long, or when its code has changed.

mod crash;
mod life;
mod overdue;
mod questions;
pub(crate) mod stop;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gristmill_model::JobError;

use crate::answers::Said;
use crate::descriptors::milliseconds_until;
use crate::error::RuntimeError;
use crate::in_flight::InFlight;
use crate::limits::EXIT_MS_MAX;
use crate::pool::{Pool, Told};
use crate::process::{Arrived, Begun, Recipe, WarmProcess};
use crate::protocol::{OutcomesFrame, ProtocolError, Run};
use crate::starts::code::Seen;
use crate::stream::{SentPiece, Stream};
use overdue::Question;

/// The reason why a process with jobs is replaced.
#[derive(Debug)]
enum Culprit {
    /// The job with this number did it. It is charged, and the others run again.
    Known(u32, JobError),
    /// A job did it. If it is alone, it is charged. Otherwise it is searched for.
    Suspected(JobError),
    /// One of these jobs did it, and is searched for.
    Among(Vec<u32>),
}

/// A slot of the pool, with at most one process.
pub(crate) struct Slot {
    pool: Arc<Pool>,
    recipe: Arc<Recipe>,
    number: usize,
    process: Option<WarmProcess>,
    /// The jobs of the process.
    stream: Stream,
    /// The micro-batches, in the order in which the worker gave them.
    in_flight: Vec<InFlight>,
    next_id: u64,
    /// The limit that was sent to the process and has no answer yet.
    recalling: Option<u32>,
    /// The process gets no more jobs, and is replaced after it has answered its jobs.
    is_retiring: bool,
    /// Abandoned jobs that still run, by their numbers, with the time of their abandonment.
    unwanted: BTreeMap<u32, Instant>,
    /// The script's files at the start of the process, and the generation of its code after the import.
    code_before: Seen,
    generation: u64,
    /// The time of the next try to start a process after failed starts, unless something wakes this slot.
    start_again_at: Option<Instant>,
    /// The last question about the job that keeps another one beyond its timeout.
    question: Option<Question>,
    /// The time when the process is killed after it announced its exit.
    exits_by: Option<Instant>,
}

impl Slot {
    pub fn new(pool: Arc<Pool>, recipe: Arc<Recipe>, number: usize) -> Slot {
        Slot {
            pool,
            recipe,
            number,
            process: None,
            stream: Stream::new(Instant::now()),
            in_flight: Vec::new(),
            next_id: 0,
            recalling: None,
            is_retiring: false,
            unwanted: BTreeMap::new(),
            code_before: Seen::default(),
            generation: 0,
            start_again_at: None,
            question: None,
            exits_by: None,
        }
    }

    /// Runs until the pool shuts down. The first slot starts its process at once, so that a script that cannot be
    /// imported is known before there is work.
    pub fn drive(mut self) {
        if self.number == 0 {
            self.start_process();
        }
        while !self.pool.is_shutting_down() {
            self.take_work();
            self.answer_questions();
            self.heed_signals();
            self.end_unwanted();
            self.feed();
            // Do not wait for jobs that ended without the process, through a drain or a failed start.
            if !self.forget_done()
                && let Err(error) = self.wait()
            {
                self.start_failed(error);
            }
            self.forget_done();
        }
        self.forget_process();
        for micro_batch in &mut self.in_flight {
            micro_batch.release_waiting();
        }
        // Nobody waits for a process that is in the middle of a job.
        match self.process.take() {
            Some(process)
                if self.in_flight.is_empty() && self.pool.is_graceful() && process.ready().is_some() =>
            {
                process.shut_down(self.recipe.script.path());
            }
            _ => {}
        }
    }

    fn is_ready(&self) -> bool {
        self.process
            .as_ref()
            .is_some_and(|process| process.ready().is_some())
    }

    /// Takes the worker's jobs for this runner. Until the process is ready, they stay where a recall finds them at once.
    fn take_work(&mut self) {
        let (is_recalled, mut waiting) = if self.is_ready() {
            self.pool.take(self.number)
        } else {
            (self.pool.take_recall(self.number), Default::default())
        };
        if is_recalled {
            self.in_flight
                .iter_mut()
                .for_each(|micro_batch| micro_batch.is_recalled = true);
        }
        for work in waiting.drain(..) {
            self.in_flight.push(InFlight::new(self.next_id, work));
            self.next_id += 1;
        }
    }

    /// Drops finished micro-batches, which notifies the worker. Returns whether there were any.
    fn forget_done(&mut self) -> bool {
        let before = self.in_flight.len();
        self.in_flight.retain(|micro_batch| !micro_batch.is_done());
        self.in_flight.len() < before
    }

    /// Reads the worker's requests.
    fn heed_signals(&mut self) {
        let now = Instant::now();
        let runs_to = self.stream.begun_to();
        let head = self.stream.first_unanswered();
        let (mut recalls, mut unwanted, mut is_followed) = (false, BTreeMap::new(), false);
        for micro_batch in &mut self.in_flight {
            micro_batch.give_up_waiting();
            is_followed |= micro_batch.work.signals.is_followed();
            let cancelled = micro_batch.work.signals.cancelled();
            let is_draining = micro_batch.is_draining();
            let is_recalled = std::mem::take(&mut micro_batch.is_recalled);
            let is_abandoned = micro_batch.work.is_abandoned();
            if micro_batch.sent_count == 0 || !(is_draining || is_recalled || !cancelled.is_empty()) {
                continue;
            }
            let own = self
                .stream
                .pieces
                .iter()
                .filter(|piece| piece.owner == micro_batch.id);
            for (piece, (number, place)) in own.flat_map(|piece| numbered(piece).map(move |job| (piece, job)))
            {
                let is_unwanted = is_abandoned || cancelled.contains(place);
                if is_unwanted && (number < runs_to || head == Some(number)) {
                    let since = self.unwanted.get(&number).copied().unwrap_or(now);
                    unwanted.insert(number, since);
                }
                if number >= runs_to {
                    // The process cannot skip a single job. It returns all, and the rest is sent again.
                    recalls |= is_unwanted || is_draining;
                    // A suspect has begun before.
                    micro_batch.is_recalled |= is_recalled && !piece.careful;
                }
            }
            recalls |= micro_batch.is_recalled;
        }
        self.unwanted = unwanted;
        if recalls {
            self.recall();
        }
        self.follow(is_followed);
    }

    /// Makes the process return all jobs that it has not begun.
    fn recall(&mut self) {
        if self.recalling.is_none()
            && let Some(process) = &self.process
        {
            process.limit(self.stream.next_number());
            self.recalling = Some(self.stream.next_number());
        }
    }

    /// Reports the output of followed jobs. Earlier output comes first.
    fn follow(&mut self, is_followed: bool) {
        let Some(process) = &mut self.process else { return };
        process.output.follow(is_followed);
        for micro_batch in &mut self.in_flight {
            let was_followed = std::mem::replace(
                &mut micro_batch.is_followed,
                micro_batch.work.signals.is_followed(),
            );
            if micro_batch.is_followed && !was_followed {
                let own = self
                    .stream
                    .pieces
                    .iter()
                    .filter(|piece| piece.owner == micro_batch.id);
                for (number, place) in own.flat_map(numbered) {
                    if let Some(log) = process.output.log(number) {
                        micro_batch.work.tell(Told::Printed(place, log.kept().to_vec()));
                    }
                }
            }
        }
    }

    fn tell_printed(&mut self) {
        let Some(process) = &mut self.process else { return };
        for (number, bytes) in process.output.take_news() {
            let Some(piece) = self.stream.piece_of(number) else {
                continue;
            };
            let piece = &self.stream.pieces[piece];
            let place = piece.places[(number - piece.first) as usize];
            let owner = self.in_flight.iter().find(|one| one.id == piece.owner);
            if let Some(owner) = owner.filter(|owner| owner.is_followed) {
                owner.work.tell(Told::Printed(place, bytes));
            }
        }
    }

    /// Ends the process if it runs abandoned jobs: at once if it runs no other job, or when the grace period of a
    /// cancelled job is over.
    fn end_unwanted(&mut self) {
        if self.unwanted.is_empty() {
            return;
        }
        let oldest = self.unwanted.iter().min_by_key(|(_, since)| **since);
        let seen = self.running().map(|number| self.unwanted.get_key_value(&number));
        let Some((number, since)) = seen.unwrap_or(oldest) else {
            return;
        };
        let grace_is_over = since.elapsed() >= self.recipe.cancel_grace;
        let is_given_up = |piece: &SentPiece| {
            let owner = self.in_flight.iter().find(|one| one.id == piece.owner);
            piece.is_answered() || owner.is_none_or(|owner| owner.work.is_abandoned())
        };
        if grace_is_over || self.stream.pieces.iter().all(is_given_up) {
            let message = "it continued after it was cancelled; its process was killed";
            self.replace(Culprit::Known(*number, JobError::new("cancelled", message)));
        }
    }

    fn feed(&mut self) {
        self.retire_outdated();
        if self.is_retiring && self.stream.is_empty() {
            self.retire();
        }
        if self.process.is_none() {
            self.start_if_wanted();
        }
        if !self.is_ready() || self.is_retiring || self.exits_by.is_some() {
            return;
        }
        // Recalled jobs go first.
        if self.recalling.is_some() && !self.stream.is_empty() {
            return;
        }
        self.recalling = None;
        let now = Instant::now();
        for place in 0..self.in_flight.len() {
            while let Some(careful) = self.in_flight[place].next_is_careful() {
                // A suspect has the process to itself.
                let has_suspect = self
                    .stream
                    .pieces
                    .iter()
                    .any(|piece| piece.careful && !piece.is_answered());
                if has_suspect || (careful && !self.stream.is_empty()) {
                    return;
                }
                let left = self
                    .recipe
                    .jobs_per_process_max
                    .saturating_sub(self.stream.next_number());
                if left == 0 {
                    self.is_retiring = true;
                    return;
                }
                self.send(place, left, now);
            }
        }
    }

    fn send(&mut self, place: usize, jobs_max: u32, now: Instant) {
        let Some(process) = &mut self.process else { return };
        let micro_batch = &mut self.in_flight[place];
        let Some((payloads, piece)) = micro_batch.next_piece(jobs_max) else {
            return;
        };
        let work = &micro_batch.work.micro_batch;
        let run = Run {
            first: self.stream.next_number(),
            finalizing: work.is_finalizing(),
            timeout_ms: work.timeout_ms(),
            identity: &work.identity_json(&piece.places),
        };
        process.run(&run, &payloads);
        micro_batch.sent_count += piece.places.len() as usize;
        self.stream.push(
            micro_batch.id,
            &piece.places,
            piece.careful,
            work.timeout_ms(),
            now,
        );
        process.output.numbers.end = self.stream.next_number();
        self.assert_sent();
    }

    /// Asserts that the stream and the micro-batches count the same jobs of the process.
    fn assert_sent(&self) {
        debug_assert_eq!(
            self.in_flight.iter().map(|one| one.sent_count).sum::<usize>(),
            self.stream.unanswered_count(),
            "each job of the process belongs to a micro-batch"
        );
    }

    /// The first deadline, if no event comes before.
    fn deadline(&self) -> Option<Instant> {
        let process = self.process.as_ref()?;
        let timeout = self.overdue_at();
        let since = self.unwanted.values().min();
        let grace = since.and_then(|since| since.checked_add(self.recipe.cancel_grace));
        timeout
            .into_iter()
            .chain(grace)
            .chain(process.start_deadline())
            .chain(self.exits_by)
            .min()
    }

    fn wait(&mut self) -> Result<(), RuntimeError> {
        let deadline = self.deadline();
        let left_ms = deadline.map(milliseconds_until);
        let waker = self.pool.waker(self.number);
        let Some(process) = &mut self.process else {
            let mut fds = [rustix::event::PollFd::new(waker, rustix::event::PollFlags::IN)];
            // Without a process, only new work, the end or a new start can come.
            let again_ms = self.start_again_at.map(milliseconds_until);
            crate::descriptors::poll_ms(&mut fds, again_ms).map_err(RuntimeError::Plumbing)?;
            self.pool.acknowledge(self.number);
            return Ok(());
        };
        let mut arrived = process.wait(left_ms, waker)?;
        self.pool.acknowledge(self.number);
        if let Some(error) = process.start_failure(&self.recipe, &mut arrived) {
            return Err(error);
        }
        if arrived.became_ready
            && let Some(started) = process.ready()
        {
            let files = std::mem::take(&mut arrived.files);
            process.output.is_one_at_a_time = self.recipe.concurrency_of(started) == 1;
            let slot = Some(self.number);
            self.generation = self.pool.start_succeeded(slot, started, &self.code_before, files);
        }
        self.tell_printed();
        let quiet = arrived.frames.is_empty();
        let questions = std::mem::take(&mut arrived.questions);
        self.handle(arrived);
        self.ask(questions);
        // An outcome that came just in time counts.
        if quiet {
            self.end_overdue();
        }
        if self.exits_by.is_some_and(|at| Instant::now() >= at) {
            self.crash();
        }
        Ok(())
    }

    fn handle(&mut self, arrived: Arrived) {
        let mut broken = arrived.broken;
        for frame in arrived.frames {
            if let Err(error) = self.take_frame(frame) {
                broken = Some(error);
                break;
            }
        }
        if let Some(broken) = broken {
            if self.has_begun_nothing() {
                return self.died_before_work(format!("sent {broken}"));
            }
            let error = JobError::new(
                "protocol",
                format!(
                    "the script's process sent {broken} where Gristmill reads answers; something in it writes to \
                     file descriptors that it did not open"
                ),
            );
            self.replace(Culprit::Suspected(error));
        } else if arrived.ended {
            self.crash();
        } else if self.stream.is_empty()
            && self.is_ready()
            && let Some(process) = &mut self.process
            && !process.output.unclaimed.is_empty()
        {
            let output = process.output.take_unclaimed().into_text();
            tracing::debug!(output, "printed between jobs");
        }
    }

    fn take_frame(&mut self, mut frame: OutcomesFrame) -> Result<(), ProtocolError> {
        let now = Instant::now();
        let Some(process) = &mut self.process else {
            return Ok(());
        };
        let in_flight = &self.in_flight;
        let kind_of = |owner| {
            let owner = in_flight.iter().find(|one| one.id == owner);
            owner.map_or_else(|| "".into(), |owner| Arc::clone(owner.work.micro_batch.kind()))
        };
        let said = Said::read(&mut frame, &self.stream, &kind_of)?;
        self.stream.note_begun(frame.begun, now);
        let answered: usize = said.answers.iter().map(|(_, answers)| answers.count()).sum();
        let unanswered: usize = self.in_flight.iter().map(|one| one.sent_count).sum();
        // Output without a record belongs to the longest job.
        if answered == unanswered && !process.output.unclaimed.is_empty() {
            let longest = said.answers.iter().filter_map(|(piece, answers)| {
                let (duration_us, index) = answers.longest()?;
                Some((duration_us, self.stream.pieces[*piece].first + index))
            });
            if let Some((_, number)) = longest.max() {
                let raw = process.output.take_unclaimed();
                process.output.add_to_log(number, raw);
            }
        }
        for (piece, mut answers) in said.answers {
            let sent = &mut self.stream.pieces[piece];
            let Some(owner) = self.in_flight.iter_mut().find(|one| one.id == sent.owner) else {
                continue;
            };
            let progress = std::mem::take(&mut answers.progress);
            if !progress.is_empty() {
                let placed = |(index, progress)| (sent.places[index as usize], progress);
                owner
                    .work
                    .tell(Told::Progress(progress.into_iter().map(placed).collect()));
            }
            let (outcomes, count) = answers.into_outcomes(sent, &mut process.output);
            assert!(
                count <= owner.sent_count,
                "a process that has {} jobs cannot answer {count}",
                owner.sent_count
            );
            owner.sent_count -= count;
            if count > 0 {
                owner.work.answer(outcomes);
            }
        }
        for numbers in said.recalled {
            self.take_recalled(numbers, now);
        }
        if !said.imported.is_empty() {
            self.pool.imported(said.imported);
        }
        if said.exiting {
            self.exits_by = now.checked_add(Duration::from_millis(EXIT_MS_MAX));
        }
        if said.exhausted && !self.is_retiring {
            self.is_retiring = true;
            self.recall();
        }
        self.stream.forget_past();
        if let Some(culprit) = said.culprit {
            self.take_culprit(culprit);
        }
        if let Some(process) = &mut self.process {
            let output = &mut process.output;
            output.numbers.start = self
                .stream
                .first_unanswered()
                .unwrap_or(self.stream.next_number());
            if output.logs_count() > self.stream.unanswered_count() {
                output.forget(|number| self.stream.expects(number));
            }
            assert!(
                output.logs_count() <= self.stream.unanswered_count(),
                "a process has logs of {} jobs, but only {} unanswered jobs",
                output.logs_count(),
                self.stream.unanswered_count()
            );
        }
        self.assert_sent();
        Ok(())
    }

    /// Notes that the process returns these numbers.
    fn take_recalled(&mut self, numbers: std::ops::Range<u32>, now: Instant) {
        self.stream.note_begun(numbers.start, now);
        let mut back: BTreeMap<u64, Vec<(u32, bool)>> = BTreeMap::new();
        for piece in &mut self.stream.pieces {
            let indexes: Vec<u32> = piece
                .unanswered()
                .filter(|index| numbers.contains(&(piece.first + index)))
                .collect();
            for index in indexes {
                let job = (piece.places[index as usize], piece.careful);
                back.entry(piece.owner).or_default().push(job);
                piece.answer(index);
            }
        }
        for micro_batch in &mut self.in_flight {
            if let Some(jobs) = back.get(&micro_batch.id) {
                micro_batch.take_back(jobs);
            }
            micro_batch.give_up_waiting();
        }
        if self.recalling.is_some_and(|limit| limit <= numbers.end) {
            self.recalling = None;
        }
        self.assert_sent();
    }

    /// The numbers of the jobs that may have killed the process, and whether they were seen to run.
    fn suspects(&self, begun: Begun) -> (Vec<u32>, bool) {
        let unanswered = self.stream.pieces.iter().flat_map(numbered);
        let unanswered: Vec<u32> = unanswered.map(|(number, _)| number).collect();
        let seen: Vec<u32> = match begun {
            Begun::Unknown => Vec::new(),
            Begun::To(end) => unanswered
                .iter()
                .copied()
                .filter(|number| *number < end)
                .collect(),
            Begun::Last(end) => unanswered
                .iter()
                .copied()
                .filter(|number| number + 1 == end)
                .collect(),
        };
        if seen.is_empty() {
            (unanswered, false)
        } else {
            (seen, true)
        }
    }

    /// Ends the process. Its jobs run again in a new one, as the culprit requires.
    fn replace(&mut self, culprit: Culprit) {
        let Some(mut process) = self.take_process() else {
            return;
        };
        process.end();
        if self.stream.is_empty() {
            if let Culprit::Known(_, error) | Culprit::Suspected(error) = culprit {
                tracing::warn!(
                    error = error.message,
                    "an idle script process ended; it is replaced when there is work"
                );
            }
            self.forget_process();
            return;
        }
        let begun = process.begun();
        let (charged, suspects) = match culprit {
            Culprit::Known(number, error) => (Some((number, error)), Vec::new()),
            Culprit::Among(suspects) => (None, suspects),
            Culprit::Suspected(error) => {
                let (suspects, were_seen) = self.suspects(begun);
                let piece = suspects.first().and_then(|number| self.stream.piece_of(*number));
                // A process that died before it got to the job looks the same, unless it was seen to run the job.
                let is_sure = piece
                    .map(|piece| &self.stream.pieces[piece])
                    .is_some_and(|piece| {
                        suspects.len() == 1 && (piece.careful || (were_seen && piece.places.len() == 1))
                    });
                match suspects.as_slice() {
                    [number] if is_sure => (Some((*number, error)), Vec::new()),
                    _ => (None, suspects),
                }
            }
        };
        if let Some((number, error)) = charged {
            self.charge(number, error, &mut process);
        }
        self.take_all_back(&suspects);
    }

    fn charge(&mut self, number: u32, error: JobError, process: &mut WarmProcess) {
        let Some(piece) = self.stream.piece_of(number) else {
            return;
        };
        let began = self.stream.began_at(number);
        let piece = &mut self.stream.pieces[piece];
        let index = number - piece.first;
        if !piece.expects(index) {
            return;
        }
        piece.answer(index);
        let duration = began.map_or(Duration::ZERO, |began| began.elapsed());
        let duration_us = u32::try_from(duration.as_micros()).unwrap_or(u32::MAX);
        let mut log = process.output.take_log(number).unwrap_or_default();
        log.append(process.output.take_unclaimed());
        let owner = self.in_flight.iter_mut().find(|one| one.id == piece.owner);
        if let Some(owner) = owner {
            owner.charge(piece.places[index as usize], error, duration_us, log);
        }
    }

    /// Takes back all jobs that a dead process has not answered. Suspects will run with care.
    fn take_all_back(&mut self, suspects: &[u32]) {
        let stream = std::mem::replace(&mut self.stream, Stream::new(Instant::now()));
        for micro_batch in &mut self.in_flight {
            let own = stream.pieces.iter().filter(|piece| piece.owner == micro_batch.id);
            let jobs: Vec<(u32, bool)> = own
                .flat_map(|piece| {
                    numbered(piece).map(|(number, place)| {
                        (place, piece.careful || suspects.binary_search(&number).is_ok())
                    })
                })
                .collect();
            micro_batch.take_back(&jobs);
            assert_eq!(
                micro_batch.sent_count, 0,
                "a process that is gone has no jobs of a micro-batch"
            );
        }
        self.recalling = None;
        self.is_retiring = false;
        self.unwanted.clear();
    }

    fn forget_process(&mut self) {
        self.take_all_back(&[]);
    }
}

/// The numbers and places of a piece's unanswered jobs.
fn numbered(piece: &SentPiece) -> impl Iterator<Item = (u32, u32)> + '_ {
    piece
        .unanswered()
        .map(|index| (piece.first + index, piece.places[index as usize]))
}
