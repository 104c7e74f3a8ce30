//! Transcripts: `SPEAKER: what was said`, with or without times, in the shapes of podcasts, Otter, Rev, Teams, Meet, Zoom
//! and Whisper.

mod head;

use std::collections::{HashMap, HashSet};

use crate::message::Message;
use crate::source::ReadOptions;
use crate::source::conversation::{Turn, messages, written_name};
use head::{Head, head};

pub(super) use head::named_line;

/// Paragraphs of a turn in a document at most, on average: a time, a speaker, and a text.
const TURN_PARAGRAPHS_MAX: usize = 3;

/// Minimum number of turns in a transcript.
const TURNS_MIN: usize = 2;

/// Timed sentences without a speaker are one turn for so long. Milliseconds.
const SENTENCES_MS_MAX: i64 = 60_000;

/// Maximum bytes of such a turn.
const SENTENCES_BYTES_MAX: usize = 1_500;

/// Reads the messages of a transcript. The text before the first speaker is a message without one.
pub fn read(text: &str, options: &ReadOptions) -> Vec<Message> {
    let mut turns = vec![Turn::default()];
    // The time on a line of its own, which the next turn begins at.
    let mut marked_ms = None;
    for line in text.lines() {
        match head(line) {
            Some(Head {
                speaker: None,
                start_ms,
                rest: "",
                ..
            }) => marked_ms = start_ms,
            Some(head) => {
                // Whisper writes a time before each sentence, and no speaker, or the speaker of the sentence before.
                let speaker = head.speaker.map(written_name);
                turns.push(Turn {
                    speaker,
                    text: head.rest.to_owned(),
                    start_ms: head.start_ms.or(marked_ms.take()),
                });
            }
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
    let mut turns = joined(turns);
    // A turn without a time has that of the turn before it, for Meet writes one in some minutes. The day is known at least.
    let mut last_ms = 0;
    for turn in &mut turns {
        last_ms = *turn.start_ms.get_or_insert(last_ms);
    }
    messages(turns, options)
}

/// The lines before the first turn.
pub(super) fn preface(text: &str) -> impl Iterator<Item = &str> {
    text.lines().take_while(|line| head(line).is_none())
}

/// Joins the timed sentences of one voice, up to a minute and to 1,500 characters.
fn joined(turns: Vec<Turn>) -> Vec<Turn> {
    let mut joined: Vec<Turn> = Vec::with_capacity(turns.len());
    for turn in turns {
        let goes_on = |last: &&mut Turn| {
            let begun_ms = last.start_ms.zip(turn.start_ms);
            last.speaker == turn.speaker
                && begun_ms.is_some_and(|(first, next)| next.saturating_sub(first) < SENTENCES_MS_MAX)
                && last.text.len() + turn.text.len() < SENTENCES_BYTES_MAX
        };
        match joined
            .last_mut()
            .filter(goes_on)
            .filter(|_| turn.speaker.is_none())
        {
            Some(last) => {
                last.text.push(' ');
                last.text.push_str(&turn.text);
            }
            None => joined.push(turn),
        }
    }
    joined
}

/// Whether a text is a transcript: several lines begin with a speaker or a time in brackets, and a speaker occurs twice or
/// in capitals.
pub fn is_transcript(text: &str) -> bool {
    let heads: Vec<Head<'_>> = text.lines().filter_map(head).collect();
    let names: Vec<&str> = heads.iter().filter_map(|head| head.speaker).collect();
    let timed = heads
        .iter()
        .filter(|head| head.start_ms.is_some() && head.is_marked)
        .count();
    let is_capital =
        |name: &str| name.chars().any(char::is_uppercase) && !name.chars().any(char::is_lowercase);
    let mut known = HashSet::new();
    let mut speaks = |name| !known.insert(name) || is_capital(name);
    timed >= TURNS_MIN || (names.len() >= TURNS_MIN && names.into_iter().any(&mut speaks))
}

/// Whether the paragraphs of a document are mostly those of turns. A report may have some that begin with a word and a colon.
pub(super) fn is_mostly_turns(document: &str) -> bool {
    let paragraphs: Vec<&str> = document.split("\n\n").filter(|text| !text.is_empty()).collect();
    let is_turn = |paragraph: &&&str| paragraph.lines().any(|line| head(line).is_some());
    paragraphs.iter().filter(is_turn).count() * TURN_PARAGRAPHS_MAX >= paragraphs.len()
}

/// The names with which more than one of the texts begins, if they begin most of them: the others are no speakers.
pub(super) fn speakers_of(texts: &[&str]) -> HashSet<String> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for (name, _) in texts.iter().filter_map(|text| named_line(text)) {
        *counts.entry(name).or_default() += 1;
    }
    let is_conversation = counts.values().any(|&count| count > 1);
    counts
        .into_keys()
        .filter(|_| is_conversation)
        .map(str::to_owned)
        .collect()
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
    if turns.iter().any(|turn| turn.start_ms.is_some()) {
        // The transcript's own times are better.
        return;
    }
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
        // The minutes of a meeting have labels, and no speakers.
        let minutes = "Attendees: Ada, Bob\nDecision: more bees\nAction: buy honey\nDecision: fewer wasps\n";
        assert!(!is_transcript(minutes));
        assert!(!is_transcript("时间：三点\n地点：东京\n"));
    }

    #[test]
    fn reads_the_shapes_of_programs() {
        for text in [
            "[00:00:03] Ines: Do they hum?\n[00:01:10] Bob: All day.\n[00:01:20] Ines: Why?\n",
            "Ines  0:03\nDo they hum?\n\nBob  1:10\nAll day.\n\nInes  1:20\nWhy?\n\nTranscribed by https://otter.ai\n",
            "Ines (00:03):\nDo they hum?\n\nBob (01:10):\nAll day.\n\nInes (01:20):\nWhy?\n",
            "**Ines:** Do they hum?\n\n**Bob:** All day.\n\n**Ines**: Why?\n",
            "Ines：Do they hum?\nBob：All day.\nInes：Why?\n",
            "00:00:03 Ines: Do they hum?\n00:01:10 Bob: All day.\n00:01:20 Ines: Why?\n",
            "00:00:03\n\nInes: Do they hum?\nBob: All day.\n\n00:05:00\n\nInes: Why?\n",
            "[00:00:03.000 --> 00:00:04.000] [Ines]: Do they hum?\n[00:01:10.000 --> 00:01:11.000] [Bob]: All day.\n[00:01:20.000 --> \
                00:01:21.000] [Ines]: Why?\n",
        ] {
            assert!(is_transcript(text), "{text}");
            let found: Vec<(Option<String>, String)> = read(text, &ReadOptions::default())
                .into_iter()
                .map(|message| (message.speaker.clone(), message.text()))
                .collect();
            assert_eq!(
                found[0],
                (Some("Ines".to_owned()), "Do they hum?".to_owned()),
                "{text}"
            );
            assert_eq!(
                found[1],
                (Some("Bob".to_owned()), "All day.".to_owned()),
                "{text}"
            );
            assert_eq!(found[2].0.as_deref(), Some("Ines"), "{text}");
            assert_eq!(found.len(), 3, "{text}");
        }
        let speakers = "SPEAKER_00: Do they hum?\nSPEAKER_01: All day.\n";
        assert!(is_transcript(speakers));
        assert_eq!(
            read(speakers, &ReadOptions::default())[1].speaker.as_deref(),
            Some("Speaker_01")
        );
    }

    fn options_of(text: &str) -> ReadOptions {
        crate::source::recording::options_of_transcript(text, &ReadOptions::default())
    }

    #[test]
    fn times_are_kept() {
        let options = ReadOptions {
            recorded_at: Some(Timestamp(1_000_000)),
            ..ReadOptions::default()
        };
        let text = "Ines  0:03\nDo they hum?\n\nBob  1:01:10\nAll day.\n";
        let times: Vec<i64> = read(text, &options)
            .iter()
            .filter_map(|message| Some(message.moment?.at.0))
            .collect();
        assert_eq!(times, [1_003_000, 4_670_000]);
        let meet =
            "Mar 12, 2024\nWeekly sync - Transcript\n\nInes: Hum.\n\n00:05:00\n\nBob: Drum.\nInes: Why?\n";
        let told: Vec<Option<String>> = read(meet, &options_of(meet))
            .iter()
            .map(|message| Some(message.moment?.at.to_string()[11..16].to_owned()))
            .collect();
        let expected = ["00:00", "00:00", "00:05", "00:05"].map(|at| Some(at.to_owned()));
        assert_eq!(told, expected);
        // Sentences of Whisper, a minute at a time.
        let whisper: String = (0..60)
            .map(|at| {
                format!(
                    "[{:02}:{:02}.000 --> 59:00.000]  Bees hum.\n",
                    at / 10,
                    at % 10 * 6
                )
            })
            .collect();
        assert!(is_transcript(&whisper));
        let found = read(&whisper, &options);
        assert_eq!(
            (found.len(), found[1].moment.map(|moment| moment.at.0)),
            (6, Some(1_060_000))
        );
    }
}
