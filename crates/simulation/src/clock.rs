//! Clocks in virtual time.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use gristmill_model::{Clock, Timestamp};
use gristmill_store_sqlite::SteadyClock;

/// The time of the wall clocks at the start: 2001-09-09T01:46:40Z.
const BEGINNING: Timestamp = Timestamp(1_000_000_000_000);

/// The virtual time since the start, in milliseconds.
fn elapsed_ms(began: Instant) -> i64 {
    i64::try_from(began.elapsed().as_millis()).unwrap_or(i64::MAX)
}

/// The wall clock of one machine. A fault sets it forward or back.
#[derive(Debug)]
pub struct WallClock {
    began: Instant,
    offset_ms: AtomicI64,
    /// The time of the last change, in milliseconds since the start.
    set_at_ms: AtomicI64,
}

impl WallClock {
    /// A clock that shows the right time.
    pub fn new(began: Instant) -> WallClock {
        WallClock {
            began,
            offset_ms: AtomicI64::new(0),
            set_at_ms: AtomicI64::new(0),
        }
    }

    /// Sets the error of the clock.
    pub fn set_offset_ms(&self, offset_ms: i64) {
        self.offset_ms.store(offset_ms, Ordering::Relaxed);
        self.set_at_ms.store(elapsed_ms(self.began), Ordering::Relaxed);
    }

    /// Reports whether the clock was left alone for this long.
    pub fn is_steady_for(&self, time: Duration) -> bool {
        let set_at = Duration::from_millis(self.set_at_ms.load(Ordering::Relaxed).cast_unsigned());
        self.began.elapsed() >= set_at + time
    }
}

impl Clock for WallClock {
    fn now(&self) -> Timestamp {
        BEGINNING.plus_ms(elapsed_ms(self.began) + self.offset_ms.load(Ordering::Relaxed))
    }
}

/// The monotonic clock of the store's machine.
#[derive(Debug)]
pub struct MonotonicClock(pub Instant);

impl SteadyClock for MonotonicClock {
    fn now_ms(&self) -> i64 {
        elapsed_ms(self.0)
    }

    fn boot(&self) -> &str {
        "simulation"
    }
}
