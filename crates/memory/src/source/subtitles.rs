//! WebVTT and SubRip subtitles: cues with times, joined into turns.

use crate::error::MemoryError;
use crate::message::Message;
use crate::source::ReadOptions;
use crate::source::conversation::{Turn, messages, written_name};

/// A longer silence than this ends a turn, in milliseconds.
const SILENCE_MS_MIN: i64 = 10_000;

/// A turn with this many characters ends at the end of its sentence.
const TURN_CHARACTERS_TARGET: usize = 800;

/// A cue: a text that is shown from one time to another.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Cue {
    start_ms: i64,
    end_ms: i64,
    speaker: Option<String>,
    text: String,
}

/// Reads the messages of WebVTT subtitles.
///
/// # Errors
///
/// [`MemoryError::Invalid`] if the first line is not `WEBVTT`.
pub fn read_web_vtt(name: &str, text: &str, options: &ReadOptions) -> Result<Vec<Message>, MemoryError> {
    if !text.trim_start().starts_with("WEBVTT") {
        return Err(MemoryError::invalid(
            format!("{name}, line 1"),
            "a WebVTT file begins with the line `WEBVTT`",
        ));
    }
    Ok(messages(turns(cues(text)), options))
}

/// Reads the messages of SubRip subtitles.
pub fn read_srt(text: &str, options: &ReadOptions) -> Vec<Message> {
    messages(turns(cues(text)), options)
}

/// Finds the cues: blocks between empty lines that have a line with times. Other blocks are notes, styles and the header.
fn cues(text: &str) -> Vec<Cue> {
    let mut cues = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let Some((start_ms, end_ms)) = times(line) else {
            continue;
        };
        let mut speaker = None;
        while let Some(line) = lines.next_if(|line| !line.trim().is_empty() && times(line).is_none()) {
            for (voice, text) in voices(line) {
                if voice.is_some() {
                    speaker = voice;
                }
                if !text.is_empty() {
                    cues.push(Cue {
                        start_ms,
                        end_ms,
                        speaker: speaker.clone(),
                        text,
                    });
                }
            }
        }
    }
    cues
}

/// Parses `00:01:02.500 --> 00:01:04.000 align:start`. SubRip has a comma in the place of the point.
fn times(line: &str) -> Option<(i64, i64)> {
    let (start, rest) = line.split_once("-->")?;
    Some((
        milliseconds(start.trim())?,
        milliseconds(rest.split_whitespace().next()?)?,
    ))
}

fn milliseconds(text: &str) -> Option<i64> {
    let (clock, fraction) = text.split_once(['.', ',']).unwrap_or((text, "0"));
    let mut seconds: i64 = 0;
    for part in clock.split(':') {
        let part: u32 = part.parse().ok()?;
        seconds = seconds.checked_mul(60)?.checked_add(part.into())?;
    }
    let fraction: u32 = format!("{fraction:0<3}").get(..3)?.parse().ok()?;
    seconds.checked_mul(1_000)?.checked_add(fraction.into())
}

/// Splits a line at its voices. Each text has the voice before it. All other tags are removed.
fn voices(line: &str) -> Vec<(Option<String>, String)> {
    let mut found = vec![(None, String::new())];
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('<') {
        let Some((tag, after)) = after.split_once('>') else {
            break;
        };
        push_text(&mut found, before);
        let name = tag.strip_prefix('v').and_then(|voice| {
            let name = voice
                .trim_start_matches(|letter: char| !letter.is_whitespace())
                .trim();
            (voice.starts_with([' ', '.', '\t']) && !name.is_empty()).then_some(name)
        });
        if let Some(name) = name {
            found.push((Some(written_name(&unescape(name))), String::new()));
        }
        rest = after;
    }
    push_text(&mut found, rest);
    for (_, text) in &mut found {
        *text = text.trim().to_owned();
    }
    // SubRip writes `- Hello.` if another speaker begins.
    found.retain(|(voice, text)| voice.is_some() || !text.is_empty());
    found
}

fn push_text(found: &mut [(Option<String>, String)], text: &str) {
    if let Some((_, last)) = found.last_mut() {
        last.push_str(&unescape(text));
    }
}

fn unescape(text: &str) -> String {
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&nbsp;", " ")
        .replace("&lrm;", "")
        .replace("&rlm;", "")
        .replace("&amp;", "&")
}

/// Joins consecutive cues of one speaker.
fn turns(cues: Vec<Cue>) -> Vec<Turn> {
    let mut turns: Vec<Turn> = Vec::new();
    let mut last_end_ms = 0;
    for cue in cues {
        let is_same_turn = turns.last().is_some_and(|turn| {
            let is_full =
                turn.text.len() >= TURN_CHARACTERS_TARGET && turn.text.ends_with(['.', '!', '?', '…']);
            turn.speaker == cue.speaker
                && cue.start_ms.saturating_sub(last_end_ms) < SILENCE_MS_MIN
                && !is_full
        });
        match turns.last_mut().filter(|_| is_same_turn) {
            // Scrolling captions repeat each line.
            Some(turn) if turn.text.ends_with(&cue.text) => {}
            Some(turn) => {
                turn.text.push(' ');
                turn.text.push_str(&cue.text);
            }
            None => turns.push(Turn {
                speaker: cue.speaker,
                text: cue.text,
                start_ms: Some(cue.start_ms),
            }),
        }
        last_end_ms = cue.end_ms;
    }
    turns
}

#[cfg(test)]
mod tests {
    use gristmill_model::Timestamp;

    use super::*;

    #[test]
    fn reads_web_vtt() {
        let text = "WEBVTT - bees\n\nNOTE not shown\n00 --> x\n\nSTYLE\n::cue {}\n\n1\n00:01.000 --> 00:02.500 align:start\n\
                    <v Ada>Bees <i>hum</i> &amp; dance,\n\n00:02.500 --> 00:04.000\n<v Ada>all day.</v>\n\n\
                    01:00:00.000 --> 01:00:01.000\n<v.loud BOB KING>Why?</v>\n";
        let options = ReadOptions {
            recorded_at: Some(Timestamp(1_000_000)),
            ..ReadOptions::default()
        };
        let messages = read_web_vtt("x.vtt", text, &options).expect("reads");
        let found: Vec<(Option<&str>, String, i64)> = messages
            .iter()
            .map(|message| {
                (
                    message.speaker.as_deref(),
                    message.text(),
                    message.moment.map_or(0, |moment| moment.at.0),
                )
            })
            .collect();
        assert_eq!(
            found,
            [
                (Some("Ada"), "Bees hum & dance, all day.".to_owned(), 1_001_000),
                (Some("Bob King"), "Why?".to_owned(), 4_600_000),
            ]
        );
        let error = read_web_vtt("x.vtt", "1\n", &options).expect_err("no header");
        assert!(error.to_string().starts_with("x.vtt, line 1: "), "{error}");
    }

    #[test]
    fn reads_srt() {
        let text = "1\r\n00:00:01,000 --> 00:00:02,000\r\nBees hum.\r\nThey do.\r\n\r\n2\r\n00:00:40,000 --> 00:00:41,000\r\nLater.\r\n";
        let messages = read_srt(text, &ReadOptions::default());
        let texts: Vec<String> = messages.iter().map(Message::text).collect();
        assert_eq!(texts, ["Bees hum. They do.", "Later."]);
    }
}
