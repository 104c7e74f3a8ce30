//! The index of a write-ahead log: memory that the connections of a file share, with its own locks. A cut loses the memory.

use std::cell::UnsafeCell;
use std::collections::BTreeMap;

/// A request for locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    /// Take the locks beside other shared locks.
    Shared,
    /// Take the locks alone.
    Exclusive,
    /// Drop the locks.
    Release,
}

/// The locks of a connection, one bit for each slot.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    shared: u32,
    exclusive: u32,
}

/// The regions and locks of the shared memory.
#[derive(Debug, Default)]
pub(crate) struct SharedMemory {
    /// The regions, in words because SQLite reads numbers of eight bytes in them. They are cells because SQLite writes
    /// through pointers.
    regions: Vec<Box<[UnsafeCell<u64>]>>,
    held: BTreeMap<u64, Held>,
}

impl SharedMemory {
    /// The address of a region. A region keeps its address until the last connection leaves.
    pub fn map(&mut self, handle: u64, region: usize, bytes: usize, extend: bool) -> Option<*mut u8> {
        self.held.entry(handle).or_default();
        while extend && self.regions.len() <= region {
            let words = std::iter::repeat_with(|| UnsafeCell::new(0)).take(bytes.div_ceil(8));
            self.regions.push(words.collect());
        }
        let words = self.regions.get(region)?;
        Some(UnsafeCell::raw_get(words.as_ptr()).cast())
    }

    /// Takes or drops the locks of `slots`. Returns `false` if a lock of another connection conflicts.
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

    /// Drops the locks of a connection. The regions disappear with the last connection.
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
    fn shared_locks_coexist_and_exclusive_locks_stand_alone() {
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
