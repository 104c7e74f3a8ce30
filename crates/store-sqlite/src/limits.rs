//! The limits of the SQLite store. Those that all stores share are in `gristmill_model::limits`.

use std::time::Duration;

/// Lease ids that a process takes at once.
pub(crate) const LEASE_IDS_PER_BLOCK: i64 = 1_000;

/// The maximum number of connections for queries; more queries wait for one.
pub(crate) const READERS_MAX: usize = 4;

/// The page cache of the connection that writes. KiB. The caches of the readers have SQLite's default, 2,000 KiB. A server's memory
/// grows by these caches until the file is larger, and no further.
pub(crate) const WRITER_CACHE_KIB: i64 = 16_384;

/// Prepared statements that a connection keeps: more than the store has.
pub(crate) const STATEMENTS_MAX: usize = 128;

/// The maximum number of rows of cleanups that one transaction ends, so that others do not wait for long.
pub(crate) const ENDED_CLEANUPS_PER_TRANSACTION: usize = 100;

/// The maximum number of batches that one transaction prunes, so that others do not wait for long.
pub(crate) const PRUNED_BATCHES_PER_TRANSACTION: usize = 500;

/// The maximum number of lanes without jobs that one transaction of a prune deletes, so that others do not wait for long.
pub(crate) const DELETED_LANES_PER_TRANSACTION: u32 = 10_000;

/// The maximum number of free pages that one transaction gives back, so that others do not wait for long: it moves as many pages.
pub(crate) const VACUUMED_PAGES_PER_TRANSACTION: i64 = 500;

/// The time after which such a transaction ends, in milliseconds, so that others do not wait for long. With gigabytes of free pages, each
/// page takes up to a millisecond.
pub(crate) const SHRINK_PORTION_MS: i64 = 5;

/// The pause between two of these transactions, in which others write.
pub(crate) const SHRINK_PAUSE: Duration = Duration::from_millis(20);

/// The time after which a prune gives no more pages back, in milliseconds: housekeeping, which prunes every minute, also rescues jobs.
pub(crate) const SHRINK_MAX_MS: i64 = 2_000;

/// The log is cut to this size after a checkpoint, if a long reader has let it grow; a prune that lets it grow further gives no more
/// pages back. Bytes.
pub(crate) const LOG_BYTES_KEPT_MAX: u64 = 64 << 20;

/// The minimum number of free pages that stay after a prune for the next jobs: 4 MiB.
pub(crate) const FREE_PAGES_KEPT_MIN: i64 = 1_024;

/// One in this many pages of the file stays free after a prune, if there are so many: with a retention, as many jobs come as go.
pub(crate) const FREE_PAGES_KEPT_SHARE: i64 = 8;

/// The maximum number of batches that one transaction adds to the totals of their lanes, so that others do not wait for long: it
/// reads a page or two of each.
pub(crate) const TOTALLED_BATCHES_PER_TRANSACTION: u32 = 1_000;

/// The maximum number of ranges of batches that one statement of a history or of a count gets.
pub(crate) const GAPS_PER_STATEMENT: usize = 10_000;

/// Pages of the write-ahead log after which the writer checkpoints it: 32 MB. A checkpoint syncs twice and delays
/// others meanwhile, so it should be rare; a longer log would only take more space.
pub(crate) const CHECKPOINT_PAGES: u32 = 8_000;

/// The maximum number of expired deduplication keys that one transaction deletes, so that others do not wait for long.
pub(crate) const FORGOTTEN_KEYS_PER_TRANSACTION: u32 = 10_000;

/// How often a handle looks for changes of other processes while somebody waits for outcomes. A look takes some microseconds.
pub(crate) const LOOK_FOR_CHANGES_EVERY: Duration = Duration::from_millis(4);

/// Awaited batches for each [`LOOK_FOR_CHANGES_EVERY`]. With more of them the store looks less often, because it
/// queries each of them after a change.
pub(crate) const WATCHES_PER_LOOK: usize = 16;

/// The maximum number of symbolic links on the way to a store's file: as many as Linux follows.
pub(crate) const LINKS_MAX: u32 = 40;
