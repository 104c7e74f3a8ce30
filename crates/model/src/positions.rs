//! A set of positions in a batch, kept as ranges, and written `0-499,731`.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::id::{BatchId, JobId};
use crate::limits::BATCH_JOBS_MAX;

/// Positions in a batch: sorted, disjoint, non-adjacent half-open ranges.
///
/// The cost of each set operation depends on the number of ranges, not of positions.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Positions {
    ranges: Vec<Range<u32>>,
}

impl Positions {
    /// The empty set.
    pub const fn new() -> Self {
        Positions { ranges: Vec::new() }
    }

    /// All positions of a batch of `count` jobs.
    pub fn all(count: u32) -> Self {
        Positions::from(0..count)
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Number of positions in the set.
    pub fn len(&self) -> u32 {
        self.ranges.iter().map(|range| range.end - range.start).sum()
    }

    /// The lowest position.
    pub fn first(&self) -> Option<u32> {
        self.ranges.first().map(|range| range.start)
    }

    /// The highest position.
    pub fn last(&self) -> Option<u32> {
        self.ranges.last().map(|range| range.end - 1)
    }

    /// The ranges, in ascending order.
    pub fn ranges(&self) -> &[Range<u32>] {
        &self.ranges
    }

    /// The positions, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.ranges.iter().cloned().flatten()
    }

    /// Whether `position` is in the set.
    pub fn contains(&self, position: u32) -> bool {
        let after = self.ranges.partition_point(|range| range.start <= position);
        after > 0 && self.ranges[after - 1].end > position
    }

    /// Whether the set has all positions of `other`.
    pub fn contains_all(&self, other: &Positions) -> bool {
        other.ranges.iter().all(|range| {
            let after = self.ranges.partition_point(|own| own.start <= range.start);
            after > 0 && self.ranges[after - 1].end >= range.end
        })
    }

    /// Whether the ranges are sorted, disjoint and not adjacent, and none is empty.
    fn is_normal(&self) -> bool {
        self.ranges.iter().all(|range| range.start < range.end)
            && self.ranges.windows(2).all(|pair| pair[0].end < pair[1].start)
    }

    /// Adds one position.
    pub fn insert(&mut self, position: u32) {
        self.insert_range(position..position + 1);
    }

    /// Adds a range. Appending at the end is the cheap case.
    pub fn insert_range(&mut self, range: Range<u32>) {
        assert!(range.end < u32::MAX, "each position has a next one");
        if range.is_empty() {
            return;
        }
        match self.ranges.last_mut() {
            None => self.ranges.push(range),
            Some(last) if last.end < range.start => self.ranges.push(range),
            Some(last) if last.end == range.start => last.end = range.end,
            Some(_) => {
                let from = self.ranges.partition_point(|own| own.end < range.start);
                let to = self.ranges.partition_point(|own| own.start <= range.end);
                let merged = match self.ranges[from..to] {
                    [] => range,
                    [ref first, ..] => first.start.min(range.start)..self.ranges[to - 1].end.max(range.end),
                };
                self.ranges.splice(from..to, [merged]);
                debug_assert!(self.is_normal(), "an insertion keeps ranges sorted and disjoint");
            }
        }
    }

    /// Makes the union with `other`.
    pub fn union(&self, other: &Positions) -> Positions {
        let mut union = self.clone();
        for range in &other.ranges {
            union.insert_range(range.clone());
        }
        debug_assert!(union.contains_all(self) && union.contains_all(other));
        union
    }

    /// Makes the intersection with `other`.
    pub fn intersection(&self, other: &Positions) -> Positions {
        let mut common = Positions::new();
        let (mut left, mut right) = (0, 0);
        while let (Some(a), Some(b)) = (self.ranges.get(left), other.ranges.get(right)) {
            common.insert_range(a.start.max(b.start)..a.end.min(b.end));
            if a.end <= b.end {
                left += 1;
            } else {
                right += 1;
            }
        }
        debug_assert!(common.is_normal(), "an intersection has disjoint ranges");
        debug_assert!(self.contains_all(&common) && other.contains_all(&common));
        common
    }

    /// Whether no position is in both sets.
    pub fn is_disjoint(&self, other: &Positions) -> bool {
        self.intersection(other).is_empty()
    }

