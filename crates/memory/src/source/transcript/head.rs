//! The beginning of a turn in a transcript: a speaker, a time, or both.

use crate::source::subtitles::milliseconds;

/// Maximum characters of a speaker's name. A longer text before a colon is a sentence.
const NAME_CHARACTERS_MAX: usize = 48;

/// Maximum words of a speaker's name.
const NAME_WORDS_MAX: usize = 5;

/// Words of names that are written in lower case.
const PARTICLES: [&str; 20] = [
    "al", "ben", "bin", "da", "das", "de", "del", "della", "den", "der", "di", "do", "dos", "du", "el", "la",
    "le", "van", "von", "y",
];

/// Labels of minutes, letters and notes, which are no speakers.
const LABELS: [&str; 79] = [
    "action",
    "action item",
    "action items",
    "actions",
    "address",
    "agenda",
    "answer",
    "attendees",
    "absent",
    "author",
    "background",
    "cc",
    "conclusion",
    "contact",
    "date",
    "deadline",
    "decision",
    "decisions",
    "description",
    "due",
    "duration",
    "email",
    "example",
    "follow-up",
    "from",
    "goal",
    "host",
    "important",
    "ingredients",
    "issue",
    "item",
    "link",
    "links",
    "location",
    "meeting date",
    "minutes",
    "next steps",
    "next step",
    "note",
    "notes",
    "number",
    "objective",
    "outcome",
    "owner",
    "participants",
    "phone",
    "place",
    "present",
    "problem",
    "purpose",
    "question",
    "reason",
    "recorded",
    "recorded on",
    "recording",
    "reference",
    "result",
    "results",
    "solution",
    "start time",
    "status",
    "step",
    "subject",
    "summary",
    "tags",
    "task",
    "tasks",
    "time",
    "title",
    "to",
    "todo",
    "topic",
    "topics",
    "url",
    "version",
    "warning",
    "where",
    "when",
    "who",
];

/// The same labels in other languages.
const FOREIGN_LABELS: [&str; 48] = [
    "acciones",
    "acción",
    "acta",
    "acuerdo",
    "anwesend",
    "asistentes",
    "asunto",
    "aufgabe",
    "aufgaben",
    "beschluss",
    "beschlüsse",
    "betreff",
    "datum",
    "decisión",
    "decisione",
    "decisões",
    "decisão",
    "dauer",
    "décision",
    "décisions",
    "ergebnis",
    "fecha",
    "hinweis",
    "hora",
    "lieu",
    "local",
    "lugar",
    "nota",
    "notiz",
    "objet",
    "ordre du jour",
    "ort",
    "participantes",
    "participants",
    "présents",
    "protokoll",
    "remarque",
    "resumen",
    "tagesordnung",
    "teilnehmer",
    "thema",
    "uhrzeit",
    "zeit",
    "zusammenfassung",
    "时间",
    "地点",
    "决定",
    "日時",
];

/// The beginning of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head<'t> {
    /// The speaker; `None` if there is only a time.
    pub speaker: Option<&'t str>,
    /// The time from the beginning of the recording.
    pub start_ms: Option<i64>,
    /// Whether the time stands in brackets at the beginning of the line.
    pub is_marked: bool,
    /// The words.
    pub rest: &'t str,
}

/// Parses the beginning of a line; `None` if the line goes on with the turn before.
pub(super) fn head(line: &str) -> Option<Head<'_>> {
    let line = line.trim();
    let (start_ms, is_marked, after) = match stamp(line) {
        Some((start_ms, after)) => (Some(start_ms), line.starts_with(['[', '(']), after),
        None => (None, false, line),
    };
    let after = after.strip_prefix("- ").unwrap_or(after).trim_start();
    if let Some((name, named_ms, rest)) = named(after) {
        return Some(Head {
            speaker: Some(name),
            start_ms: start_ms.or(named_ms),
            is_marked,
            rest: rest.trim(),
        });
    }
    // A time alone, or in brackets before words, begins a turn; `12:30 lunch` does not.
    (start_ms.is_some() && (is_marked || after.is_empty())).then_some(Head {
        speaker: None,
        start_ms,
        is_marked,
        rest: after,
    })
}

