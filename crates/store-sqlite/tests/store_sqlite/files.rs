//! A store's files: their permissions, links to them, and changes of them while a store is open.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use gristmill_model::{NewBatch, PackedBuilder, SystemClock, Timestamp};
use gristmill_store::{CheckPlace, JobFilter, PruneOptions, Store, StoreError};
use gristmill_store_conformance::fixture::*;
use gristmill_store_sqlite::{Access, SqliteOptions, SqliteStore, SteadyClock};

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, SqliteOptions::new(Arc::new(SystemClock), 1)).unwrap()
}

fn read_only() -> SqliteOptions {
    SqliteOptions {
        access: Access::Read,
        create: false,
        ..SqliteOptions::new(Arc::new(SystemClock), 1)
    }
}

fn names_in(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

async fn jobs_in(store: &SqliteStore) -> Result<u64, StoreError> {
    Ok(store.counts(&JobFilter::default()).await?.total())
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Payloads may be confidential, so only the owner can read a new store, its log and the index of the log.
#[tokio::test]
async fn new_files_are_their_owners_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("jobs.db");
    let store = open(&file);
    submit(&store, batch(2)).await;
    assert_eq!(store.workers().await.unwrap().len(), 0, "a reader is open, too");
    let names = names_in(folder.path());
    assert_eq!(names, ["jobs.db", "jobs.db-shm", "jobs.db-wal"]);
    for name in names {
        assert_eq!(mode(&folder.path().join(&name)), 0o600, "{name}");
    }
}

/// Changed permissions of a store stay.
#[tokio::test]
async fn the_rights_of_a_file_stay() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("jobs.db");
    open(&file).close().await.unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
    let store = open(&file);
    submit(&store, batch(1)).await;
    assert_eq!(mode(&file), 0o640);
    assert_eq!(mode(&folder.path().join("jobs.db-wal")), 0o640);
}

/// A link leads to one store, whose files are beside the file and not beside the link.
#[tokio::test]
async fn a_store_behind_a_link_is_made_where_the_link_leads() {
    let folder = tempfile::tempdir().unwrap();
    let (links, data) = (folder.path().join("links"), folder.path().join("data"));
    std::fs::create_dir(&links).unwrap();
    std::fs::create_dir(&data).unwrap();
    std::os::unix::fs::symlink("second", links.join("first")).unwrap();
    std::os::unix::fs::symlink("../data/jobs.db", links.join("second")).unwrap();
    let store = open(&links.join("first"));
    submit(&store, batch(2)).await;
    assert_eq!(names_in(&links), ["first", "second"]);
    assert_eq!(names_in(&data), ["jobs.db", "jobs.db-shm", "jobs.db-wal"]);
    assert_eq!(mode(&data.join("jobs.db")), 0o600);
    assert_eq!(store.path(), links.join("../data/jobs.db"));

    let circle = links.join("circle");
    std::os::unix::fs::symlink("circle", &circle).unwrap();
    let error = SqliteStore::open(&circle, read_only()).unwrap_err().to_string();
    assert!(error.contains("links lead in a circle"), "{error}");
}

/// While others do not find the file, no operation is acknowledged and no query answered by it.
#[tokio::test]
async fn a_file_that_is_moved_or_replaced_is_noticed_at_once() {
    for suffix in ["", "-wal"] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("jobs.db");
        let store = open(&file);
        submit(&store, batch(2)).await;
        assert_eq!(jobs_in(&store).await.unwrap(), 2);
        let (at, elsewhere) = (
            folder.path().join(format!("jobs.db{suffix}")),
            folder.path().join("elsewhere"),
        );
        std::fs::rename(&at, &elsewhere).unwrap();
        for replaced in [false, true] {
            if replaced {
                std::fs::write(&at, "").unwrap();
            }
            let error = store.submit(vec![batch(1)], None).await.unwrap_err();
            let text = error.to_string();
            assert!(
                text.contains(&*at.to_string_lossy()) && text.contains("move it back"),
                "{text}"
            );
            assert!(matches!(error, StoreError::Moved { .. }), "{error:?}");
            let error = jobs_in(&store).await.unwrap_err();
            assert!(matches!(error, StoreError::Moved { .. }), "{error:?}");
        }
        std::fs::rename(&elsewhere, &at).unwrap();
        submit(&store, batch(1)).await;
    }
}

/// A check and other readers leave a folder unchanged.
#[tokio::test]
async fn reading_alone_makes_and_changes_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a jobs?#%.db");
    let store = open(&file);
    submit(&store, batch(2)).await;
    store.close().await.unwrap();
    let before = std::fs::read(&file).unwrap();
    let store = SqliteStore::open(&file, read_only()).unwrap();
    assert_eq!(jobs_in(&store).await.unwrap(), 2);
    let error = store.submit(vec![batch(1)], None).await.unwrap_err();
    assert!(matches!(error, StoreError::ReadOnly { .. }), "{error:?}");
    assert!(store.check(CheckPlace::File).await.unwrap().findings.is_empty());
    store.close().await.unwrap();
    assert_eq!(names_in(folder.path()), ["a jobs?#%.db"]);
    assert_eq!(std::fs::read(&file).unwrap(), before);

    let empty = folder.path().join("empty.db");
    std::fs::write(&empty, "").unwrap();
    for access in [Access::Read, Access::Write, Access::WriteWherePermitted] {
        let options = SqliteOptions {
            access,
            ..read_only()
        };
        let error = SqliteStore::open(&empty, options).unwrap_err().to_string();
        assert!(error.contains("it is empty"), "{error}");
    }
    assert_eq!(std::fs::read(&empty).unwrap().len(), 0);
}

