//! All shared limits. Nothing is unbounded.
//!
//! Input beyond a limit gets an error that names the limit, and nothing is stored.

/// Maximum jobs of one batch. All positions are smaller, so that a report's id can be computed from its batch and its
/// first position.
pub const BATCH_JOBS_MAX: u32 = 10_000;

/// Jobs in one batch of a submit of many: a submit of more is several batches, so that the first can be claimed and answered while
/// the others are worked on.
pub const SUBMIT_BATCH_JOBS: u32 = 1_000;

/// Target bytes of packed payloads in one batch. A single larger payload travels alone.
pub const BATCH_BYTES_TARGET: usize = 1 << 20;

/// Maximum bytes of one payload. SQLite and PostgreSQL allow more, but a queue of larger things should hold references
/// to them.
pub const PAYLOAD_BYTES_MAX: usize = 16 << 20;

/// Maximum depth of lists and objects in one payload or value. Readers are recursive: serde_json allows about as many
/// levels, Python and PostgreSQL allow some thousand.
pub const JSON_DEPTH_MAX: usize = 128;

/// Levels that Gristmill adds around a payload or value: for merged payloads, and for outcomes of children.
pub const WRAPPED_DEPTH_MAX: usize = 4;

/// Maximum bytes of one returned value, for the same reason.
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

/// Maximum attempts of one job, whatever its policy says.
pub const ATTEMPTS_MAX: u32 = 1_000;

/// Maximum immediate retries of a job in the same slot of its worker. After them, the job returns to the store, so that
/// no job keeps a slot for ever.
pub const REPEATS_MAX: u32 = 15;

/// Maximum bytes of failures that a slot keeps for the jobs that it retries. Beyond, failed jobs return to the store.
pub const EARLIER_FAILURES_BYTES_MAX: usize = 4 << 20;

/// Maximum rescues of a job, after which it is dead. A rescue is not charged as an attempt, because most jobs of a
/// dying worker are innocent. The limit stops a job that kills its worker each time.
pub const RESCUES_MAX: u32 = 20;

/// The default time that a cancelled job may continue after the signal. Milliseconds.
pub const CANCEL_GRACE_MS: u64 = 10_000;

/// Maximum slices of one lease. It bounds the lease's row and the transaction of the claim.
pub const LEASE_SLICES_MAX: u32 = 1_000;

/// Maximum jobs of one lease.
pub const LEASE_JOBS_MAX: u32 = 10_000;

/// The number of jobs in one listing of those that are claimed next: each may be in a slice of its own, and one claim takes
/// no more slices.
pub const NEXT_JOBS_MAX: u32 = LEASE_SLICES_MAX;

/// Bytes of payloads, memos, keys, tags and groups in one lease after which the claim stops adding slices.
pub const LEASE_BYTES_TARGET: usize = 4 << 20;

/// Maximum waiting workers of one process whose wishes a store keeps, so that submits claim for them. Further workers
/// are woken, and claim by themselves.
pub const WAITING_WANTS_MAX: usize = 1_000;

/// Maximum waiting workers for which one transaction claims, so that a submit does not wait for long.
pub const HAND_OVERS_PER_TRANSACTION_MAX: usize = 16;

/// Maximum prerequisites of one batch. A whole batch counts once, whatever its number of jobs.
pub const PREREQUISITES_MAX: usize = 100_000;

/// Maximum prerequisites that the details of a blocked job list.
pub const SHOWN_PREREQUISITES_MAX: usize = 100;

/// Maximum batches of children that one job spawns.
pub const CHILD_BATCHES_MAX: usize = 1_000;

/// Maximum children that one flow spawns over its life.
pub const FLOW_STEPS_MAX: u32 = 1_000_000;

/// Maximum children of one flow that are open at once. Each of its runs reads them.
pub const FLOW_OPEN_STEPS_MAX: u32 = 250_000;

/// Maximum generations of children below a job that was submitted. The limit stops flows that begin flows without end, and
/// jobs that spawn themselves.
pub const GENERATIONS_MAX: u32 = 100;

/// Maximum events that one flow has not awaited yet. The store keeps them.
pub const KEPT_EVENTS_MAX: u32 = 1_000;

/// Maximum batches of children, siblings included, of parents that were suspended together. Each child that ends
/// searches them.
pub const FAMILY_BATCHES_MAX: usize = 10_000;

/// Maximum bytes of a memo.
pub const MEMO_BYTES_MAX: usize = 1 << 20;

/// Maximum time for which an instance cleans up after a cancelled flow: nobody waits for it, so nobody would stop one that hangs.
pub const CLEANUP_MS_MAX: u64 = 24 * 60 * 60 * 1000;

