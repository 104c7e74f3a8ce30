//! Refusals by the fault of the request. A refused request stores and claims nothing.

use axum::http::StatusCode;
use bytes::Bytes;
use gristmill_operations::limits::WAIT_MS_MAX;
use gristmill_protocol::EXCHANGE_TYPE;
use gristmill_server::Role;
use gristmill_server::limits::{JOBS_PER_REQUEST_MAX, LONG_POLLS_MAX, REQUEST_BYTES_MAX};
use serde_json::json;
use tower::ServiceExt;

use super::jobs_stored;
use crate::support::{Api, request};

#[tokio::test]
async fn wrong_bodies_are_refused_with_their_fault_and_nothing_is_stored() {
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
        (
            r#"{"kind":"a","payload":1,"priorty":1}"#.to_owned(),
            "unknown field `priorty`: did you mean `priority`?",
        ),
        (
            r#"{"kind":"a","payload":1,"retry":{"attempts":1}}"#.to_owned(),
            "unknown field `attempts`: did you mean `attempts_max`?",
        ),
        (
            r#"{"kind":"a","payload":1,"retry":{"backoff":"liner"}}"#.to_owned(),
            "unknown variant `liner`: did you mean `linear`?",
        ),
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
async fn deep_nesting_is_refused_everywhere() {
    let api = Api::new().await;
    let deep = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    let submit = |levels: usize| format!(r#"{{"kind":"a","payload":{}}}"#, deep(levels));
    assert_eq!(
        api.post_text("/jobs", &submit(128)).await.status,
        StatusCode::CREATED
    );
    let stream = |levels: usize| {
        let body = Bytes::from(format!("1\n{}\n", deep(levels)));
        let content_type = Some("application/x-ndjson");
        request(
            "POST",
            "/jobs/stream?kind=a",
            Some(&api.admin),
            content_type,
            body,
        )
    };
    let schedule = |levels: usize| {
        let rule = r#"{"every":{"interval_ms":60000}}"#;
        let body = format!(r#"{{"kind":"a","rule":{rule},"payload":{}}}"#, deep(levels));
        let content_type = Some("application/json");
        request(
            "PUT",
            "/schedules/deep",
            Some(&api.admin),
            content_type,
            body.into(),
        )
    };
    for levels in [129, 20_000] {
        let answers = [
            api.post_text("/jobs", &submit(levels)).await,
            api.send(stream(levels)).await,
            api.send(schedule(levels)).await,
        ];
        for answer in answers {
            assert_eq!(answer.status, StatusCode::BAD_REQUEST);
            assert!(
                answer.refusal().contains("nests deeper than 128 levels"),
                "{}",
                answer.refusal()
            );
        }
    }
    assert_eq!(jobs_stored(&api).await, 1);

    let agent = api.token("group", Role::Agent, &["default"]);
    // The parser of this test accepts less depth than a payload in an answer has.
    api.submit("b", json!([1])).await;
    let claim = json!({"kinds": ["b"]}).to_string().into();
    let json_type = Some("application/json");
    let claimed = api
        .send(request("POST", "/claims", Some(&agent), json_type, claim))
        .await
        .json();
    let job = &claimed["jobs"][0];
    let report = |levels: usize| {
        let outcome = format!(
            r#"{{"job":{},"lease":{},"attempt":1,"value":{}}}"#,
            job["job"],
            job["lease"],
            deep(levels)
        );
        let body = format!(r#"{{"worker":{},"outcomes":[{outcome}]}}"#, claimed["worker"]);
        request("POST", "/reports", Some(&agent), json_type, body.into())
    };
    let refused = api.send(report(20_000)).await;
    assert!(
        refused.refusal().contains("nests deeper than 128 levels"),
        "{}",
        refused.refusal()
    );
    assert_eq!(api.send(report(128)).await.json()["accepted"], 1);
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
        ("/jobs/9223372036854775807:2147483646", 404),
        ("/jobs/1:4294967295", 400),
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
    for (query, told) in [
        (format!("batches={batch}&positions="), "`positions` is empty"),
        (format!("batches={batch}&positions=0-1"), "it has 1 jobs"),
        (
            format!("batches={batch}&positions=1&wait_ms=30000"),
            "name positions of 0",
        ),
        (format!("batches={batch}&positions=1-0"), "as in 0-99,120"),
        (format!("batches={batch},{batch}&positions=0"), "names 2 batches"),
        ("run=none&positions=0".to_owned(), "either `batches` or `run`"),
    ] {
        let answer = api.get(&format!("/results?{query}")).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{query}");
        assert!(answer.refusal().contains(told), "{query}: {}", answer.refusal());
    }
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
    let mut push = |change: &dyn Fn(&mut gristmill_protocol::ExchangeRequest)| {
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
async fn no_more_requests_wait_for_results_than_there_is_room_for() {
    let api = Api::new().await;
    let batch = api.submit("k", json!([1])).await;
    let wait = format!("/results?batches={batch}&wait_ms=1");
    let room = api
        .app
        .long_polls
        .clone()
        .acquire_many_owned(u32::try_from(LONG_POLLS_MAX).unwrap());
    let room = room.await.unwrap();
    let answer = api.get(&wait).await;
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    assert!(answer.refusal().contains("4096 at once"), "{}", answer.refusal());
    assert_eq!(answer.headers["retry-after"], "5");
    // A request that does not wait needs no permit.
    let answer = api.get(&format!("/results?batches={batch}")).await;
    assert_eq!(answer.status, StatusCode::OK);
    drop(room);
    assert_eq!(api.get(&wait).await.status, StatusCode::OK);
}
