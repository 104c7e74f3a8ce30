//! The view `gristmill.job`.

use gristmill_model::{
    Backoff, Clock, JobState, LeasedSlice, PackedArray, Positions, Report, RetryPolicy, Rng, Spawn,
    SplitMix64, Timestamp,
};
use gristmill_store::{Change, JobFilter, NewRun, Page, RunAdvance, RunState, Store};
use gristmill_store_conformance::fixture::*;
use tokio_postgres::Client;

use super::case::{Case, row, texts};

const HOUR_MS: i64 = 3_600_000;

/// The view shows every job as the store does.
async fn compare(case: &Case, client: &Client) -> usize {
    let page = Page {
        after: None,
        limit: 10_000,
    };
    let jobs = case.store.jobs(&JobFilter::default(), page).await.unwrap();
    let milliseconds = |column: &str| format!("(extract(epoch FROM {column}) * 1000)::bigint");
    let rows = client
        .query(
            &format!(
                "SELECT id, kind, queue, state, attempt, priority::integer, error, {}, {}, {}, payload::text, value::text, worker \
                 FROM gristmill.job ORDER BY batch_id, position",
                milliseconds("submitted_at"),
                milliseconds("run_at"),
                milliseconds("finished_at"),
            ),
            &[],
        )
        .await
        .unwrap();
    assert_eq!(rows.len(), jobs.len());
    for (shown, job) in rows.iter().zip(&jobs) {
        assert_eq!(shown.get::<_, &str>(0), job.job.to_string());
        assert_eq!(
            (shown.get::<_, &str>(1), shown.get::<_, &str>(2)),
            (&*job.kind, &*job.queue)
        );
        assert_eq!(shown.get::<_, &str>(3), job.state.name(), "{}", job.job);
        assert_eq!(shown.get::<_, i32>(4), job.attempt as i32, "{}", job.job);
        assert_eq!(shown.get::<_, i32>(5), i32::from(job.priority));
        assert_eq!(
            shown.get::<_, Option<&str>>(6),
            job.error.as_deref(),
            "{}",
            job.job
        );
        let moments = [Some(job.submitted_at), job.run_at, job.finished_at];
        for (column, moment) in (7..).zip(moments) {
            assert_eq!(
                shown.get::<_, Option<i64>>(column),
                moment.map(|moment| moment.0),
                "{}",
                job.job
            );
        }
        let details = case.store.job(job.job).await.unwrap().unwrap();
        assert_eq!(shown.get::<_, &str>(10), details.payload.get());
        assert_eq!(
            shown.get::<_, Option<&str>>(11),
            details.value.as_deref().map(|value| value.get()),
            "{}",
            job.job
        );
        assert_eq!(
            shown.get::<_, Option<&str>>(12),
            details.worker.as_deref(),
            "{}",
            job.job
        );
    }
    jobs.len()
}

/// The view shows values and payloads of every JSON type, a run, and an error as they were given.
#[tokio::test]
async fn shows_each_job_as_the_store_does() {
    let case = Case::new().await;
    let client = case.client().await;
    let run = NewRun {
        name: "nightly".to_owned(),
        description: "{}".to_owned(),
    };
    let run = case.store.create_run(run).await.unwrap();
    let advance = RunAdvance {
        run: run.id,
        progress: Default::default(),
        state: RunState::Submitted,
    };
    let mut new = batch(12);
    new.payloads = PackedArray::parse(
        r#"[{"a": [1, 2]}, [3], "text\n\"", 1.5, -7, true, false, null, "\u0000", {}, "", 11]"#,
    )
    .unwrap();
    new.options.retry = RetryPolicy {
        attempts_max: 2,
        delay_ms: HOUR_MS as u64,
        backoff: Backoff::Constant,
        delay_ms_max: HOUR_MS as u64,
    };
    let id = case.store.submit(vec![new], Some(advance)).await.unwrap()[0];
    let worker = worker(&case.store).await;
    let lease = claim(&case.store, worker, 11).await.unwrap();
    let slice = &lease.slices[0];
    let report = Report {
        failed: [
            failed_at(slice, &positions("1"), &error()).failed,
            failed_at(slice, &positions("4"), &error().permanent()).failed,
        ]
        .concat(),
        released: positions("10"),
        ..completed_at(slice, &positions("0,2-3,5-8"))
    };
    exchange(&case.store, worker, vec![report], None).await;
    change(&case.store, job(id, 11), Change::Cancel).await;
    submit(&case.store, batch_of("other", 3)).await;
    assert_eq!(compare(&case, &client).await, 15);
    let runs = texts(
        &client,
        "SELECT DISTINCT run || ' ' || batch_id FROM gristmill.job WHERE run IS NOT NULL",
        &[],
    )
    .await;
    assert_eq!(runs, [format!("nightly {id}")]);
}