    /// Makes the difference: the positions that are not in `other`.
    pub fn difference(&self, other: &Positions) -> Positions {
        let mut rest = Positions::new();
        let mut right = 0;
        for range in &self.ranges {
            let mut start = range.start;
            while let Some(cut) = other.ranges.get(right) {
                if cut.start >= range.end {
                    break;
                }
                if cut.start > start {
                    rest.insert_range(start..cut.start);
                }
                start = start.max(cut.end);
                if cut.end > range.end {
                    break;
                }
                right += 1;
            }
            rest.insert_range(start.min(range.end)..range.end);
        }
        debug_assert_eq!(
            rest.len() + self.intersection(other).len(),
            self.len(),
            "difference and intersection make up the set"
        );
        rest
    }

    /// Selects the positions at these indexes of the set, counted from 0 in ascending order. Indexes past the end are
    /// left out.
    pub fn select(&self, indexes: &Positions) -> Positions {
        let mut selected = Positions::new();
        let mut wanted = indexes.ranges.iter().cloned();
        let mut next = wanted.next();
        let mut index = 0;
        for range in &self.ranges {
            let index_end = index + (range.end - range.start);
            while let Some(want) = next.take_if(|want| want.start < index_end) {
                let end = want.end.min(index_end);
                selected.insert_range(range.start + (want.start - index)..range.start + (end - index));
                next = if want.end > index_end {
                    Some(index_end..want.end)
                } else {
                    wanted.next()
                };
            }
            index = index_end;
        }
        debug_assert!(selected.is_normal(), "a selection has disjoint ranges");
        debug_assert!(self.contains_all(&selected));
        debug_assert!(
            selected.len() <= indexes.len(),
            "each index selects at most one position"
        );
        selected
    }

    /// Finds the indexes of those positions that are in the set. [`select`](Positions::select) turns them back into
    /// positions.
    pub fn indexes_of(&self, positions: &Positions) -> Positions {
        let mut indexes = Positions::new();
        let mut others = positions.ranges.as_slice();
        let mut index = 0;
        for range in &self.ranges {
            while let [other, rest @ ..] = others
                && other.start < range.end
            {
                let common = other.start.max(range.start)..other.end.min(range.end);
                if !common.is_empty() {
                    indexes
                        .insert_range(index + common.start - range.start..index + common.end - range.start);
                }
                if other.end > range.end {
                    break;
                }
                others = rest;
            }
            index += range.end - range.start;
        }
        debug_assert_eq!(
            self.select(&indexes),
            self.intersection(positions),
            "indexes select the common positions"
        );
        indexes
    }

    /// Adds `by` to each position.
    pub fn shifted_up(mut self, by: u32) -> Positions {
        assert!(self.last().is_none_or(|last| last < u32::MAX - by));
        for range in &mut self.ranges {
            *range = range.start + by..range.end + by;
        }
        self
    }

    /// Subtracts `by` from each position. No position is smaller than `by`.
    pub fn shifted_down(mut self, by: u32) -> Positions {
        assert!(
            self.first().is_none_or(|first| first >= by),
            "no position becomes negative"
        );
        for range in &mut self.ranges {
            *range = range.start - by..range.end - by;
        }
        self
    }

    /// Removes the lowest `count` positions from the set, and returns them.
    pub fn take_first(&mut self, count: u32) -> Positions {
        let before = self.len();
        let mut left = count;
        let mut taken = Positions::new();
        let mut whole = 0;
        for range in &mut self.ranges {
            let length = range.end - range.start;
            if length <= left {
                taken.ranges.push(range.clone());
                left -= length;
                whole += 1;
            } else {
                if left > 0 {
                    taken.ranges.push(range.start..range.start + left);
                    range.start += left;
                }
                break;
            }
        }
        self.ranges.drain(..whole);
        assert_eq!(
            taken.len() + self.len(),
            before,
            "taken and remaining positions make up the set"
        );
        assert!(
            taken.len() == count.min(before),
            "as many positions are taken as there are"
        );
        debug_assert!(taken.last() < self.first() || self.is_empty());
        taken
    }
}

impl From<Range<u32>> for Positions {
    fn from(range: Range<u32>) -> Self {
        let mut positions = Positions::new();
        positions.insert_range(range);
        positions
    }
}

impl FromIterator<u32> for Positions {
    fn from_iter<I: IntoIterator<Item = u32>>(positions: I) -> Self {
        let mut set = Positions::new();
        for position in positions {
            set.insert(position);
        }
        set
    }
}

