//! The nodes: servers, agents and workers. A node that ends or is killed starts again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gristmill_agent::{HttpSource, HttpSourceOptions, agent_settings};
use gristmill_engine::{Engine, EngineSettings};
use gristmill_model::limits::LEASE_LOST_AFTER_MS;
use gristmill_model::{JobError, SplitMix64};
use gristmill_server::limits::POLL_EVERY;
use gristmill_server::rate::RateLimiter;
use gristmill_server::serve::routes;
use gristmill_server::trust::Trust;
use gristmill_store::{NewWorker, WorkSeen};
use gristmill_worker::{Handler, Job, NoObserver, Source, StoreSource, Worker, WorkerSettings, job_handler};
use serde::{Deserialize, Serialize};
use tokio::net::UnixListener;
use tokio::sync::Notify;

use crate::checker::LIMITED;
use crate::clock::WallClock;
use crate::flows::{self, FLOW};
use crate::limits::{AGENTS, CLOCK_JUMP_MS_MAX, SERVERS, WORKERS};
use crate::links::Listening;
use crate::network::carry_for;
use crate::store::{FaultyStore, Trouble};
use crate::world::World;

/// The kind of jobs without a limit.
pub const PLAIN: &str = "plain";

/// The longest absence of a killed node, in milliseconds.
const AWAY_MS_MAX: u64 = 40_000;

/// The role of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A server. Its number counts from 1 and is its port.
    Server(usize),
    Agent,
    Worker,
}

/// A node.
#[derive(Debug)]
pub struct Node {
    /// The name of the node in the network.
    pub name: String,
    /// The role of the node.
    pub role: Role,
    killed: Notify,
    /// The store handle of the node's process, if the process runs and has one.
    store: Mutex<Option<Arc<FaultyStore>>>,
}

impl Node {
    fn new(name: String, role: Role) -> Arc<Node> {
        Arc::new(Node {
            name,
            role,
            killed: Notify::new(),
            store: Mutex::default(),
        })
    }

    /// Kills the process of the node.
    pub fn kill(&self) {
        self.killed.notify_one();
    }

    /// Starts or ends trouble on the node's store handle.
    pub fn set_trouble(&self, trouble: Trouble) {
        if let Some(store) = self.store() {
            store.set_trouble(trouble);
        }
    }

    /// The store handle of the node's process, if it has one.
    pub fn store(&self) -> Option<Arc<FaultyStore>> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_store(&self, new: Option<Arc<FaultyStore>>) {
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(
            store.is_none() || new.is_none(),
            "a process of {} drops its store before the next process opens one",
            self.name
        );
        *store = new;
    }
}

/// Starts all nodes.
pub fn start(world: &Arc<World>) -> Vec<Arc<Node>> {
    let servers = (1..=SERVERS).map(|port| Node::new(format!("server {port}"), Role::Server(port)));
    let agents = (1..=AGENTS).map(|number| Node::new(format!("agent {number}"), Role::Agent));
    let workers = (1..=WORKERS).map(|number| Node::new(format!("worker {number}"), Role::Worker));
    let nodes: Vec<Arc<Node>> = servers.chain(agents).chain(workers).collect();
    for node in &nodes {
        tokio::spawn(keep(world.clone(), node.clone()));
    }
    nodes
}

/// Starts a node again whenever it ends.
async fn keep(world: Arc<World>, node: Arc<Node>) {
    for life in 1_u64.. {
        world.note(format_args!("{} starts", node.name));
        let ended = match node.role {
            Role::Server(port) => serve(&world, &node, port).await,
            Role::Agent => run_agent(&world, &node, life).await,
            Role::Worker => run_worker(&world, &node).await,
        };
        world.note(format_args!("{} ended: {ended:?}", node.name));
        tokio::time::sleep(world.draw_time(AWAY_MS_MAX)).await;
    }
}

type Ended = Result<(), String>;

fn told(error: impl ToString) -> String {
    error.to_string()
}

async fn serve(world: &Arc<World>, node: &Node, port: usize) -> Ended {
    let store = FaultyStore::open(world, &node.name).map_err(told)?;
    node.set_store(Some(store.clone()));
    let ended = serve_from(world, node, port, store.clone()).await;
    node.set_store(None);
    store.kill();
    ended
}

