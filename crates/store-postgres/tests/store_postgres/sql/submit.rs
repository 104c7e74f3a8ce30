//! `gristmill.submit`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gristmill_model::{
    Backoff, BatchOptions, JobId, JobState, KeyedBatch, NewBatch, PackedArray, RetryPolicy, Timestamp, Unique,
};
use gristmill_store::{JobFilter, Store, WorkSeen};
use gristmill_store_conformance::fixture::*;

use super::case::{Case, refusal, row, texts};

fn id_of(text: &str) -> JobId {
    text.parse().unwrap()
}

/// Jobs and the rows they belong to are stored together, or not at all.
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
        // A sleeping worker holds the lock, and has looked once more since it got the lock.
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

/// Ids are in the order of the payloads; batches are cut where the Rust side cuts them.
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

/// Payloads keep their text, whatever their type; only line feeds between tokens become blanks.
#[tokio::test]
async fn payloads_are_kept_as_they_are() {
    let case = Case::new().await;
    let client = case.client().await;
    let cases = [
        ("'{\"a\":  1.50}'", "{\"a\":  1.50}"),
        ("'{\"a\":  1.50}'::json", "{\"a\":  1.50}"),
        ("'{\"a\":  1.50}'::jsonb", "{\"a\": 1.50}"),
        ("E'\\n[1,\\r\\n 2]\\t'::json", "[1,   2]"),
        // PostgreSQL's text cannot hold the character, but its json can, as an escape.
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

/// Options for all jobs of a submit are stored as the Rust side stores them.
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
         expires_at => '2100-01-02Z', options => '{\"timeout_ms\": 5000, \"complete_within_ms\": 60000, \
         \"retry\": {\"attempts_max\": 7, \"backoff\": \"linear\"}}')",
        &[],
    )
    .await;
    let details = case.store.job(id_of(&full[0])).await.unwrap().unwrap();
    let run_at = Timestamp(4_102_444_800_500);
    let options = BatchOptions {
        group: None,
        hooks: None,
        prerequisites: Vec::new(),
        priority: i16::MIN,
        run_at: Some(run_at),
        expires_at: Some(Timestamp(4_102_531_200_000)),
        timeout_ms: Some(5_000),
        complete_within_ms: Some(60_000),
        cached_ms: None,
        retry: RetryPolicy {
            attempts_max: 7,
            backoff: Backoff::Linear,
            ..RetryPolicy::default()
        },
        unique: None,
        signal: None,
        traceparent: None,
    };
    assert_eq!(details.options, options);
    assert_eq!(
        (&*details.row.queue, details.row.priority, details.row.run_at),
        ("large", i16::MIN, Some(run_at))
    );
}

/// A transaction whose snapshot does not show that the kind is known by now is told to begin again.
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

/// Invalid input is refused with its name, a code for programs, and a remedy; nothing is stored.
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

/// Tags of all jobs and of single jobs are stored with their batches.
#[tokio::test]
async fn jobs_have_tags() {
    let case = Case::new().await;
    let client = case.client().await;
    let all = texts(
        &client,
        "SELECT gristmill.submit('work', '1', options => '{\"tags\": {\"customer\": \"7\"}}')",
        &[],
    )
    .await;
    let each = texts(
        &client,
        "SELECT gristmill.submit('work', ARRAY['1', '2', '3']::json[], \
         options => '{\"tags\": [{\"customer\": \"7\", \"page\": \"b\"}, null, {\"customer\": \"8\"}]}')",
        &[],
    )
    .await;
    let tags = |id: &str| {
        let id = id_of(id);
        let store = &case.store;
        async move { store.job(id).await.unwrap().unwrap().tags }
    };
    let tag = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(tags(&all[0]).await, [tag("customer", "7")].into());
    assert_eq!(
        tags(&each[0]).await,
        [tag("customer", "7"), tag("page", "b")].into()
    );
    assert_eq!(tags(&each[1]).await, [].into());
    // A claim by a handle that did not submit them finds them too.
    let worker = worker(&case.store).await;
    case.catch_up();
    let lease = claim(&case.store, worker, 4).await.unwrap();
    let leased = |number: usize, position: u32| {
        let labels = lease.slices[number].labels.as_ref();
        labels.map(|labels| labels.tags_of(position)).unwrap_or_default()
    };
    assert_eq!(leased(0, 0), [tag("customer", "7")].into());
    assert_eq!(leased(1, 0), [tag("customer", "7"), tag("page", "b")].into());
    assert_eq!(leased(1, 1), [].into());
    let values = case.store.tag_values("customer", None, 9).await.unwrap();
    let values: Vec<(&str, u64)> = values
        .iter()
        .map(|value| (value.value.as_str(), value.jobs))
        .collect();
    assert_eq!(values, [("7", 2), ("8", 1)]);
    for wrong in ["7", "[]", "[{\"a\": 1}]", "{\"a=b\": \"1\"}", "{\"\": \"1\"}"] {
        let sql = format!("SELECT gristmill.submit('work', '1', options => '{{\"tags\": {wrong}}}')");
        let error = refusal(&client, &sql).await;
        assert_eq!(error.code().code(), "22023", "{sql}: {error}");
    }
    assert_eq!(case.store.counts(&JobFilter::default()).await.unwrap().total(), 4);
}

