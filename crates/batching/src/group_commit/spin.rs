//! A short wait that keeps the processor, as long as that pays.

/// Spins before a thread parks. One pause takes 5 to 50 ns, depending on the processor, so that all take 50 us at most.
///
/// Measured with `benches/group_commit.rs` on two cores (a pause takes 25 ns there): the median round trip of a lone
/// thread, in four runs each on a machine with other work. 1,000 pauses gave 0.3, 0.3, 1.1 and 4.6 us (4.6 when the
/// scheduler kept both threads on one core), no spinning gave 3.9 to 5.0 us, and 200 pauses gave 4.6 to 41 us, because
/// they are shorter than a wake-up from one core to the other. A plain channel and a oneshot took 4.7 to 55 us. 64
/// tasks together exceeded a million operations a second in both ways. With a round trip every 2 ms, the processor time
/// equalled the channel's.
#[cfg(not(loom))]
const PAUSES_MAX: u32 = 1_000;
/// Spins of a thread after recent long waits.
#[cfg(not(loom))]
const PAUSES_MIN: u32 = 10;
/// After recent long waits, a thread tries all spins again once in this number of waits.
#[cfg(not(loom))]
const WAITS_PER_PROBE: u32 = 64;

/// The number of spins before parking: the maximum after a successful wait, half of the last number after each failed one.
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

    /// Spins until `ready`, or until the spins are used up. Returns whether it became ready.
    pub(super) fn until(&mut self, ready: impl Fn() -> bool) -> bool {
        self.waits = self.waits.wrapping_add(1);
        let pauses = if self.waits.is_multiple_of(WAITS_PER_PROBE) {
            PAUSES_MAX
        } else {
            self.pauses
        };
        for _ in 0..pauses {
            if ready() {
                // Return to the maximum at once: doubling 10 would never reach a wait of 500 pauses.
                self.pauses = PAUSES_MAX;
                return true;
            }
            std::hint::spin_loop();
        }
        self.pauses = (self.pauses / 2).max(PAUSES_MIN);
        false
    }
}

/// Under loom, spinning gains nothing and doubles the interleavings to explore.
#[cfg(loom)]
impl Spin {
    pub(super) const fn new() -> Spin {
        Spin {}
    }

    pub(super) fn until(&mut self, _ready: impl Fn() -> bool) -> bool {
        false
    }
}