/// Readers follow the store when another process begins to write to it.
#[tokio::test]
async fn a_reader_sees_what_others_write_later() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("jobs.db");
    open(&file).close().await.unwrap();
    let reader = SqliteStore::open(&file, read_only()).unwrap();
    assert_eq!(jobs_in(&reader).await.unwrap(), 0);
    let writer = open(&file);
    submit(&writer, batch(2)).await;
    assert_eq!(jobs_in(&reader).await.unwrap(), 2, "by way of the log");
    writer.close().await.unwrap();
    assert_eq!(jobs_in(&reader).await.unwrap(), 2, "without the log");
}

/// If a log with commits is missing, they are lost, and `check` says so.
#[tokio::test]
async fn a_check_finds_that_the_log_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let (file, copy) = (folder.path().join("jobs.db"), folder.path().join("copy.db"));
    let store = open(&file);
    submit(&store, batch(2)).await;
    std::fs::copy(&file, &copy).unwrap();
    std::fs::copy(
        folder.path().join("jobs.db-shm"),
        folder.path().join("copy.db-shm"),
    )
    .unwrap();
    std::fs::copy(
        folder.path().join("jobs.db-wal"),
        folder.path().join("copy.db-wal"),
    )
    .unwrap();
    let reader = SqliteStore::open(&copy, read_only()).unwrap();
    assert_eq!(reader.check(CheckPlace::File).await.unwrap().findings, []);
    drop(reader);
    let copy_index = || {
        std::fs::copy(
            folder.path().join("jobs.db-shm"),
            folder.path().join("copy.db-shm"),
        )
        .unwrap();
    };
    copy_index();
    std::fs::remove_file(folder.path().join("copy.db-wal")).unwrap();
    let error = SqliteStore::open(&copy, read_only()).unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
    assert!(error.to_string().contains("copy.db-wal is missing"), "{error}");

    // Earlier commits are in the file and readable.
    store.close().await.unwrap();
    let store = open(&file);
    submit(&store, batch(3)).await;
    std::fs::copy(&file, &copy).unwrap();
    copy_index();
    let reader = SqliteStore::open(&copy, read_only()).unwrap();
    let found = reader.check(CheckPlace::File).await.unwrap().findings;
    assert!(
        found.len() == 1 && found[0].what.contains("copy.db-wal is missing"),
        "{found:?}"
    );
    assert_eq!(jobs_in(&reader).await.unwrap(), 2);
}

/// A clock that stands still.
#[derive(Debug)]
struct Standing;

impl SteadyClock for Standing {
    fn now_ms(&self) -> i64 {
        0
    }

    fn boot(&self) -> &str {
        ""
    }
}

/// After a prune, the file gives its free pages back while the store is open, except for some that the next jobs need.
#[tokio::test]
async fn a_pruned_file_shrinks_while_it_is_open() {
    const BATCHES: u32 = 60;
    const PAYLOAD_BYTES: usize = 200_000;
    const KEPT_BYTES: u64 = 4 << 20;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("jobs.db");
    let options = SqliteOptions {
        // The file is cut by a checkpoint, and the last portions write few pages.
        checkpoint_pages: 1,
        // No portion is short, and no time is too long, on a slow machine.
        steady_clock: Some(Arc::new(Standing)),
        ..SqliteOptions::new(Arc::new(SystemClock), 1)
    };
    let store = SqliteStore::open(&file, options).unwrap();
    let worker = worker(&store).await;
    let mut payloads = PackedBuilder::new();
    payloads
        .push(&format!("\"{}\"", "x".repeat(PAYLOAD_BYTES)))
        .unwrap();
    let payloads = payloads.finish();
    let mut kept = None;
    for _ in 0..BATCHES {
        let large = NewBatch {
            payloads: payloads.clone(),
            ..batch(1)
        };
        kept = Some(submit(&store, large).await);
        let slice = only(claim(&store, worker, 1).await);
        exchange(&store, worker, vec![completed(&slice)], None).await;
    }
    let bytes = || std::fs::metadata(&file).unwrap().len();
    // Each value is its payload, so both are stored.
    let before = bytes();
    assert!(before > 2 * u64::from(BATCHES) * PAYLOAD_BYTES as u64, "{before}");
    let options = PruneOptions {
        finished_before: Timestamp(i64::MAX),
        keep_batches: 1,
        dead_too: true,
        dry_run: false,
    };
    assert_eq!(
        store.prune(options).await.unwrap().batches,
        u64::from(BATCHES) - 1
    );
    let after = bytes();
    let left = 2 * PAYLOAD_BYTES as u64 + KEPT_BYTES + (1 << 20);
    assert!(after < left, "{before} bytes became {after}");
    no_damage(&store).await;
    let payloads = store.payloads(kept.unwrap()).await.unwrap().unwrap();
    assert_eq!(payloads.as_str().len(), PAYLOAD_BYTES + 4);
    store.close().await.unwrap();
    no_damage(&open(&file)).await;
}
