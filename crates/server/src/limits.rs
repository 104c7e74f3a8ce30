//! Every limit of the server, in one place. A request over a limit gets a 4xx answer that names the limit, and stores
//! nothing. Shared limits are in `gristmill_model::limits`.

use std::time::Duration;

pub use gristmill_operations::limits::{
    BATCH_IDS_LOOKED_AT_MAX, JOBS_PER_REQUEST_MAX, SEARCH_BATCHES_MAX, SEARCH_BYTES_MAX, SELECTED_JOBS_MAX,
    TAGS_READ_MAX,
};
pub use gristmill_protocol::limits::{ITEM_BYTES_MAX, KINDS_MAX, KINDS_READ_MAX, LOG_BYTES_PER_EXCHANGE_MAX};

/// The largest body of a request on the wire. Bytes.
pub const REQUEST_BYTES_MAX: usize = 32 << 20;

/// The largest body of a request after decompression: bounds the expansion of a small compressed body. Bytes.
pub const REQUEST_DECODED_BYTES_MAX: usize = 64 << 20;

/// The largest body of a worker's heartbeat, claim or live output, on the wire or decompressed. Bytes.
pub const SIGNAL_BYTES_MAX: usize = 4 << 20;

/// The memory for bodies of clients, over all requests. Further bodies wait for room. Bytes.
pub const CLIENT_ROOM_BYTES: usize = 384 << 20;

/// The memory for bodies of exchanges and reports. They have their own room, so that submits do not delay outcomes. Bytes.
pub const EXCHANGE_ROOM_BYTES: usize = 256 << 20;

/// The memory for heartbeats and other short bodies of workers. They have their own room, so that no other body makes a
/// worker seem lost. Bytes.
pub const SIGNAL_ROOM_BYTES: usize = 32 << 20;

/// The bodies of one token take at most this part of a room. The first body of a token is exempt, so that it can always
/// arrive.
pub const SHARE_OF_ROOM: usize = 3;

/// The time that a body waits for room.
pub const ROOM_WITHIN: Duration = Duration::from_secs(30);

/// Bodies above this size are read outside of the event loop, so that they do not block other requests. Bytes.
pub const READ_ASIDE_FROM_BYTES: usize = 128 << 10;

/// The number of large bodies of one room that are decompressed or read at the same time.
pub const READ_ASIDE_MAX: usize = 4;

/// The bytes of one step of decompression. Each step takes room before it begins.
pub const DECODED_STEP_BYTES: usize = 4 << 20;

/// The binary logarithm of the largest accepted zstd window. It bounds a decoder's memory to 8 MiB, which takes room, too.
pub const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// The time in which a body must arrive, without the time that it waits for room.
pub const BODY_ARRIVES_WITHIN: Duration = Duration::from_secs(60);

/// The lowest average speed of a body after [`BODY_GRACE`]. Bytes a second.
pub const BODY_BYTES_PER_SECOND_MIN: u64 = 16 << 10;

/// The time that a body has to get up to speed.
pub const BODY_GRACE: Duration = Duration::from_secs(10);

/// The number of connections, which also stays below three quarters of the files that the process may open. Above it, a
/// new connection replaces the one that has waited longest for a request. If all have requests under way, the new one
/// is closed.
pub const CONNECTIONS_MAX: usize = 8_192;

/// One address (or one /64 network for IPv6) may have this part of all connections.
pub const SHARE_OF_CONNECTIONS: usize = 2;

/// The time in which a new connection must send the head of its first request, including TLS.
pub const HEAD_WITHIN: Duration = Duration::from_secs(10);

/// The time that a connection may wait for the head of its next request. It is longer than clients usually keep connections.
pub const CONNECTION_IDLE_MAX: Duration = Duration::from_secs(120);

/// The time that an answer may stall because the client does not read it.
pub const ANSWER_STALLS_MAX: Duration = Duration::from_secs(60);

/// The number of concurrent requests on one connection of HTTP/2.
pub const STREAMS_PER_CONNECTION_MAX: u32 = 128;

/// The largest head of a request with HTTP/1, and the size of a connection's buffers. Bytes.
pub const HEAD_BYTES_MAX: usize = 128 << 10;

/// The largest head of a request with HTTP/2. Bytes.
pub const HEAD_BYTES_MAX_HTTP2: u32 = 16 << 10;

/// The interval at which the token of a stream or of a waiting request is checked again.
pub const TOKEN_CHECKED_EVERY: Duration = Duration::from_secs(1);

/// The number of queues that one token or one request may name.
pub const QUEUES_MAX: usize = 100;

/// The number of outcomes in one JSON report. One claim can hold as many jobs.
pub const OUTCOMES_PER_REQUEST_MAX: usize = 10_000;

/// The average number of requests per second that one token may send.
pub const REQUESTS_PER_SECOND_MAX: u32 = 5_000;

/// The number of requests that one token may send at once after a pause.
pub const REQUESTS_BURST_MAX: u32 = 10_000;

/// The number of requests that may wait for work or for results (long polls).
pub const LONG_POLLS_MAX: usize = 4_096;

/// The number of jobs that one submit may wait for.
pub const AWAITED_JOBS_MAX: usize = 1_000;

/// The time for which the store's answer to an unauthenticated probe is repeated. Probes cost the store at most one
/// query a second.
pub const PROBE_KEPT_MS: i64 = 1_000;

