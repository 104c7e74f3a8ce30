//! The index of a write-ahead log: memory that the connections of a file share, with locks of its own. It is gone after a
//! cut.

use std::cell::UnsafeCell;
use std::collections::BTreeMap;

/// Whether locks are taken, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    /// Beside other shared ones.
    Shared,
    /// Alone.
    Exclusive,
    /// They are dropped.
    Release,
}

/// The locks of a connection: a bit a slot.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    shared: u32,
    exclusive: u32,
}

/// Regions and locks.
#[derive(Debug, Default)]
pub(crate) struct SharedMemory {
    /// Words, since SQLite reads numbers of eight bytes in them. SQLite writes through pointers, hence the cells.
    regions: Vec<Box<[UnsafeCell<u64>]>>,
    held: BTreeMap<u64, Held>,
}

impl SharedMemory {
    /// Where a region is, which does not move until the last connection has left.
    pub fn map(&mut self, handle: u64, region: usize, bytes: usize, extend: bool) -> Option<*mut u8> {
        self.held.entry(handle).or_default();
        while extend && self.regions.len() <= region {
            let words = std::iter::repeat_with(|| UnsafeCell::new(0)).take(bytes.div_ceil(8));
            self.regions.push(words.collect());
        }
        let words = self.regions.get(region)?;
        Some(UnsafeCell::raw_get(words.as_ptr()).cast())
    }

    /// Takes or drops the locks of `slots`. `false` where another connection is in the way.
    pub fn lock(&mut self, handle: u64, slots: u32, request: Request) -> bool {
        let others = self.held.iter().filter(|(other, _)| **other != handle);
        let (mut shared, mut exclusive) = (0, 0);
        for (_, held) in others {
            shared |= held.shared;
            exclusive |= held.exclusive;
        }
        let own = self.held.entry(handle).or_default();
        match request {
            Request::Release => {
                own.shared &= !slots;
                own.exclusive &= !slots;
            }
            Request::Shared if exclusive & slots == 0 => own.shared |= slots,
            Request::Exclusive if (exclusive | shared) & slots == 0 => own.exclusive |= slots,
            Request::Shared | Request::Exclusive => return false,
        }
        true
    }

    /// Drops the locks of a connection; the last one that leaves takes the regions with it.
    pub fn unmap(&mut self, handle: u64) {
        self.held.remove(&handle);
        if self.held.is_empty() {
            self.regions.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_locks_stand_beside_each_other_and_exclusive_ones_alone() {
        let mut memory = SharedMemory::default();
        assert!(memory.map(1, 0, 64, false).is_none());
        let region = memory.map(1, 0, 64, true);
        assert!(region.is_some() && memory.map(2, 0, 64, false) == region);
        assert!(memory.lock(1, 0b11, Request::Shared) && memory.lock(2, 0b01, Request::Shared));
        assert!(!memory.lock(2, 0b10, Request::Exclusive));
        assert!(memory.lock(1, 0b10, Request::Release) && memory.lock(2, 0b10, Request::Exclusive));
        assert!(!memory.lock(1, 0b10, Request::Shared));
        memory.unmap(2);
        assert!(memory.lock(1, 0b11, Request::Exclusive));
        memory.unmap(1);
        assert!(
            memory.map(3, 0, 64, false).is_none(),
            "gone with the last connection"
        );
    }
}
