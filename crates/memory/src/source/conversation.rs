//! What transcripts and subtitles have in common: turns of speakers, heard by all the others.

use std::collections::BTreeSet;

use gristmill_model::Timestamp;

use crate::message::{Message, Moment};
use crate::source::ReadOptions;
use crate::source::chunk::split_if_long;

/// The words of one speaker without interruption.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Turn {
    /// The subject; `None` without a name.
    pub speaker: Option<String>,
    /// What.
    pub text: String,
    /// When, from the beginning of the recording. Milliseconds.
    pub start_ms: Option<i64>,
}

/// Messages from turns. Everybody who speaks anywhere is a listener to everybody else.
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

/// A name as it is written in a text: `ADA LOVELACE` is `Ada Lovelace`.
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
