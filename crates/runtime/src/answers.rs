//! The answers of a process in one frame.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use gristmill_model::limits::VALUE_BYTES_MAX;
use gristmill_model::{
    ChildBatch, Completed, FailedJob, JobError, JobLog, PackedArray, PackedBuilder, Positions, Progress,
    Siblings, Suspended,
};
use gristmill_operations::submit::spawned::{read_siblings, read_spawn};
use gristmill_worker::Outcomes;

use crate::output::Output;
use crate::protocol::{Note, OutcomesFrame, ProtocolError};
use crate::stream::{SentPiece, Stream};

/// The outcomes in a frame for the jobs of one piece, numbered by their indexes in the piece.
#[derive(Debug, Default)]
struct Share<'a> {
    /// Indexes, ascending, with their durations and values.
    completed: Vec<(u32, u32, &'a str)>,
    notes: Vec<Note>,
}

/// The answers in a frame for the jobs of one piece, checked against the sent jobs. Reading them changes nothing.
#[derive(Default)]
pub(crate) struct Answers {
    /// Indexes, ascending, with their durations and values.
    completed: Option<(Vec<u32>, Vec<u32>, PackedArray)>,
    failed: Vec<(u32, u32, JobError)>,
    spawned: Vec<(u32, u32, Suspended)>,
    /// Values of jobs that spawned siblings, each as an array of one.
    done: Vec<(u32, u32, PackedArray)>,
    siblings: Vec<(u32, Vec<ChildBatch>)>,
    /// The progress of running jobs.
    pub progress: Vec<(u32, Progress)>,
}

/// The checked contents of a frame.
pub(crate) struct Said {
    /// The answers by the places of their pieces in the stream, ascending.
    pub answers: Vec<(usize, Answers)>,
    /// The numbers of jobs that have not begun and never will.
    pub recalled: Vec<Range<u32>>,
    pub exhausted: bool,
    /// The answer to a question: which job keeps another one beyond its timeout.
    pub culprit: Option<Option<u32>>,
    pub exiting: bool,
    /// Files that the process has imported late.
    pub imported: Vec<PathBuf>,
}

impl Said {
    /// Reads a frame. `kind_of` returns the kind of an owner's jobs.
    pub fn read(
        frame: &mut OutcomesFrame,
        stream: &Stream,
        kind_of: &dyn Fn(u64) -> Arc<str>,
    ) -> Result<Said, ProtocolError> {
        let (mut recalled, mut exhausted) = (Vec::new(), false);
        let (mut culprit, mut exiting, mut imported) = (None, false, Vec::new());
        let notes = std::mem::take(&mut frame.notes);
        let mut shares = share_values(frame, stream)?;
        for mut note in notes {
            match note {
                Note::Recalled { from, to } if from <= to && to <= stream.next_number() => {
                    recalled.push(from..to)
                }
                Note::Recalled { .. } => return Err(ProtocolError::Recall),
                Note::Exhausted => exhausted = true,
                Note::Culprit { index } => culprit = Some(index),
                Note::Exiting => exiting = true,
                Note::Imported(files) => imported.extend(files),
                // This note belongs to the end of the process, which is read elsewhere.
                Note::Unended(_) => {}
                Note::Progress { index, .. }
                    if stream.piece_of(index).is_none() && index < stream.next_number() =>
                {
                    // This comes from code that an answered job left running.
                }
                _ => {
                    let Some(number) = note.number_mut() else { continue };
                    let piece = stream.piece_of(*number).ok_or(ProtocolError::UnknownJob)?;
                    *number -= stream.pieces[piece].first;
                    assert!(
                        (*number as usize) < stream.pieces[piece].places.len(),
                        "a note concerns a job of its piece"
                    );
                    shares.entry(piece).or_default().notes.push(note);
                }
            }
        }
        let answers = shares.into_iter().map(|(piece, share)| {
            let sent = &stream.pieces[piece];
            Ok((piece, Answers::read(share, sent, &kind_of(sent.owner))?))
        });
        Ok(Said {
            answers: answers.collect::<Result<_, ProtocolError>>()?,
            recalled,
            exhausted,
            culprit,
            exiting,
            imported,
        })
    }
}

