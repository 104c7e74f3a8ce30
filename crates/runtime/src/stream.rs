//! The unanswered jobs of a process, by their numbers.

use std::collections::VecDeque;
use std::time::Instant;

use gristmill_model::Positions;

/// The least number of kept start times of jobs.
const BEGUN_KEPT_MIN: usize = 256;

/// Jobs of one `run` frame.
#[derive(Debug)]
pub(crate) struct SentPiece {
    /// Their micro-batch.
    pub owner: u64,
    /// The number of the first one.
    pub first: u32,
    /// Their places in the owner's micro-batch.
    pub places: Vec<u32>,
    pub answered: Vec<bool>,
    answered_count: usize,
    /// All jobs before this one are answered.
    first_unanswered: usize,
    /// True if this is one job that is suspected of killing its process. It has the process to itself.
    pub careful: bool,
    /// The time limit of one attempt.
    pub timeout_ms: Option<u64>,
}

impl SentPiece {
    pub fn end(&self) -> u32 {
        self.first + self.places.len() as u32
    }

    pub fn is_answered(&self) -> bool {
        self.answered_count == self.places.len()
    }

    /// Reports whether the job with this index is here and not answered.
    pub fn expects(&self, index: u32) -> bool {
        self.answered.get(index as usize) == Some(&false)
    }

    /// Notes that the job with this index is answered, or no longer here.
    pub fn answer(&mut self, index: u32) {
        let answered = &mut self.answered[index as usize];
        self.answered_count += usize::from(!*answered);
        *answered = true;
        while self.answered.get(self.first_unanswered) == Some(&true) {
            self.first_unanswered += 1;
        }
        assert!(
            self.first_unanswered <= self.answered_count && self.answered_count <= self.places.len(),
            "a piece of {} jobs has {} answers, {} of them at its start",
            self.places.len(),
            self.answered_count,
            self.first_unanswered
        );
    }

    /// The number of the first unanswered job.
    pub fn first_unanswered(&self) -> Option<u32> {
        (!self.is_answered()).then(|| self.first + self.first_unanswered as u32)
    }

    /// The indexes of unanswered jobs.
    pub fn unanswered(&self) -> impl Iterator<Item = u32> + '_ {
        let indexes = self.answered.iter().enumerate().skip(self.first_unanswered);
        indexes
            .filter(|(_, answered)| !**answered)
            .map(|(index, _)| index as u32)
    }
}

/// The jobs of one process.
#[derive(Debug)]
pub(crate) struct Stream {
    /// The pieces in the order of their numbers.
    pub pieces: VecDeque<SentPiece>,
    next_number: u32,
    /// The numbers up to which jobs had begun, with their times, as the process reported them.
    begun: VecDeque<(u32, Instant)>,
    /// This many entries are kept before the unneeded ones are removed.
    begun_kept_max: usize,
    begun_to: u32,
    /// The time of the process's last message, or of the first job after it had none.
    heard_at: Instant,
}

impl Stream {
    pub fn new(now: Instant) -> Stream {
        Stream {
            pieces: VecDeque::new(),
            next_number: 0,
            begun: VecDeque::new(),
            begun_kept_max: BEGUN_KEPT_MIN,
            begun_to: 0,
            heard_at: now,
        }
    }

    /// Reports whether all jobs are answered.
    pub fn is_empty(&self) -> bool {
        self.pieces.iter().all(SentPiece::is_answered)
    }

    /// The number of the next job.
    pub fn next_number(&self) -> u32 {
        self.next_number
    }

    /// The number of the first unanswered job.
    pub fn first_unanswered(&self) -> Option<u32> {
        self.pieces.iter().find_map(SentPiece::first_unanswered)
    }

