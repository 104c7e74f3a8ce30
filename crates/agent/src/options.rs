//! The settings of an agent.

use std::path::PathBuf;
use std::time::Duration;

use gristmill_model::limits::LEASE_JOBS_MAX;
use gristmill_worker::WorkerSettings;

use crate::news::ServerListener;
use crate::token::AgentToken;

/// How an agent reaches its server.
#[derive(Debug, Clone)]
pub struct HttpSourceOptions {
    /// The URLs of one or more servers of the same store, without `/api/v1`: `https://jobs.example:8378`. The first is
    /// used until it does not answer, then the next one, and after the last the first again.
    pub base_urls: Vec<String>,
    /// The credentials; none for a server on this machine without a trust folder.
    pub token: Option<AgentToken>,
    /// Its name, for people.
    pub name: String,
    /// A certificate that the server's is checked against, PEM, beside those of the system.
    pub ca_certificate: Option<PathBuf>,
    /// Whether a token may be sent over plain HTTP to another machine.
    pub allow_plain_http: bool,
    /// Reaches the servers through this Unix socket, such as that of a proxy on this machine. Over plain HTTP, the proxy
    /// tells the servers apart by the header `Host`.
    pub unix_socket: Option<PathBuf>,
    /// Jobs to claim in one request at most; no bound but the lease's where `None`, and one for an agent that takes
    /// one job at a time.
    pub jobs_per_exchange_max: Option<u32>,
    /// Whether large bodies are compressed; by default not for a server on this machine.
    pub compress: Option<bool>,
    /// How long one request may take, the server's waiting not counted.
    pub request_timeout: Duration,
    /// How long the agent retries a request with a lost answer; until a server answers, where `None`.
    pub give_up_after: Option<Duration>,
    /// How long one request waits at the server for work.
    pub wait: Duration,
    /// Receives the loss and the return of servers.
    pub listener: Option<ServerListener>,
}

impl HttpSourceOptions {
    /// The usual options for one server.
    pub fn new(base_url: impl Into<String>) -> Self {
        HttpSourceOptions {
            base_urls: vec![base_url.into()],
            token: None,
            name: format!("agent-{}", std::process::id()),
            ca_certificate: None,
            allow_plain_http: false,
            unix_socket: None,
            jobs_per_exchange_max: None,
            compress: None,
            request_timeout: Duration::from_secs(15),
            give_up_after: None,
            wait: Duration::from_secs(20),
            listener: None,
        }
    }

    /// The most jobs that one request claims.
    pub(crate) fn jobs_max(&self) -> u32 {
        self.jobs_per_exchange_max
            .unwrap_or(LEASE_JOBS_MAX)
            .clamp(1, LEASE_JOBS_MAX)
    }
}

/// The settings of a worker over HTTP: an idle worker does not poll, since the server wakes its source.
/// `slots` stands for the mode `agent`: jobs are claimed and reported one by one, and so many run at once.
pub fn agent_settings(settings: WorkerSettings, slots: Option<usize>) -> WorkerSettings {
    let settings = WorkerSettings {
        poll_every: Duration::from_secs(30),
        ..settings
    };
    match slots {
        Some(slots) => WorkerSettings {
            concurrency: slots.max(1),
            micro_batch_jobs_max: 1,
            buffer_target: Duration::ZERO,
            ..settings
        },
        None => settings,
    }
}