/// Gives each piece of the stream its values.
fn share_values<'a>(
    frame: &'a OutcomesFrame,
    stream: &Stream,
) -> Result<BTreeMap<usize, Share<'a>>, ProtocolError> {
    let mut shares: BTreeMap<usize, Share<'a>> = BTreeMap::new();
    if frame.numbers.is_empty() {
        return Ok(shares);
    }
    let values = &frame.values;
    let body = values
        .strip_prefix('[')
        .and_then(|values| values.strip_suffix(']'));
    let body = body.ok_or(ProtocolError::Parts)?;
    let mut items = body.split("\n,");
    let jobs = frame.numbers.iter().zip(&frame.durations_us).zip(items.by_ref());
    let mut jobs: Vec<(u32, u32, &str)> = jobs
        .map(|((number, duration_us), item)| (*number, *duration_us, item))
        .collect();
    if jobs.len() < frame.numbers.len() || items.next().is_some() {
        return Err(ProtocolError::Count {
            values: body.split("\n,").count() as u32,
            jobs: frame.numbers.len() as u32,
        });
    }
    if !frame.numbers.is_sorted() {
        jobs.sort_unstable_by_key(|(number, ..)| *number);
    }
    let mut rest = jobs.as_mut_slice();
    while let Some((number, ..)) = rest.first() {
        let piece = stream.piece_of(*number).ok_or(ProtocolError::UnknownJob)?;
        let sent = &stream.pieces[piece];
        let count = rest.partition_point(|(number, ..)| *number < sent.end());
        assert!(count > 0, "each turn takes the values of at least one job");
        let (own, others) = rest.split_at_mut(count);
        own.iter_mut().for_each(|(number, ..)| *number -= sent.first);
        shares.entry(piece).or_default().completed = own.to_vec();
        rest = others;
    }
    assert_eq!(
        shares.values().map(|share| share.completed.len()).sum::<usize>(),
        frame.numbers.len(),
        "each value of a frame belongs to one piece"
    );
    Ok(shares)
}

impl Answers {
    fn read(share: Share<'_>, sent: &SentPiece, kind: &str) -> Result<Answers, ProtocolError> {
        let mut answers = Answers::default();
        for note in &share.notes {
            answers.read_note(note, sent, kind)?;
        }
        answers.read_completed(&share.completed);
        answers.join_done()?;
        let mut seen = std::collections::HashSet::new();
        let failed = answers.failed.iter().map(|(index, ..)| *index);
        let failed = failed.chain(answers.spawned.iter().map(|(index, ..)| *index));
        let completed = answers
            .completed
            .iter()
            .flat_map(|(indexes, ..)| indexes.iter().copied());
        // Ascending indexes cannot repeat, so only failures among them need the set.
        let mut last = None;
        for index in completed {
            if last >= Some(index) || !sent.expects(index) {
                return Err(ProtocolError::UnknownJob);
            }
            last = Some(index);
        }
        for index in failed {
            let is_completed = answers
                .completed
                .as_ref()
                .is_some_and(|(indexes, ..)| indexes.binary_search(&index).is_ok());
            if !seen.insert(index) || is_completed || !sent.expects(index) {
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
            } => match read_spawn(*index, spawn, kind) {
                Ok(suspended) => self.spawned.push((*index, *duration_us, suspended)),
                Err(error) => {
                    let error = JobError::new("children", error).permanent();
                    self.failed.push((*index, *duration_us, error));
                }
            },
            Note::Done {
                index,
                duration_us,
                value,
                siblings,
            } => match read_siblings(siblings, kind) {
                Ok(siblings) => {
                    self.done.push((*index, *duration_us, value.clone()));
                    self.siblings.push((*index, siblings));
                }
                Err(error) => {
                    let error = JobError::new("siblings", error).permanent();
                    self.failed.push((*index, *duration_us, error));
                }
            },
            Note::Progress { index, progress } => match sent.answered.get(*index as usize) {
                Some(false) => self.progress.push((*index, progress.clone())),
                // This comes from code that the job left running.
                Some(true) => {}
                None => return Err(ProtocolError::UnknownJob),
            },
            // These notes belong to the stream and are read there.
            Note::Recalled { .. }
            | Note::Exhausted
            | Note::Culprit { .. }
            | Note::Exiting
            | Note::Unended(_)
            | Note::Imported(_) => {}
        }
        Ok(())
    }

