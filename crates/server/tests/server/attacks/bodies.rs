//! Bodies that arrive slowly or never, or that expand.

use std::process::Command;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{HeaderValue, Request, StatusCode};
use bytes::Bytes;
use futures::future::join_all;
use futures::stream;
use gristmill_model::{Report, Suspended};
use gristmill_protocol::EXCHANGE_TYPE;
use gristmill_server::Role;
use serde_json::json;
use tower::ServiceExt;

use super::{BYSTANDER_WITHIN, PATIENCE};
use crate::support::{Answer, Api, request};

/// This variable is set in a process that runs one test.
const ALONE: &str = "GRISTMILL_TEST_RUNS_ALONE";

/// Reports whether this process runs only one test, which may then measure the memory of the process. Otherwise runs
/// the test in its own process, and fails if the test fails.
fn runs_alone(test: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let (_, module) = module_path!().split_once("::").unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("{module}::{test}"), "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    println!("{stdout}");
    assert!(
        output.status.success() && stdout.contains("test result: ok. 1 passed"),
        "{stdout}{stderr}"
    );
    false
}

/// The growth of this process's peak resident memory.
struct Peak {
    begun_kibibytes: u64,
}

impl Peak {
    fn begin() -> Peak {
        let mut peak = Peak { begun_kibibytes: 0 };
        peak.forget();
        peak
    }

    /// Starts again. Memory that the allocator kept after earlier releases does not count.
    fn forget(&mut self) {
        std::fs::write("/proc/self/clear_refs", "5").unwrap();
        self.begun_kibibytes = resident_kibibytes("VmRSS:");
    }

    fn mebibytes(&self) -> u64 {
        resident_kibibytes("VmHWM:").saturating_sub(self.begun_kibibytes) >> 10
    }
}

