//! The beginning of a recording, as programs write it into the name of its file: `GMT20240312-140205_Recording.vtt` (Zoom),
//! `2024-03-12 14-05-06.srt` (OBS), `20240312_140506.json` (telephones); or as its own first lines tell it: `Mar 12, 2024` (Meet).

use std::fmt::Write as _;

use chrono::format::{Item, StrftimeItems};
use chrono::{NaiveDate, NaiveDateTime, NaiveTime};

use crate::message::Moment;
use crate::query::time;
use crate::source::{Format, ReadOptions, moment, transcript};

/// Maximum characters between the date and the time: ` `, `_`, `T`, ` at `.
const BETWEEN_CHARACTERS_MAX: usize = 4;

/// Lines before the first words of a recording in which its beginning is looked for.
const FIRST_LINES: usize = 20;

/// Bytes of such a line at most. A longer one is a sentence, whose date may be any.
const FIRST_LINE_BYTES_MAX: usize = 160;

/// Words of such a line at most.
const FIRST_LINE_WORDS_MAX: usize = 16;

/// Minutes of the offset of a zone at most.
const ZONE_MINUTES_MAX: i16 = 14 * 60;

/// The times, in milliseconds, that a line may tell: those from 1970 to 2100.
const TOLD_MS: std::ops::Range<i64> = 0..4_102_444_800_000;

/// The years in which a number counts as a date.
const YEARS: std::ops::Range<i32> = 1_980..2_100;

/// The options for a source with this name: the times of a recording count from the time in its name, unless the options
/// tell another.
pub(super) fn options(name: &str, format: Format, options: &ReadOptions) -> ReadOptions {
    let is_recording = matches!(
        format,
        Format::Transcript
            | Format::WebVtt
            | Format::Srt
            | Format::Ttml
            | Format::Ass
            | Format::Speech
            // A transcript may be one.
            | Format::Docx
    );
    let begun = || match &options.recorded_pattern {
        Some(pattern) => written_as(name, pattern, options.zone_minutes),
        None => begun_at(name, options.zone_minutes),
    };
    let is_unknown = is_recording && options.recorded_at.is_none();
    from(is_unknown.then(begun).flatten(), options)
}

/// The options with the time that a transcript tells before its first turn, unless they tell another.
pub(super) fn options_of_transcript(text: &str, options: &ReadOptions) -> ReadOptions {
    told(transcript::preface(text), options)
}

/// The options with the time that the notes of WebVTT subtitles tell before the first cue, unless they tell another.
pub(super) fn options_of_web_vtt(text: &str, options: &ReadOptions) -> ReadOptions {
    told(text.lines().take_while(|line| !line.contains("-->")), options)
}

fn told<'t>(first_lines: impl Iterator<Item = &'t str>, options: &ReadOptions) -> ReadOptions {
    if options.recorded_at.is_some() {
        return options.clone();
    }
    let mut told = first_lines
        .take(FIRST_LINES)
        .filter_map(|line| told_in(line, options.zone_minutes));
    from(told.find(|begun| TOLD_MS.contains(&begun.at.0)), options)
}

/// The options with the beginning of a recording, if it is known.
fn from(begun: Option<Moment>, options: &ReadOptions) -> ReadOptions {
    match begun {
        Some(begun) => ReadOptions {
            recorded_at: Some(begun.at),
            zone_minutes: options.zone_minutes.or(begun.zone_minutes),
            ..options.clone()
        },
        None => options.clone(),
    }
}

