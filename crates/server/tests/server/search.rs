//! The search for a text among the newest jobs, on both stores.

use axum::http::StatusCode;
use gristmill_model::{FailedJob, JobError};
use gristmill_server::Role;
use serde_json::{Value, json};

use crate::support::{Api, completing};

/// The jobs that a search finds, how many it looked at, and whether those are all.
async fn found(api: &Api, query: &str) -> (Vec<String>, u64, bool) {
    let answer = api.get(&format!("/jobs?{query}")).await;
    assert_eq!(answer.status, StatusCode::OK, "{query}");
    let page = answer.json();
    let jobs = page["jobs"].as_array().unwrap().iter();
    let searched = &page["searched"];
    (
        jobs.map(|job| job["job"].as_str().unwrap().to_owned()).collect(),
        searched["jobs"].as_u64().unwrap(),
        searched["all"].as_bool().unwrap(),
    )
}

/// Completes the first job of the batch with a value, and fails the second.
async fn work(api: &Api, value: &str, message: &str) {
    let token = api.token("group", Role::Agent, &["default"]);
    let worker = api.register(&token).await;
    let lease = api.claim(&token, worker, api.wanting(1, 2)).await;
    let mut report = completing(&lease, "0", value);
    report.failed = vec![FailedJob {
        position: 1,
        error: JobError::new("E", message).permanent(),
        duration_us: 1,
    }];
    api.report(&token, worker, 2, report).await;
}

async fn texts_are_found(api: Api) {
    assert_eq!(found(&api, "text=x").await, (vec![], 0, true));
    api.submit("mail", json!([{"to": "ann"}, {"to": "bob"}, {"to": "eve"}]))
        .await;
    work(&api, r#"["sent to the Moon"]"#, "mailbox of bob is full").await;
    api.submit("mail", json!(["moon", 1, "Moon"])).await;
    let slow = json!({"kind": "other", "payload": "moon", "queue": "slow"});
    assert_eq!(api.post("/jobs", &slow).await.status, StatusCode::CREATED);
    let all = |jobs: &[&str], searched| {
        let jobs = jobs.iter().map(|job| (*job).to_owned()).collect::<Vec<_>>();
        (jobs, searched, true)
    };
    for (query, expected) in [
        ("text=moon", all(&["3:0", "2:2", "2:0", "1:0"], 7)),
        ("text=moon&kind=mail", all(&["2:2", "2:0", "1:0"], 6)),
        ("text=moon&states=completed", all(&["1:0"], 1)),
        ("text=moon&queue=slow", all(&["3:0"], 1)),
        ("text=BOB", all(&["1:1"], 7)),
        ("text=is%20full", all(&["1:1"], 7)),
        ("text=%22to%22%3A%22eve%22", all(&["1:2"], 7)),
        ("text=mars", all(&[], 7)),
    ] {
        assert_eq!(found(&api, query).await, expected, "{query}");
    }
    let (jobs, searched, is_all) = found(&api, "text=moon&limit=2").await;
    assert_eq!((jobs.len(), searched, is_all), (2, 4, false));
}

#[tokio::test]
async fn texts_of_payloads_values_and_errors_are_found_on_sqlite() {
    texts_are_found(Api::new().await).await;
}

#[tokio::test]
async fn texts_of_payloads_values_and_errors_are_found_on_postgres() {
    texts_are_found(Api::on_postgres().await).await;
}

#[tokio::test]
async fn a_search_says_where_it_ended() {
    let api = Api::new().await;
    let many: Vec<Value> = (0..10_000).map(Value::from).collect();
    api.submit("old", json!(["needle"])).await;
    for _ in 0..10 {
        api.submit("new", Value::from(many.clone())).await;
    }
    assert_eq!(found(&api, "text=needle").await, (vec![], 100_000, false));
    assert_eq!(
        found(&api, "text=needle&kind=old").await,
        (vec!["1:0".to_owned()], 1, true)
    );
}

#[tokio::test]
async fn a_wrong_search_is_refused() {
    let api = Api::new().await;
    let long = format!("/jobs?text={}", "x".repeat(201));
    for (path, says) in [
        ("/jobs?text=", "1 to 200 bytes"),
        (&*long, "1 to 200 bytes"),
        ("/jobs?text=a&limit=101", "a `limit` of 1 to 100"),
        ("/jobs?text=a&after=1:0", "omit `after`"),
        ("/jobs/count?text=a", "`GET /jobs`"),
        ("/jobs/ids?text=a", "`GET /jobs`"),
    ] {
        let answer = api.get(path).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{path}");
        assert!(answer.refusal().contains(says), "{path}: {}", answer.refusal());
    }
}
