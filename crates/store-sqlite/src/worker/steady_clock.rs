//! The clocks of a store: the wall clock, which people and time services set, and the monotonic clock.
//!
//! All processes that have a file open run on one machine. So the silence of a worker is measured by the steady clock
//! of that machine, which all of them read alike: a wall clock that is set forward ends no lease, and one that is set
//! back keeps none. Times of heartbeats are still shown as wall times: by the difference of the two clocks when the
//! caller last asked for the time.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use gristmill_model::{Clock, Timestamp};
use rustix::time::{ClockId, clock_gettime};

/// The file that identifies this boot of the machine.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A monotonic clock. It stands still while the machine is suspended, and starts again with each boot.
pub trait SteadyClock: Send + Sync + fmt::Debug {
    /// Milliseconds since the machine was booted, the same for all processes.
    fn now_ms(&self) -> i64;

    /// The id of this boot of the machine.
    fn boot(&self) -> &str;
}

/// The machine's monotonic clock.
#[derive(Debug)]
struct MachineSteadyClock {
    boot: String,
}

impl SteadyClock for MachineSteadyClock {
    fn now_ms(&self) -> i64 {
        let now = clock_gettime(ClockId::Monotonic);
        now.tv_sec * 1_000 + now.tv_nsec / 1_000_000
    }

    fn boot(&self) -> &str {
        &self.boot
    }
}

/// A clock that is only moved by hand is steady itself.
#[derive(Debug)]
struct MovedByHand(Arc<dyn Clock>);

impl SteadyClock for MovedByHand {
    fn now_ms(&self) -> i64 {
        self.0.now().0
    }

    fn boot(&self) -> &str {
        ""
    }
}

/// The clocks of a store.
#[derive(Debug)]
pub(crate) struct Clocks {
    wall: Arc<dyn Clock>,
    steady: Arc<dyn SteadyClock>,
    /// How far the wall clock was ahead of the steady one when they were last compared.
    ahead_ms: AtomicI64,
}

/// When a worker sent a heartbeat, by the steady clock.
#[derive(Debug, Clone)]
pub(crate) struct Beat {
    pub boot: Arc<str>,
    pub at_ms: i64,
}

/// Turns heartbeats into wall times.
#[derive(Debug, Clone)]
pub(crate) struct WallTimes {
    boot: Arc<str>,
    ahead_ms: i64,
}

impl Clocks {
    /// `steady` is the clock of the options.
    pub fn new(wall: Arc<dyn Clock>, steady: Option<Arc<dyn SteadyClock>>) -> Clocks {
        let steady: Arc<dyn SteadyClock> = match steady {
            Some(steady) => steady,
            None if wall.is_machine() => Arc::new(MachineSteadyClock {
                // Without it, all boots count as the same.
                boot: std::fs::read_to_string(BOOT_ID)
                    .unwrap_or_default()
                    .trim()
                    .to_owned(),
            }),
            None => Arc::new(MovedByHand(wall.clone())),
        };
        let clocks = Clocks {
            wall,
            steady,
            ahead_ms: AtomicI64::new(0),
        };
        clocks.compare();
        clocks
    }

    /// The steady clock.
    pub fn steady(&self) -> &Arc<dyn SteadyClock> {
        &self.steady
    }

    /// The time by the wall clock.
    pub fn now(&self) -> Timestamp {
        self.wall.now()
    }

    /// The same; [`wall_times`](Clocks::wall_times) agree with it until the next call.
    pub fn compare(&self) -> Timestamp {
        let now = self.wall.now();
        self.ahead_ms
            .store(now.0.saturating_sub(self.steady.now_ms()), Ordering::Relaxed);
        now
    }

    /// A heartbeat at this moment.
    pub fn beat(&self) -> Beat {
        Beat {
            boot: self.steady.boot().into(),
            at_ms: self.steady.now_ms(),
        }
    }

    /// The wall times of heartbeats.
    pub fn wall_times(&self) -> WallTimes {
        WallTimes {
            boot: self.steady.boot().into(),
            ahead_ms: self.ahead_ms.load(Ordering::Relaxed),
        }
    }
}

impl WallTimes {
    /// The time of a heartbeat. One of another boot was before this one, whatever the wall clock showed then.
    pub fn of(&self, boot: &str, at_ms: i64, said_at: Timestamp) -> Timestamp {
        if boot == &*self.boot {
            Timestamp(self.ahead_ms.saturating_add(at_ms))
        } else {
            said_at.min(Timestamp(self.ahead_ms))
        }
    }
}
