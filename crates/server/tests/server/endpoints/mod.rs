//! The effect of each operation, and its refusals.

mod flows;
mod json_worker;
mod refusals;
mod scheduling;

use axum::http::StatusCode;
use bytes::Bytes;
use futures::StreamExt;
use gristmill_model::{
    BatchId, Completed, FailedJob, JobError, NewBatch, PackedArray, PackedBuilder, Positions, Report,
};
use gristmill_operations::results::have_ended;
use gristmill_server::Role;
use gristmill_store::run::RunProgress;
use gristmill_store::{NewRun, RunAdvance, RunState};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::support::{Api, read, request};

/// An agent that claims everything and completes each job with its position, the last one failed for good.
async fn work_off(api: &Api) {
    let token = api.token("group", Role::Agent, &["*"]);
    let worker = api.register(&token).await;
    let lease = api.claim(&token, worker, api.wanting(1, 10_000)).await;
    let mut exchange = api.wanting(2, 0);
    for slice in &lease.slices {
        let mut positions = slice.positions.clone();
        let last = positions.last().unwrap();
        positions = positions.difference(&Positions::from(last..last + 1));
        let mut values = PackedBuilder::new();
        positions
            .iter()
            .for_each(|position| values.push_value(&position).unwrap());
        let mut report = Report::new(lease.id, slice.batch, slice.attempt);
        report.failed = vec![FailedJob {
            position: last,
            error: JobError::new("E", "no").permanent(),
            duration_us: 1,
        }];
        report.completed = (!positions.is_empty()).then(|| Completed {
            durations_us: vec![1; positions.len() as usize],
            positions,
            values: values.finish(),
        });
        exchange.reports.push(report);
    }
    let done = read(&api.exchange(&token, worker, exchange).await);
    assert!(
        done.exchanged
            .receipts
            .iter()
            .all(|receipt| receipt.refused.is_empty())
    );
}

async fn jobs_stored(api: &Api) -> u64 {
    let stats = api.engine.store().stats().await.unwrap();
    stats.kinds.iter().map(|kind| kind.counts.total()).sum()
}

#[tokio::test]
async fn one_job_goes_through() {
    let api = Api::new().await;
    let body = json!({"kind": "double", "payload": {"a": [1, "\u{e9}"]}, "priority": 3, "retry": {"attempts_max": 1}});
    let answer = api.post("/jobs", &body).await;
    assert_eq!(answer.status, StatusCode::CREATED);
    let submitted = answer.json();
    let id = submitted["first"].as_str().unwrap();
    assert_eq!(submitted["jobs"], 1);
    let job = api.get(&format!("/jobs/{id}")).await.json();
    assert_eq!(
        (&job["state"], &job["priority"], &job["payload"]),
        (&json!("waiting"), &json!(3), &body["payload"])
    );
    assert_eq!(job["job"], id);
}

#[tokio::test]
async fn many_jobs_are_cut_into_batches_and_their_results_stream_back() {
    let api = Api::new().await;
    let payloads: Vec<u32> = (0..2_500).collect();
    let submitted = api
        .post("/jobs", &json!({"kind": "double", "payloads": payloads}))
        .await
        .json();
    let counts: Vec<u64> = submitted["batches"]
        .as_array()
        .unwrap()
        .iter()
        .map(|batch| batch["count"].as_u64().unwrap())
        .collect();
    assert_eq!(
        (counts, &submitted["jobs"]),
        (vec![1_000, 1_000, 500], &json!(2_500))
    );
    work_off(&api).await;
    let ids: Vec<String> = submitted["batches"]
        .as_array()
        .unwrap()
        .iter()
        .map(|batch| batch["batch"].to_string())
        .collect();
    let results = api
        .get(&format!("/results?batches={}&wait_ms=1", ids.join(",")))
        .await;
    assert_eq!(results.headers["content-type"], "application/x-ndjson");
    let lines: Vec<Value> = results
        .body
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 2_500);
    assert_eq!(
        (&lines[1_001]["job"], &lines[1_001]["value"]),
        (&json!(format!("{}:1", ids[1])), &json!(1))
    );
    assert_eq!(
        (&lines[999]["state"], &lines[999]["error"]["message"]),
        (&json!("dead"), &json!("no"))
    );
}

