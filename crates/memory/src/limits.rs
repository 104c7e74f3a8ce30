//! All limits of this crate. Nothing is unbounded.

/// Maximum bytes of a source that is read whole. Mbox files and JSON lines are read message by message instead.
pub const SOURCE_BYTES_MAX: u64 = 256 << 20;

/// Maximum files of an archive. An export of Slack has one for each channel and day: 100 channels in 5 years are 180,000.
pub const ARCHIVE_FILES_MAX: usize = 1_000_000;

/// Maximum bytes of one mail in an mbox, or of one line of JSON.
pub const SOURCE_PIECE_BYTES_MAX: usize = 64 << 20;

/// The longest silence of a program that reads a PDF file. Poppler reads hundreds of pages a second.
pub const PDF_PATIENCE_MS: u64 = 120_000;

/// The first bytes of what such a program says about a file that it cannot read.
pub const PDF_MESSAGE_BYTES_MAX: u64 = 4 << 10;

/// Bytes at the beginning of a source from which its format is recognised.
pub const FORMAT_BYTES_MAX: u64 = 1 << 20;

/// Bytes at the beginning of a source from which text is distinguished from binary data.
pub const BINARY_BYTES_MAX: usize = 8 << 10;

/// Messages that are surveyed or read before an ingestion lets other tasks run.
pub const SURVEY_MESSAGES_MAX: usize = 256;

/// Bytes of messages that are read before an ingestion lets other tasks run.
pub const SURVEY_BYTES_MAX: usize = 1 << 20;

/// Maximum messages of a source that are recorded as unread. Of more, the last record has the number: a list of
/// thousands says no more than that the format is another one.
pub const UNREAD_RECORDED_MAX: usize = 1_000;

/// Maximum messages of one source.
pub const SOURCE_MESSAGES_MAX: usize = 1_000_000;

/// Default maximum characters of a chunk, which one model call reads: about 2,000 tokens. Longer turns of a
/// conversation are rare, and cutting them would cost the model their context.
pub const CHUNK_CHARACTERS_DEFAULT: usize = 8_000;

/// Maximum bytes of an imported or recorded JSON file. It is parsed in memory.
pub const IMPORT_BYTES_MAX: u64 = 1 << 30;

/// Maximum refs of a posting segment. The next commit that adds to its term reads and writes the whole segment, which
/// is about one page.
pub const SEGMENT_REFS_MAX: usize = 512;

/// Maximum related terms of a search term.
pub const RELATED_TERMS_MAX: usize = 50;

/// Maximum related terms of a search term that are found by their spelling. Each costs a look-up in the postings, and
/// distant ones say little.
pub const SIMILAR_TERMS_MAX: usize = 16;

/// Maximum terms with a common stem that are compared with a search term. Terms of few words come first. With 256, and
/// 50 similar terms kept, recall over a million refs took 1.5 times as long.
pub const STEM_CANDIDATES_MAX: u32 = 64;

/// Maximum stems that are compared with a misspelt word.
pub const STEMS_COMPARED_MAX: usize = 2_000;

/// Prepared statements that a connection keeps.
pub const STATEMENTS_MAX: usize = 64;

/// Milliseconds for which one process waits for another one that writes to the same file.
pub const BUSY_TIMEOUT_MS: u64 = 10_000;

/// Maximum connections for queries that stay open.
pub const READERS_MAX: usize = 4;

/// Messages that a recall returns by default.
pub const MESSAGES_DEFAULT: usize = 25;

/// Messages at the head of a ranking, which are ranked again by their texts.
pub const HEAD_MESSAGES: usize = 100;

/// Letters of a message at the head that are read. The words of 100 such messages take about 10 ms.
pub const HEAD_LETTERS_MAX: usize = 1_000;

/// Words of a question that are marked in a message at most.
pub const HIGHLIGHTS_MAX: usize = 200;

/// Words apart at which two words of a question no longer count as near.
pub const NEAR_WORDS_MAX: usize = 8;

/// Messages at the head of a ranking with which the others are compared.
pub const LIKENESS_MESSAGES: usize = 5;

/// Refs of each kind that a recall returns by default.
pub const REFS_DEFAULT: usize = 50;

/// Maximum depth of nested groups in a query. It bounds the recursion over a query that a model wrote.
pub const GROUP_DEPTH_MAX: usize = 16;

/// Maximum terms of a compiled query, including their related terms.
pub const QUERY_TERMS_MAX: usize = 10_000;

/// Maximum buffers of matches that are kept for the next recall. A recall uses few at a time.
pub const MATCHES_SPARE_MAX: usize = 8;

/// Maximum bytes of a kept buffer of matches: ten million refs need as many.
pub const MATCHES_SPARE_BYTES_MAX: usize = 128 << 20;

/// Texts without vectors that are read from the store in one page: enough for a few calls.
pub const VECTOR_TEXTS_MAX: usize = 4_096;

/// Maximum vectors of chunks that a search compares one by one, in about 50 ms. More vectors are kept in lists, and a
/// search reads some of the lists.
pub const VECTORS_COMPARED_MAX: u64 = 100_000;

/// Maximum share of the vectors in no list. Beyond it, the lists are made anew.
pub const VECTORS_UNLISTED_SHARE_MAX: f64 = 0.25;

/// Maximum number of lists of vectors.
pub const LISTS_MAX: usize = 2_048;

