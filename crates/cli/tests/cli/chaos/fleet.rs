//! Kills servers, agents, workers and the database at random times under load, behind a network that drops, delays and
//! repeats requests, and stops some processes past their leases. At the end each job has exactly one outcome.
//!
//! `STORE` names the stores (`sqlite,postgres` by default). `CYCLES` is the number of kills (6 by default, may be 0).
//! `KILL` names the targets (`server,agent,worker,database` by default; `pooler` kills the pooler, and `link` silences
//! the connections to PostgreSQL). `SEED` is the start of the random numbers. `LEASE` is the time for which a silent
//! worker keeps its jobs (2s by default, so that the default tests are quick). With `GROUPS`, the store knows this many
//! groups, and each batch belongs to one of them. With `FLOWS=1`, each job is a flow of several steps. With
//! `POOLER=transaction`, `session` or `pgpool`, PostgreSQL is behind this pooler, and with `LINK=1` behind a link that
//! delivers in small pieces.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use gristmill_model::{BatchId, JobState, NewBatch, PackedArray, Rng, SplitMix64, Timestamp};
use gristmill_private_postgres::{PoolerKind, Silence};
use gristmill_store::{Change, JobFilter, PruneOptions, Selection, Store, StoredReport};
use gristmill_test_tools::lossy_proxy::lossy_proxy;
use serde_json::Value;

use crate::chaos::load::{self, FLOW, Load, SCRIPT, until_all_ended};
use crate::chaos::store_under_test::StoreUnderTest;
use crate::processes::{PATIENCE, Process, Server};
use crate::workspace::Workspace;

/// A process is killed within this time after the last one came back.
const KILLED_WITHIN: Duration = Duration::from_millis(500);

/// An orphan runs again within this time after its worker's last sign of life, if the lease is the default.
const ORPHANS_RUN_WITHIN: Duration = Duration::from_secs(20);

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number"))
    })
}

/// Reports whether each job is a flow.
fn are_flows() -> bool {
    number("FLOWS", 0) != 0
}