/// The time that an unauthenticated probe waits for the store.
pub const PROBE_WITHIN: Duration = Duration::from_secs(5);

/// The interval at which waiting claims poll for jobs that other processes submitted to the same store.
pub const POLL_EVERY: Duration = Duration::from_millis(250);

/// The number of listeners to events.
pub const EVENT_STREAMS_MAX: usize = 256;

/// The number of followers of logs. Each reads the store four times a second.
pub const LOG_STREAMS_MAX: usize = 64;

/// The number of answers to exchanges that are kept for one worker until it acknowledges them.
pub const ANSWERS_KEPT_MAX: usize = 4;

/// The number of workers whose last exchanges are remembered. The one that was silent longest is evicted first.
pub const SESSIONS_MAX: usize = 10_000;

/// Tokens in a trust folder; expired ones are dropped when a new one is created.
pub const TOKENS_MAX: usize = 10_000;

/// Signing keys in a trust folder: the newest signs, the older ones still verify.
pub const KEYS_MAX: usize = 16;

/// The interval at which the trust folder is checked for changes, which is the maximum delay of a revocation.
pub const TRUST_RELOADED_EVERY: Duration = Duration::from_secs(1);

/// The longest life of a token. Milliseconds: 366 days.
pub const TOKEN_LIFE_MS_MAX: i64 = 366 * 86_400_000;

/// The difference of clocks by which a token may begin in the future. Milliseconds.
pub const CLOCK_SKEW_MS_MAX: i64 = 60_000;

/// The time that requests may continue after the stop signal.
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);

/// Bytes of a token's subject. The names of its workers begin with it.
pub const SUBJECT_BYTES_MAX: usize = 80;

/// Bytes of the name and of the host that an agent reports.
pub const AGENT_NAME_BYTES_MAX: usize = 100;

/// The number of concurrent searches. It bounds their share of the processor.
pub const SEARCHES_MAX: usize = 4;

/// Sources of the knowledge base in one listing.
pub const MEMORY_SOURCES_MAX: usize = 1_000;

/// Bytes of a question to the knowledge base.
pub const RECALL_QUESTION_BYTES_MAX: usize = 2_000;

/// The number of tags, sources, speakers and threads of one question. Each speaker is looked up by itself.
pub const RECALL_NAMES_MAX: usize = 50;

/// Bytes of all tags, sources, speakers and threads of one question together.
pub const RECALL_NAMES_BYTES_MAX: usize = 2_000;

/// Bytes of a speaker in a question. Each word is looked up by itself.
pub const RECALL_SPEAKER_BYTES_MAX: usize = 200;

/// The number of messages that one recall returns.
pub const RECALLED_MESSAGES_MAX: usize = 100;

/// Characters of a message in the answer to a recall. The rest is left out.
pub const RECALLED_TEXT_CHARACTERS_MAX: usize = 4_000;

/// The number of concurrent recalls. It bounds their share of the processor.
pub const RECALLS_MAX: usize = 4;

/// The longest duration of a recall.
pub const RECALL_WITHIN: Duration = Duration::from_secs(20);

/// The greatest `age_ms_max` of a request. Milliseconds.
pub const AGE_MS_MAX: u64 = 60_000;

/// A shared answer stays recent for this many times the duration of its query, so that such queries take at most 1 % of
/// one core, however many callers ask.
pub const RECENT_FOR_TIMES_ITS_COST: u32 = 100;

/// If open work has at most this many pieces, the backlog is counted for each caller, which takes about 0.3 ms on
/// SQLite. More pieces are counted ahead, and callers get the last count.
pub const BACKLOG_COUNTED_ANEW_PIECES_MAX: u64 = 2_000;

/// The shortest pause between two counts ahead, also after a failed one.
pub const WATCHED_PAUSE_MIN: Duration = Duration::from_millis(10);

/// The longest pause between two counts ahead.
pub const WATCHED_PAUSE_MAX: Duration = Duration::from_secs(2);

/// Counts are made ahead for this time after the last caller. Autoscalers ask at least every 30 s.
pub const WATCHED_FOR: Duration = Duration::from_secs(120);

/// The number of questions of each operation whose last answers are kept.
pub const RECENT_ANSWERS_MAX: usize = 16;

/// The life of the dashboard's cookie. Seconds: 12 hours.
pub const SESSION_COOKIE_S: u32 = 12 * 3_600;

/// Bytes of the dashboard's cookie with its attributes; browsers keep no more than 4,096.
pub const SESSION_COOKIE_BYTES_MAX: usize = 4_000;

/// The number of kinds and queues with their own metrics, about 25 lines each. The metrics of all others are added up.
pub const METRIC_LANES_MAX: usize = 200;

/// The number of entries to read of a list or object that has its own limit: one more than the limit, so that the later
/// check names it.
pub const OUTCOMES_READ_MAX: usize = OUTCOMES_PER_REQUEST_MAX + 1;

/// The number of concurrent operations. Each has one open transaction.
pub const OPERATIONS_RUNNING_MAX: usize = 8;

/// Bytes of an operation's request as JSON, because the server keeps it.
pub const OPERATION_BYTES_MAX: usize = 16 << 10;

/// The number of kept operations. The oldest ended one is forgotten first.
pub const OPERATIONS_KEPT_MAX: usize = 100;
