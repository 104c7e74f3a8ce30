//! Times as sources write them.

use chrono::{DateTime, NaiveDate, NaiveDateTime};
use gristmill_model::Timestamp;

use crate::message::Moment;

/// How local times are written.
const LOCAL_FORMS: [&str; 4] = [
    "%Y-%m-%dT%H:%M:%S%.f",
    "%Y-%m-%d %H:%M:%S%.f",
    "%Y-%m-%dT%H:%M",
    "%Y-%m-%d %H:%M",
];

/// The moment that a text tells: RFC 3339, RFC 2822, or a date with or without a time, which is in the zone given,
/// or in UTC.
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
    fn keeps_the_zone() {
        let moment = parse("2023-05-01T09:30:00+02:00", None).expect("a time");
        assert_eq!(moment.at.to_string(), "2023-05-01T07:30:00.000Z");
        assert_eq!(moment.zone_minutes, Some(120));
    }

    #[test]
    fn does_not_take_local_time_for_utc() {
        let moment = parse("2023-05-01 00:00:00", Some(-420)).expect("a time");
        assert_eq!(moment.at.to_string(), "2023-05-01T07:00:00.000Z");
        assert_eq!(
            parse("2023-05-01", None).map(|moment| moment.zone_minutes),
            Some(None)
        );
        assert_eq!(parse("soon", None), None);
    }
}