/// Maximum vectors in the sample from which the centres are computed: 100 MB with 384 dimensions.
pub const LIST_SAMPLE_MAX: usize = 65_536;

/// Maximum vectors in lists. They are in memory while the lists are made. Later vectors are compared one by one.
pub const VECTORS_LISTED_MAX: u64 = 4_000_000;

/// Vectors in one page while lists are made.
pub const VECTORS_READ_AT_ONCE: usize = 4_096;

/// Calls for vectors that may run at the same time.
pub const VECTOR_CALLS_MAX: usize = 4;

/// Maximum connections to one PostgreSQL database: one that writes, and a few that read.
pub const POSTGRES_CONNECTIONS_MAX: usize = 5;

/// Milliseconds for which a new connection to PostgreSQL, and a free one, are waited for.
pub const CONNECT_TIMEOUT_MS: u64 = 10_000;

/// Maximum bytes of texts in one statement. PostgreSQL takes up to 1 GiB.
pub const POSTGRES_ROWS_BYTES_MAX: usize = 16 << 20;

/// Maximum terms of one statement.
pub const POSTGRES_TERMS_AT_ONCE: usize = 10_000;

/// Characters of a word in the index. Longer words differ in their first characters.
pub const WORD_CHARACTERS_MAX: usize = 64;

/// Maximum count of a word in one message. Further repeats say nothing new about its subject.
pub const WORD_REPEATS_MAX: u32 = 32;

/// Words of a message from which its language is recognised.
pub const LANGUAGE_WORDS_MAX: usize = 200;

/// Maximum words of a question that are looked up.
pub const QUESTION_WORDS_MAX: usize = 64;

/// Maximum words of the index that are compared with a misspelt word.
pub const SPELLINGS_COMPARED_MAX: usize = 2_000;

/// Milliseconds after its last change from which a file is known by its stamp. Some file systems count time in steps of 2 s.
pub const STAMP_SETTLED_MS: i64 = 3_000;

/// Milliseconds after a message within which another message belongs to the same conversation.
pub const CONVERSATION_GAP_MS: i64 = 3_600_000;

/// Maximum messages that are found by their vectors.
pub const NEAREST_MESSAGES_MAX: usize = 200;

/// Messages at the head of a ranking that a model or a cross-encoder ranks again.
pub const RERANKED_MESSAGES: usize = 20;

/// Characters before the first word of the question from which a cross-encoder reads a message. It reads about 1,000.
pub const RERANKED_CHARACTERS_BEFORE: u32 = 200;

/// Characters of a message that a model is shown to rank it: about 100 tokens, so that all messages fit the smallest
/// contexts.
pub const RERANKED_CHARACTERS_MAX: usize = 400;

/// Maximum tokens of the order that a model answers with. Each number with its comma takes two or three.
pub const RERANKED_TOKENS_MAX: u32 = 100;

/// Questions of a conversation that later ones may refer to. Pronouns seldom go farther back.
pub const CHAT_TOPICS_MAX: usize = 8;

/// Characters of a question or an answer that a model is shown again with the next question.
pub const CHAT_SHOWN_CHARACTERS_MAX: usize = 400;

/// Maximum names of a question or an answer that are considered. Each costs a look-up.
pub const CHAT_NAMES_MAX: usize = 32;

/// Maximum bytes of one question of a conversation.
pub const CHAT_QUESTION_BYTES_MAX: usize = 16 << 10;

/// Maximum tokens of a question that a model completes.
pub const CHAT_QUESTION_TOKENS_MAX: u32 = 200;

/// Characters of a stem that are stored in an index with a limit. Longer words differ in their first characters.
pub const STEM_CHARACTERS_MAX: usize = 255;

/// Maximum messages of a followed pipe that are read and not taken yet. The reader waits then.
pub const FOLLOWED_MESSAGES_MAX: usize = 256;

/// Maximum chunks that are submitted and not committed yet: the lead of the model over the commits.
pub const AHEAD_CHUNKS_MAX: usize = 8_000;

/// Bytes of messages and extractions that are read and not committed yet, above which no more is read. A source that
/// replaces another is exempt, because it is committed at once.
pub const AHEAD_BYTES_MAX: usize = 64 << 20;

/// Maximum chunks of one submitted batch of extractions.
pub const BATCH_CHUNKS_MAX: usize = 1_000;

/// Maximum messages of one commit.
pub const COMMIT_MESSAGES_MAX: usize = 2_000;

/// Bytes of messages and extractions of one commit, above which nothing more is added to it.
pub const COMMIT_BYTES_MAX: usize = 16 << 20;

/// Maximum outcomes of the ingestion's own worker that wait for the ingestion. Further ones are read from the store.
pub const OUTCOMES_QUEUED_MAX: usize = 4_096;

/// Milliseconds for which calls that have begun are waited for after a stop. With the checks of the running extractions and
/// the last commit, a program that is asked to end does so within two seconds.
pub const DRAIN_GRACE_MS: u64 = 1_200;

/// Maximum extractions that are begun beyond one for each call, so that short texts can be read together. Each is a few
/// kilobytes.
pub const READY_TEXTS_MAX: usize = 2_000;

/// Milliseconds between reads of the store for outcomes that other workers report. Reading a whole batch takes about one.
pub const OUTCOMES_POLL_MS: u64 = 250;

/// Milliseconds without an outcome of the ingestion's own worker, after which the store is read.
pub const OUTCOMES_SILENT_MS: u64 = 1_000;
