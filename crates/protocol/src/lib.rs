//! The messages between a server and its workers, as types. An agent depends on this crate, and on no server.
//!
//! * [`worker`] has the requests and answers of a worker besides its exchanges, as JSON.
//! * [`refusal`] is the body of every refusal.
//! * [`exchange`] is how an agent and a server speak of leases and reports: `application/vnd.gristmill.exchange.v1`.
//!
//! # The exchange
//!
//! A message is a small JSON head and the packed texts, as they are, behind it ([`frame`]):
//!
//! ```text
//! bytes 0..4   "GMX1": the format and its version
//! bytes 4..8   length of the head in bytes, little-endian
//!              the head, JSON
//!              then each segment: its length (4 bytes, little-endian) and its bytes
//! ```
//!
//! The head names what the segments hold, in order. In a request there are two segments for each report that has
//! completed jobs: their values as one packed JSON array, and their durations in microseconds as little-endian
//! 32-bit numbers. In an answer there is one segment for each leased slice: its payloads, packed; and one more
//! where its jobs have keys or tags: a JSON object of these, packed as in the store. Nobody on the way parses a
//! payload; values come from foreign machines and are checked once, by the server ([`exchange`]).
//!
//! Requests are numbered by the agent, upwards from 1 for each registered worker. A request that is sent again
//! carries its old number and the next `attempt`, and is answered as the first time: the server keeps the answers
//! until the agent has acknowledged them. A server claims only for agents that name it as their `instance` (a
//! number that the server drew when it started); another server commits the reports, claims nothing, and answers
//! with its own instance. So a claim whose answer was lost is either answered again by the server that made it,
//! or, where that one is gone, known to be unknown (`claim_unknown`), and the agent leaves and registers again
//! when it holds no more jobs, which gives such a claim back.

pub mod exchange;
pub mod frame;
pub mod limits;
pub mod refusal;
pub mod worker;

pub use exchange::{ExchangeRequest, ExchangeResponse};
pub use frame::FrameError;
pub use refusal::Refusal;

/// The content type of an exchange, both ways.
pub const EXCHANGE_TYPE: &str = "application/vnd.gristmill.exchange.v1";
