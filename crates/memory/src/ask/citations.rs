//! The messages that support an answer.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::ask::shown;
use crate::message::MessageOrdinal;
use crate::recall::RecalledMessage;
use crate::words::{Language, split, stem};

/// Maximum number of messages that are cited for sharing the words of an answer.
const SUPPORTING_MAX: usize = 3;

/// A message supports an answer if it has at least this share of the answer's words.
const SUPPORT_SHARE_MIN: f64 = 0.5;

/// Words that answers have and messages lack.
const ANSWERING: [&str; 2] = ["no", "yes"];

/// A message that supports an answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Citation {
    /// The number of the message in the answer's text.
    pub number: usize,
    /// The message.
    #[serde(flatten)]
    pub message: RecalledMessage,
}

impl Citation {
    /// The message's number in the knowledge base.
    pub fn ordinal(&self) -> MessageOrdinal {
        self.message.message.ordinal
    }
}

/// Cites the messages whose numbers the model named, and whose numbers stand in brackets in the text; each once.
pub(super) fn cited(told: impl Iterator<Item = u64>, text: &str, shown: &[RecalledMessage]) -> Vec<Citation> {
    let in_text = text.split('[').skip(1).filter_map(|rest| {
        let (number, _) = rest.split_once(']')?;
        number.trim().parse::<u64>().ok()
    });
    let mut citations: Vec<Citation> = Vec::new();
    for number in told.chain(in_text) {
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        let is_new = |citation: &Citation| citation.number != number;
        if let Some(message) = number.checked_sub(1).and_then(|at| shown.get(at))
            && citations.iter().all(is_new)
        {
            citations.push(Citation {
                number,
                message: message.clone(),
            });
        }
    }
    assert!(
        citations
            .iter()
            .all(|citation| (1..=shown.len()).contains(&citation.number)),
        "only shown messages are cited"
    );
    citations
}

/// Finds the messages that share the words of an answer, most shared words first. The question's words count only if
/// the answer has no others.
pub(super) fn supporting(answer: &str, question: &str, messages: &[RecalledMessage]) -> Vec<Citation> {
    let mut told = stems_of(answer);
    told.retain(|word| !ANSWERING.contains(&word.as_str()));
    let asked = stems_of(question);
    if told.iter().any(|word| !asked.contains(word)) {
        told.retain(|word| !asked.contains(word));
    }
    let share = |number: usize, message: &RecalledMessage| {
        let said = stems_of(&shown(number, message));
        told.intersection(&said).count() as f64 / told.len().max(1) as f64
    };
    let shares = (1..).zip(messages).map(|(number, message)| {
        let citation = Citation {
            number,
            message: message.clone(),
        };
        (share(number, message), citation)
    });
    let mut supporting: Vec<(f64, Citation)> =
        shares.filter(|(share, _)| *share >= SUPPORT_SHARE_MIN).collect();
    debug_assert!(
        supporting.iter().all(|(share, _)| *share <= 1.0),
        "a message has at most all words of an answer"
    );
    // The sort is stable: among equal shares, the better message stays first.
    supporting.sort_by(|left, right| right.0.total_cmp(&left.0));
    supporting.truncate(SUPPORTING_MAX);
    supporting.into_iter().map(|(_, citation)| citation).collect()
}

/// The words of a text with content, in the form of the word index.
fn stems_of(text: &str) -> BTreeSet<String> {
    let words: Vec<String> = split(text).collect();
    let language = Language::of([text].into_iter());
    let words = words.iter().filter(|word| !language.is_function_word(word));
    words.map(|word| stem(word, language)).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::message::Message;
    use crate::store::StoredMessage;

    /// Makes messages with these texts.
    pub fn recalled(texts: &[&str]) -> Vec<RecalledMessage> {
        let messages = (0..).zip(texts).map(|(ordinal, text)| {
            let stored = StoredMessage {
                ordinal: MessageOrdinal(ordinal),
                source: "notes".to_owned(),
                position: ordinal,
                message: Message::new(*text),
            };
            RecalledMessage::new(1.0, stored)
        });
        messages.collect()
    }

    fn numbers(citations: &[Citation]) -> Vec<usize> {
        citations.iter().map(|citation| citation.number).collect()
    }

    #[test]
    fn only_shown_messages_are_cited() {
        let recalled = recalled(&["One.", "Two.", "Three."]);
        let found = cited(
            [2, 9, 0].into_iter(),
            "As [1] says, and [2], [17], [x].",
            &recalled,
        );
        assert_eq!(numbers(&found), [2, 1]);
        assert_eq!(found[0].ordinal(), MessageOrdinal(1));
    }

    #[test]
    fn a_message_with_the_words_of_an_answer_supports_it() {
        let recalled = recalled(&[
            "Who keeps bees here?",
            "The bees belong to Ada, on her roof.",
            "Ada built drums.",
        ]);
        let found = |answer: &str| numbers(&supporting(answer, "Who keeps bees?", &recalled));
        assert_eq!(found("Ada keeps the bees on roofs."), [2, 3]);
        assert_eq!(found("Ada's roof."), [2, 3]);
        assert_eq!(found("Somebody keeps bees."), Vec::<usize>::new());
        assert_eq!(found("Yes, bees are kept."), [1, 2]);
        assert_eq!(found("Cleo, in Bergen."), Vec::<usize>::new());
        assert_eq!(found("Yes."), Vec::<usize>::new());
    }
}
