//! Matches of refs or messages, with their scores.

use std::sync::{Mutex, PoisonError};

use crate::limits::{MATCHES_SPARE_BYTES_MAX, MATCHES_SPARE_MAX};

/// One match.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Match {
    /// The number of the ref or message.
    pub ordinal: u32,
    /// Number of terms that matched. A related term counts as one hit, and only if it matched first.
    pub hits: u32,
    /// The total score of the terms.
    pub score: f64,
    /// Number of related terms that matched.
    pub related_hits: u32,
    /// The total score of the related terms.
    pub related_score: f64,
}

impl Match {
    fn add(&mut self, other: &Match) {
        self.hits += other.hits;
        self.score += other.score;
        self.related_hits += other.related_hits;
        self.related_score += other.related_score;
    }
}

/// Matches, one for each ref or message, in the order in which they were found.
#[derive(Debug)]
pub struct Matches {
    list: Vec<Match>,
    /// For each ordinal, its place in the list plus 1, or 0. It is at least as long as the range of ordinals. A hash
    /// map took four times as long for a term with 100,000 refs.
    places: Vec<u32>,
}

/// Empty buffers of dropped matches, whose places are all 0. A recall over a million refs needs about ten buffers of 4
/// MB. When each recall allocated them anew, their pages took a third of its time.
static SPARE: Mutex<Vec<Matches>> = Mutex::new(Vec::new());

impl Drop for Matches {
    fn drop(&mut self) {
        let bytes = self.places.capacity() * size_of::<u32>() + self.list.capacity() * size_of::<Match>();
        if bytes == 0 || bytes > MATCHES_SPARE_BYTES_MAX {
            return;
        }
        let (mut list, mut places) = (std::mem::take(&mut self.list), std::mem::take(&mut self.places));
        // Clearing single places is faster than clearing all, if the list is short.
        if list.len() * 8 < places.len() {
            list.iter().for_each(|found| places[found.ordinal as usize] = 0);
        } else {
            places.fill(0);
        }
        list.clear();
        let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < MATCHES_SPARE_MAX {
            spare.push(Matches { list, places });
        }
    }
}

impl Matches {
    /// Makes an empty list of matches for ordinals below `end`.
    pub fn new(end: u32) -> Matches {
        let spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut matches = spare.unwrap_or(Matches {
            list: Vec::new(),
            places: Vec::new(),
        });
        debug_assert!(
            matches.list.is_empty() && matches.places.iter().all(|&place| place == 0),
            "a spare buffer holds no matches"
        );
        if matches.places.len() < end as usize {
            matches.places.resize(end as usize, 0);
        }
        matches
    }

