//! Traces, metrics and warnings of real processes, from the side of an OTLP receiver.

use std::process::Command;
use std::sync::mpsc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::Uri;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::processes::{PATIENCE, Server};
use crate::workspace::{Ended, Workspace};

on_each_store! {
    the_jobs_of_a_traced_request_leave_spans_in_its_trace,
    a_traced_command_line_and_its_worker_share_a_trace,
}

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

/// The third job fails.
const DOUBLE: &str =
    "def main(payload):\n    if payload == 3:\n        raise ValueError('three')\n    return payload * 2\n";

/// Each job returns its trace context.
const SEE: &str = "import gristmill\n\ndef main(payload):\n    return gristmill.job().traceparent\n";

/// A receiver of OTLP. It keeps the paths and bodies of requests.
struct Receiver {
    url: String,
    runtime: Runtime,
    arrived: mpsc::Receiver<(String, Value)>,
}

impl Receiver {
    fn start() -> Receiver {
        async fn take(
            State(sender): State<mpsc::Sender<(String, Value)>>,
            uri: Uri,
            body: Bytes,
        ) -> &'static str {
            let body = serde_json::from_slice(&body).expect("JSON");
            // The test may be over.
            let _ = sender.send((uri.path().to_owned(), body));
            "{}"
        }
        let runtime = Runtime::new().unwrap();
        let (sender, arrived) = mpsc::channel();
        let router = Router::new()
            .fallback(take)
            .layer(DefaultBodyLimit::max(64 << 20))
            .with_state(sender);
        let bound = tokio::net::TcpListener::bind("127.0.0.1:0");
        let listener = runtime.block_on(bound).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        runtime.spawn(async move { axum::serve(listener, router).await });
        Receiver {
            url,
            runtime,
            arrived,
        }
    }

    fn told_of(&self, mut command: Command, service: &str) -> Command {
        command
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", &self.url)
            .env("OTEL_SERVICE_NAME", service)
            .env("OTEL_METRIC_EXPORT_INTERVAL", "50");
        command
    }

    /// The metric with this name in the next export that has it.
    fn metric(&self, name: &str, others: &mut Vec<(String, Value)>) -> Value {
        loop {
            let (path, body) = self.arrived.recv_timeout(PATIENCE).expect("an export comes");
            if path == "/v1/metrics" {
                let metrics = body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]
                    .as_array()
                    .unwrap();
                if let Some(metric) = metrics.iter().find(|metric| metric["name"] == name) {
                    return metric.clone();
                }
            } else {
                others.push((path, body));
            }
        }
    }

    /// The received spans after the end of the programs, each with the name of its service.
    fn spans(&self, earlier: Vec<(String, Value)>) -> Vec<(String, Value)> {
        let mut spans = Vec::new();
        for (path, body) in earlier.into_iter().chain(self.arrived.try_iter()) {
            if path != "/v1/traces" {
                continue;
            }
            let resource = &body["resourceSpans"][0];
            let service = attribute(&resource["resource"], "service.name")["stringValue"].clone();
            for span in resource["scopeSpans"][0]["spans"].as_array().unwrap() {
                spans.push((service.as_str().unwrap().to_owned(), span.clone()));
            }
        }
        spans
    }
}

fn attribute<'a>(record: &'a Value, key: &str) -> &'a Value {
    let attributes = record["attributes"].as_array().expect("attributes");
    let found = attributes.iter().find(|attribute| attribute["key"] == key);
    &found.unwrap_or_else(|| panic!("no {key} in {record}"))["value"]
}

fn number(span: &Value, key: &str) -> u64 {
    attribute(span, key)["intValue"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap()
}

/// The spans with this service, name and trace.
fn of<'s>(spans: &'s [(String, Value)], service: &str, name: &str) -> Vec<&'s Value> {
    let found = spans
        .iter()
        .filter(|(of, span)| of == service && span["name"] == name && span["traceId"] == TRACE);
    found.map(|(_, span)| span).collect()
}

/// The ids of spans.
fn ids(spans: &[&Value]) -> Vec<Value> {
    spans.iter().map(|span| span["spanId"].clone()).collect()
}

/// Checks that these spans are children of the parents, and that they have this many jobs together.
#[track_caller]
fn check(spans: &[&Value], parents: &[Value], jobs: u64) {
    assert!(
        spans.iter().all(|span| parents.contains(&span["parentSpanId"])),
        "{spans:#?}"
    );
    let counted: u64 = spans.iter().map(|span| number(span, "gristmill.jobs")).sum();
    assert_eq!(counted, jobs, "{spans:#?}");
}

