//! The limits of the PostgreSQL store. Those that all stores share are in `gristmill_model::limits`.

use std::time::Duration;

/// Connections of one handle that write, at most; further operations wait for one. More would not commit faster.
pub(crate) const WRITERS_MAX: usize = 12;

/// Connections of one handle for submits of jobs with keys, for changes of jobs and for new lanes, at most; further ones
/// wait for one. A transaction of a SQL client may keep all of them waiting, and nothing else.
pub(crate) const CHANGERS_MAX: usize = 4;

/// Connections of one handle for heartbeats and the like, at most. Each takes a moment, and waits for no lock of a client.
pub(crate) const SIGNALLERS_MAX: usize = 2;

/// How long an operation waits for a connection while others use all of them, before it fails with
/// [`Locked`](gristmill_store::StoreError::Locked). Longer than several of those before it wait for locks.
pub(crate) const CONNECTION_WAIT_MAX: Duration = Duration::from_secs(60);

/// How long a handle makes do with the connections that it has, once it was given no more.
pub(crate) const SHORTAGE_LASTS: Duration = Duration::from_secs(30);

/// How often an operation looks for a free connection of another purpose in such a time.
pub(crate) const SHORTAGE_LOOK_EVERY: Duration = Duration::from_millis(5);

/// How long a handle that was short of connections does without those that listen.
pub(crate) const LISTEN_AGAIN_AFTER_SHORTAGE: Duration = Duration::from_secs(600);

/// A connection that was idle for so long is closed: others may need it.
pub(crate) const IDLE_CONNECTION_MAX: Duration = Duration::from_secs(60);

/// How often a connection that listens asks for a sign of the server, and how long that may take.
pub(crate) const LISTENER_ASKS_EVERY: Duration = Duration::from_secs(30);
pub(crate) const LISTENER_ANSWER_MAX: Duration = Duration::from_secs(15);

/// How long an operation waits for a lock of another transaction by default, before it fails with
/// [`Locked`](gristmill_store::StoreError::Locked). Longer than the longest operation is expected to take. Milliseconds.
pub(crate) const BUSY_TIMEOUT_MS: u32 = 10_000;

/// How long a statement of an operation may take beside its wait for a lock, before the server ends it. Statements of the
/// largest operations take some seconds on a machine that is not overloaded; the SQL that reports carry may take longer.
pub(crate) const STATEMENT_TIMEOUT_MS: u32 = 300_000;

/// The shortest `statement_timeout` of a role, a database or a server that operations can do with.
pub(crate) const STATEMENT_TIMEOUT_MIN: Duration = Duration::from_secs(10);

/// The shortest `lock_timeout` that operations can do with. Two of them wait for each other for less.
pub(crate) const LOCK_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// Statements whose parameters' types are kept, at most: more than the store has, beside those of handlers.
pub(crate) const PARAMETER_TYPES_MAX: usize = 1_000;

/// How many times as long a statement of a query may take.
pub(crate) const QUERY_TIMEOUT_FACTOR: u32 = 3;

/// How long a connection may give no sign beside its wait for a lock, until the server is asked whether it is at work for it.
/// With the time for a new connection, this is less than a minute.
pub(crate) const SILENT_UNASKED_MAX: Duration = Duration::from_secs(10);

/// How long the server may take to say so.
pub(crate) const ASKING_MAX: Duration = Duration::from_secs(10);

/// How long a new connection may take, from its first byte until it can be used.
pub(crate) const CONNECTION_MAKING_MAX: Duration = Duration::from_secs(15);

/// How long an operation with little patience for locks waits for a connection all the same: to make one takes a while on a
/// loaded machine.
pub(crate) const CONNECTED_WITHIN_MIN: Duration = Duration::from_secs(5);

/// The slowest link that large requests go over in time. Bytes in a second.
pub(crate) const LINK_BYTES_PER_S_MIN: u64 = 64 << 10;

/// How long the connection that listens for work waits for the lock that says so. While a stranger holds that, work is
/// announced without it, and waiters look for work as often.
pub(crate) const WAKE_LOCK_WAIT_MS: u32 = 1_000;

/// Transactions that are named of those that others wait for.
pub(crate) const LOCK_HOLDERS_MAX: i64 = 10;

/// Connections of one handle for queries, at most; further queries wait for one.
pub(crate) const READERS_MAX: usize = 4;

/// How long an operation or query tries by default to reach a database that restarts or fails over, before it fails with
/// [`Unreachable`](gristmill_store::StoreError::Unreachable) (or [`Unknown`](gristmill_store::StoreError::Unknown), where it was lost while
/// it was committed). Longer than a restart with the recovery of some gigabytes. Milliseconds.
pub(crate) const UNREACHABLE_MS_MAX: u64 = 60_000;

/// A database that is away is told from this time on, so that a short restart passes in silence.
pub(crate) const AWAY_TOLD_AFTER: Duration = Duration::from_secs(5);