    /// Checks the values one by one. An invalid one fails its job.
    fn read_completed(&mut self, completed: &[(u32, u32, &str)]) {
        let mut values = PackedBuilder::with_item_bytes_max(VALUE_BYTES_MAX);
        let (mut indexes, mut durations_us) = (
            Vec::with_capacity(completed.len()),
            Vec::with_capacity(completed.len()),
        );
        for (index, duration_us, item) in completed {
            match values.push(item) {
                Ok(()) => {
                    indexes.push(*index);
                    durations_us.push(*duration_us);
                }
                Err(error) => {
                    let error = JobError::new(
                        "NotJson",
                        format!("main returned a value that is not JSON: {error}"),
                    );
                    self.failed.push((*index, *duration_us, error));
                }
            }
        }
        assert_eq!(values.count() as usize, indexes.len(), "each job has a value");
        if !indexes.is_empty() {
            self.completed = Some((indexes, durations_us, values.finish()));
        }
    }

    /// Adds the values of jobs that spawned siblings to the others.
    fn join_done(&mut self) -> Result<(), ProtocolError> {
        if self.done.is_empty() {
            return Ok(());
        }
        let (indexes, durations_us, values) = self
            .completed
            .take()
            .unwrap_or_else(|| (Vec::new(), Vec::new(), PackedBuilder::new().finish()));
        let others = indexes.iter().zip(&durations_us).zip(values.items());
        let mut all: Vec<(u32, u32, &str)> = others
            .map(|((index, duration_us), value)| (*index, *duration_us, value))
            .collect();
        for (index, duration_us, value) in &self.done {
            let mut items = value.items();
            match (items.next(), items.next()) {
                (Some(item), None) if item.len() <= VALUE_BYTES_MAX => all.push((*index, *duration_us, item)),
                _ => return Err(ProtocolError::Parts),
            }
        }
        all.sort_unstable_by_key(|(index, ..)| *index);
        let mut joined = PackedBuilder::with_item_bytes_max(VALUE_BYTES_MAX);
        for (_, _, value) in &all {
            joined.push(value).map_err(|_| ProtocolError::Parts)?;
        }
        let (indexes, durations_us) = all
            .iter()
            .map(|(index, duration_us, _)| (*index, *duration_us))
            .unzip();
        assert_eq!(joined.count() as usize, all.len(), "each job has a value");
        self.completed = Some((indexes, durations_us, joined.finish()));
        Ok(())
    }

    /// Marks answered jobs. Returns their outcomes with logs, and their number.
    pub fn into_outcomes(self, sent: &mut SentPiece, output: &mut Output) -> (Outcomes, usize) {
        let mut outcomes = Outcomes::default();
        let mut answered: Vec<u32> = self.failed.iter().map(|(index, ..)| *index).collect();
        let count = self.count();
        if let Some((indexes, durations_us, values)) = self.completed {
            outcomes.completed = Some(Completed {
                positions: indexes.iter().map(|index| sent.places[*index as usize]).collect(),
                values,
                durations_us,
            });
            answered.extend(indexes);
        }
        outcomes.failed = self
            .failed
            .into_iter()
            .map(|(index, duration_us, error)| FailedJob {
                position: sent.places[index as usize],
                error,
                duration_us,
            })
            .collect();
        for (index, duration_us, suspended) in self.spawned {
            answered.push(index);
            outcomes.suspended_us.push(duration_us);
            let place = sent.places[index as usize];
            outcomes.suspended.push(Suspended {
                positions: Positions::from(place..place + 1),
                ..suspended
            });
        }
        outcomes.siblings = self
            .siblings
            .into_iter()
            .filter(|(_, siblings)| !siblings.is_empty())
            .map(|(index, siblings)| Siblings::one(sent.places[index as usize], siblings))
            .collect();
        answered.sort_unstable();
        assert_eq!(answered.len(), count, "each answer becomes one outcome");
        assert!(
            answered.is_sorted_by(|one, next| one < next)
                && answered.iter().all(|index| sent.expects(*index)),
            "a job is answered once"
        );
        answered.iter().for_each(|index| sent.answer(*index));
        if output.logs_count() > 0 {
            let logs = answered
                .iter()
                .filter_map(|index| Some((index, output.take_log(sent.first + index)?)));
            outcomes.logs = logs
                .map(|(index, log)| JobLog {
                    position: sent.places[*index as usize],
                    text: log.into_text(),
                })
                .collect();
        }
        (outcomes, answered.len())
    }

    /// The number of answered jobs.
    pub fn count(&self) -> usize {
        self.failed.len()
            + self.spawned.len()
            + self.completed.as_ref().map_or(0, |(indexes, ..)| indexes.len())
    }

    /// The duration and the index of the job that ran longest.
    pub fn longest(&self) -> Option<(u32, u32)> {
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
        failed.chain(completed).chain(spawned).max()
    }
}