fn the_jobs_of_a_traced_request_leave_spans_in_its_trace(new_workspace: fn() -> Workspace) {
    let (workspace, receiver) = (new_workspace(), Receiver::start());
    workspace.write("double.py", DOUBLE);
    let command = workspace.command("serve --listen 127.0.0.1:0");
    let server = Server::start(receiver.told_of(command, "server"));

    let body =
        json!({"kind": "double", "payloads": (1..=20).collect::<Vec<u32>>(), "retry": {"attempts_max": 1}});
    let submit = |traceparent: Option<&str>| {
        // An error means that the process already has a provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut request = reqwest::Client::new()
            .post(format!("{}/api/v1/jobs", server.url))
            .header("content-type", "application/json")
            .body(body.to_string());
        if let Some(traceparent) = traceparent {
            request = request.header("traceparent", traceparent);
        }
        let answer = receiver.runtime.block_on(request.send()).unwrap();
        assert_eq!(answer.status(), 201);
    };
    submit(Some(&format!("00-{TRACE}-{SPAN}-01")));
    submit(None);
    // A wrong or unsampled context does not count.
    submit(Some("wrong"));
    submit(Some(&format!("00-{TRACE}-{SPAN}-00")));

    let mut command = workspace.command("agent double.py --kind double --drain --batch 100 --quiet");
    command.env("BASE_URL", &server.url);
    Ended::from(receiver.told_of(command, "agent").output().unwrap()).expect(1);
    let mut others = Vec::new();
    let completed = receiver.metric("gristmill_jobs_completed_total", &mut others);
    assert_eq!(
        (&completed["sum"]["isMonotonic"], &completed["unit"]),
        (&json!(true), &json!("{job}"))
    );
    let point = &completed["sum"]["dataPoints"][0];
    let time_ns = |name: &str| -> u64 { point[name].as_str().unwrap().parse().unwrap() };
    assert!(
        time_ns("startTimeUnixNano") <= time_ns("timeUnixNano") && time_ns("startTimeUnixNano") > 0,
        "{point}"
    );
    server.stop();

    let spans = receiver.spans(others);
    let submits = of(&spans, "server", "submit double");
    check(&submits, &[json!(SPAN)], 20);
    let runs = of(&spans, "agent", "run double");
    check(&runs, &ids(&submits), 20);
    check(&of(&spans, "agent", "commit"), &ids(&submits), 20);
    let jobs = of(&spans, "agent", "job double");
    let [job] = &jobs[..] else {
        panic!("one job failed: {jobs:#?}");
    };
    assert_eq!(job["status"]["code"], 2, "{job}");
    assert_eq!(job["status"]["message"], "three", "{job}");
    assert_eq!(attribute(job, "error.type")["stringValue"], "ValueError");
    assert!(
        runs.iter().any(|run| run["spanId"] == job["parentSpanId"]),
        "{job} is below none of {runs:#?}"
    );
    // The other jobs have traces of their own.
    let others = spans
        .iter()
        .filter(|(_, span)| span["name"] == "run double" && span["traceId"] != TRACE);
    let jobs: u64 = others.map(|(_, span)| number(span, "gristmill.jobs")).sum();
    assert_eq!(jobs, 60);
}

fn a_traced_command_line_and_its_worker_share_a_trace(new_workspace: fn() -> Workspace) {
    let (workspace, receiver) = (new_workspace(), Receiver::start());
    workspace.write("double.py", SEE);
    let context = format!("00-{TRACE}-{SPAN}-01");
    let mut command = workspace.command("submit double 1 2");
    command.env("TRACEPARENT", &context);
    Ended::from(receiver.told_of(command, "submit").output().unwrap()).expect(0);
    // A wrong variable belongs to another program.
    let mut command = workspace.command("submit double 4 --key a");
    command.env("TRACEPARENT", "wrong");
    Ended::from(command.output().unwrap()).expect(0);
    let command = workspace.command(&format!("submit double 5 --key b --traceparent {context}"));
    Ended::from(receiver.told_of(command, "submit").output().unwrap()).expect(0);
    let refused = workspace.run("submit double 6 --traceparent wrong");
    assert!(refused.error().contains("`wrong` is not a trace context"));

    let command = workspace.command("worker double.py --kind double --drain --quiet");
    Ended::from(receiver.told_of(command, "worker").output().unwrap()).expect(0);
    let spans = receiver.spans(Vec::new());
    let submits = of(&spans, "submit", "submit double");
    check(&submits, &[json!(SPAN)], 3);
    let runs = of(&spans, "worker", "run double");
    check(&runs, &ids(&submits), 3);
    check(&of(&spans, "worker", "commit"), &ids(&submits), 3);
    // The jobs see the spans in which they run.
    let results =
        workspace.run("results --batch 1").expect(0) + &workspace.run("results --batch 3").expect(0);
    for run in &runs {
        let context = format!("00-{TRACE}-{}-01", run["spanId"].as_str().unwrap());
        assert!(results.contains(&context), "{context} in {results}");
    }
}

#[test]
fn unusable_variables_are_named_and_do_no_harm() {
    let workspace = Workspace::new();
    let mut command = workspace.command("submit double 1");
    command
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
        .env("OTEL_TRACES_EXPORTER", "zipkin");
    let ended = Ended::from(command.output().unwrap());
    let says = "gristmill: warning: OTEL_TRACES_EXPORTER is `zipkin`: give otlp or none";
    assert!(ended.stderr.contains(says), "{}", ended.stderr);
    ended.expect(0);
}
