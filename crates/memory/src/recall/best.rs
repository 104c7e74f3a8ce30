//! The best of many, in memory for a few.

use crate::recall::Scored;

/// Items kept beyond the best, before the worst of them go: so many are compared at once.
const SPARE_MIN: usize = 1_024;

/// Keeps the best of what is added: those of the highest scores, and of equal scores those of the lowest values.
///
/// Memory: 2 `max` items, and at least [`SPARE_MIN`]. Time: O(1) an item, amortised.
#[derive(Debug)]
pub(super) struct Best<T> {
    max: Option<usize>,
    kept: Vec<Scored<T>>,
    /// Nothing below it is among the best.
    floor: f64,
}

impl<T: Ord> Best<T> {
    /// Keeps at most `max`; all, where `None`.
    pub(super) fn new(max: Option<usize>) -> Best<T> {
        Best {
            max,
            kept: Vec::new(),
            floor: f64::NEG_INFINITY,
        }
    }

    /// Whether an item of that score may be among the best.
    pub(super) fn admits(&self, score: f64) -> bool {
        score >= self.floor
    }

    pub(super) fn add(&mut self, item: Scored<T>) {
        if !self.admits(item.score) {
            return;
        }
        self.kept.push(item);
        if let Some(max) = self.max
            && self.kept.len() >= max.saturating_mul(2).max(SPARE_MIN)
        {
            self.cut(max);
        }
    }

    /// The best: the highest scores first, and of equal scores the lowest values.
    pub(super) fn into_sorted(mut self) -> Vec<Scored<T>> {
        if let Some(max) = self.max
            && max < self.kept.len()
        {
            self.cut(max);
        }
        self.kept.sort_unstable_by(better);
        self.kept
    }

    /// Keeps `max` of more.
    fn cut(&mut self, max: usize) {
        let Some(last) = max.checked_sub(1) else {
            self.kept.clear();
            return;
        };
        self.kept.select_nth_unstable_by(last, better);
        self.kept.truncate(max);
        self.floor = self.kept[last].score;
    }
}

fn better<T: Ord>(left: &Scored<T>, right: &Scored<T>) -> std::cmp::Ordering {
    let by_score = right.score.total_cmp(&left.score);
    by_score.then_with(|| left.value.cmp(&right.value))
}

#[cfg(test)]
mod tests {
    use gristmill_model::{Rng, SplitMix64};

    use super::*;

    #[test]
    fn keeps_what_a_sort_puts_first() {
        let mut rng = SplitMix64::new(7);
        for max in [0, 1, 2, 50, 1_000, 5_000] {
            for scores in [1, 3, 1_000_000] {
                let mut all: Vec<Scored<u64>> = (0..4_000)
                    .map(|value| Scored {
                        value: (value * 2_654_435_761) % 4_096,
                        score: (rng.next_u64() % scores) as f64,
                    })
                    .collect();
                let mut best = Best::new(Some(max));
                all.iter().for_each(|item| best.add(*item));
                all.sort_by(better);
                all.truncate(max);
                assert_eq!(best.into_sorted(), all, "{max} of scores below {scores}");
            }
        }
    }
}
