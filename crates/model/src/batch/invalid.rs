//! Why a batch is refused.

use crate::limits::{
    BATCH_JOBS_MAX, KEY_BYTES_MAX, KEY_PERIOD_MS_MAX, NAME_BYTES_MAX, PREREQUISITES_MAX, TAG_NAME_BYTES_MAX,
    TAG_VALUE_BYTES_MAX, TAGS_PER_JOB_MAX,
};

/// Why a batch was refused. Nothing of it is stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBatch {
    /// No jobs.
    #[error("a batch holds at least one job")]
    Empty,
    /// Too many jobs.
    #[error("a batch holds at most {BATCH_JOBS_MAX} jobs; this one has {0}")]
    TooManyJobs(u32),
    /// A kind, queue or group without a name, with a long one, or with control characters in it.
    #[error("the name of a {what} has 1 to {NAME_BYTES_MAX} bytes and no control characters: {name:?}")]
    Name {
        /// `kind`, `queue`, …
        what: &'static str,
        /// The name, cut.
        name: String,
    },
    /// No attempts.
    #[error("a retry policy allows at least one attempt")]
    NoAttempts,
    /// A time to complete within that is none, or over its limit.
    #[error("complete_within_ms is {0}: give 1 to {KEY_PERIOD_MS_MAX}")]
    CompleteWithin(u64),
    /// A time for which values are kept that is none, or over its limit.
    #[error("cached_ms is {0}: give 1 to {KEY_PERIOD_MS_MAX}")]
    CachedSpan(u64),
    /// Options that a cache does not go with.
    #[error("cached jobs can have neither keys nor prerequisites: omit one of the options")]
    CachedOptions,
    /// Hooks without a recipient.
    #[error("the hooks name no recipient: give on_success, on_failure or both")]
    HooksMissing,
    /// A hook whose recipient is neither a kind nor a URL.
    #[error("{0}")]
    Hook(String),
    /// Hooks of jobs with keys, which may be of other batches.
    #[error("jobs with keys cannot have hooks: omit the keys, on_success and on_failure, or submit twice")]
    KeyedHooks,
    /// Options of keys, in a batch without any.
    #[error("the option `unique` needs keys: submit each job with a key")]
    KeysMissing,
    /// Keys without the option `unique`.
    #[error("the jobs have keys, but the options have no `unique`")]
    KeysUnexpected,
    /// A delay that is none, or longer than the longest wait.
    #[error("a debounce has a delay from 1 ms to its maximum wait, which is at most {KEY_PERIOD_MS_MAX} ms")]
    DebounceDelay,
    /// Options that a debounce does not go with.
    #[error(
        "a debounce defines the action on duplicates and its time: omit on_duplicate, period_ms and run_at"
    )]
    DebounceOptions,
    /// A job without a key.
    #[error("each job of a debounce needs a key, but job {0} has none")]
    DebounceKey(u32),
    /// Jobs with keys that wait for others, and would run once more or later.
    #[error("jobs with prerequisites cannot be debounced or use `rerun`: skip, replace or reject duplicates")]
    KeysAfter,
    /// More or fewer keys than jobs.
    #[error("a batch needs a key or null for each job; this one has {keys} keys for {jobs} jobs")]
    KeyCount {
        /// The keys.
        keys: u32,
        /// The jobs.
        jobs: u32,
    },
    /// An invalid key.
    #[error(
        "a key is null, or a string of 1 to {KEY_BYTES_MAX} bytes without control characters; job {index} has {key}"
    )]
    Key {
        /// The job's place, from 0.
        index: u32,
        /// The given text, cut.
        key: String,
    },
    /// An invalid tag.
    #[error(
        "a tag has a name of 1 to {TAG_NAME_BYTES_MAX} bytes without `=` and `*`, and a value of at most \
         {TAG_VALUE_BYTES_MAX} bytes, both without control characters: {name:?} = {value:?}"
    )]
    Tag {
        /// The name, cut.
        name: String,
        /// The value, cut.
        value: String,
    },
    /// A tag of jobs that there are not.
    #[error("the tag `{0}` has no job, or a job outside the batch")]
    TagPositions(String),
    /// Two values of one tag.
    #[error("a job has the tag `{0}` twice")]
    TagTwice(String),
    /// More tags than a job may have.
    #[error("a job has {0} tags; the limit is {TAGS_PER_JOB_MAX}")]
    TooManyTags(u32),
    /// A period that is none, or over its limit.
    #[error("the period of keys is 1 to {KEY_PERIOD_MS_MAX} ms")]
    KeyPeriod,
    /// Waits for too many others.
    #[error(
        "a batch waits for at most {PREREQUISITES_MAX} others; this one names {0}: wait for whole batches, not for single jobs"
    )]
    TooManyPrerequisites(usize),
    /// An empty set of jobs to wait for.
    #[error(
        "batch {place} of the submit has a prerequisite with no positions: name at least one, or omit them"
    )]
    NothingToWaitFor {
        /// The batch that waits.
        place: usize,
    },
    /// Waits for a batch that is not part of the submit.
    #[error(
        "batch {place} of the submit waits for batch {earlier}, which the submit does not have; the first is 0"
    )]
    UnknownPlace {
        /// The batch that waits.
        place: usize,
        /// Its prerequisite.
        earlier: usize,
    },
    /// Waits for a batch that comes later.
    #[error(
        "batch {place} of the submit waits for batch {earlier}, which comes after it: put batch {earlier} before batch {place}"
    )]
    NotEarlier {
        /// The batch that waits.
        place: usize,
        /// Its prerequisite.
        earlier: usize,
    },
    /// Batches that wait for one another.
    #[error("the batches of the submit wait for one another: {cycle}")]
    Cycle {
        /// The way round, in words.
        cycle: String,
    },
    /// Waits for a job that its batch does not have.
    #[error("{prerequisite} has {count} jobs, from position 0: position {position} does not exist")]
    UnknownPosition {
        /// The batch that is waited for.
        prerequisite: String,
        /// How many jobs it has.
        count: u32,
        /// The position.
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
