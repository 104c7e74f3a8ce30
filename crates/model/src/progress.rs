//! The progress of running jobs.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::id::JobId;
use crate::limits::PROGRESS_MESSAGE_BYTES_MAX;

/// The half-life of a rate, in seconds. After this time, older values count half.
const HALF_LIFE_S: f64 = 10.0;

/// The largest estimated fraction of a job, once it has run for the mean duration of its kind.
const ESTIMATE_MAX: f64 = 0.99;

/// The progress of a job, as its handler reports it. Every part is optional.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    /// The fraction from 0 to 1. Without it, `done` of `total` counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fraction: Option<f64>,
    /// The finished work: bytes, rows, or whatever the job counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done: Option<u64>,
    /// The total work, in the same unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// A message; cut at [`PROGRESS_MESSAGE_BYTES_MAX`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl Progress {
    /// Makes progress from finished and total work.
    pub fn of(done: u64, total: u64) -> Self {
        Progress {
            done: Some(done),
            total: Some(total),
            ..Progress::default()
        }
    }

    /// Makes progress from a fraction, from 0 to 1.
    pub fn fraction(fraction: f64) -> Self {
        Progress {
            fraction: Some(fraction),
            ..Progress::default()
        }
    }

    /// Adds a message.
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }

    /// Brings all parts within their bounds.
    pub fn cleaned(mut self) -> Self {
        self.fraction = self
            .fraction
            .filter(|fraction| fraction.is_finite())
            .map(|fraction| fraction.clamp(0.0, 1.0));
        if let Some(message) = &mut self.message {
            message.truncate(message.floor_char_boundary(PROGRESS_MESSAGE_BYTES_MAX));
            if message.contains('\0') {
                *message = message.replace('\0', "\u{fffd}");
            }
        }
        self
    }

    /// The finished fraction, as far as it is known.
    pub fn known_fraction(&self) -> Option<f64> {
        self.fraction.or(match (self.done, self.total) {
            (Some(done), Some(total)) if total > 0 => Some((done as f64 / total as f64).min(1.0)),
            _ => None,
        })
    }

    /// The amount from which the rate is computed: the finished work, or the fraction.
    pub fn amount(&self) -> Option<f64> {
        self.done.map(|done| done as f64).or(self.fraction)
    }
}

/// The progress of one job, as its worker reports it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "FlatJobProgress")]
pub struct JobProgress {
    /// The job.
    pub job: JobId,
    /// The running attempt.
    pub attempt: u32,
    /// The handler's last report.
    #[serde(flatten)]
    pub progress: Progress,
    /// The increase in a second, in the unit of `done`, or of the fraction if only that is reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
}

/// The same fields on one level. A flattened reader would keep all unknown names.
#[derive(Deserialize)]
struct FlatJobProgress {
    job: JobId,
    attempt: u32,
    #[serde(default)]
    fraction: Option<f64>,
    #[serde(default)]
    done: Option<u64>,
    #[serde(default)]
    total: Option<u64>,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    rate_per_s: Option<f64>,
}

impl From<FlatJobProgress> for JobProgress {
    fn from(flat: FlatJobProgress) -> Self {
        JobProgress {
            job: flat.job,
            attempt: flat.attempt,
            progress: Progress {
                fraction: flat.fraction,
                done: flat.done,
                total: flat.total,
                message: flat.message,
            },
            rate_per_s: flat.rate_per_s,
        }
    }
}

/// The progress of a job, as it is shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShownProgress {
    /// The handler's report; without one, a fraction estimated from the mean duration of its kind.
    #[serde(flatten)]
    pub progress: Progress,
    /// The increase in a second, in the unit of `done`, or of the fraction if only that is reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    /// The estimated remaining time, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_ms: Option<u64>,
    /// The time of the worker's report, or of the query if this is an estimate.
    pub at: Timestamp,
    /// Whether the handler reported nothing, so that the progress is estimated from other jobs of its kind.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}

impl ShownProgress {
    /// Shows the report of time `at` at time `now`.
    pub fn told(told: JobProgress, at: Timestamp, now: Timestamp) -> Self {
        let JobProgress {
            progress, rate_per_s, ..
        } = told;
        let fraction = progress.known_fraction();
        // The fraction that is finished in a second.
        let speed = match (rate_per_s, progress.done, progress.total) {
            (Some(rate_per_s), Some(_), Some(total)) if total > 0 => Some(rate_per_s / total as f64),
            (Some(rate_per_s), None, _) => Some(rate_per_s),
            _ => None,
        };
        let left_ms = match (fraction, speed) {
            (Some(fraction), Some(speed)) if speed > 0.0 => {
                let passed_ms = now.since_ms(at).max(0) as f64;
                Some(((1.0 - fraction) / speed * 1_000.0 - passed_ms).max(0.0) as u64)
            }
            _ => None,
        };
        ShownProgress {
            progress: Progress { fraction, ..progress },
            rate_per_s,
            left_ms,
            at,
            estimated: false,
        }
    }

