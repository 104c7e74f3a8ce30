//! Moments in sources.

use chrono::{DateTime, NaiveDate, NaiveDateTime};
use gristmill_model::Timestamp;
use serde_json::Value;

use crate::message::Moment;

/// The formats of local times.
const LOCAL_FORMS: [&str; 8] = [
    "%Y-%m-%dT%H:%M:%S%.f",
    "%Y-%m-%d %H:%M:%S%.f",
    "%Y-%m-%dT%H:%M",
    "%Y-%m-%d %H:%M",
    "%Y/%m/%d %H:%M:%S%.f",
    "%Y/%m/%d %H:%M",
    "%Y%m%dT%H%M%S",
    "%Y%m%d-%H%M%S",
];

/// The formats of dates.
const DATE_FORMS: [&str; 3] = ["%Y-%m-%d", "%Y/%m/%d", "%Y%m%d"];

/// The formats of times with an offset that RFC 3339 and RFC 2822 do not cover: `2023-05-01 09:30:00 +0200`.
const OFFSET_FORMS: [&str; 5] = [
    "%Y-%m-%dT%H:%M:%S%.f%z",
    "%Y-%m-%d %H:%M:%S%.f %z",
    "%Y-%m-%d %H:%M:%S%.f%z",
    "%Y-%m-%dT%H:%M%z",
    "%Y-%m-%d %H:%M %z",
];

/// Numbers of seconds below this are before the year 5138. Larger numbers count milliseconds, microseconds or nanoseconds.
const SECONDS_END: f64 = 1e11;

/// Digits of a text that counts as seconds since 1970. A shorter one, such as a year, is no time.
const SECONDS_DIGITS_MIN: usize = 9;

/// The factor between a unit of time and the next smaller one.
const UNIT: f64 = 1_000.0;

/// Parses a moment: RFC 3339, RFC 2822, seconds or milliseconds since 1970, or a date with or without a time, in the given
/// zone or in UTC.
pub fn parse(text: &str, zone_minutes: Option<i16>) -> Option<Moment> {
    let text = text.trim();
    let with_zone = DateTime::parse_from_rfc3339(text).or_else(|_| DateTime::parse_from_rfc2822(text));
    let with_zone = with_zone.ok().or_else(|| {
        let offset = OFFSET_FORMS.iter();
        offset
            .filter_map(|form| DateTime::parse_from_str(text, form).ok())
            .next()
    });
    if let Some(at) = with_zone {
        return Some(Moment {
            at: Timestamp(at.timestamp_millis()),
            zone_minutes: i16::try_from(at.offset().local_minus_utc() / 60).ok(),
        });
    }
    let (text, zone_minutes) = match without_utc(text) {
        Some(local) => (local, Some(0)),
        None => (text, zone_minutes),
    };
    if let Some(local) = local(text) {
        return Some(of_local(local, zone_minutes));
    }
    let digits = text.split('.').next()?;
    let is_number = digits.len() >= SECONDS_DIGITS_MIN && digits.bytes().all(|byte| byte.is_ascii_digit());
    of_number(text.parse().ok().filter(|_| is_number)?)
}

/// Removes `UTC`, `GMT` or `Z` from the end of a time.
fn without_utc(text: &str) -> Option<&str> {
    ["UTC", "GMT", "Z"]
        .into_iter()
        .find_map(|zone| text.strip_suffix(zone))
        .map(str::trim_end)
}

fn local(text: &str) -> Option<NaiveDateTime> {
    let time = LOCAL_FORMS
        .iter()
        .find_map(|form| NaiveDateTime::parse_from_str(text, form).ok());
    time.or_else(|| {
        let date = DATE_FORMS
            .iter()
            .find_map(|form| NaiveDate::parse_from_str(text, form).ok())?;
        date.and_hms_opt(0, 0, 0)
            .filter(|_| text.len() >= "20230501".len())
    })
}

/// The moment of a local time in a zone, or in UTC.
pub(super) fn of_local(local: NaiveDateTime, zone_minutes: Option<i16>) -> Moment {
    let offset_ms = i64::from(zone_minutes.unwrap_or(0)) * 60_000;
    Moment {
        at: Timestamp(local.and_utc().timestamp_millis() - offset_ms),
        zone_minutes,
    }
}

/// The moment of a number of seconds, milliseconds, microseconds or nanoseconds since 1970: the unit follows from its
/// size, because the years from 1973 to 5138 differ in it.
pub(super) fn of_number(number: f64) -> Option<Moment> {
    let mut seconds = number;
    for _ in 0..3 {
        if seconds.abs() >= SECONDS_END {
            seconds /= UNIT;
        }
    }
    (seconds.abs() < SECONDS_END).then_some(Moment {
        at: Timestamp((seconds * 1_000.0).round() as i64),
        zone_minutes: None,
    })
}

/// The moment in a JSON value: a text, or a number.
pub(super) fn of_value(value: &Value, zone_minutes: Option<i16>) -> Option<Moment> {
    match value {
        Value::String(text) => parse(text, zone_minutes),
        Value::Number(number) => of_number(number.as_f64()?),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Option<String> {
        parse(text, None).map(|moment| moment.at.to_string())
    }

    #[test]
    fn the_zone_is_kept() {
        for text in [
            "2023-05-01T09:30:00+02:00",
            "2023-05-01T09:30:00+0200",
            "2023-05-01 09:30:00 +0200",
            "Mon, 1 May 2023 09:30:00 +0200",
        ] {
            let moment = parse(text, None).expect("a time");
            assert_eq!(moment.at.to_string(), "2023-05-01T07:30:00.000Z");
            assert_eq!(moment.zone_minutes, Some(120));
        }
        let utc = parse("2023-05-01 07:30:00 UTC", Some(-420)).expect("a time");
        assert_eq!(utc.at.to_string(), "2023-05-01T07:30:00.000Z");
        assert_eq!(utc.zone_minutes, Some(0));
    }

    #[test]
    fn local_time_is_not_taken_for_utc() {
        let moment = parse("2023-05-01 00:00:00", Some(-420)).expect("a time");
        assert_eq!(moment.at.to_string(), "2023-05-01T07:00:00.000Z");
        assert_eq!(
            parse("2023-05-01", None).map(|moment| moment.zone_minutes),
            Some(None)
        );
        assert_eq!(parse("soon", None), None);
    }

    #[test]
    fn the_size_of_a_number_tells_its_unit() {
        for text in [
            "1682926200",
            "1682926200.000",
            "1682926200000",
            "1682926200000000",
            "1682926200000000000",
        ] {
            assert_eq!(at(text).as_deref(), Some("2023-05-01T07:30:00.000Z"), "{text}");
        }
        assert_eq!(at("20230501").as_deref(), Some("2023-05-01T00:00:00.000Z"));
        assert_eq!(at("1e999"), None);
        assert_eq!(at("2023"), None, "a year is not a number of seconds");
        assert_eq!(of_number(f64::INFINITY), None);
        assert_eq!(of_number(f64::NAN), None);
    }
}
