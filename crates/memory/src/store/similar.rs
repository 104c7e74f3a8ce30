//! The similarity of two terms: by the stems of their words, and by trigrams if a word is unknown.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use rust_stemmers::{Algorithm, Stemmer};

use crate::limits::SIMILAR_TERMS_MAX;
use crate::store::RelatedTerm;

/// Words that add no meaning to a term.
const STOP_WORDS: [&str; 40] = [
    "a", "an", "and", "are", "as", "at", "be", "been", "but", "by", "did", "do", "does", "for", "from",
    "had", "has", "have", "he", "her", "his", "i", "in", "is", "it", "its", "my", "of", "on", "or", "she",
    "that", "the", "their", "they", "this", "to", "was", "were", "with",
];

/// Minimum share of common stems in all stems of two related terms.
const SHARE_MIN: f64 = 0.5;

/// Minimum similarity of the trigrams of two words of which one is a misspelling.
const DICE_MIN: f64 = 0.5;

/// Whether a word in lower case adds no meaning to a term.
pub fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.binary_search(&word).is_ok()
}

/// Lists the distinct stems of a term in lower case, in order, without stop words.
pub fn stems(term: &str) -> Vec<String> {
    let stemmer = Stemmer::create(Algorithm::English);
    let words: BTreeSet<String> = term
        .split(|letter: char| !letter.is_alphanumeric())
        .filter(|word| !word.is_empty() && !is_stop_word(word))
        .map(|word| stemmer.stem(word).into_owned())
        .collect();
    words.into_iter().collect()
}

/// The nearness of two terms by the stems of their words, from 0.5 to 1; `None` if they are too far apart. Terms with
/// the same stems have 0.96, which counts as the same term.
pub fn stem_weight(left: &[String], right: &[String]) -> Option<f64> {
    let common = left.iter().filter(|stem| right.contains(stem)).count();
    let all = left.len() + right.len() - common;
    let share = common as f64 / all.max(1) as f64;
    (share >= SHARE_MIN).then_some(0.36_f64.mul_add(share, 0.6))
}

/// The nearness of two words by their trigrams, from 0.5 to 1; `None` if they are too far apart.
pub fn trigram_weight(left: &str, right: &str) -> Option<f64> {
    let (left, right) = (trigrams(left), trigrams(right));
    let common = left.intersection(&right).count();
    let dice = 2.0 * common as f64 / (left.len() + right.len()).max(1) as f64;
    (dice >= DICE_MIN).then_some(dice)
}

/// Lists the words of a text without stop words.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric())
        .filter(|word| !word.is_empty() && !is_stop_word(&word.to_lowercase()))
}

/// The maximum number of words of a related term. Longer terms have too few stems in common with `wanted`.
pub(super) fn words_max(wanted: &[String]) -> u32 {
    wanted.len() as u32 * 2
}

/// Sorts terms that share a stem with `term`, nearest first, without the term itself. `wanted` has the stems of the term.
pub(super) fn nearest(term: &str, wanted: &[String], candidates: BTreeSet<String>) -> Vec<RelatedTerm> {
    let weighed = candidates.into_iter().map(|text| {
        let weight = stem_weight(wanted, &stems(&text));
        (text, weight)
    });
    best(term, weighed)
}

/// Finds the terms that consist of the corrected word alone. `nearness` is the nearness of the misspelt word to it.
pub(super) fn misspelt(
    term: &str,
    corrected: &str,
    nearness: f64,
    candidates: BTreeSet<String>,
) -> Vec<RelatedTerm> {
    let weighed = candidates.into_iter().map(|text| {
        let found = stems(&text);
        let weight = (found == [corrected])
            .then(|| stem_weight(&found, &found))
            .flatten();
        (text, weight.map(|weight| weight * nearness))
    });
    best(term, weighed)
}

fn best(term: &str, weighed: impl Iterator<Item = (String, Option<f64>)>) -> Vec<RelatedTerm> {
    let near = weighed.filter(|(text, weight)| weight.is_some() && text != term);
    let mut related: Vec<RelatedTerm> = near.map(|(text, weight)| RelatedTerm { text, weight }).collect();
    related.sort_by(|left, right| {
        let by_weight = right.weight.partial_cmp(&left.weight);
        by_weight
            .unwrap_or(Ordering::Equal)
            .then_with(|| left.text.cmp(&right.text))
    });
    related.truncate(SIMILAR_TERMS_MAX);
    related
}

/// The beginning that stems must share with a misspelt word to be compared with it.
pub(super) fn stem_prefix(word: &str) -> String {
    word.chars().take(2).collect()
}

/// Finds the stem with the spelling nearest to a word, and its nearness. The stems are in order.
pub(super) fn nearest_stem(word: &str, stems: Vec<String>) -> Option<(String, f64)> {
    let mut best = None::<(String, f64)>;
    for stem in stems {
        if let Some(weight) = trigram_weight(word, &stem)
            && best.as_ref().is_none_or(|(_, so_far)| weight > *so_far)
        {
            best = Some((stem, weight));
        }
    }
    best
}

fn trigrams(word: &str) -> BTreeSet<[char; 3]> {
    let letters: Vec<char> = std::iter::once(' ')
        .chain(word.chars())
        .chain(std::iter::once(' '))
        .collect();
    letters
        .windows(3)
        .map(|window| [window[0], window[1], window[2]])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stop_words_are_sorted() {
        assert!(STOP_WORDS.is_sorted());
    }

    #[test]
    fn terms_are_weighted_by_their_common_words() {
        let weight = |left: &str, right: &str| stem_weight(&stems(left), &stems(right));
        assert!(weight("spider", "spiders") >= Some(0.95));
        assert!(weight("the future of spiders", "future spider") >= Some(0.95));
        let half = weight("jumping spider", "spiders").expect("one of two words");
        assert!(half < 0.95);
        assert_eq!(weight("jumping spider", "portia labiata"), None);
        assert_eq!(weight("of the", "of the"), None, "nothing to go by");
    }

    #[test]
    fn finds_a_misspelt_word() {
        assert!(trigram_weight("tchaikovsky", "tchaikovski").is_some());
        assert_eq!(trigram_weight("spider", "bird"), None);
    }
}
