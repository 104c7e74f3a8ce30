//! Tests with a receiver of OTLP: the records that arrive, and the losses when the receiver takes nothing.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::IntoResponse;
use gristmill_model::{BatchId, NewBatch, PackedArray, TraceParent};
use gristmill_protocol::metric::{MetricFamily, MetricKind};
use gristmill_telemetry::Telemetry;
use gristmill_telemetry::settings::{self, Signal};
use gristmill_worker::spans::SubmitSpans;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tracing_subscriber::layer::SubscriberExt;

/// The longest time that a test waits for an event.
const PATIENCE: Duration = Duration::from_secs(60);

/// A request that arrived.
#[derive(Debug)]
struct Request {
    path: String,
    token: String,
    body: Value,
}

#[derive(Clone)]
struct Answers {
    requests: mpsc::UnboundedSender<Request>,
    /// The next answers. After them every answer is a success.
    planned: Arc<Mutex<VecDeque<(StatusCode, &'static str)>>>,
}

struct Receiver {
    url: String,
    requests: mpsc::UnboundedReceiver<Request>,
}

impl Receiver {
    async fn start(planned: impl IntoIterator<Item = (StatusCode, &'static str)>) -> Receiver {
        async fn take(
            State(answers): State<Answers>,
            uri: Uri,
            headers: HeaderMap,
            body: Bytes,
        ) -> impl IntoResponse {
            assert_eq!(headers["content-type"], "application/json");
            let token = headers
                .get("authorization")
                .map_or("", |value| value.to_str().unwrap());
            // The test may have ended.
            let _ = answers.requests.send(Request {
                path: uri.path().to_owned(),
                token: token.to_owned(),
                body: serde_json::from_slice(&body).expect("JSON"),
            });
            let planned = answers.planned.lock().unwrap().pop_front();
            let (status, text) = planned.unwrap_or((StatusCode::OK, "{}"));
            (status, [("retry-after", "0")], text)
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (sender, requests) = mpsc::unbounded_channel();
        let answers = Answers {
            requests: sender,
            planned: Arc::new(Mutex::new(planned.into_iter().collect())),
        };
        let router = Router::new()
            .fallback(take)
            .layer(DefaultBodyLimit::max(64 << 20))
            .with_state(answers);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Receiver { url, requests }
    }

    async fn next(&mut self) -> Request {
        let next = tokio::time::timeout(PATIENCE, self.requests.recv());
        next.await.expect("a request arrives").expect("the receiver runs")
    }
}

fn telemetry(url: &str, more: &[(&str, &str)]) -> Telemetry {
    let read = settings::read(&|name| match name {
        "OTEL_EXPORTER_OTLP_ENDPOINT" => Some(url.to_owned()),
        "OTEL_EXPORTER_OTLP_HEADERS" => Some("authorization=Bearer%20secret".to_owned()),
        "OTEL_SERVICE_NAME" => Some("tested".to_owned()),
        "OTEL_BSP_SCHEDULE_DELAY" | "OTEL_BLRP_SCHEDULE_DELAY" | "OTEL_METRIC_EXPORT_INTERVAL" => {
            Some("10".to_owned())
        }
        name => {
            let found = more.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        }
    });
    assert_eq!(read.warnings, Vec::<String>::new());
    Telemetry::new(read.settings.unwrap()).unwrap()
}

const PARENT: TraceParent = TraceParent {
    trace_id: 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c,
    span_id: 0xb7ad_6b71_6920_3331,
};

/// Makes the spans of this many submits.
fn submit(times: u32) {
    let mut batch = NewBatch::new("resize", PackedArray::parse("[1,2,3]").unwrap());
    for _ in 0..times {
        batch.options.traceparent = Some(PARENT);
        SubmitSpans::begin(std::slice::from_mut(&mut batch)).end([Some(BatchId(42))]);
    }
}

/// The value of an attribute by its key.
fn attribute<'a>(record: &'a Value, key: &str) -> &'a Value {
    let attributes = record["attributes"].as_array().expect("attributes");
    let found = attributes.iter().find(|attribute| attribute["key"] == key);
    &found.unwrap_or_else(|| panic!("no {key} in {record}"))["value"]
}

fn within<R>(telemetry: &Telemetry, does: impl FnOnce() -> R) -> R {
    let subscriber = tracing_subscriber::registry().with(telemetry.layer());
    tracing::subscriber::with_default(subscriber, does)
}

#[tokio::test]
async fn only_spans_and_warnings_arrive() {
    let mut receiver = Receiver::start([]).await;
    let telemetry = telemetry(&receiver.url, &[("OTEL_METRICS_EXPORTER", "none")]);
    within(&telemetry, || {
        submit(1);
        tracing::info!("not exported");
        tracing::warn!(target: "hyper::client", "not exported either");
        tracing::warn!(job = 7, "it is \"late\"");
    });
    telemetry.start(&Handle::current());
    let mut requests = [receiver.next().await, receiver.next().await];
    requests.sort_by(|one, other| one.path.cmp(&other.path));
    let [logs, traces] = &requests;
    assert_eq!(
        (logs.path.as_str(), traces.path.as_str()),
        ("/v1/logs", "/v1/traces")
    );
    assert_eq!(traces.token, "Bearer secret");

    let resource = &traces.body["resourceSpans"][0];
    assert_eq!(
        attribute(&resource["resource"], "service.name")["stringValue"],
        "tested"
    );
    let spans = resource["scopeSpans"][0]["spans"].as_array().unwrap();
    let [span] = &spans[..] else {
        panic!("one span: {spans:?}");
    };
    assert_eq!(span["traceId"], "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(span["parentSpanId"], "b7ad6b7169203331");
    assert_eq!(
        (&span["name"], &span["kind"]),
        (&"submit resize".into(), &4.into())
    );
    assert_eq!(attribute(span, "gristmill.jobs")["intValue"], "3");
    assert_eq!(attribute(span, "gristmill.batch")["intValue"], "42");
    let time = |name: &str| span[name].as_str().unwrap().parse::<u64>().unwrap();
    assert!(time("startTimeUnixNano") > 1 << 60 && time("startTimeUnixNano") <= time("endTimeUnixNano"));

    let records = logs.body["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
        .as_array()
        .unwrap();
    let [record] = &records[..] else {
        panic!("one line: {records:?}");
    };
    assert_eq!(record["body"]["stringValue"], "it is \"late\"");
    assert_eq!(record["severityText"], "WARN");
    assert_eq!(attribute(record, "gristmill.job")["intValue"], "7");

    telemetry.finish().await;
    assert!(receiver.requests.try_recv().is_err(), "an empty export");
}

#[tokio::test]
async fn a_busy_receiver_gets_a_request_again_and_refused_records_are_counted() {
    let busy = (StatusCode::SERVICE_UNAVAILABLE, "");
    let partial = r#"{"partialSuccess":{"rejectedSpans":"2","errorMessage":"too old"}}"#;
    let planned = [
        busy,
        busy,
        (StatusCode::OK, partial),
        (StatusCode::BAD_REQUEST, ""),
    ];
    let mut receiver = Receiver::start(planned).await;
    let telemetry = telemetry(&receiver.url, &[("OTEL_LOGS_EXPORTER", "none")]);
    telemetry.start(&Handle::current());
    within(&telemetry, || submit(3));
    let first = receiver.next().await.body;
    assert_eq!(receiver.next().await.body, first);
    assert_eq!(receiver.next().await.body, first);
    // The fourth answer refuses a whole request.
    within(&telemetry, || submit(5));
    receiver.next().await;
    telemetry.finish().await;
    assert_eq!(telemetry.dropped(Signal::Traces), 2 + 5);
    assert!(
        receiver.requests.try_recv().is_err(),
        "a refused request is not sent again"
    );
}

#[tokio::test]
async fn a_dead_receiver_blocks_nothing_and_lost_records_are_counted() {
    // The system accepts connections for this listener, but nothing ever answers.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let telemetry = telemetry(&url, &[]);
    telemetry.start(&Handle::current());
    // The first request waits for its answer.
    within(&telemetry, || submit(1));
    let (_connection, _) = tokio::time::timeout(PATIENCE, listener.accept())
        .await
        .unwrap()
        .unwrap();
    let spans = 40_000;
    within(&telemetry, || submit(spans));
    let dropped = telemetry.dropped(Signal::Traces);
    // The queue keeps 4 MiB of spans, each of about 500 bytes.
    let kept = u64::from(spans) - dropped;
    assert!((4_000..20_000).contains(&kept), "{kept} are kept");
    let begun = Instant::now();
    telemetry.finish().await;
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_missing_receiver_leads_to_counted_losses() {
    // Nothing listens at the address of a dropped listener.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let telemetry = telemetry(&url, &[("OTEL_LOGS_EXPORTER", "none")]);
    within(&telemetry, || submit(3));
    telemetry.start(&Handle::current());
    telemetry.finish().await;
    assert_eq!(telemetry.dropped(Signal::Traces), 3);
}

#[tokio::test]
async fn the_sampler_decides_about_traces_of_submitters() {
    for (sampler, expected) in [("parentbased_always_off", 1), ("always_off", 0)] {
        let mut receiver = Receiver::start([]).await;
        let telemetry = telemetry(&receiver.url, &[("OTEL_TRACES_SAMPLER", sampler)]);
        within(&telemetry, || submit(1));
        telemetry.start(&Handle::current());
        telemetry.finish().await;
        let mut count = 0;
        while receiver.requests.try_recv().is_ok() {
            count += 1;
        }
        assert_eq!(count, expected, "{sampler}");
    }
}

#[tokio::test]
async fn metrics_include_the_numbers_of_lost_records() {
    let mut receiver = Receiver::start([(StatusCode::BAD_REQUEST, "")]).await;
    let telemetry = telemetry(&receiver.url, &[]);
    telemetry.push_metrics(|| async {
        let labels = vec![("queue", "q".to_owned())];
        Some(vec![MetricFamily::counts(
            "depth",
            "",
            MetricKind::Gauge,
            [(labels, 7)],
        )])
    });
    let first = receiver.next().await;
    assert_eq!(first.path, "/v1/metrics");
    let metrics =
        |request: &Request| request.body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].clone();
    assert_eq!(metrics(&first)[0]["gauge"]["dataPoints"][0]["asDouble"], 7.0);
    let second = metrics(&receiver.next().await);
    assert_eq!(second[1]["name"], "gristmill_telemetry_dropped_total");
    let points = second[1]["sum"]["dataPoints"].as_array().unwrap();
    let of_metrics = points
        .iter()
        .find(|point| attribute(point, "signal")["stringValue"] == "metrics");
    assert_eq!(
        of_metrics.unwrap()["asDouble"],
        2.0,
        "two metrics of the first export"
    );
    telemetry.finish().await;
}

#[tokio::test]
async fn no_span_is_prepared_without_a_subscriber() {
    let subscriber = tracing_subscriber::registry();
    tracing::subscriber::with_default(subscriber, || {
        assert!(
            gristmill_worker::spans::is_on(),
            "a subscriber without a filter takes every event"
        );
    });
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::ERROR)
        .finish();
    tracing::subscriber::with_default(subscriber, || {
        assert!(!gristmill_worker::spans::is_on());
    });
}