    /// Numbers the jobs in these places, which the process gets.
    pub fn push(
        &mut self,
        owner: u64,
        places: &Positions,
        careful: bool,
        timeout_ms: Option<u64>,
        now: Instant,
    ) {
        if self.is_empty() {
            self.heard_at = self.heard_at.max(now);
        }
        let places: Vec<u32> = places.iter().collect();
        let first = self.next_number;
        assert!(!places.is_empty(), "a piece has at least one job");
        assert!(
            self.pieces.back().is_none_or(|last| last.end() <= first),
            "the numbers of a process's jobs ascend"
        );
        assert!(self.begun_to <= self.next_number, "only sent jobs have begun");
        self.next_number += places.len() as u32;
        self.pieces.push_back(SentPiece {
            owner,
            first,
            answered: vec![false; places.len()],
            places,
            answered_count: 0,
            first_unanswered: 0,
            careful,
            timeout_ms,
        });
    }

    /// The index of the piece with a number.
    pub fn piece_of(&self, number: u32) -> Option<usize> {
        let piece = self.pieces.partition_point(|piece| piece.end() <= number);
        self.pieces.get(piece).filter(|found| found.first <= number)?;
        debug_assert!(self.pieces[piece].end() > number);
        Some(piece)
    }

    /// Notes the number up to which jobs have begun.
    pub fn note_begun(&mut self, begun: u32, now: Instant) {
        let begun = begun.min(self.next_number);
        if begun > self.begun_to {
            assert!(
                self.begun.back().is_none_or(|(last, _)| *last < begun),
                "the number of begun jobs only grows"
            );
            self.begun.push_back((begun, now));
            self.begun_to = begun;
        }
        self.heard_at = now;
    }

    /// The number up to which jobs have begun, as far as the process has reported it.
    pub fn begun_to(&self) -> u32 {
        self.begun_to
    }

    /// The start of a job, as far as it is known: at the latest the time of the process's report. Without a report, the
    /// first unanswered job has run since the process's last message.
    pub fn began_at(&self, number: u32) -> Option<Instant> {
        if number < self.begun_to {
            let known = self.begun.iter().find(|(begun, _)| *begun > number);
            return known.map(|(_, at)| *at);
        }
        (self.first_unanswered() == Some(number)).then_some(self.heard_at)
    }

    /// The first deadline of running jobs, and the job's number. `late_ms` is the time that a job may be late.
    pub fn first_deadline(&self, late_ms: u64) -> Option<(Instant, u32)> {
        let deadlines = self.pieces.iter().filter_map(|piece| {
            let number = piece.first_unanswered()?;
            Some((self.deadline_of(piece, number, late_ms)?, number))
        });
        deadlines.min()
    }

    /// The deadline of a job in a piece, if it runs and has one.
    pub fn deadline_of(&self, piece: &SentPiece, number: u32, late_ms: u64) -> Option<Instant> {
        let allowed_ms = piece.timeout_ms?.saturating_add(late_ms);
        self.began_at(number)?
            .checked_add(std::time::Duration::from_millis(allowed_ms))
    }

    /// The unanswered jobs below this number.
    pub fn unanswered_below(&self, end: u32) -> Vec<u32> {
        let unanswered = self
            .pieces
            .iter()
            .flat_map(|piece| piece.unanswered().map(|index| piece.first + index));
        unanswered.filter(|number| *number < end).collect()
    }

    /// The number of unanswered jobs.
    pub fn unanswered_count(&self) -> usize {
        let counts = self
            .pieces
            .iter()
            .map(|piece| piece.places.len() - piece.answered_count);
        counts.sum()
    }

    /// Reports whether a job is here and not answered.
    pub fn expects(&self, number: u32) -> bool {
        let piece = self.piece_of(number).map(|piece| &self.pieces[piece]);
        piece.is_some_and(|piece| piece.expects(number - piece.first))
    }