/// Splits a line that begins with a name and a colon.
pub(in crate::source) fn named_line(line: &str) -> Option<(&str, &str)> {
    let (name, _, rest) = named(line.trim())?;
    Some((name, rest))
}

/// A time at the beginning of a text, in brackets or not: `[00:00:03]`, `(0:03)`, `[00:03.000 --> 00:05.000]`, `00:00:03`.
fn stamp(text: &str) -> Option<(i64, &str)> {
    let (inner, after) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => match text.strip_prefix('(') {
            Some(rest) => rest.split_once(')')?,
            None => text.split_once([' ', '\t']).unwrap_or((text, "")),
        },
    };
    let first = inner.split("-->").next()?.split(" - ").next()?.trim();
    Some((clock(first)?, after.trim_start()))
}

/// Parses `0:03`, `00:00:03` or `00:03.500`.
fn clock(text: &str) -> Option<i64> {
    let is_clock = text.contains(':')
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || b":.,".contains(&byte));
    milliseconds(text).filter(|_| is_clock)
}

/// Splits a text that begins with a name: the name, its time, and the rest.
fn named(text: &str) -> Option<(&str, Option<i64>, &str)> {
    if let Some(rest) = text.strip_prefix("**") {
        // `**Ines:** words`, `**Ines**: words`.
        let (name, rest) = rest.split_once("**")?;
        let (name, rest) = match name.strip_suffix([':', '：']) {
            Some(name) => (name, rest),
            None => (name, rest.strip_prefix([':', '：'])?),
        };
        let (name, start_ms) = without_stamp(name.trim());
        return is_name(name).then_some((name, start_ms, rest));
    }
    let colons = text.char_indices().take(2 * NAME_CHARACTERS_MAX);
    for (at, letter) in colons.filter(|(_, letter)| [':', '：'].contains(letter)) {
        let rest = &text[at + letter.len_utf8()..];
        // `https://…` and `12:30` do not begin a turn.
        if letter == ':' && !(rest.is_empty() || rest.starts_with(char::is_whitespace)) {
            continue;
        }
        let (name, start_ms) = without_stamp(text[..at].trim());
        let name = name
            .strip_prefix('[')
            .and_then(|name| name.strip_suffix(']'))
            .unwrap_or(name);
        return is_name(name).then_some((name, start_ms, rest));
    }
    // Otter and Teams write the name and the time on a line of their own, with blanks between them.
    let (name, time) = text.rsplit_once([' ', '\t'])?;
    let start_ms = clock(time)?;
    let has_gap = name.ends_with([' ', '\t']) || text[name.len()..].starts_with('\t');
    (has_gap && is_name(name.trim_end())).then_some((name.trim_end(), Some(start_ms), ""))
}

/// Takes the time from the end of a name: `Ines (00:03)`.
fn without_stamp(name: &str) -> (&str, Option<i64>) {
    let found = name.rfind(['(', '[']).and_then(|at| {
        let inner = name[at + 1..].strip_suffix([')', ']'])?;
        Some((name[..at].trim_end(), clock(inner.trim())?))
    });
    found.map_or((name, None), |(name, start_ms)| (name, Some(start_ms)))
}

fn is_name(name: &str) -> bool {
    let is_name_letter = |letter: char| letter.is_alphanumeric() || " .'’-_()&/".contains(letter);
    let words: Vec<&str> = name.split_whitespace().collect();
    let begins_well = |(position, word): (usize, &&str)| {
        let begins_capital = word
            .trim_start_matches('(')
            .chars()
            .next()
            .is_some_and(|letter| !letter.is_lowercase());
        begins_capital || (position > 0 && PARTICLES.contains(word))
    };
    let is_label = || {
        let lower = name.to_lowercase();
        LABELS.contains(&lower.as_str()) || FOREIGN_LABELS.contains(&lower.as_str())
    };
    name.chars().count() <= NAME_CHARACTERS_MAX
        && name.chars().all(is_name_letter)
        && name.chars().any(char::is_alphabetic)
        && words.len() <= NAME_WORDS_MAX
        && words.iter().enumerate().all(begins_well)
        && !is_label()
}
