//! Matched refs or messages with their scores.

use std::sync::{Mutex, PoisonError};

use crate::limits::{MATCHES_SPARE_BYTES_MAX, MATCHES_SPARE_MAX};

/// One match.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Match {
    /// The ref's or message's number.
    pub ordinal: u32,
    /// How many terms it matched. A match through a related term counts as one hit, where it is the first.
    pub hits: u32,
    /// The score of these matches.
    pub score: f64,
    /// How often it matched through a related term.
    pub related_hits: u32,
    /// The score of those matches.
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

/// Matches, each ref or message once, in the order in which they were found.
#[derive(Debug)]
pub struct Matches {
    list: Vec<Match>,
    /// By ordinal: 1 + the place in the list, or 0. At least as long as the ordinals of this use. A hash map was
    /// measured at four times the time for a term with 100,000 refs.
    places: Vec<u32>,
}

/// The memory of matches that are done with, all places 0. A recall over a million refs needs some ten of 4 MB each;
/// asked of the system anew every time, their pages were a third of its time.
static SPARE: Mutex<Vec<Matches>> = Mutex::new(Vec::new());

impl Drop for Matches {
    fn drop(&mut self) {
        let bytes = self.places.capacity() * size_of::<u32>() + self.list.capacity() * size_of::<Match>();
        if bytes == 0 || bytes > MATCHES_SPARE_BYTES_MAX {
            return;
        }
        let (mut list, mut places) = (std::mem::take(&mut self.list), std::mem::take(&mut self.places));
        // One after the other, unless there are so many that all of them are sooner.
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
    /// No matches, of ordinals below `end`.
    pub fn new(end: u32) -> Matches {
        let spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut matches = spare.unwrap_or(Matches {
            list: Vec::new(),
            places: Vec::new(),
        });
        if matches.places.len() < end as usize {
            matches.places.resize(end as usize, 0);
        }
        matches
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The matches, in the order in which they were found.
    pub fn iter(&self) -> std::slice::Iter<'_, Match> {
        self.list.iter()
    }

    /// The match of an ordinal.
    pub fn get(&self, ordinal: u32) -> Option<&Match> {
        let place = *self.places.get(ordinal as usize)? as usize;
        self.list.get(place.wrapping_sub(1))
    }

    /// Reads the places of ordinals that are added next into the processor's cache: in a loop as short as this one, it reads many
    /// at once.
    pub fn fetch(&self, ordinals: &[u32]) {
        let places = ordinals.iter().map(|&ordinal| self.places[ordinal as usize]);
        std::hint::black_box(places.fold(0, std::ops::BitOr::bitor));
    }

    /// Adds a match of the term itself.
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

    /// Adds a match of a related term, unless the ref matched already: what is a novel is not one more time a book.
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

    /// Adds a match of a message through one of its refs: the best counts.
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

    /// The place of an ordinal in the list, behind all others where it is new. Its match has no hits and no score then.
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

    /// Adds other matches of the same kind.
    pub fn unite(&mut self, other: Matches) {
        if self.is_empty() {
            *self = other;
            return;
        }
        // In a loop of its own: these lookups miss the caches, and the processor has many such under way only in a short loop.
        // Each ordinal is in `other` once, so that none of them moves another's place.
        let places: Vec<Option<usize>> = other.list.iter().map(|found| self.place(found.ordinal)).collect();
        for (found, place) in other.list.iter().zip(places) {
            match place {
                Some(place) => self.list[place].add(found),
                None => self.push(*found),
            }
        }
    }

    /// Intersects with the other matches.
    pub fn intersect(&mut self, other: &Matches) {
        for known in &mut self.list {
            if let Some(found) = other.get(known.ordinal) {
                known.add(found);
            }
        }
        self.retain(|known| other.get(known.ordinal).is_some());
    }

    /// Adds to every score what the related matches are worth: they are noisy and much alike, so that ten of them
    /// count as their mean times the logarithm of eleven, not as ten.
    pub fn total(&mut self) {
        for known in &mut self.list {
            known.score += smooth(known.related_score, known.related_hits);
        }
    }

    /// The most hits of any match.
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

    fn place(&self, ordinal: u32) -> Option<usize> {
        (self.places[ordinal as usize] as usize).checked_sub(1)
    }

    fn push(&mut self, new: Match) {
        self.list.push(new);
        self.places[new.ordinal as usize] = self.list.len() as u32;
    }
}

/// The worth of `hits` matches with a total score: their mean, times the logarithm of one more than their number.
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
    fn a_related_match_counts_where_it_is_the_first() {
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
