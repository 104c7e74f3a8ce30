//! Postings as they are stored: segments of ascending refs as LEB128 differences.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::knowledge::Knowledge;
use crate::limits::SEGMENT_REFS_MAX;
use crate::message::Message;
use crate::property::{Property, terms};
use crate::words::{Languages, MessageWords};

/// The refs of one term in one role that are not stored yet, by role.
pub(super) type NewRefs = Vec<(Property, Vec<u32>)>;

/// The additions of a transaction to the postings, ascending.
#[derive(Debug, Default)]
pub(super) struct NewPostings(HashMap<String, NewRefs>);

impl NewPostings {
    /// Adds a ref under all its terms. Above all refs that were added before.
    pub(super) fn add(&mut self, ordinal: u32, knowledge: &Knowledge) {
        terms(knowledge, |property, term| {
            let properties = self.0.entry(term).or_default();
            match properties.iter_mut().find(|(found, _)| *found == property) {
                Some((_, refs)) => refs.push(ordinal),
                None => properties.push((property, vec![ordinal])),
            }
        });
    }

    /// Takes all of it, in the order of the terms, so that equal commits write equal stores.
    pub(super) fn take(&mut self) -> Vec<(String, NewRefs)> {
        let mut postings: Vec<_> = std::mem::take(&mut self.0).into_iter().collect();
        postings.sort_unstable_by(|left, right| left.0.cmp(&right.0));
        postings
    }
}

/// The additions of a transaction to the index of the messages' words.
#[derive(Debug, Default)]
pub(super) struct NewWords {
    words: HashMap<String, Vec<u32>>,
    languages: Languages,
}

impl NewWords {
    /// Adds the words of a message, above all messages that were added before. Gives back how many words it has.
    pub(super) fn add(&mut self, ordinal: u32, message: &Message) -> u32 {
        let words = MessageWords::of(message);
        for (word, count) in words.counts {
            let messages = self.words.entry(word).or_default();
            messages.extend(std::iter::repeat_n(ordinal, count as usize));
        }
        self.languages.add(words.language);
        words.length
    }

    /// Takes all of it, in the order of the words.
    pub(super) fn take(&mut self) -> Vec<(String, Vec<u32>)> {
        let mut words: Vec<_> = std::mem::take(&mut self.words).into_iter().collect();
        words.sort_unstable_by(|left, right| left.0.cmp(&right.0));
        words
    }

    /// The languages of all messages that were added.
    pub(super) fn languages(&self) -> Languages {
        self.languages
    }
}

/// The messages that are to be taken out of the index, by their words.
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

/// A segment: its key is its first ref.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) count: u32,
    pub(super) bytes: Vec<u8>,
}

impl Segment {
    /// The segment of some refs, ascending; `None` of none.
    pub(super) fn of(refs: &[u32]) -> Option<Segment> {
        let (&first, &last) = (refs.first()?, refs.last()?);
        let mut bytes = Vec::new();
        encode(first, &refs[1..], &mut bytes);
        Some(Segment {
            first,
            last,
            count: refs.len() as u32,
            bytes,
        })
    }

    /// Adds refs, ascending and above its own, while it has room. Gives back those that are left. A ref that stands
    /// there several times is not divided: each segment of a term has another first ref, also when others are deleted.
    pub(super) fn extend<'a>(&mut self, refs: &'a [u32]) -> &'a [u32] {
        let mut room = refs
            .len()
            .min(SEGMENT_REFS_MAX.saturating_sub(self.count as usize));
        while room > 0 && room < refs.len() && refs[room] == refs[room - 1] {
            room += 1;
        }
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
        let mut segments = Vec::new();
        while !refs.is_empty() {
            let mut count = refs.len().min(SEGMENT_REFS_MAX);
            // A ref that stands there twice does not begin a segment whose key is taken.
            while count < refs.len() && refs[count] == refs[count - 1] {
                count += 1;
            }
            segments.extend(Segment::of(&refs[..count]));
            refs = &refs[count..];
        }
        segments
    }
}

/// Appends the differences of `refs` to `previous` and to each other.
fn encode(previous: u32, refs: &[u32], bytes: &mut Vec<u8>) {
    let mut previous = previous;
    for &ordinal in refs {
        let mut difference = ordinal - previous;
        while difference >= 0x80 {
            bytes.push(difference as u8 | 0x80);
            difference >>= 7;
        }
        bytes.push(difference as u8);
        previous = ordinal;
    }
}

/// Appends the refs of a segment: its first one, and those that `bytes` tells the differences of. `None` where the
/// bytes are no such segment; some refs may have been appended then.
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
    fn gives_back_what_was_encoded() {
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
    fn refuses_what_is_no_segment() {
        let mut refs = Vec::new();
        assert_eq!(decode(0, &[0x80], &mut refs), None, "cut in a number");
        assert_eq!(decode(u32::MAX, &[1], &mut refs), None, "past the last number");
        assert_eq!(decode(0, &[0xff; 6], &mut refs), None, "too long a number");
    }
}
