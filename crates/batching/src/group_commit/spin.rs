//! A short wait without giving the processor away, for as long as that pays.

/// Looks before a thread parks. A pause takes 5 to 50 ns by processor, so that this is 50 us at most.
///
/// Measured with `benches/group_commit.rs` on two cores (a pause takes 25 ns there), median round trip of a
/// lone thread, four runs each on a machine with other work: 0.3, 0.3, 1.1 and 4.6 us with 1,000 pauses (4.6
/// where the scheduler kept both threads on one core), 3.9 to 5.0 us without spinning, 4.6 to 41 us with 200,
/// which is shorter than a wake-up from one core to the other. A plain channel and a oneshot took 4.7 to 55
/// us. 64 tasks together exceeded a million operations a second either way, and with a round trip every 2 ms
/// the processor time was that of the channel.
#[cfg(not(loom))]
const PAUSES_MAX: u32 = 1_000;
/// Spins of a thread after recent long waits.
#[cfg(not(loom))]
const PAUSES_MIN: u32 = 10;
/// After recent long waits, a thread retries the whole spin once in this number of waits.
#[cfg(not(loom))]
const WAITS_PER_PROBE: u32 = 64;

/// How long to spin before parking: the maximum after a successful spin, half of the last one after each failed spin.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spin {
    #[cfg(not(loom))]
    pauses: u32,
    #[cfg(not(loom))]
    waits: u32,
}

#[cfg(not(loom))]
impl Spin {
    pub(super) const fn new() -> Spin {
        Spin {
            pauses: PAUSES_MAX,
            waits: 0,
        }
    }

    /// Spins until `ready` or until the spin is used up; whether it became ready.
    pub(super) fn until(&mut self, ready: impl Fn() -> bool) -> bool {
        self.waits = self.waits.wrapping_add(1);
        let pauses = if self.waits.is_multiple_of(WAITS_PER_PROBE) {
            PAUSES_MAX
        } else {
            self.pauses
        };
        for _ in 0..pauses {
            if ready() {
                // Straight back to the whole spin: what takes 500 pauses is never found with twice 10.
                self.pauses = PAUSES_MAX;
                return true;
            }
            std::hint::spin_loop();
        }
        self.pauses = (self.pauses / 2).max(PAUSES_MIN);
        false
    }
}

/// Under loom there is nothing to win by spinning, only interleavings to explore twice.
#[cfg(loom)]
impl Spin {
    pub(super) const fn new() -> Spin {
        Spin {}
    }

    pub(super) fn until(&mut self, _ready: impl Fn() -> bool) -> bool {
        false
    }
}
