//! The first messages of a ranking, ranked again by what the words of the index do not say.
//!
//! A message that asks seldom answers. A message with rare words of those before it is likely about the same thing.

use std::collections::BTreeMap;

use crate::limits::{HEAD_LETTERS_MAX, HEAD_MESSAGES, LIKENESS_MESSAGES};
use crate::recall::RecalledMessage;
use crate::recall::weights::Weights;
use crate::words::{Language, split, stem};

/// The words of one message with their counts.
type Counts = BTreeMap<String, f64>;

/// Ranks the first messages again. They are sorted by score, best first.
pub(super) fn rerank(messages: &mut [RecalledMessage], weights: &Weights) {
    let best = messages.first().map_or(0.0, |message| message.score);
    if best <= 0.0 {
        return;
    }
    let head = messages.len().min(HEAD_MESSAGES);
    let likeness = likeness(&messages[..head]);
    for (message, likeness) in messages.iter_mut().zip(likeness) {
        message.score += weights.likeness * best * likeness;
    }
    for message in &mut *messages {
        if message.message.message.text().trim_end().ends_with('?') {
            message.score *= weights.question;
        }
    }
    // Stable: messages of equal scores stay in reading order.
    messages.sort_by(|left, right| right.score.total_cmp(&left.score));
}

/// The cosine of each message to the sum of the first ones, by words weighed by their rarity among these messages.
fn likeness(messages: &[RecalledMessage]) -> Vec<f64> {
    let counted: Vec<Counts> = messages
        .iter()
        .map(|message| counts(&message.message.message.text()))
        .collect();
    let mut standing: BTreeMap<&str, f64> = BTreeMap::new();
    for word in counted.iter().flat_map(BTreeMap::keys) {
        *standing.entry(word).or_default() += 1.0;
    }
    let all = messages.len() as f64;
    let vectors: Vec<BTreeMap<&str, f64>> = counted
        .iter()
        .map(|counts| {
            let weighed = counts.iter().map(|(word, count)| {
                let with_word = standing[word.as_str()];
                let rarity = (1.0 + (all - with_word + 0.5) / (with_word + 0.5)).ln();
                (word.as_str(), (1.0 + count.ln()) * rarity)
            });
            normed(weighed.collect())
        })
        .collect();
    let mut first: BTreeMap<&str, f64> = BTreeMap::new();
    for (message, vector) in messages.iter().zip(&vectors).take(LIKENESS_MESSAGES) {
        for (word, weight) in vector {
            *first.entry(word).or_default() += message.score * weight;
        }
    }
    let first = normed(first);
    let cosine = |vector: &BTreeMap<&str, f64>| {
        let common = vector
            .iter()
            .filter_map(|(word, weight)| Some(weight * first.get(word)?));
        common.sum()
    };
    vectors.iter().map(cosine).collect()
}

fn normed(mut vector: BTreeMap<&str, f64>) -> BTreeMap<&str, f64> {
    let length = vector.values().map(|weight| weight * weight).sum::<f64>().sqrt();
    if length > 0.0 {
        vector.values_mut().for_each(|weight| *weight /= length);
    }
    vector
}

fn counts(text: &str) -> Counts {
    let text: String = text.chars().take(HEAD_LETTERS_MAX).collect();
    let language = Language::of([text.as_str()].into_iter());
    let mut counts = Counts::new();
    for word in split(&text).filter(|word| !language.is_function_word(word)) {
        *counts.entry(stem(&word, language)).or_default() += 1.0;
    }
    counts
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
    fn a_message_that_asks_comes_after_one_that_tells() {
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
    fn a_message_like_the_first_ones_rises() {
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
