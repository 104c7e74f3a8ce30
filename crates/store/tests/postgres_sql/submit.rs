//! `gristmill.submit`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gristmill_model::{Backoff, BatchOptions, JobId, RetryPolicy, Timestamp};
use gristmill_store::conformance::fixture::*;
use gristmill_store::{JobFilter, Store, WorkSeen};

use crate::case::{Case, refusal, row, texts};

fn id_of(text: &str) -> JobId {
    text.parse().unwrap()
}

/// Jobs and the rows they belong to are there together, or not at all.
#[tokio::test]
async fn jobs_come_with_the_callers_transaction() {
    let case = Case::new().await;
    let mut client = case.client().await;
    client
        .batch_execute("CREATE TABLE picture (id bigint PRIMARY KEY, job text NOT NULL)")
        .await
        .unwrap();
    let insert = "INSERT INTO picture SELECT $1, gristmill.submit('thumbnail', json_build_object('picture', $1::bigint)) \
                  RETURNING job";

    let transaction = client.transaction().await.unwrap();
    transaction.query_one(insert, &[&1_i64]).await.unwrap();
    transaction.rollback().await.unwrap();
    assert_eq!(case.store.counts(&JobFilter::default()).await.unwrap().total(), 0);

    let transaction = client.transaction().await.unwrap();
    let job: String = transaction.query_one(insert, &[&2_i64]).await.unwrap().get(0);
    let worker = worker(&case.store).await;
    case.catch_up();
    assert_eq!(claim(&case.store, worker, 9).await, None, "not before the commit");
    transaction.commit().await.unwrap();
    let lease = claim(&case.store, worker, 9).await.unwrap();
    assert_eq!(held(&Some(lease.clone())), std::slice::from_ref(&job));
    assert_eq!(&*lease.slices[0].kind, "thumbnail");
    assert_eq!(lease.slices[0].payloads.as_str(), "[{\"picture\" : 2}]");
    exchange(&case.store, worker, vec![completed(&lease.slices[0])], None).await;
    let value = row(
        &client,
        "SELECT j.value ->> 'picture' FROM picture p JOIN gristmill.job j ON j.batch_id = split_part(p.job, ':', 1)::bigint \
         WHERE p.id = 2 AND j.id = p.job",
        &[],
    )
    .await;
    assert_eq!(value.get::<_, &str>(0), "2");
}

/// A worker that sleeps is woken by a client's submit and retry.
#[tokio::test]
async fn who_waits_for_work_is_woken() {
    let case = Arc::new(Case::new().await);
    let client = case.client().await;
    let id = worker(&case.store).await;
    let waits = Arc::new(AtomicU64::new(0));
    let (found, mut finds) = tokio::sync::mpsc::unbounded_channel();
    let waiting = tokio::spawn({
        let (case, waits) = (case.clone(), waits.clone());
        async move {
            let seen = WorkSeen::default();
            loop {
                waits.fetch_add(1, Ordering::AcqRel);
                case.store.wait_for_work(&seen).await;
                case.catch_up();
                if let Some(lease) = claim(&case.store, id, 1).await {
                    found.send(lease.slices[0].batch).unwrap();
                }
            }
        }
    });
    let mut job = None;
    for round in 0..3 {
        // Whoever sleeps holds the lock, and has looked once more since it did.
        let before = waits.load(Ordering::Acquire);
        let asleep = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 2 AND mode = 'ShareLock' AND granted \
                      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        while row(&client, asleep, &[]).await.get::<_, i64>(0) == 0
            || (round == 0 && waits.load(Ordering::Acquire) <= before)
        {
            tokio::task::yield_now().await;
        }
        let changed = match &job {
            None => texts(&client, "SELECT gristmill.submit('work', '1')", &[]).await,
            Some(job) => {
                texts(
                    &client,
                    "SELECT id FROM (SELECT $1::text AS id) one WHERE gristmill.retry(id)",
                    &[job],
                )
                .await
            }
        };
        let woken = tokio::time::timeout(std::time::Duration::from_secs(30), finds.recv()).await;
        assert_eq!(woken.unwrap().unwrap(), id_of(&changed[0]).batch);
        row(&client, "SELECT gristmill.cancel($1::text)", &[&changed[0]]).await;
        job = Some(changed[0].clone());
    }
    waiting.abort();
}

