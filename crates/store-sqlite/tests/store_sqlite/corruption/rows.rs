//! Damage of single rows.

use std::path::Path;

use gristmill_model::{JobState, KeyedBatch, PackedArray, Unique};
use gristmill_store::integrity::DAMAGED;
use gristmill_store::{Change, JobFilter, OutcomesRead, OutcomesWanted, Store, StoreError};
use gristmill_store_conformance::fixture::*;
use gristmill_store_sqlite::{SqliteOptions, SqliteStore};
use rusqlite::Connection;

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, SqliteOptions::default()).unwrap()
}

/// Changes the file behind the store's back.
fn damage(path: &Path, sql: &str) {
    let changed = Connection::open(path).unwrap().execute(sql, []).unwrap();
    assert!(changed > 0, "{sql}");
}

/// A store with a damaged batch of three jobs and an undamaged one, both waiting.
async fn with_damage(path: &Path, sql: &str) -> SqliteStore {
    let store = open(path);
    submit(&store, batch(3)).await;
    submit(&store, batch(3)).await;
    store.close().await.unwrap();
    damage(path, sql);
    open(path)
}

fn of_batch(batch: i64) -> JobFilter {
    JobFilter {
        batch: Some(gristmill_model::BatchId(batch)),
        ..JobFilter::default()
    }
}

