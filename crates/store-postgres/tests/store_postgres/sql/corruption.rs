//! Damaged rows are found, and affect only their own batch.

use gristmill_model::{BatchId, JobState, KeyedBatch, PackedArray, Unique};
use gristmill_store::integrity::DAMAGED;
use gristmill_store::{Change, JobFilter, Store, StoreError};
use gristmill_store_conformance::fixture::*;
use gristmill_store_postgres::{PostgresOptions, PostgresStore};

use super::case::{Case, row};

/// The same database through another handle, which has nothing in memory.
async fn reopened(case: &Case) -> PostgresStore {
    let options = PostgresOptions::new(case.clock.clone(), 8);
    PostgresStore::open(&case.url, options).await.unwrap()
}

async fn damage(case: &Case, sql: &str) {
    let changed = case.client().await.execute(sql, &[]).await.unwrap();
    assert!(changed > 0, "{sql}");
}

#[tokio::test]
async fn a_damaged_batch_is_paused_and_others_are_claimed() {
    for sql in [
        "UPDATE gristmill.batch SET payloads = replace(payloads, '1', '7') WHERE id = 1",
        "UPDATE gristmill.batch SET options = '{\"timeout_ms\":1}' WHERE id = 1",
        "UPDATE gristmill.batch SET sum = sum + 1 WHERE id = 1",
    ] {
        let case = Case::new().await;
        let first = submit(&case.store, batch(3)).await;
        let second = submit(&case.store, batch(3)).await;
        damage(&case, sql).await;
        let store = reopened(&case).await;
        let worker = worker(&store).await;
        let lease = claim(&store, worker, 100).await;
        assert_eq!(held(&lease), [format!("{second}:0-2")], "{sql}");
        assert!(claim(&store, worker, 100).await.is_none(), "{sql}");
        let slice = only(lease);
        let receipts = exchange(&store, worker, vec![completed(&slice)], None)
            .await
            .receipts;
        assert_eq!(receipts[0].accepted, positions("0-2"), "{sql}");
        assert_eq!(states(&store, first).await, [JobState::Paused; 3], "{sql}");

        let error = store.job(job(first, 0)).await.unwrap_err();
        assert!(
            error
                .to_string()
                .contains("batch 1 is damaged, in the table `batch`"),
            "{sql}: {error}"
        );
        let told = findings(&store).await;
        assert!(
            told.iter().all(|finding| finding.batch == Some(first)),
            "{sql}: {told:?}"
        );
        let tables: Vec<&str> = told.iter().map(|finding| finding.table.as_str()).collect();
        assert_eq!(tables, ["batch", "blocked"], "{sql}: {told:?}");
        assert!(told[1].what.contains(DAMAGED), "{sql}: {told:?}");
        // The remedy works.
        let all = JobFilter {
            batch: Some(first),
            ..JobFilter::default()
        };
        let cancelled = change(&store, all, Change::Cancel).await;
        assert_eq!(cancelled.changed, 3, "{sql}");
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn damaged_values_keys_and_kept_values_are_found() {
    let case = Case::new().await;
    let ended = submit(&case.store, batch(6)).await;
    let mut new = batch(2);
    new.options.unique = Some(Unique::default());
    let keys = PackedArray::parse("[\"a\",\"b\"]").unwrap();
    let keyed = KeyedBatch { batch: new, keys };
    case.store.submit_keyed(vec![keyed]).await.unwrap();
    let mut cached = batch(1);
    cached.options.cached_ms = Some(60_000);
    cached.options.priority = 5;
    let kept = submit(&case.store, cached.clone()).await;
    let tester = worker(&case.store).await;
    // One cached job, and three of the first batch.
    let lease = claim(&case.store, tester, 4).await.unwrap();
    let reports = lease.slices.iter().map(completed).collect();
    exchange(&case.store, tester, reports, None).await;
    no_damage(&case.store).await;
    assert_eq!(states(&case.store, kept).await, [JobState::Completed]);

    damage(
        &case,
        "UPDATE gristmill.report SET \"values\" = replace(\"values\", '2', '3') WHERE count = 3",
    )
    .await;
    damage(&case, "UPDATE gristmill.keyed SET keys = replace(keys, 'a', 'c')").await;
    damage(&case, "UPDATE gristmill.cached SET value = '7'").await;
    let told = findings(&case.store).await;
    let mut tables: Vec<&str> = told.iter().map(|finding| finding.table.as_str()).collect();
    tables.sort_unstable();
    assert_eq!(tables, ["cached", "keyed", "report"], "{told:?}");

    let error = case.store.outcomes(ended).await.unwrap_err();
    assert!(
        matches!(&error, StoreError::Damaged { batch, table: "report", .. } if *batch == ended),
        "{error}"
    );
    // The query has paused the rest of the batch, and a claim passes over the batch with damaged keys.
    let store = reopened(&case).await;
    let other = worker(&store).await;
    assert!(claim(&store, other, 10).await.is_none());
    let shown = store.job(job(ended, 4)).await.unwrap().unwrap();
    assert_eq!(shown.pauses[0].reason, DAMAGED);
    let again = submit(&store, cached).await;
    assert_eq!(states(&store, again).await, [JobState::Waiting]);
    store.close().await.unwrap();
}

#[tokio::test]
async fn compacted_reports_keep_their_sums() {
    let case = Case::new().await;
    let id = submit(&case.store, batch(4)).await;
    let tester = worker(&case.store).await;
    for _ in 0..4 {
        let slice = only(claim(&case.store, tester, 1).await);
        exchange(&case.store, tester, vec![completed(&slice)], None).await;
    }
    assert_eq!(case.store.compact(1).await.unwrap(), 3);
    no_damage(&case.store).await;
    damage(
        &case,
        "UPDATE gristmill.report SET bodies = replace(bodies, '[2]', '[3]')",
    )
    .await;
    assert!(case.store.outcomes(id).await.is_err());
}

#[tokio::test]
async fn housekeeping_adds_the_sums_of_what_sql_submits() {
    let case = Case::new().await;
    let client = case.client().await;
    client
        .execute(
            "SELECT gristmill.submit('work', '7'::json) FROM generate_series(1, 40)",
            &[],
        )
        .await
        .unwrap();
    client
        .execute(
            "SELECT gristmill.submit('work', '8'::json, options => '{\"key\":\"a\"}')",
            &[],
        )
        .await
        .unwrap();
    let without = "SELECT (SELECT count(*) FROM gristmill.batch WHERE sum IS NULL) \
         + (SELECT count(*) FROM gristmill.keyed WHERE sum IS NULL)";
    assert_eq!(row(&client, without, &[]).await.get::<_, i64>(0), 42);
    case.store.compact(1).await.unwrap();
    assert_eq!(row(&client, without, &[]).await.get::<_, i64>(0), 0);
    no_damage(&case.store).await;
    damage(&case, "UPDATE gristmill.batch SET payloads = '[9]' WHERE id = 3").await;
    let told = findings(&case.store).await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].batch, Some(BatchId(3)));
}

#[tokio::test]
async fn rows_that_contradict_each_other_are_found() {
    let case = Case::new().await;
    four_batches(&case.store).await;
    damage(&case, "DELETE FROM gristmill.report").await;
    damage(&case, "UPDATE gristmill.held SET worker_id = 99").await;
    damage(&case, "DELETE FROM gristmill.batch WHERE id = 3").await;
    damage(
        &case,
        "UPDATE gristmill.slice SET positions = '{[0,4)}' WHERE batch_id = 4",
    )
    .await;
    check_contradictions(&case.store).await;
}
