//! A worker's source of leases over HTTP: [`HttpSource`].
//!
//! It speaks the exchange of `gristmill_protocol` with a server. Reports and claims travel together in packed batches.
//! A request with a lost answer is repeated under its number until it is answered, so that nothing is committed or
//! claimed twice. While a worker has nothing to do, one request waits at the server for work.
//!
//! [`LogClient`] follows the output of jobs over the same connection.

mod connection;
mod error;
mod held;
mod logs;
mod news;
mod options;
mod output;
mod registration;
mod requests;
mod servers;
mod source;
mod split;
mod token;

pub use error::AgentError;
pub use logs::{AttemptLog, LogClient, LogsError, LogsWanted};
pub use news::{ServerListener, ServerNews};
pub use options::{HttpSourceOptions, agent_settings};
pub use source::HttpSource;
pub use token::AgentToken;
