//! Every limit of the server, in one place. A request over a limit gets a 4xx answer that names the limit, and stores
//! nothing. Shared limits are in `gristmill_model::limits`.

use std::time::Duration;

use gristmill_model::limits::CONTROLS_MAX;
pub use gristmill_operations::limits::{JOBS_PER_REQUEST_MAX, TAGS_READ_MAX, TIMESTAMP_MS_MAX};
pub use gristmill_protocol::limits::{ITEM_BYTES_MAX, KINDS_MAX, KINDS_READ_MAX, LOG_BYTES_PER_EXCHANGE_MAX};

/// Bytes of one request's body on the wire at most.
pub const REQUEST_BYTES_MAX: usize = 32 << 20;

/// Bytes of one request's body after decompression at most: bounds the expansion of a small compressed body.
pub const REQUEST_DECODED_BYTES_MAX: usize = 64 << 20;

/// Bytes of one body of a worker's heartbeat, claim or live output, on the wire or decompressed, at most.
pub const SIGNAL_BYTES_MAX: usize = 4 << 20;

/// Bytes of clients' bodies that are in memory at once, over all requests; further ones wait for room.
pub const CLIENT_ROOM_BYTES: usize = 384 << 20;

/// Bytes of bodies of exchanges and reports that are in memory at once: room of their own, so that submits do not delay
/// outcomes.
pub const EXCHANGE_ROOM_BYTES: usize = 256 << 20;

/// Bytes of heartbeats and other short bodies of workers that are in memory at once: room of their own, so that no other body
/// makes a worker seem lost.
pub const SIGNAL_ROOM_BYTES: usize = 32 << 20;

/// The bodies of one token take at most this part of a room, beside the first of them: it can always arrive as a whole.
pub const SHARE_OF_ROOM: usize = 3;

/// How long a body waits for room.
pub const ROOM_WITHIN: Duration = Duration::from_secs(30);

/// Bodies above this size are read beside the event loop, so that they do not block other requests. Bytes.
pub const READ_ASIDE_FROM_BYTES: usize = 128 << 10;

/// Large bodies of one room that are decompressed or read at once.
pub const READ_ASIDE_MAX: usize = 4;

/// Bytes that are decompressed at once: room is taken for each step before it.
pub const DECODED_STEP_BYTES: usize = 4 << 20;

/// Entries of all lists and objects of one body, payloads and values aside, at most: bounds the memory that a short body
/// becomes.
pub const ENTRIES_PER_BODY_MAX: usize = 1_000_000;

/// Binary logarithm of the largest zstd window that is accepted: bounds a decoder's memory to 8 MiB, which takes room, too.
pub const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// How long the body of a request may take to arrive, without the time in which it waits for room.
pub const BODY_ARRIVES_WITHIN: Duration = Duration::from_secs(60);

/// How fast a body arrives on average at least, after [`BODY_GRACE`]. Bytes a second.
pub const BODY_BYTES_PER_SECOND_MIN: u64 = 16 << 10;

/// How long a body may take to get up to speed.
pub const BODY_GRACE: Duration = Duration::from_secs(10);

/// Connections at once, and at most three quarters of the files that the process may open. Above, the connection that has
/// waited longest for a request is closed for a new one; with a request under way on each, the new one is closed.
pub const CONNECTIONS_MAX: usize = 8_192;

/// Connections of one address (of one /64 network for IPv6): this part of all.
pub const SHARE_OF_CONNECTIONS: usize = 2;

/// How long a new connection may take to send the head of its first request, TLS included.
pub const HEAD_WITHIN: Duration = Duration::from_secs(10);

/// How long a connection may wait for its next request, the head of that included: longer than clients usually keep it.
pub const CONNECTION_IDLE_MAX: Duration = Duration::from_secs(120);

/// How long an answer may stall because the client does not read it.
pub const ANSWER_STALLS_MAX: Duration = Duration::from_secs(60);

/// Requests at once on one connection of HTTP/2.
pub const STREAMS_PER_CONNECTION_MAX: u32 = 128;