#[tokio::test]
async fn results_of_positions_wait_for_those_jobs_alone() {
    let api = Api::new().await;
    let batch = api.submit("a", json!([0, 1, 2, 3, 4])).await;
    let store = &**api.engine.store();
    let positions = |text: &str| text.parse::<Positions>().unwrap();
    assert!(!have_ended(store, BatchId(batch), &positions("1")).await.unwrap());
    work_off(&api).await;
    let answer = api
        .get(&format!("/results?batches={batch}&positions=1-2,4&wait_ms=30000"))
        .await;
    let lines = String::from_utf8(answer.body.to_vec()).unwrap();
    let jobs: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["job"].clone())
        .collect();
    assert_eq!(
        jobs,
        [1, 2, 4].map(|position| json!(format!("{batch}:{position}")))
    );
    assert!(
        have_ended(store, BatchId(batch), &positions("0-4"))
            .await
            .unwrap()
    );
    // A job that the batch does not have has not ended; a batch that was pruned has nothing to wait for.
    assert!(!have_ended(store, BatchId(batch), &positions("5")).await.unwrap());
    assert!(
        have_ended(store, BatchId(batch + 1), &positions("0"))
            .await
            .unwrap()
    );
}

#[tokio::test]
async fn a_stream_has_one_payload_a_line_and_names_the_wrong_one() {
    let api = Api::new().await;
    let send = async |path: &str, body: &'static [u8]| {
        api.send(request(
            "POST",
            path,
            Some(&api.admin),
            Some("application/x-ndjson"),
            Bytes::from_static(body),
        ))
        .await
    };
    let answer = send(
        "/jobs/stream?kind=double&attempts_max=1",
        b"1\n\n{\"a\":2}\r\n\"x\"",
    )
    .await;
    assert_eq!(
        (answer.status, &answer.json()["jobs"]),
        (StatusCode::CREATED, &json!(3))
    );
    for (body, says) in [
        (&b"1\nnul\n3"[..], "line 2"),
        (b"1\n2 3", "line 2"),
        (b"\xff", "line 1 is not UTF-8"),
        (b"\n\n", "no jobs"),
        (b"\"\0\"", "line 1"),
        (b"1\n\"\\ud800\"", "line 2"),
    ] {
        let refusal = send("/jobs/stream?kind=double", body).await.refusal();
        assert!(refusal.contains(says), "{refusal} does not say {says}");
    }
    assert_eq!(
        jobs_stored(&api).await,
        3,
        "nothing of a refused request is stored"
    );
}

#[tokio::test]
async fn jobs_are_listed_by_page_and_filter() {
    let api = Api::new().await;
    let batch = api.submit("double", json!([1, 2, 3, 4, 5])).await;
    api.submit("triple", json!([1])).await;
    let mut path = "/jobs?kind=double&states=waiting,dead&limit=2".to_owned();
    let mut listed = Vec::new();
    loop {
        let page = api.get(&path).await.json();
        listed.extend(
            page["jobs"]
                .as_array()
                .unwrap()
                .iter()
                .map(|job| job["job"].as_str().unwrap().to_owned()),
        );
        match page["next"].as_str() {
            Some(next) => path = format!("/jobs?kind=double&states=waiting,dead&limit=2&after={next}"),
            None => break,
        }
    }
    assert_eq!(
        listed,
        (0..5)
            .map(|position| format!("{batch}:{position}"))
            .collect::<Vec<_>>()
    );
    assert_eq!(
        api.get(&format!("/jobs?batch={batch}&states=completed"))
            .await
            .json()["jobs"],
        json!([])
    );
}

