//! What each operation does, and how it refuses.

mod support;

use axum::http::StatusCode;
use bytes::Bytes;
use futures::StreamExt;
use gristmill_model::{Completed, FailedJob, JobError, PackedBuilder, Positions, Report};
use gristmill_server::Role;
use gristmill_server::limits::{JOBS_PER_REQUEST_MAX, REQUEST_BYTES_MAX, WAIT_MS_MAX};
use gristmill_server::protocol::EXCHANGE_TYPE;
use serde_json::{Value, json};
use support::{Api, read, request};
use tower::ServiceExt;

/// An agent that claims everything and completes each job with its position, the last one failed for good.
async fn work_off(api: &Api) {
    let token = api.token("group", Role::Agent, &["*"]);
    let worker = api.register(&token).await;
    let lease = read(&api.exchange(&token, worker, api.wanting(1, 10_000)).await)
        .exchanged
        .lease
        .unwrap();
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
async fn jobs_wait_for_others() {
    let api = Api::new().await;
    let first = api.submit("resize", json!([1, 2])).await;
    let body = json!({"kind": "report", "payload": 3, "after": [first.to_string(), format!("{first}:0")], "after_failure": "fail"});
    let waiting = api.post("/jobs", &body).await;
    assert_eq!(waiting.status, StatusCode::CREATED, "{}", waiting.refusal());
    let listed = api.get("/jobs?states=blocked").await.json();
    assert_eq!(listed["jobs"].as_array().unwrap().len(), 1, "{listed}");
    for (wrong, says) in [
        (json!({"kind": "k", "payload": 1, "after": ["99"]}), "no batch 99"),
        (
            json!({"kind": "k", "payload": 1, "after": [format!("{first}:2")]}),
            "has 2 jobs",
        ),
        (
            json!({"kind": "k", "payload": 1, "after": ["soon"]}),
            "`after[0]`",
        ),
        (
            json!({"kind": "k", "payload": 1, "after": [first.to_string()], "after_failure": "wait"}),
            "wait",
        ),
        (
            json!({"kind": "k", "payload": 1, "after": vec!["1"; 1_001]}),
            "1001",
        ),
    ] {
        let refused = api.post("/jobs", &wrong).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{}", refused.refusal());
        assert!(
            refused.refusal().contains(says),
            "{} does not say {says}",
            refused.refusal()
        );
    }
    // Who may not see jobs of a queue may not wait for them either.
    let other = api.token("other", Role::Submit, &["other"]);
    let body = json!({"kind": "k", "queue": "other", "payload": 1, "after": [first.to_string()]});
    let refused = api
        .send(request(
            "POST",
            "/jobs",
            Some(&other),
            Some("application/json"),
            Bytes::from(body.to_string()),
        ))
        .await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN, "{}", refused.refusal());
    work_off(&api).await;
    let shown = api.get("/jobs/2:0").await.json();
    assert_eq!(shown["state"], "dead", "{shown}");
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
        (json!({"filter": {}}), "no condition"),
        (json!({"jobs": ["x"]}), "42:7"),
        (json!({"jobs": [1]}), "string"),
        (json!({"filter": {"states": ["gone"]}}), "gone"),
        (json!({"filter": {"run": "none"}}), "no run"),
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
        "gristmill_jobs{kind=\"double\",queue=\"default\",state=\"dead\"} 1",
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

    // Who comes again says what it has seen, and goes on behind it.
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
async fn wrong_bodies_are_refused_by_what_is_wrong_and_nothing_is_stored() {
    let api = Api::new().await;
    let long_name = "x".repeat(201);
    for (body, says) in [
        (String::new(), "cannot be read"),
        ("{".to_owned(), "line 1 column 1"),
        ("[]".to_owned(), "cannot be read"),
        ("null".to_owned(), "cannot be read"),
        ("\u{0}".to_owned(), "cannot be read"),
        ("[".repeat(100_000), "cannot be read"),
        (r#"{"kind":"a","payload":1"#.to_owned(), "EOF"),
        (r#"{"kind":"a","payload":1} x"#.to_owned(), "trailing"),
        (
            r#"{"kind":"a","payload":"\ud800"}"#.to_owned(),
            "`payload` is not JSON",
        ),
        (r#"{"payload":1}"#.to_owned(), "kind"),
        (r#"{"kind":1,"payload":1}"#.to_owned(), "string"),
        (r#"{"kind":"","payload":1}"#.to_owned(), "kind"),
        (r#"{"kind":"a\u0000b","payload":1}"#.to_owned(), "control"),
        (
            r#"{"kind":"a","queue":"\u0000","payload":1}"#.to_owned(),
            "control",
        ),
        (format!(r#"{{"kind":"{long_name}","payload":1}}"#), "200 bytes"),
        (r#"{"kind":"a"}"#.to_owned(), "either `payload` or `payloads`"),
        (r#"{"kind":"a","payload":1,"payloads":[1]}"#.to_owned(), "either"),
        (r#"{"kind":"a","payloads":[]}"#.to_owned(), "no jobs"),
        (r#"{"kind":"a","payloads":{"0":1}}"#.to_owned(), "sequence"),
        (
            r#"{"kind":"a","payload":1,"prioritty":1}"#.to_owned(),
            "prioritty",
        ),
        (r#"{"kind":"a","payload":1,"priority":1.5}"#.to_owned(), "1.5"),
        (r#"{"kind":"a","payload":1,"run_at":-5}"#.to_owned(), "run_at"),
        (
            r#"{"kind":"a","payload":1,"retry":{"attempts_max":0}}"#.to_owned(),
            "attempts_max",
        ),
        (r#"{"kind":"a","kind":"b","payload":1}"#.to_owned(), "duplicate"),
    ] {
        let refusal = api.post_text("/jobs", &body).await.refusal();
        assert!(
            refusal.contains(says),
            "{refusal} does not say {says}, of {}",
            &body[..body.len().min(80)]
        );
    }
    let many = format!(
        r#"{{"kind":"a","payloads":[1{}]}}"#,
        ",1".repeat(JOBS_PER_REQUEST_MAX)
    );
    let answer = api.post_text("/jobs", &many).await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(answer.refusal().contains("100000 jobs"));
    let large = format!(r#"{{"kind":"a","payload":"{}"}}"#, "x".repeat(16 << 20));
    let answer = api.post_text("/jobs", &large).await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(answer.refusal().contains("16777216 bytes"));
    let answer = api.post_text("/jobs", &" ".repeat(REQUEST_BYTES_MAX + 1)).await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(jobs_stored(&api).await, 0);
}

#[tokio::test]
async fn wrong_types_and_encodings_are_refused() {
    let api = Api::new().await;
    let body = r#"{"kind":"a","payload":1}"#;
    for content_type in [
        None,
        Some("text/plain"),
        Some("application/x-www-form-urlencoded"),
    ] {
        let answer = api
            .send(request(
                "POST",
                "/jobs",
                Some(&api.admin),
                content_type,
                body.into(),
            ))
            .await;
        assert_eq!(answer.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
        assert!(answer.refusal().contains("application/json"));
    }
    let encoded = async |encoding: &'static str, body: Vec<u8>| {
        let mut request = request(
            "POST",
            "/jobs",
            Some(&api.admin),
            Some("application/json"),
            body.into(),
        );
        request
            .headers_mut()
            .insert("content-encoding", encoding.parse().unwrap());
        api.send(request).await
    };
    assert!(encoded("gzip", body.into()).await.refusal().contains("zstd"));
    assert!(encoded("zstd", body.into()).await.refusal().contains("not zstd"));
    let packed = zstd::encode_all(body.as_bytes(), 1).unwrap();
    assert_eq!(encoded("zstd", packed).await.status, StatusCode::CREATED);
    let bomb = zstd::encode_all(&vec![b' '; 65 << 20][..], 1).unwrap();
    let answer = encoded("zstd", bomb).await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(answer.refusal().contains("decompressed"));
    assert_eq!(jobs_stored(&api).await, 1);
}

#[tokio::test]
async fn wrong_paths_and_queries_are_refused() {
    let api = Api::new().await;
    for (path, status) in [
        ("/jobs/1:0", 404),
        ("/jobs/x", 400),
        ("/jobs/1", 400),
        ("/jobs/%00", 400),
        ("/jobs/%ff", 400),
        ("/jobs/9223372036854775807:4294967295", 404),
        ("/jobs/99999999999999999999:0", 400),
        ("/jobs/1:0?x=1", 400),
        ("/jobs?limit=0", 400),
        ("/jobs?limit=10001", 400),
        ("/jobs?limit=x", 400),
        ("/jobs?states=gone", 400),
        ("/jobs?after=1", 400),
        ("/jobs?run=none", 404),
        ("/jobs?limt=1", 400),
        ("/results", 400),
        ("/results?batches=1", 404),
        ("/results?batches=x", 400),
        ("/results?batches=", 400),
        ("/results?run=%00", 404),
        ("/results?run=none&wait_ms=1", 400),
        ("/queues?x", 400),
        ("/nothing", 404),
    ] {
        let answer = api.get(path).await;
        assert_eq!(answer.status.as_u16(), status, "{path}");
        answer.refusal();
    }
    let batch = api.submit("a", json!([1])).await;
    let answer = api
        .get(&format!("/results?batches={batch}&wait_ms={}", WAIT_MS_MAX + 1))
        .await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn wrong_exchanges_are_refused_and_claim_nothing() {
    let api = Api::new().await;
    api.submit("a", json!([1, 2])).await;
    let token = api.token("group", Role::Agent, &["default"]);
    let worker = api.register(&token).await;
    let path = format!("/workers/{worker}/exchange");
    for body in [
        &b""[..],
        b"GMX1",
        b"GMX2\0\0\0\0",
        b"GMX1\x02\0\0\0{}",
        b"GMX1\xff\xff\xff\x7f",
        b"{}",
    ] {
        let request = request(
            "POST",
            &path,
            Some(&token),
            Some(EXCHANGE_TYPE),
            Bytes::from_static(body),
        );
        let answer = api.send(request).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
        answer.refusal();
    }
    let mut wrong = Vec::new();
    let mut push = |change: &dyn Fn(&mut gristmill_server::protocol::ExchangeRequest)| {
        let mut exchange = api.wanting(5, 1);
        change(&mut exchange);
        wrong.push(exchange);
    };
    push(&|exchange| exchange.number = 0);
    push(&|exchange| exchange.acknowledged = 5);
    push(&|exchange| exchange.wait_ms = WAIT_MS_MAX + 1);
    push(&|exchange| exchange.want.as_mut().unwrap().jobs_max = 0);
    push(&|exchange| exchange.want.as_mut().unwrap().jobs_max = 10_001);
    push(&|exchange| exchange.want.as_mut().unwrap().queues.clear());
    push(&|exchange| exchange.want.as_mut().unwrap().queues = vec!["default".into(); 101]);
    push(&|exchange| exchange.want.as_mut().unwrap().kinds = vec!["\0".into()]);
    for exchange in wrong {
        let answer = api.exchange(&token, worker, exchange).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
        answer.refusal();
    }
    for (path, status) in [
        ("/workers/x/heartbeat", 400),
        ("/workers/999/heartbeat", 409),
        ("/workers/-1/heartbeat", 409),
    ] {
        let body = Bytes::from_static(br#"{"number":1}"#);
        let answer = api
            .send(request(
                "POST",
                path,
                Some(&token),
                Some("application/json"),
                body,
            ))
            .await;
        assert_eq!(answer.status.as_u16(), status, "{path}");
        answer.refusal();
    }
    let body = json!({"number": 1, "hops": {"invented": {"batches": 1, "items": 1, "items_max": 1, "end_reasons": {}}}});
    let heartbeat = request(
        "POST",
        &format!("/workers/{worker}/heartbeat"),
        Some(&token),
        Some("application/json"),
        body.to_string().into(),
    );
    assert!(api.send(heartbeat).await.refusal().contains("invented"));
    assert_eq!(api.get("/queues").await.json()["queues"][0]["waiting"], 2);
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
    // Once acknowledged, it is over: a late copy on the network changes nothing.
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
async fn too_many_requests_of_one_token_are_refused_for_a_while() {
    let api = Api::new().await;
    let trust = gristmill_server::trust::Trust::Loopback;
    let rate = gristmill_server::rate::RateLimiter::new(api.engine.clock().clone(), 1, 2);
    let (_, router) = gristmill_server::serve::routes(api.engine.clone(), trust, rate).unwrap();
    let mut statuses = Vec::new();
    for _ in 0..3 {
        let response = router
            .clone()
            .oneshot(request("GET", "/health", None, None, Bytes::new()))
            .await
            .unwrap();
        statuses.push(response.status().as_u16());
        if response.status() == StatusCode::TOO_MANY_REQUESTS {
            assert_eq!(response.headers()["retry-after"], "1");
        }
    }
    assert_eq!(statuses, [200, 200, 429]);
}

#[tokio::test]
async fn schedules_are_put_shown_changed_and_deleted() {
    let api = Api::new().await;
    let put = json!({
        "kind": "report", "payload": {"region": "eu"}, "overlap": "skip",
        "rule": {"cron": {"expression": "30 4 * * *", "time_zone": "Europe/Berlin"}},
    });
    let answer = api.call("PUT", "/schedules/nightly", &put).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    let shown = answer.json();
    assert!(
        shown["next_at"].is_i64() && shown["last_job"].is_null(),
        "{shown}"
    );
    assert_eq!(shown["payload"], json!({"region": "eu"}));

    let triggered = api
        .call("POST", "/schedules/nightly/trigger", &Value::Null)
        .await
        .json();
    let job = triggered["last_job"].as_str().unwrap().to_owned();
    assert_eq!(api.get(&format!("/jobs/{job}")).await.json()["kind"], "report");
    let paused = api
        .call("POST", "/schedules/nightly/pause", &json!({}))
        .await
        .json();
    assert_eq!(
        (&paused["paused"], &paused["next_at"]),
        (&json!(true), &Value::Null)
    );
    let listed = api.get("/schedules?limit=5").await.json();
    assert_eq!(listed["schedules"][0]["fired"], 1);
    let resumed = api
        .call("POST", "/schedules/nightly/resume", &Value::Null)
        .await
        .json();
    assert_eq!(resumed["paused"], false);

    for (rule, told) in [
        (
            json!({"cron": {"expression": "boo"}}),
            "`boo` is not a cron expression",
        ),
        (
            json!({"cron": {"expression": "@daily", "time_zone": "Mars"}}),
            "there is no time zone `Mars`",
        ),
        (
            json!({"every": {"interval_ms": 5}}),
            "an interval is at least 1000 ms",
        ),
    ] {
        let refused = api
            .call(
                "PUT",
                "/schedules/nightly",
                &json!({"kind": "report", "rule": rule}),
            )
            .await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{refused:?}");
        assert!(
            refused.json()["error"].as_str().unwrap().contains(told),
            "{refused:?}"
        );
    }
    let gone = api.call("DELETE", "/schedules/nightly", &Value::Null).await;
    assert_eq!(gone.status, StatusCode::NO_CONTENT);
    assert_eq!(api.get("/schedules/nightly").await.status, StatusCode::NOT_FOUND);
}

/// Jobs with keys are stored once; the answer tells which job stands for each.
#[tokio::test]
async fn jobs_with_keys_are_submitted_once() {
    let api = Api::new().await;
    let first = api
        .post("/jobs", &json!({"kind": "a", "payload": 1, "key": "one"}))
        .await
        .json();
    let id = first["ids"][0].as_str().unwrap().to_owned();
    assert_eq!((&first["jobs"], &first["first"]), (&json!(1), &json!(id)));
    let second = api
        .post(
            "/jobs",
            &json!({"kind": "a", "payloads": [1, 2, 3], "keys": ["one", null, "three"]}),
        )
        .await
        .json();
    let batch = &second["batches"][0]["batch"];
    assert_eq!(second["jobs"], 2);
    assert_eq!(
        second["ids"],
        json!([id, format!("{batch}:0"), format!("{batch}:1")])
    );
    let none = api
        .post("/jobs", &json!({"kind": "a", "payload": 1, "key": "three"}))
        .await
        .json();
    assert_eq!((&none["jobs"], none.get("first")), (&json!(0), None));
    let job = api.get(&format!("/jobs/{id}")).await.json();
    assert_eq!(job["key"], "one");

    let reject = json!({"kind": "a", "payload": 1, "key": "one", "unique": {"on_duplicate": "reject"}});
    let refused = api.post("/jobs", &reject).await;
    assert_eq!(
        (refused.status, &refused.json()["code"]),
        (StatusCode::CONFLICT, &json!("duplicate_key"))
    );
    for wrong in [
        json!({"kind": "a", "payload": 1, "keys": ["x"]}),
        json!({"kind": "a", "payloads": [1, 2], "keys": ["x"]}),
        json!({"kind": "a", "payload": 1, "key": ""}),
        json!({"kind": "a", "payload": 1, "unique": {}}),
        json!({"kind": "a", "payload": 1, "key": "x", "unique": {"period_ms": 0}}),
        json!({"kind": "a", "payload": 1, "key": "x", "unique": {"on_duplicate": "wild"}}),
    ] {
        assert_eq!(api.post("/jobs", &wrong).await.status, StatusCode::BAD_REQUEST);
    }
    assert_eq!(jobs_stored(&api).await, 3);
}

/// Jobs are found and cancelled by their tags and keys.
#[tokio::test]
async fn jobs_are_found_by_tags_and_keys() {
    let api = Api::new().await;
    let tagged = json!({"kind": "a", "payloads": [1, 2], "keys": ["x/1", "y/1"], "tags": {"customer": "7", "page": "b"}});
    let ids = api.post("/jobs", &tagged).await.json()["ids"].clone();
    api.submit("a", json!([1, 2, 3])).await;
    let job = api
        .get(&format!("/jobs/{}", ids[0].as_str().unwrap()))
        .await
        .json();
    assert_eq!(job["tags"], json!({"customer": "7", "page": "b"}));
    for (query, count) in [
        ("tags=customer%3D7", 2),
        ("tags=customer%3D8", 0),
        ("tags=customer%3D7,pa*", 2),
        ("key=x/1", 1),
        ("key_prefix=y", 1),
        ("", 5),
    ] {
        let page = api.get(&format!("/jobs?{query}")).await.json();
        assert_eq!(page["jobs"].as_array().unwrap().len(), count, "{query}");
    }
    let each =
        json!({"kind": "a", "payloads": [1, 2, 3], "tags": [{"customer": "8"}, null, {"customer": "7"}]});
    let batch = api.post("/jobs", &each).await.json()["batches"][0]["batch"].clone();
    let lines = "{\"payload\":1}\n{\"payload\":2,\"tags\":{\"customer\":\"9\"}}\n";
    let streamed = api
        .send(request(
            "POST",
            "/jobs/stream?kind=a&wrapped=true",
            Some(&api.admin),
            Some("application/x-ndjson"),
            lines.into(),
        ))
        .await;
    assert_eq!(streamed.json()["jobs"], 2);
    let values = api.get("/tags/customer?limit=2").await.json();
    assert_eq!(
        values,
        json!({"values": [{"value": "7", "jobs": 3}, {"value": "8", "jobs": 1}], "next": "8"})
    );
    let values = api.get("/tags/customer?limit=2&after=8").await.json();
    assert_eq!(values["values"], json!([{"value": "9", "jobs": 1}]));
    let found = api.get("/jobs/ids?tags=customer%3D7&limit=1").await.json();
    assert_eq!(found["batches"][0]["positions"], "0-1");
    let next = found["next"].as_str().unwrap();
    let found = api
        .get(&format!("/jobs/ids?tags=customer%3D7&after={next}"))
        .await
        .json();
    assert_eq!(found["batches"], json!([{"batch": batch, "positions": "2"}]));
    for wrong in [json!([{}]), json!([1, {}, {}]), json!(7)] {
        let submit = json!({"kind": "a", "payloads": [1, 2, 3], "tags": wrong});
        assert!(api.post("/jobs", &submit).await.refusal().contains("tags"));
    }
    let filter = json!({"filter": {"tags": ["customer=7"], "key_prefix": "x"}});
    let changed = api.post("/jobs/cancel", &filter).await.json();
    assert_eq!(changed["changed"], 1);
    let wrong = json!({"kind": "a", "payload": 1, "tags": {"": "7"}});
    assert_eq!(api.post("/jobs", &wrong).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(jobs_stored(&api).await, 10);
}

#[tokio::test]
async fn controls_are_put_shown_and_lifted() {
    let api = Api::new().await;
    let controls = json!([
        {"scope": {"queue": "slow"}, "effect": {"pause": {"reason": "deploy", "until": 5_000_000_000_000_i64}}},
        {"scope": {"kind": "mail", "each_group": true}, "effect": {"concurrency": {"jobs_max": 3}}},
        {"scope": {"kind": "mail"}, "effect": {"rate": {"jobs": 5, "period_ms": 1_000, "burst": 9}}},
        {"scope": {"group": "acme"}, "effect": {"share": {"weight": 2, "jobs_min": 1}}},
        {"scope": {}, "effect": {"aging": {"grace_ms": 0, "step_ms": 60_000}}},
    ]);
    let answer = api.call("PUT", "/controls", &json!({"controls": controls})).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    assert_eq!(answer.json()["controls"], controls);
    let lifted = api
        .call("POST", "/controls/lift", &json!({"reason": "deploy"}))
        .await;
    assert_eq!(lifted.json(), json!({"lifted": 1}));
    let scope = json!({"scope": {"kind": "mail"}, "effects": ["rate", "share"]});
    assert_eq!(
        api.call("POST", "/controls/lift", &scope).await.json(),
        json!({"lifted": 1})
    );
    let left = api.get("/controls").await.json();
    assert_eq!(left["controls"], json!([controls[1], controls[3], controls[4]]));
    for (method, path, wrong, told) in [
        ("POST", "/controls/lift", json!({}), "names no condition"),
        ("POST", "/controls/lift", json!({"effects": ["boo"]}), "boo"),
        (
            "PUT",
            "/controls",
            json!({"controls": [{"scope": {}, "effect": {"rate": {"jobs": 0, "period_ms": 1, "burst": 1}}}]}),
            "the jobs of a rate is 0",
        ),
        (
            "PUT",
            "/controls",
            json!({"controls": [{"scope": {"queu": "a"}, "effect": {"concurrency": {"jobs_max": 1}}}]}),
            "queu",
        ),
    ] {
        let refused = api.call(method, path, &wrong).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{refused:?}");
        assert!(refused.refusal().contains(told), "{refused:?}");
    }
}

/// Jobs with one key become one, and those whose values are known do not run.
#[tokio::test]
async fn jobs_are_debounced_and_cached() {
    let api = Api::new().await;
    let debounced = |payload: i32, debounce: Value| json!({"kind": "a", "payload": payload, "key": "x", "unique": {"debounce": debounce}});
    let merged = json!({"delay_ms": 60_000, "wait_ms_max": 120_000, "payloads": "merged"});
    let first = api.post("/jobs", &debounced(1, merged.clone())).await.json();
    let second = api.post("/jobs", &debounced(2, merged)).await.json();
    assert_eq!(second["ids"], first["ids"]);
    let id = first["ids"][0].as_str().unwrap();
    let job = api.get(&format!("/jobs/{id}")).await.json();
    assert_eq!(
        (&job["payload"], &job["state"]),
        (&json!([1, 2]), &json!("scheduled"))
    );
    for wrong in [
        json!({"delay_ms": 0}),
        json!({"delay_ms": 5, "wait_ms_max": 4}),
        json!({}),
    ] {
        let refused = api.post("/jobs", &debounced(3, wrong)).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    }

    let cached =
        json!({"kind": "double", "payloads": [7, 8], "cached_ms": 600_000, "complete_within_ms": 600_000});
    api.post("/jobs", &cached).await;
    work_off(&api).await;
    let again = api.post("/jobs", &cached).await.json()["batches"][0]["batch"].clone();
    let known = api.get(&format!("/jobs/{again}:0")).await.json();
    assert_eq!(
        (&known["state"], &known["attempt"]),
        (&json!("completed"), &json!(0))
    );
    // The last one of the first batch failed.
    let other = api.get(&format!("/jobs/{again}:1")).await.json();
    assert_eq!(other["state"], "waiting");
    let keyed = json!({"kind": "a", "payload": 1, "key": "y", "cached_ms": 5});
    assert_eq!(api.post("/jobs", &keyed).await.status, StatusCode::BAD_REQUEST);
}
