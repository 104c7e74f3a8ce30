//! Backpressure: a worker claims fewer jobs, or only urgent ones, while its machine is busy.
//!
//! Under pressure, the worker claims with a minimum priority. It bounds the priorities that the claim reads.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub mod machine;

/// The time between two readings of the sources.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// A source of pressure: the processor, the memory, or a service that jobs call.
pub trait PressureSource: Send + Sync + fmt::Debug + 'static {
    /// The name of the source, for people.
    fn name(&self) -> &str;

    /// The pressure from 0 (idle) to 1 (fully used). The worker's own task asks about twice a second, so it must return
    /// quickly. NaN counts as 0.
    fn pressure(&self) -> f64;
}

/// The jobs that a worker still claims under pressure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Admission {
    /// Jobs of this priority and above.
    From(i16),
    /// No jobs.
    Nothing,
}

/// A threshold. It applies while the pressure is at `pressure` or above.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Threshold {
    /// The pressure, from 0 to 1.
    pub pressure: f64,
    /// The admitted jobs.
    pub admits: Admission,
}

/// The sources of pressure, and its effects. Without sources nothing is measured.
#[derive(Debug, Clone, Default)]
pub struct Backpressure {
    /// The sources. The one with the highest pressure decides.
    pub sources: Vec<Arc<dyn PressureSource>>,
    /// The thresholds. The strictest of the reached ones decides.
    pub thresholds: Vec<Threshold>,
}

/// The last measured pressure of a worker.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    backpressure: Backpressure,
    asked_at: Option<Instant>,
    admits: Option<Admission>,
}

impl Gauge {
    pub fn new(backpressure: Backpressure) -> Self {
        Gauge {
            backpressure,
            asked_at: None,
            admits: None,
        }
    }

    /// The jobs that may be claimed now. `None` admits all jobs.
    pub fn admits(&mut self, now: Instant) -> Option<Admission> {
        let is_fresh = |at: Instant| now.saturating_duration_since(at) < ASK_EVERY;
        if self.backpressure.sources.is_empty() || self.asked_at.is_some_and(is_fresh) {
            return self.admits;
        }
        self.asked_at = Some(now);
        let highest = self
            .backpressure
            .sources
            .iter()
            .map(|source| (source.pressure(), source.name()))
            .filter(|(pressure, _)| !pressure.is_nan())
            .max_by(|one, other| one.0.total_cmp(&other.0));
        let Some((pressure, name)) = highest else {
            return self.admits;
        };
        let reached = self.backpressure.thresholds.iter();
        let admits = reached
            .filter(|threshold| pressure >= threshold.pressure)
            .map(|threshold| threshold.admits)
            .max();
        if admits != self.admits {
            tracing::info!(
                pressure,
                source = name,
                ?admits,
                "the admission under pressure changed"
            );
            self.admits = admits;
        }
        self.admits
    }

    /// The time after which the sources are asked again.
    pub fn again_after(&self) -> Duration {
        ASK_EVERY
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Debug)]
    struct Set(Mutex<f64>);

    impl PressureSource for Set {
        fn name(&self) -> &str {
            "set"
        }

        fn pressure(&self) -> f64 {
            *self.0.lock().unwrap()
        }
    }

    #[test]
    fn the_highest_pressure_and_the_strictest_threshold_decide() {
        let sources = [0.0, 0.0].map(|pressure| Arc::new(Set(Mutex::new(pressure))));
        let mut gauge = Gauge::new(Backpressure {
            sources: sources
                .iter()
                .map(|source| source.clone() as Arc<dyn PressureSource>)
                .collect(),
            thresholds: vec![
                Threshold {
                    pressure: 0.5,
                    admits: Admission::From(0),
                },
                Threshold {
                    pressure: 0.95,
                    admits: Admission::Nothing,
                },
                Threshold {
                    pressure: 0.8,
                    admits: Admission::From(100),
                },
            ],
        });
        let mut now = Instant::now();
        for (one, other, expected) in [
            (0.1, 0.4, None),
            (0.5, 0.0, Some(Admission::From(0))),
            (0.2, 0.9, Some(Admission::From(100))),
            (1.0, f64::NAN, Some(Admission::Nothing)),
            (0.0, 0.0, None),
        ] {
            *sources[0].0.lock().unwrap() = one;
            *sources[1].0.lock().unwrap() = other;
            now += ASK_EVERY;
            assert_eq!(gauge.admits(now), expected, "{one} and {other}");
            *sources[0].0.lock().unwrap() = 0.6;
            assert_eq!(gauge.admits(now), expected, "nobody is asked again so soon");
        }
        assert_eq!(Gauge::default().admits(now), None);
    }
}
