//! Moments in sources.

use chrono::{DateTime, NaiveDate, NaiveDateTime};
use gristmill_model::Timestamp;

use crate::message::Moment;

/// The formats of local times.
const LOCAL_FORMS: [&str; 4] = [
    "%Y-%m-%dT%H:%M:%S%.f",
    "%Y-%m-%d %H:%M:%S%.f",
    "%Y-%m-%dT%H:%M",
    "%Y-%m-%d %H:%M",
];

/// Parses a moment: RFC 3339, RFC 2822, or a date with or without a time, in the given zone or in UTC.
pub fn parse(text: &str, zone_minutes: Option<i16>) -> Option<Moment> {
    let text = text.trim();
    let with_zone = DateTime::parse_from_rfc3339(text).or_else(|_| DateTime::parse_from_rfc2822(text));
    if let Ok(at) = with_zone {
        return Some(Moment {
            at: Timestamp(at.timestamp_millis()),
            zone_minutes: i16::try_from(at.offset().local_minus_utc() / 60).ok(),
        });
    }
    let local = LOCAL_FORMS
        .iter()
        .find_map(|form| NaiveDateTime::parse_from_str(text, form).ok())
        .or_else(|| {
            NaiveDate::parse_from_str(text, "%Y-%m-%d")
                .ok()?
                .and_hms_opt(0, 0, 0)
        })?;
    Some(Moment {
        at: Timestamp(local.and_utc().timestamp_millis() - i64::from(zone_minutes.unwrap_or(0)) * 60_000),
        zone_minutes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_zone_is_kept() {
        let moment = parse("2023-05-01T09:30:00+02:00", None).expect("a time");
        assert_eq!(moment.at.to_string(), "2023-05-01T07:30:00.000Z");
        assert_eq!(moment.zone_minutes, Some(120));
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
}
