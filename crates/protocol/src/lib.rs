//! The messages between a server and its workers, as types. An agent depends on this crate, and on no server.
//!
//! * [`worker`] has the other requests and answers of a worker, as JSON.
//! * [`refusal`] is the body of every refusal.
//! * [`exchange`] has the messages about leases and reports: `application/vnd.gristmill.exchange.v1`.
//!
//! # The exchange
//!
//! A message is a small JSON head, followed by the packed texts as they are ([`frame`]):
//!
//! ```text
//! bytes 0..4   "GMX1": the format and its version
//! bytes 4..8   length of the head in bytes, little-endian
//!              the head, JSON
//!              then each segment: its length (4 bytes, little-endian) and its bytes
//! ```
//!
//! The head names the contents of the segments, in order. A request has two segments for each report with completed
//! jobs: their values as one packed JSON array, and their durations in microseconds as little-endian 32-bit numbers. An
//! answer has one segment with the packed payloads of each leased slice. If its jobs have keys or tags, a second
//! segment has them as a JSON object, packed as in the store. No machine in between parses a payload. Values come from
//! foreign machines, and the server checks them once ([`exchange`]).
//!
//! The agent numbers requests from 1 upwards for each registered worker. A repeated request has its old number and the
//! next `attempt`, and gets the first answer: the server keeps answers until the agent has acknowledged them. A server
//! claims only for agents that name it as their `instance` (a number that the server drew at its start). Another server
//! commits the reports, claims nothing, and answers with its own instance. If the answer to a claim is lost, the server
//! that made the claim answers it again. If that server is gone, the claim is known to be unknown (`claim_unknown`).
//! The agent then leaves and registers again when it holds no more jobs, which releases such a claim.

pub mod exchange;
pub mod frame;
pub mod limits;
pub mod metric;
pub mod refusal;
pub mod worker;

pub use exchange::{ExchangeRequest, ExchangeResponse};
pub use frame::FrameError;
pub use refusal::Refusal;

/// The content type of an exchange in both directions.
pub const EXCHANGE_TYPE: &str = "application/vnd.gristmill.exchange.v1";
