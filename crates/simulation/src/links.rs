//! The links between nodes and servers, and their faults.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::Request;
use axum::http::Response;
use http_body_util::{BodyExt, Limited};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinSet};
use tower::ServiceExt;

use crate::limits::MESSAGE_BYTES_MAX;

/// The network, and its servers.
#[derive(Debug, Default)]
pub struct Network {
    state: Mutex<Links>,
}

#[derive(Debug, Default)]
struct Links {
    servers: BTreeMap<usize, Arc<Listening>>,
    /// The links that carry nothing, as pairs of a node and a server.
    cut: BTreeSet<(String, usize)>,
    /// The nodes with slow messages.
    slow: BTreeSet<String>,
    /// All faults have ended.
    is_sound: bool,
}

/// A server that answers requests.
#[derive(Debug)]
pub struct Listening {
    router: Router,
    requests: Mutex<JoinSet<()>>,
}

impl Listening {
    /// A server that answers with this router.
    pub fn new(router: Router) -> Arc<Listening> {
        Arc::new(Listening {
            router,
            requests: Mutex::default(),
        })
    }

    /// Ends all requests without an answer.
    pub fn kill(&self) {
        self.lock().abort_all();
    }

    fn lock(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes a request to the server. The answer arrives unless the server dies.
    pub fn take(&self, request: Request) -> (AbortHandle, oneshot::Receiver<Answer>) {
        let (give, answer) = oneshot::channel();
        let router = self.router.clone();
        let mut requests = self.lock();
        while requests.try_join_next().is_some() {}
        let handle = requests.spawn(async move {
            let Ok(response) = router.oneshot(request).await;
            let (parts, body) = response.into_parts();
            if let Ok(body) = Limited::new(body, MESSAGE_BYTES_MAX).collect().await {
                let _ = give.send(Response::from_parts(parts, body.to_bytes()));
            }
        });
        (handle, answer)
    }
}

/// The answer of a server.
pub type Answer = Response<Bytes>;

impl Network {
    fn lock(&self) -> MutexGuard<'_, Links> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a server.
    pub fn listen(&self, server: usize, listening: Arc<Listening>) {
        self.lock().servers.insert(server, listening);
    }

    /// Removes a server.
    pub fn forget(&self, server: usize) {
        self.lock().servers.remove(&server);
    }

    /// Cuts the link between a node and a server, or restores it.
    pub fn set_cut(&self, node: &str, server: usize, is_cut: bool) {
        let link = (node.to_owned(), server);
        let mut links = self.lock();
        if is_cut {
            links.cut.insert(link);
        } else {
            links.cut.remove(&link);
        }
    }

    /// Makes the messages of a node slow, or fast again.
    pub fn set_slow(&self, node: &str, is_slow: bool) {
        let mut links = self.lock();
        if is_slow {
            links.slow.insert(node.to_owned());
        } else {
            links.slow.remove(node);
        }
    }

    /// Ends all faults of the network for good.
    pub fn mend(&self) {
        let mut links = self.lock();
        links.cut.clear();
        links.slow.clear();
        links.is_sound = true;
    }

    /// Reports whether the link between a node and a server is cut.
    pub fn is_cut(&self, node: &str, server: usize) -> bool {
        self.lock().cut.contains(&(node.to_owned(), server))
    }

    /// Reports whether the messages of a node are slow.
    pub fn is_slow(&self, node: &str) -> bool {
        self.lock().slow.contains(node)
    }

    /// The server with this number, if it listens.
    pub fn server(&self, server: usize) -> Option<Arc<Listening>> {
        self.lock().servers.get(&server).cloned()
    }

    /// Reports whether all faults have ended.
    pub fn is_sound(&self) -> bool {
        self.lock().is_sound
    }
}
