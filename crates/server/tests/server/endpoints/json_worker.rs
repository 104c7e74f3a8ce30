//! Workers that speak JSON: claims and reports.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
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
    let worker = post(&api, &token, "/claims", &json!({})).await.json()["worker"].clone();
    api.submit("double", json!([1])).await;
    {
        let body = json!({"worker": worker});
        let mut claim = pin!(post(&api, &token, "/claims", &body));
        // A registered worker's claim begins at the first look. The client does not look again.
        let looked = claim.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(looked.is_pending());
        let deadline = tokio::time::Instant::now() + DEADLINE;
        while running(&api).await == 0 {
            assert!(tokio::time::Instant::now() < deadline, "nothing is claimed");
            tokio::task::yield_now().await;
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

#[tokio::test]
async fn a_repeated_wait_of_a_flow_is_accepted_and_one_of_a_cancelled_flow_is_refused() {
    let api = Api::new().await;
    let token = api.token("group", Role::Agent, &["default"]);
    api.submit("flow", json!([1])).await;
    let claim = async || {
        post(&api, &token, "/claims", &json!({"jobs_max": 9}))
            .await
            .json()
    };
    let report = async |claimed: &Value, spawned: Value| {
        let outcomes = [outcome(&claimed["jobs"][0], json!({"spawned": spawned}))];
        let report = json!({"worker": claimed["worker"], "outcomes": outcomes});
        let reported = post(&api, &token, "/reports", &report).await.json();
        (
            reported["accepted"].as_u64().unwrap(),
            reported["refused"].clone(),
        )
    };
    let none = json!([]);
    // A wait for time that is over at once, so that the flow is claimed again.
    let wait = |memo: &str| {
        let wait = json!({"event": null, "payloads": [null], "until_ms": 0});
        json!({"children": [wait], "memo": [memo], "on_failure": "collect", "flow": true})
    };
    let first = claim().await;
    for _ in 0..2 {
        assert_eq!(report(&first, wait("first")).await, (1, none.clone()));
    }
    api.engine.store().expire().await.unwrap();
    let second = claim().await;
    assert_eq!(second["jobs"][0]["memo"], json!(["first"]), "{second}");
    let anew = json!({"children": [], "memo": [{"begin": 1}], "on_failure": "collect", "flow": true, "wake": "anew"});
    for _ in 0..2 {
        assert_eq!(report(&second, anew.clone()).await, (1, none.clone()));
    }
    let third = claim().await;
    let id = third["jobs"][0]["job"].clone();
    let cancelled = api.post("/jobs/cancel", &json!({"jobs": [id]})).await;
    assert_eq!(cancelled.status, StatusCode::OK, "{}", cancelled.json());
    assert_eq!(report(&third, wait("third")).await, (0, json!([id])));
}

/// Children of job 1:0 that are refused, and what the refusal says.
fn wrong_children() -> Vec<(Value, &'static str)> {
    vec![
        (json!({"payloads": [1]}), "child batch 0"),
        (
            json!({"kind": "child", "payloads": [1], "qeue": "a"}),
            "did you mean `queue`",
        ),
        (
            json!({"kind": "child", "payloads": [1], "queue": "other"}),
            "the children of job 1:0 are refused: the token of `group` does not give access to the queue `other`",
        ),
        (
            json!({"kind": "child", "payloads": [1], "delay_ms": 5}),
            "`delay_ms` is for waits",
        ),
        (
            json!({"event": "go", "payloads": [null], "queue": "default"}),
            "`queue` is for jobs",
        ),
        (
            json!({"event": "go", "payloads": [null, null]}),
            "`payloads` is for jobs",
        ),
        (
            json!({"event": null, "payloads": [null], "delay_ms": 1, "until_ms": 1}),
            "give one of them",
        ),
        (
            json!({"event": null, "payloads": [null], "until_ms": -1}),
            "`until_ms` is -1: give 0 to",
        ),
        (
            json!({"event": null, "payloads": [null], "delay_ms": u64::MAX}),
            "`delay_ms` is",
        ),
    ]
}

#[tokio::test]
async fn a_worker_spawns_children_in_json() {
    let api = Api::new().await;
    let token = api.token("group", Role::Agent, &["default"]);
    api.submit("parent", json!([1])).await;
    let claim = async || {
        post(&api, &token, "/claims", &json!({"jobs_max": 9}))
            .await
            .json()
    };
    let report = async |claimed: &Value, outcomes: Value| {
        let report = json!({"worker": claimed["worker"], "outcomes": outcomes});
        post(&api, &token, "/reports", &report).await
    };
    let claimed = claim().await;
    let parent = &claimed["jobs"][0];
    assert!(parent.get("memo").is_none());
    let spawned = |children: Value| {
        outcome(
            parent,
            json!({"spawned": {"children": [children], "memo": [{"kept": 7}]}}),
        )
    };
    for (wrong, says) in wrong_children() {
        let refusal = report(&claimed, json!([spawned(wrong)])).await.refusal();
        assert!(refusal.contains(says), "{refusal} does not say {says}");
    }
    let good = json!([spawned(
        json!({"kind": "child", "payloads": ["a", "b"], "options": {"priority": 3}})
    )]);
    for _ in 0..2 {
        let reported = report(&claimed, good.clone()).await.json();
        assert_eq!(
            (&reported["accepted"], &reported["refused"]),
            (&json!(1), &json!([]))
        );
    }
    let id = parent["job"].as_str().unwrap();
    assert_eq!(api.get(&format!("/jobs/{id}")).await.json()["state"], "blocked");

    let children = claim().await;
    let jobs = children["jobs"].as_array().unwrap();
    assert_eq!(
        (jobs.len(), &jobs[1]["kind"], &jobs[1]["payload"]),
        (2, &json!("child"), &json!("b"))
    );
    let ended = jobs
        .iter()
        .map(|job| outcome(job, json!({"value": job["payload"]})));
    report(&children, ended.collect()).await;

    let finalizing = claim().await;
    let again = &finalizing["jobs"][0];
    assert_eq!(
        (&again["job"], &again["memo"]),
        (&parent["job"], &json!({"kept": 7}))
    );
    let (batch, position) = id.split_once(':').unwrap();
    let asked = json!({"batch": batch.parse::<u64>().unwrap(), "positions": position});
    let path = format!("/workers/{}/children", finalizing["worker"]);
    let outcomes = post(&api, &token, &path, &asked).await.json();
    let values: Vec<&Value> = outcomes["children"][0]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["value"])
        .collect();
    assert_eq!(values, ["a", "b"]);
    report(&finalizing, json!([outcome(again, json!({"value": "done"}))])).await;
    assert_eq!(api.get(&format!("/jobs/{id}")).await.json()["value"], "done");
}

#[tokio::test]
async fn a_submit_waits_for_its_jobs() {
    let api = Api::new().await;
    let token = api.token("group", Role::Agent, &["default"]);
    let submitted = json!({"kind": "double", "payloads": [1, 2]});
    let submit = api.post("/jobs?wait=30s", &submitted);
    let work = async {
        let claimed = post(
            &api,
            &token,
            "/claims",
            &json!({"jobs_max": 2, "wait_ms": 20_000}),
        )
        .await
        .json();
        let jobs = claimed["jobs"].as_array().unwrap();
        let outcomes = [
            outcome(&jobs[0], json!({"value": {"b": 1.50}})),
            outcome(&jobs[1], json!({"value": 2})),
        ];
        post(
            &api,
            &token,
            "/reports",
            &json!({"worker": claimed["worker"], "outcomes": outcomes}),
        )
        .await;
    };
    let wake = async {
        loop {
            api.app.wake.ring();
            running(&api).await;
        }
    };
    let work = async {
        tokio::select! {
            () = work => (),
            () = wake => (),
        }
    };
    let (answer, ()) = tokio::time::timeout(DEADLINE, async { tokio::join!(submit, work) })
        .await
        .unwrap();
    assert_eq!(answer.status, StatusCode::CREATED);
    let answer = answer.json();
    assert_eq!((&answer["jobs"], &answer["done"]), (&json!(2), &json!(true)));
    assert_eq!(
        (&answer["results"][0]["value"], &answer["results"][1]["state"]),
        (&json!({"b": 1.5}), &json!("completed"))
    );

    let late = api
        .post("/jobs?wait=1ms", &json!({"kind": "double", "payload": 1}))
        .await
        .json();
    assert_eq!((&late["done"], &late["results"]), (&json!(false), &json!([])));
    let without = api
        .post("/jobs", &json!({"kind": "double", "payload": 1}))
        .await
        .json();
    assert!(without.get("done").is_none() && without.get("results").is_none());
    let null = api.post("/jobs", &json!({"kind": "null", "payload": null})).await;
    assert_eq!(null.status, StatusCode::CREATED, "null is a payload, too");
    let many = json!({"kind": "double", "payloads": vec![1; 1_001]});
    assert!(
        api.post("/jobs?wait=1s", &many)
            .await
            .refusal()
            .contains("at most 1000 jobs")
    );
    assert!(
        api.post("/jobs?wait=1h", &submitted)
            .await
            .refusal()
            .contains("30s or 500ms")
    );
    let stats = api.engine.store().stats().await.unwrap();
    let jobs: u64 = stats.kinds.iter().map(|kind| kind.counts.total()).sum();
    assert_eq!(jobs, 5, "refused submits store nothing");
}

#[tokio::test]
async fn probes_need_no_token_and_tell_nothing() {
    let api = Api::new().await;
    let probe = async |path: &str| {
        let request = axum::http::Request::get(path)
            .body(axum::body::Body::empty())
            .unwrap();
        api.send(request).await
    };
    for path in ["/healthz", "/readyz"] {
        let answer = probe(path).await;
        assert_eq!(
            (answer.status, answer.json()),
            (StatusCode::OK, json!({"status": "ok"})),
            "{path}"
        );
        assert_eq!(
            probe(&format!("{path}?a=1")).await.status,
            StatusCode::BAD_REQUEST
        );
    }
    for method in ["POST", "DELETE"] {
        let request = axum::http::Request::builder().method(method).uri("/healthz");
        let answer = api.send(request.body(axum::body::Body::empty()).unwrap()).await;
        assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED);
        assert!(answer.refusal().contains(method), "{}", answer.refusal());
        assert_eq!(answer.headers["allow"], "GET, HEAD");
        assert_eq!(answer.headers.get_all("allow").iter().count(), 1);
    }
    api.app.stopping.send_replace(true);
    assert_eq!(probe("/readyz").await.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(probe("/healthz").await.status, StatusCode::OK);
    assert_eq!(probe("/api/v1/health").await.status, StatusCode::UNAUTHORIZED);
    let monitor = api.token("grafana", Role::Monitor, &["*"]);
    for (path, status) in [
        ("/metrics", StatusCode::OK),
        ("/stats", StatusCode::OK),
        ("/results", StatusCode::FORBIDDEN),
    ] {
        let answer = api
            .send(request("GET", path, Some(&monitor), None, Default::default()))
            .await;
        assert_eq!(answer.status, status, "{path}");
    }
}
