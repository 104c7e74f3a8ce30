//! The backlog that autoscalers read, on both stores.

use axum::http::StatusCode;
use bytes::Bytes;
use gristmill_server::Role;
use serde_json::{Value, json};

use crate::support::{Api, completing, request};

async fn counts(api: &Api, query: &str) -> [u64; 5] {
    let answer = api.get(&format!("/backlog{query}")).await;
    assert_eq!(answer.status, StatusCode::OK, "{query}");
    let backlog = answer.json();
    assert!(backlog["oldest_due_seconds"].as_f64().unwrap() >= 0.0);
    assert!(backlog["counted_at"].as_i64().unwrap() > 0);
    ["jobs", "due", "running", "held_back", "later"].map(|name| backlog[name].as_u64().unwrap())
}

/// Completes the first of two claimed jobs of a kind.
async fn claim_two_complete_one(api: &Api, kind: &str) {
    let token = api.token("group", Role::Agent, &["default"]);
    let worker = api.register(&token).await;
    let mut exchange = api.wanting(1, 2);
    exchange.want.as_mut().unwrap().kinds = vec![kind.into()];
    let lease = api.claim(&token, worker, exchange).await;
    assert_eq!(counts(api, "?kind=mail").await, [3, 1, 2, 0, 2]);
    api.report(&token, worker, 2, completing(&lease, "0", "[1]"))
        .await;
}

async fn backlog_of_kinds_and_queues(api: Api) {
    assert_eq!(counts(&api, "").await, [0; 5]);
    api.submit("mail", json!([1, 2, 3])).await;
    api.submit("resize", json!([1, 2])).await;
    for job in [
        json!({"kind": "mail", "payloads": [4, 5], "delay_ms": 3_600_000}),
        json!({"kind": "crawl", "payload": 1, "queue": "slow"}),
    ] {
        assert_eq!(api.post("/jobs", &job).await.status, StatusCode::CREATED);
    }
    for (query, expected) in [
        ("", [6, 6, 0, 0, 2]),
        ("?kind=mail", [3, 3, 0, 0, 2]),
        ("?queue=slow", [1, 1, 0, 0, 0]),
        ("?kind=mail&queue=slow", [0; 5]),
        ("?kind=unknown", [0; 5]),
        ("?queue=unknown", [0; 5]),
    ] {
        assert_eq!(counts(&api, query).await, expected, "{query}");
    }
    let pause = json!({"controls": [{"scope": {"kind": "mail"}, "effect": {"pause": {"reason": "deploy"}}}]});
    assert!(api.call("PUT", "/controls", &pause).await.status.is_success());
    assert_eq!(counts(&api, "?kind=mail").await, [0, 0, 0, 3, 2]);
    assert_eq!(counts(&api, "").await, [3, 3, 0, 3, 2]);
    let lifted = api
        .post("/controls/lift", &json!({"reason": "deploy"}))
        .await
        .json();
    assert_eq!(lifted["lifted"], 1);
    claim_two_complete_one(&api, "mail").await;
    assert_eq!(counts(&api, "?kind=mail").await, [2, 1, 1, 0, 2]);
}

#[tokio::test]
async fn the_backlog_counts_open_jobs_by_kind_and_queue_on_sqlite() {
    backlog_of_kinds_and_queues(Api::new().await).await;
}

#[tokio::test]
async fn the_backlog_counts_open_jobs_by_kind_and_queue_on_postgres() {
    backlog_of_kinds_and_queues(Api::on_postgres().await).await;
}

#[tokio::test]
async fn a_token_sees_the_backlog_of_its_queue() {
    let api = Api::new().await;
    api.submit("mail", json!([1, 2, 3])).await;
    let slow = json!({"kind": "mail", "payload": 1, "queue": "slow"});
    assert_eq!(api.post("/jobs", &slow).await.status, StatusCode::CREATED);
    let scaler = api.token("keda", Role::Monitor, &["slow"]);
    let get = |path: &str| request("GET", path, Some(&scaler), None, Bytes::new());
    let own = api.send(get("/backlog")).await;
    assert_eq!(
        (own.status, &own.json()["jobs"]),
        (StatusCode::OK, &Value::from(1))
    );
    let other = api.send(get("/backlog?queue=default")).await;
    assert_eq!(other.status, StatusCode::FORBIDDEN);
    assert!(other.refusal().contains("`default`"));
}

/// Batches of one job: more than the server counts for each caller.
const MANY: u64 = 2_100;

async fn backlog_of_many_batches(api: Api) {
    let submits = (0..MANY).map(|_| api.submit("mail", json!([1])));
    futures::future::join_all(submits).await;
    assert_eq!(counts(&api, "?kind=mail").await, [MANY, MANY, 0, 0, 0]);
    assert_eq!(counts(&api, "?kind=unknown").await, [0; 5]);
    // An answer is a little old, and a later one has the change.
    api.submit("mail", json!([1, 2])).await;
    let mut counted_at = 0;
    loop {
        let backlog = api.get("/backlog").await.json();
        let at = backlog["counted_at"].as_i64().unwrap();
        assert!(at >= counted_at, "{at} after {counted_at}");
        counted_at = at;
        match backlog["jobs"].as_u64().unwrap() {
            MANY => tokio::task::yield_now().await,
            jobs => break assert_eq!(jobs, MANY + 2),
        }
    }
}

#[tokio::test]
async fn the_backlog_of_many_batches_is_counted_ahead_on_sqlite() {
    backlog_of_many_batches(Api::new().await).await;
}

#[tokio::test]
async fn the_backlog_of_many_batches_is_counted_ahead_on_postgres() {
    backlog_of_many_batches(Api::on_postgres().await).await;
}
