//! Subtitles: WebVTT, SubRip, SBV, TTML, Advanced SubStation Alpha, and lyrics with times. Their cues become turns.

mod ass;
mod lrc;
mod ttml;

use crate::error::MemoryError;
use crate::message::Message;
use crate::source::ReadOptions;
use crate::source::conversation::{Cue, messages, turns, written_name};
use crate::source::transcript;

pub use ass::read as read_ass;
pub use lrc::{is_lrc, read as read_lrc};
pub use ttml::{is_ttml, read as read_ttml};

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
    Ok(messages(turns(with_speakers(cues(text))), options))
}

/// Reads the messages of SubRip or SBV subtitles.
pub fn read_srt(text: &str, options: &ReadOptions) -> Vec<Message> {
    messages(turns(with_speakers(cues(text))), options)
}

/// Whether a text is SBV: its first line has two times with a comma between them.
pub fn is_sbv(beginning: &str) -> bool {
    beginning
        .lines()
        .find(|line| !line.trim().is_empty())
        .is_some_and(|line| sbv_times(line).is_some())
}

/// Finds the cues: lines with times, and the lines of text behind each. Everything else is notes, styles and the header.
fn cues(text: &str) -> Vec<Cue> {
    let mut cues = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let Some((start_ms, end_ms)) = times(line) else {
            continue;
        };
        let mut own = Vec::new();
        while let Some(line) = lines.next_if(|line| !line.trim().is_empty() && times(line).is_none()) {
            own.push(line);
        }
        // Without an empty line before it, the number of the next cue is the last line of this one.
        let is_next = lines.peek().is_some_and(|line| times(line).is_some());
        if is_next
            && own
                .last()
                .is_some_and(|line| line.trim().bytes().all(|byte| byte.is_ascii_digit()))
        {
            own.pop();
        }
        add_cues(&mut cues, (start_ms, end_ms), &own);
    }
    cues
}

/// Adds the cues of one time: one for each voice.
fn add_cues(cues: &mut Vec<Cue>, (start_ms, end_ms): (i64, i64), lines: &[&str]) {
    let first = cues.len();
    let mut speaker = None;
    for line in lines {
        for (voice, text) in voices(line) {
            if voice.is_some() {
                speaker = voice;
            }
            if text.is_empty() {
                continue;
            }
            match cues[first..].last_mut().filter(|cue| cue.speaker == speaker) {
                Some(cue) => cue.lines.push(text),
                None => cues.push(Cue {
                    start_ms,
                    end_ms,
                    speaker: speaker.clone(),
                    lines: vec![text],
                }),
            }
        }
    }
}

/// Takes speakers from the beginnings of texts, as Zoom writes them (`Ada King: Hello.`). They are names only if some
/// are said again: a single `Note: hot` is none.
fn with_speakers(mut cues: Vec<Cue>) -> Vec<Cue> {
    if cues.iter().any(|cue| cue.speaker.is_some()) {
        return cues;
    }
    let firsts: Vec<&str> = cues
        .iter()
        .filter_map(|cue| cue.lines.first())
        .map(String::as_str)
        .collect();
    let names = transcript::speakers_of(&firsts);
    let mut last = None;
    for cue in &mut cues {
        let Some(first) = cue.lines.first_mut() else {
            continue;
        };
        if let Some((name, rest)) = transcript::named_line(first).filter(|(name, _)| names.contains(*name)) {
            last = Some(written_name(name));
            *first = rest.trim().to_owned();
            cue.lines.retain(|line| !line.is_empty());
        }
        // A cue without a name goes on with the words of the speaker before.
        cue.speaker.clone_from(&last);
    }
    cues
}

/// Parses `00:01:02.500 --> 00:01:04.000 align:start`. SubRip has a comma in the place of the point. SBV writes both
/// times with a comma between them.
fn times(line: &str) -> Option<(i64, i64)> {
    // Most lines are words.
    if !line
        .trim_start()
        .starts_with(|letter: char| letter.is_ascii_digit())
    {
        return None;
    }
    let Some((start, rest)) = line.split_once("-->") else {
        return sbv_times(line);
    };
    Some((
        milliseconds(start.trim())?,
        milliseconds(rest.split_whitespace().next()?)?,
    ))
}

/// Parses `0:01:02.500,0:01:04.000`.
fn sbv_times(line: &str) -> Option<(i64, i64)> {
    let (start, end) = line.trim().split_once(',')?;
    let is_time = |text: &str| text.matches(':').count() == 2 && text.contains('.');
    (is_time(start) && is_time(end)).then_some((milliseconds(start)?, milliseconds(end)?))
}

/// Parses `01:02:03.500`, in milliseconds.
pub(super) fn milliseconds(text: &str) -> Option<i64> {
    let (clock, fraction) = text.split_once(['.', ',']).unwrap_or((text, "0"));
    let mut seconds: i64 = 0;
    for part in clock.split(':') {
        let part: u32 = part.parse().ok()?;
        seconds = seconds.checked_mul(60)?.checked_add(part.into())?;
    }
    let fraction: u32 = match fraction.len() {
        3 => fraction.parse().ok()?,
        _ => format!("{fraction:0<3}").get(..3)?.parse().ok()?,
    };
    seconds.checked_mul(1_000)?.checked_add(fraction.into())
}

