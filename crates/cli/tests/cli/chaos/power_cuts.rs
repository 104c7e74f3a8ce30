//! Cuts the power of a machine with PostgreSQL under a fleet's load. QEMU logs each write and each flush of its disk.
//! At a cut, the disk keeps the flushed data and any part of the rest. Then the machine's file system and PostgreSQL
//! recover, and the store is compared with the data that was acknowledged before the cut.
//!
//! `CUTS` is the number of cuts (200 by default), and `SEED` the start of the random numbers. It needs root, to mount
//! disks.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use gristmill_model::{NewBatch, PackedBuilder, Rng as _, SplitMix64, Timestamp};
use gristmill_power_loss::{BlockDisk, BlockLog};
use gristmill_private_postgres::{PostgresError, PrivatePostgres};
use gristmill_store::Store;
use gristmill_store_postgres::{PostgresOptions, PostgresStore};

use crate::chaos::load::{self, Load, Submitted, until_all_ended};
use crate::chaos::recorded_device::{Mount, RecordedDevice, mount_point, run};
use crate::processes::{PATIENCE, Process, Server};
use crate::workspace::Workspace;

/// The number of cuts of one recording.
const CUTS_PER_RECORDING_MAX: u64 = 25;

/// The number of checkpoints of one recording. At a checkpoint the database writes pages of all its tables before it
/// flushes the disk.
const CHECKPOINTS: u64 = 5;

/// The number of batches that end between two checkpoints.
const BATCHES_BETWEEN: u64 = 12;

/// A machine's disk under load, and the acknowledged data.
struct Recording {
    workspace: Workspace,
    submitted: Submitted,
    /// The folder of the cluster.
    cluster: PathBuf,
    url: String,
    log: BlockLog,
    /// The numbers of disk requests at the start and at the end of the load.
    requests: (usize, usize),
}

/// A restarted machine.
struct Machine {
    // The fields are in the order in which a machine stops them.
    _database: PrivatePostgres,
    _mount: Mount,
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "mounts disks, as root: make power-cuts"]
async fn acknowledged_data_survives_a_cut_of_the_machines_power() {
    let (cuts, seed) = (number("CUTS", 200), number("SEED", 1));
    let mut rng = SplitMix64::new(seed);
    let (mut tried, mut with_unsynced, mut jobs) = (0, 0, 0);
    while tried < cuts {
        let recording = Recording::of_load("on").await;
        let mut disk = recording.disk();
        for requests in recording.draw_cuts(CUTS_PER_RECORDING_MAX.min(cuts - tried), &mut rng) {
            with_unsynced += u64::from(recording.make_image(&mut disk, requests, &mut rng) > 0);
            let known = recording.known_after(requests);
            let machine = recording.recover().unwrap_or_else(|error| panic!("{error}"));
            let loss = known.loss(&recording.open().await).await;
            assert_eq!(loss, None, "cut {tried} of SEED={seed}");
            jobs += recording.complete(&known).await;
            drop(machine);
            tried += 1;
            println!("cut {tried} of {cuts}: after {requests} requests of the disk");
        }
    }
    // A failure has panicked before this line.
    println!(
        "power cuts: {tried} cuts, {with_unsynced} of them with writes that were not flushed, 0 failed (SEED={seed}): {jobs} \
         jobs have one outcome each"
    );
    assert!(with_unsynced > cuts / 10, "hardly a cut leaves anything to lose");
}

/// Shows that the check can fail: a database without syncs loses acknowledged data, or does not start at all.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "mounts disks, as root: make power-cuts"]
async fn a_database_that_does_not_sync_is_detected() {
    let mut rng = SplitMix64::new(1);
    let recording = Recording::of_load("off").await;
    let mut disk = recording.disk();
    let mut lost = 0;
    for requests in recording.draw_cuts(10, &mut rng) {
        recording.make_image(&mut disk, requests, &mut rng);
        lost += u64::from(match recording.recover() {
            Err(_) => true,
            Ok(_machine) => {
                let store = recording.open().await;
                recording.known_after(requests).loss(&store).await.is_some()
            }
        });
    }
    println!("without a sync: {lost} of 10 cuts lose something");
    assert!(lost > 0, "nothing is lost without a sync");
}

