//! Workers that speak JSON: claims and reports.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::http::StatusCode;
use gristmill_server::Role;
use serde_json::{Value, json};

use crate::support::{Answer, Api, request};

/// How long a test waits for what must come.
const DEADLINE: Duration = Duration::from_secs(20);

async fn post(api: &Api, token: &str, path: &str, body: &Value) -> Answer {
    let body = body.to_string().into();
    api.send(request("POST", path, Some(token), Some("application/json"), body))
        .await
}

/// An outcome of a claimed job.
fn outcome(job: &Value, more: Value) -> Value {
    let mut outcome = json!({"job": job["job"], "lease": job["lease"], "attempt": job["attempt"]});
    outcome
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    outcome
}

async fn running(api: &Api) -> u64 {
    let stats = api.engine.store().stats().await.unwrap();
    stats.kinds.iter().map(|kind| kind.counts.running).sum()
}

#[tokio::test]
async fn a_worker_claims_and_reports_in_json() {
    let api = Api::new().await;
    let token = api.token("group", Role::Agent, &["default"]);
    let body = json!({"kind": "double", "payloads": [1, {"a": 2}, 3, 4], "keys": ["k", null, null, null],
        "tags": {"customer": "7"}, "timeout_ms": 900, "retry": {"attempts_max": 2, "delay_ms": 60_000}});
    assert_eq!(api.post("/jobs", &body).await.status, StatusCode::CREATED);

    let claimed = post(
        &api,
        &token,
        "/claims",
        &json!({"kinds": ["double"], "jobs_max": 10}),
    )
    .await;
    assert_eq!(claimed.status, StatusCode::OK, "{}", claimed.json());
    let claimed = claimed.json();
    let (worker, jobs) = (&claimed["worker"], claimed["jobs"].as_array().unwrap());
    assert_eq!(jobs.len(), 4);
    assert_eq!(
        (
            &jobs[0]["key"],
            &jobs[0]["tags"],
            &jobs[0]["timeout_ms"],
            &jobs[1]["payload"]
        ),
        (
            &json!("k"),
            &json!({"customer": "7"}),
            &json!(900),
            &json!({"a": 2})
        )
    );
    assert!(jobs[1].get("key").is_none());

    let report = json!({"worker": worker, "outcomes": [
        outcome(&jobs[0], json!({"value": null, "duration_ms": 1.5, "log": "printed"})),
        outcome(&jobs[1], json!({"error": {"type": "Broken", "message": "no", "permanent": true}})),
        outcome(&jobs[2], json!({"error": "later"})),
        outcome(&jobs[3], json!({"released": true})),
    ]});
    let reported = post(&api, &token, "/reports", &report).await;
    assert_eq!(reported.status, StatusCode::OK, "{}", reported.json());
    let reported = reported.json();
    assert_eq!(
        reported,
        json!({"accepted": 4, "refused": [], "dead": [jobs[1]["job"]], "cancelled": []})
    );
    let again = post(&api, &token, "/reports", &report).await.json();
    assert_eq!(
        (&again["accepted"], &again["refused"]),
        (&json!(4), &json!([])),
        "{again}"
    );

    let mut states = Vec::new();
    for job in jobs {
        let id = job["job"].as_str().unwrap();
        let stored = api.get(&format!("/jobs/{id}")).await.json();
        states.push(stored["state"].as_str().unwrap().to_owned());
        if id == jobs[0]["job"] {
            assert_eq!(
                (&stored["value"], &stored["log"]),
                (&json!(null), &json!("printed"))
            );
            assert_eq!(stored["duration_us"], 1_500);
        }
    }
    assert_eq!(states, ["completed", "dead", "scheduled", "waiting"]);

    let next = post(&api, &token, "/claims", &json!({"worker": worker}))
        .await
        .json();
    assert_eq!(
        (&next["worker"], &next["jobs"][0]["job"]),
        (worker, &jobs[3]["job"])
    );
}

#[tokio::test]
async fn a_claim_waits_for_a_job() {
    let api = Api::new().await;
    let token = api.token("group", Role::Agent, &["*"]);
    let body = json!({"wait_ms": 20_000, "queues": ["a", "b"]});
    let claim = post(&api, &token, "/claims", &body);
    let submit = async {
        api.post("/jobs", &json!({"kind": "double", "payload": 1, "queue": "b"}))
            .await;
        // The server that listens does this when the store has work; this one does not listen.
        api.app.wake.ring();
    };
    let (claimed, ()) = tokio::time::timeout(DEADLINE, async { tokio::join!(claim, submit) })
        .await
        .unwrap();
    assert_eq!(claimed.json()["jobs"][0]["payload"], 1);
}

