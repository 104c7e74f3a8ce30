//! Ranks the first messages again, by features that the word index lacks.
//!
//! In a dialogue, a message that ends with a question seldom answers one. A message that shares rare words with the first messages is
//! likely about the same subject. A message counts more if its subject has the words of the question, if its text has most of
//! them, and if neighbouring words of the question stand near each other there. The second and third message of a thread
//! give way to the first of another.

use std::collections::HashMap;

use crate::limits::{HEAD_LETTERS_MAX, HEAD_MESSAGES, LIKENESS_MESSAGES, NEAR_WORDS_MAX};
use crate::recall::RecalledMessage;
use crate::recall::text::AskedWord;
use crate::recall::weights::{KindWeights, Weights};
use crate::source::SourceKind;
use crate::store::Columns;
use crate::words::{Language, split, stem};

/// Ranks the first messages again. They come sorted by score, best first. `asked` has the words of the question.
pub(super) fn rerank(
    messages: &mut [RecalledMessage],
    weights: &Weights,
    asked: &[AskedWord],
    columns: &Columns,
) {
    let best = messages.first().map_or(0.0, |message| message.score);
    if best <= 0.0 {
        return;
    }
    let head = messages.len().min(HEAD_MESSAGES);
    let mut stems = Stems::default();
    let texts: Vec<Text> = messages[..head]
        .iter()
        .map(|message| Text::of(message, columns, &mut stems))
        .collect();
    let likeness = likeness(&messages[..head], &texts, stems.numbers.len());
    assert_eq!(likeness.len(), head, "each message of the head has a likeness");
    let asked = Asked::of(asked, &stems);
    for ((message, text), likeness) in messages.iter_mut().zip(&texts).zip(likeness) {
        let weights = weights.of(columns.source_kind(message.message.ordinal.0));
        let KindWeights {
            subject,
            coverage,
            nearness,
            ..
        } = *weights;
        let gained = [
            ("likeness", weights.likeness * likeness),
            ("subject", subject * asked.share_in(&text.subject)),
            ("coverage", coverage * asked.share_in_all(text).powi(2)),
            ("nearness", nearness * asked.nearness(&text.words)),
        ];
        for (name, share) in gained {
            message.gain(name, best * share);
        }
    }
    for message in &mut *messages {
        let factor = weights
            .of(columns.source_kind(message.message.ordinal.0))
            .question;
        if message.message.message.text().trim_end().ends_with('?') {
            message.gain("question", message.score * (factor - 1.0));
        }
    }
    sort(messages);
    let conversations = columns.conversations();
    let mut seen: HashMap<u32, i32> = HashMap::new();
    for message in &mut messages[..head] {
        let ordinal = message.message.ordinal.0;
        let repeated = weights.of(columns.source_kind(ordinal)).repeated;
        if ordinal < columns.message_end() && repeated < 1.0 {
            let better = seen.entry(conversations.of(ordinal)).or_default();
            message.gain("repeated", message.score * (repeated.powi(*better) - 1.0));
            *better += 1;
        }
    }
    sort(messages);
}

/// Sorts by score. The sort is stable, so messages with equal scores stay in reading order.
fn sort(messages: &mut [RecalledMessage]) {
    messages.sort_by(|left, right| right.score.total_cmp(&left.score));
}

/// The words of a message and of its subject, by their numbers and in reading order.
struct Text {
    words: Vec<usize>,
    subject: Vec<usize>,
}

impl Text {
    fn of(message: &RecalledMessage, columns: &Columns, stems: &mut Stems) -> Text {
        let stored = &message.message;
        let mut subject = stored.message.subject.clone().unwrap_or_default();
        if columns.source_kind(stored.ordinal.0) == SourceKind::Document {
            // The name of a document often says what it is about, and its sections do not repeat it.
            subject.push(' ');
            subject.push_str(stored.source.rsplit('/').next().unwrap_or_default());
        }
        Text {
            words: stems.numbers_of(&stored.message.text()),
            subject: stems.numbers_of(&subject),
        }
    }
}

/// The words of the question, with the numbers of their forms in the first messages.
struct Asked {
    words: Vec<(Vec<usize>, f64)>,
    whole: f64,
}

