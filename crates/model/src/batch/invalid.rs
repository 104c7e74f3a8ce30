//! The reasons for which a batch is refused.

use crate::limits::{
    BATCH_JOBS_MAX, KEY_BYTES_MAX, KEY_PERIOD_MS_MAX, NAME_BYTES_MAX, PREREQUISITES_MAX, TAG_NAME_BYTES_MAX,
    TAG_VALUE_BYTES_MAX, TAGS_PER_JOB_MAX,
};

/// The reason for which a batch was refused. Nothing of it is stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBatch {
    /// There are no jobs.
    #[error("a batch holds at least one job")]
    Empty,
    /// There are too many jobs.
    #[error("a batch holds at most {BATCH_JOBS_MAX} jobs; this one has {0}")]
    TooManyJobs(u32),
    /// The name of a kind, queue or group is empty, too long, or has control characters.
    #[error("the name of a {what} has 1 to {NAME_BYTES_MAX} bytes and no control characters: {name:?}")]
    Name {
        /// `kind`, `queue`, …
        what: &'static str,
        /// The beginning of the name.
        name: String,
    },
    /// There are more or fewer memos than jobs.
    #[error("the batch has {0} memos for {1} flows: give each its own")]
    Memos(u32, u32),
    /// The policy allows no attempts.
    #[error("a retry policy allows at least one attempt")]
    NoAttempts,
    /// The time limit for completion is zero or too long.
    #[error("complete_within_ms is {0}: give 1 to {KEY_PERIOD_MS_MAX}")]
    CompleteWithin(u64),
    /// The time for which values are kept is zero or too long.
    #[error("cached_ms is {0}: give 1 to {KEY_PERIOD_MS_MAX}")]
    CachedSpan(u64),
    /// Cached jobs have options that exclude a cache.
    #[error("cached jobs can have neither keys nor prerequisites: omit one of the options")]
    CachedOptions,
    /// Hooks have no recipient.
    #[error("the hooks name no recipient: give on_success, on_failure or both")]
    HooksMissing,
    /// The recipient of a hook is neither a kind nor a URL.
    #[error("{0}")]
    Hook(String),
    /// Jobs with keys have hooks. Such jobs may belong to other batches.
    #[error("jobs with keys cannot have hooks: omit the keys, on_success and on_failure, or submit twice")]
    KeyedHooks,
    /// There are options of keys, but no keys.
    #[error("the option `unique` needs keys: submit each job with a key")]
    KeysMissing,
    /// There are keys, but no option `unique`.
    #[error("the jobs have keys, but the options have no `unique`")]
    KeysUnexpected,
    /// The delay of a debounce is zero, or longer than the longest wait.
    #[error("a debounce has a delay from 1 ms to its maximum wait, which is at most {KEY_PERIOD_MS_MAX} ms")]
    DebounceDelay,
    /// A debounce has options that exclude it.
    #[error(
        "a debounce defines the action on duplicates and its time: omit on_duplicate, period_ms and run_at"
    )]
    DebounceOptions,
    /// A job of a debounce has no key.
    #[error("each job of a debounce needs a key, but job {0} has none")]
    DebounceKey(u32),
    /// Jobs with keys have prerequisites, and would run once more or later.
    #[error("jobs with prerequisites cannot be debounced or use `rerun`: skip, replace or reject duplicates")]
    KeysAfter,
    /// There are more or fewer keys than jobs.
    #[error("a batch needs a key or null for each job; this one has {keys} keys for {jobs} jobs")]
    KeyCount {
        /// Number of keys.
        keys: u32,
        /// Number of jobs.
        jobs: u32,
    },
    /// A key is invalid.
    #[error(
        "a key is null, or a string of 1 to {KEY_BYTES_MAX} bytes without control characters; job {index} has {key}"
    )]
    Key {
        /// The job's index, from 0.
        index: u32,
        /// The beginning of the given text.
        key: String,
    },
    /// A tag is invalid.
    #[error(
        "a tag has a name of 1 to {TAG_NAME_BYTES_MAX} bytes without `=` and `*`, and a value of at most \
         {TAG_VALUE_BYTES_MAX} bytes, both without control characters: {name:?} = {value:?}"
    )]
    Tag {
        /// The beginning of the name.
        name: String,
        /// The beginning of the value.
        value: String,
    },
    /// A tag belongs to jobs outside the batch.
    #[error("the tag `{0}` has no job, or a job outside the batch")]
    TagPositions(String),
    /// A job has two values of one tag.
    #[error("a job has the tag `{0}` twice")]
    TagTwice(String),
    /// A job has too many tags.
    #[error("a job has {0} tags; the limit is {TAGS_PER_JOB_MAX}")]
    TooManyTags(u32),
    /// The period of keys is zero or too long.
    #[error("the period of keys is 1 to {KEY_PERIOD_MS_MAX} ms")]
    KeyPeriod,
    /// A signal ends jobs of its own kind only.
    #[error("jobs that wait for this signal have the kind `{0}`")]
    SignalKind(&'static str),
    /// Jobs that wait for a moment have none.
    #[error("a sleep needs the moment at which it ends: give expires_at, or a delay")]
    SleepsForEver,
    /// A batch has too many prerequisites.
    #[error(
        "a batch waits for at most {PREREQUISITES_MAX} others; this one names {0}: wait for whole batches, not for single jobs"
    )]
    TooManyPrerequisites(usize),
    /// A prerequisite has an empty set of jobs.
    #[error(
        "batch {place} of the submit has a prerequisite with no positions: name at least one, or omit them"
    )]
    NothingToWaitFor {
        /// The index of the batch that waits.
        place: usize,
    },
    /// A batch waits for a batch outside the submit.
    #[error(
        "batch {place} of the submit waits for batch {earlier}, which the submit does not have; the first is 0"
    )]
    UnknownPlace {
        /// The index of the batch that waits.
        place: usize,
        /// The index of its prerequisite.
        earlier: usize,
    },
    /// A batch waits for a later one.
    #[error(
        "batch {place} of the submit waits for batch {earlier}, which comes after it: put batch {earlier} before batch {place}"
    )]
    NotEarlier {
        /// The index of the batch that waits.
        place: usize,
        /// The index of its prerequisite.
        earlier: usize,
    },
    /// Batches wait for one another.
    #[error("the batches of the submit wait for one another: {cycle}")]
    Cycle {
        /// The cycle, in words.
        cycle: String,
    },
    /// A batch waits for a job that does not exist.
    #[error("{prerequisite} has {count} jobs, from position 0: position {position} does not exist")]
    UnknownPosition {
        /// The batch that should have the job.
        prerequisite: String,
        /// Number of jobs of that batch.
        count: u32,
        /// The position that does not exist.
        position: u32,
    },
}

/// Checks the name of a kind, queue, group, worker or run.
pub fn check_name(what: &'static str, name: &str) -> Result<(), InvalidBatch> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
        return Err(InvalidBatch::Name {
            what,
            name: name.chars().take(80).collect(),
        });
    }
    Ok(())
}