/// Bytes of a request's head at most with HTTP/1; also the size of a connection's buffers.
pub const HEAD_BYTES_MAX: usize = 128 << 10;

/// Bytes of a request's head at most with HTTP/2.
pub const HEAD_BYTES_MAX_HTTP2: u32 = 16 << 10;

/// How often the token of a stream or of a waiting request is checked again.
pub const TOKEN_CHECKED_EVERY: Duration = Duration::from_secs(1);

/// Job ids in one cancel or retry.
pub const SELECTED_JOBS_MAX: usize = 10_000;

/// Queues that one token or one request may name.
pub const QUEUES_MAX: usize = 100;

/// Outcomes in one JSON report: as many as one claim can hold.
pub const OUTCOMES_PER_REQUEST_MAX: usize = 10_000;

/// Requests a second that one token may send, on average.
pub const REQUESTS_PER_SECOND_MAX: u32 = 5_000;

/// Requests that one token may send at once after a pause.
pub const REQUESTS_BURST_MAX: u32 = 10_000;

/// Requests that may wait at once, for work or for results (long polls).
pub const LONG_POLLS_MAX: usize = 4_096;

/// How long one claim, or one wait for results, may wait.
pub const WAIT_MS_MAX: u64 = 30_000;

/// Jobs that one submit may wait for.
pub const AWAITED_JOBS_MAX: usize = 1_000;

/// Bytes of outcomes in the answer to a submit that waits.
pub const AWAITED_RESULT_BYTES_MAX: usize = 32 << 20;

/// How long the answer of the store to an unauthenticated probe is repeated: probes cost it one query a second at most.
pub const PROBE_KEPT_MS: i64 = 1_000;

/// How long an unauthenticated probe waits for the store.
pub const PROBE_WITHIN: Duration = Duration::from_secs(5);

/// How often waiting claims poll for jobs that other processes submitted to the same store.
pub const POLL_EVERY: Duration = Duration::from_millis(250);

/// Listeners to events at once.
pub const EVENT_STREAMS_MAX: usize = 256;

/// Followers of logs at once; each looks at the store four times a second.
pub const LOG_STREAMS_MAX: usize = 64;

/// Answers to exchanges that are kept for one worker until it says that they arrived.
pub const ANSWERS_KEPT_MAX: usize = 4;

/// Workers whose last exchanges are remembered; the longest silent one is evicted first.
pub const SESSIONS_MAX: usize = 10_000;

/// Tokens in a trust folder; expired ones are dropped when a new one is created.
pub const TOKENS_MAX: usize = 10_000;

/// Signing keys in a trust folder: the newest signs, the older ones still verify.
pub const KEYS_MAX: usize = 16;

/// How often the trust folder is checked for changes: the maximum delay of a revocation.
pub const TRUST_RELOADED_EVERY: Duration = Duration::from_secs(1);

/// The longest life of a token. Milliseconds: 366 days.
pub const TOKEN_LIFE_MS_MAX: i64 = 366 * 86_400_000;

/// How far a token's beginning may lie in the future, since clocks differ. Milliseconds.
pub const CLOCK_SKEW_MS_MAX: i64 = 60_000;

/// How long requests may continue after the stop signal.
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);

/// Batches whose results one request may name.
pub const RESULT_BATCHES_MAX: usize = 1_000;

/// Bytes of a token's subject: it stands before the agent's own name in the name of its workers.
pub const SUBJECT_BYTES_MAX: usize = 80;

/// Bytes of the name and of the host that an agent gives of itself.
pub const AGENT_NAME_BYTES_MAX: usize = 100;

/// Batches on one page of a listing.
pub const BATCH_ROWS_MAX: u32 = 200;

/// Bytes of a text to search for.
pub const SEARCH_TEXT_BYTES_MAX: usize = 200;

/// The newest jobs that one search looks at, up to a whole batch more.
pub const SEARCH_JOBS_MAX: u64 = 100_000;

/// Batches that one search looks at; each costs two queries.
pub const SEARCH_BATCHES_MAX: usize = 1_000;