#[tokio::test]
async fn cancel_and_retry_change_what_they_can() {
    let api = Api::new().await;
    let batch = api.submit("double", json!([1, 2, 3])).await;
    let selection = json!({"jobs": [format!("{batch}:0"), format!("{batch}:1"), "999:0"]});
    assert_eq!(
        api.post("/jobs/cancel", &selection).await.json(),
        json!({"changed": 2, "unchanged": 1})
    );
    let filter = json!({"filter": {"states": ["cancelled"], "kind": "double"}});
    assert_eq!(api.post("/jobs/retry", &filter).await.json()["changed"], 2);
    assert_eq!(api.get("/queues").await.json()["queues"][0]["waiting"], 3);
    for (priority, stands) in [(json!("urgent"), 100), (json!(-7), -7)] {
        let request = json!({"jobs": [format!("{batch}:0"), "999:0"], "priority": priority});
        assert_eq!(
            api.post("/jobs/prioritise", &request).await.json(),
            json!({"changed": 1, "unchanged": 1})
        );
        let job = api.get(&format!("/jobs/{batch}:0")).await.json();
        assert_eq!(job["priority"], stands);
    }
    for priority in [json!("higher"), json!(40_000), json!(1.5)] {
        let request = json!({"filter": {"kind": "double"}, "priority": priority});
        let refusal = api.post("/jobs/prioritise", &request).await.refusal();
        assert!(refusal.contains("urgent"), "{refusal}");
    }
    let pause = json!({"jobs": [format!("{batch}:1")], "reason": "deploy", "until": 253_402_300_799_999_i64});
    assert_eq!(api.post("/jobs/pause", &pause).await.json()["changed"], 1);
    let job = api.get(&format!("/jobs/{batch}:1")).await.json();
    assert_eq!(
        (&job["state"], &job["pauses"][0]["reason"]),
        (&json!("paused"), &json!("deploy"))
    );
    assert_eq!(api.get("/queues").await.json()["queues"][0]["paused"], 1);
    let wrong = json!({"jobs": [format!("{batch}:1")], "reason": "deploy", "until": -1});
    assert!(api.post("/jobs/pause", &wrong).await.refusal().contains("until"));
    let resume = json!({"filter": {"kind": "double"}, "reason": "deploy"});
    assert_eq!(api.post("/jobs/resume", &resume).await.json()["changed"], 1);
    assert_eq!(api.post("/jobs/resume", &resume).await.json()["changed"], 0);
    assert_eq!(
        api.post("/jobs/discard", &selection).await.json(),
        json!({"changed": 0, "unchanged": 3})
    );
    for (body, says) in [
        (json!({}), "either `jobs` or `filter`"),
        (json!({"jobs": [], "filter": {}}), "either"),
        (json!({"filter": {}}), "without conditions"),
        (json!({"jobs": ["x"]}), "42:7"),
        (json!({"jobs": [1]}), "string"),
        (json!({"filter": {"states": ["gone"]}}), "gone"),
        (json!({"filter": {"run": "none"}}), "run `none` does not exist"),
        (json!({"filter": {"kinds": "x"}}), "kinds"),
        (json!({"jobs": vec!["1:1"; 10_001]}), "10000"),
    ] {
        for operation in ["cancel", "retry", "discard"] {
            let refusal = api.post(&format!("/jobs/{operation}"), &body).await.refusal();
            assert!(refusal.contains(says), "{refusal} does not say {says}");
        }
    }
}