/// Ids stand in the order of the payloads; batches are cut where the Rust side cuts them.
#[tokio::test]
async fn many_jobs_are_cut_into_batches() {
    let case = Case::new().await;
    let client = case.client().await;
    let ids = texts(
        &client,
        "SELECT gristmill.submit('work', array_agg(to_json(n) ORDER BY n)) FROM generate_series(0, 10000) n",
        &[],
    )
    .await;
    assert_eq!(ids.len(), 10_001);
    let (first, last) = (id_of(&ids[0]), id_of(&ids[10_000]));
    assert_eq!((first.position, last.position), (0, 0));
    assert!(last.batch > first.batch);
    assert_eq!(id_of(&ids[9_999]), job(first.batch, 9_999));
    for position in [0, 4_711, 9_999] {
        let details = case.store.job(job(first.batch, position)).await.unwrap().unwrap();
        assert_eq!(details.payload.get(), position.to_string());
    }

    // 400 kB each: two make a megabyte, three do not. One of 2 MB is alone.
    let sizes = [400_000, 400_000, 400_000, 2_000_000, 1, 1];
    let ids = texts(
        &client,
        "SELECT gristmill.submit('work', array_agg(to_json(repeat('x', size)) ORDER BY n)) \
         FROM unnest($1::integer[]) WITH ORDINALITY AS given (size, n)",
        &[&sizes.to_vec()],
    )
    .await;
    let positions: Vec<u32> = ids.iter().map(|text| id_of(text).position).collect();
    assert_eq!(positions, [0, 1, 0, 0, 0, 1]);
    let mut batches: Vec<_> = ids.iter().map(|text| id_of(text).batch).collect();
    batches.dedup();
    assert_eq!(batches.len(), 4);
    assert!(
        texts(&client, "SELECT gristmill.submit('work', '{}'::json[])", &[])
            .await
            .is_empty(),
        "no payloads, no jobs"
    );
}

/// Payloads keep their text, whatever type they come in; only line feeds between tokens become blanks.
#[tokio::test]
async fn payloads_are_kept_as_they_are() {
    let case = Case::new().await;
    let client = case.client().await;
    let cases = [
        ("'{\"a\":  1.50}'", "{\"a\":  1.50}"),
        ("'{\"a\":  1.50}'::json", "{\"a\":  1.50}"),
        ("'{\"a\":  1.50}'::jsonb", "{\"a\": 1.50}"),
        ("E'\\n[1,\\r\\n 2]\\t'::json", "[1,   2]"),
        // PostgreSQL's text cannot hold the character, and its json can: as an escape.
        ("'\"a\\u0000b\"'::json", "\"a\\u0000b\""),
        (
            "'\"\\ud83d\\ude00 \\\\ud800\"'::json",
            "\"\\ud83d\\ude00 \\\\ud800\"",
        ),
        ("'null'", "null"),
        ("'\"\u{1f600}\"'", "\"\u{1f600}\""),
    ];
    for (given, stored) in cases {
        let text = texts(&client, &format!("SELECT gristmill.submit('work', {given})"), &[]).await;
        let details = case.store.job(id_of(&text[0])).await.unwrap().unwrap();
        assert_eq!(details.payload.get(), stored, "{given}");
    }
    for array in [
        "ARRAY['1', '{\"a\": 2}']::json[]",
        "ARRAY['1', '{\"a\": 2}']::jsonb[]",
    ] {
        let ids = texts(&client, &format!("SELECT gristmill.submit('work', {array})"), &[]).await;
        assert_eq!(ids.len(), 2, "{array}");
        let second = case.store.job(id_of(&ids[1])).await.unwrap().unwrap();
        assert_eq!(second.payload.get(), "{\"a\": 2}");
    }
}

/// What holds for all jobs of a submit is stored as the Rust side stores it.
#[tokio::test]
async fn options_are_kept() {
    let case = Case::new().await;
    let client = case.client().await;
    let plain = texts(&client, "SELECT gristmill.submit('work', '1')", &[]).await;
    let details = case.store.job(id_of(&plain[0])).await.unwrap().unwrap();
    assert_eq!(details.options, BatchOptions::default());
    assert_eq!((&*details.row.kind, &*details.row.queue), ("work", "default"));

    let full = texts(
        &client,
        "SELECT gristmill.submit('work', '1', queue => 'large', priority => -32768, run_at => '2100-01-01 00:00:00.5Z', \
         expires_at => '2100-01-02Z', options => '{\"timeout_ms\": 5000, \"retry\": {\"attempts_max\": 7, \"backoff\": \"linear\"}}')",
        &[],
    )
    .await;
    let details = case.store.job(id_of(&full[0])).await.unwrap().unwrap();
    let run_at = Timestamp(4_102_444_800_500);
    let options = BatchOptions {
        group: None,
        priority: i16::MIN,
        run_at: Some(run_at),
        expires_at: Some(Timestamp(4_102_531_200_000)),
        timeout_ms: Some(5_000),
        retry: RetryPolicy {
            attempts_max: 7,
            backoff: Backoff::Linear,
            ..RetryPolicy::default()
        },
        unique: None,
    };
    assert_eq!(details.options, options);
    assert_eq!(
        (&*details.row.queue, details.row.priority, details.row.run_at),
        ("large", i16::MIN, Some(run_at))
    );
}