#[tokio::test]
async fn a_damaged_batch_is_paused_and_others_are_claimed() {
    let damages = [
        (
            "UPDATE batch SET payloads = replace(payloads, '1', '7') WHERE id = 1",
            "batch",
        ),
        (
            "UPDATE batch SET options = '{\"timeout_ms\":1}' WHERE id = 1",
            "batch",
        ),
        ("UPDATE batch SET priority = 5 WHERE id = 1", "batch"),
        ("UPDATE batch SET sum = sum + 1 WHERE id = 1", "batch"),
        (
            "UPDATE slice SET positions = '0-9', count = 10 WHERE batch_id = 1",
            "slice",
        ),
    ];
    for (sql, table) in damages {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jobs.db");
        let store = with_damage(&path, sql).await;
        let worker = worker(&store).await;
        let lease = claim(&store, worker, 100).await;
        assert_eq!(held(&lease), ["2:0-2"], "{sql}");
        assert!(claim(&store, worker, 100).await.is_none(), "{sql}");
        let slice = only(lease);
        let receipts = exchange(&store, worker, vec![completed(&slice)], None)
            .await
            .receipts;
        assert_eq!(receipts[0].accepted, positions("0-2"), "{sql}");

        let told = findings(&store).await;
        assert!(
            told.iter()
                .any(|finding| finding.batch.is_some_and(|batch| batch.0 == 1)
                    && finding.what.contains(DAMAGED)),
            "{sql}: {told:?}"
        );
        if table == "batch" {
            assert!(
                told.iter().any(|finding| finding.table == table),
                "{sql}: {told:?}"
            );
            let error = store.job(job(gristmill_model::BatchId(1), 0)).await.unwrap_err();
            assert!(
                error
                    .to_string()
                    .contains("batch 1 is damaged, in the table `batch`"),
                "{sql}: {error}"
            );
            assert_eq!(
                states(&store, gristmill_model::BatchId(1)).await,
                [JobState::Paused; 3],
                "{sql}"
            );
        }
        // The remedy works.
        let cancelled = change(&store, of_batch(1), Change::Cancel).await;
        assert!(cancelled.changed >= 3, "{sql}: {cancelled:?}");
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_slice_that_cannot_be_read_is_passed_over() {
    for sql in [
        "UPDATE slice SET positions = '0-2x' WHERE batch_id = 1",
        "UPDATE slice SET positions = '1-2' WHERE batch_id = 1",
        "UPDATE slice SET attempt = 0 WHERE batch_id = 1",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jobs.db");
        let store = with_damage(&path, sql).await;
        let worker = worker(&store).await;
        assert_eq!(held(&claim(&store, worker, 100).await), ["2:0-2"], "{sql}");
        assert!(claim(&store, worker, 100).await.is_none(), "{sql}");
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_query_pauses_the_open_jobs_of_a_damaged_batch() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let store = open(&path);
    let id = submit(&store, batch(6)).await;
    let worker = worker(&store).await;
    let slice = only(claim(&store, worker, 3).await);
    exchange(&store, worker, vec![completed(&slice)], None).await;
    assert_eq!(store.outcomes(id).await.unwrap().unwrap().ended(), 3);
    damage(
        &path,
        "UPDATE report SET \"values\" = replace(\"values\", '2', '3')",
    );
    let error = store.outcomes(id).await.unwrap_err();
    assert!(
        matches!(&error, StoreError::Damaged { batch, table: "report", .. } if *batch == id),
        "{error}"
    );
    assert!(
        error.to_string().contains("gristmill cancel --batch 1"),
        "{error}"
    );
    // Outcomes that are too large are refused without a look at their values.
    let within = async |bytes_max| {
        let wanted = OutcomesWanted {
            batch: id,
            positions: None,
            bytes_max,
            whole_bytes_max: 0,
        };
        store.outcomes_of(&wanted).await
    };
    assert_eq!(within(2).await.unwrap(), OutcomesRead::TooLarge);
    assert!(within(usize::MAX).await.is_err());
    assert!(store.job(job(id, 1)).await.is_err());
    assert!(claim(&store, worker, 10).await.is_none());
    let shown = store.job(job(id, 4)).await.unwrap().unwrap();
    assert_eq!(shown.row.state, JobState::Paused);
    assert_eq!(shown.pauses[0].reason, DAMAGED);
    // A person who knows better resumes them.
    change(&store, of_batch(1), resuming(Some(DAMAGED))).await;
    assert_eq!(held(&claim(&store, worker, 10).await), ["1:3-5"]);
    store.close().await.unwrap();
}

#[tokio::test]
async fn damaged_keys_errors_and_kept_values_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let store = open(&path);
    let mut new = batch(2);
    new.options.unique = Some(Unique::default());
    let keys = PackedArray::parse("[\"a\",\"b\"]").unwrap();
    let keyed = KeyedBatch { batch: new, keys };
    store.submit_keyed(vec![keyed]).await.unwrap();
    let failing = submit(&store, once(1)).await;
    let mut cached = batch(1);
    cached.options.cached_ms = Some(60_000);
    let first = submit(&store, cached.clone()).await;
    let worker = worker(&store).await;
    let lease = claim(&store, worker, 10).await.unwrap();
    let reports = lease.slices.iter().filter_map(|slice| match slice.batch {
        batch if batch == failing => Some(failed_at(slice, &slice.positions, &error())),
        batch if batch == first => Some(completed(slice)),
        _ => None,
    });
    exchange(&store, worker, reports.collect(), None).await;
    no_damage(&store).await;

    damage(&path, "UPDATE keyed SET keys = replace(keys, 'a', 'c')");
    damage(&path, "UPDATE failure SET error = replace(error, 'no', 'on')");
    damage(&path, "UPDATE cached SET value = '7'");
    let told = findings(&store).await;
    let tables: Vec<&str> = told.iter().map(|finding| finding.table.as_str()).collect();
    assert_eq!(tables, ["keyed", "failure", "cached"], "{told:?}");
    assert!(
        store
            .outcomes(failing)
            .await
            .unwrap_err()
            .to_string()
            .contains("`failure`")
    );
    // The job with the damaged value runs.
    let again = submit(&store, cached).await;
    assert_eq!(states(&store, again).await, [JobState::Waiting]);
    store.close().await.unwrap();
}

#[tokio::test]
async fn rows_that_contradict_each_other_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    let store = open(&path);
    four_batches(&store).await;
    damage(&path, "DELETE FROM report");
    damage(&path, "UPDATE held SET worker_id = 99");
    damage(&path, "DELETE FROM batch WHERE id = 3");
    damage(
        &path,
        "UPDATE slice SET positions = '0-3', count = 4 WHERE batch_id = 4",
    );
    damage(&path, "UPDATE lane SET kind = 'wort'");
    let told = check_contradictions(&store).await;
    assert!(told.iter().any(|told| told.starts_with("0 lane: ")), "{told:#?}");
    store.close().await.unwrap();
}
