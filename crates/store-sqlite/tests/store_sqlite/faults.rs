//! Faults around a SQLite store: crashes, full disks, other programs, other processes.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gristmill_model::{
    Backoff, BatchId, Clock, JobState, NewBatch, PackedArray, RetryPolicy, Rng, SystemClock, Timestamp,
};
use gristmill_store::{JobFilter, PruneOptions, Store, StoreError};
use gristmill_store_conformance::fixture::*;
use gristmill_store_sqlite::{SqliteOptions, SqliteStore};
use rusqlite::Connection;

/// The environment variable with the role of a child process, and its file.
const ROLE: &str = "GRISTMILL_TEST_ROLE";
const FILE: &str = "GRISTMILL_TEST_FILE";

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn options() -> SqliteOptions {
    SqliteOptions::new(Arc::new(SystemClock), 1)
}

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, options()).unwrap()
}

/// A batch of one job with a payload of this many bytes.
fn heavy(bytes: usize) -> NewBatch {
    let payload = format!("[\"{}\"]", "x".repeat(bytes));
    NewBatch::new(KIND, PackedArray::parse(&payload).unwrap())
}

fn check_integrity(path: &Path) {
    let connection = Connection::open(path).unwrap();
    let verdict: String = connection
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(verdict, "ok");
}

/// This test binary, which plays `role` on `file` when it is started.
fn child(role: &str, file: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "--exact",
        "faults::plays_the_child",
        "--nocapture",
        "--test-threads=1",
    ]);
    command.env(ROLE, role).env(FILE, file).stdout(Stdio::piped());
    command
}