#[tokio::test]
async fn workers_are_listed_with_what_they_serve() {
    let api = Api::new().await;
    let token = api.token("group", Role::Agent, &["default", "slow"]);
    let post = async |path: &str, body: Value| {
        let body = body.to_string().into();
        api.send(request(
            "POST",
            path,
            Some(&token),
            Some("application/json"),
            body,
        ))
        .await
    };
    let agent = json!({"name": "agent", "host": "machine", "process_id": 1});
    let with = |queues: Value, kinds: Value| {
        let mut agent = agent.clone();
        (agent["queues"], agent["kinds"]) = (queues, kinds);
        agent
    };
    let registered = post("/workers", with(json!(["default", "slow"]), json!(["mail"]))).await;
    assert_eq!(registered.status, StatusCode::CREATED, "{}", registered.json());
    assert_eq!(post("/workers", agent.clone()).await.status, StatusCode::CREATED);
    let claimed = post("/claims", json!({"kinds": ["page"]})).await;
    assert_eq!(claimed.status, StatusCode::OK, "{}", claimed.json());
    let workers = api.get("/workers").await.json();
    let served: Vec<_> = workers["workers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|worker| json!([worker["queues"], worker["kinds"]]))
        .collect();
    assert_eq!(
        json!(served),
        json!([[["default", "slow"], ["mail"]], [[], []], [["default"], ["page"]]])
    );
    for (queues, kinds, status, says) in [
        (
            json!(["other"]),
            json!(["mail"]),
            StatusCode::FORBIDDEN,
            "`other`",
        ),
        (json!(["slow"]), json!(["a\nb"]), StatusCode::BAD_REQUEST, "kind"),
        (
            json!(["slow"]),
            json!(vec!["k"; 1_001]),
            StatusCode::BAD_REQUEST,
            "1000 kinds",
        ),
    ] {
        let refused = post("/workers", with(queues, kinds)).await;
        assert_eq!(refused.status, status);
        assert!(refused.refusal().contains(says), "{}", refused.refusal());
    }
}

#[tokio::test]
async fn a_worker_is_drained_by_an_operator() {
    let api = Api::new().await;
    let agent = api.token("group", Role::Agent, &["default"]);
    let operator = api.token("desk", Role::Operator, &["*"]);
    let worker = api.register(&agent).await;
    let path = format!("/workers/{worker}/drain");
    let heartbeat = format!("/workers/{worker}/heartbeat");
    let post = async |path: &str, token: &str, body: &'static str| {
        let kind = (!body.is_empty()).then_some("application/json");
        api.send(request("POST", path, Some(token), kind, body.into()))
            .await
    };
    let beat = async || post(&heartbeat, &agent, r#"{"number": 0}"#).await.json()["drain"].clone();
    assert_eq!(beat().await, json!(false));
    assert_eq!(
        api.get("/workers").await.json()["workers"][0]["draining"],
        json!(false)
    );
    assert_eq!(post(&path, &agent, "").await.status, StatusCode::FORBIDDEN);
    assert_eq!(post(&path, &operator, "").await.status, StatusCode::ACCEPTED);
    assert_eq!(
        api.get("/workers").await.json()["workers"][0]["draining"],
        json!(true)
    );
    assert_eq!((beat().await, beat().await), (json!(true), json!(true)));
    let unknown = post("/workers/999/drain", &operator, "").await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
    assert!(unknown.refusal().contains("999"), "{}", unknown.refusal());
}

#[tokio::test]
async fn the_server_tells_how_it_is() {
    let api = Api::new().await;
    api.submit("double", json!([1, 2])).await;
    work_off(&api).await;
    assert_eq!(api.get("/health").await.json()["status"], "ok");
    assert_eq!(api.get("/ready").await.json()["status"], "ready");
    let workers = api.get("/workers").await.json();
    assert_eq!(workers["workers"][0]["name"], "group/agent");
    assert!(!workers.to_string().contains("token:"), "{workers}");
    let stats = api.get("/stats").await.json();
    assert_eq!(
        (&stats["batches"], &stats["queues"][0]["completed"]),
        (&json!(1), &json!(1))
    );
    let history = api.get("/history?by=day&queue=default").await.json();
    let row = &history["rows"][0];
    assert_eq!(
        (&row["kind"], &row["completed"], &row["dead"]),
        (&json!("double"), &json!(1), &json!(1))
    );
    assert!(
        row["from"].is_i64() && row["duration"]["p99_us"].is_u64(),
        "{row}"
    );
    let refusal = api.get("/history?by=week").await.refusal();
    assert!(refusal.contains("week"), "{refusal}");
    let metrics = String::from_utf8(api.get("/metrics").await.body.to_vec()).unwrap();
    for line in [
        "gristmill_jobs_completed_total{kind=\"double\",queue=\"default\"} 1",
        "gristmill_jobs_failed_total{kind=\"double\",queue=\"default\"} 1",
        "gristmill_jobs_waiting{kind=\"double\",queue=\"default\"} 0",
        "gristmill_job_duration_seconds_count{kind=\"double\",queue=\"default\"} 1",
        "gristmill_submitted_jobs_total 2",
        "gristmill_exchange_jobs_total{what=\"claimed\"} 2",
        "gristmill_http_requests_total{method=\"GET\",path=\"/health\",status=\"200\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    let description = api.get("/openapi.json").await.json();
    assert_eq!(description["openapi"], "3.1.0");
    api.engine.close().await.unwrap();
    assert_eq!(api.get("/ready").await.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(api.get("/health").await.status, StatusCode::OK);
}

#[tokio::test]
async fn events_tell_of_submits_and_commits() {
    let api = Api::new().await;
    let listening = request("GET", "/events", Some(&api.admin), None, Bytes::new());
    let response = api.router.clone().oneshot(listening).await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let batch = api.submit("double", json!([1, 2])).await;
    work_off(&api).await;
    let mut body = response.into_body().into_data_stream();
    let mut text = String::new();
    while !text.contains("event: dead") || !text.ends_with("\n\n") {
        text.push_str(std::str::from_utf8(&body.next().await.unwrap().unwrap()).unwrap());
    }
    let events: Vec<(&str, serde_json::Value)> = text
        .split("\n\n")
        .filter(|event| event.contains("data: "))
        .map(|event| {
            let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            let data: serde_json::Value = serde_json::from_str(field("data: ")).unwrap();
            assert_eq!(
                (&data["cursor"], &data["batch"]),
                (&json!(field("id: ")), &json!(batch))
            );
            (field("event: "), data)
        })
        .collect();
    let names: Vec<&str> = events.iter().map(|event| event.0).collect();
    assert_eq!(names, ["submitted", "completed", "dead"], "{text}");
    let positions: Vec<&str> = events
        .iter()
        .map(|event| event.1["positions"].as_str().unwrap())
        .collect();
    assert_eq!(positions, ["0-1", "0", "1"], "{text}");

    // A returning client sends the last id that it has seen, and resumes after it.
    let mut again = request("GET", "/events", Some(&api.admin), None, Bytes::new());
    let seen = events[1].1["cursor"].as_str().unwrap();
    again.headers_mut().insert("last-event-id", seen.parse().unwrap());
    let again = api.router.clone().oneshot(again).await.unwrap();
    let first = again
        .into_body()
        .into_data_stream()
        .next()
        .await
        .unwrap()
        .unwrap();
    assert!(
        first.starts_with(
            format!("id: {}\nevent: dead\n", events[2].1["cursor"].as_str().unwrap()).as_bytes()
        ),
        "{first:?}"
    );
    let wrong = api.get("/events?after=yesterday").await;
    assert!(wrong.refusal().contains("cursor"));
    api.app.stopping.send_replace(true);
    assert!(body.next().await.is_none(), "a stopping server ends the stream");
}

#[tokio::test]
async fn an_exchange_that_is_sent_again_is_answered_as_the_first_time() {
    let api = Api::new().await;
    api.submit("a", json!([1, 2, 3, 4])).await;
    let token = api.token("group", Role::Agent, &["default"]);
    let worker = api.register(&token).await;
    let first = api.exchange(&token, worker, api.wanting(1, 2)).await;
    let mut again = api.wanting(1, 2);
    again.attempt = 2;
    assert_eq!(api.exchange(&token, worker, again).await.body, first.body);
    let lease = read(&first).exchanged.lease.unwrap();
    let mut report = Report::new(lease.id, lease.slices[0].batch, 1);
    report.released = "0-1".parse().unwrap();
    let mut second = api.wanting(2, 0);
    second.reports = vec![report];
    let answer = api.exchange(&token, worker, second.clone()).await;
    assert_eq!(read(&answer).exchanged.receipts[0].accepted.to_string(), "0-1");
    second.attempt = 2;
    assert_eq!(
        api.exchange(&token, worker, second.clone()).await.body,
        answer.body
    );
    // After the acknowledgement the request is over: a late copy on the network changes nothing.
    read(&api.exchange(&token, worker, api.wanting(3, 1)).await);
    let late = api.exchange(&token, worker, second).await;
    assert_eq!(late.status, StatusCode::CONFLICT);
    late.refusal();
    assert_eq!(api.get("/queues").await.json()["queues"][0]["running"], 1);
}

#[tokio::test]
async fn a_server_that_is_not_named_commits_and_claims_nothing() {
    let api = Api::new().await;
    api.submit("a", json!([1, 2])).await;
    let token = api.token("group", Role::Agent, &["default"]);
    let worker = api.register(&token).await;
    let lease = read(&api.exchange(&token, worker, api.wanting(1, 1)).await)
        .exchanged
        .lease
        .unwrap();
    let mut elsewhere = api.wanting(2, 1);
    elsewhere.instance = "another".to_owned();
    let mut report = Report::new(lease.id, lease.slices[0].batch, 1);
    report.released = "0".parse().unwrap();
    elsewhere.reports = vec![report];
    let answer = read(&api.exchange(&token, worker, elsewhere.clone()).await);
    assert_eq!(answer.exchanged.receipts[0].accepted.to_string(), "0");
    assert!(answer.exchanged.lease.is_none() && answer.not_claimed && !answer.claim_unknown);
    assert_eq!(answer.instance, api.app.instance);
    (elsewhere.number, elsewhere.attempt) = (3, 2);
    assert!(read(&api.exchange(&token, worker, elsewhere).await).claim_unknown);
}

#[tokio::test]
async fn runs_are_listed_with_their_progress() {
    let api = Api::new().await;
    assert_eq!(api.get("/runs").await.json(), json!({"runs": [], "total": 0}));
    let store = api.engine.store();
    for name in ["first", "second"] {
        let run = NewRun {
            name: name.to_owned(),
            description: "{}".to_owned(),
        };
        let run = store.create_run(run).await.unwrap();
        let advance = RunAdvance {
            run: run.id,
            progress: RunProgress {
                jobs: 3,
                bytes: 6,
                lines: 3,
                crc32: 0,
            },
            state: RunState::Submitting,
        };
        let batch = NewBatch::new("double", PackedArray::parse("[1,2,3]").unwrap());
        store.submit(vec![batch], Some(advance)).await.unwrap();
    }
    work_off(&api).await;
    let listed = api.get("/runs?limit=1").await.json();
    assert_eq!(listed["total"], 2);
    let [run] = listed["runs"].as_array().unwrap().as_slice() else {
        panic!("{listed}")
    };
    assert_eq!(
        (
            &run["run"],
            &run["state"],
            &run["jobs_submitted"],
            &run["lines_read"]
        ),
        (&json!("second"), &json!("submitting"), &json!(3), &json!(3))
    );
    assert_eq!(
        (&run["states"]["completed"], &run["states"]["dead"]),
        (&json!(2), &json!(1))
    );
    let refused = api.get("/runs?limit=101").await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    assert!(refused.refusal().contains("give 1 to 100"));
}

#[tokio::test]
async fn jobs_are_listed_by_time() {
    let api = Api::new().await;
    for _ in 0..3 {
        let submit = json!({"kind": "a", "payloads": [1, 2]});
        assert_eq!(api.post("/jobs", &submit).await.status, StatusCode::CREATED);
    }
    let ids = |page: &Value| -> Vec<String> {
        let jobs = page["jobs"].as_array().unwrap().iter();
        jobs.map(|job| job["job"].as_str().unwrap().to_owned()).collect()
    };
    let newest = api.get("/jobs?newest=true&limit=3").await.json();
    assert_eq!(ids(&newest), ["3:1", "3:0", "2:1"]);
    assert_eq!(newest.get("next"), None);
    let at = newest["jobs"][0]["submitted_at"].as_i64().unwrap();
    let later = api.get(&format!("/jobs?since={}", at + 1)).await.json();
    assert_eq!(ids(&later), [""; 0]);
    let until = api.get(&format!("/jobs/count?until={}", at + 1)).await.json();
    assert_eq!(until["jobs"], 6);
    let refused = api.get("/jobs?newest=true&after=1:0").await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    assert!(refused.refusal().contains("`newest` and `after`"));
}

async fn create_run(api: &Api, name: &str) {
    let run = NewRun {
        name: name.to_owned(),
        description: "{}".to_owned(),
    };
    api.engine.store().create_run(run).await.unwrap();
}

/// Callers that accept an older answer share one. Without an age, an answer is new.
#[tokio::test]
async fn recent_counts_are_shared() {
    let api = Api::new().await;
    create_run(&api, "import").await;
    api.submit("mail", json!([1, 2])).await;
    work_off(&api).await;
    let paths = ["/queues", "/history", "/runs"];
    let recent = |path: &str| format!("{path}?age_ms_max=60000");
    let mut first = Vec::new();
    for path in paths {
        first.push(api.get(&recent(path)).await.json());
    }
    assert_eq!(first[0]["queues"][0]["completed"], 1);
    assert_eq!(first[1]["rows"][0]["dead"], 1);
    assert_eq!(first[2]["total"], 1);
    create_run(&api, "more").await;
    api.submit("mail", json!([3])).await;
    work_off(&api).await;
    for (path, first) in paths.iter().zip(&first) {
        assert_eq!(api.get(&recent(path)).await.json(), *first, "{path}");
        assert_ne!(api.get(path).await.json(), *first, "{path}");
    }
    let too_old = api.get("/queues?age_ms_max=60001").await;
    assert_eq!(too_old.status, StatusCode::BAD_REQUEST);
    assert!(too_old.refusal().contains("60000"), "{}", too_old.refusal());
}