/// The same after random operations.
#[tokio::test]
async fn shows_random_states_as_the_store_does() {
    let mut jobs = 0;
    for seed in 0..6 {
        let case = Case::new().await;
        let client = case.client().await;
        let mut rng = SplitMix64::new(seed);
        let worker = worker(&case.store).await;
        let mut slices: Vec<LeasedSlice> = Vec::new();
        for _ in 0..40 {
            random_step(&case, &mut rng, worker, &mut slices).await;
        }
        jobs += compare(&case, &client).await;
    }
    assert!(jobs > 500, "{jobs} jobs are too few to mean anything");
}

fn some(rng: &mut SplitMix64, positions: &Positions, of: u64) -> Positions {
    positions.iter().filter(|_| rng.below(of) == 0).collect()
}

async fn random_step(
    case: &Case,
    rng: &mut SplitMix64,
    worker: gristmill_model::WorkerId,
    slices: &mut Vec<LeasedSlice>,
) {
    let now = case.clock.now();
    match rng.below(8) {
        0 | 1 => {
            let mut new = batch(1 + rng.below(40) as u32);
            new.options.priority = rng.below(3) as i16;
            new.options.run_at = (rng.below(4) == 0).then(|| now.plus_ms(HOUR_MS));
            new.options.expires_at = (rng.below(4) == 0).then_some(now);
            new.options.retry = RetryPolicy {
                attempts_max: 1 + rng.below(3) as u32,
                delay_ms: HOUR_MS as u64 * rng.below(2),
                delay_ms_max: HOUR_MS as u64,
                backoff: Backoff::Constant,
            };
            submit(&case.store, new).await;
        }
        2..=4 => {
            let report = slices.pop().map(|slice| {
                let failed = some(rng, &slice.positions, 4);
                let rest = slice.positions.difference(&failed);
                let released = some(rng, &rest, 5);
                Report {
                    failed: failed_at(&slice, &failed, &error()).failed,
                    released: released.clone(),
                    ..completed_at(&slice, &some(rng, &rest.difference(&released), 2))
                }
            });
            let wanted = want(1 + rng.below(60) as u32);
            let exchanged = exchange(&case.store, worker, report.into_iter().collect(), Some(wanted)).await;
            slices.extend(exchanged.lease.into_iter().flat_map(|lease| lease.slices));
        }
        5 | 6 => {
            let page = Page {
                after: None,
                limit: 10_000,
            };
            let jobs = case.store.jobs(&JobFilter::default(), page).await.unwrap();
            let named = jobs.iter().filter(|_| rng.below(6) == 0).map(|row| row.job);
            let named: Vec<_> = named.collect();
            match rng.below(2) {
                0 => change(&case.store, named, Change::Cancel).await,
                _ => change(&case.store, named, Change::Retry).await,
            };
        }
        _ => {
            case.store.expire().await.unwrap();
        }
    }
}

