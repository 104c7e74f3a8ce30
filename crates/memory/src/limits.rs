//! Every limit of the memory, in one place: nothing is unbounded.

/// Bytes of one source at most. A source is read whole, so that it can be told unchanged and replaced at once.
pub const SOURCE_BYTES_MAX: u64 = 256 << 20;

/// Messages of one source at most.
pub const SOURCE_MESSAGES_MAX: usize = 1_000_000;

/// Characters of one chunk by default: what one model call reads. About 2,000 tokens; longer turns are rare in
/// conversations, and cutting them costs the model their context.
pub const CHUNK_CHARACTERS_DEFAULT: usize = 8_000;

/// Bytes of one imported or recorded JSON file at most; such a file is parsed in memory.
pub const IMPORT_BYTES_MAX: u64 = 1 << 30;

/// Refs of one posting segment at most. A segment is read and written whole by the next commit that adds to its
/// term, and is about one page.
pub const SEGMENT_REFS_MAX: usize = 512;

/// Related terms of one search term at most.
pub const RELATED_TERMS_MAX: usize = 50;

/// Related terms of one search term at most, where they are found by how they are written: each costs a look-up in the
/// postings, and the farther ones say little.
pub const SIMILAR_TERMS_MAX: usize = 16;

/// Terms that share a stem with a search term and are compared with it, at most; those of few words first. With
/// 256, and 50 similar terms kept, recall over a million refs was measured at 1.5 times the time.
pub const STEM_CANDIDATES_MAX: u32 = 64;

/// Prepared statements that a connection keeps.
pub const STATEMENTS_MAX: usize = 64;

/// How long one process waits for another that writes to the same file. Milliseconds.
pub const BUSY_TIMEOUT_MS: u64 = 10_000;

/// Connections for queries that are kept open.
pub const READERS_MAX: usize = 4;

/// Messages that a recall returns by default.
pub const MESSAGES_DEFAULT: usize = 25;

/// Refs of each kind that a recall returns by default.
pub const REFS_DEFAULT: usize = 50;

/// Nested groups of a query at most: bounds the recursion over what a model wrote.
pub const GROUP_DEPTH_MAX: usize = 16;

/// Terms of one compiled query at most, with their related terms.
pub const QUERY_TERMS_MAX: usize = 10_000;