/// The time for which an instance that cleans up waits for a worker to begin it: nobody waits for it, so nobody would miss it.
pub const CLEANUP_WAITS_MS_MAX: i64 = 30 * 24 * 60 * 60 * 1000;

/// Maximum jobs that finalize together. The outcomes of their children are read at once: few reads for many flows, and few
/// outcomes in memory for jobs with many children.
pub const FINALIZED_JOBS_MAX: u32 = 256;

/// The largest input of a job that finalizes in another language: its payload, its memo and the outcomes of its children. Bytes.
pub const FINALIZING_BYTES_MAX: usize = 64 << 20;

/// Maximum operations that wait for a store's writer. Further ones wait for room.
pub const WRITER_OPERATIONS_MAX: usize = 8_192;

/// Maximum bytes of operations that wait for a store's writer.
pub const WRITER_BYTES_MAX: usize = 32 << 20;

/// Maximum operations in one transaction of a store's writer.
pub const TRANSACTION_OPERATIONS_MAX: usize = 2_048;

/// Maximum bytes of operations in one transaction of a store's writer.
pub const TRANSACTION_BYTES_MAX: usize = 8 << 20;

/// Maximum rows of one page of a listing.
pub const PAGE_ROWS_MAX: u32 = 10_000;

/// Maximum jobs matching a filter that one transaction changes: a whole batch.
pub const PORTION_JOBS_MAX: u32 = BATCH_JOBS_MAX;

/// Milliseconds for which events are kept, and for which they are recorded after the last listener left: an hour.
pub const EVENTS_KEPT_MS: i64 = 3_600_000;

/// Maximum small reports of an ended batch. Beyond, they are compacted.
pub const REPORTS_LEFT_MAX: u32 = 4;

/// Maximum bytes of a small report.
pub const SMALL_REPORT_BYTES_MAX: u32 = 64 << 10;

/// Maximum bytes of small reports that one transaction compacts. Batches with more of them stay unchanged.
pub const COMPACTED_BYTES_MAX: u32 = 2 << 20;

/// Number of latest batches that are considered for compaction.
pub const COMPACTED_BATCHES_BACK: u32 = 10_000;

/// Maximum batches that one transaction compacts, so that other operations do not wait for long.
pub const COMPACTED_BATCHES_PER_TRANSACTION: u32 = 16;

/// Maximum batches that one handle of a store watches for outcomes. Further ones are polled.
pub const AWAITED_BATCHES_MAX: usize = 10_000;

/// Approximate maximum number of kept events.
pub const EVENTS_KEPT_MAX: i64 = 1_000_000;

/// Old events that one transaction deletes, so that other operations do not wait for long.
pub const EVENTS_FORGOTTEN_PER_TRANSACTION: i64 = 100_000;

/// Maximum events in one page of a listener.
pub const EVENTS_PAGE_MAX: u32 = 1_000;

/// Bytes of a progress message.
pub const PROGRESS_MESSAGE_BYTES_MAX: usize = 400;

/// Maximum jobs of one worker with progress in one heartbeat. Further jobs have none.
pub const PROGRESS_JOBS_MAX: usize = 1_000;

/// The minimum interval of a worker's progress reports, for all jobs together. Milliseconds.
pub const PROGRESS_EVERY_MS: u64 = 1_000;

/// Maximum jobs, batches and kinds that one follower of output names, and that a worker receives.
pub const FOLLOWED_MAX: usize = 1_000;

/// Maximum running jobs whose output one follower sees. It also gets the number of other jobs.
pub const LIVE_JOBS_MAX: usize = 100;

/// Milliseconds after which a follower ends that is not renewed.
pub const FOLLOWED_FOR_MS: i64 = 15_000;

/// Milliseconds for which a store keeps the live output of followed jobs.
pub const LIVE_OUTPUT_KEPT_MS: i64 = 30_000;

/// Maximum pieces of output that a store keeps.
pub const LIVE_OUTPUT_ROWS_MAX: i64 = 10_000;

/// Maximum bytes of output in one write of a worker.
pub const LIVE_OUTPUT_BYTES_PER_WRITE_MAX: usize = 256 << 10;

/// Maximum bytes of output of one job that a worker gathers between two writes. Beyond, the oldest are dropped.
pub const LIVE_OUTPUT_BYTES_PER_JOB_MAX: usize = 32 << 10;

/// The minimum interval of a worker's writes of live output. Milliseconds.
pub const LIVE_OUTPUT_EVERY_MS: u64 = 250;