/// The time that a short line tells: `Weekly sync (2024-03-12 at 06:02 GMT-8)`, `March 12, 2024, 2:02PM`.
fn told_in(line: &str, zone_minutes: Option<i16>) -> Option<Moment> {
    let words: Vec<&str> = line
        .split_whitespace()
        .map(|word| word.trim_matches(|letter: char| !letter.is_alphanumeric()))
        .collect();
    if line.len() > FIRST_LINE_BYTES_MAX || words.len() > FIRST_LINE_WORDS_MAX {
        return None;
    }
    let is_whole = |word: &&&str| word.contains('T') && word.contains(':');
    if let Some(at) = words
        .iter()
        .filter(is_whole)
        .find_map(|word| moment::parse(word, zone_minutes))
    {
        return Some(at);
    }
    let lower: Vec<String> = words
        .iter()
        .map(|word| word.to_lowercase().replace('/', "-"))
        .collect();
    let (told_by, days) = time::find(&lower, None)?;
    let day = days.start.filter(|day| day.succ_opt() == days.end)?;
    let behind = &lower[told_by.end..];
    let clock = behind.iter().enumerate().find_map(|(at, word)| {
        let next = behind.get(at + 1).map_or("", String::as_str);
        Some((at, clock(word, next)?))
    });
    let zone = clock.and_then(|(at, _)| behind[at + 1..].iter().take(2).find_map(|word| zone(word)));
    let clock = clock.map_or(NaiveTime::MIN, |(_, clock)| clock);
    Some(moment::of_local(day.and_time(clock), zone.or(zone_minutes)))
}

/// Parses `14:02`, `14:02:05`, `2:02pm`, and `2:02` before `pm` or `p.m.`.
fn clock(word: &str, next: &str) -> Option<NaiveTime> {
    let (word, next) = (word.replace('.', ""), next.replace('.', ""));
    let half = ["am", "pm"]
        .into_iter()
        .find(|half| word.ends_with(half) || next == *half);
    let digits = word.trim_end_matches(char::is_alphabetic);
    let mut parts = digits
        .split(':')
        .map(|part| part.parse::<u32>().ok().filter(|_| part.len() <= 2));
    let (hour, minute) = (parts.next()??, parts.next()??);
    let second = parts.next().unwrap_or(Some(0))?;
    let hour = match half {
        Some("am") if hour == 12 => 0,
        Some("pm") if hour < 12 => hour + 12,
        _ => hour,
    };
    NaiveTime::from_hms_opt(hour, minute, second)
}

/// The offset of `gmt`, `utc`, `gmt-8`, `utc+05:30`, in minutes.
fn zone(word: &str) -> Option<i16> {
    let offset = word.strip_prefix("gmt").or_else(|| word.strip_prefix("utc"))?;
    if offset.is_empty() {
        return Some(0);
    }
    // Google Meet writes the sign for minus, others a dash.
    let rest = offset.strip_prefix(['+', '-', '−', '–'])?;
    let (hours, minutes) = rest.split_once(':').unwrap_or((rest, "0"));
    let number = |part: &str| {
        let is_number = (1..=2).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
        part.parse::<i16>().ok().filter(|_| is_number)
    };
    // Two digits each cannot overflow.
    let minutes = number(hours)? * 60 + number(minutes)?;
    let sign = if offset.starts_with('+') { 1 } else { -1 };
    (minutes <= ZONE_MINUTES_MAX).then_some(sign * minutes)
}

/// The first time in the name of a file.
fn begun_at(path: &str, zone_minutes: Option<i16>) -> Option<Moment> {
    let name = path.rsplit(['/', '\\']).next()?;
    let starts = name.char_indices().filter(|(_, letter)| letter.is_ascii_digit());
    starts
        .filter(|(at, _)| !name[..*at].ends_with(|letter: char| letter.is_ascii_digit()))
        .find_map(|(at, _)| {
            let (date, rest) = date(&name[at..])?;
            let time = time(rest).unwrap_or_default();
            // Zoom writes the time of Greenwich.
            let zone_minutes = if name[..at].ends_with("GMT") {
                Some(0)
            } else {
                zone_minutes
            };
            Some(moment::of_local(NaiveDateTime::new(date, time), zone_minutes))
        })
}

/// Whether a text can be a pattern of times: it has a day at least, hours only with minutes, and nothing in it is unknown.
pub fn is_pattern(text: &str) -> bool {
    let is_known = StrftimeItems::new(text).all(|item| !matches!(item, Item::Error));
    if !text.contains('%') || !is_known {
        return false;
    }
    let written = |clock: NaiveTime| {
        let mut written = String::new();
        // A time such as the name of a zone cannot be written.
        write!(
            written,
            "{}",
            NaiveDateTime::new(NaiveDate::default(), clock).format(text)
        )
        .ok()?;
        Some(written)
    };
    let clock = NaiveTime::MIN + chrono::TimeDelta::minutes(13 * 60 + 45);
    let (Some(midnight), Some(later)) = (written(NaiveTime::MIN), written(clock)) else {
        return false;
    };
    // A part of a clock, such as the hour alone, would be read as midnight.
    time_in(&later, text).is_some_and(|read| midnight == later || read.time() != NaiveTime::MIN)
}