async fn serve_from(world: &Arc<World>, node: &Node, port: usize, store: Arc<FaultyStore>) -> Ended {
    let settings = EngineSettings {
        clock: world.wall_clock.clone(),
        ..EngineSettings::default()
    };
    let engine = Engine::new(store, settings).await.map_err(told)?;
    let rate = RateLimiter::new(world.wall_clock.clone(), u32::MAX, u32::MAX);
    let (app, router) = routes(engine, Trust::Loopback, rate).map_err(told)?;
    let listening = Listening::new(router);
    world.network.listen(port, listening.clone());
    let seen = WorkSeen::default();
    tokio::select! {
        biased;
        () = node.killed.notified() => {}
        () = app.wake.watch(|| app.store().wait_for_work(&seen), POLL_EVERY) => {}
    }
    world.network.forget(port);
    listening.kill();
    Ok(())
}

async fn run_agent(world: &Arc<World>, node: &Node, life: u64) -> Ended {
    let number = node.name.rsplit(' ').next().unwrap_or_default();
    let socket = world.folder.join(format!("{number}-{life}.sock"));
    let listener = UnixListener::bind(&socket).map_err(told)?;
    let carrying = tokio::spawn(carry_for(world.clone(), node.name.as_str().into(), listener));
    let clock = Arc::new(WallClock::new(world.began));
    let skew_ms = world.draw(2 * CLOCK_JUMP_MS_MAX).cast_signed() - CLOCK_JUMP_MS_MAX.cast_signed();
    clock.set_offset_ms(skew_ms);
    let options = HttpSourceOptions {
        base_urls: (1..=SERVERS)
            .map(|port| format!("http://127.0.0.1:{port}"))
            .collect(),
        name: node.name.clone(),
        compress: Some(false),
        unix_socket: Some(socket.clone()),
        ..HttpSourceOptions::new("")
    };
    let rng = Box::new(SplitMix64::new(world.draw(u64::MAX)));
    let source = HttpSource::new(options, clock.clone(), rng).map_err(told)?;
    let settings = agent_settings(settings(), None);
    let worker = Worker::new(Arc::new(source), settings, Arc::new(NoObserver), clock);
    let ended = run_until_killed(world, node, worker).await;
    // The requests that the agent leaves behind never reach a server.
    carrying.abort();
    let _ = std::fs::remove_file(socket);
    ended
}

async fn run_worker(world: &Arc<World>, node: &Node) -> Ended {
    let store = FaultyStore::open(world, &node.name).map_err(told)?;
    node.set_store(Some(store.clone()));
    let new = NewWorker {
        name: node.name.clone(),
        host: "simulation".to_owned(),
        process_id: 1,
        process_started: String::new(),
        queues: Vec::new(),
        kinds: Vec::new(),
    };
    let source: Arc<dyn Source> = Arc::new(StoreSource::new(store.clone(), new, LEASE_LOST_AFTER_MS));
    let clock = world.wall_clock.clone();
    let worker = Worker::new(source, settings(), Arc::new(NoObserver), clock);
    let ended = run_until_killed(world, node, worker).await;
    node.set_store(None);
    store.kill();
    ended
}

async fn run_until_killed(world: &Arc<World>, node: &Node, mut worker: Worker) -> Ended {
    for kind in [PLAIN, LIMITED] {
        worker.handle(kind, handler(world.clone()));
    }
    worker.handle(FLOW, flows::handler(world.clone()));
    tokio::select! {
        biased;
        () = node.killed.notified() => Ok(()),
        ended = worker.run() => ended.map(|_| ()).map_err(told),
    }
}

fn settings() -> WorkerSettings {
    WorkerSettings {
        concurrency: 3,
        micro_batch_jobs_max: 20,
        poll_every: Duration::from_millis(500),
        ..WorkerSettings::default()
    }
}

/// The work of a job.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Payload {
    /// The duration of the job, in milliseconds.
    pub takes_ms: u64,
    /// The number of attempts that fail.
    pub fails: u32,
}

/// A handler with a different value for each execution.
fn handler(world: Arc<World>) -> Arc<dyn Handler> {
    job_handler(move |job: Job<Payload>| {
        let world = world.clone();
        async move {
            tokio::time::sleep(Duration::from_millis(job.payload.takes_ms)).await;
            if job.attempt <= job.payload.fails {
                return Err(JobError::new("Told", "the payload asks for a failure"));
            }
            Ok(world.draw(u64::MAX))
        }
    })
}
