//! Stored postings: segments of ascending refs, as LEB128 differences.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::knowledge::Knowledge;
use crate::limits::SEGMENT_REFS_MAX;
use crate::message::Message;
use crate::property::{Property, terms};
use crate::words::{Languages, MessageWords};

/// New refs of one term, by role.
pub(super) type NewRefs = Vec<(Property, Vec<u32>)>;

/// The additions of a transaction to the postings, in ascending order.
#[derive(Debug, Default)]
pub(super) struct NewPostings(HashMap<String, NewRefs>);

impl NewPostings {
    /// Adds a ref under all its terms. Its number is above the refs that were added before.
    pub(super) fn add(&mut self, ordinal: u32, knowledge: &Knowledge) {
        terms(knowledge, |property, term| {
            let properties = self.0.entry(term).or_default();
            match properties.iter_mut().find(|(found, _)| *found == property) {
                Some((_, refs)) => {
                    assert!(refs.last().is_none_or(|last| *last <= ordinal), "new refs ascend");
                    refs.push(ordinal);
                }
                None => properties.push((property, vec![ordinal])),
            }
        });
    }

    /// Takes all additions in the order of the terms, so that equal commits write equal stores.
    pub(super) fn take(&mut self) -> Vec<(String, NewRefs)> {
        let mut postings: Vec<_> = std::mem::take(&mut self.0).into_iter().collect();
        postings.sort_unstable_by(|left, right| left.0.cmp(&right.0));
        postings
    }
}

/// The additions of a transaction to the index of words in messages.
#[derive(Debug, Default)]
pub(super) struct NewWords {
    words: HashMap<String, Vec<u32>>,
    languages: Languages,
}

impl NewWords {
    /// Adds the words of a message, whose number is above all messages added before. Returns the number of its words.
    pub(super) fn add(&mut self, ordinal: u32, message: &Message) -> u32 {
        let words = MessageWords::of(message);
        for (word, count) in words.counts {
            let messages = self.words.entry(word).or_default();
            assert!(
                messages.last().is_none_or(|last| *last < ordinal),
                "new messages ascend"
            );
            messages.extend(std::iter::repeat_n(ordinal, count as usize));
        }
        self.languages.add(words.language);
        words.length
    }

    /// Takes all additions in the order of the words.
    pub(super) fn take(&mut self) -> Vec<(String, Vec<u32>)> {
        let mut words: Vec<_> = std::mem::take(&mut self.words).into_iter().collect();
        words.sort_unstable_by(|left, right| left.0.cmp(&right.0));
        words
    }

    /// The languages of all added messages.
    pub(super) fn languages(&self) -> Languages {
        self.languages
    }
}

/// Messages to remove from the index, by their words.
#[derive(Debug, Default)]
pub(super) struct RemovedWords(pub(super) BTreeMap<String, HashSet<u32>>);

impl RemovedWords {
    /// Adds a message.
    pub(super) fn add(&mut self, ordinal: u32, message: &Message) {
        for word in MessageWords::of(message).counts.into_keys() {
            self.0.entry(word).or_default().insert(ordinal);
        }
    }
}

/// A segment. Its key is its first ref.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) count: u32,
    pub(super) bytes: Vec<u8>,
}

impl Segment {
    /// Makes the segment of some ascending refs; `None` if there are none.
    pub(super) fn of(refs: &[u32]) -> Option<Segment> {
        let (&first, &last) = (refs.first()?, refs.last()?);
        let mut bytes = Vec::new();
        encode(first, &refs[1..], &mut bytes);
        debug_assert!(
            {
                let mut read = Vec::new();
                decode(first, &bytes, &mut read).is_some() && read == refs
            },
            "a segment reads back as it was written"
        );
        Some(Segment {
            first,
            last,
            count: refs.len() as u32,
            bytes,
        })
    }