#[tokio::test]
async fn jobs_of_a_client_that_went_away_are_released() {
    let api = Api::new().await;
    let token = api.token("group", Role::Agent, &["default"]);
    api.submit("double", json!([1])).await;
    {
        let body = json!({});
        let mut claim = pin!(post(&api, &token, "/claims", &body));
        let mut context = Context::from_waker(Waker::noop());
        let deadline = tokio::time::Instant::now() + DEADLINE;
        // The request is looked at until the job is claimed, and not any more when the answer is there.
        while running(&api).await == 0 {
            assert!(tokio::time::Instant::now() < deadline, "nothing is claimed");
            let Poll::Pending = claim.as_mut().poll(&mut context) else {
                panic!("the claim is answered before it is seen in the store");
            };
        }
    }
    let deadline = tokio::time::Instant::now() + DEADLINE;
    while running(&api).await > 0 {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the job is held for a client that is gone"
        );
        tokio::task::yield_now().await;
    }
    let claimed = post(&api, &token, "/claims", &json!({})).await.json();
    assert_eq!(
        (&claimed["jobs"][0]["payload"], &claimed["jobs"][0]["attempt"]),
        (&json!(1), &json!(1))
    );
}

#[tokio::test]
async fn cancelled_jobs_are_told_and_their_outcomes_refused() {
    let api = Api::new().await;
    let token = api.token("group", Role::Agent, &["default"]);
    let batch = api.submit("double", json!([1, 2])).await;
    let claimed = post(&api, &token, "/claims", &json!({"jobs_max": 2}))
        .await
        .json();
    let first = format!("{batch}:0");
    api.post("/jobs/cancel", &json!({"jobs": [first]})).await;
    let outcomes: Vec<Value> = claimed["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| outcome(job, json!({"value": 1})))
        .collect();
    let report = json!({"worker": claimed["worker"], "outcomes": outcomes});
    let reported = post(&api, &token, "/reports", &report).await.json();
    assert_eq!(
        reported,
        json!({"accepted": 1, "refused": [first], "dead": [], "cancelled": [first]})
    );
}

#[tokio::test]
async fn wrong_claims_and_reports_are_refused_whole() {
    let api = Api::new().await;
    let token = api.token("group", Role::Agent, &["default"]);
    api.submit("double", json!([1, 2])).await;
    for (body, says) in [
        (json!({"wait_ms": 30_001}), "30000"),
        (json!({"jobs_max": 0}), "1 to 10000"),
        (json!({"queues": []}), "name at least one"),
        (json!({"queues": ["other"]}), "`other`"),
        (json!({"name": "a\nb"}), "control characters"),
        (json!({"worker": 99}), "worker 99"),
        (json!({"kind": "double"}), "unknown field `kind`"),
    ] {
        let refusal = post(&api, &token, "/claims", &body).await.refusal();
        assert!(refusal.contains(says), "{refusal} does not say {says}");
    }
    assert_eq!(running(&api).await, 0);
    let claimed = post(&api, &token, "/claims", &json!({"jobs_max": 2}))
        .await
        .json();
    let (worker, job) = (&claimed["worker"], &claimed["jobs"][0]);
    let good = outcome(&claimed["jobs"][1], json!({"value": 1}));
    for (wrong, says) in [
        (json!({}), "exactly one"),
        (json!({"value": 1, "error": "no"}), "exactly one"),
        (json!({"value": 1, "duration_ms": -1}), "duration_ms"),
        (json!({"error": {"type": "x"}}), "message"),
        (json!({"value": 1, "attempt": 0}), "as the claim answered"),
    ] {
        let outcomes = [good.clone(), outcome(job, wrong)];
        let report = json!({"worker": worker, "outcomes": outcomes});
        let refusal = post(&api, &token, "/reports", &report).await.refusal();
        assert!(refusal.contains(says), "{refusal} does not say {says}");
    }
    let twice = json!({"worker": worker, "outcomes": [good, good]});
    assert!(
        post(&api, &token, "/reports", &twice)
            .await
            .refusal()
            .contains("another outcome")
    );
    let none = json!({"worker": worker, "outcomes": []});
    assert!(
        post(&api, &token, "/reports", &none)
            .await
            .refusal()
            .contains("1 to 10000")
    );
    assert_eq!(running(&api).await, 2, "nothing of a refused report is stored");
}
