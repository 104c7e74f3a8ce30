//! Conversations in transcripts and subtitles: turns of speakers, to which all the others listen.

use std::collections::BTreeSet;

use gristmill_model::Timestamp;

use crate::message::{Message, Moment};
use crate::source::ReadOptions;
use crate::source::chunk::split_if_long;

/// Words that one speaker says without interruption.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Turn {
    /// The speaker, if the turn has a name.
    pub speaker: Option<String>,
    /// The words.
    pub text: String,
    /// The time since the beginning of the recording, in milliseconds.
    pub start_ms: Option<i64>,
}

/// Makes messages of turns. Everyone who speaks in any turn listens to all other turns.
pub fn messages(turns: Vec<Turn>, options: &ReadOptions) -> Vec<Message> {
    let speakers: BTreeSet<String> = turns.iter().filter_map(|turn| turn.speaker.clone()).collect();
    let messages = turns.into_iter().map(|turn| Message {
        text_chunks: split_if_long(&turn.text, options.chunk_characters),
        recipients: match &turn.speaker {
            Some(speaker) => speakers
                .iter()
                .filter(|other| *other != speaker)
                .cloned()
                .collect(),
            None => Vec::new(),
        },
        speaker: turn.speaker,
        moment: moment(turn.start_ms, options),
        ..Message::default()
    });
    messages.collect()
}

fn moment(start_ms: Option<i64>, options: &ReadOptions) -> Option<Moment> {
    let recorded_at = options.recorded_at?;
    Some(Moment {
        at: Timestamp(recorded_at.0.saturating_add(start_ms?)),
        zone_minutes: options.zone_minutes,
    })
}

/// Writes a name in mixed case: `ADA LOVELACE` becomes `Ada Lovelace`.
pub fn written_name(name: &str) -> String {
    let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
    if name.chars().any(char::is_lowercase) {
        return name;
    }
    let mut written = String::with_capacity(name.len());
    let mut is_inside = false;
    for letter in name.chars() {
        if is_inside {
            written.extend(letter.to_lowercase());
        } else {
            written.push(letter);
        }
        is_inside = letter.is_alphanumeric();
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_names() {
        assert_eq!(written_name("ADA  LOVELACE-KING"), "Ada Lovelace-King");
        assert_eq!(written_name("bell hooks"), "bell hooks");
    }
}
