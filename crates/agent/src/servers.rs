//! The servers of one store that an agent may use, and whether they answer.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use reqwest::Url;

use crate::error::AgentError;
use crate::news::{ServerListener, ServerNews};
use crate::options::HttpSourceOptions;

/// The maximum number of servers of one agent.
const SERVERS_MAX: usize = 32;

/// The interval of news about a server that still does not answer.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// One server.
#[derive(Debug)]
pub(crate) struct Server {
    base_url: String,
    /// The URL of its operations.
    pub api: String,
    /// True if large bodies are compressed.
    pub compress: bool,
    is_lost: AtomicBool,
    told: Mutex<Told>,
}

/// The last news about a server. The reporter holds the lock while it reports, which keeps the news in order.
#[derive(Debug, Default)]
struct Told {
    loss: Option<Loss>,
    /// The time when it answered again. Failures of earlier requests are not news.
    back_at: Option<Instant>,
}

/// The time since which a server does not answer, and the time of the last news about it.
#[derive(Debug, Clone, Copy)]
struct Loss {
    since: Instant,
    told_at: Instant,
}

impl Server {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Told {
    /// The time without an answer, if it should be reported now.
    fn has_lost(&mut self, now: Instant) -> Option<Duration> {
        let is_known = self.loss.is_some();
        let loss = self.loss.get_or_insert(Loss {
            since: now,
            told_at: now,
        });
        if is_known && now.saturating_duration_since(loss.told_at) < TOLD_EVERY {
            return None;
        }
        loss.told_at = now;
        Some(now.saturating_duration_since(loss.since))
    }
}

/// All servers in their given order.
#[derive(Debug)]
pub(crate) struct Servers {
    servers: Vec<Server>,
    current: AtomicUsize,
    listener: Option<ServerListener>,
}

impl Servers {
    pub fn new(options: &HttpSourceOptions) -> Result<Servers, AgentError> {
        if options.base_urls.is_empty() || options.base_urls.len() > SERVERS_MAX {
            return Err(AgentError::Servers {
                found: options.base_urls.len(),
                most: SERVERS_MAX,
            });
        }
        let servers = options.base_urls.iter().map(|url| server(url, options));
        Ok(Servers {
            servers: servers.collect::<Result<_, _>>()?,
            current: AtomicUsize::new(0),
            listener: options.listener.clone(),
        })
    }

    pub fn len(&self) -> usize {
        self.servers.len()
    }

    /// The current server, with its index.
    pub fn current(&self) -> (usize, &Server) {
        let index = self.current.load(Ordering::Relaxed);
        assert!(
            index < self.servers.len(),
            "the current server {index} is one of {}",
            self.servers.len()
        );
        (index, &self.servers[index])
    }

    /// Notes that a server has answered.
    pub fn answered(&self, index: usize, now: Instant) {
        let server = &self.servers[index];
        if !server.is_lost.load(Ordering::Relaxed) {
            return;
        }
        let mut told = server.told();
        if server.is_lost.swap(false, Ordering::Relaxed) {
            *told = Told {
                loss: None,
                back_at: Some(now),
            };
            self.tell(&ServerNews::Back {
                base_url: server.base_url.clone(),
            });
        }
    }

    /// Notes that a server did not answer a request that `began` then. The next one is used, if there is another.
    pub fn lost(&self, index: usize, reason: &str, began: Instant, now: Instant) {
        let server = &self.servers[index];
        let mut told = server.told();
        if told.back_at.is_some_and(|back_at| began < back_at) {
            return;
        }
        server.is_lost.store(true, Ordering::Relaxed);
        let next = (index + 1) % self.servers.len();
        assert!(next < self.servers.len(), "the next server is one of them");
        // If several requests lose the same server, only one of them moves on.
        let _ = self
            .current
            .compare_exchange(index, next, Ordering::Relaxed, Ordering::Relaxed);
        if let Some(lasts) = told.has_lost(now) {
            self.tell(&ServerNews::Unreachable {
                base_url: server.base_url.clone(),
                reason: reason.to_owned(),
                lasts,
                next: (next != index).then(|| self.servers[next].base_url.clone()),
            });
        }
    }

    /// Reports whether no server answers.
    pub fn are_all_lost(&self) -> bool {
        self.servers
            .iter()
            .all(|server| server.is_lost.load(Ordering::Relaxed))
    }

    /// The servers that do not answer and are not in use, with their indexes.
    pub fn left_behind(&self) -> Vec<(usize, &Server)> {
        let current = self.current.load(Ordering::Relaxed);
        let servers = self.servers.iter().enumerate();
        servers
            .filter(|(index, server)| *index != current && server.is_lost.load(Ordering::Relaxed))
            .collect()
    }

    fn tell(&self, news: &ServerNews) {
        tracing::warn!("{news}");
        if let Some(listener) = &self.listener {
            listener.tell(news);
        }
    }
}

fn server(base_url: &str, options: &HttpSourceOptions) -> Result<Server, AgentError> {
    let wrong = || AgentError::Url(base_url.to_owned());
    let url = Url::parse(base_url).map_err(|_| wrong())?;
    let host = url.host_str().ok_or_else(wrong)?.to_owned();
    let is_local = host == "localhost"
        || host
            .trim_matches(['[', ']'])
            .parse::<IpAddr>()
            .is_ok_and(|ip| ip.is_loopback());
    match url.scheme() {
        "https" => {}
        "http" if is_local || options.allow_plain_http || options.token.is_none() => {}
        "http" => return Err(AgentError::PlainHttp(host)),
        _ => return Err(wrong()),
    }
    let base_url = base_url.trim_end_matches('/').to_owned();
    Ok(Server {
        api: format!("{base_url}/api/v1"),
        base_url,
        compress: options.compress.unwrap_or(!is_local),
        is_lost: AtomicBool::new(false),
        told: Mutex::default(),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn each_change_is_reported_once_and_one_of_many_requests_moves_on() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let told = Arc::new(Mutex::new(Vec::new()));
        let said = told.clone();
        let mut options = HttpSourceOptions::new("http://127.0.0.1:1/");
        options.base_urls.push("http://127.0.0.1:2".to_owned());
        options.listener = Some(ServerListener::new(move |news| {
            said.lock().unwrap().push(news.to_string());
        }));
        let servers = Servers::new(&options).unwrap();
        assert_eq!(servers.current().1.api, "http://127.0.0.1:1/api/v1");
        let lost = |index, reason, second| servers.lost(index, reason, at(second), at(second));
        servers.answered(0, at(0));
        lost(0, "refused", 0);
        lost(0, "refused", 1);
        assert_eq!(servers.current().0, 1, "and not back at the first");
        servers.answered(1, at(1));
        assert!(!servers.are_all_lost());
        assert_eq!(servers.left_behind()[0].0, 0);
        lost(1, "timed out", 2);
        assert!(servers.are_all_lost());
        lost(0, "refused", 59);
        lost(0, "refused", 61);
        lost(0, "refused", 62);
        servers.answered(0, at(63));
        servers.answered(0, at(63));
        servers.lost(0, "timed out", at(62), at(64));
        let expected = [
            "http://127.0.0.1:1 does not answer: refused; going on with http://127.0.0.1:2",
            "http://127.0.0.1:2 does not answer: timed out; going on with http://127.0.0.1:1",
            "http://127.0.0.1:1 has not answered for 61 s: refused; going on with http://127.0.0.1:2",
            "http://127.0.0.1:1 answers again",
        ];
        assert_eq!(*told.lock().unwrap(), expected);
    }
}
