//! Unites copies of a message: the same mail in two mailboxes is one result with two places.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::Serialize;

use crate::message::Message;
use crate::recall::RecalledMessage;
use crate::store::StoredMessage;

/// Bytes of a text from which the same text in another source is a copy, if neither has an id or a time.
const COPY_BYTES_MIN: usize = 80;

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

/// A digest that copies share: of the text with the name that the message's own program gave it, or else with speaker and time.
fn digest(message: &Message) -> u64 {
    let mut hasher = DefaultHasher::new();
    match &message.id {
        Some(id) => (id, message.text()).hash(&mut hasher),
        None => (&message.text_chunks, &message.speaker, &message.moment).hash(&mut hasher),
    }
    hasher.finish()
}

/// Whether two messages are one: they have the same id, or are equal and stand in different sources. A short text without a time
/// may stand in many sources by itself.
fn are_copies(left: &StoredMessage, right: &StoredMessage) -> bool {
    let (one, other) = (&left.message, &right.message);
    match (&one.id, &other.id) {
        (Some(id), Some(other_id)) => id == other_id && one.text() == other.text(),
        _ => {
            let is_its_own = one.moment.is_some() || one.text_bytes() >= COPY_BYTES_MIN;
            left.source != right.source && is_its_own && one.is_same(other)
        }
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
        let long =
            "Bees hum all day, and they drum at night, and nobody knows why, for they do not tell anyone.";
        let united = unite(vec![
            message("Inbox", 1, "Bees hum.", Some("1@bees")),
            message("All", 7, "Bees hum.", Some("1@bees")),
            message("Inbox", 2, long, None),
            message("Inbox", 3, long, None),
            message("All", 9, long, None),
            message("Inbox", 4, "Another text.", Some("1@bees")),
            message("Inbox", 5, "Yes.", None),
            message("All", 6, "Yes.", None),
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
            [
                (1, vec![7]),
                (2, vec![9]),
                (3, vec![]),
                (4, vec![]),
                (5, vec![]),
                (6, vec![]),
            ],
            "what someone says twice, another text of the same name, and a short text stay"
        );
    }
}