/// Jobs wait for batches and jobs, including those that have ended already.
#[tokio::test]
async fn jobs_wait_for_others() {
    let case = Case::new().await;
    let client = case.client().await;
    let first = submit(&case.store, batch(3)).await;
    let after = |after: &str, policy: &str| {
        format!(
            "SELECT gristmill.submit('work', '1', options => '{{\"after\": {after}, \"after_failure\": \"{policy}\"}}')"
        )
    };
    let part = texts(&client, &after(&format!("[\"{first}:0,2\"]"), "cancel"), &[]).await;
    let both = texts(
        &client,
        &after(&format!("[\"{first}\", \"{}\"]", part[0]), "fail"),
        &[],
    )
    .await;
    let state = |id: &str| {
        let id = id_of(id);
        let store = &case.store;
        async move { store.job(id).await.unwrap().unwrap().row.state }
    };
    assert_eq!(state(&part[0]).await, JobState::Blocked);
    let kept = case.store.job(id_of(&both[0])).await.unwrap().unwrap().options;
    let kept: Vec<_> = kept
        .prerequisites
        .iter()
        .map(|one| (one.batch, one.positions.clone()))
        .collect();
    assert_eq!(
        kept,
        [(first, None), (id_of(&part[0]).batch, Some(positions("0")))]
    );
    let kept = case.store.job(id_of(&part[0])).await.unwrap().unwrap().options;
    assert_eq!(kept.prerequisites[0].positions, Some(positions("0,2")));
    let worker = worker(&case.store).await;
    let lease = claim(&case.store, worker, 3).await.unwrap();
    let done = completed_at(&lease.slices[0], &positions("0,2"));
    exchange(&case.store, worker, vec![done], None).await;
    case.catch_up();
    assert_eq!(state(&part[0]).await, JobState::Waiting);
    assert_eq!(state(&both[0]).await, JobState::Blocked);
    let failed = failed_at(&lease.slices[0], &positions("1"), &error().permanent());
    exchange(&case.store, worker, vec![failed], None).await;
    case.catch_up();
    let lease = claim(&case.store, worker, 3).await.unwrap();
    assert_eq!(held(&Some(lease.clone())), part);
    exchange(&case.store, worker, vec![completed(&lease.slices[0])], None).await;
    assert_eq!(state(&both[0]).await, JobState::Dead);
    let over = texts(&client, &after(&format!("[\"{first}:0\"]"), "cancel"), &[]).await;
    case.catch_up();
    assert_eq!(state(&over[0]).await, JobState::Waiting);
    for (wrong, policy) in [
        ("[\"999\"]".to_owned(), "cancel"),
        (format!("[\"{first}:3\"]"), "cancel"),
        (format!("[\"{first}:\"]"), "cancel"),
        ("[42]".to_owned(), "cancel"),
        ("\"42\"".to_owned(), "cancel"),
        (format!("[\"{first}\"]"), "wild"),
    ] {
        let error = refusal(&client, &after(&wrong, policy)).await;
        assert_eq!(error.code().code(), "22023", "{wrong}: {error}");
    }
}

/// A job with another job's key is skipped, replaces the other one, or is refused; this includes jobs of the store's
/// own submit.
#[tokio::test]
async fn jobs_have_keys() {
    let case = Case::new().await;
    let client = case.client().await;
    let keyed = |payloads: &str, keys: &str, unique: &str| {
        format!(
            "SELECT gristmill.submit('work', '{payloads}'::json[], priority => 3, \
             options => '{{\"keys\": {keys}, \"unique\": {{{unique}}}, \"tags\": {{\"by\": \"sql\"}}}}')"
        )
    };
    let first = texts(&client, &keyed("{1,2,3,4}", r#"["a", "b", null, "a"]"#, ""), &[]).await;
    let batch = id_of(&first[0]).batch;
    assert_eq!(first, [2, 0, 1, 2].map(|position| format!("{batch}:{position}")));
    let details = case.store.job(id_of(&first[0])).await.unwrap().unwrap();
    assert_eq!((details.key.as_deref(), details.payload.get()), (Some("a"), "4"));
    assert_eq!(details.options.unique, Some(Unique::default()));
    let again = texts(&client, &keyed("{5,6}", r#"["b", "c"]"#, ""), &[]).await;
    assert_eq!(again[0], first[1]);
    // The store finds these keys, and this function finds keys that the store submits.
    let of_store = KeyedBatch::new(
        NewBatch::new("work", payloads(2)),
        PackedArray::parse(r#"["c","d"]"#).unwrap(),
        Unique::default(),
    );
    let submitted = case.store.submit_keyed(vec![of_store]).await.unwrap().remove(0);
    assert_eq!(submitted.jobs[0].to_string(), again[1]);
    let replaced = texts(
        &client,
        &keyed("{7}", r#"["d"]"#, r#""on_duplicate": "replace""#),
        &[],
    )
    .await;
    let state = case
        .store
        .job(submitted.jobs[1])
        .await
        .unwrap()
        .unwrap()
        .row
        .state;
    assert_eq!(state, JobState::Cancelled);
    assert_ne!(replaced[0], submitted.jobs[1].to_string());
    let reject = keyed("{8}", r#"["d"]"#, r#""on_duplicate": "reject""#);
    let error = refusal(&client, &reject).await;
    assert_eq!(error.code().code(), "23505", "{error}");
    assert!(error.message().contains(&replaced[0]), "{error}");
    let one = "SELECT gristmill.submit('work', '9', options => '{\"key\": \"a\"}')";
    assert_eq!(texts(&client, one, &[]).await, [first[0].clone()]);
    for (options, code) in [
        (r#"{"key": ""}"#, "22023"),
        (r#"{"keys": ["a", "b"]}"#, "22023"),
        (r#"{"unique": {}}"#, "22023"),
        (r#"{"key": "x", "unique": {"on_duplicate": "rerun"}}"#, "22023"),
        (r#"{"key": "x", "after": ["1"]}"#, "22023"),
        (r#"{"kez": "x"}"#, "22023"),
    ] {
        let sql = format!("SELECT gristmill.submit('work', '1', options => '{options}')");
        let error = refusal(&client, &sql).await;
        assert_eq!(error.code().code(), code, "{sql}: {error}");
    }
}
