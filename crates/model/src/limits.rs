//! All shared limits, in one place: nothing is unbounded.
//!
//! Input over a limit gets an error that names the limit, and nothing is stored.

/// Jobs in one batch at most. Positions are below it, so that a report's id can be derived from its
/// batch and its first position.
pub const BATCH_JOBS_MAX: u32 = 10_000;

/// Bytes of packed payloads in one batch by default; a single larger payload travels alone.
pub const BATCH_BYTES_TARGET: usize = 1 << 20;

/// Bytes of one payload at most. SQLite and PostgreSQL hold more; a queue of larger things should
/// hold references to them.
pub const PAYLOAD_BYTES_MAX: usize = 16 << 20;

/// Levels of lists and objects in one payload or value at most. Readers are recursive: serde_json ends at about as many,
/// Python and PostgreSQL at some thousand.
pub const JSON_DEPTH_MAX: usize = 128;

/// Levels that Gristmill itself puts around a payload or value: of merged payloads, and of outcomes of children.
pub const WRAPPED_DEPTH_MAX: usize = 4;

/// Bytes of one returned value at most, for the same reason as of a payload.
pub const VALUE_BYTES_MAX: usize = 16 << 20;

/// Statements that one job writes with its report.
pub const WRITES_PER_JOB_MAX: usize = 16;

/// Bytes of one job's log that are kept; the rest is counted and dropped.
pub const LOG_BYTES_MAX: usize = 64 << 10;

/// Bytes of one error message that are kept.
pub const ERROR_MESSAGE_BYTES_MAX: usize = 4 << 10;

/// Bytes of one traceback that are kept.
pub const ERROR_TRACEBACK_BYTES_MAX: usize = 32 << 10;

/// Bytes in the name of a kind, queue, group, worker or run.
pub const NAME_BYTES_MAX: usize = 200;

/// Bytes of the URL of a completion hook.
pub const HOOK_URL_BYTES_MAX: usize = 2_000;

/// Attempts of one job at most, whatever its policy says.
pub const ATTEMPTS_MAX: u32 = 1_000;

/// How often a failed job runs again at once in the same slot of its worker; then it goes back in line, so that no job
/// keeps a slot for good.
pub const REPEATS_MAX: u32 = 15;

/// Bytes of failures that a slot keeps of the jobs that it runs again; above, failed jobs go back in line.
pub const EARLIER_FAILURES_BYTES_MAX: usize = 4 << 20;

/// How often a job may be held by a worker that dies before the job is given up as dead. Not charged
/// as attempts, since most of the jobs that a dying worker holds are innocent; bounded all the same,
/// so that a job that kills its worker ends.
pub const RESCUES_MAX: u32 = 20;

/// The default time that a cancelled job may continue after the signal. Milliseconds.
pub const CANCEL_GRACE_MS: u64 = 10_000;

/// Slices in one lease at most: bounds the lease's row and the claim's transaction.
pub const LEASE_SLICES_MAX: u32 = 1_000;

/// Jobs in one lease at most.
pub const LEASE_JOBS_MAX: u32 = 10_000;

/// Bytes of payloads, memos, keys, tags and groups in one lease after which the claim stops adding slices.
pub const LEASE_BYTES_TARGET: usize = 4 << 20;

/// Waiting workers of one process that a store keeps the wishes of, so that submits claim for them. Further ones are
/// woken and look by themselves.
pub const WAITING_WANTS_MAX: usize = 1_000;

/// Waiting workers that one transaction claims for, so that a submit does not wait for more.
pub const HAND_OVERS_PER_TRANSACTION_MAX: usize = 16;

/// Jobs or batches that one batch waits for at most: whole batches count once, however many jobs they have.
pub const PREREQUISITES_MAX: usize = 100_000;

/// Prerequisites that the details of a blocked job list at most.
pub const SHOWN_PREREQUISITES_MAX: usize = 100;

/// Batches of children that one job spawns at most.
pub const CHILD_BATCHES_MAX: usize = 1_000;

/// The maximum number of batches of children of parents that were suspended together, siblings included: each child
/// that ends searches them.
pub const FAMILY_BATCHES_MAX: usize = 10_000;