/// The first time in the name of a file that is written as the pattern says.
fn written_as(path: &str, pattern: &str, zone_minutes: Option<i16>) -> Option<Moment> {
    let name = path.rsplit(['/', '\\']).next()?;
    let begins = name.char_indices().map(|(at, _)| &name[at..]);
    let at = begins.filter_map(|rest| time_in(rest, pattern)).next()?;
    Some(moment::of_local(at, zone_minutes))
}

/// The time at the beginning of a text: with a clock, or midnight of a day.
fn time_in(text: &str, pattern: &str) -> Option<NaiveDateTime> {
    let with_clock = NaiveDateTime::parse_and_remainder(text, pattern)
        .ok()
        .map(|(at, _)| at);
    with_clock.or_else(|| {
        let (day, _) = NaiveDate::parse_and_remainder(text, pattern).ok()?;
        Some(day.into())
    })
}

/// Parses `20240312` or `2024-03-12`, also with points or underscores.
fn date(text: &str) -> Option<(NaiveDate, &str)> {
    let (year, rest) = digits(text, 4)?;
    let rest = rest.strip_prefix(['-', '.', '_']).unwrap_or(rest);
    let (month, rest) = digits(rest, 2)?;
    let rest = rest.strip_prefix(['-', '.', '_']).unwrap_or(rest);
    let (day, rest) = digits(rest, 2)?;
    let year = i32::try_from(year).ok().filter(|year| YEARS.contains(year))?;
    Some((NaiveDate::from_ymd_opt(year, month, day)?, rest))
}

/// Parses `140205`, `14-05-06`, `14.05` behind a few other characters.
fn time(text: &str) -> Option<NaiveTime> {
    let found = text.char_indices().take(BETWEEN_CHARACTERS_MAX + 1);
    let at = found
        .filter(|(_, letter)| letter.is_ascii_digit())
        .map(|(at, _)| at)
        .next()?;
    if at == 0 {
        return None;
    }
    let separators = ['-', '.', '_', ':', 'h', 'm'];
    let (hour, rest) = digits(&text[at..], 2)?;
    let (minute, rest) = digits(rest.strip_prefix(separators).unwrap_or(rest), 2)?;
    let second = digits(rest.strip_prefix(separators).unwrap_or(rest), 2).map_or(0, |(second, _)| second);
    NaiveTime::from_hms_opt(hour, minute, second)
}