/// Reports whether a lease was given. Times matter only then; without one, this is a test among others.
fn is_long_check() -> bool {
    std::env::var_os("LEASE").is_some()
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_leave_one_outcome_of_each_job_on_sqlite() {
    kill_and_stop("sqlite").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_leave_one_outcome_of_each_job_on_postgres() {
    kill_and_stop("postgres").await;
}

async fn kill_and_stop(store: &str) {
    if std::env::var("STORE").is_ok_and(|stores| stores.split(',').all(|name| name != store)) {
        return;
    }
    // An error means that the process already has a provider, which also works.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let lease = std::env::var("LEASE").unwrap_or_else(|_| "2s".to_owned());
    let (cycles, seed) = (number("CYCLES", 6), number("SEED", 1));
    let groups = number("GROUPS", 0);
    let victims = std::env::var("KILL").map_or(Kind::ALL.to_vec(), |names| {
        names.split(',').map(Kind::named).collect()
    });
    for kind in [Kind::Agent, Kind::Worker] {
        stop_past_the_lease(store, &lease, kind).await;
    }
    if cycles > 0 {
        kill_under_load(store, &lease, &victims, (cycles, groups), seed).await;
    }
}

/// The kinds of processes to kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Server,
    Agent,
    Worker,
    Database,
    /// The pooler before the database.
    Pooler,
    /// The connections to the database, which go silent.
    Link,
}

impl Kind {
    const ALL: [Kind; 4] = [Kind::Server, Kind::Agent, Kind::Worker, Kind::Database];

    fn named(name: &str) -> Kind {
        match name {
            "server" => Kind::Server,
            "agent" => Kind::Agent,
            "worker" => Kind::Worker,
            "database" => Kind::Database,
            "pooler" => Kind::Pooler,
            "link" => Kind::Link,
            other => panic!(
                "KILL={other} cannot be killed; there are `server`, `agent`, `worker`, `database`, `pooler` and `link`"
            ),
        }
    }
}

/// The store with this name, behind the pooler and link of the environment.
fn store_under_test(name: &str) -> StoreUnderTest {
    let mut store = StoreUnderTest::new(name);
    if let Ok(pooler) = std::env::var("POOLER") {
        let kind = PoolerKind::of(&pooler);
        let kind = kind
            .unwrap_or_else(|| panic!("POOLER={pooler} is no pooler: `transaction`, `session`, `pgpool`"));
        store = store.behind_pooler(kind);
    }
    match number("LINK", 0) {
        0 => store,
        seed => store.behind_link(seed),
    }
}

/// Processes on one store.
struct Fleet {
    workspace: Workspace,
    store: StoreUnderTest,
    lease: String,
    /// The script of agents and workers.
    script: &'static str,
    addresses: Vec<SocketAddr>,
    servers: Vec<Server>,
    /// The agents, each with the URL of its server.
    agents: Vec<(String, Process)>,
    workers: Vec<Process>,
    killed: BTreeMap<Kind, u32>,
}

impl Fleet {
    fn new(store: &str, lease: &str) -> Fleet {
        let mut fleet = Fleet {
            workspace: Workspace::new(),
            store: store_under_test(store),
            lease: lease.to_owned(),
            script: if are_flows() { "flow.py" } else { "double.py" },
            addresses: Vec::new(),
            servers: Vec::new(),
            agents: Vec::new(),
            workers: Vec::new(),
            killed: BTreeMap::new(),
        };
        fleet.workspace.write("double.py", SCRIPT);
        fleet.workspace.write("flow.py", FLOW);
        for _ in 0..fleet.store.processes() {
            let server = Server::start(fleet.serve("127.0.0.1:0"));
            fleet.addresses.push(server.address());
            fleet.servers.push(server);
        }
        fleet
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = self.workspace.command(arguments);
        command.env("GRISTMILL_LEASE", &self.lease);
        command
    }

    fn serve(&self, listen: &str) -> Command {
        let mut command = self.command(&format!("serve --listen {listen}"));
        command.env("GRISTMILL_STORE", self.store.location());
        command
    }

    fn agent(&self, url: &str, script: &str) -> Process {
        let command =
            format!("agent {script} --kind double --batch 500 -j 2 --quiet --json --base-url {url}");
        Process::start(self.command(&command))
    }

    fn worker(&self, script: &str) -> Process {
        let mut command = self.command(&format!("worker {script} --kind double -j 2 --quiet --json"));
        command.env("GRISTMILL_STORE", self.store.location());
        Process::start(command)
    }

    fn url(&self, server: usize) -> String {
        format!("http://{}", self.addresses[server])
    }

    /// The number of stored jobs of the first batch that the worker of this process has completed.
    async fn completed_by(&self, process: u32) -> u64 {
        let store = self.store.open(&self.workspace).await;
        let outcomes = store.outcomes(BatchId(1)).await.unwrap().expect("a batch");
        let ending = format!("-{process}");
        let is_its = |report: &&StoredReport| {
            report.state == JobState::Completed
                && report.worker.as_ref().is_some_and(|name| name.ends_with(&ending))
        };
        let reports = outcomes.reports.iter().filter(is_its);
        reports.map(|report| u64::from(report.positions.len())).sum()
    }

    /// Waits until this many jobs have completed. If they do not, reports the server's answer and the state of the store.
    async fn until_completed(&self, results_url: &str, jobs: usize) {
        let begun = Instant::now();
        loop {
            let answer = load::fetch(&reqwest::Client::new(), results_url).await;
            if matches!(&answer, Ok(text) if text.matches("\"completed\"").count() == jobs) {
                return;
            }
            if begun.elapsed() < PATIENCE {
                continue;
            }
            self.fail(&format!("the jobs do not complete. Results: {answer:?}"))
                .await;
        }
    }

    /// Fails with the state of the store, the activity of its sessions and the messages of the processes.
    async fn fail(&self, reason: &str) -> ! {
        let store = self.store.open(&self.workspace).await;
        let (counts, workers) = (store.counts(&JobFilter::default()).await, store.workers().await);
        let servers = self.servers.iter().map(|server| &server.process);
        let processes = servers
            .chain(self.agents.iter().map(|(_, agent)| agent))
            .chain(&self.workers);
        let said: Vec<String> = processes
            .map(|process| format!("{}: {:#?}", process.id(), process.said()))
            .collect();
        panic!(
            "{reason}\n{counts:?}\n{workers:?}\n{}\n{}",
            self.store.sessions(),
            said.join("\n")
        );
    }

    fn all(&mut self) -> Vec<(Kind, usize)> {
        let each = |kind, count| (0..count).map(move |index| (kind, index));
        each(Kind::Server, self.servers.len())
            .chain(each(Kind::Agent, self.agents.len()))
            .chain(each(Kind::Worker, self.workers.len()))
            .chain(each(Kind::Database, self.store.server().into_iter().count()))
            .chain(each(Kind::Pooler, self.store.pooler().into_iter().count()))
            .chain(each(Kind::Link, self.store.link().into_iter().count()))
            .collect()
    }

    /// Kills a process, which must be running, and starts it again.
    fn kill(&mut self, kind: Kind, index: usize) {
        let ended = match kind {
            Kind::Server => {
                let ended = self.servers.remove(index).process.kill();
                let server = self.serve_again(self.addresses[index]);
                self.servers.insert(index, server);
                ended
            }
            Kind::Agent => {
                let (url, agent) = self.agents.remove(index);
                let ended = agent.kill();
                let again = self.agent(&url, self.script);
                self.agents.insert(index, (url, again));
                ended
            }
            Kind::Worker => {
                let ended = self.workers.remove(index).kill();
                self.workers.insert(index, self.worker(self.script));
                ended
            }
            Kind::Database => {
                let server = self.store.server().expect("it has one");
                server
                    .stop_immediately()
                    .unwrap_or_else(|error| panic!("{error}"));
                server.start_again().unwrap_or_else(|error| panic!("{error}"));
                None
            }
            Kind::Pooler => {
                let pooler = self.store.pooler().expect("it has one");
                pooler
                    .kill_and_start_again()
                    .unwrap_or_else(|error| panic!("{error}"));
                None
            }
            Kind::Link => {
                let link = self.store.link().expect("it has one");
                link.silence_connections(Silence::Both);
                None
            }
        };
        if let Some(said) = ended {
            // The worker started while the database was restarting. A supervisor would start it again.
            let began_without = kind == Kind::Worker && said.contains("cannot be opened");
            assert!(began_without, "{kind:?} {index} had ended by itself: {said}");
        }
        *self.killed.entry(kind).or_default() += 1;
    }

    /// Starts a server at the same address, which the system may free only after a moment.
    fn serve_again(&self, address: SocketAddr) -> Server {
        let begun = Instant::now();
        loop {
            match Server::try_start(self.serve(&address.to_string())) {
                Ok(server) => return server,
                Err(said) => assert!(
                    said.contains("cannot listen") && begun.elapsed() < PATIENCE,
                    "the server ended: {said}"
                ),
            }
        }
    }
}

/// Makes a store create and forget this many groups. The load creates the groups of its batches again.
async fn make_groups(store: &dyn Store, groups: u64) {
    let payloads = PackedArray::parse("[0]").expect("JSON");
    let news = (0..groups).map(|group| {
        let mut new = NewBatch::new("double", payloads.clone());
        new.options.group = Some(format!("tenant {group}"));
        new
    });
    if groups > 0 {
        store.submit(news.collect(), None).await.expect("submitted");
        let all = Selection::Filter(JobFilter::default());
        store.change(all, Change::Cancel).await.expect("cancelled");
        let options = PruneOptions {
            finished_before: Timestamp(i64::MAX),
            keep_batches: 0,
            dead_too: true,
            dry_run: false,
        };
        store.prune(options).await.expect("pruned");
    }
}

async fn kill_under_load(
    store: &str,
    lease: &str,
    victims: &[Kind],
    (cycles, groups): (u64, u64),
    seed: u64,
) {
    let mut rng = SplitMix64::new(seed);
    let mut fleet = Fleet::new(store, lease);
    make_groups(&*fleet.store.open(&fleet.workspace).await, groups).await;
    // One agent has a reliable network, and two have an unreliable one.
    let mut urls = vec![fleet.url(0)];
    for number in 0..2 {
        urls.push(lossy_proxy(&fleet.addresses, seed * 10 + number).await);
    }
    for url in urls {
        let agent = fleet.agent(&url, fleet.script);
        fleet.agents.push((url, agent));
    }
    for _ in 0..fleet.store.processes() {
        fleet.workers.push(fleet.worker(fleet.script));
    }
    let urls = (0..fleet.servers.len()).map(|server| fleet.url(server));
    let callers = if are_flows() {
        load::FLOW_CALLERS
    } else {
        load::CALLERS
    };
    let mut load = Load::begin_in_groups(urls.collect(), groups, callers);
    // The channel has no sender of messages. It only measures the time.
    let (_clock, ticks) = mpsc::channel::<()>();
    let mut deck = Vec::new();
    for cycle in 1..=cycles {
        let delay = Duration::from_micros(rng.below(KILLED_WITHIN.as_micros() as u64));
        // Never kill while nothing runs: every process is back, and jobs run.
        let before = load.ended();
        if !load.until_ended(before + 1).await {
            fleet.fail("work does not go on").await;
        }
        if deck.is_empty() {
            deck = fleet.all();
            deck.retain(|(kind, _)| victims.contains(kind));
            assert!(!deck.is_empty(), "{store} has nothing of {victims:?}");
        }
        let (kind, index) = deck.swap_remove(rng.below(deck.len() as u64) as usize);
        fleet = tokio::task::block_in_place(|| {
            let _ = ticks.recv_timeout(delay);
            load.set_outage(kind == Kind::Database || (kind == Kind::Server && fleet.servers.len() == 1));
            fleet.kill(kind, index);
            load.set_outage(false);
            fleet
        });
        println!(
            "{store}: cycle {cycle} of {cycles}: {kind:?} {index} killed after {delay:.0?}, {} jobs done",
            (load.ended() - before) * load::BATCH,
        );
    }
    let submitted = load.end().await;
    let opened = fleet.store.open(&fleet.workspace).await;
    until_all_ended(&*opened, PATIENCE).await;
    // A flow whose step has failed is not tried again.
    let attempts: &[u32] = if are_flows() { &[1] } else { &load::ATTEMPTS };
    let ended = submitted.check(&*opened, attempts).await;
    tokio::task::block_in_place(|| end_in_order(&mut fleet));
    opened.close().await.unwrap();
    let again = fleet.store.open(&fleet.workspace).await;
    submitted.check(&*again, attempts).await;
    assert!(ended.jobs > 0 && ended.dead > 0);
    // A failure has panicked before this line.
    println!(
        "{store}: {cycles} cycles, 0 failed (SEED={seed}, killed {:?}): {} jobs have one outcome each, {} of them dead; \
         {} batches came without an acknowledgement",
        fleet.killed, ended.jobs, ended.dead, ended.unsure_arrived
    );
}

/// Checks that the other processes end cleanly despite the kills.
fn end_in_order(fleet: &mut Fleet) {
    for (_, agent) in fleet.agents.drain(..) {
        agent.stop();
    }
    for worker in fleet.workers.drain(..) {
        worker.signal("TERM");
        let (code, _, said) = worker.end();
        assert!(code == Some(143) || said.contains("cannot be opened"), "{said}");
    }
    for server in fleet.servers.drain(..) {
        server.stop();
    }
}

/// Stops a process in the middle of ten jobs until others have run them, and then lets it continue. Each job in its
/// report is refused.
async fn stop_past_the_lease(store: &str, lease: &str, kind: Kind) {
    let fleet = Fleet::new(store, lease);
    fleet.workspace.write_stopping_script(5);
    let payloads = "1 2 3 4 5 6 7 8 9 10";
    let mut submit = fleet.command(&format!("submit double {payloads}"));
    submit.env("GRISTMILL_STORE", fleet.store.location());
    assert!(submit.output().expect("the program starts").status.success());
    let stopped = match kind {
        Kind::Agent => fleet.agent(&fleet.url(0), "stopping.py"),
        _ => fleet.worker("stopping.py"),
    };
    fleet.workspace.read("reached");
    let begun = loop {
        stopped.signal("STOP");
        if fleet.store.is_writable(&fleet.workspace).await {
            break Instant::now();
        }
        // The process was stopped within a transaction. A file has only one writer at a time, who blocks all others.
        stopped.signal("CONT");
    };
    std::fs::remove_file(fleet.workspace.path("stop")).expect("the others do not stop");
    let other = fleet.agent(&fleet.url(0), "double.py");
    let finished = format!("{}/api/v1/results?batches=1&wait_ms=30000", fleet.url(0));
    fleet.until_completed(&finished, 10).await;
    let waited = begun.elapsed();
    assert!(
        !is_long_check() || waited < ORPHANS_RUN_WITHIN,
        "the orphans waited {waited:?}"
    );
    // The script answers while its worker is stopped, so that the outcomes are ready when the worker continues.
    fleet.workspace.write("go", "x");
    stopped.signal("CONT");
    let kept = fleet.completed_by(stopped.id()).await;
    let (late, other) = (ending(stopped), ending(other));
    let number = |totals: &Value, name: &str| totals[name].as_u64().expect("a number");
    // Outcomes that it reported before the stop stay its own.
    assert_eq!(kept + number(&other, "completed"), 10, "{kept} {late} {other}");
    let (completed, refused) = (number(&late, "completed"), number(&late, "refused"));
    // If an agent was stopped between its report and the answer, the answer is lost with its registration. The agent
    // sends the report again as another worker, and counts these outcomes as refused.
    let unanswered = kept.checked_sub(completed).expect("what it counts is stored");
    assert!(unanswered == 0 || kind == Kind::Agent, "{kept} {late}");
    assert!(
        (unanswered.max(1)..=10 - completed).contains(&refused),
        "{kept} {late} {other}"
    );
    println!(
        "{store}: {kind:?} stopped past its lease of {lease}: its jobs ran again after {waited:.1?}, \
         {refused} late outcomes were refused"
    );
}

/// Asks a worker to end, and returns its totals.
fn ending(process: Process) -> Value {
    let stdout = process.stop();
    serde_json::from_str(stdout.trim()).unwrap_or_else(|error| panic!("{stdout}: {error}"))
}
