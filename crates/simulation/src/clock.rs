//! Clocks in virtual time.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use gristmill_model::{Clock, Timestamp};
use gristmill_store_sqlite::SteadyClock;

/// What wall clocks show at the beginning: 2001-09-09T01:46:40Z.
const BEGINNING: Timestamp = Timestamp(1_000_000_000_000);

/// The virtual time since the beginning. Milliseconds.
fn elapsed_ms(began: Instant) -> i64 {
    i64::try_from(began.elapsed().as_millis()).unwrap_or(i64::MAX)
}

/// The wall clock of one machine, which can be set forward and back.
#[derive(Debug)]
pub struct WallClock {
    began: Instant,
    offset_ms: AtomicI64,
    /// When it was set last. Milliseconds since the beginning.
    set_at_ms: AtomicI64,
}

impl WallClock {
    /// A clock that is right.
    pub fn new(began: Instant) -> WallClock {
        WallClock {
            began,
            offset_ms: AtomicI64::new(0),
            set_at_ms: AtomicI64::new(0),
        }
    }

    /// Sets the clock to be wrong by so much.
    pub fn set_offset_ms(&self, offset_ms: i64) {
        self.offset_ms.store(offset_ms, Ordering::Relaxed);
        self.set_at_ms.store(elapsed_ms(self.began), Ordering::Relaxed);
    }

    /// Whether it has not been set for so long.
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

/// The monotonic clock of the machine of the store.
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