fn resident_kibibytes(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let value = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    value.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A request whose body is compressed.
fn compressed(token: &str, path: &str, content_type: &str, body: &[u8]) -> Request<Body> {
    let body = zstd::encode_all(body, 1).unwrap().into();
    let mut request = request("POST", path, Some(token), Some(content_type), body);
    let encoding = "zstd".parse().unwrap();
    request.headers_mut().insert("content-encoding", encoding);
    request
}

/// Sends requests together, and asks for the server's health meanwhile. Returns the answers and the longest wait for health.
async fn beside_health(api: &Api, requests: Vec<Request<Body>>) -> (Vec<Answer>, Duration) {
    let attack = join_all(requests.into_iter().map(|request| api.send(request)));
    let mut attack = std::pin::pin!(tokio::time::timeout(PATIENCE, attack));
    let mut longest = Duration::ZERO;
    loop {
        let asked = Instant::now();
        let health = Request::get("/healthz").body(Body::empty()).unwrap();
        let watch = async {
            let answer = api.send(health).await;
            assert_eq!(answer.status, StatusCode::OK);
            tokio::task::yield_now().await;
        };
        let mut watch = std::pin::pin!(watch);
        tokio::select! {
            answers = &mut attack => return (answers.unwrap(), longest.max(asked.elapsed())),
            () = &mut watch => {}
        }
        longest = longest.max(asked.elapsed());
    }
}

#[tokio::test]
async fn bodies_that_never_arrive_delay_no_heartbeat_and_no_submit() {
    let api = Api::new().await;
    let agent = api.token("group", Role::Agent, &["default"]);
    let worker = api.register(&agent).await;
    let mut attack = Vec::new();
    for compressed in [false, true] {
        for _ in 0..40 {
            let silent = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
            let mut request = request(
                "POST",
                "/jobs",
                Some(&api.admin),
                Some("application/json"),
                Bytes::new(),
            );
            if compressed {
                let headers = request.headers_mut();
                headers.insert("content-encoding", "zstd".parse().unwrap());
                headers.insert("content-length", HeaderValue::from(8u32 << 20));
            }
            *request.body_mut() = silent;
            let router = api.router.clone();
            attack.push(tokio::spawn(router.oneshot(request)));
        }
    }
    tokio::task::yield_now().await;
    let bystander = async {
        let path = format!("/workers/{worker}/heartbeat");
        let body = json!({"number": 1}).to_string().into();
        let heartbeat = request("POST", &path, Some(&agent), Some("application/json"), body);
        assert_eq!(api.send(heartbeat).await.status, StatusCode::OK);
        let exchanged = api.exchange(&agent, worker, api.wanting(1, 1)).await;
        assert_eq!(exchanged.status, StatusCode::OK);
        api.submit("a", json!([1])).await;
    };
    tokio::time::timeout(BYSTANDER_WITHIN, bystander).await.unwrap();
    for request in attack {
        request.abort();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decompressed_bodies_take_no_more_memory_than_there_is_room_for() {
    if !runs_alone("decompressed_bodies_take_no_more_memory_than_there_is_room_for") {
        return;
    }
    let mut peak = Peak::begin();
    let api = Api::new().await;
    // 180 kB on the wire become 40 MiB.
    let mut body = b"no JSON ".to_vec();
    let mut noise = 1u64;
    while body.len() < 180_000 {
        noise = noise
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        body.extend_from_slice(&noise.to_le_bytes());
    }
    body.resize(40 << 20, b' ');
    let requests = (0..12).map(|_| compressed(&api.admin, "/jobs", "application/json", &body));
    let requests = requests.collect();
    drop(body);
    peak.forget();
    let (answers, longest) = beside_health(&api, requests).await;
    for answer in answers {
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    }
    let mebibytes = peak.mebibytes();
    println!("12 bodies: {mebibytes} MiB, {longest:?}");
    assert!(mebibytes < 240, "{mebibytes} MiB");
    assert!(longest < BYSTANDER_WITHIN, "{longest:?}");
}

/// A body that repeats `entry` until it has 30 MiB.
fn repeated(head: &str, entry: &str, tail: &str) -> Vec<u8> {
    let times = (30 << 20) / entry.len();
    let mut body = head.as_bytes().to_vec();
    body.extend_from_slice(entry.repeat(times).as_bytes());
    body.pop();
    body.extend_from_slice(tail.as_bytes());
    body
}

/// Reports that are short, and would be much memory: the text before an entry, the entry, and the text after them.
const OF_REPORTS: [(&str, &str, &str); 4] = [
    (
        r#"{"worker":1,"outcomes":[{"job":"1:0","lease":1,"attempt":1,"error":["#,
        "[],",
        "]}]}",
    ),
    (
        r#"{"worker":1,"outcomes":["#,
        r#"{"job":"1:0","lease":1,"attempt":1},"#,
        "]}",
    ),
    (
        r#"{"worker":1,"outcomes":[{"job":"1:0","lease":1,"attempt":1,"spawned":{"memo":[1],"children":["#,
        r#"{"event":null,"payloads":[]},"#,
        "]}}]}",
    ),
    (
        r#"{"worker":1,"outcomes":[{"job":"1:0","lease":1,"attempt":1,"spawned":{"memo":[1],"children":[],"flow":true,"given_up":["#,
        r#""1:0","#,
        "]}}]}",
    ),
];

#[tokio::test]
async fn lists_in_short_bodies_take_no_more_memory_than_their_limits_allow() {
    if !runs_alone("lists_in_short_bodies_take_no_more_memory_than_their_limits_allow") {
        return;
    }
    let api = Api::new().await;
    let agent = api.token("group", Role::Agent, &["default"]);
    let mut peak = Peak::begin();
    for (token, path, head, entry, tail) in [
        (
            &api.admin,
            "/jobs",
            r#"{"kind":"a","payload":1,"tags":["#,
            "{},",
            "]}",
        ),
        (
            &api.admin,
            "/jobs",
            r#"{"kind":"a","payload":1,"priority":["#,
            "[],",
            "]}",
        ),
        (&api.admin, "/jobs", r#"{"kind":"a","payloads":["#, "1,", "]}"),
        (
            &api.admin,
            "/jobs",
            r#"{"kind":"a","payloads":[1],"keys":["#,
            "null,",
            "]}",
        ),
        (
            &api.admin,
            "/jobs",
            r#"{"kind":"a","payload":1,"after":["#,
            r#""","#,
            "]}",
        ),
        (
            &api.admin,
            "/jobs",
            r#"{"kind":"a","payload":1,"tags":{"#,
            r#""a":"","#,
            "}}",
        ),
        (&api.admin, "/jobs/cancel", r#"{"jobs":["#, r#""","#, "]}"),
        (
            &api.admin,
            "/jobs/cancel",
            r#"{"filter":{"tags":["#,
            r#""","#,
            "]}}",
        ),
        (&api.admin, "/controls/lift", r#"{"effects":["#, r#""","#, "]}"),
    ]
    .into_iter()
    .chain(OF_REPORTS.map(|(head, entry, tail)| (&agent, "/reports", head, entry, tail)))
    {
        let body = repeated(head, entry, tail);
        let attack = compressed(token, path, "application/json", &body);
        drop(body);
        peak.forget();
        let (answers, longest) = beside_health(&api, vec![attack]).await;
        assert_eq!(
            answers[0].status,
            StatusCode::BAD_REQUEST,
            "{path} {head}: {}",
            answers[0].refusal()
        );
        let mebibytes = peak.mebibytes();
        println!("{path} {head}: {mebibytes} MiB, {longest:?}");
        assert!(mebibytes < 250, "{mebibytes} MiB during {path} {head}");
        assert!(longest < BYSTANDER_WITHIN, "{longest:?} during {path} {head}");
    }
}

#[tokio::test]
async fn lists_in_exchanges_take_no_more_memory_than_their_limits_allow() {
    if !runs_alone("lists_in_exchanges_take_no_more_memory_than_their_limits_allow") {
        return;
    }
    let api = Api::new().await;
    let agent = api.token("group", Role::Agent, &["default"]);
    let worker = api.register(&agent).await;
    let path = format!("/workers/{worker}/exchange");
    let mut peak = Peak::begin();
    let begin = r#"{"number":1,"attempt":1,"acknowledged":0,"instance":"","#;
    let report = r#"{"lease":1,"batch":1,"attempt":1,"#;
    for (head, entry, tail) in [
        (
            r#""reports":["#.to_owned(),
            r#"{"lease":1,"batch":1,"attempt":1},"#,
            "]}",
        ),
        (
            format!(r#""reports":[{report}"failed":["#),
            r#"{"position":1,"error":{"type":"","message":""},"duration_us":1},"#,
            "]}]}",
        ),
        (
            format!(r#""reports":[{report}"siblings":[{{"positions":"0","children":["#),
            r#"{"kind":"","payloads":[],"shares":[]},"#,
            "]}]}]}",
        ),
        (
            format!(r#""reports":[{report}"siblings":["#),
            r#"{"positions":"","children":[{"kind":"","payloads":[],"shares":[]}]},"#,
            "]}]}",
        ),
        (
            r#""want":{"jobs_max":1,"kinds":[],"queues":["#.to_owned(),
            r#""","#,
            "]}}",
        ),
    ] {
        let mut json = repeated(&format!("{begin}{head}"), entry, tail);
        let mut message = b"GMX1".to_vec();
        message.extend_from_slice(&u32::try_from(json.len()).unwrap().to_le_bytes());
        message.append(&mut json);
        drop(json);
        let attack = compressed(&agent, &path, EXCHANGE_TYPE, &message);
        drop(message);
        peak.forget();
        let (answers, longest) = beside_health(&api, vec![attack]).await;
        assert_eq!(answers[0].status, StatusCode::BAD_REQUEST, "{head}");
        let mebibytes = peak.mebibytes();
        println!("{head}: {mebibytes} MiB, {longest:?}");
        assert!(mebibytes < 400, "{mebibytes} MiB during {head}");
        assert!(longest < BYSTANDER_WITHIN, "{longest:?} during {head}");
    }
}

#[tokio::test]
async fn many_reports_of_all_positions_are_read_at_once() {
    let api = Api::new().await;
    let agent = api.token("group", Role::Agent, &["default"]);
    let worker = api.register(&agent).await;
    let mut exchange = api.wanting(1, 0);
    let mut report = Report::new(gristmill_model::LeaseId(1), gristmill_model::BatchId(1), 1);
    report.released = "0-9999".parse().unwrap();
    // The last report is wrong, so that the store has nothing to do.
    let mut wrong = report.clone();
    wrong.suspended = vec![Suspended {
        positions: "0".parse().unwrap(),
        memos: gristmill_model::PackedArray::parse("[1]").unwrap(),
        on_failure: Default::default(),
        flow: None,
        seen: Vec::new(),
        given_up: Vec::new(),
        cleanup_ms: None,
        children: Vec::new(),
    }];
    exchange.reports = vec![report; 9_999];
    exchange.reports.push(wrong);
    let begun = Instant::now();
    let answer = api.exchange(&agent, worker, exchange).await;
    assert!(
        answer.refusal().contains("speaks of a position twice"),
        "{}",
        answer.refusal()
    );
    assert!(begun.elapsed() < BYSTANDER_WITHIN, "{:?}", begun.elapsed());
}
