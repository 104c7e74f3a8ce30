//! Rates on the command line.

use std::time::Duration;

use crate::span::parse_span;

/// A number of attempts in a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// The number of attempts.
    pub jobs: u32,
    /// The period in which this many attempts may begin. Milliseconds.
    pub period_ms: u64,
}

/// Reads `10/s`, `100/m` or `5/10s`.
pub fn parse_rate(text: &str) -> Result<Rate, String> {
    let refuse =
        || format!("`{text}` is not a rate: write a number and a unit of time, as in 10/s, 100/m or 1000/h");
    let (jobs, unit) = text.split_once('/').ok_or_else(refuse)?;
    let jobs: u32 = jobs.parse().map_err(|_| refuse())?;
    if jobs == 0 {
        return Err(refuse());
    }
    let span = if unit.starts_with(|letter: char| letter.is_ascii_digit()) {
        unit.to_owned()
    } else {
        format!("1{unit}")
    };
    let period_ms = parse_span(&span).map_or(0, |span: Duration| span.as_millis());
    match u64::try_from(period_ms) {
        Ok(period_ms) if period_ms > 0 => Ok(Rate { jobs, period_ms }),
        _ => Err(refuse()),
    }
}

/// A rate whose period may come from an option of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitRate {
    /// The number of attempts.
    pub jobs: u32,
    /// The period in which this many attempts may begin, if the rate names it. Milliseconds.
    pub period_ms: Option<u64>,
}

/// Reads `10`, or a rate with its unit.
pub fn parse_limit_rate(text: &str) -> Result<LimitRate, String> {
    match text.parse() {
        Ok(jobs) => Ok(LimitRate {
            jobs,
            period_ms: None,
        }),
        Err(_) => parse_rate(text).map(|rate| LimitRate {
            jobs: rate.jobs,
            period_ms: Some(rate.period_ms),
        }),
    }
}