/// The maximum size of a memo. Bytes.
pub const MEMO_BYTES_MAX: usize = 1 << 20;

/// Jobs that finalize together at most: the outcomes of their children are read at once.
pub const FINALIZED_JOBS_MAX: u32 = 64;

/// Operations that may wait for a store's writer; more wait for room.
pub const WRITER_OPERATIONS_MAX: usize = 8_192;

/// Bytes of operations that may wait for a store's writer.
pub const WRITER_BYTES_MAX: usize = 32 << 20;

/// Operations in one transaction of a store's writer.
pub const TRANSACTION_OPERATIONS_MAX: usize = 2_048;

/// Bytes of operations in one transaction of a store's writer.
pub const TRANSACTION_BYTES_MAX: usize = 8 << 20;

/// Rows that one page of a listing returns at most.
pub const PAGE_ROWS_MAX: u32 = 10_000;

/// Jobs that one transaction changes of those that match a filter: a whole batch.
pub const PORTION_JOBS_MAX: u32 = BATCH_JOBS_MAX;

/// How long events are kept, and recorded after the last listener. Milliseconds: an hour.
pub const EVENTS_KEPT_MS: i64 = 3_600_000;

/// Small reports of a batch that has ended, above which they are compacted.
pub const REPORTS_LEFT_MAX: u32 = 4;

/// Bytes of a report that is small.
pub const SMALL_REPORT_BYTES_MAX: u32 = 64 << 10;

/// Bytes of small reports that are compacted in one transaction. Batches with more of them are left as they are.
pub const COMPACTED_BYTES_MAX: u32 = 2 << 20;

/// How many of the latest batches are looked at to be compacted.
pub const COMPACTED_BATCHES_BACK: u32 = 10_000;

/// Batches that are compacted in one transaction, so that others do not wait for long.
pub const COMPACTED_BATCHES_PER_TRANSACTION: u32 = 16;

/// Batches that one handle of a store watches for outcomes; further ones are polled.
pub const AWAITED_BATCHES_MAX: usize = 10_000;

/// Events that are kept at most, about.
pub const EVENTS_KEPT_MAX: i64 = 1_000_000;

/// Old events that are deleted at once, so that others do not wait for long.
pub const EVENTS_FORGOTTEN_PER_TRANSACTION: i64 = 100_000;

/// Events that a listener reads at once.
pub const EVENTS_PAGE_MAX: u32 = 1_000;

/// Bytes of a progress message.
pub const PROGRESS_MESSAGE_BYTES_MAX: usize = 400;

/// Jobs of one worker with progress in one heartbeat; further jobs have none.
pub const PROGRESS_JOBS_MAX: usize = 1_000;

/// The minimum interval of a worker's progress reports, for all jobs together. Milliseconds.
pub const PROGRESS_EVERY_MS: u64 = 1_000;

/// Jobs, batches and kinds that one follower of output names at most, and that a worker receives.
pub const FOLLOWED_MAX: usize = 1_000;

/// Running jobs whose output one follower sees at once; it receives the number of the others.
pub const LIVE_JOBS_MAX: usize = 100;

/// How long a follower lasts without renewal. Milliseconds.
pub const FOLLOWED_FOR_MS: i64 = 15_000;

/// How long a store keeps the live output of followed jobs. Milliseconds.
pub const LIVE_OUTPUT_KEPT_MS: i64 = 30_000;

/// Pieces of output that a store keeps at most.
pub const LIVE_OUTPUT_ROWS_MAX: i64 = 10_000;

/// Bytes of output that a worker writes at once at most.
pub const LIVE_OUTPUT_BYTES_PER_WRITE_MAX: usize = 256 << 10;

/// Bytes of output of one job that a worker gathers between two writes; of more, the oldest are dropped.
pub const LIVE_OUTPUT_BYTES_PER_JOB_MAX: usize = 32 << 10;

/// The minimum interval of a worker's writes of live output. Milliseconds.
pub const LIVE_OUTPUT_EVERY_MS: u64 = 250;

/// The latest batches, of all kinds, that give the mean duration of a kind: bounds the cost of showing one job.
pub const ESTIMATE_BATCHES_MAX: i64 = 1_000;

