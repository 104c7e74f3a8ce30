//! The most common errors.

use std::collections::HashMap;

use gristmill_model::{JobError, JobId, JobState};

/// The number of distinct errors to count. Further ones count as other.
const GROUPS_MAX: usize = 200;

/// The number of characters of a message that distinguish errors, and that are shown.
const MESSAGE_CHARS_MAX: usize = 160;

/// Similar errors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureGroup {
    /// The error's type.
    pub error_type: String,
    /// The first line of the first message, shortened.
    pub message: String,
    /// The number of errors.
    pub count: u64,
    /// The first job with this error.
    pub first: JobId,
}

/// Counts errors by type and message, ignoring numbers in the message.
#[derive(Debug, Default)]
pub struct FailureGroups {
    groups: HashMap<(String, String), FailureGroup>,
    other: u64,
    states: Vec<JobState>,
}

impl FailureGroups {
    /// Counts the error of a job that ended as `state`.
    pub fn record(&mut self, job: JobId, state: JobState, error: &JobError) {
        if !self.states.contains(&state) {
            self.states.push(state);
        }
        let message: String = error
            .message
            .lines()
            .next()
            .unwrap_or("")
            .chars()
            .take(MESSAGE_CHARS_MAX)
            .collect();
        let key = (error.error_type.clone(), without_numbers(&message));
        let room = self.groups.len() < GROUPS_MAX;
        match self.groups.entry(key) {
            std::collections::hash_map::Entry::Occupied(group) => group.into_mut().count += 1,
            std::collections::hash_map::Entry::Vacant(place) if room => {
                place.insert(FailureGroup {
                    error_type: error.error_type.clone(),
                    message,
                    count: 1,
                    first: job,
                });
            }
            std::collections::hash_map::Entry::Vacant(_) => self.other += 1,
        }
    }

    /// The states of the jobs, in the order in which they first came.
    pub fn states(&self) -> &[JobState] {
        &self.states
    }

    /// The `count` most common groups, and the number of errors in other groups.
    pub fn commonest(&self, count: usize) -> (Vec<&FailureGroup>, u64) {
        let mut groups: Vec<&FailureGroup> = self.groups.values().collect();
        groups.sort_by_key(|group| (std::cmp::Reverse(group.count), group.first));
        let rest = groups.iter().skip(count).map(|group| group.count).sum::<u64>();
        groups.truncate(count);
        (groups, rest + self.other)
    }
}

fn without_numbers(message: &str) -> String {
    let mut text = String::with_capacity(message.len());
    for letter in message.chars() {
        match letter {
            '0'..='9' if text.ends_with('#') => {}
            '0'..='9' => text.push('#'),
            other => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use gristmill_model::BatchId;

    use super::*;

    fn job(position: u32) -> JobId {
        JobId {
            batch: BatchId(1),
            position,
        }
    }

    #[test]
    fn errors_that_differ_only_in_numbers_are_one_group() {
        let mut failures = FailureGroups::default();
        failures.record(job(0), JobState::Dead, &JobError::new("KeyError", "'text'"));
        for line in 1..30 {
            let message = format!("items.jsonl:{line}: not JSON\nsecond line {line}");
            failures.record(job(line), JobState::Dead, &JobError::new("not_json", message));
        }
        let (groups, other) = failures.commonest(1);
        assert_eq!(
            (groups[0].count, groups[0].message.as_str()),
            (29, "items.jsonl:1: not JSON")
        );
        assert_eq!((groups[0].first, other), (job(1), 1));
    }

    #[test]
    fn the_number_of_groups_has_a_limit() {
        let mut failures = FailureGroups::default();
        for index in 0..5_000u32 {
            let letters: String = format!("{index:05}")
                .bytes()
                .map(|digit| (digit + 49) as char)
                .collect();
            failures.record(job(index), JobState::Dead, &JobError::new("E", letters));
        }
        assert_eq!(failures.groups.len(), GROUPS_MAX);
        assert_eq!(failures.commonest(GROUPS_MAX).1, 5_000 - GROUPS_MAX as u64);
    }
}
