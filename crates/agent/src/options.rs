//! What an agent is told.

use std::path::PathBuf;
use std::time::Duration;

use gristmill_model::limits::LEASE_JOBS_MAX;
use gristmill_worker::WorkerSettings;

use crate::connection::AgentToken;

/// How an agent reaches its server.
#[derive(Debug, Clone)]
pub struct HttpSourceOptions {
    /// The server's URL, without `/api/v1`: `https://jobs.example:8378`.
    pub base_url: String,
    /// Who the agent is; none for a server on this machine that has no trust folder.
    pub token: Option<AgentToken>,
    /// Its name, for people.
    pub name: String,
    /// A certificate that the server's is checked against, PEM, beside those of the system.
    pub ca_certificate: Option<PathBuf>,
    /// Whether a token may be sent over plain HTTP to another machine.
    pub allow_plain_http: bool,
    /// Jobs to claim in one request at most; no bound but the lease's where `None`, and one for an agent that takes
    /// one job at a time.
    pub jobs_per_exchange_max: Option<u32>,
    /// Whether large bodies are compressed; by default not for a server on this machine.
    pub compress: Option<bool>,
    /// How long one request may take, the server's waiting not counted.
    pub request_timeout: Duration,
    /// How long a request whose answer was lost is sent again before the agent gives up.
    pub give_up_after: Duration,
    /// How long one request waits at the server for work.
    pub wait: Duration,
}

impl HttpSourceOptions {
    /// The usual options for a server.
    pub fn new(base_url: impl Into<String>) -> Self {
        HttpSourceOptions {
            base_url: base_url.into(),
            token: None,
            name: format!("agent-{}", std::process::id()),
            ca_certificate: None,
            allow_plain_http: false,
            jobs_per_exchange_max: None,
            compress: None,
            request_timeout: Duration::from_secs(15),
            give_up_after: Duration::from_secs(60),
            wait: Duration::from_secs(20),
        }
    }

    /// The most jobs that one request claims.
    pub(crate) fn jobs_max(&self) -> u32 {
        self.jobs_per_exchange_max
            .unwrap_or(LEASE_JOBS_MAX)
            .clamp(1, LEASE_JOBS_MAX)
    }
}

/// The settings of a worker over HTTP: an idle one need not poll, since its source is told when there is work.
/// `one_at_a_time` is the mode `agent`: one job is claimed, run and reported before the next.
pub fn agent_settings(settings: WorkerSettings, one_at_a_time: bool) -> WorkerSettings {
    let settings = WorkerSettings {
        poll_every: Duration::from_secs(30),
        ..settings
    };
    if one_at_a_time {
        WorkerSettings {
            concurrency: 1,
            micro_batch_jobs_max: 1,
            buffer_target: Duration::ZERO,
            ..settings
        }
    } else {
        settings
    }
}
