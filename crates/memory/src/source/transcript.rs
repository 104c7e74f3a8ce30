//! Podcast transcripts: `SPEAKER: what was said`.

use std::collections::HashSet;

use crate::message::Message;
use crate::source::ReadOptions;
use crate::source::conversation::{Turn, messages, written_name};

/// Maximum characters of a speaker's name. A longer text before a colon is a sentence.
const NAME_CHARACTERS_MAX: usize = 48;

/// Maximum words of a speaker's name.
const NAME_WORDS_MAX: usize = 4;

/// Minimum number of turns in a transcript.
const TURNS_MIN: usize = 2;

/// Reads the messages of a transcript. The text before the first speaker is a message without one.
pub fn read(text: &str, options: &ReadOptions) -> Vec<Message> {
    let mut turns = vec![Turn::default()];
    for line in text.lines() {
        match speaker(line) {
            Some((speaker, rest)) => turns.push(Turn {
                speaker: Some(written_name(speaker)),
                text: rest.to_owned(),
                start_ms: None,
            }),
            None => {
                if let Some(turn) = turns.last_mut() {
                    turn.text.push('\n');
                    turn.text.push_str(line);
                }
            }
        }
    }
    for turn in &mut turns {
        turn.text = tidy(&turn.text);
    }
    turns.retain(|turn| !turn.text.is_empty());
    spread(&mut turns, options);
    messages(turns, options)
}

/// Whether a text is a transcript: several lines begin with a speaker, and a speaker occurs twice or in capitals.
pub fn is_transcript(text: &str) -> bool {
    let names: Vec<&str> = text.lines().filter_map(|line| Some(speaker(line)?.0)).collect();
    let is_capital = |name: &str| !name.chars().any(char::is_lowercase);
    let mut known = HashSet::new();
    let mut speaks = |name| !known.insert(name) || is_capital(name);
    names.len() >= TURNS_MIN && names.into_iter().any(&mut speaks)
}

/// Splits a line that begins a turn into the speaker and the rest.
fn speaker(line: &str) -> Option<(&str, &str)> {
    let (name, rest) = line.trim().split_once(':')?;
    let is_name_letter = |letter: char| letter.is_alphanumeric() || " .'’-".contains(letter);
    let begins_capital = |word: &str| {
        word.chars()
            .next()
            .is_some_and(|letter| letter.is_uppercase() || letter.is_numeric())
    };
    let is_name = name.chars().count() <= NAME_CHARACTERS_MAX
        && name.chars().all(is_name_letter)
        && name.chars().any(char::is_alphabetic)
        && name.split_whitespace().count() <= NAME_WORDS_MAX
        && name.split_whitespace().all(begins_capital);
    // `https://…` and `12:30` do not begin a turn.
    (is_name && (rest.is_empty() || rest.starts_with(char::is_whitespace))).then_some((name, rest))
}

/// Removes blanks at the ends of lines, and repeated empty lines.
fn tidy(text: &str) -> String {
    let mut tidy = String::with_capacity(text.len());
    let mut empty_lines = 0;
    for line in text.trim().lines() {
        let line = line.trim_end();
        if line.is_empty() {
            empty_lines += 1;
            continue;
        }
        if !tidy.is_empty() {
            tidy.push_str(if empty_lines > 0 { "\n\n" } else { "\n" });
        }
        empty_lines = 0;
        tidy.push_str(line);
    }
    tidy
}

/// Spreads the turns over the recording, by their length.
fn spread(turns: &mut [Turn], options: &ReadOptions) {
    let total: i64 = turns.iter().map(|turn| turn.text.len() as i64).sum();
    let Some(duration_ms) = options.duration_ms else {
        return;
    };
    let mut before = 0;
    for turn in turns {
        // The product may exceed 64 bits: a long text times a long recording.
        let start = i128::from(before) * i128::from(duration_ms) / i128::from(total.max(1));
        turn.start_ms = i64::try_from(start).ok();
        before += turn.text.len() as i64;
    }
}

#[cfg(test)]
mod tests {
    use gristmill_model::Timestamp;

    use super::*;

    const SHOW: &str = "The Bee Show\nEpisode 3\n\nADA KING: Hello.\nI like bees.\n\n\
        BOB: Why: because?\nADA KING: See https://bees.example\n";

    #[test]
    fn reads_turns() {
        let options = ReadOptions {
            recorded_at: Some(Timestamp(0)),
            duration_ms: Some(60_000),
            ..ReadOptions::default()
        };
        let messages = read(SHOW, &options);
        let texts: Vec<String> = messages.iter().map(Message::text).collect();
        assert_eq!(
            texts,
            [
                "The Bee Show\nEpisode 3",
                "Hello.\nI like bees.",
                "Why: because?",
                "See https://bees.example"
            ]
        );
        assert_eq!(messages[0].speaker, None);
        assert_eq!(messages[1].speaker.as_deref(), Some("Ada King"));
        assert_eq!(messages[1].recipients, ["Bob"]);
        let times: Vec<i64> = messages
            .iter()
            .flat_map(|message| message.moment)
            .map(|moment| moment.at.0)
            .collect();
        assert!(
            times.is_sorted() && times[0] == 0 && times[3] < 60_000,
            "{times:?}"
        );
    }

    #[test]
    fn distinguishes_a_transcript_from_a_text() {
        assert!(is_transcript(SHOW));
        assert!(!is_transcript("Ingredients: honey\n\nMix it. Result: a cake."));
    }
}
