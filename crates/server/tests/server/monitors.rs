//! The data that a token for `monitor` can read, and the data that is hidden from it.

use std::sync::atomic::Ordering;

use axum::http::StatusCode;
use bytes::Bytes;
use gristmill_model::{FailedJob, JobError};
use gristmill_server::Role;
use serde_json::{Value, json};

use crate::support::{Answer, Api, completing, request};

const SECRET: &str = "swordfish";

async fn read(api: &Api, token: &str, path: &str) -> Answer {
    api.send(request("GET", path, Some(token), None, Bytes::new()))
        .await
}

/// A completed and a dead job with the secret in the payload, the value and the traceback, and a schedule with it.
async fn with_secrets() -> Api {
    let api = Api::new().await;
    api.submit("mail", json!([{"to": SECRET}, {"to": SECRET}])).await;
    let agent = api.token("group", Role::Agent, &["default"]);
    let worker = api.register(&agent).await;
    let lease = api.claim(&agent, worker, api.wanting(1, 2)).await;
    let mut report = completing(&lease, "0", &format!("[\"{SECRET}\"]"));
    let mut error = JobError::new("E", "mailbox full").permanent();
    error.traceback = Some(format!("line 7: {SECRET}"));
    report.failed = vec![FailedJob {
        position: 1,
        error,
        duration_us: 1,
    }];
    api.report(&agent, worker, 2, report).await;
    let nightly = json!({"kind": "mail", "payload": SECRET, "rule": {"every": {"interval_ms": 3_600_000}}});
    let put = api.call("PUT", "/schedules/nightly", &nightly).await;
    assert!(put.status.is_success());
    api
}

#[tokio::test]
async fn a_monitor_reads_jobs_without_their_contents() {
    let api = with_secrets().await;
    let monitor = api.token("wall", Role::Monitor, &["*"]);
    for path in [
        "/jobs",
        "/jobs/1:0",
        "/jobs/1:1",
        "/jobs/count",
        "/jobs/ids",
        "/batches",
        "/queues",
        "/runs",
        "/history",
        "/workers",
        "/schedules",
        "/schedules/nightly",
        "/controls",
        "/tags/customer",
        "/stats",
        "/backlog",
    ] {
        let answer = read(&api, &monitor, path).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}");
        assert!(!String::from_utf8_lossy(&answer.body).contains(SECRET), "{path}");
    }
    let dead = read(&api, &monitor, "/jobs/1:1").await.json();
    assert_eq!((&dead["payload"], &dead["hidden"]), (&Value::Null, &json!(true)));
    assert_eq!(dead["failures"][0]["message"], "mailbox full");
    let shown = api.get("/jobs/1:1").await.json();
    assert_eq!(shown["payload"], json!({"to": SECRET}));
    assert_eq!(shown.get("hidden"), None);
    for path in [
        "/jobs?text=swordfish",
        "/results?batches=1",
        "/logs?job=1:0",
        "/memory",
    ] {
        let refused = read(&api, &monitor, path).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{path}");
    }
}

#[tokio::test]
async fn a_setting_shows_monitors_the_contents_of_jobs() {
    let api = with_secrets().await;
    let monitor = api.token("wall", Role::Monitor, &["*"]);
    api.app.monitors_see_payloads.store(true, Ordering::Relaxed);
    let completed = read(&api, &monitor, "/jobs/1:0").await.json();
    assert_eq!(
        (&completed["payload"], &completed["value"]),
        (&json!({"to": SECRET}), &json!(SECRET))
    );
    let schedule = read(&api, &monitor, "/schedules/nightly").await.json();
    assert_eq!(schedule["payload"], SECRET);
    let found = read(&api, &monitor, "/jobs?text=swordfish").await.json();
    assert_eq!(found["jobs"].as_array().unwrap().len(), 2);
}

/// A blocked job shows the jobs that it waits for.
#[tokio::test]
async fn a_blocked_job_names_its_prerequisites() {
    let api = Api::new().await;
    let first = api.submit("mail", json!([1, 2, 3])).await;
    let after =
        json!({"kind": "report", "payload": 1, "after": [format!("{first}:1")], "after_failure": "fail"});
    let second = api.post("/jobs", &after).await.json();
    let id = second["first"].as_str().unwrap();
    let prerequisites = &api.get(&format!("/jobs/{id}")).await.json()["prerequisites"];
    assert_eq!(prerequisites.as_array().unwrap().len(), 1);
    let only = &prerequisites[0];
    assert_eq!(
        (
            &only["batch"],
            &only["positions"],
            &only["on_failure"],
            &only["states"]["waiting"]
        ),
        (&json!(first), &json!("1"), &json!("fail"), &json!(1))
    );
}
