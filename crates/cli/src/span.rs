//! Spans of time: `500ms`, `30s`, `5m`, `12h`, `7d`.

use std::time::Duration;

/// Parses a span of time. A bare number is an error, because its unit is unknown.
pub fn parse_span(text: &str) -> Result<Duration, String> {
    let refuse =
        || format!("`{text}` is not a span of time: write a number and ms, s, m, h or d, as in 500ms or 30s");
    let unit_at = text
        .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .ok_or_else(refuse)?;
    let (number, unit) = text.split_at(unit_at);
    let milliseconds_a_unit: f64 = match unit {
        "ms" => 1.0,
        "s" => 1_000.0,
        "m" | "min" => 60_000.0,
        "h" => 3_600_000.0,
        "d" => 86_400_000.0,
        _ => return Err(refuse()),
    };
    let number: f64 = number.parse().map_err(|_| refuse())?;
    let milliseconds = number * milliseconds_a_unit;
    // Ten thousand years: a longer span is a typing error, and would overflow a timestamp.
    if !milliseconds.is_finite() || milliseconds > 3.2e14 {
        return Err(format!("`{text}` is too long"));
    }
    Ok(Duration::from_millis(milliseconds.round() as u64))
}

/// A span as whole milliseconds.
pub fn milliseconds(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Writes a duration in microseconds with three digits and a suitable unit.
pub fn show_microseconds(microseconds: f64) -> String {
    let (number, unit) = match microseconds {
        us if us < 1_000.0 => (us, "µs"),
        us if us < 1_000_000.0 => (us / 1_000.0, "ms"),
        us if us < 120_000_000.0 => (us / 1_000_000.0, "s"),
        us => (us / 60_000_000.0, "min"),
    };
    match number {
        number if number < 10.0 => format!("{number:.2} {unit}"),
        number if number < 100.0 => format!("{number:.1} {unit}"),
        number => format!("{number:.0} {unit}"),
    }
}

/// Writes a duration as `1h02m`, `3m05s` or `7s`.
pub fn show_seconds(seconds: u64) -> String {
    match (seconds / 3_600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds}s"),
        (0, minutes, seconds) => format!("{minutes}m{seconds:02}s"),
        (hours, minutes, _) => format!("{hours}h{minutes:02}m"),
    }
}

/// Writes a whole number with commas.
pub fn show_count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Writes a number with its noun, such as `1 job`, `2,000 jobs` or `3 batches`.
pub fn show_number_of(count: u64, noun: &str) -> String {
    let ending = match count {
        1 => "",
        _ if noun.ends_with("ch") => "es",
        _ => "s",
    };
    format!("{} {noun}{ending}", show_count(count))
}

/// Writes bytes as `12.3 MiB`.
pub fn show_bytes(bytes: u64) -> String {
    let mut number = bytes as f64;
    let mut unit = "bytes";
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if number < 1_024.0 {
            break;
        }
        (number, unit) = (number / 1_024.0, larger);
    }
    if unit == "bytes" {
        format!("{bytes} bytes")
    } else {
        format!("{number:.1} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_with_their_unit() {
        for (text, milliseconds) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("1.5m", 90_000),
            ("12h", 43_200_000),
            ("7d", 604_800_000),
            ("0s", 0),
        ] {
            assert_eq!(parse_span(text), Ok(Duration::from_millis(milliseconds)));
        }
        for text in ["30", "", "s", "1y", "-1s", "1.2.3s", "1e3s", "99999999999999d"] {
            assert!(parse_span(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(show_count(1_234_567), "1,234,567");
        assert_eq!(show_count(999), "999");
        assert_eq!(
            [0, 1, 1_000].map(|jobs| show_number_of(jobs, "job")),
            ["0 jobs", "1 job", "1,000 jobs"]
        );
        assert_eq!(show_microseconds(7.2), "7.20 µs");
        assert_eq!(show_microseconds(12_345.0), "12.3 ms");
        assert_eq!(show_seconds(3_725), "1h02m");
        assert_eq!(show_seconds(65), "1m05s");
        assert_eq!(show_bytes(1_536), "1.5 KiB");
        assert_eq!(show_bytes(12), "12 bytes");
    }
}
