//! The errors of an agent's start.

use std::path::PathBuf;

/// The error of an agent that cannot start.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AgentError {
    /// The server's address is not a URL of HTTP.
    #[error("`{0}` is not the URL of a server; write it as in https://jobs.example:8378")]
    Url(String),
    /// No server or too many are named.
    #[error("{found} servers are named; name from 1 to {most}, with commas between them")]
    Servers {
        /// The number of named servers.
        found: usize,
        /// The largest allowed number.
        most: usize,
    },
    /// A token would travel in clear text.
    #[error(
        "refusing to send a token to {0} in clear text: use https://, or allow plain HTTP for a network that you \
         trust (--plain-http)"
    )]
    PlainHttp(String),
    /// The token's file cannot be read.
    #[error("the token file {} cannot be read: {reason}; make a token with `gristmill token create`", path.display())]
    TokenFile {
        /// The file.
        path: PathBuf,
        /// The system's message.
        reason: String,
    },
    /// The token cannot be sent.
    #[error(
        "the token is not one line of text without spaces; give it as `gristmill token create` printed it"
    )]
    Token,
    /// The certificate that should verify the server cannot be used.
    #[error("the certificate {} cannot be used: {reason}; give a PEM file", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// The problem.
        reason: String,
    },
    /// The HTTP client cannot be set up.
    #[error("the HTTP client cannot be set up: {0}")]
    Client(String),
}
