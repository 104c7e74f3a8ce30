//! All limits of this crate that are not part of the client. Nothing is unbounded.

use std::time::Duration;

/// Milliseconds between the checks of running calls for the end of their worker.
pub const DRAIN_POLL_MS: u64 = 200;

/// Jobs that a worker begins for each call that may run. The others wait in the limiter, ready for the next free slot.
pub const READY_FACTOR: usize = 2;

/// Models whose limits and refused parameters a worker remembers. Each keeps connections open.
pub const MODELS_MAX: usize = 64;

/// Answers that a worker keeps for equal requests of the same batch.
pub const EQUAL_ANSWERS_MAX: usize = 1_024;

/// Bytes of an answer that is kept for equal requests. All kept ones take at most 64 MiB.
pub const EQUAL_ANSWER_BYTES_MAX: usize = 64 << 10;

/// Maximum tokens of an answer of Anthropic's models if the request names none. Their interface needs a number.
pub const MAX_TOKENS_DEFAULT: u32 = 4_096;

/// Bytes of a table of prices. Ten thousand models take one.
pub const PRICES_BYTES_MAX: u64 = 1 << 20;

/// Levels of a schema and of the answer that it checks. Providers allow ten.
pub const SCHEMA_DEPTH_MAX: usize = 64;

/// Characters of an answer that an error shows.
pub const EXCERPT_CHARACTERS_MAX: usize = 200;

/// Comparisons of one check by a schema. An answer of a megabyte takes about a hundred thousand; a schema that refers to
/// itself in two ways would never end.
pub const SCHEMA_STEPS_MAX: u32 = 1_000_000;

/// Bytes of a model's name. A worker remembers names.
pub const MODEL_BYTES_MAX: usize = 256;

/// Characters of one token, for estimates before the service has counted.
pub const TOKEN_CHARACTERS: usize = 4;

/// The pause of a worker after a provider has refused all requests of its key. The refusals cost nothing.
pub const DENIED_PAUSE: Duration = Duration::from_secs(60);

/// The longest time for which a job waits for a key to be accepted. Then its attempt fails.
pub const DENIED_FOR_MAX: Duration = Duration::from_secs(3_600);

/// The delay of a job's next attempt after that time. Milliseconds.
pub const DENIED_DELAY_MS: u64 = 600_000;

/// The delay of a job's next attempt if its worker has no key of its provider. Milliseconds.
pub const NO_KEY_DELAY_MS: u64 = 30_000;

/// The bytes of text for which a picture or a sound in a request counts, for estimates: some 1,500 tokens.
pub const MEDIUM_BYTES: usize = 1_500 * TOKEN_CHARACTERS;