impl Asked {
    fn of(asked: &[AskedWord], stems: &Stems) -> Asked {
        let numbers = |word: &AskedWord| {
            let forms = word.forms.iter();
            let numbers = forms.filter_map(|form| stems.numbers.get(form)).copied();
            (numbers.collect(), word.weight)
        };
        Asked {
            words: asked.iter().map(numbers).collect(),
            whole: asked
                .iter()
                .map(|word| word.weight)
                .sum::<f64>()
                .max(f64::MIN_POSITIVE),
        }
    }

    /// The share of the question's words, by weight, that are in a text.
    fn share(&self, is_in: impl Fn(&usize) -> bool) -> f64 {
        let found = self
            .words
            .iter()
            .filter(|(numbers, _)| numbers.iter().any(&is_in));
        found.map(|(_, weight)| weight).sum::<f64>() / self.whole
    }

    fn share_in(&self, words: &[usize]) -> f64 {
        self.share(|number| words.contains(number))
    }

    fn share_in_all(&self, text: &Text) -> f64 {
        self.share(|number| text.words.contains(number) || text.subject.contains(number))
    }

    /// How near neighbouring words of the question are in a text: from 0, where none are near, to 1, where all stand side by
    /// side.
    fn nearness(&self, words: &[usize]) -> f64 {
        let places: Vec<Vec<usize>> = self
            .words
            .iter()
            .map(|(numbers, _)| {
                let places = words.iter().enumerate();
                let found = places.filter(|(_, word)| numbers.contains(word));
                found.map(|(place, _)| place).collect()
            })
            .collect();
        let (mut near, mut whole) = (0.0, 0.0);
        for (pair, words) in places.windows(2).zip(self.words.windows(2)) {
            let weight = words[0].1.min(words[1].1);
            whole += weight;
            if let Some(apart) = least_distance(&pair[0], &pair[1]).filter(|&apart| apart <= NEAR_WORDS_MAX) {
                near += weight / apart as f64;
            }
        }
        if whole > 0.0 { near / whole } else { 0.0 }
    }
}

/// The least distance, from 1, between two ascending lists of places.
fn least_distance(left: &[usize], right: &[usize]) -> Option<usize> {
    let (mut at, mut beside, mut least) = (0, 0, None);
    while let (Some(one), Some(other)) = (left.get(at), right.get(beside)) {
        let apart = one.abs_diff(*other).max(1);
        least = Some(least.map_or(apart, |least: usize| least.min(apart)));
        if one < other {
            at += 1;
        } else {
            beside += 1;
        }
    }
    least
}

/// Computes the cosine of each message to the sum of the first messages. The weight of a word is its rarity among these
/// messages.
fn likeness(messages: &[RecalledMessage], texts: &[Text], words: usize) -> Vec<f64> {
    let mut vectors: Vec<Vector> = texts.iter().map(|text| counts(&text.words)).collect();
    let mut with_word = vec![0.0_f64; words];
    for &(word, _) in vectors.iter().flatten() {
        with_word[word] += 1.0;
    }
    let all = messages.len() as f64;
    let rarity = |with_word: f64| (1.0 + (all - with_word + 0.5) / (with_word + 0.5)).ln();
    let rarities: Vec<f64> = with_word.into_iter().map(rarity).collect();
    for vector in &mut vectors {
        for (word, weight) in &mut *vector {
            *weight = (1.0 + weight.ln()) * rarities[*word];
        }
        let length = length(vector.iter().map(|(_, weight)| *weight));
        vector.iter_mut().for_each(|(_, weight)| *weight /= length);
    }
    let mut first = vec![0.0; rarities.len()];
    for (message, vector) in messages.iter().zip(&vectors).take(LIKENESS_MESSAGES) {
        for &(word, weight) in vector {
            first[word] += message.score * weight;
        }
    }
    let length = length(first.iter().copied());
    first.iter_mut().for_each(|weight| *weight /= length);
    let cosine = |vector: &Vector| vector.iter().map(|&(word, weight)| weight * first[word]).sum();
    vectors.iter().map(cosine).collect()
}

/// Weights of words, by the words' numbers. Each word occurs once.
type Vector = Vec<(usize, f64)>;

/// Counts each word.
fn counts(words: &[usize]) -> Vector {
    let mut words = words.to_vec();
    words.sort_unstable();
    let counts = words.chunk_by(|left, right| left == right);
    counts.map(|same| (same[0], same.len() as f64)).collect()
}

/// The length of a vector; 1 for the zero vector, so that it can be divided by.
fn length(weights: impl Iterator<Item = f64>) -> f64 {
    let length = weights.map(|weight| weight * weight).sum::<f64>().sqrt();
    if length > 0.0 { length } else { 1.0 }
}

