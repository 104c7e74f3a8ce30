//! The beginning of a recording, as programs write it into the name of its file: `GMT20240312-140205_Recording.vtt` (Zoom),
//! `2024-03-12 14-05-06.srt` (OBS), `20240312_140506.json` (telephones).

use std::fmt::Write as _;

use chrono::format::{Item, StrftimeItems};
use chrono::{NaiveDate, NaiveDateTime, NaiveTime};

use crate::message::Moment;
use crate::source::{Format, ReadOptions, moment};

/// Maximum characters between the date and the time: ` `, `_`, `T`, ` at `.
const BETWEEN_CHARACTERS_MAX: usize = 4;

/// The years in which a number counts as a date.
const YEARS: std::ops::Range<i32> = 1_980..2_100;

/// The options for a source with this name: the times of a recording count from the time in its name, unless the options
/// tell another.
pub(super) fn options(name: &str, format: Format, options: &ReadOptions) -> ReadOptions {
    let is_recording = matches!(
        format,
        Format::Transcript | Format::WebVtt | Format::Srt | Format::Ttml | Format::Ass | Format::Speech
    );
    let begun = || match &options.recorded_pattern {
        Some(pattern) => written_as(name, pattern, options.zone_minutes),
        None => begun_at(name, options.zone_minutes),
    };
    let is_unknown = is_recording && options.recorded_at.is_none();
    match is_unknown.then(begun).flatten() {
        Some(begun) => ReadOptions {
            recorded_at: Some(begun.at),
            zone_minutes: options.zone_minutes.or(begun.zone_minutes),
            ..options.clone()
        },
        None => options.clone(),
    }
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