    /// Adds ascending refs, all above its own, while it has room. Returns the refs that are left. A ref that occurs
    /// several times is not divided between segments, so that segments of a term never have the same first ref, even
    /// after deletions.
    pub(super) fn extend<'a>(&mut self, refs: &'a [u32]) -> &'a [u32] {
        let mut room = refs
            .len()
            .min(SEGMENT_REFS_MAX.saturating_sub(self.count as usize));
        while room > 0 && room < refs.len() && refs[room] == refs[room - 1] {
            room += 1;
        }
        assert!(refs.first().is_none_or(|first| *first >= self.last));
        let (added, rest) = refs.split_at(room);
        if let Some(&last) = added.last() {
            encode(self.last, added, &mut self.bytes);
            self.last = last;
            self.count += added.len() as u32;
        }
        rest
    }

    /// Cuts ascending refs into segments.
    pub(super) fn cut(mut refs: &[u32]) -> Vec<Segment> {
        let all = refs.len();
        let mut segments = Vec::new();
        while !refs.is_empty() {
            let mut count = refs.len().min(SEGMENT_REFS_MAX);
            // A repeated ref does not begin the next segment, because its key would be taken.
            while count < refs.len() && refs[count] == refs[count - 1] {
                count += 1;
            }
            segments.extend(Segment::of(&refs[..count]));
            refs = &refs[count..];
        }
        assert_eq!(
            segments
                .iter()
                .map(|segment| segment.count as usize)
                .sum::<usize>(),
            all,
            "each ref is in one segment"
        );
        assert!(
            segments.windows(2).all(|pair| pair[0].last < pair[1].first),
            "segments do not overlap"
        );
        segments
    }
}

/// Appends the difference of the first ref to `previous`, and of each ref to the one before it.
fn encode(previous: u32, refs: &[u32], bytes: &mut Vec<u8>) {
    let mut previous = previous;
    for &ordinal in refs {
        assert!(ordinal >= previous, "refs ascend");
        let mut difference = ordinal - previous;
        while difference >= 0x80 {
            bytes.push(difference as u8 | 0x80);
            difference >>= 7;
        }
        bytes.push(difference as u8);
        previous = ordinal;
    }
}

/// Reads the refs of a segment from its first ref and the differences in `bytes`. Returns `None` if the bytes are
/// malformed. Some refs may have been appended then.
pub(super) fn decode(first: u32, bytes: &[u8], refs: &mut Vec<u32>) -> Option<()> {
    refs.push(first);
    let (mut last, mut difference, mut shift) = (first, 0_u32, 0_u32);
    for &byte in bytes {
        let bits = u32::from(byte & 0x7f);
        if shift > 28 || (shift == 28 && bits > 0xf) {
            return None;
        }
        difference |= bits << shift;
        if byte & 0x80 != 0 {
            shift += 7;
            continue;
        }
        last = last.checked_add(difference)?;
        refs.push(last);
        (difference, shift) = (0, 0);
    }
    (shift == 0).then_some(())
}

#[cfg(test)]
mod tests {
    use gristmill_model::{Rng, SplitMix64};

    use super::*;

    #[test]
    fn a_segment_reads_back_as_written() {
        let mut rng = SplitMix64::new(1);
        for _ in 0..500 {
            let mut refs: Vec<u32> = (0..1 + rng.below(40))
                .map(|_| {
                    let bits = rng.below(33);
                    rng.below(1 << bits) as u32
                })
                .collect();
            refs.sort_unstable();
            let mut bytes = Vec::new();
            encode(refs[0], &refs[1..], &mut bytes);
            let mut decoded = Vec::new();
            assert_eq!(decode(refs[0], &bytes, &mut decoded), Some(()));
            assert_eq!(decoded, refs);
        }
    }

    #[test]
    fn cuts_and_extends() {
        let refs: Vec<u32> = (0..1_200).flat_map(|ordinal| [ordinal, ordinal]).collect();
        let segments = Segment::cut(&refs);
        assert!(segments.windows(2).all(|pair| pair[0].last < pair[1].first));
        let mut found = Vec::new();
        for segment in &segments {
            decode(segment.first, &segment.bytes, &mut found).expect("a segment");
        }
        assert_eq!(found, refs);
        let mut segment = Segment::of(&refs[..500]).expect("refs");
        let rest = segment.extend(&refs[500..600]);
        assert_eq!((segment.count as usize, rest.len()), (SEGMENT_REFS_MAX, 88));
        assert_eq!(segment.last, refs[511]);
        let mut segment = Segment::of(&refs[..511]).expect("refs");
        let rest = segment.extend(&[600, 600, 600, 601]);
        assert_eq!((segment.last, rest), (600, &[601][..]), "600 is not divided");
    }

    #[test]
    fn malformed_segments_are_refused() {
        let mut refs = Vec::new();
        assert_eq!(decode(0, &[0x80], &mut refs), None, "cut in a number");
        assert_eq!(decode(u32::MAX, &[1], &mut refs), None, "past the last number");
        assert_eq!(decode(0, &[0xff; 6], &mut refs), None, "too long a number");
    }
}