/// Numbers for the stems of some messages.
#[derive(Default)]
struct Stems {
    numbers: HashMap<String, usize>,
    /// The stem of each word that was looked up, by language; `None` for function words.
    of_words: HashMap<Language, HashMap<String, Option<usize>>>,
}

impl Stems {
    /// The numbers of the stems of a text, in reading order.
    fn numbers_of(&mut self, text: &str) -> Vec<usize> {
        let end = text
            .char_indices()
            .nth(HEAD_LETTERS_MAX)
            .map_or(text.len(), |(end, _)| end);
        let words: Vec<String> = split(&text[..end]).collect();
        let language = Language::of_words(words.iter().map(String::as_str));
        let of_words = self.of_words.entry(language).or_default();
        let mut numbers: Vec<usize> = Vec::with_capacity(words.len());
        for word in words {
            let number = match of_words.get(&word) {
                Some(known) => *known,
                None => {
                    let next = self.numbers.len();
                    let number = (!language.is_function_word(&word))
                        .then(|| *self.numbers.entry(stem(&word, language)).or_insert(next));
                    of_words.insert(word, number);
                    number
                }
            };
            numbers.extend(number);
        }
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Message, MessageOrdinal};
    use crate::store::StoredMessage;

    fn reranked(texts: &[(&str, f64)], weights: Weights) -> Vec<String> {
        let messages = (0..).zip(texts).map(|(number, (text, score))| {
            let stored = StoredMessage {
                ordinal: MessageOrdinal(number),
                source: "chat".to_owned(),
                position: number,
                message: Message::new(*text),
            };
            RecalledMessage::new(*score, stored)
        });
        let mut messages: Vec<RecalledMessage> = messages.collect();
        rerank(&mut messages, &weights, &[], &Columns::default());
        assert!(messages.is_sorted_by(|left, right| left.score >= right.score));
        messages
            .into_iter()
            .map(|found| found.message.message.text())
            .collect()
    }

    /// Only these weights of dialogues.
    fn dialogue(likeness: f64, question: f64) -> Weights {
        let mut weights = Weights::default();
        weights.kinds[0] = KindWeights {
            likeness,
            question,
            ..KindWeights::default()
        };
        weights
    }

    #[test]
    fn words_of_the_question_count_more_side_by_side_and_in_the_subject() {
        let mut stems = Stems::default();
        let number = |stems: &mut Stems, text: &str| stems.numbers_of(text);
        let (beside, apart) = (
            number(&mut stems, "the random numbers"),
            number(&mut stems, "numbers of bees and hives at random"),
        );
        let word = |form: &str, weight| AskedWord {
            forms: vec![form.to_owned()],
            weight,
        };
        let asked = Asked::of(
            &[word("random", 2.0), word("number", 1.0), word("drum", 1.0)],
            &stems,
        );
        assert!((asked.share_in(&beside) - 0.75).abs() < 1e-9);
        assert!(asked.nearness(&beside) > asked.nearness(&apart));
        assert!(asked.nearness(&[]) == 0.0 && least_distance(&[1, 9], &[4, 10]) == Some(1));
    }

    #[test]
    fn a_question_comes_after_a_statement() {
        let texts = [
            ("Do bees sleep?", 1.0),
            ("Bees sleep.", 0.95),
            ("Drums wake.", 0.1),
        ];
        let kept = dialogue(0.0, 1.0);
        assert_eq!(reranked(&texts, kept)[0], "Do bees sleep?");
        let lowered = dialogue(0.0, 0.8);
        assert_eq!(
            reranked(&texts, lowered),
            ["Bees sleep.", "Do bees sleep?", "Drums wake."]
        );
    }

    #[test]
    fn a_message_like_the_first_ones_moves_up() {
        let texts = [
            ("Honey from the hive tastes of heather", 5.0),
            ("The hive has honey", 4.9),
            ("Heather flowers", 4.8),
            ("A hive of heather bees", 4.7),
            ("Honey jars", 4.6),
            ("Nothing", 2.0),
            ("Heather honey sells well", 1.7),
        ];
        let kept = dialogue(0.0, 1.0);
        assert_eq!(reranked(&texts, kept)[5], "Nothing");
        let raised = dialogue(0.8, 1.0);
        assert_eq!(reranked(&texts, raised)[6], "Nothing");
        assert!(reranked(&[], raised).is_empty());
    }
}