    /// Forgets answered jobs. Unanswered jobs bound the kept data, however long a job runs while others come and go.
    pub fn forget_past(&mut self) {
        self.pieces.retain(|piece| !piece.is_answered());
        let first = self.first_unanswered().unwrap_or(self.next_number);
        while self.begun.front().is_some_and(|(begun, _)| *begun <= first) {
            self.begun.pop_front();
        }
        if self.begun.len() > self.begun_kept_max {
            self.forget_begun();
            self.begun_kept_max = BEGUN_KEPT_MIN.max(2 * self.begun.len());
        }
        assert!(
            self.begun.len() <= self.begun_kept_max,
            "{} kept starts exceed their limit of {}",
            self.begun.len(),
            self.begun_kept_max
        );
        debug_assert!(
            self.pieces
                .iter()
                .is_sorted_by(|one, next| one.end() <= next.first),
            "the pieces of a stream are disjoint and in order"
        );
    }

    /// Keeps only the start times of jobs that have not ended.
    fn forget_begun(&mut self) {
        let unanswered = self
            .pieces
            .iter()
            .flat_map(|piece| piece.unanswered().map(|index| piece.first + index));
        let mut running = unanswered.peekable();
        let mut kept = VecDeque::new();
        for (begun, at) in std::mem::take(&mut self.begun) {
            if running.next_if(|number| *number < begun).is_some() {
                while running.next_if(|number| *number < begun).is_some() {}
                kept.push_back((begun, at));
            }
        }
        assert!(
            kept.len() <= self.unanswered_count(),
            "a start is kept only for a job that runs"
        );
        debug_assert!(kept.iter().is_sorted_by(|one, next| one.0 < next.0));
        self.begun = kept;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn jobs_that_ended_beside_a_long_one_are_forgotten() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut stream = Stream::new(start);
        for number in 0..10_000 {
            stream.push(number, &Positions::from(0..1), false, Some(60_000), start);
            stream.note_begun(number as u32 + 1, at(number));
            // Two jobs continue.
            if number != 0 && number != 5_000 {
                let piece = stream.piece_of(number as u32).unwrap();
                stream.pieces[piece].answer(0);
            }
            stream.forget_past();
        }
        assert_eq!((stream.pieces.len(), stream.unanswered_count()), (2, 2));
        assert!(stream.begun.len() <= BEGUN_KEPT_MIN, "{}", stream.begun.len());
        assert_eq!(
            (stream.began_at(0), stream.began_at(5_000)),
            (Some(at(0)), Some(at(5_000)))
        );
        assert!(stream.expects(5_000) && !stream.expects(5_001) && !stream.expects(20_000));
    }

    #[test]
    fn deadlines_count_from_each_jobs_own_start() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut stream = Stream::new(start);
        stream.push(1, &Positions::from(0..3), false, Some(100), start);
        stream.push(2, &Positions::from(0..2), false, Some(10), start);
        // Nothing is known: the first job runs, and others do not yet.
        assert_eq!(stream.first_deadline(0), Some((at(100), 0)));
        stream.note_begun(2, at(5));
        stream.note_begun(4, at(8));
        // The first job of the second piece began at 8 ms, and may take 10.
        assert_eq!(stream.first_deadline(0), Some((at(18), 3)));
        stream.pieces[1].answer(0);
        assert_eq!(stream.first_deadline(0), Some((at(105), 0)));
        stream.pieces[0].answer(0);
        stream.pieces[0].answer(1);
        stream.forget_past();
        assert_eq!(stream.first_deadline(6), Some((at(114), 2)));
        assert_eq!(
            (stream.piece_of(2), stream.piece_of(4), stream.piece_of(5)),
            (Some(0), Some(1), None)
        );
        stream.pieces[0].answer(2);
        stream.forget_past();
        assert_eq!(stream.piece_of(2), None);
        // The start of number 4 was not reported, but no job is before it.
        assert_eq!(stream.first_deadline(0), Some((at(18), 4)));
        stream.pieces[0].answer(1);
        stream.forget_past();
        assert!(stream.is_empty() && stream.first_deadline(0).is_none());
        stream.push(3, &Positions::from(0..1), false, Some(10), at(50));
        assert_eq!(stream.first_deadline(0), Some((at(60), 5)));
    }
}
