//! The limits of the SQLite store. Those that all stores share are in `gristmill_model::limits`.

/// Pairs of queue and kind that one store knows: bounds the memory of the writer, and the seeks of a
/// claim of all kinds.
pub(super) const LANES_MAX: usize = 10_000;

/// Bytes of payloads that the writer keeps at hand, so that a batch that is claimed in parts is not
/// read again for each.
pub(super) const CONTENT_BYTES_MAX: usize = 16 << 20;

/// Batches that the writer keeps at hand, for the same reason.
pub(super) const CONTENT_BATCHES_MAX: usize = 4_096;

/// Lease ids that a process takes at once.
pub(super) const LEASE_IDS_PER_BLOCK: i64 = 1_000;

/// Single submits with different options that are packed at the same time.
pub(super) const OPEN_MERGES_MAX: usize = 32;

/// Connections for queries, at most; more queries wait for one.
pub(super) const READERS_MAX: usize = 4;

/// Prepared statements that a connection keeps: more than the store has.
pub(super) const STATEMENTS_MAX: usize = 128;

/// Batches that one transaction prunes, so that others do not wait for long.
pub(super) const PRUNED_BATCHES_PER_TRANSACTION: usize = 500;

/// Pages of the write-ahead log after which the writer checkpoints it: 32 MB. A checkpoint syncs twice and keeps others
/// waiting meanwhile, so it should be rare; a longer log would only take more room.
pub(super) const CHECKPOINT_PAGES: u32 = 8_000;
