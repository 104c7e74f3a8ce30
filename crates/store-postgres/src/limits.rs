//! The limits of the PostgreSQL store. Those that all stores share are in `gristmill_model::limits`.

use std::time::Duration;

/// The maximum number of connections of one handle that write; further operations wait for one. More would not commit faster.
pub(crate) const WRITERS_MAX: usize = 12;

/// The maximum number of connections of one handle for submits of jobs with keys, for changes of jobs and for new
/// lanes; further operations wait for one. A transaction of a SQL client may block all of these connections, but no
/// others.
pub(crate) const CHANGERS_MAX: usize = 4;

/// The maximum number of connections of one handle for heartbeats and the like. Each takes a moment, and waits for no
/// lock of a client.
pub(crate) const SIGNALLERS_MAX: usize = 2;

/// How long an operation waits for a connection while others use all of them, before it fails with
/// [`Locked`](gristmill_store::StoreError::Locked). Longer than several earlier operations may wait for locks.
pub(crate) const CONNECTION_WAIT_MAX: Duration = Duration::from_secs(60);

/// How long a handle works with its existing connections after the server gave it no more.
pub(crate) const SHORTAGE_LASTS: Duration = Duration::from_secs(30);

/// How often an operation looks for a free connection of another purpose during a shortage.
pub(crate) const SHORTAGE_LOOK_EVERY: Duration = Duration::from_millis(5);

/// How long a handle works without connections that listen after a shortage.
pub(crate) const LISTEN_AGAIN_AFTER_SHORTAGE: Duration = Duration::from_secs(600);

/// A connection that was idle for this long is closed, because others may need it.
pub(crate) const IDLE_CONNECTION_MAX: Duration = Duration::from_secs(60);

/// How often a connection that listens asks the server for a sign, and how long the answer may take.
pub(crate) const LISTENER_ASKS_EVERY: Duration = Duration::from_secs(30);
pub(crate) const LISTENER_ANSWER_MAX: Duration = Duration::from_secs(15);

/// How long an operation waits for a lock of another transaction by default, before it fails with
/// [`Locked`](gristmill_store::StoreError::Locked). Longer than the longest operation is expected to take. Milliseconds.
pub(crate) const BUSY_TIMEOUT_MS: u32 = 10_000;

/// How long a statement of an operation may take in addition to its wait for a lock, before the server ends it.
/// Statements of the largest operations take some seconds on a machine that is not overloaded; the SQL that reports
/// carry may take longer.
pub(crate) const STATEMENT_TIMEOUT_MS: u32 = 300_000;

/// The shortest `statement_timeout` of a role, a database or a server that operations can work with.
pub(crate) const STATEMENT_TIMEOUT_MIN: Duration = Duration::from_secs(10);

/// The shortest `lock_timeout` that operations can work with. Two operations wait for each other for a shorter time.
pub(crate) const LOCK_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// The maximum number of statements whose parameter types are kept: more than the store has, plus those of handlers.
pub(crate) const PARAMETER_TYPES_MAX: usize = 1_000;

/// The factor by which a statement of a query may take longer.
pub(crate) const QUERY_TIMEOUT_FACTOR: u32 = 3;

/// How long a connection may give no sign in addition to its wait for a lock, until the server is asked whether it
/// works for it. Together with the time for a new connection, this is less than a minute.
pub(crate) const SILENT_UNASKED_MAX: Duration = Duration::from_secs(10);

/// How long the server may take to answer that.
pub(crate) const ASKING_MAX: Duration = Duration::from_secs(10);

/// The maximum number of operations of a connection before it gets another row in the table `writer`. Each operation reads all versions
/// of its row that vacuum may not remove yet, because somebody holds an old snapshot: some tens of milliseconds after an hour with one
/// row, and less than one with this many versions.
pub(crate) const WRITER_ROW_OPERATIONS_MAX: i64 = 1_000;

/// How long a new connection may take, from its first byte until it can be used.
pub(crate) const CONNECTION_MAKING_MAX: Duration = Duration::from_secs(15);

/// The minimum time that an operation with little patience for locks waits for a connection: making one takes a while
/// on a loaded machine.
pub(crate) const CONNECTED_WITHIN_MIN: Duration = Duration::from_secs(5);

/// The slowest link that carries large requests in time. Bytes per second.
pub(crate) const LINK_BYTES_PER_S_MIN: u64 = 64 << 10;

/// How long the connection that listens for work waits for the advisory lock that shows this. While somebody else holds
/// the lock, all work is announced without it, and waiters poll at this interval.
pub(crate) const WAKE_LOCK_WAIT_MS: u32 = 1_000;

/// The maximum number of named transactions that others wait for.
pub(crate) const LOCK_HOLDERS_MAX: i64 = 10;

/// The maximum number of connections of one handle for queries; further queries wait for one.
pub(crate) const READERS_MAX: usize = 4;

/// How long an operation or query tries by default to reach a database that restarts or fails over, before it fails
/// with [`Unreachable`](gristmill_store::StoreError::Unreachable) (or
/// [`Unknown`](gristmill_store::StoreError::Unknown), if the connection was lost during the commit). Longer than a
/// restart with the recovery of some gigabytes. Milliseconds.
pub(crate) const UNREACHABLE_MS_MAX: u64 = 60_000;