    /// Whether there are no matches.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The matches, in the order in which they were found.
    pub fn iter(&self) -> std::slice::Iter<'_, Match> {
        self.list.iter()
    }

    /// The match of an ordinal, if it has one.
    pub fn get(&self, ordinal: u32) -> Option<&Match> {
        let place = *self.places.get(ordinal as usize)? as usize;
        self.list.get(place.wrapping_sub(1))
    }

    /// Loads the places of ordinals into the processor's cache before they are added. In such a short loop, the
    /// processor loads many at once.
    pub fn fetch(&self, ordinals: &[u32]) {
        let places = ordinals.iter().map(|&ordinal| self.places[ordinal as usize]);
        std::hint::black_box(places.fold(0, std::ops::BitOr::bitor));
    }

    /// Adds a match of the search term itself.
    pub fn add_exact(&mut self, ordinal: u32, score: f64) {
        let exact = Match {
            ordinal,
            hits: 1,
            score,
            related_hits: 0,
            related_score: 0.0,
        };
        match self.place(ordinal) {
            Some(place) => self.list[place].add(&exact),
            None => self.push(exact),
        }
    }

    /// Adds a match of a related term, unless the ref has matched already. A novel is not one more time a book.
    pub fn add_related(&mut self, ordinal: u32, score: f64) {
        if self.place(ordinal).is_none() {
            self.push(Match {
                ordinal,
                hits: 1,
                score: 0.0,
                related_hits: 1,
                related_score: score,
            });
        }
    }

    /// Adds a match of a message through one of its refs. The best ref counts.
    pub fn add_best(&mut self, ordinal: u32, score: f64) {
        match self.place(ordinal) {
            Some(place) => {
                let known = &mut self.list[place];
                if score > known.score {
                    known.score = score;
                    known.hits += 1;
                }
            }
            None => self.add_exact(ordinal, score),
        }
    }

    /// The place of an ordinal in the list. A new ordinal gets the last place, with no hits and no score.
    pub fn place_of(&mut self, ordinal: u32) -> usize {
        self.place(ordinal).unwrap_or_else(|| {
            self.push(Match {
                ordinal,
                hits: 0,
                score: 0.0,
                related_hits: 0,
                related_score: 0.0,
            });
            self.list.len() - 1
        })
    }

    /// Adds the matches of another list.
    pub fn unite(&mut self, other: Matches) {
        if self.is_empty() {
            *self = other;
            return;
        }
        // This loop is separate because its lookups miss the caches, and the processor overlaps many of them only in a
        // short loop. Each ordinal occurs in `other` once, so adding one never moves the place of another.
        let places: Vec<Option<usize>> = other.list.iter().map(|found| self.place(found.ordinal)).collect();
        for (found, place) in other.list.iter().zip(places) {
            match place {
                Some(place) => self.list[place].add(found),
                None => self.push(*found),
            }
        }
    }

    /// Keeps the matches that are also in the other list, with the sum of their scores.
    pub fn intersect(&mut self, other: &Matches) {
        for known in &mut self.list {
            if let Some(found) = other.get(known.ordinal) {
                known.add(found);
            }
        }
        self.retain(|known| other.get(known.ordinal).is_some());
    }

    /// Adds the smoothed score of related terms to each score. Related terms are noisy and similar to each other, so
    /// ten of them count as their mean times the logarithm of eleven, and not as ten.
    pub fn total(&mut self) {
        for known in &mut self.list {
            known.score += smooth(known.related_score, known.related_hits);
        }
    }

    /// The largest number of hits of a match.
    pub fn hits_max(&self) -> u32 {
        self.list.iter().map(|known| known.hits).max().unwrap_or(0)
    }

    /// Keeps the matches for which `is_kept` holds.
    pub fn retain(&mut self, is_kept: impl Fn(&Match) -> bool) {
        let places = &mut self.places;
        let mut kept = 0;
        self.list.retain(|known| {
            let keep = is_kept(known);
            kept += u32::from(keep);
            places[known.ordinal as usize] = if keep { kept } else { 0 };
            keep
        });
    }

    /// The place of an ordinal in the list, if it has a match.
    fn place(&self, ordinal: u32) -> Option<usize> {
        let place = (self.places[ordinal as usize] as usize).checked_sub(1);
        debug_assert!(
            place.is_none_or(|place| self.list[place].ordinal == ordinal),
            "the place of an ordinal holds its match"
        );
        place
    }

    fn push(&mut self, new: Match) {
        assert_eq!(
            self.places[new.ordinal as usize], 0,
            "an ordinal has at most one match"
        );
        self.list.push(new);
        self.places[new.ordinal as usize] = self.list.len() as u32;
    }
}

/// Combines the total score of `hits` matches: their mean, times the logarithm of one more than their number.
pub fn smooth(score: f64, hits: u32) -> f64 {
    match hits {
        0 => 0.0,
        1 => score,
        hits => f64::from(hits + 1).ln() * score / f64::from(hits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(ordinals: &[u32]) -> Matches {
        let mut matches = Matches::new(10);
        for &ordinal in ordinals {
            matches.add_exact(ordinal, 1.0);
        }
        matches
    }

    fn ordinals(matches: &Matches) -> Vec<u32> {
        matches.iter().map(|found| found.ordinal).collect()
    }

    #[test]
    fn unites_and_intersects() {
        let mut left = matches(&[3, 1, 4]);
        left.unite(matches(&[4, 5]));
        assert_eq!(ordinals(&left), [3, 1, 4, 5]);
        assert_eq!(left.get(4).map(|found| found.hits), Some(2));
        left.intersect(&matches(&[4, 3, 9]));
        assert_eq!(ordinals(&left), [3, 4]);
        assert_eq!(left.get(1), None);
        left.add_exact(1, 1.0);
        assert_eq!(ordinals(&left), [3, 4, 1]);
        assert_eq!(left.hits_max(), 3);
    }

    #[test]
    fn a_related_match_counts_if_it_is_the_first() {
        let mut found = matches(&[2]);
        found.add_related(2, 0.9);
        found.add_related(7, 0.9);
        found.add_related(7, 0.8);
        found.total();
        assert_eq!(found.get(2).map(|found| found.score), Some(1.0));
        assert_eq!(
            found.get(7).map(|found| (found.hits, found.score)),
            Some((1, 0.9))
        );
    }
}
