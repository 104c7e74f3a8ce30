//! The view `job` of a SQLite store.

use std::sync::Arc;

use gristmill_model::{
    After, Clock, JobId, ManualClock, NewBatch, PackedArray, Report, RetryPolicy, SystemClock,
};
use gristmill_store::{Change, JobDetails, JobFilter, JobRow, NewRun, Page, RunAdvance, RunState, Store};
use gristmill_store_conformance::fixture::*;
use gristmill_store_sqlite::{SqliteOptions, SqliteStore};
use rusqlite::Connection;

struct Case {
    folder: tempfile::TempDir,
    store: SqliteStore,
}

fn case() -> Case {
    let folder = tempfile::tempdir().unwrap();
    // The view reads the machine's clock; the store's stands at the present moment.
    let clock = Arc::new(ManualClock::new(SystemClock.now()));
    let store = SqliteStore::open(folder.path().join("view.db"), SqliteOptions::new(clock, 1)).unwrap();
    Case { folder, store }
}

impl Case {
    fn sql(&self) -> Connection {
        Connection::open(self.folder.path().join("view.db")).unwrap()
    }
}

/// The view shows jobs that wait for others, also with a condition on their batch.
#[tokio::test]
async fn shows_what_waits_for_others() {
    let case = case();
    let first = submit(&case.store, batch(1)).await;
    let waiting = NewBatch {
        after: vec![After::batch(first)],
        ..batch(2)
    };
    let id = submit(&case.store, waiting).await;
    let states: String = case
        .sql()
        .query_row(
            "SELECT group_concat(id || ' ' || state) FROM job WHERE batch_id = ?1",
            [id.0],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(states, format!("{id}:0 blocked,{id}:1 blocked"));
}

/// The view shows jobs in every state, with values and payloads of every JSON type, as the store does.
#[tokio::test]
async fn shows_each_job_as_the_store_does() {
    let case = case();
    let store = &case.store;
    let run = NewRun {
        name: "nightly".to_owned(),
        description: "{}".to_owned(),
    };
    let run = store.create_run(run).await.unwrap();
    let advance = RunAdvance {
        run: run.id,
        progress: Default::default(),
        state: RunState::Submitted,
    };
    let mut new = batch(12);
    new.payloads = PackedArray::parse(
        r#"[{"a": [1, 2]}, [3], "text\n\"", 1.5, -7, true, false, null, "0-3,5", {}, "", 11]"#,
    )
    .unwrap();
    new.options.retry = RetryPolicy {
        attempts_max: 2,
        delay_ms: 60_000,
        backoff: gristmill_model::Backoff::Constant,
        delay_ms_max: 60_000,
    };
    new.options.priority = 3;
    let id = store.submit(vec![new], Some(advance)).await.unwrap()[0];
    let worker = worker(store).await;
    let lease = claim(store, worker, 11).await.unwrap();
    let slice = &lease.slices[0];
    let report = Report {
        failed: [
            failed_at(slice, &positions("1"), &error()).failed,
            failed_at(slice, &positions("4"), &error().permanent()).failed,
        ]
        .concat(),
        released: positions("8"),
        ..completed_at(slice, &positions("0,2-3,5-7"))
    };
    exchange(
        store,
        worker,
        vec![report, completed_at(slice, &positions("9"))],
        None,
    )
    .await;
    change(store, job(id, 11), Change::Cancel).await;
    submit(store, batch_of("other", 3)).await;

    let page = Page {
        after: None,
        limit: 100,
    };
    let rows = store.jobs(&JobFilter::default(), page).await.unwrap();
    assert_eq!(rows.len(), 15);
    let sql = case.sql();
    let count: i64 = sql
        .query_row("SELECT count(*) FROM job", [], |row| row.get(0))
        .unwrap();
    assert_eq!(count, 15);
    for row in rows {
        let details = store.job(row.job).await.unwrap().unwrap();
        let run = (row.job.batch == id).then_some("nightly");
        is_shown_as(&sql, &row, details, run);
    }
}

/// The view shows a job as the store does.
fn is_shown_as(sql: &Connection, row: &JobRow, details: JobDetails, expected_run: Option<&str>) {
    let JobId { batch, position } = row.job;
    let shown = sql
        .query_row(
            "SELECT id, kind, queue, state, attempt, priority, payload, value, error, submitted_at, run_at, \
             finished_at, worker, run FROM job WHERE batch_id = ?1 AND position = ?2",
            [batch.0, position.into()],
            |shown| {
                assert_eq!(shown.get::<_, String>(0)?, row.job.to_string());
                assert_eq!(shown.get::<_, String>(1)?, *row.kind);
                assert_eq!(shown.get::<_, String>(2)?, *row.queue);
                assert_eq!(shown.get::<_, String>(3)?, row.state.name(), "{}", row.job);
                assert_eq!(shown.get::<_, u32>(4)?, row.attempt);
                assert_eq!(shown.get::<_, i16>(5)?, row.priority);
                assert_eq!(shown.get::<_, Option<String>>(8)?, row.error);
                assert_eq!(shown.get::<_, i64>(9)?, row.submitted_at.0);
                assert_eq!(
                    shown.get::<_, Option<i64>>(10)?,
                    row.run_at.map(|moment| moment.0)
                );
                assert_eq!(
                    shown.get::<_, Option<i64>>(11)?,
                    row.finished_at.map(|moment| moment.0)
                );
                assert_eq!(
                    shown.get::<_, Option<String>>(12)?,
                    details.worker.as_deref().map(str::to_owned)
                );
                let run: Option<String> = shown.get(13)?;
                assert_eq!(run.as_deref(), expected_run);
                Ok((shown.get::<_, String>(6)?, shown.get::<_, Option<String>>(7)?))
            },
        )
        .unwrap();
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert_eq!(json(&shown.0), json(details.payload.get()));
    assert_eq!(
        shown.1.as_deref().map(json),
        details.value.map(|value| json(value.get())),
        "{}",
        row.job
    );
}

/// A condition on the batch reaches every part of the view: no growing table is read as a whole.
#[test]
fn one_batch_is_unpacked_alone() {
    let case = case();
    let sql = case.sql();
    let mut statement = sql
        .prepare("EXPLAIN QUERY PLAN SELECT * FROM job WHERE batch_id = 7")
        .unwrap();
    let steps = statement.query_map([], |row| row.get::<_, String>(3)).unwrap();
    let steps: Vec<String> = steps.map(Result::unwrap).collect();
    for table in ["b", "r", "s", "f"] {
        let scan = format!("SCAN {table}");
        assert!(!steps.contains(&scan), "{scan} in {steps:#?}");
    }
    assert!(
        steps
            .iter()
            .any(|step| step.starts_with("SEARCH b USING INTEGER PRIMARY KEY")),
        "{steps:#?}"
    );
}

/// Values are shown with their payloads, however the reports cut the batch up.
#[tokio::test]
async fn values_find_their_jobs() {
    let case = case();
    let store = &case.store;
    let id = submit(store, batch(1_000)).await;
    let worker = worker(store).await;
    let lease = claim(store, worker, 1_000).await.unwrap();
    let parts = ["1,3,5-9,998", "0,10-499", "2,4,500-997"].map(positions);
    let reports = parts
        .iter()
        .map(|part| completed_at(&lease.slices[0], part))
        .collect();
    exchange(store, worker, reports, None).await;
    let matching: u32 = case
        .sql()
        .query_row(
            "SELECT count(*) FROM job WHERE batch_id = ?1 AND value = payload",
            [id.0],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(matching, 999);
}

/// The view shows the same of a batch after its reports are compacted.
#[tokio::test]
async fn shows_compacted_reports_as_they_came() {
    let case = case();
    let id = submit(&case.store, batch(30)).await;
    for number in 0..10 {
        let worker = worker(&case.store).await;
        let slice = only(claim(&case.store, worker, 1 + number % 5).await);
        exchange(&case.store, worker, vec![completed(&slice)], None).await;
    }
    let shown = || -> Vec<String> {
        let sql = case.sql();
        let mut statement = sql
            .prepare(
                "SELECT json_array(id, state, attempt, payload, value, finished_at, worker) FROM job \
                 WHERE batch_id = ?1 ORDER BY position",
            )
            .unwrap();
        let rows = statement.query_map([id.0], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    };
    let before = shown();
    assert!(
        before.len() == 30 && before[29].contains("completed"),
        "{before:?}"
    );
    assert_eq!(case.store.compact(1).await.unwrap(), 9);
    assert_eq!(shown(), before);
}