/// Milliseconds without a heartbeat after which a worker's leases are rescued, where nothing else is said.
pub const LEASE_LOST_AFTER_MS: i64 = 15_000;

/// Milliseconds between a worker's heartbeats: three may be lost before the lease is.
pub const HEARTBEAT_EVERY_MS: i64 = heartbeat_every_ms(LEASE_LOST_AFTER_MS);

/// The shortest time without a heartbeat after which leases may be rescued. Milliseconds: below, a pause of the
/// scheduler or of a disk looks like a death.
pub const LEASE_LOST_AFTER_MS_MIN: i64 = 1_000;

/// The longest time without a heartbeat after which leases may be rescued. Milliseconds: an hour.
pub const LEASE_LOST_AFTER_MS_MAX: i64 = 3_600_000;

/// The interval of heartbeats for a lease: three heartbeats can be lost, and the fourth still has time to arrive.
/// Milliseconds.
pub const fn heartbeat_every_ms(lease_lost_after_ms: i64) -> i64 {
    lease_lost_after_ms * 4 / 15
}

/// The shortest interval of a schedule: the engine reads schedules once a second, so shorter intervals would fire in
/// bursts. Milliseconds.
pub const INTERVAL_MS_MIN: i64 = 1_000;
/// Longest interval of a schedule: ten years.
pub const INTERVAL_MS_MAX: i64 = 10 * 366 * 86_400_000;

/// How late a moment of a schedule may be noticed and still count as met, where missed moments are skipped: schedules
/// are looked at once a second, and a failover takes some seconds. Milliseconds.
pub const SCHEDULE_LATE_MS_MAX: i64 = 30_000;

/// Moments that one schedule catches up with in one look, where all missed ones are made up for; the rest follows in
/// the next looks.
pub const CATCH_UP_MOMENTS_MAX: usize = 1_000;

/// Schedules that fire in one transaction: others wait no longer than for a batch of this size.
pub const SCHEDULES_FIRED_MAX: u32 = 1_000;

/// The maximum number of rows of a history; request longer ones in parts.
pub const HISTORY_ROWS_MAX: usize = 10_000;

/// Bytes of one job's deduplication key.
pub const KEY_BYTES_MAX: usize = 200;

/// The longest period for which a job keeps its deduplication key, over or not. Milliseconds: ten years.
pub const KEY_PERIOD_MS_MAX: u64 = 10 * 366 * 86_400_000;

/// Payloads that one debounced job stands for, where they are merged; the next one waits behind it, with as many others.
pub const DEBOUNCED_PAYLOADS_MAX: u32 = 10_000;

/// Bytes of payloads that one debounced job stands for, where they are merged; the next one waits behind it, with as many
/// others.
pub const DEBOUNCED_BYTES_MAX: usize = 1 << 20;

/// Bytes of a value that is kept for jobs of the same queue, kind and group with the same payload; larger ones are not.
pub const CACHED_VALUE_BYTES_MAX: usize = 256 << 10;

/// Bytes of kept values that the jobs of one batch are answered with; the others run.
pub const CACHED_BYTES_PER_BATCH_MAX: usize = 16 << 20;

/// Tags of one job at most.
pub const TAGS_PER_JOB_MAX: u32 = 32;

/// Bytes of a tag's name.
pub const TAG_NAME_BYTES_MAX: usize = 100;

/// Bytes of a tag's value.
pub const TAG_VALUE_BYTES_MAX: usize = 200;

/// Conditions on tags in one filter.
pub const TAG_CONDITIONS_MAX: usize = 32;

/// Reasons for which one job is paused at the same time.
pub const PAUSES_PER_JOB_MAX: usize = 32;

/// Pauses, limits, shares and agings of one store: each change reads them all.
pub const CONTROLS_MAX: usize = 10_000;

/// How much of a rate gathers before a waiting worker is woken for it, as far as half the burst allows (a bucket that is full
/// loses what comes meanwhile): 200 jobs a second wake it 10 times. Milliseconds.
pub const RATE_WAKE_MS: u64 = 100;

/// The shortest time between two exchanges of a busy worker with its source. Outcomes gather meanwhile. Milliseconds.
pub const EXCHANGE_EVERY_MS: u64 = 10;