/// Bytes of payloads and values that one search looks at, up to a batch more.
pub const SEARCH_BYTES_MAX: usize = 256 << 20;

/// Jobs that one search finds.
pub const SEARCH_ROWS_MAX: u32 = 100;

/// Searches at once, which bounds their share of the processor.
pub const SEARCHES_MAX: usize = 4;

/// Sources of the knowledge base in one listing.
pub const MEMORY_SOURCES_MAX: usize = 1_000;

/// Bytes of a question to the knowledge base.
pub const RECALL_QUESTION_BYTES_MAX: usize = 2_000;

/// Messages that one recall finds.
pub const RECALLED_MESSAGES_MAX: usize = 100;

/// Characters of a message that one recall finds; the rest is left out.
pub const RECALLED_TEXT_CHARACTERS_MAX: usize = 4_000;

/// Recalls at once, which bounds their share of the processor.
pub const RECALLS_MAX: usize = 4;

/// How long a recall may take.
pub const RECALL_WITHIN: Duration = Duration::from_secs(20);

/// Runs in one listing, which counts the jobs of each.
pub const RUN_ROWS_MAX: u32 = 100;

/// Ids of batches that one listing looks at, matching or not.
pub const BATCH_IDS_LOOKED_AT_MAX: i64 = 20_000;

/// The age of an answer that a caller may be content with. Milliseconds.
pub const AGE_MS_MAX: u64 = 60_000;

/// An answer that callers share is recent for so many times as long as the look at the store took: looks take at most 1 % of
/// one core, however many ask.
pub const RECENT_FOR_TIMES_ITS_COST: u32 = 100;

/// Pieces of open work that are counted anew for each caller that asks for the backlog: some 0.3 ms on SQLite. More are counted
/// ahead, and callers get the last count.
pub const BACKLOG_COUNTED_ANEW_PIECES_MAX: u64 = 2_000;

/// The shortest pause between two looks that are made ahead, also after one that failed.
pub const WATCHED_PAUSE_MIN: Duration = Duration::from_millis(10);

/// The longest pause between two looks that are made ahead.
pub const WATCHED_PAUSE_MAX: Duration = Duration::from_secs(2);

/// Looks are made ahead for so long after the last caller: autoscalers ask every 30 s or oftener.
pub const WATCHED_FOR: Duration = Duration::from_secs(120);

/// Questions whose last answers are kept, of each operation.
pub const RECENT_ANSWERS_MAX: usize = 16;

/// The life of the dashboard's cookie. Seconds: 12 hours.
pub const SESSION_COOKIE_S: u32 = 12 * 3_600;

/// Bytes of the dashboard's cookie with its attributes; browsers keep no more than 4,096.
pub const SESSION_COOKIE_BYTES_MAX: usize = 4_000;

/// Kinds and queues that have metrics of their own, about 25 lines each; the metrics of all further ones are added up.
pub const METRIC_LANES_MAX: usize = 200;

/// Entries that are read of a list or an object with a limit of its own: one more than that, so that the later check names it.
pub const SELECTED_JOBS_READ_MAX: usize = SELECTED_JOBS_MAX + 1;
/// See [`SELECTED_JOBS_READ_MAX`].
pub const OUTCOMES_READ_MAX: usize = OUTCOMES_PER_REQUEST_MAX + 1;
/// See [`SELECTED_JOBS_READ_MAX`].
pub const CONTROLS_READ_MAX: usize = CONTROLS_MAX + 1;

/// Operations at once: each has one transaction under way.
pub const OPERATIONS_RUNNING_MAX: usize = 8;

/// Bytes of an operation's request, as JSON, since the server remembers it.
pub const OPERATION_BYTES_MAX: usize = 16 << 10;

/// Operations that are remembered; the oldest ended one is forgotten first.
pub const OPERATIONS_KEPT_MAX: usize = 100;

/// Names in one condition of a filter: states, effects, tags.
pub const NAMES_READ_MAX: usize = 100;