    /// Estimates the progress of a job that has run since `since`, from the mean duration of its kind in microseconds.
    pub fn estimated(since: Timestamp, mean_us: u64, now: Timestamp) -> Self {
        let (passed_ms, mean_ms) = (now.since_ms(since).max(0) as f64, mean_us as f64 / 1_000.0);
        let fraction = if mean_ms > 0.0 {
            (passed_ms / mean_ms).min(ESTIMATE_MAX)
        } else {
            ESTIMATE_MAX
        };
        ShownProgress {
            progress: Progress::fraction(fraction),
            rate_per_s: None,
            // A job that has taken longer than the mean has no estimate.
            left_ms: (passed_ms < mean_ms).then_some((mean_ms - passed_ms) as u64),
            at: now,
            estimated: true,
        }
    }
}

/// Measures the growth of an amount: the recent mean, with exponential weights.
#[derive(Debug, Clone, Copy, Default)]
pub struct RateMeter {
    last: Option<(f64, f64)>,
    per_s: Option<f64>,
}

impl RateMeter {
    /// Takes the amount at a time, in seconds from any origin. Returns the increase in a second; `None` before the
    /// second call, and after the amount has shrunk (the job began again).
    pub fn measure(&mut self, amount: f64, at_s: f64) -> Option<f64> {
        match self.last {
            Some((before, _)) if amount < before => *self = RateMeter::default(),
            Some((before, before_s)) if at_s > before_s => {
                let passed_s = at_s - before_s;
                let now_per_s = (amount - before) / passed_s;
                let weight = match self.per_s {
                    None => 1.0,
                    Some(_) => 1.0 - 0.5_f64.powf(passed_s / HALF_LIFE_S),
                };
                let per_s = self.per_s.unwrap_or_default();
                self.per_s = Some(per_s + weight * (now_per_s - per_s));
            }
            // Two measurements at one moment: the next one counts both.
            Some(_) => return self.per_s,
            None => {}
        }
        self.last = Some((amount, at_s));
        self.per_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::BatchId;

    fn told(progress: Progress, rate_per_s: Option<f64>) -> JobProgress {
        JobProgress {
            job: JobId {
                batch: BatchId(1),
                position: 2,
            },
            attempt: 1,
            progress,
            rate_per_s,
        }
    }

    #[test]
    fn the_remaining_time_follows_from_the_rate_and_the_time_since() {
        let (at, now) = (Timestamp(10_000), Timestamp(12_000));
        let shown = ShownProgress::told(told(Progress::of(250, 1_000), Some(50.0)), at, now);
        assert_eq!(shown.progress.fraction, Some(0.25));
        assert_eq!(
            shown.left_ms,
            Some(13_000),
            "750 at 50 a second, and 2 s have passed"
        );
        let shown = ShownProgress::told(told(Progress::fraction(0.5), Some(0.1)), at, at);
        assert_eq!(shown.left_ms, Some(5_000));
        let late = ShownProgress::told(told(Progress::fraction(0.5), Some(0.1)), at, Timestamp(99_000));
        assert_eq!(late.left_ms, Some(0));
        for unknown in [
            told(Progress::of(5, 0), Some(1.0)),
            told(Progress::of(5, 10), None),
            told(Progress::default().message("at it"), None),
        ] {
            assert_eq!(ShownProgress::told(unknown, at, now).left_ms, None);
        }
    }

    #[test]
    fn without_reports_the_mean_of_the_kind_is_used() {
        let since = Timestamp(0);
        let half = ShownProgress::estimated(since, 10_000_000, Timestamp(5_000));
        assert_eq!((half.progress.fraction, half.left_ms), (Some(0.5), Some(5_000)));
        assert!(half.estimated);
        let over = ShownProgress::estimated(since, 10_000_000, Timestamp(50_000));
        assert_eq!((over.progress.fraction, over.left_ms), (Some(ESTIMATE_MAX), None));
    }

    #[test]
    fn rates_follow_the_amount_and_begin_anew() {
        let mut meter = RateMeter::default();
        assert_eq!(meter.measure(0.0, 0.0), None);
        assert_eq!(meter.measure(100.0, 1.0), Some(100.0));
        assert_eq!(meter.measure(150.0, 1.0), Some(100.0), "no time has passed");
        assert_eq!(meter.measure(200.0, 2.0), Some(100.0));
        let slower = meter.measure(200.0, 12.0).unwrap();
        assert!(
            (slower - 50.0).abs() < 1e-9,
            "half of it after the half-life: {slower}"
        );
        assert_eq!(meter.measure(3.0, 13.0), None, "it began again");
        assert_eq!(meter.measure(5.0, 14.0), Some(2.0));
    }

    #[test]
    fn reports_are_kept_within_bounds() {
        let said = Progress {
            fraction: Some(f64::NAN),
            message: Some("é".repeat(PROGRESS_MESSAGE_BYTES_MAX)),
            ..Progress::default()
        };
        let cleaned = said.cleaned();
        assert_eq!(cleaned.fraction, None);
        assert_eq!(cleaned.message.unwrap().len(), PROGRESS_MESSAGE_BYTES_MAX);
        assert_eq!(Progress::fraction(7.0).cleaned().fraction, Some(1.0));
        let text = serde_json::to_string(&told(Progress::of(1, 2).message("x"), Some(0.5))).unwrap();
        assert_eq!(
            text,
            r#"{"job":"1:2","attempt":1,"done":1,"total":2,"message":"x","rate_per_s":0.5}"#
        );
        let read: JobProgress = serde_json::from_str(&text).unwrap();
        assert_eq!(read, told(Progress::of(1, 2).message("x"), Some(0.5)));
    }
}
