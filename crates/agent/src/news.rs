//! News about an agent's servers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// News about an agent's servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerNews {
    /// A server stopped answering, or still does not answer.
    Unreachable {
        /// The server.
        base_url: String,
        /// The error.
        reason: String,
        /// The time since its last answer.
        lasts: Duration,
        /// The next server to try, if there is another.
        next: Option<String>,
    },
    /// A lost server answers again.
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
                lasts,
                next,
            } => {
                match lasts.as_secs() {
                    0 => write!(formatter, "{base_url} does not answer: {reason}; ")?,
                    lasts => write!(formatter, "{base_url} has not answered for {lasts} s: {reason}; ")?,
                }
                match next {
                    Some(next) => write!(formatter, "going on with {next}"),
                    None => formatter.write_str("trying on"),
                }
            }
            ServerNews::Back { base_url } => write!(formatter, "{base_url} answers again"),
        }
    }
}

/// Receives each piece of news once. It hears once a minute of a server that still does not answer.
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
