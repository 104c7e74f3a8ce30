//! The words of messages in the form of the word index: in lower case, without function words and accents, stemmed in
//! the language of the message. Both stores write these words, so that they find the same messages.
//!
//! The words of a speaker's name have a mark before them, because they say who wrote the message, and not what its
//! subject is.
//!
//! The deletion of a source computes the words of its messages by these rules again. So a change of the rules needs a
//! migration that rebuilds the index.

pub mod irregular;
pub mod language;

use std::collections::BTreeMap;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

use crate::limits::{WORD_CHARACTERS_MAX, WORD_REPEATS_MAX};
use crate::message::Message;
pub use language::{Language, Languages};

/// The mark before the words of speakers' names. No word of a text contains it.
const SPEAKER_MARK: char = '@';

/// The words of one message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MessageWords {
    /// The number of occurrences of each word, at most [`WORD_REPEATS_MAX`].
    pub counts: BTreeMap<String, u32>,
    /// Number of words without function words.
    pub length: u32,
    /// The language of its text.
    pub language: Language,
}

impl MessageWords {
    /// Gathers the words of a message's text and subject, and the words of its speaker's name.
    pub fn of(message: &Message) -> MessageWords {
        let texts = || message.text_chunks.iter().chain(&message.subject);
        let language = Language::of(texts().map(String::as_str));
        let mut words = MessageWords {
            language,
            ..MessageWords::default()
        };
        for word in texts().flat_map(|text| split(text)) {
            if !language.is_function_word(&word) {
                words.add(stem(&word, language));
                words.length = words.length.saturating_add(1);
            }
        }
        for letter in texts().flat_map(|text| single_characters(text)) {
            words.add(letter);
        }
        for word in message.speaker.iter().flat_map(|name| split(name)) {
            words.add(speaker_word(&word));
        }
        words
    }

    fn add(&mut self, word: String) {
        let count = self.counts.entry(word).or_default();
        *count = WORD_REPEATS_MAX.min(*count + 1);
    }
}

