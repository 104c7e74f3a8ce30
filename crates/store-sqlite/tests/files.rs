//! The permissions of a store's files.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use gristmill_model::SystemClock;
use gristmill_store::Store;
use gristmill_store_conformance::fixture::*;
use gristmill_store_sqlite::{SqliteOptions, SqliteStore};

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, SqliteOptions::new(Arc::new(SystemClock), 1)).unwrap()
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Payloads may be anything, so that nobody but the owner reads a new store, its log and the index of that.
#[tokio::test]
async fn new_files_are_their_owners_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("jobs.db");
    let store = open(&file);
    submit(&store, batch(2)).await;
    assert_eq!(store.workers().await.unwrap().len(), 0, "a reader is open, too");
    let mut names: Vec<String> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["jobs.db", "jobs.db-shm", "jobs.db-wal"]);
    for name in names {
        assert_eq!(mode(&folder.path().join(&name)), 0o600, "{name}");
    }
}

/// The rights that somebody gave to a store stay.
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
