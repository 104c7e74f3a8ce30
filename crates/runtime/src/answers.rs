//! What a process answered in one frame.

use gristmill_model::limits::VALUE_BYTES_MAX;
use gristmill_model::{
    ChildBatch, Completed, FailedJob, JobError, JobLog, PackedArray, PackedBuilder, Progress, Siblings,
    Spawn, Suspended,
};
use gristmill_worker::Outcomes;

use crate::in_flight::SentPiece;
use crate::protocol::{Note, OutcomesFrame, ProtocolError};

/// The answers in a frame, checked against what was sent. Reading changes nothing.
pub(crate) struct Answers {
    /// Indexes, ascending, with their durations and values.
    completed: Option<(Vec<u32>, Vec<u32>, PackedArray)>,
    failed: Vec<(u32, u32, JobError)>,
    spawned: Vec<(u32, u32, Spawn)>,
    /// Values of jobs that spawned siblings, each as an array of one.
    done: Vec<(u32, u32, PackedArray)>,
    siblings: Vec<(u32, Vec<ChildBatch>)>,
    logs: Vec<(u32, String, u64)>,
    /// Of jobs that run.
    pub progress: Vec<(u32, Progress)>,
    pub stopped: bool,
}

impl Answers {
    pub fn read(frame: &OutcomesFrame, sent: &SentPiece, kind: &str) -> Result<Answers, ProtocolError> {
        let mut answers = Answers {
            completed: None,
            failed: Vec::new(),
            spawned: Vec::new(),
            done: Vec::new(),
            siblings: Vec::new(),
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
        answers.join_done()?;
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
            Note::Done {
                index,
                duration_us,
                value,
                siblings,
            } => {
                let siblings: Vec<ChildBatch> = siblings
                    .iter()
                    .map(|children| children.clone().into_batch(kind))
                    .collect();
                match Siblings::one(0, siblings.clone()).check() {
                    Ok(()) => {
                        self.done.push((*index, *duration_us, value.clone()));
                        self.siblings.push((*index, siblings));
                    }
                    Err(error) => {
                        let error = JobError::new("siblings", error.to_string()).permanent();
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

    /// Puts the values of jobs that spawned siblings among the others.
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
        self.completed = Some((indexes, durations_us, joined.finish()));
        Ok(())
    }

    /// Marks what is answered, and returns it as outcomes.
    pub fn into_outcomes(self, sent: &mut SentPiece) -> Option<Outcomes> {
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
        outcomes.siblings = self
            .siblings
            .into_iter()
            .filter(|(_, siblings)| !siblings.is_empty())
            .map(|(index, siblings)| Siblings::one(sent.positions[index as usize], siblings))
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

    pub fn count(&self) -> usize {
        self.failed.len()
            + self.spawned.len()
            + self.completed.as_ref().map_or(0, |(indexes, ..)| indexes.len())
    }

    pub fn longest(&self) -> Option<u32> {
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
