//! Advanced SubStation Alpha: lines `Dialogue:` whose columns a line `Format:` names.

use super::{milliseconds, without_overrides};
use crate::message::Message;
use crate::source::ReadOptions;
use crate::source::conversation::{Cue, messages, turns, written_name};

/// The columns of a file without a line `Format:`.
const COLUMNS_DEFAULT: &str = "Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text";

/// Reads the messages of the subtitles. Comments, drawings and styles are left out.
pub fn read(text: &str, options: &ReadOptions) -> Vec<Message> {
    let mut columns = names(COLUMNS_DEFAULT);
    let mut is_events = false;
    let mut cues = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            is_events = line.eq_ignore_ascii_case("[events]");
        } else if let Some(format) = line.strip_prefix("Format:").filter(|_| is_events) {
            columns = names(format);
        } else if let Some(dialogue) = line.strip_prefix("Dialogue:") {
            cues.extend(cue(dialogue, &columns));
        }
    }
    // The lines of a file stand in the order of its author.
    cues.sort_by_key(|cue| cue.start_ms);
    messages(turns(cues), options)
}

fn names(format: &str) -> Vec<String> {
    format.split(',').map(|name| name.trim().to_lowercase()).collect()
}

fn cue(dialogue: &str, columns: &[String]) -> Option<Cue> {
    // The text is the last column, and may have commas.
    let values: Vec<&str> = dialogue.splitn(columns.len().max(1), ',').collect();
    let value = |name: &str| {
        let column = columns.iter().position(|column| column == name)?;
        values.get(column).map(|value| value.trim())
    };
    let text = value("text")?;
    if text.contains("\\p1") {
        return None;
    }
    let text = without_overrides(text)
        .replace("\\N", "\n")
        .replace("\\n", "\n")
        .replace("\\h", " ");
    let lines: Vec<String> = text
        .lines()
        .map(|line| line.trim().to_owned())
        .filter(|line| !line.is_empty())
        .collect();
    let speaker = value("name")
        .or_else(|| value("actor"))
        .filter(|name| !name.is_empty());
    Some(Cue {
        start_ms: milliseconds(value("start")?)?,
        end_ms: milliseconds(value("end")?)?,
        speaker: speaker.map(written_name),
        lines,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_dialogues() {
        let text = "[Script Info]\nTitle: Bees\n\n[V4+ Styles]\nFormat: Name, Fontname\nStyle: Default,Arial\n\n[Events]\n\
            Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text\n\
            Dialogue: 0,0:00:03.00,0:00:04.00,Default,Bob,0,0,0,,All day, {\\i1}all{\\i0} night.\n\
            Dialogue: 0,0:00:01.00,0:00:02.50,Default,ADA,0,0,0,,Do they\\Nhum?\n\
            Comment: 0,0:00:05.00,0:00:06.00,Default,,0,0,0,,never shown\n\
            Dialogue: 0,0:00:05.00,0:00:06.00,Default,,0,0,0,,{\\p1}m 0 0 l 1 1{\\p0}\n";
        let found: Vec<(Option<String>, String)> = read(text, &ReadOptions::default())
            .into_iter()
            .map(|message| (message.speaker.clone(), message.text()))
            .collect();
        assert_eq!(
            found,
            [
                (Some("Ada".to_owned()), "Do they hum?".to_owned()),
                (Some("Bob".to_owned()), "All day, all night.".to_owned())
            ]
        );
    }
}
