//! The best of many items. Memory grows with the number of best items only.

use crate::recall::Scored;

/// Items beyond the best ones that are gathered before the worst are dropped together.
const SPARE_MIN: usize = 1_024;

/// Keeps the best items: the highest scores, and the lowest values among equal scores.
///
/// Memory: 2 `max` items, and at least [`SPARE_MIN`]. Time: O(1) an item, amortised.
#[derive(Debug)]
pub(super) struct Best<T> {
    max: Option<usize>,
    kept: Vec<Scored<T>>,
    /// Items with a lower score are not among the best.
    floor: f64,
}

impl<T: Ord> Best<T> {
    /// Keeps at most `max` items; all if `None`.
    pub(super) fn new(max: Option<usize>) -> Best<T> {
        Best {
            max,
            kept: Vec::new(),
            floor: f64::NEG_INFINITY,
        }
    }

    /// Whether an item with this score may be among the best.
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

    /// Returns the best items: the highest scores first, and the lowest values first among equal scores.
    pub(super) fn into_sorted(mut self) -> Vec<Scored<T>> {
        if let Some(max) = self.max
            && max < self.kept.len()
        {
            self.cut(max);
        }
        self.kept.sort_unstable_by(better);
        self.kept
    }

    /// Keeps the best `max` items.
    fn cut(&mut self, max: usize) {
        let Some(last) = max.checked_sub(1) else {
            self.kept.clear();
            return;
        };
        assert!(max < self.kept.len(), "there is something to drop");
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
    fn keeps_the_items_that_a_sort_puts_first() {
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
