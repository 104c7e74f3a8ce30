//! The locks of a file, as SQLite requests them (see lockingv3.html in its documentation).

use std::collections::BTreeMap;

/// The lock that a connection holds on a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Level {
    /// The connection holds no lock.
    #[default]
    None,
    /// The connection reads, and others may read too.
    Shared,
    /// The connection is about to write, and others may still read.
    Reserved,
    /// The connection waits for the readers to leave, and no new reader may enter.
    Pending,
    /// The connection writes, alone.
    Exclusive,
}

/// The locks of a file's connections.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    levels: BTreeMap<u64, Level>,
}

impl Locks {
    /// Raises the lock of a connection. Returns `false` if the lock of another connection conflicts.
    pub fn lock(&mut self, handle: u64, level: Level) -> bool {
        let own = self.levels.get(&handle).copied().unwrap_or_default();
        if own >= level {
            return true;
        }
        let others = self.levels.iter().filter(|(other, _)| **other != handle);
        let others = others.map(|(_, level)| *level).max().unwrap_or_default();
        let in_the_way = match level {
            Level::None => Level::Exclusive,
            Level::Shared => Level::Pending,
            Level::Reserved | Level::Pending | Level::Exclusive => Level::Reserved,
        };
        if level > Level::None && others >= in_the_way {
            return false;
        }
        if level == Level::Exclusive && others >= Level::Shared {
            self.levels.insert(handle, Level::Pending);
            return false;
        }
        self.levels.insert(handle, level);
        self.assert_compatible();
        true
    }

    /// Asserts that at most one connection is about to write, and that a connection that writes is alone.
    fn assert_compatible(&self) {
        let writers = self
            .levels
            .values()
            .filter(|level| **level >= Level::Reserved)
            .count();
        assert!(writers <= 1, "at most one connection holds a lock for writing");
        let alone = self.levels.values().all(|level| *level < Level::Exclusive) || self.levels.len() == 1;
        assert!(alone, "a connection that writes is the only one with a lock");
    }

    /// Lowers the lock of a connection.
    pub fn unlock(&mut self, handle: u64, level: Level) {
        if level == Level::None {
            self.levels.remove(&handle);
        } else if let Some(own) = self.levels.get_mut(&handle) {
            *own = level.min(*own);
        }
    }

    /// Reports whether a connection holds more than a shared lock.
    pub fn is_reserved(&self) -> bool {
        self.levels.values().any(|level| *level > Level::Shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pending_writer_waits_for_readers_and_blocks_new_readers() {
        let mut locks = Locks::default();
        assert!(locks.lock(1, Level::Shared) && locks.lock(2, Level::Shared));
        assert!(locks.lock(1, Level::Reserved));
        assert!(!locks.lock(2, Level::Reserved), "one writes");
        assert!(!locks.lock(1, Level::Exclusive), "another one reads");
        assert!(!locks.lock(3, Level::Shared), "a writer waits");
        locks.unlock(2, Level::None);
        assert!(locks.lock(1, Level::Exclusive) && locks.is_reserved());
        locks.unlock(1, Level::Shared);
        assert!(locks.lock(3, Level::Shared) && !locks.is_reserved());
    }
}