/// Splits a text into words in lower case. In scripts without spaces, every two adjacent characters are a word, and a
/// single one only where it stands alone.
pub fn split(text: &str) -> impl Iterator<Item = String> {
    text.split(|letter: char| !letter.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .flat_map(|word| {
            let word: String = if word.is_ascii() {
                word.to_ascii_lowercase()
            } else {
                word.nfkc().flat_map(char::to_lowercase).collect()
            };
            if word.chars().any(is_unspaced) {
                pairs(&word)
            } else {
                vec![word.chars().take(WORD_CHARACTERS_MAX).collect()]
            }
        })
}

/// The ideographs of a text, which are words beside the pairs: a question may name one alone. They do not count for the
/// length of a message, whose pairs have them already.
fn single_characters(text: &str) -> impl Iterator<Item = String> {
    let runs = text.split(|letter: char| !letter.is_alphanumeric());
    // A run of one character is a word already.
    let longer = runs.filter(|run| run.chars().nth(1).is_some() && !run.is_ascii());
    longer.flat_map(|run| {
        run.nfkc()
            .filter(|&letter| is_ideograph(letter))
            .map(String::from)
            .collect::<Vec<_>>()
    })
}

fn is_ideograph(letter: char) -> bool {
    matches!(letter, '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}')
}

/// Whether a character belongs to a script without spaces between words.
fn is_unspaced(letter: char) -> bool {
    matches!(letter, '\u{0e00}'..='\u{0eff}' | '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}')
}

fn pairs(word: &str) -> Vec<String> {
    let letters: Vec<char> = word.chars().collect();
    match letters.len() {
        0 | 1 => vec![word.to_owned()],
        _ => letters.windows(2).map(|pair| pair.iter().collect()).collect(),
    }
}

/// The indexed form of a word in a text of this language.
pub fn stem(word: &str, language: Language) -> String {
    let regular = match language {
        Language::English => irregular::base_form(word).unwrap_or(word),
        _ => word,
    };
    fold(&language.stem(regular))
}

/// The forms that a word of a question may have in the index: its stems in the languages of the messages.
pub fn stems(word: &str, languages: Languages) -> Vec<String> {
    let mut stems: Vec<String> = languages
        .iter()
        .filter(|language| !language.is_function_word(word))
        .map(|language| stem(word, language))
        .collect();
    stems.sort_unstable();
    stems.dedup();
    stems
}

/// The indexed form of a word of a speaker's name.
pub fn speaker_word(word: &str) -> String {
    format!("{SPEAKER_MARK}{}", fold(word))
}

/// Removes the accents of a word.
fn fold(word: &str) -> String {
    if word.is_ascii() {
        word.to_owned()
    } else {
        word.nfd().filter(|letter| !is_combining_mark(*letter)).collect()
    }
}

/// Finds the indexed word that a misspelt word most likely means. A letter may be missing, added, wrong or swapped with
/// the next one; in a word of more than seven letters, two letters. `known` is in order.
pub fn nearest_spelling<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let letters: Vec<char> = word.chars().collect();
    let faults_max = match letters.len() {
        0..=3 => return None,
        4..=7 => 1,
        _ => 2,
    };
    let mut best: Option<(usize, &str)> = None;
    for candidate in known {
        let faults = faults(&letters, &candidate.chars().collect::<Vec<char>>(), faults_max);
        if let Some(faults) = faults
            && best.is_none_or(|(fewest, _)| faults < fewest)
        {
            best = Some((faults, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// The beginning that words must share with a misspelt word to be compared with it.
pub fn spelling_prefix(word: &str) -> String {
    word.chars().take(2).collect()
}

/// Counts the letters that differ between two words (the optimal string alignment distance); `None` above `max`.
fn faults(left: &[char], right: &[char], max: usize) -> Option<usize> {
    if left.len().abs_diff(right.len()) > max {
        return None;
    }
    let mut before: Vec<usize> = Vec::new();
    let mut previous: Vec<usize> = (0..=right.len()).collect();
    for (row, &letter) in (1..).zip(left) {
        let mut current = vec![row; right.len() + 1];
        for (column, &other) in (1..).zip(right) {
            let mut least = (previous[column] + 1).min(current[column - 1] + 1);
            least = least.min(previous[column - 1] + usize::from(letter != other));
            if row > 1 && column > 1 && letter == right[column - 2] && left[row - 2] == other {
                least = least.min(before[column - 2] + 1);
            }
            current[column] = least;
        }
        before = std::mem::replace(&mut previous, current);
    }
    previous.last().copied().filter(|&faults| faults <= max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        MessageWords::of(&Message::new(text)).counts.into_keys().collect()
    }

    #[test]
    fn forms_of_a_word_are_the_same_word() {
        assert_eq!(words("The queens went running"), words("to go; a queen runs"));
        assert_eq!(
            words("She bought two children's books"),
            words("buy two books, child")
        );
    }

    #[test]
    fn words_are_stemmed_by_the_language_of_the_text() {
        let german = words("Die Häuser und die Bäume sind in der Stadt");
        assert!(german.contains(&"haus".to_owned()), "{german:?}");
        let asked = stems("häusern", Languages::of([Language::English, Language::German]));
        assert!(asked.contains(&"haus".to_owned()), "{asked:?}");
        assert_eq!(words("Москва и Москвы"), ["москв"]);
        assert_eq!(words("東京都"), ["京", "京都", "東", "東京", "都"]);
        assert_eq!(
            stems("京", Languages::of([Language::English])),
            ["京"],
            "one character of it is found"
        );
    }

    #[test]
    fn counts_words_and_marks_speakers() {
        let message = Message {
            speaker: Some("Ada King".to_owned()),
            subject: Some("Bees".to_owned()),
            ..Message::new(format!("The bee and the drum. {}", "drum ".repeat(1_000)))
        };
        let words = MessageWords::of(&message);
        assert_eq!(words.counts["bee"], 2);
        assert_eq!(words.counts["drum"], WORD_REPEATS_MAX);
        assert_eq!((words.counts["@ada"], words.counts["@king"]), (1, 1));
        assert_eq!(words.length, 1_003);
    }

    #[test]
    fn misspelt_words_are_corrected() {
        let known = ["babbag", "babi", "compar", "compil", "compos", "tchaikovski"];
        let nearest = |word| nearest_spelling(word, known);
        assert_eq!(nearest("babag"), Some("babbag"));
        assert_eq!(nearest("compilr"), Some("compil"));
        assert_eq!(nearest("copmil"), Some("compil"));
        assert_eq!(nearest("tchiakowski"), Some("tchaikovski"));
        assert_eq!(nearest("spider"), None);
        assert_eq!(nearest("bab"), None, "too short to tell");
    }
}