/// Number of latest batches, of all kinds, from which the mean duration of a kind is computed. It bounds the cost of
/// showing a job.
pub const ESTIMATE_BATCHES_MAX: i64 = 1_000;

/// Default milliseconds without a heartbeat after which a worker's leases are rescued.
pub const LEASE_LOST_AFTER_MS: i64 = 15_000;

/// Milliseconds between heartbeats of a worker. Three may be lost before its lease is.
pub const HEARTBEAT_EVERY_MS: i64 = heartbeat_every_ms(LEASE_LOST_AFTER_MS);

/// Minimum milliseconds without a heartbeat after which leases are rescued. With less, a pause of the scheduler or of a
/// disk would look like a death.
pub const LEASE_LOST_AFTER_MS_MIN: i64 = 1_000;

/// Maximum milliseconds without a heartbeat after which leases are rescued: an hour.
pub const LEASE_LOST_AFTER_MS_MAX: i64 = 3_600_000;

/// The interval of heartbeats for a lease, in milliseconds. Three heartbeats can be lost, and the fourth still arrives
/// in time.
pub const fn heartbeat_every_ms(lease_lost_after_ms: i64) -> i64 {
    lease_lost_after_ms * 4 / 15
}

/// The shortest interval of a schedule, in milliseconds. The engine reads schedules once a second, so shorter intervals
/// would fire in bursts.
pub const INTERVAL_MS_MIN: i64 = 1_000;
/// The longest interval of a schedule, in milliseconds: ten years.
pub const INTERVAL_MS_MAX: i64 = 10 * 366 * 86_400_000;

/// Milliseconds by which a moment of a schedule may be late and still count as met, if missed moments are skipped.
/// Schedules are read once a second, and a failover takes some seconds.
pub const SCHEDULE_LATE_MS_MAX: i64 = 30_000;

/// Maximum missed moments that one schedule makes up for in one read. The rest follows in the next reads.
pub const CATCH_UP_MOMENTS_MAX: usize = 1_000;

/// Maximum schedules that fire in one transaction. Others wait no longer than for a batch of this size.
pub const SCHEDULES_FIRED_MAX: u32 = 1_000;

/// Maximum rows of a history. Longer ones are requested in parts.
pub const HISTORY_ROWS_MAX: usize = 10_000;

/// Bytes of one job's deduplication key.
pub const KEY_BYTES_MAX: usize = 200;

/// The longest period for which a job keeps its deduplication key, even after its end, in milliseconds: ten years.
pub const KEY_PERIOD_MS_MAX: u64 = 10 * 366 * 86_400_000;

/// Maximum payloads of one debounced job that merges them. The next payload waits in another job behind it.
pub const DEBOUNCED_PAYLOADS_MAX: u32 = 10_000;

/// Maximum bytes of the outcomes of prerequisites that a job reads: they are in the memory of its process.
pub const PREREQUISITES_BYTES_MAX: usize = 16 << 20;

/// Maximum bytes of payloads of one debounced job that merges them. The next payload waits in another job behind it.
pub const DEBOUNCED_BYTES_MAX: usize = 1 << 20;

/// Maximum bytes of a value that is kept for jobs with the same queue, kind, group and payload.
pub const CACHED_VALUE_BYTES_MAX: usize = 256 << 10;

/// Maximum bytes of kept values that complete the jobs of one batch. Its other jobs run.
pub const CACHED_BYTES_PER_BATCH_MAX: usize = 16 << 20;

/// Maximum tags of one job.
pub const TAGS_PER_JOB_MAX: u32 = 32;

/// Bytes of a tag's name.
pub const TAG_NAME_BYTES_MAX: usize = 100;

/// Bytes of a tag's value.
pub const TAG_VALUE_BYTES_MAX: usize = 200;

/// Conditions on tags in one filter.
pub const TAG_CONDITIONS_MAX: usize = 32;

/// Maximum reasons for which one job is paused at the same time.
pub const PAUSES_PER_JOB_MAX: usize = 32;

/// Maximum pauses, limits, shares and agings of one store. Each change reads them all.
pub const CONTROLS_MAX: usize = 10_000;

/// Milliseconds for which tokens of a rate gather before a waiting worker is woken, as far as half the burst allows (a
/// full bucket loses further tokens). With 200 jobs a second, it is woken 10 times.
pub const RATE_WAKE_MS: u64 = 100;

/// Minimum milliseconds between two exchanges of a busy worker with its source. Outcomes gather in between.
pub const EXCHANGE_EVERY_MS: u64 = 10;
