//! News about an agent's servers.

use std::fmt;
use std::sync::Arc;

/// News about an agent's servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerNews {
    /// A server does not answer any more.
    Unreachable {
        /// The server.
        base_url: String,
        /// The error.
        reason: String,
        /// The server that is tried next, where there is another.
        next: Option<String>,
    },
    /// A server that did not answer does so again.
    Back {
        /// The server.
        base_url: String,
    },
}

impl fmt::Display for ServerNews {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerNews::Unreachable {
                base_url,
                reason,
                next,
            } => {
                write!(formatter, "{base_url} does not answer: {reason}; ")?;
                match next {
                    Some(next) => write!(formatter, "going on with {next}"),
                    None => formatter.write_str("trying on"),
                }
            }
            ServerNews::Back { base_url } => write!(formatter, "{base_url} answers again"),
        }
    }
}

/// Receives each piece of news once.
#[derive(Clone)]
pub struct ServerListener(Arc<dyn Fn(&ServerNews) + Send + Sync>);

impl ServerListener {
    /// Notifies `listener`.
    pub fn new(listener: impl Fn(&ServerNews) + Send + Sync + 'static) -> Self {
        ServerListener(Arc::new(listener))
    }

    pub(crate) fn tell(&self, news: &ServerNews) {
        self.0(news);
    }
}

impl fmt::Debug for ServerListener {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ServerListener(…)")
    }
}