/// A database that is still away is told so often.
pub(crate) const AWAY_TOLD_EVERY: Duration = Duration::from_secs(60);

/// Attempts of an operation that others got in the way of (a deadlock, a serialization failure).
pub(crate) const CONFLICTS_MAX: u32 = 10;

/// Groups of submits that are committed at the same time: while one waits for the disk, the next is sent.
pub(crate) const SUBMITS_UNDER_WAY_MAX: usize = 2;

/// When a worker claims again that passed over slices which other transactions have locked: these may leave them. Milliseconds.
pub(crate) const PASSED_OVER_AGAIN_MS: i64 = 100;

/// Exchanges that gather for one transaction; those that have gathered with the last of them go with it, so that there are
/// fewer than twice as many.
pub(crate) const GROUP_EXCHANGES_MAX: usize = 64;

/// Bytes of what the exchanges in one transaction report, at most.
pub(crate) const GROUP_BYTES_MAX: usize = 1 << 20;

/// Bytes that an exchange may report to share a transaction. Larger ones go by themselves, side by side: their time is that
/// of their bytes, and not that of the trips and of COMMIT.
pub(crate) const GROUPED_EXCHANGE_BYTES_MAX: usize = 64 << 10;

/// Jobs that an exchange may want to share a transaction.
pub(crate) const GROUPED_JOBS_MAX: u32 = 256;

/// Exchanges that wait for a group, at most; more wait for room.
pub(crate) const QUEUED_EXCHANGES_MAX: usize = 4_096;

/// Bytes of exchanges that wait for a group, at most.
pub(crate) const QUEUED_EXCHANGES_BYTES_MAX: usize = 32 << 20;

/// A group of so many exchanges is followed by a moment in which the next one gathers. Fewer do not commit often.
pub(crate) const STEADY_FROM_EXCHANGES: usize = 4;

/// How long after such a group has begun the next one begins: at most 125 transactions a second, however many agents report.
pub(crate) const GROUPS_APART: Duration = Duration::from_millis(8);

/// Bytes of one text (a batch's payloads, a report's values) at most: PostgreSQL holds a gigabyte in a row and takes as
/// much in a message, and the other columns need some of it.
pub(crate) const TEXT_BYTES_MAX: usize = (1 << 30) - (1 << 20);

/// Batches that one statement of a cancel or retry changes; all of its statements are one transaction.
pub(crate) const CHANGED_BATCHES_PER_STATEMENT: usize = 1_000;

/// Batches that one transaction prunes, so that others do not wait for long.
pub(crate) const PRUNED_BATCHES_PER_TRANSACTION: i64 = 500;

/// How long after nobody waits for work any more a handle goes on to be told of what others submit: those that wait
/// again and again do not take and give back a lock each time.
pub(crate) const LISTEN_AFTER_LAST_WAIT: Duration = Duration::from_secs(1);

/// How often watches of outcomes look where nobody can be told of them. As often as workers look for jobs.
pub(crate) const LOOK_FOR_ENDED_EVERY: Duration = Duration::from_millis(100);

/// How long after the last awaited batch a handle keeps the connection that tells which jobs have ended.
pub(crate) const LISTEN_AFTER_LAST_AWAITED: Duration = Duration::from_secs(10);

/// Slices that one transaction expires, so that others do not wait for long.
pub(crate) const EXPIRED_SLICES_PER_TRANSACTION: i64 = 1_000;

/// How long a handle that has never written believes that its database takes no writes, before it tries again.
pub(crate) const READ_ONLY_AGAIN_AFTER: Duration = Duration::from_secs(30);

/// How long the server waits within a transaction for the next statement, or for an answer to be taken. A process that is
/// stopped or cut off there holds rows that others wait for; after this the server takes them back, and the operation is
/// tried again.
pub(crate) const IDLE_IN_TRANSACTION: Duration = Duration::from_secs(5);

/// Deduplication keys that one transaction forgets after their periods, so that others do not wait for long.
pub(crate) const FORGOTTEN_KEYS_PER_TRANSACTION: i64 = 10_000;

/// Batches that one statement reads of those that are counted job by job, so that memory stays bounded.
pub(crate) const COUNTED_BATCHES_PER_STATEMENT: usize = 1_000;

/// Batches whose sums housekeeping adds at once. SQL functions store batches of a megabyte, or a larger payload alone.
pub(crate) const SUMS_ADDED_AT_ONCE: i64 = 16;

/// Lanes without jobs that one transaction of a prune deletes. First submits of new kinds, queues and groups wait for it.
pub(crate) const DELETED_LANES_PER_TRANSACTION: i64 = 10_000;

/// How long a prune that deletes lanes waits for a lock. Submits wait behind it. Where that is too short, the lanes are left for the
/// next prune.
pub(crate) const LANE_LOCKS_WAIT_MS: u32 = 200;

/// Lanes that one statement makes. Others that make lanes wait for it.
pub(crate) const LANES_PER_STATEMENT: usize = 1_000;
