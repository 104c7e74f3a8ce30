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

/// A longer silence than this ends a turn, in milliseconds.
const SILENCE_MS_MIN: i64 = 10_000;

/// A turn with this many characters ends at the end of its sentence.
const TURN_CHARACTERS_TARGET: usize = 800;

/// Maximum characters of a turn that is joined of cues.
const TURN_CHARACTERS_MAX: usize = 1_500;

/// Maximum duration of a turn that is joined of cues, in milliseconds. Automatic captions have neither speakers nor
/// sentences.
const TURN_MS_MAX: i64 = 60_000;

/// A repeated cue that is shown for a shorter time only keeps the line of a rolling caption on the screen. Milliseconds.
const HELD_MS_MAX: i64 = 50;

/// The ends of sentences, in all scripts.
const SENTENCE_ENDS: [char; 16] = [
    '.', '!', '?', '…', '。', '！', '？', '｡', '।', '॥', '؟', '۔', '။', '።', '։', '״',
];

/// Words with the time in which they are said or shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cue {
    /// Their beginning, from the beginning of the recording.
    pub start_ms: i64,
    /// Their end.
    pub end_ms: i64,
    /// The speaker, if the cue has a name.
    pub speaker: Option<String>,
    /// The lines.
    pub lines: Vec<String>,
}

/// Joins consecutive cues of one speaker to turns. A turn ends with a silence, after a minute, after 1,500 characters, or
/// with the sentence after 800.
pub fn turns(cues: Vec<Cue>) -> Vec<Turn> {
    let mut turns: Vec<Turn> = Vec::new();
    let mut last: Option<Cue> = None;
    for mut cue in cues {
        let shown = cue.lines.clone();
        if let Some(last) = &last {
            match rolling(last, &cue) {
                Rolling::No => {}
                Rolling::New(from) => drop(cue.lines.drain(..from)),
                Rolling::Grown(bytes) => {
                    let added = cue.lines[0][bytes..].trim().to_owned();
                    cue.lines = vec![added];
                }
            }
        }
        let text = cue.lines.join(" ");
        if !text.is_empty() {
            add(&mut turns, &cue, last.as_ref(), text);
        }
        cue.lines = shown;
        last = Some(cue);
    }
    turns
}

fn add(turns: &mut Vec<Turn>, cue: &Cue, last: Option<&Cue>, text: String) {
    let silence_ms = last.map_or(0, |last| cue.start_ms.saturating_sub(last.end_ms));
    let is_same_turn = |turn: &&mut Turn| {
        let begun_ms = turn.start_ms.unwrap_or(cue.start_ms);
        let is_full = turn.text.len() >= TURN_CHARACTERS_TARGET && turn.text.ends_with(SENTENCE_ENDS);
        turn.speaker == cue.speaker
            && silence_ms < SILENCE_MS_MIN
            && cue.end_ms.saturating_sub(begun_ms) <= TURN_MS_MAX
            && has_room(&turn.text, &text)
            && !is_full
    };
    match turns.last_mut().filter(is_same_turn) {
        Some(turn) => {
            turn.text.push(' ');
            turn.text.push_str(&text);
        }
        None => turns.push(Turn {
            speaker: cue.speaker.clone(),
            text,
            start_ms: Some(cue.start_ms),
        }),
    }
}

/// Whether a turn has room for more words. Characters are counted only where bytes do not show it.
fn has_room(turn: &str, more: &str) -> bool {
    turn.len() + more.len() < TURN_CHARACTERS_MAX
        || turn.chars().count() + more.chars().count() < TURN_CHARACTERS_MAX
}

/// How a cue repeats the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rolling {
    /// It does not.
    No,
    /// Its lines from this one on are new: captions roll up by a line.
    New(usize),
    /// Its only line is the one before, of so many bytes, and more words: captions grow by a word.
    Grown(usize),
}

/// Compares whole lines. Someone may say `us` after `take the bus`, or `No.` twice.
fn rolling(last: &Cue, cue: &Cue) -> Rolling {
    if last.speaker != cue.speaker || cue.start_ms.saturating_sub(last.end_ms) >= SILENCE_MS_MIN {
        return Rolling::No;
    }
    let is_held = cue.end_ms.saturating_sub(cue.start_ms) <= HELD_MS_MAX;
    let most = last.lines.len().min(cue.lines.len());
    let repeated = (1..=most)
        .rev()
        .find(|&count| last.lines[last.lines.len() - count..] == cue.lines[..count]);
    match repeated {
        Some(count) if is_held || count < cue.lines.len() => return Rolling::New(count),
        _ => {}
    }
    if let ([before], [now]) = (last.lines.as_slice(), cue.lines.as_slice())
        && now.len() > before.len()
        && now.starts_with(before.as_str())
        && now[before.len()..].starts_with(' ')
        && before.split_whitespace().count() > 1
    {
        return Rolling::Grown(before.len());
    }
    Rolling::No
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

    fn cue(start_ms: i64, end_ms: i64, lines: &[&str]) -> Cue {
        Cue {
            start_ms,
            end_ms,
            speaker: None,
            lines: lines.iter().map(|line| (*line).to_owned()).collect(),
        }
    }

    fn texts(cues: Vec<Cue>) -> Vec<String> {
        turns(cues).into_iter().map(|turn| turn.text).collect()
    }

    #[test]
    fn rolling_captions_keep_their_words() {
        let bus = vec![
            cue(0, 1_000, &["take the bus"]),
            cue(1_000, 2_000, &["us"]),
            cue(2_000, 3_000, &["us"]),
        ];
        assert_eq!(texts(bus), ["take the bus us us"]);
        // YouTube's captions have two lines. The first line repeats the second line of the caption before.
        let rolling = vec![
            cue(0, 2_000, &["bees hum"]),
            cue(2_000, 2_010, &["bees hum"]),
            cue(2_010, 4_000, &["bees hum", "all day"]),
            cue(4_000, 4_010, &["all day"]),
            cue(4_010, 6_000, &["all day", "and night"]),
        ];
        assert_eq!(texts(rolling), ["bees hum all day and night"]);
        let growing = vec![
            cue(0, 500, &["bees hum"]),
            cue(500, 900, &["bees hum all"]),
            cue(900, 1_500, &["bees hum all day"]),
        ];
        assert_eq!(texts(growing), ["bees hum all day"]);
    }

    #[test]
    fn captions_without_sentences_end_after_a_minute_and_by_length() {
        let hour = (0..1_800).map(|at| {
            cue(
                at * 2_000,
                at * 2_000 + 1_990,
                &[["bees hum", "they drum"][at as usize % 2]],
            )
        });
        let found = turns(hour.collect());
        assert!((60..=64).contains(&found.len()), "{}", found.len());
        let words = "word ".repeat(100);
        let dense = (0..40).map(|at| cue(at * 100, at * 100 + 90, &[&words[..40 + at as usize * 5]]));
        assert!(
            texts(dense.collect())
                .iter()
                .all(|text| text.chars().count() < 1_500)
        );
        let japanese = "蜂がいる。".repeat(60);
        let sentences = vec![cue(0, 1_000, &[&japanese]), cue(1_000, 2_000, &["はい。"])];
        assert_eq!(texts(sentences).len(), 2, "a sentence ends with 。");
    }

    #[test]
    fn writes_names() {
        assert_eq!(written_name("ADA  LOVELACE-KING"), "Ada Lovelace-King");
        assert_eq!(written_name("bell hooks"), "bell hooks");
    }
}
