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
    /// The URLs of one or more servers of the same store, without `/api/v1`: `https://jobs.example:8378`. The first one
    /// is used until it does not answer, then the next one, and after the last one the first again.
    pub base_urls: Vec<String>,
    /// The credentials; none for a server on this machine without a trust folder.
    pub token: Option<AgentToken>,
    /// The agent's name, for people.
    pub name: String,
    /// A CA certificate to verify the server with, as PEM, in addition to the system's.
    pub ca_certificate: Option<PathBuf>,
    /// A token may be sent over plain HTTP to another machine.
    pub allow_plain_http: bool,
    /// Reaches the servers through this Unix socket, for example of a proxy on this machine. Over plain HTTP, the proxy
    /// tells the servers apart by the header `Host`.
    pub unix_socket: Option<PathBuf>,
    /// The largest number of jobs to claim in one request. With `None`, only the lease's limit applies. It is 1 for an
    /// agent that takes one job at a time.
    pub jobs_per_exchange_max: Option<u32>,
    /// Selects whether large bodies are compressed. By default they are, unless the server is on this machine.
    pub compress: Option<bool>,
    /// The time limit of one request, without the server's waiting time.
    pub request_timeout: Duration,
    /// The time for which the agent retries a request with a lost answer. With `None`, until a server answers.
    pub give_up_after: Option<Duration>,
    /// The time that one request waits at the server for work.
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

    /// The largest number of jobs that one request claims.
    pub(crate) fn jobs_max(&self) -> u32 {
        self.jobs_per_exchange_max
            .unwrap_or(LEASE_JOBS_MAX)
            .clamp(1, LEASE_JOBS_MAX)
    }
}

/// The settings of a worker over HTTP. An idle worker does not poll, because the server wakes its source. `slots`
/// selects the mode `agent`: jobs are claimed and reported one by one, and this many run at once.
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
