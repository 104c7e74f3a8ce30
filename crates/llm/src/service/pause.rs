//! The pauses that services ask for, in the shapes of their headers.

use std::time::Duration;

use chrono::DateTime;
use gristmill_model::Timestamp;
use reqwest::header::HeaderMap;

/// The longest pause that a service may ask for. Seconds.
const PAUSE_MAX_S: f64 = 3_600.0;

/// Numbers of seconds above this are a time since 1970, and no duration.
const TIME_SECONDS_MIN: f64 = 1e9;

/// Numbers above this are milliseconds since 1970.
const TIME_MS_MIN: f64 = 1e11;

/// The limits that services report, whose headers tell when they are reset.
const LIMITS: [&str; 5] = [
    "requests",
    "tokens",
    "input-tokens",
    "output-tokens",
    "requests-day",
];

/// Reads the pause that a rejection asks for: `retry-after-ms`, `retry-after` in seconds or as a date, or the time at which
/// an exhausted limit is reset. `now` is this machine's time.
pub(super) fn pause(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    // The service's own time is the one that its dates count in.
    let now = text(headers, "date").and_then(http_date).unwrap_or(now);
    let ms = ["retry-after-ms", "x-ms-retry-after-ms"]
        .iter()
        .find_map(|name| text(headers, name)?.trim().parse::<f64>().ok());
    let seconds = ms
        .map(|ms| ms / 1_000.0)
        .or_else(|| retry_after(text(headers, "retry-after")?, now))
        .or_else(|| reset(headers, now))?;
    seconds
        .is_finite()
        .then(|| Duration::from_secs_f64(seconds.clamp(0.0, PAUSE_MAX_S)))
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

fn http_date(text: &str) -> Option<Timestamp> {
    Some(Timestamp(
        DateTime::parse_from_rfc2822(text.trim()).ok()?.timestamp_millis(),
    ))
}

fn retry_after(text: &str, now: Timestamp) -> Option<f64> {
    let text = text.trim();
    match http_date(text) {
        Some(date) => Some(date.since_ms(now) as f64 / 1_000.0),
        None => seconds(text, now),
    }
}

/// The latest time at which an exhausted limit is reset; of all limits, if none says that it is exhausted.
fn reset(headers: &HeaderMap, now: Timestamp) -> Option<f64> {
    let mut exhausted: Option<f64> = None;
    let mut any: Option<f64> = None;
    for prefix in ["x-ratelimit", "anthropic-ratelimit"] {
        for limit in LIMITS {
            let (reset, remaining) = match prefix {
                "x-ratelimit" => (
                    format!("{prefix}-reset-{limit}"),
                    format!("{prefix}-remaining-{limit}"),
                ),
                _ => (
                    format!("{prefix}-{limit}-reset"),
                    format!("{prefix}-{limit}-remaining"),
                ),
            };
            let Some(seconds) = text(headers, &reset).and_then(|text| seconds(text, now)) else {
                continue;
            };
            let is_exhausted = text(headers, &remaining).is_some_and(|left| left.trim() == "0");
            if is_exhausted {
                exhausted = Some(exhausted.map_or(seconds, |other| other.max(seconds)));
            }
            any = Some(any.map_or(seconds, |other| other.max(seconds)));
        }
    }
    let plain = ["x-ratelimit-reset", "ratelimit-reset", "x-rate-limit-reset"];
    exhausted
        .or(any)
        .or_else(|| plain.iter().find_map(|name| seconds(text(headers, name)?, now)))
}

/// Parses a duration or a time: `20`, `20ms`, `6m0s`, `1h2m3.5s`, seconds or milliseconds since 1970, RFC 3339.
fn seconds(text: &str, now: Timestamp) -> Option<f64> {
    let text = text.trim();
    if let Ok(number) = text.parse::<f64>() {
        let now_s = now.0 as f64 / 1_000.0;
        return Some(match number {
            ms if ms >= TIME_MS_MIN => ms / 1_000.0 - now_s,
            at if at >= TIME_SECONDS_MIN => at - now_s,
            duration => duration,
        });
    }
    if let Ok(at) = DateTime::parse_from_rfc3339(text) {
        return Some((at.timestamp_millis() - now.0) as f64 / 1_000.0);
    }
    let mut rest = text;
    let mut total = 0.0;
    while !rest.is_empty() {
        let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        let units = [
            ("ms", 1e-3),
            ("us", 1e-6),
            ("µs", 1e-6),
            ("ns", 1e-9),
            ("h", 3_600.0),
            ("m", 60.0),
            ("s", 1.0),
            ("d", 86_400.0),
        ];
        let (unit, factor) = units.iter().find(|(unit, _)| rest[end..].starts_with(unit))?;
        total += number * factor;
        rest = &rest[end + unit.len()..];
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2023-05-01T07:30:00Z.
    const NOW: Timestamp = Timestamp(1_682_926_200_000);

    fn pause_of(headers: &[(&'static str, &str)]) -> Option<f64> {
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| {
                let name = reqwest::header::HeaderName::from_static(name);
                (name, value.parse().expect("a value"))
            })
            .collect();
        pause(&headers, NOW).map(|pause| pause.as_secs_f64())
    }

    #[test]
    fn reads_the_shapes_of_services() {
        for (headers, expected) in [
            (&[("retry-after", "2")][..], Some(2.0)),
            (&[("retry-after", "2"), ("retry-after-ms", "1500")], Some(1.5)),
            (&[("retry-after", "Mon, 01 May 2023 07:30:20 GMT")], Some(20.0)),
            (
                // The service's clock is an hour ahead.
                &[
                    ("retry-after", "Mon, 01 May 2023 08:30:20 GMT"),
                    ("date", "Mon, 01 May 2023 08:30:00 GMT"),
                ],
                Some(20.0),
            ),
            (&[("retry-after", "Mon, 01 May 2023 07:00:00 GMT")], Some(0.0)),
            (&[("x-ratelimit-reset-requests", "6m0s")], Some(360.0)),
            (
                &[
                    ("x-ratelimit-reset-tokens", "20ms"),
                    ("x-ratelimit-reset-requests", "1h2m3.5s"),
                    ("x-ratelimit-remaining-tokens", "0"),
                ],
                Some(0.02),
            ),
            (&[("x-ratelimit-reset", "1682926230")], Some(30.0)),
            (&[("x-ratelimit-reset", "1682926230000")], Some(30.0)),
            (
                &[
                    ("anthropic-ratelimit-input-tokens-reset", "2023-05-01T07:30:40Z"),
                    ("anthropic-ratelimit-input-tokens-remaining", "0"),
                ],
                Some(40.0),
            ),
            (&[("retry-after", "86400")], Some(3_600.0)),
            (&[("retry-after", "soon")], None),
            (&[], None),
        ] {
            assert_eq!(pause_of(headers), expected, "{headers:?}");
        }
    }
}