/// Splits a line at its voices. Each text has the voice before it. All other tags are removed.
fn voices(line: &str) -> Vec<(Option<String>, String)> {
    if !line.contains(['<', '{', '&']) {
        let text = line.split_whitespace().collect::<Vec<_>>().join(" ");
        return if text.is_empty() {
            Vec::new()
        } else {
            vec![(None, text)]
        };
    }
    let mut found = vec![(None, String::new())];
    let line = without_overrides(line);
    let mut rest = line.as_str();
    while let Some((before, after)) = rest.split_once('<') {
        let Some((tag, after)) = after.split_once('>') else {
            break;
        };
        // `a < b` is text: a tag begins with a letter, a slash or a time.
        if !tag.starts_with(|letter: char| letter.is_alphanumeric() || letter == '/') {
            push_text(&mut found, before);
            push_text(&mut found, "<");
            rest = &rest[before.len() + 1..];
            continue;
        }
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
        *text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    }
    // SubRip writes `- Hello.` if another speaker begins.
    found.retain(|(voice, text)| voice.is_some() || !text.is_empty());
    found
}

/// The text of a line, without tags.
fn plain(line: &str) -> String {
    let texts: Vec<String> = voices(line).into_iter().map(|(_, text)| text).collect();
    texts.join(" ")
}

/// Removes the overrides of SubStation Alpha, which many SubRip files have as well: `{\an8}`.
fn without_overrides(line: &str) -> String {
    let mut kept = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("{\\") {
        let Some((_, after)) = after.split_once('}') else {
            break;
        };
        kept.push_str(before);
        rest = after;
    }
    kept.push_str(rest);
    kept
}

fn push_text(found: &mut [(Option<String>, String)], text: &str) {
    if let Some((_, last)) = found.last_mut() {
        last.push_str(&unescape(text));
    }
}

/// Replaces entities: the named ones of subtitles, and those with a number.
fn unescape(text: &str) -> String {
    if !text.contains('&') {
        return text.to_owned();
    }
    let mut written = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        written.push_str(&rest[..at]);
        rest = &rest[at..];
        let entity = rest[1..]
            .char_indices()
            .take(10)
            .find(|(_, letter)| *letter == ';');
        let letter = entity.and_then(|(end, _)| Some((entity_text(&rest[1..1 + end])?, end)));
        match letter {
            Some((letter, end)) => {
                written.push_str(&letter);
                rest = &rest[end + 2..];
            }
            None => {
                written.push('&');
                rest = &rest[1..];
            }
        }
    }
    written.push_str(rest);
    written
}

pub(super) fn entity_text(name: &str) -> Option<String> {
    let text = match name {
        "lt" => "<",
        "gt" => ">",
        "amp" => "&",
        "nbsp" => " ",
        "quot" => "\"",
        "apos" => "'",
        "lrm" | "rlm" => "",
        _ => {
            let number = name.strip_prefix('#')?;
            let code = match number.strip_prefix(['x', 'X']) {
                Some(hexadecimal) => u32::from_str_radix(hexadecimal, 16).ok()?,
                None => number.parse().ok()?,
            };
            return char::from_u32(code)
                .filter(|letter| !letter.is_control())
                .map(String::from);
        }
    };
    Some(text.to_owned())
}

#[cfg(test)]
mod tests {
    use gristmill_model::Timestamp;

    use super::*;

    fn shown(messages: &[Message]) -> Vec<(Option<&str>, String)> {
        messages
            .iter()
            .map(|message| (message.speaker.as_deref(), message.text()))
            .collect()
    }

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
    fn reads_the_speakers_of_zoom() {
        let text = "WEBVTT\n\n1\n00:00:01.000 --> 00:00:02.000\nAda King: Do bees hum?\n\n2\n00:00:03.000 --> 00:00:04.000\n\
                    Bob: All day.\n\n3\n00:00:04.000 --> 00:00:05.000\nand all night.\n\n4\n00:00:05.000 --> 00:00:06.000\nAda King: \
                        Why: for love?\n";
        let messages = read_web_vtt("x.vtt", text, &ReadOptions::default()).expect("reads");
        assert_eq!(
            shown(&messages),
            [
                (Some("Ada King"), "Do bees hum?".to_owned()),
                (Some("Bob"), "All day. and all night.".to_owned()),
                (Some("Ada King"), "Why: for love?".to_owned()),
            ]
        );
    }

    #[test]
    fn reads_srt() {
        let text = "1\r\n00:00:01,000 --> 00:00:02,000\r\nBees hum.\r\nThey do.\r\n\r\n2\r\n00:00:40,000 --> 00:00:41,000\r\nLater.\r\n";
        let messages = read_srt(text, &ReadOptions::default());
        let texts: Vec<String> = messages.iter().map(Message::text).collect();
        assert_eq!(texts, ["Bees hum. They do.", "Later."]);
    }

    #[test]
    fn reads_srt_without_empty_lines_and_with_overrides() {
        let text = "1\n00:00:01,000 --> 00:00:02,000\n{\\an8}<font color=\"#fff\">Bees hum</font> &#39;n&#x27; drum,\n2\n00:00:02,000 \
            --> 00:00:03,000\n1 < 2 &amp; 3.\n3\n00:00:04,000 --> 00:00:05,000\n1984\n";
        let messages = read_srt(text, &ReadOptions::default());
        assert_eq!(
            shown(&messages),
            [(None, "Bees hum 'n' drum, 1 < 2 & 3. 1984".to_owned())]
        );
    }

    #[test]
    fn reads_sbv() {
        let text = "0:00:01.000,0:00:02.000\nBees hum.\n\n0:00:40.000,0:00:41.000\nLater.\n";
        assert!(is_sbv(text));
        let messages = read_srt(text, &ReadOptions::default());
        assert_eq!(
            shown(&messages),
            [(None, "Bees hum.".to_owned()), (None, "Later.".to_owned())]
        );
    }
}
