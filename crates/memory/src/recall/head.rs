//! Ranks the first messages again, by features that the word index lacks.
//!
//! A message that ends with a question seldom answers one. A message that shares rare words with the first messages is
//! likely about the same subject.

use std::collections::HashMap;

use crate::limits::{HEAD_LETTERS_MAX, HEAD_MESSAGES, LIKENESS_MESSAGES};
use crate::recall::RecalledMessage;
use crate::recall::weights::Weights;
use crate::words::{Language, split, stem};

/// Ranks the first messages again. They come sorted by score, best first.
pub(super) fn rerank(messages: &mut [RecalledMessage], weights: &Weights) {
    let best = messages.first().map_or(0.0, |message| message.score);
    if best <= 0.0 {
        return;
    }
    let head = messages.len().min(HEAD_MESSAGES);
    let likeness = likeness(&messages[..head]);
    assert_eq!(likeness.len(), head, "each message of the head has a likeness");
    for (message, likeness) in messages.iter_mut().zip(likeness) {
        message.score += weights.likeness * best * likeness;
    }
    for message in &mut *messages {
        if message.message.message.text().trim_end().ends_with('?') {
            message.score *= weights.question;
        }
    }
    // The sort is stable, so messages with equal scores stay in reading order.
    messages.sort_by(|left, right| right.score.total_cmp(&left.score));
}

/// Computes the cosine of each message to the sum of the first messages. The weight of a word is its rarity among these
/// messages.
fn likeness(messages: &[RecalledMessage]) -> Vec<f64> {
    let mut stems = Stems::default();
    let mut vectors: Vec<Vector> = messages
        .iter()
        .map(|message| stems.counts(&message.message.message.text()))
        .collect();
    let mut with_word = vec![0.0_f64; stems.numbers.len()];
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
    /// Counts each stem of a text.
    fn counts(&mut self, text: &str) -> Vector {
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
        numbers.sort_unstable();
        let counts = numbers.chunk_by(|left, right| left == right);
        counts.map(|same| (same[0], same.len() as f64)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Message, MessageOrdinal};
    use crate::store::StoredMessage;

    fn reranked(texts: &[(&str, f64)], weights: Weights) -> Vec<String> {
        let messages = (0..).zip(texts).map(|(number, (text, score))| RecalledMessage {
            score: *score,
            message: StoredMessage {
                ordinal: MessageOrdinal(number),
                source: "chat".to_owned(),
                position: number,
                message: Message::new(*text),
            },
        });
        let mut messages: Vec<RecalledMessage> = messages.collect();
        rerank(&mut messages, &weights);
        assert!(messages.is_sorted_by(|left, right| left.score >= right.score));
        messages
            .into_iter()
            .map(|found| found.message.message.text())
            .collect()
    }

    #[test]
    fn a_question_comes_after_a_statement() {
        let texts = [
            ("Do bees sleep?", 1.0),
            ("Bees sleep.", 0.95),
            ("Drums wake.", 0.1),
        ];
        let kept = Weights {
            likeness: 0.0,
            question: 1.0,
            ..Weights::default()
        };
        assert_eq!(reranked(&texts, kept)[0], "Do bees sleep?");
        let lowered = Weights {
            question: 0.8,
            ..kept
        };
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
        let kept = Weights {
            likeness: 0.0,
            question: 1.0,
            ..Weights::default()
        };
        assert_eq!(reranked(&texts, kept)[5], "Nothing");
        let raised = Weights {
            likeness: 0.8,
            ..kept
        };
        assert_eq!(reranked(&texts, raised)[6], "Nothing");
        assert!(reranked(&[], raised).is_empty());
    }
}
