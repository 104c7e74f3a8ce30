//! The bytes that jobs move, as declared or as reported by handlers, and their limit. The limit bounds the
//! micro-batches that the worker starts.

use std::iter::Sum;
use std::ops::Add;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The weight of a new measurement against the earlier ones.
const WEIGHT: f64 = 0.3;

/// A rate in bytes per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IoRate {
    /// The bytes read per second.
    pub read_bytes_per_s: u64,
    /// The bytes written per second.
    pub written_bytes_per_s: u64,
}

impl IoRate {
    /// Reports whether nothing moves.
    pub fn is_zero(self) -> bool {
        self == IoRate::default()
    }

    /// Reports whether the rate stays within a budget.
    pub fn fits(self, budget: IoRate) -> bool {
        self.read_bytes_per_s <= budget.read_bytes_per_s
            && self.written_bytes_per_s <= budget.written_bytes_per_s
    }

    fn times(self, count: usize) -> IoRate {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        IoRate {
            read_bytes_per_s: self.read_bytes_per_s.saturating_mul(count),
            written_bytes_per_s: self.written_bytes_per_s.saturating_mul(count),
        }
    }
}

impl Add for IoRate {
    type Output = IoRate;

    fn add(self, other: IoRate) -> IoRate {
        IoRate {
            read_bytes_per_s: self.read_bytes_per_s.saturating_add(other.read_bytes_per_s),
            written_bytes_per_s: self.written_bytes_per_s.saturating_add(other.written_bytes_per_s),
        }
    }
}

impl Sum for IoRate {
    fn sum<I: Iterator<Item = IoRate>>(rates: I) -> IoRate {
        rates.fold(IoRate::default(), Add::add)
    }
}

/// The bytes that the jobs of one micro-batch reported.
#[derive(Debug, Default)]
pub struct IoCounter {
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
}

impl IoCounter {
    /// Adds bytes.
    pub fn add(&self, read_bytes: u64, written_bytes: u64) {
        self.read_bytes.fetch_add(read_bytes, Ordering::Relaxed);
        self.written_bytes.fetch_add(written_bytes, Ordering::Relaxed);
    }

    /// The rate of the counted bytes over a time. `None` if there are none.
    fn over(&self, elapsed: Duration) -> Option<IoRate> {
        let per_s = |bytes: &AtomicU64| {
            let bytes = bytes.load(Ordering::Relaxed) as f64;
            (bytes / elapsed.as_secs_f64().max(1e-6)) as u64
        };
        let rate = IoRate {
            read_bytes_per_s: per_s(&self.read_bytes),
            written_bytes_per_s: per_s(&self.written_bytes),
        };
        (!rate.is_zero()).then_some(rate)
    }
}

/// The bytes that micro-batches of one kind move: first as declared, then as measured.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct IoOfKind {
    declared: IoRate,
    measured: Option<IoRate>,
}

impl IoOfKind {
    pub fn declared(rate: IoRate) -> Self {
        IoOfKind {
            declared: rate,
            measured: None,
        }
    }

    /// The rate of one running micro-batch.
    pub fn rate(&self) -> IoRate {
        self.measured.unwrap_or(self.declared)
    }

    /// The rate of several micro-batches together.
    pub fn of(&self, running: usize) -> IoRate {
        self.rate().times(running)
    }

    /// Learns from an ended micro-batch. A micro-batch without reported bytes changes nothing.
    pub fn ended(&mut self, counter: &IoCounter, elapsed: Duration) {
        let Some(new) = counter.over(elapsed) else { return };
        let mixed = |old: u64, new: u64| (old as f64 + WEIGHT * (new as f64 - old as f64)) as u64;
        self.measured = Some(match self.measured {
            None => new,
            Some(old) => IoRate {
                read_bytes_per_s: mixed(old.read_bytes_per_s, new.read_bytes_per_s),
                written_bytes_per_s: mixed(old.written_bytes_per_s, new.written_bytes_per_s),
            },
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(read_bytes_per_s: u64, written_bytes_per_s: u64) -> IoRate {
        IoRate {
            read_bytes_per_s,
            written_bytes_per_s,
        }
    }

    #[test]
    fn measured_rates_replace_declared_ones() {
        let mut io = IoOfKind::declared(rate(100, 0));
        assert_eq!(io.of(3), rate(300, 0));
        io.ended(&IoCounter::default(), Duration::from_secs(1));
        assert_eq!(io.rate(), rate(100, 0), "nothing was counted");
        let counter = IoCounter::default();
        counter.add(1_000, 500);
        counter.add(1_000, 500);
        io.ended(&counter, Duration::from_secs(2));
        assert_eq!(io.rate(), rate(1_000, 500));
        io.ended(&counter, Duration::from_secs(1));
        assert_eq!(io.rate(), rate(1_300, 650));
        assert!(io.rate().fits(rate(1_300, 650)) && !io.rate().fits(rate(2_000, 600)));
    }
}