/// A transaction that keeps its snapshot, and cannot see that the kind is known by now, is told to begin again.
#[tokio::test]
async fn an_old_snapshot_is_told_to_begin_again() {
    let case = Case::new().await;
    let (old, new) = (case.client().await, case.client().await);
    old.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
        .await
        .unwrap();
    texts(&new, "SELECT gristmill.submit('work', '1')", &[]).await;
    let error = refusal(&old, "SELECT gristmill.submit('work', '1')").await;
    assert_eq!(error.code().code(), "40001", "{error}");
    old.batch_execute("ROLLBACK; BEGIN ISOLATION LEVEL REPEATABLE READ")
        .await
        .unwrap();
    texts(&old, "SELECT gristmill.submit('work', '1')", &[]).await;
    old.batch_execute("COMMIT").await.unwrap();
    assert_eq!(case.store.counts(&JobFilter::default()).await.unwrap().total(), 2);
}

/// Wrong input is refused with its name, by a code that programs can tell, and with a remedy; nothing is stored.
#[tokio::test]
async fn wrong_input_is_refused() {
    let case = Case::new().await;
    let client = case.client().await;
    let long = format!("'{}'", "x".repeat(201));
    let cases = [
        ("NULL, '1'", "22004", "kind"),
        ("'', '1'", "22023", "1 to 200 bytes"),
        (&format!("{long}, '1'"), "22023", "1 to 200 bytes"),
        ("E'a\\u0085', '1'", "22023", "control characters"),
        ("'work', '1', queue => E'a\\nb'", "22023", "queue"),
        ("'work', '1', queue => NULL", "22004", "queue"),
        ("'work', '{\"a\":}'", "22P02", "json"),
        ("'work', ARRAY['1', NULL]::json[]", "22004", "payload 2"),
        ("'work', NULL::json", "22004", "payload 1"),
        ("'work', '\"\\ud800\"'::json", "22P05", "surrogate"),
        (
            "'work', '[\"\\ud83d\\ud83d\\ude00\"]'::json",
            "22P05",
            "surrogate",
        ),
        ("'work', '\"\\\\\\ude00\"'::json", "22P05", "surrogate"),
        ("'work', to_json(repeat('x', 16777216))", "54000", "16777216"),
        ("'work', '1', priority => 32768", "22023", "32768"),
        ("'work', '1', priority => NULL", "22023", "priority"),
        ("'work', '1', run_at => 'infinity'", "22008", "run_at"),
        ("'work', '1', expires_at => '1969-12-31Z'", "22008", "expires_at"),
        ("'work', '1', options => '[]'", "22023", "object"),
        ("'work', '1', options => '{\"priorty\": 1}'", "22023", "priorty"),
        (
            "'work', '1', options => '{\"timeout_ms\": 0}'",
            "22023",
            "timeout_ms",
        ),
        ("'work', '1', options => '{\"timeout_ms\": 1.5}'", "22023", "1.5"),
        (
            "'work', '1', options => '{\"timeout_ms\": \"1\"}'",
            "22023",
            "timeout_ms",
        ),
        ("'work', '1', options => '{\"retry\": 3}'", "22023", "retry"),
        (
            "'work', '1', options => '{\"retry\": {\"attempts_max\": 0}}'",
            "22023",
            "attempts_max",
        ),
        (
            "'work', '1', options => '{\"retry\": {\"attempts_max\": 1001}}'",
            "22023",
            "attempts_max",
        ),
        (
            "'work', '1', options => '{\"retry\": {\"backoff\": \"wild\"}}'",
            "22023",
            "wild",
        ),
        (
            "'work', '1', options => '{\"retry\": {\"delay\": 1}}'",
            "22023",
            "delay",
        ),
    ];
    for (arguments, code, says) in cases {
        let error = refusal(&client, &format!("SELECT gristmill.submit({arguments})")).await;
        assert_eq!(error.code().code(), code, "{arguments}: {error}");
        assert!(error.message().contains(says), "{error} does not say {says}");
        assert!(error.hint().is_some() || code == "22P02", "{error} has no remedy");
    }
    assert_eq!(case.store.counts(&JobFilter::default()).await.unwrap().total(), 0);
}