/// Runs a child whose files may have this many blocks of 512 bytes. A write beyond them fails instead of killing it.
fn run_with_file_blocks_max(child: &Command, blocks_max: u32) -> Output {
    let mut shell = Command::new("sh");
    shell
        .arg("-c")
        .arg(format!(
            "trap '' XFSZ; ulimit -f {blocks_max}; exec \"$0\" \"$@\""
        ))
        .arg(child.get_program())
        .args(child.get_args())
        .envs(child.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .stdout(Stdio::piped());
    shell.output().unwrap()
}

/// Wherever the making of a store is interrupted, the next process that opens it completes it.
#[test]
fn a_store_that_was_not_made_to_the_end_is_made_later() {
    let folder = folder();
    let (mut cut_short, mut made) = (0, 0);
    for blocks_max in (1..).map(|step| step * 32) {
        let file = folder.path().join(format!("{blocks_max}.db"));
        let output = run_with_file_blocks_max(&child("reader", &file), blocks_max);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        drop(open(&file));
        check_integrity(&file);
        if text.lines().any(|line| line == "opened") {
            made += 1
        } else {
            cut_short += 1
        }
        if made == 3 {
            break;
        }
    }
    println!("cut short {cut_short} times, and made later each time");
    assert!(cut_short >= 10, "{cut_short}");
}

/// Not a test of its own: it runs in child processes. Without a role it does nothing.
#[tokio::test]
async fn plays_the_child() {
    let (Ok(role), Some(file)) = (std::env::var(ROLE), std::env::var_os(FILE)) else {
        return;
    };
    let file = PathBuf::from(file);
    match role.as_str() {
        "writer" => write_for_ever(&file).await,
        "limited" => write_to_the_limit(&file).await,
        "reader" => match SqliteStore::open(&file, options()) {
            Ok(_) => println!("\nopened"),
            Err(error) => println!("\nrefused: {error}"),
        },
        other => panic!("no such role: {other}"),
    }
}

/// Submits, claims and completes, and prints what is acknowledged.
async fn write_for_ever(file: &Path) {
    let store = open(file);
    let worker = worker(&store).await;
    loop {
        let id = submit(&store, batch(20)).await;
        println!("\nsubmitted {id}");
        let single = store.submit_one(batch(1)).await.unwrap();
        println!("\nsubmitted {}", single.batch);
        let lease = claim(&store, worker, 7).await.unwrap();
        for slice in &lease.slices {
            exchange(&store, worker, vec![completed(slice)], None).await;
            for position in slice.positions.iter() {
                println!("\ncompleted {}", job(slice.batch, position));
            }
        }
    }
}

#[tokio::test]
async fn what_is_acknowledged_survives_a_kill() {
    let folder = folder();
    let file = folder.path().join("killed.db");
    let mut jobs = 0;
    for round in 0..10 {
        let mut child = child("writer", &file).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut acknowledged = Vec::new();
        for line in lines.by_ref().take(60 + 37 * round) {
            acknowledged.push(line.unwrap());
        }
        child.kill().unwrap();
        // Everything that it printed before it died is acknowledged, too; the last line may be cut.
        let rest: Vec<String> = lines.map_while(Result::ok).collect();
        acknowledged.extend(rest.into_iter().rev().skip(1));
        child.wait().unwrap();

        let store = open(&file);
        for line in &acknowledged {
            if let Some(id) = line.strip_prefix("submitted ") {
                let id = BatchId(id.parse().unwrap());
                assert!(store.outcomes(id).await.unwrap().is_some(), "{line}");
            } else if let Some(id) = line.strip_prefix("completed ") {
                let details = store.job(id.parse().unwrap()).await.unwrap().unwrap();
                assert_eq!(details.row.state, JobState::Completed, "{line}");
                assert_eq!(details.value.unwrap().get(), details.payload.get());
                jobs += 1;
            }
        }
        // The dead process's leases are rescued, and nothing is lost or doubled.
        let dead = store.workers().await.unwrap().iter().map(|row| row.id).collect();
        store.rescue(Timestamp(0), dead).await.unwrap();
        let counts = store.counts(&JobFilter::default()).await.unwrap();
        assert_eq!(counts.running, 0);
        store.close().await.unwrap();
        check_integrity(&file);
    }
    assert!(jobs > 100, "{jobs} jobs were completed");
}

/// Under a limit of the file's size, as on a full disk, COMMIT itself fails, because that is when pages are written.
async fn write_to_the_limit(file: &Path) {
    let store = open(file);
    let mut acknowledged = 0;
    let error = loop {
        match store.submit(vec![heavy(20_000)], None).await {
            Ok(_) => acknowledged += 1,
            Err(error) => break error,
        }
    };
    println!("\nerror {error}");
    // Several at once: each gets an answer of its own.
    let submits = (0..20).map(|_| store.submit(vec![heavy(20_000)], None));
    let answers = futures::future::join_all(submits).await;
    acknowledged += answers.iter().filter(|answer| answer.is_ok()).count();
    let failed = answers.iter().filter(|answer| answer.is_err()).count();
    assert!(failed > 0);
    let counts = store.counts(&JobFilter::default()).await.unwrap();
    assert_eq!(
        counts.waiting, acknowledged as u64,
        "queries go on, and what failed is not there"
    );
    println!("\nacknowledged {acknowledged}");
}

#[tokio::test]
async fn a_failed_commit_is_answered_and_nothing_is_lost() {
    let folder = folder();
    let file = folder.path().join("limited.db");
    drop(open(&file));
    let output = run_with_file_blocks_max(&child("limited", &file), 2_000);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    let acknowledged = text
        .lines()
        .find_map(|line| line.strip_prefix("acknowledged "))
        .unwrap();
    let store = open(&file);
    let counts = store.counts(&JobFilter::default()).await.unwrap();
    assert_eq!(counts.total().to_string(), acknowledged);
    submit(&store, heavy(20_000)).await;
    store.close().await.unwrap();
    check_integrity(&file);
}

#[tokio::test]
async fn a_full_disk_is_said_and_survived() {
    let folder = folder();
    let file = folder.path().join("full.db");
    let mut limited = options();
    limited.size_bytes_max = Some(1 << 20);
    let store = SqliteStore::open(&file, limited).unwrap();
    let worker = worker(&store).await;
    store.submit(vec![heavy(50_000); 3], None).await.unwrap();
    let lease = claim(&store, worker, 3).await.unwrap();
    exchange(&store, worker, lease.slices.iter().map(completed).collect(), None).await;
    let mut stored = 0;
    let error = loop {
        match store.submit(vec![heavy(50_000)], None).await {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StoreError::DiskFull { .. }), "{error:?}");
    assert!(stored > 3);
    // Of many at once, those that fit are stored, and the others get their own errors.
    let submits = (0..60).map(|number| {
        let bytes = if number % 3 == 0 { 50_000 } else { 10 };
        store.submit(vec![heavy(bytes)], None)
    });
    let answers = futures::future::join_all(submits).await;
    for (number, answer) in answers.iter().enumerate() {
        match answer {
            Ok(_) => assert_ne!(number % 3, 0),
            Err(error) => assert!(matches!(error, StoreError::DiskFull { .. }), "{error:?}"),
        }
    }
    let small = answers.iter().filter(|answer| answer.is_ok()).count();
    assert!(small > 0, "what fits is stored");
    let counts = store.counts(&JobFilter::default()).await.unwrap();
    assert_eq!(counts.waiting, stored + small as u64);
    // No transaction was left open, because another connection can write.
    let other = Connection::open(&file).unwrap();
    other.execute_batch("BEGIN IMMEDIATE; ROLLBACK").unwrap();

    // With space again, it continues.
    let all = PruneOptions {
        finished_before: SystemClock.now().plus_ms(1_000),
        keep_batches: 0,
        dead_too: true,
        dry_run: false,
    };
    assert_eq!(store.prune(all).await.unwrap().batches, 3);
    submit(&store, heavy(50_000)).await;
    store.close().await.unwrap();
    check_integrity(&file);
}

fn refusal(path: &Path, options: SqliteOptions) -> StoreError {
    SqliteStore::open(path, options).unwrap_err()
}

/// A new store on which somebody else has run `sql`.
fn altered(file: &Path, sql: &str) {
    drop(open(file));
    let connection = Connection::open(file).unwrap();
    connection.execute(sql, []).unwrap();
}

#[test]
fn a_newer_schema_is_refused() {
    let folder = folder();
    let file = folder.path().join("newer.db");
    altered(&file, "UPDATE layout SET version = 999, program = '9.1.0'");
    let before = std::fs::read(&file).unwrap();
    let error = refusal(&file, options());
    assert!(
        matches!(
            error,
            StoreError::NewerSchema { found: 999, known, .. } if known < 999
        ),
        "{error:?}"
    );
    assert!(
        error
            .to_string()
            .contains("newer.db has schema version 999 of gristmill 9.1.0"),
        "{error}"
    );
    assert_eq!(std::fs::read(&file).unwrap(), before, "nothing was written to it");
}

#[test]
fn a_layout_of_a_development_version_is_refused() {
    let folder = folder();
    let file = folder.path().join("early.db");
    let connection = Connection::open(&file).unwrap();
    let id = gristmill_store_sqlite::APPLICATION_ID;
    connection
        .execute_batch(&format!(
            "PRAGMA application_id = {id}; CREATE TABLE refinery_schema_history (version INTEGER)"
        ))
        .unwrap();
    drop(connection);
    let before = std::fs::read(&file).unwrap();
    let error = refusal(&file, options());
    assert!(matches!(error, StoreError::Development { .. }), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains("early.db") && text.contains("finish its jobs with that version"),
        "{text}"
    );
    assert_eq!(std::fs::read(&file).unwrap(), before, "nothing was written to it");
}

/// A process that keeps running after a newer one has changed the layout writes nothing more, and says why.
#[tokio::test]
async fn a_changed_layout_stops_the_processes_that_are_at_work() {
    let folder = folder();
    let file = folder.path().join("migrated.db");
    let store = open(&file);
    submit(&store, batch(2)).await;
    let newer = Connection::open(&file).unwrap();
    newer
        .execute("UPDATE layout SET version = version + 1", [])
        .unwrap();
    for _ in 0..2 {
        let error = store.submit(vec![batch(1)], None).await.unwrap_err();
        assert!(matches!(error, StoreError::LayoutChanged { .. }), "{error:?}");
        let text = error.to_string();
        assert!(
            text.contains("migrated.db") && text.contains("start that version"),
            "{text}"
        );
    }
    let batches: i64 = newer
        .query_row("SELECT count(*) FROM batch", [], |row| row.get(0))
        .unwrap();
    assert_eq!(batches, 1, "nothing was stored since");
}

/// Views of an earlier release are replaced, and events continue if somebody listens.
#[tokio::test]
async fn changed_views_and_triggers_are_replaced_at_open() {
    let folder = folder();
    for listens in [false, true] {
        let file = folder.path().join(format!("{listens}.db"));
        let store = open(&file);
        submit(&store, batch(2)).await;
        if listens {
            store.listen().await.unwrap();
        }
        store.close().await.unwrap();
        let connection = Connection::open(&file).unwrap();
        connection
            .execute_batch(
                "DROP VIEW job; CREATE VIEW job AS SELECT 'old' AS id; DROP TRIGGER IF EXISTS event_of_batch;
                 UPDATE layout SET code = 'that of an earlier release'",
            )
            .unwrap();
        let store = open(&file);
        submit(&store, batch(1)).await;
        let jobs: String = connection
            .query_row("SELECT group_concat(id) FROM job", [], |row| row.get(0))
            .unwrap();
        assert_eq!(jobs, "1:0,1:1,2:0");
        let events: i64 = connection
            .query_row("SELECT count(*) FROM event WHERE batch_id = 2", [], |row| {
                row.get(0)
            })
            .unwrap();
        assert_eq!(events, i64::from(listens));
    }
}

#[test]
fn a_schema_that_cannot_be_brought_up_to_date_is_told_in_one_line() {
    let folder = folder();
    let file = folder.path().join("damaged.db");
    let nothing = gristmill_store::layout::Layout {
        tables: &[],
        code: &[],
    };
    altered(
        &file,
        &format!(
            "UPDATE layout SET version = 0, tables = '{}'",
            nothing.tables_digest()
        ),
    );
    let error = refusal(&file, options()).to_string();
    assert!(error.contains("damaged.db"), "{error}");
    assert!(
        error.contains("could not be brought from version 0 to 1"),
        "{error}"
    );
    assert!(error.ends_with("already exists"), "{error}");
    assert!(!error.contains('\n'), "{error}");
}

#[test]
fn other_files_are_refused_and_left_alone() {
    let folder = folder();
    let file = folder.path().join("foreign.db");
    let connection = Connection::open(&file).unwrap();
    connection
        .execute_batch("CREATE TABLE address (name TEXT)")
        .unwrap();
    drop(connection);
    let before = std::fs::read(&file).unwrap();
    let error = refusal(&file, options());
    assert!(
        matches!(
            error,
            StoreError::NotAStore {
                application_id: 0,
                ..
            }
        ),
        "{error:?}"
    );
    assert_eq!(std::fs::read(&file).unwrap(), before, "nothing was written to it");

    let marked = folder.path().join("marked.db");
    Connection::open(&marked)
        .unwrap()
        .pragma_update(None, "application_id", 42)
        .unwrap();
    let error = refusal(&marked, options());
    assert!(
        matches!(
            error,
            StoreError::NotAStore {
                application_id: 42,
                ..
            }
        ),
        "{error:?}"
    );

    let copy = folder.path().join("copy.db");
    drop(SqliteStore::open(&copy, options()).unwrap());
    Connection::open(&copy)
        .unwrap()
        .pragma_update(None, "application_id", 0)
        .unwrap();
    let error = refusal(&copy, options());
    assert!(matches!(error, StoreError::CopyWithoutMark { .. }), "{error:?}");
    assert!(
        error.to_string().contains("PRAGMA application_id=1196576076"),
        "{error}"
    );

    let text = folder.path().join("notes.txt");
    std::fs::write(
        &text,
        "These are notes, and long enough to be looked at as a header of a database. ".repeat(9),
    )
    .unwrap();
    let error = refusal(&text, options());
    assert!(matches!(error, StoreError::Open { .. }), "{error:?}");
    assert!(error.to_string().contains("not a SQLite database"), "{error}");
    assert!(matches!(
        refusal(folder.path(), options()),
        StoreError::Open { .. }
    ));
    let missing = folder.path().join("missing.db");
    let mut existing_only = options();
    existing_only.create = false;
    assert!(matches!(
        refusal(&missing, existing_only),
        StoreError::Open { .. }
    ));
    assert!(!missing.exists());
    assert!(matches!(
        refusal(&folder.path().join("no/folder/x.db"), options()),
        StoreError::Open { .. }
    ));
}

#[test]
fn an_empty_file_becomes_a_store() {
    let folder = folder();
    let file = folder.path().join("empty.db");
    std::fs::write(&file, "").unwrap();
    drop(open(&file));
    let connection = Connection::open(&file).unwrap();
    let id: i64 = connection
        .query_row("PRAGMA application_id", [], |row| row.get(0))
        .unwrap();
    assert_eq!(id, gristmill_store_sqlite::APPLICATION_ID);
}

/// Root may write to everything, so the child does not run as root even if the tests do.
#[cfg(unix)]
#[test]
fn a_read_only_store_is_refused() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65_534;
    let folder = folder();
    let file = folder.path().join("read-only.db");
    drop(open(&file));
    let permit = |path: &Path, mode: u32| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    // Other users may not be able to read the build folder.
    let binary = folder.path().join("child");
    std::fs::copy(std::env::current_exe().unwrap(), &binary).unwrap();
    permit(&binary, 0o755);
    permit(&file, 0o444);
    permit(folder.path(), 0o555);
    let like = child("reader", &file);
    let mut command = Command::new(&binary);
    command.args(like.get_args());
    command.envs(like.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.current_dir("/");
    if std::fs::metadata(&file).unwrap().uid() == 0 {
        command.uid(NOBODY).gid(NOBODY);
    }
    let output = command.output();
    permit(folder.path(), 0o755);
    let text = String::from_utf8_lossy(&output.unwrap().stdout).into_owned();
    let refused = text.lines().find(|line| line.starts_with("refused: "));
    assert!(
        refused.is_some_and(|line| line.contains("read-only.db cannot be written")),
        "{text}"
    );
}

#[tokio::test]
async fn another_writer_is_waited_for_and_then_named() {
    let folder = folder();
    let file = folder.path().join("locked.db");
    let mut impatient = options();
    impatient.busy_timeout_ms = 30;
    let store = SqliteStore::open(&file, impatient).unwrap();
    let id = submit(&store, batch(1)).await;
    let other = Connection::open(&file).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let refused = store.submit(vec![batch(1)], None).await;
    assert!(
        matches!(refused, Err(StoreError::Locked { waited_ms: 30, .. })),
        "{refused:?}"
    );
    assert!(!store.is_finished(id).await.unwrap(), "queries go on meanwhile");
    other.execute_batch("ROLLBACK").unwrap();
    submit(&store, batch(1)).await;
    assert_eq!(store.counts(&JobFilter::default()).await.unwrap().waiting, 2);
}

#[test]
fn a_new_store_is_made_once_however_many_open_it() {
    for _ in 0..10 {
        let folder = folder();
        let file = folder.path().join("shared.db");
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| drop(open(&file)));
            }
        });
        check_integrity(&file);
    }
}