/// How long a database is unreachable before that is logged, so that a short restart logs nothing.
pub(crate) const AWAY_TOLD_AFTER: Duration = Duration::from_secs(5);

/// How often an unreachable database is logged again.
pub(crate) const AWAY_TOLD_EVERY: Duration = Duration::from_secs(60);

/// The maximum number of attempts of an operation that others interfere with (a deadlock, a serialization failure).
pub(crate) const CONFLICTS_MAX: u32 = 10;

/// The maximum number of groups of submits in progress: while one waits for the disk, the next is sent.
pub(crate) const SUBMITS_UNDER_WAY_MAX: usize = 2;

/// When a worker claims again after it passed over locked slices: the other transactions may leave them. Milliseconds.
pub(crate) const PASSED_OVER_AGAIN_MS: i64 = 100;

/// Exchanges that gather for one transaction. All that gathered with the last of them go with it, so a transaction has
/// fewer than twice as many.
pub(crate) const GROUP_EXCHANGES_MAX: usize = 64;

/// The maximum number of bytes that the exchanges in one transaction report.
pub(crate) const GROUP_BYTES_MAX: usize = 1 << 20;

/// The maximum number of bytes that an exchange reports in a shared transaction. Larger ones go alone, in parallel: the
/// time they take depends on their bytes, not on the round trips and COMMIT.
pub(crate) const GROUPED_EXCHANGE_BYTES_MAX: usize = 64 << 10;

/// The maximum number of jobs that an exchange wants in a shared transaction.
pub(crate) const GROUPED_JOBS_MAX: u32 = 256;

/// The maximum number of exchanges that wait for a group; more wait for space.
pub(crate) const QUEUED_EXCHANGES_MAX: usize = 4_096;

/// The maximum number of bytes of exchanges that wait for a group.
pub(crate) const QUEUED_EXCHANGES_BYTES_MAX: usize = 32 << 20;

/// After a group of at least this many exchanges, the next one gathers for a moment. Smaller groups do not commit often.
pub(crate) const STEADY_FROM_EXCHANGES: usize = 4;

/// The time between the starts of two groups after that: at most 125 transactions a second, however many agents report.
pub(crate) const GROUPS_APART: Duration = Duration::from_millis(8);

/// The maximum number of bytes of one text (a batch's payloads, a report's values): PostgreSQL holds a gigabyte in a
/// row and accepts as much in a message, and the other columns need some of it.
pub(crate) const TEXT_BYTES_MAX: usize = (1 << 30) - (1 << 20);

/// Batches that one statement of a cancel or retry changes; all of its statements are one transaction.
pub(crate) const CHANGED_BATCHES_PER_STATEMENT: usize = 1_000;

/// The maximum number of batches that one transaction prunes, so that others do not wait for long.
pub(crate) const PRUNED_BATCHES_PER_TRANSACTION: i64 = 500;

/// How long after the last wait for work a handle keeps listening for submits of others, so that repeated waits do not
/// take and release a lock each time.
pub(crate) const LISTEN_AFTER_LAST_WAIT: Duration = Duration::from_secs(1);

/// How often watches of outcomes poll if there are no notifications. As often as workers look for jobs.
pub(crate) const LOOK_FOR_ENDED_EVERY: Duration = Duration::from_millis(100);

/// How long after the last awaited batch a handle keeps the connection that notifies it of ended jobs.
pub(crate) const LISTEN_AFTER_LAST_AWAITED: Duration = Duration::from_secs(10);

/// The maximum number of slices that one transaction expires, so that others do not wait for long.
pub(crate) const EXPIRED_SLICES_PER_TRANSACTION: i64 = 1_000;

/// How long a handle that has never written assumes that its database refuses writes, before it tries again.
pub(crate) const READ_ONLY_AGAIN_AFTER: Duration = Duration::from_secs(30);

/// How long the server waits within a transaction for the next statement, or for an answer to be taken. A process that
/// stops there holds rows that others wait for; after this time the server takes them back, and the operation is
/// retried.
pub(crate) const IDLE_IN_TRANSACTION: Duration = Duration::from_secs(5);

/// The maximum number of expired deduplication keys that one transaction deletes, so that others do not wait for long.
pub(crate) const FORGOTTEN_KEYS_PER_TRANSACTION: i64 = 10_000;

/// The maximum number of batches that one statement reads to count job by job, so that memory stays bounded.
pub(crate) const COUNTED_BATCHES_PER_STATEMENT: usize = 1_000;

/// Batches whose checksums housekeeping adds at once. SQL functions store batches of a megabyte, or one larger payload alone.
pub(crate) const SUMS_ADDED_AT_ONCE: i64 = 16;

/// The maximum number of lanes without jobs that one transaction of a prune deletes. First submits of new kinds, queues
/// and groups wait for it.
pub(crate) const DELETED_LANES_PER_TRANSACTION: i64 = 10_000;

/// How long a prune that deletes lanes waits for a lock, because submits wait behind it. If that is too short, the
/// lanes stay for the next prune.
pub(crate) const LANE_LOCKS_WAIT_MS: u32 = 200;

/// The maximum number of lanes that one statement makes. Other statements that make lanes wait for it.
pub(crate) const LANES_PER_STATEMENT: usize = 1_000;
