//! Every limit of the memory, in one place: nothing is unbounded.

/// Bytes of one source at most, where its format is read whole: all but mbox and JSON lines, which are read message by
/// message.
pub const SOURCE_BYTES_MAX: u64 = 256 << 20;

/// Bytes of one mail of an mbox, or one line of JSON, at most.
pub const SOURCE_PIECE_BYTES_MAX: usize = 64 << 20;

/// Bytes of a source's beginning that tell its format.
pub const FORMAT_BYTES_MAX: u64 = 1 << 20;

/// Bytes of a source's beginning that tell whether it is text.
pub const BINARY_BYTES_MAX: usize = 8 << 10;

/// Messages that are looked through before an ingestion tends to other things.
pub const SURVEY_MESSAGES_MAX: usize = 256;

/// Bytes of messages that are read before an ingestion tends to other things.
pub const SURVEY_BYTES_MAX: usize = 1 << 20;

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

/// Stems that are compared with a misspelt word, at most.
pub const STEMS_COMPARED_MAX: usize = 2_000;

/// Prepared statements that a connection keeps.
pub const STATEMENTS_MAX: usize = 64;

/// How long one process waits for another that writes to the same file. Milliseconds.
pub const BUSY_TIMEOUT_MS: u64 = 10_000;

/// Connections for queries that are kept open.
pub const READERS_MAX: usize = 4;

/// Messages that a recall returns by default.
pub const MESSAGES_DEFAULT: usize = 25;

/// The first messages of a ranking, which are ranked again by their texts.
pub const HEAD_MESSAGES: usize = 50;

/// Letters of a message that are read to compare it with the first ones: the words of 50 such messages take some 3 ms.
pub const HEAD_LETTERS_MAX: usize = 600;

/// The first messages that others are compared with.
pub const LIKENESS_MESSAGES: usize = 5;

/// Refs of each kind that a recall returns by default.
pub const REFS_DEFAULT: usize = 50;

/// Nested groups of a query at most: bounds the recursion over what a model wrote.
pub const GROUP_DEPTH_MAX: usize = 16;

/// Terms of one compiled query at most, with their related terms.
pub const QUERY_TERMS_MAX: usize = 10_000;

/// Buffers of matches that are kept for the next recall at most: a recall uses few at once.
pub const MATCHES_SPARE_MAX: usize = 8;

/// Bytes of a buffer of matches that is kept at most: what one of ten million refs needs.
pub const MATCHES_SPARE_BYTES_MAX: usize = 128 << 20;

/// Texts that are looked up at once to be given vectors: a few calls' worth.
pub const VECTOR_TEXTS_MAX: usize = 4_096;

/// A search compares up to so many vectors of chunks one by one, in about 50 ms. Lists hold more than that, and a search looks
/// through some of the lists.
pub const VECTORS_COMPARED_MAX: u64 = 100_000;

/// The share of the vectors that may be in no list before the lists are made anew.
pub const VECTORS_UNLISTED_SHARE_MAX: f64 = 0.25;

/// Lists of vectors at most.
pub const LISTS_MAX: usize = 2_048;

/// Vectors that tell where the centres of lists are, at most: 100 MB of 384 dimensions.
pub const LIST_SAMPLE_MAX: usize = 65_536;

/// Vectors in lists at most, which are in memory while lists are made; later ones are compared one by one.
pub const VECTORS_LISTED_MAX: u64 = 4_000_000;

/// Vectors that are read at once to make lists.
pub const VECTORS_READ_AT_ONCE: usize = 4_096;

/// Calls for vectors that are under way at once.
pub const VECTOR_CALLS_MAX: usize = 4;

/// Connections to one PostgreSQL database at most: one that writes, and a few that read.
pub const POSTGRES_CONNECTIONS_MAX: usize = 5;

/// How long a connection to PostgreSQL may take, and how long one waits for a free one. Milliseconds.
pub const CONNECT_TIMEOUT_MS: u64 = 10_000;

/// Bytes of texts that are gathered for one statement at most; PostgreSQL takes 1 GiB.
pub const POSTGRES_ROWS_BYTES_MAX: usize = 16 << 20;

/// Terms of one statement at most.
pub const POSTGRES_TERMS_AT_ONCE: usize = 10_000;

/// Characters of a word of the index; longer words differ before that.
pub const WORD_CHARACTERS_MAX: usize = 64;

/// How often a word of one message is counted at most: more says nothing new of what the message is about.
pub const WORD_REPEATS_MAX: u32 = 32;

/// Words of a message that tell its language.
pub const LANGUAGE_WORDS_MAX: usize = 200;

/// Words of a question that are looked up at most.
pub const QUESTION_WORDS_MAX: usize = 64;

/// Words of the index that are compared with a misspelt word, at most.
pub const SPELLINGS_COMPARED_MAX: usize = 2_000;

/// How long after a message another one belongs to the same conversation. Milliseconds.
pub const CONVERSATION_GAP_MS: i64 = 3_600_000;

/// Messages that are nearest to a question by their vectors, at most.
pub const NEAREST_MESSAGES_MAX: usize = 200;

/// The first recalled messages that a model ranks again.
pub const RERANKED_MESSAGES: usize = 20;

/// Characters of a message that a model is shown to rank it: about 100 tokens, so that all are in the smallest contexts.
pub const RERANKED_CHARACTERS_MAX: usize = 400;

/// Tokens of the order that a model gives, at most: each number with its comma takes two or three.
pub const RERANKED_TOKENS_MAX: u32 = 100;

/// Questions of a conversation that later ones may refer to. What a pronoun stands for is seldom farther back.
pub const CHAT_TOPICS_MAX: usize = 8;

/// Characters of a question or an answer that a model is shown again, to understand the next question.
pub const CHAT_SHOWN_CHARACTERS_MAX: usize = 400;

/// Names of a question or an answer that are looked at: each costs a look-up.
pub const CHAT_NAMES_MAX: usize = 32;

/// Bytes of one question of a conversation at most.
pub const CHAT_QUESTION_BYTES_MAX: usize = 16 << 10;

/// Tokens of the question that a model completes, at most.
pub const CHAT_QUESTION_TOKENS_MAX: u32 = 200;

/// Characters of a stem that are stored where an index has a limit; longer words differ before that.
pub const STEM_CHARACTERS_MAX: usize = 255;

/// Messages of a followed pipe that are read and not taken yet at most: the reader waits then.
pub const FOLLOWED_MESSAGES_MAX: usize = 256;

/// Chunks that are submitted and not committed yet at most: how far the model is ahead of the commits.
pub const AHEAD_CHUNKS_MAX: usize = 8_000;

/// Bytes of messages and extractions that are read and not committed yet, above which no more is read. Those of a
/// source that replaces another do not count: it is committed at once.
pub const AHEAD_BYTES_MAX: usize = 64 << 20;

/// Chunks of one submitted batch of extractions at most.
pub const BATCH_CHUNKS_MAX: usize = 1_000;

/// Messages of one commit at most.
pub const COMMIT_MESSAGES_MAX: usize = 2_000;

/// Bytes of messages and extractions of one commit, above which no more is added to it.
pub const COMMIT_BYTES_MAX: usize = 16 << 20;

/// How often a running extraction looks whether its worker is to end. Milliseconds.
pub const DRAIN_POLL_MS: u64 = 200;

/// How often the store is asked for outcomes that other workers report. Milliseconds. A read of a whole batch takes
/// about one.
pub const OUTCOMES_POLL_MS: u64 = 250;

/// For how long the own worker must have told nothing before the store is asked. Milliseconds.
pub const OUTCOMES_SILENT_MS: u64 = 1_000;