/// A condition on the batch, or a join by it, leads to the batch's rows in each table: none is read as a whole.
#[tokio::test]
async fn one_batch_is_unpacked_alone() {
    let case = Case::new().await;
    let client = case.client().await;
    client
        .batch_execute(
            "INSERT INTO gristmill.lane (id, queue, kind, job_group) VALUES (1, 'default', 'work', '');
             INSERT INTO gristmill.batch (id, submitted_at, run_at, lane_id, count, priority, payloads)
                 SELECT id, 0, 0, 1, 4, 0, E'[1\\n,2\\n,3\\n,4]' FROM generate_series(1, 20000) id;
             INSERT INTO gristmill.report (batch_id, first_position, attempt, finished_at, count, state, positions, \"values\")
                 SELECT id, 0, 1, 0, 1, 'completed', '{[0,1)}', '[1]' FROM gristmill.batch;
             INSERT INTO gristmill.report (batch_id, first_position, attempt, finished_at, count, state, positions)
                 SELECT id, 1, 1, 0, 1, 'dead', '{[1,2)}' FROM gristmill.batch;
             INSERT INTO gristmill.failure (batch_id, lease_id, duration_us, failed_at, position, attempt, error)
                 SELECT id, 1, 0, 0, 1, 1, '{\"type\": \"ValueError\", \"message\": \"no\"}' FROM gristmill.batch;
             INSERT INTO gristmill.slice (batch_id, run_at, lane_id, attempt, rescues, count, job_bytes, rank, positions)
                 SELECT id, 0, 1, 1, 0, 1, 1, 0, '{[2,3)}' FROM gristmill.batch;
             INSERT INTO gristmill.held (lease_id, batch_id, attempt, first_position, worker_id, run_at, rescues, count, positions)
                 SELECT id, id, 1, 3, 1, 0, 0, 1, '{[3,4)}' FROM gristmill.batch;
             ANALYZE",
        )
        .await
        .unwrap();
    let states = texts(
        &client,
        "SELECT state FROM gristmill.job WHERE batch_id = 19999 ORDER BY position",
        &[],
    )
    .await;
    assert_eq!(states, ["completed", "dead", "waiting", "running"]);
    for query in [
        "SELECT * FROM gristmill.job WHERE batch_id = 7",
        "SELECT * FROM gristmill.job WHERE batch_id = 7 AND position = 3",
        "SELECT j.* FROM (VALUES (7), (9)) mine (batch) JOIN gristmill.job j ON j.batch_id = mine.batch",
    ] {
        let plan = texts(&client, &format!("EXPLAIN {query}"), &[]).await.join("\n");
        for table in ["batch b", "report t", "slice s", "held h", "failure f"] {
            assert!(!plan.contains(&format!("Seq Scan on {table}")), "{query}\n{plan}");
        }
        assert!(
            plan.contains("Index Scan using batch_pkey on batch b"),
            "{query}\n{plan}"
        );
        assert!(!plan.contains("JIT"), "{query}\n{plan}");
    }
}

/// Values are shown with their payloads, however the reports cut the batch up.
#[tokio::test]
async fn values_find_their_jobs() {
    let case = Case::new().await;
    let id = submit(&case.store, batch(1_000)).await;
    let worker = worker(&case.store).await;
    let lease = claim(&case.store, worker, 1_000).await.unwrap();
    let parts = ["1,3,5-9,998", "0,10-499", "2,4,500-997"].map(positions);
    let reports = parts
        .iter()
        .map(|part| completed_at(&lease.slices[0], part))
        .collect();
    exchange(&case.store, worker, reports, None).await;
    let matching = row(
        &case.client().await,
        "SELECT count(*) FROM gristmill.job WHERE batch_id = $1 AND value::text = payload::text",
        &[&id.0],
    )
    .await;
    assert_eq!(matching.get::<_, i64>(0), 999);
}

/// A time that PostgreSQL cannot represent does not break the view.
#[tokio::test]
async fn the_end_of_time_is_shown() {
    let case = Case::new().await;
    let mut new = batch(1);
    new.options.run_at = Some(Timestamp(i64::MAX));
    let id = submit(&case.store, new).await;
    assert_eq!(
        case.store.job(job(id, 0)).await.unwrap().unwrap().row.state,
        JobState::Scheduled
    );
    let shown = row(
        &case.client().await,
        "SELECT run_at::text, state FROM gristmill.job",
        &[],
    )
    .await;
    assert_eq!(
        (shown.get::<_, &str>(0), shown.get::<_, &str>(1)),
        ("infinity", "scheduled")
    );
}

/// A child shows its parent, and a waiting parent is blocked, on the attempt that spawned.
#[tokio::test]
async fn children_tell_their_parents() {
    let case = Case::new().await;
    let client = case.client().await;
    let id = submit(&case.store, batch(3)).await;
    let worker = worker(&case.store).await;
    let parents = only(claim(&case.store, worker, 3).await);
    let spawn = |count: u32| move |_| Spawn::new().children("child", 0..count).unwrap();
    let report = suspended_at(&parents, &positions("0,2"), spawn(2));
    exchange(&case.store, worker, vec![report], None).await;
    let children = only(claim(&case.store, worker, 10).await);
    let report = spreading_at(&children, &positions("3"), spawn(1));
    exchange(&case.store, worker, vec![report], None).await;
    let parents = "SELECT coalesce(parent_id, 'none') FROM gristmill.job WHERE batch_id >= $1 ORDER BY batch_id, position";
    let (first, third) = (format!("{id}:0"), format!("{id}:2"));
    let expected = ["none", "none", "none", &first, &first, &third, &third, &third];
    assert_eq!(texts(&client, parents, &[&id.0]).await, expected);
    let found = "SELECT j.id FROM gristmill.job j WHERE j.batch_id IN (SELECT c.batch_id FROM gristmill.child_batch c \
                 WHERE c.parent_id = $1) AND j.parent_id = $2 ORDER BY j.batch_id, j.position";
    let found = texts(&client, found, &[&id.0, &third]).await;
    assert_eq!(found.len(), 3);
    let states = "SELECT state || ' ' || attempt FROM gristmill.job WHERE batch_id = $1 ORDER BY position";
    assert_eq!(
        texts(&client, states, &[&id.0]).await,
        ["blocked 1", "running 1", "blocked 1"]
    );
    let plan = texts(
        &client,
        "EXPLAIN SELECT state FROM gristmill.job WHERE batch_id = 7",
        &[],
    )
    .await;
    assert!(!plan.join("\n").contains("child_batch"), "{plan:?}");
}

/// The view shows the same of a batch after its reports are compacted, which notifies nobody.
#[tokio::test]
async fn shows_compacted_reports_as_they_came() {
    let case = Case::new().await;
    let client = case.client().await;
    let id = submit(&case.store, batch(30)).await;
    for number in 0..10 {
        let worker = worker(&case.store).await;
        let slice = only(claim(&case.store, worker, 1 + number % 5).await);
        exchange(&case.store, worker, vec![completed(&slice)], None).await;
        case.clock.advance_ms(1);
    }
    let sql = "SELECT job::text FROM gristmill.job WHERE batch_id = $1 ORDER BY position";
    let before = texts(&client, sql, &[&id.0]).await;
    assert_eq!(compare(&case, &client).await, 30);
    assert_eq!(case.store.compact(1).await.unwrap(), 9);
    assert_eq!(texts(&client, sql, &[&id.0]).await, before);
    assert_eq!(compare(&case, &client).await, 30);
}
