//! How alike two terms are written: by the stems of their words, and by trigrams where a word is unknown.

use std::collections::BTreeSet;

use rust_stemmers::{Algorithm, Stemmer};

/// Words that say nothing about what a term means.
const STOP_WORDS: [&str; 40] = [
    "a", "an", "and", "are", "as", "at", "be", "been", "but", "by", "did", "do", "does", "for", "from",
    "had", "has", "have", "he", "her", "his", "i", "in", "is", "it", "its", "my", "of", "on", "or", "she",
    "that", "the", "their", "they", "this", "to", "was", "were", "with",
];

/// Terms that have less in common than this are not related. The share of common stems in all stems.
const SHARE_MIN: f64 = 0.5;

/// Words whose trigrams have less in common than this are not the same word misspelt.
const DICE_MIN: f64 = 0.5;

/// Whether a word says nothing about what a term means. In lower case.
pub fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.binary_search(&word).is_ok()
}

/// The distinct stems of a term's words, in order, without stop words. The term is in lower case.
pub fn stems(term: &str) -> Vec<String> {
    let stemmer = Stemmer::create(Algorithm::English);
    let words: BTreeSet<String> = term
        .split(|letter: char| !letter.is_alphanumeric())
        .filter(|word| !word.is_empty() && !is_stop_word(word))
        .map(|word| stemmer.stem(word).into_owned())
        .collect();
    words.into_iter().collect()
}

/// How near two terms are by the stems of their words, from 0.5 to 1; `None` for too far. Terms with the same stems
/// are at 0.96, as good as the same.
pub fn stem_weight(left: &[String], right: &[String]) -> Option<f64> {
    let common = left.iter().filter(|stem| right.contains(stem)).count();
    let all = left.len() + right.len() - common;
    let share = common as f64 / all.max(1) as f64;
    (share >= SHARE_MIN).then_some(0.36_f64.mul_add(share, 0.6))
}

/// How near two words are by their trigrams, from 0.5 to 1; `None` for too far.
pub fn trigram_weight(left: &str, right: &str) -> Option<f64> {
    let (left, right) = (trigrams(left), trigrams(right));
    let common = left.intersection(&right).count();
    let dice = 2.0 * common as f64 / (left.len() + right.len()).max(1) as f64;
    (dice >= DICE_MIN).then_some(dice)
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
    fn weighs_by_common_words() {
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