impl Recording {
    /// Runs a server, an agent and a worker under load on a database whose disk is recorded.
    async fn of_load(fsync: &str) -> Recording {
        // An error means that the process already has a provider, which also works.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let workspace = Workspace::new();
        workspace.write("double.py", load::SCRIPT);
        let folder = workspace.path("");
        let device = RecordedDevice::mount(&folder);
        let settings = [("fsync", fsync), ("max_wal_size", "64MB"), ("wal_recycle", "off")];
        let postgres = PrivatePostgres::start_in(&mount_point(&folder), &settings);
        let postgres = postgres.unwrap_or_else(|error| panic!("{error}"));
        let url = postgres
            .create_database()
            .unwrap_or_else(|error| panic!("{error}"));
        let server = Server::start(with_store(&workspace, &url, "serve --listen 127.0.0.1:0"));
        let agent = format!(
            "agent double.py --kind double --batch 500 --quiet --base-url {}",
            server.url
        );
        let agent = Process::start(workspace.command(&agent));
        let worker = worker(&workspace, &url);
        run(Command::new("sync")
            .arg("--file-system")
            .arg(mount_point(&folder)));
        let log = workspace.path("log");
        let begun = length(&log);
        let load_log = log.clone();
        let mut load = Load::begin_recorded(vec![server.url.clone()], Arc::new(move || length(&load_log)));
        for checkpoint in 1..=CHECKPOINTS {
            assert!(
                load.until_ended(checkpoint * BATCHES_BETWEEN).await,
                "work goes on"
            );
            let done = tokio::task::block_in_place(|| postgres.psql("postgres", "CHECKPOINT"));
            done.unwrap_or_else(|error| panic!("{error}"));
        }
        let ended = length(&log);
        let submitted = load.end().await;
        agent.stop();
        worker.stop();
        server.stop();
        let cluster = postgres.directory().to_owned();
        drop(postgres);
        drop(device);
        let log = BlockLog::open(&log).expect("the log can be read");
        let requests = (log.entries_before(begun), log.entries_before(ended));
        Recording {
            workspace,
            submitted,
            cluster,
            url,
            log,
            requests,
        }
    }

    /// The acknowledged data at the time of this many disk requests.
    fn known_after(&self, requests: usize) -> Submitted {
        self.submitted.until(self.log.position(requests))
    }

    /// Draws cuts in the order of the log, which is read once.
    fn draw_cuts(&self, count: u64, rng: &mut SplitMix64) -> Vec<usize> {
        let mut cuts: Vec<usize> = (0..count)
            .map(|_| self.log.draw_cut(self.requests, rng))
            .collect();
        cuts.sort_unstable();
        cuts
    }

    /// The disk before its first request.
    fn disk(&self) -> BlockDisk<'_> {
        let image = File::create(self.workspace.path("flushed")).expect("a file can be made");
        image
            .set_len(length(&self.workspace.path("device")))
            .expect("a file can be sparse");
        BlockDisk::new(&self.log, image)
    }

    /// Writes to `cut` a possible content of the disk after this many requests. Returns the number of writes that were
    /// not flushed.
    fn make_image(&self, disk: &mut BlockDisk<'_>, requests: usize, rng: &mut SplitMix64) -> usize {
        disk.advance(requests).expect("the log can be read");
        let path = |name: &str| self.workspace.path(name);
        run(Command::new("cp")
            .arg("--sparse=always")
            .args([path("flushed"), path("cut")]));
        let copy = File::options()
            .write(true)
            .open(path("cut"))
            .expect("the image is there");
        disk.cut(&copy, &mut SplitMix64::new(rng.next_u64()))
            .expect("the image can be written")
    }

    /// Starts the machine again.
    fn recover(&self) -> Result<Machine, PostgresError> {
        let mount = Mount::of_image(&self.workspace.path(""), &self.workspace.path("cut"));
        let database = PrivatePostgres::start_after_crash(self.cluster.clone())?;
        Ok(Machine {
            _database: database,
            _mount: mount,
        })
    }

    async fn open(&self) -> PostgresStore {
        PostgresStore::open(&self.url, PostgresOptions::default())
            .await
            .unwrap()
    }

    /// Runs the remaining jobs. Each job then has one outcome, the store is sound, and the next batch gets an unused id.
    async fn complete(&self, known: &Submitted) -> u64 {
        let store = self.open().await;
        let before = store.workers().await.unwrap().iter().map(|row| row.id).collect();
        store.rescue(Timestamp(0), before).await.unwrap();
        let worker = worker(&self.workspace, &self.url);
        until_all_ended(&store, PATIENCE).await;
        drop(worker);
        let found = known.check(&store, &load::ATTEMPTS).await;
        self.workspace.run(&format!("check {}", self.url)).expect(0);
        let mut payloads = PackedBuilder::new();
        payloads.push("1").unwrap();
        let new = store
            .submit(vec![NewBatch::new("other", payloads.finish())], None)
            .await
            .unwrap();
        assert!(
            new[0].0 > known.batch_max(),
            "batch {} was acknowledged before",
            new[0].0
        );
        store.close().await.unwrap();
        found.jobs
    }
}

fn length(path: &Path) -> u64 {
    std::fs::metadata(path).expect("the file is there").len()
}

fn with_store(workspace: &Workspace, url: &str, arguments: &str) -> Command {
    let mut command = workspace.command(arguments);
    command.env("GRISTMILL_STORE", url);
    command
}

fn worker(workspace: &Workspace, url: &str) -> Process {
    Process::start(with_store(
        workspace,
        url,
        "worker double.py --kind double -j 2 --quiet",
    ))
}
