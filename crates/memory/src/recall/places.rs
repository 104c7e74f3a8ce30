//! Unites copies of a message: the same mail in two mailboxes is one result with two places.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::Serialize;

use crate::message::Message;
use crate::recall::RecalledMessage;
use crate::store::StoredMessage;

/// Another place of a recalled message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OtherPlace {
    /// The name of the source.
    pub source: String,
    /// The position in the source.
    pub position: u32,
    /// The place in the source, as a person counts there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
}

/// Keeps the first of each message's copies, which gets the places of the others.
pub(super) fn unite(messages: Vec<RecalledMessage>) -> Vec<RecalledMessage> {
    let mut kept: Vec<RecalledMessage> = Vec::with_capacity(messages.len());
    let mut known: HashMap<u64, usize> = HashMap::with_capacity(messages.len());
    for message in messages {
        let first = known
            .entry(digest(&message.message.message))
            .or_insert(kept.len());
        match kept.get_mut(*first) {
            Some(first) if are_copies(&first.message, &message.message) => {
                let StoredMessage {
                    source,
                    position,
                    message,
                    ..
                } = message.message;
                first.also_in.push(OtherPlace {
                    source,
                    position,
                    place: message.place,
                });
            }
            _ => kept.push(message),
        }
    }
    kept
}

/// A digest that copies share: of the name that the message's own program gave it, or else of its text.
fn digest(message: &Message) -> u64 {
    let mut hasher = DefaultHasher::new();
    match &message.id {
        Some(id) => id.hash(&mut hasher),
        None => (&message.text_chunks, &message.speaker).hash(&mut hasher),
    }
    hasher.finish()
}

/// Whether two messages are one: they have the same id, or are equal and stand in different sources. Someone may say the
/// same twice in one source. The cut into chunks is no difference.
fn are_copies(left: &StoredMessage, right: &StoredMessage) -> bool {
    let (one, other) = (&left.message, &right.message);
    match (&one.id, &other.id) {
        (Some(id), Some(other_id)) => id == other_id && one.text() == other.text(),
        _ => left.source != right.source && one.is_same(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::MessageOrdinal;

    #[test]
    fn a_mail_in_two_mailboxes_is_one_message_with_two_places() {
        let message = |source: &str, position: u32, text: &str, id: Option<&str>| {
            let message = Message {
                id: id.map(str::to_owned),
                place: Some(format!("mail {position}")),
                ..Message::new(text)
            };
            let stored = StoredMessage {
                ordinal: MessageOrdinal(position),
                source: source.to_owned(),
                position,
                message,
            };
            RecalledMessage::new(1.0, stored)
        };
        let united = unite(vec![
            message("Inbox", 1, "Bees hum.", Some("1@bees")),
            message("All", 7, "Bees hum.", Some("1@bees")),
            message("Inbox", 2, "Yes.", None),
            message("Inbox", 3, "Yes.", None),
            message("All", 9, "Yes.", None),
            message("Inbox", 4, "Another text.", Some("1@bees")),
        ]);
        let places: Vec<(u32, Vec<u32>)> = united
            .iter()
            .map(|found| {
                let others = found.also_in.iter().map(|other| other.position);
                (found.message.position, others.collect())
            })
            .collect();
        assert_eq!(
            places,
            [(1, vec![7]), (2, vec![9]), (3, vec![]), (4, vec![])],
            "what someone says twice, and another text of the same name, stay"
        );
    }
}