impl fmt::Display for Positions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, range) in self.ranges.iter().enumerate() {
            if index > 0 {
                formatter.write_str(",")?;
            }
            if range.end - range.start == 1 {
                write!(formatter, "{}", range.start)?;
            } else {
                write!(formatter, "{}-{}", range.start, range.end - 1)?;
            }
        }
        Ok(())
    }
}

/// The text is not a set of positions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a set of positions: write ascending ranges below {BATCH_JOBS_MAX}, as in 0-499,731")]
pub struct ParsePositionsError(String);

impl FromStr for Positions {
    type Err = ParsePositionsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || ParsePositionsError(text.chars().take(200).collect());
        let number = |part: &str| {
            part.bytes()
                .all(|byte| byte.is_ascii_digit())
                .then(|| part.parse::<u32>().ok())
                .flatten()
                .filter(|position| *position < BATCH_JOBS_MAX)
        };
        let mut positions = Positions::new();
        if text.is_empty() {
            return Ok(positions);
        }
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (
                number(first).ok_or_else(refuse)?,
                number(last).ok_or_else(refuse)?,
            );
            if last < first || positions.last().is_some_and(|previous| previous >= first) {
                return Err(refuse());
            }
            positions.insert_range(first..last + 1);
        }
        debug_assert!(positions.is_normal());
        Ok(positions)
    }
}

impl Serialize for Positions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Positions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The positions of jobs, by batch.
pub fn by_batch(jobs: impl IntoIterator<Item = JobId>) -> BTreeMap<BatchId, Positions> {
    let mut all = BTreeMap::<BatchId, Positions>::new();
    for job in jobs {
        all.entry(job.batch).or_default().insert(job.position);
    }
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn some_positions() -> impl Strategy<Value = BTreeSet<u32>> {
        proptest::collection::btree_set(0u32..60, 0..40)
    }

    fn packed(set: &BTreeSet<u32>) -> Positions {
        set.iter().copied().collect()
    }

    fn unpacked(positions: &Positions) -> BTreeSet<u32> {
        positions.iter().collect()
    }

    proptest! {
        #[test]
        fn behaves_as_a_set(left in some_positions(), right in some_positions(), count in 0u32..70, order in any::<u64>()) {
            let (a, b) = (packed(&left), packed(&right));
            prop_assert_eq!(unpacked(&a.union(&b)), &left | &right);
            prop_assert_eq!(unpacked(&a.intersection(&b)), &left & &right);
            prop_assert_eq!(a.is_disjoint(&b), left.is_disjoint(&right));
            prop_assert_eq!(unpacked(&a.difference(&b)), &left - &right);
            prop_assert_eq!(a.contains_all(&b), right.is_subset(&left));
            prop_assert_eq!(a.len() as usize, left.len());
            for position in 0..70 {
                prop_assert_eq!(a.contains(position), left.contains(&position));
            }
            prop_assert_eq!(a.to_string().parse::<Positions>().unwrap(), a.clone());

            let mut rest = a.clone();
            let taken = rest.take_first(count);
            prop_assert_eq!(taken.len(), count.min(a.len()));
            prop_assert_eq!(taken.union(&rest), a.clone());
            prop_assert!(taken.last() < rest.first() || rest.is_empty() || taken.is_empty());

            let values: Vec<u32> = left.iter().copied().collect();
            let expected: BTreeSet<u32> = right.iter().filter_map(|index| values.get(*index as usize)).copied().collect();
            prop_assert_eq!(unpacked(&a.select(&b)), expected);
            let expected: BTreeSet<u32> = (0..).zip(&values).filter(|(_, value)| right.contains(value)).map(|(index, _)| index).collect();
            prop_assert_eq!(unpacked(&a.indexes_of(&b)), expected);
            prop_assert_eq!(a.clone().shifted_up(count).shifted_down(count), a.clone());

            let mut shuffled: Vec<u32> = left.iter().copied().collect();
            shuffled.sort_by_key(|position| (u64::from(*position) + 1).wrapping_mul(order | 1));
            prop_assert_eq!(shuffled.into_iter().collect::<Positions>(), a);
        }
    }

    #[test]
    fn reads_the_written_form_and_refuses_others() {
        let positions: Positions = "0-499,731".parse().unwrap();
        assert_eq!(positions.ranges(), [0..500, 731..732]);
        for text in [
            "a",
            "1,",
            "-3",
            "3-1",
            "5,4",
            "1-3,3",
            "10000",
            "0-10000",
            "+1",
            " 1",
            "4294967296",
        ] {
            assert!(text.parse::<Positions>().is_err(), "{text}");
        }
    }
}