/// The number of exactly so many digits at the beginning of a text, and the rest.
fn digits(text: &str, count: usize) -> Option<(u32, &str)> {
    let number = text.get(..count)?;
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    Some((number.parse().ok().filter(|_| is_number)?, &text[count..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_when_a_recording_begins() {
        for (name, expected) in [
            (
                "calls/GMT20240312-140205_Recording.transcript.vtt",
                Some("2024-03-12T14:02:05.000Z"),
            ),
            ("2024-03-12 14-05-06.srt", Some("2024-03-12T13:05:06.000Z")),
            ("20240312_140506.json", Some("2024-03-12T13:05:06.000Z")),
            ("Call 2024-03-12 at 14.05.vtt", Some("2024-03-12T13:05:00.000Z")),
            ("standup-2024-03-12.vtt", Some("2024-03-11T23:00:00.000Z")),
            ("episode 12345678901.vtt", None),
            ("2024-03-12/talk.vtt", None),
            ("talk 99999999.vtt", None),
        ] {
            let at = begun_at(name, Some(60)).map(|moment| moment.at.to_string());
            assert_eq!(at.as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn first_lines_tell_when_a_recording_begins() {
        for (line, expected) in [
            (
                "Weekly sync (2024-03-12 at 06:02 GMT-8) - Transcript",
                "2024-03-12T14:02:00.000Z",
            ),
            ("March 12, 2024, 2:02PM", "2024-03-12T13:02:00.000Z"),
            ("12 March 2024 2:02 pm", "2024-03-12T13:02:00.000Z"),
            ("Mar 12, 2024", "2024-03-11T23:00:00.000Z"),
            ("12. März 2024 um 14:02 Uhr", "2024-03-12T13:02:00.000Z"),
            (
                "Recorded on 2024/03/12 14:02:05 UTC+05:30",
                "2024-03-12T08:32:05.000Z",
            ),
            ("NOTE recorded 2024-03-12T14:02:05Z", "2024-03-12T14:02:05.000Z"),
            ("2024-03-12 at 06:02 GMT−8", "2024-03-12T14:02:00.000Z"),
            ("2024-03-12 at 06:02 GMT–8", "2024-03-12T14:02:00.000Z"),
            ("March 12, 2024, 2:02 p.m.", "2024-03-12T13:02:00.000Z"),
            ("March 12, 2024, 2:02p.m.", "2024-03-12T13:02:00.000Z"),
            // Words that name no zone are passed over.
            ("2024-03-12 at 06:02 GMT--546:-8", "2024-03-12T05:02:00.000Z"),
            ("2024-03-12 at 06:02 GMT-99999:00", "2024-03-12T05:02:00.000Z"),
        ] {
            let at = told_in(line, Some(60)).map(|moment| moment.at.to_string());
            assert_eq!(at.as_deref(), Some(expected), "{line}");
        }
        let long = "May 5, 2024 ".repeat(20);
        for line in [
            "In March 2024, bees hummed.",
            "12:30",
            "Episode 2024",
            "",
            long.as_str(),
        ] {
            assert_eq!(told_in(line, None), None, "{line}");
        }
        let text = "Mar 12, 2024\nWeekly sync - Transcript\n00:00:00\n\nInes: Hum.\nBob: May 5, 2023\n";
        let begun = options_of_transcript(text, &ReadOptions::default()).recorded_at;
        assert_eq!(
            begun.map(|at| at.to_string()).as_deref(),
            Some("2024-03-12T00:00:00.000Z")
        );
        for far in ["9999-03-12T14:02:05Z", "0001-03-12T14:02:05Z"] {
            let text = format!("{far}\n\nInes: Hum.\nInes: Drum.\n");
            let begun = options_of_transcript(&text, &ReadOptions::default()).recorded_at;
            assert_eq!(begun, None, "{far}");
        }
        let said = "WEBVTT\n\n00:01.000 --> 00:02.000\nMay 5, 2023\n";
        assert_eq!(
            options_of_web_vtt(said, &ReadOptions::default()).recorded_at,
            None
        );
    }

    #[test]
    fn a_pattern_tells_how_names_write_times() {
        let begun = |name: &str, pattern: &str| {
            assert!(is_pattern(pattern), "{pattern}");
            let own = ReadOptions {
                recorded_pattern: Some(pattern.to_owned()),
                ..ReadOptions::default()
            };
            let found = options(name, Format::WebVtt, &own).recorded_at;
            found.map(|at| at.to_string())
        };
        assert_eq!(
            begun("calls/Team 12.03.2024 14-05.vtt", "%d.%m.%Y %H-%M").as_deref(),
            Some("2024-03-12T14:05:00.000Z")
        );
        assert_eq!(
            begun("call_03-12-24.vtt", "%m-%d-%y").as_deref(),
            Some("2024-03-12T00:00:00.000Z")
        );
        assert_eq!(begun("2024-03-12.vtt", "%d.%m.%Y"), None);
        for wrong in [
            "2024-03-12",
            "%H:%M",
            "%d.%m.%Y %H",
            "%d.%m.%Y %I-%M",
            "%d.%m.%Y %Q",
            "",
        ] {
            assert!(!is_pattern(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_time_of_the_options_goes_first() {
        let name = "GMT20240312-140205.vtt";
        let own = ReadOptions {
            recorded_at: Some(gristmill_model::Timestamp(7)),
            ..ReadOptions::default()
        };
        assert_eq!(options(name, Format::WebVtt, &own), own);
        assert!(
            options(name, Format::WebVtt, &ReadOptions::default())
                .recorded_at
                .is_some()
        );
        assert_eq!(
            options(name, Format::Markdown, &ReadOptions::default()),
            ReadOptions::default()
        );
    }
}