/// A source of randomness that panics while it is armed.
#[derive(Debug, Clone, Default)]
struct Bomb(Arc<(AtomicBool, AtomicU64)>);

impl Bomb {
    fn arm(&self, is_armed: bool) {
        self.0.0.store(is_armed, Ordering::SeqCst);
    }
}

impl Rng for Bomb {
    fn next_u64(&mut self) -> u64 {
        assert!(!self.0.0.load(Ordering::SeqCst), "the bomb went off");
        self.0.1.fetch_add(1, Ordering::SeqCst)
    }
}

/// An operation that panics while it writes is rolled back, and the others in the same transaction are committed.
#[tokio::test]
async fn a_panic_is_rolled_back_alone() {
    let folder = folder();
    let file = folder.path().join("panic.db");
    let bomb = Bomb::default();
    let mut explosive = options();
    explosive.rng = Box::new(bomb.clone());
    let store = SqliteStore::open(&file, explosive).unwrap();
    let mut new = batch(3);
    new.options.retry = RetryPolicy {
        attempts_max: 3,
        backoff: Backoff::Jitter,
        delay_ms: 0,
        delay_ms_max: 0,
    };
    let id = submit(&store, new).await;
    let worker = worker(&store).await;
    let lease = claim(&store, worker, 3).await.unwrap();
    let mut report = failed_at(&lease.slices[0], &positions("1"), &error());
    report.completed = completed_at(&lease.slices[0], &positions("0")).completed;

    bomb.arm(true);
    // Another connection blocks the writer until all have gathered.
    let other = Connection::open(&file).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let panics = async { store.exchange(worker, vec![report.clone()], None).await };
    let submits = futures::future::join_all((0..10).map(|_| store.submit(vec![batch(2)], None)));
    let singles = futures::future::join_all((0..10).map(|_| store.submit_one(batch(1))));
    let release = async { other.execute_batch("ROLLBACK").unwrap() };
    let (first, panicked, submitted, single, ()) = futures::join!(
        store.submit(vec![batch(1)], None),
        panics,
        submits,
        singles,
        release
    );
    first.unwrap();
    assert!(
        matches!(panicked, Err(StoreError::Panicked(ref text)) if text.contains("bomb")),
        "{panicked:?}"
    );
    let ids: std::collections::BTreeSet<BatchId> = submitted
        .into_iter()
        .map(Result::unwrap)
        .map(|ids| ids[0])
        .collect();
    assert_eq!(ids.len(), 10);
    assert!(single.iter().all(Result::is_ok), "{single:?}");
    assert_eq!(
        store.outcomes(id).await.unwrap().unwrap().ended(),
        0,
        "nothing of it is left"
    );
    bomb.arm(false);
    // The lease is still held, and its report is accepted once nothing panics.
    let receipts = exchange(&store, worker, vec![report], None).await.receipts;
    assert_eq!(receipts[0].accepted, positions("0-1"));
    let counts = store.counts(&JobFilter::default()).await.unwrap();
    assert_eq!(counts.total(), 3 + 1 + 20 + 10);
}

/// Dropping the handle writes all queued operations.
#[tokio::test]
async fn dropping_the_store_writes_what_is_queued() {
    let folder = folder();
    let file = folder.path().join("dropped.db");
    let store = Arc::new(open(&file));
    let submits: Vec<_> = (0..50)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.submit(vec![batch(1)], None).await.map(|_| ()) })
        })
        .collect();
    for submit in submits {
        submit.await.unwrap().unwrap();
    }
    drop(store);
    let counts = open(&file).counts(&JobFilter::default()).await.unwrap();
    assert_eq!(counts.waiting, 50);
}
