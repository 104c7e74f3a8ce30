//! Lyrics with times: `[01:02.50]words`.

use super::{milliseconds, plain};
use crate::message::Message;
use crate::source::conversation::{Cue, messages, turns};
use crate::source::{ReadOptions, transcript};

/// Maximum duration of a line. The file says only when the next one begins. Milliseconds.
const LINE_MS_MAX: i64 = 10_000;

/// Whether a text is such lyrics: its first lines begin with a time or a field in brackets, and one with a time. A transcript
/// may do so, too: it has hours and no fields, or its lines begin with the names of speakers.
pub fn is_lrc(beginning: &str) -> bool {
    let lines: Vec<&str> = beginning
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .take(10)
        .collect();
    let timed: Vec<&str> = lines
        .iter()
        .copied()
        .filter(|line| !stamps(line).0.is_empty())
        .collect();
    let words: Vec<&str> = timed.iter().map(|line| stamps(line).1).collect();
    let has_hours = |line: &&str| {
        let stamp = line.split(']').next().unwrap_or_default();
        stamp.matches(':').count() > 1
    };
    let has_fields = timed.len() < lines.len();
    !timed.is_empty()
        && (has_fields || !timed.iter().any(has_hours))
        && transcript::speakers_of(&words).is_empty()
        && lines.iter().all(|line| line.starts_with('['))
        && lines
            .iter()
            .all(|line| !stamps(line).0.is_empty() || line.ends_with(']'))
}

/// Reads the messages of the lyrics. A line with several times is sung as often. Times of single words, and the tags that
/// ffmpeg takes over from SubRip, are left out.
pub fn read(text: &str, options: &ReadOptions) -> Vec<Message> {
    let mut cues: Vec<Cue> = Vec::new();
    for line in text.lines() {
        let (starts, words) = stamps(line.trim());
        let words = plain(words);
        cues.extend(starts.into_iter().map(|start_ms| Cue {
            start_ms,
            end_ms: start_ms,
            speaker: None,
            lines: (!words.is_empty()).then(|| words.clone()).into_iter().collect(),
        }));
    }
    cues.sort_by_key(|cue| cue.start_ms);
    let ends: Vec<i64> = cues.iter().skip(1).map(|cue| cue.start_ms).collect();
    for (cue, end_ms) in cues.iter_mut().zip(ends) {
        cue.end_ms = end_ms.min(cue.start_ms.saturating_add(LINE_MS_MAX));
    }
    cues.retain(|cue| !cue.lines.is_empty());
    messages(turns(cues), options)
}

/// The times at the beginning of a line, and the rest.
fn stamps(line: &str) -> (Vec<i64>, &str) {
    let mut starts = Vec::new();
    let mut rest = line;
    while let Some((stamp, after)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let Some(start_ms) = milliseconds(stamp).filter(|_| stamp.contains(':')) else {
            break;
        };
        starts.push(start_ms);
        rest = after;
    }
    (starts, rest.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_lyrics() {
        let text = "[ti:Bees]\n[00:01.00]Bees <00:01.50>hum\n[00:03.00][00:40.00]and they drum\n[00:05.00]\n[01:40.00]Later\n";
        assert!(is_lrc(text));
        for text in [
            "[00:00:03] Ines: Hello\nand more\n",
            "[00:00:03] Ines: Hello\n[00:00:09] Bob: Hi\n",
            "[00:00:03] Hello\n[00:00:09] Hi\n",
            "[00:03] Ines: Hello\n[00:09] Bob: Hi\n[00:12] Ines: Bees\n",
        ] {
            assert!(!is_lrc(text), "{text}");
            let lines = text.lines().filter(|line| line.starts_with('[')).count();
            assert!(lines < 2 || transcript::is_transcript(text), "{text}");
        }
        let texts: Vec<String> = read(text, &ReadOptions::default())
            .iter()
            .map(Message::text)
            .collect();
        assert_eq!(texts, ["Bees hum and they drum", "and they drum", "Later"]);
    }
}
