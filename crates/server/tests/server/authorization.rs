//! Every operation of the description with every way in which a request may lack the right. There are no exceptions:
//! the expected answer of an operation follows from its description.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use bytes::Bytes;
use gristmill_model::Report;
use gristmill_protocol::EXCHANGE_TYPE;
use gristmill_server::Role;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::knowledge;
use crate::support::{self, Api, completing, read, request};

/// One operation of the description.
struct Operation {
    id: String,
    method: String,
    path: String,
    roles: Vec<Role>,
    queues: String,
}

async fn operations(api: &Api) -> Vec<Operation> {
    let description = api.get("/openapi.json").await.json();
    let mut operations = Vec::new();
    let mut probes = Vec::new();
    for (path, item) in description["paths"].as_object().unwrap() {
        if !path.starts_with("/api/v1/") {
            probes.push(path.as_str());
            continue;
        }
        for (method, operation) in item.as_object().unwrap() {
            let roles = operation["x-gristmill-roles"].as_array().unwrap();
            operations.push(Operation {
                id: operation["operationId"].as_str().unwrap().to_owned(),
                method: method.to_uppercase(),
                path: path.strip_prefix("/api/v1").unwrap().to_owned(),
                roles: roles
                    .iter()
                    .map(|role| role.as_str().unwrap().parse().unwrap())
                    .collect(),
                queues: operation["x-gristmill-queues"].as_str().unwrap().to_owned(),
            });
        }
    }
    assert_eq!(probes, ["/healthz", "/readyz"], "nothing else needs no token");
    assert!(operations.len() >= 19);
    operations
}

/// The objects of the requests: jobs and an operation of the default queue, and an agent's worker.
struct World {
    api: Api,
    batch: i64,
    agent: String,
    worker: i64,
    operation: String,
}

impl World {
    async fn new() -> World {
        let api = Api::new().await;
        assert!(api.app.knowledge.set(Arc::new(knowledge::Bees)).is_ok());
        let batch = api.submit("double", json!([1, 2])).await;
        let agent = api.token("group", Role::Agent, &["default"]);
        let worker = api.register(&agent).await;
        let nothing = json!({"change": "retry", "filter": {"queue": "default", "kind": "nothing"}});
        let operation = api.post("/operations", &nothing).await.json()["operation"].clone();
        World {
            api,
            batch,
            agent,
            worker,
            operation: operation.as_str().unwrap().to_owned(),
        }
    }

    /// The body of an operation that names jobs.
    fn body_with_jobs(&self, operation: &str) -> Value {
        let jobs = [format!("{}:0", self.batch)];
        match operation {
            "pause_jobs" => json!({"jobs": jobs, "reason": "deploy"}),
            "prioritise" => json!({"jobs": jobs, "priority": "high"}),
            "fork_flows" => json!({"jobs": jobs, "from": 0}),
            "send_event" => json!({"name": "approve"}),
            "send_events" => json!({"events": [{"job": format!("{}:1", self.batch), "name": "approve"}]}),
            _ => json!({"jobs": jobs}),
        }
    }

    /// A request that is correct except perhaps for its token.
    fn right(&self, operation: &Operation, token: Option<&str>) -> Request<Body> {
        let job = format!("{}:0", self.batch);
        let (suffix, body): (String, Option<(&str, Bytes)>) = match operation.id.as_str() {
            "submit" => (String::new(), json_body(&json!({"kind": "double", "payload": 1}))),
            "submit_stream" => (
                "?kind=double".to_owned(),
                Some(("application/x-ndjson", Bytes::from_static(b"1\n2\n"))),
            ),
            "cancel" | "retry" | "discard" | "pause_jobs" | "prioritise" | "resume_jobs" | "flow_memos"
            | "fork_flows" | "send_event" | "send_events" => {
                (String::new(), json_body(&self.body_with_jobs(&operation.id)))
            }
            "start_operation" => (
                String::new(),
                json_body(&json!({"change": "retry", "filter": {"queue": "default"}})),
            ),
            "jobs" | "batches" | "job_ids" | "count_jobs" | "groups" | "history" | "backlog" => {
                ("?queue=default".to_owned(), None)
            }
            "results" => (format!("?batches={}", self.batch), None),
            "recall" => ("?question=bees".to_owned(), None),
            "register" => (
                String::new(),
                json_body(&json!({"name": "a", "host": "b", "process_id": 1})),
            ),
            "exchange" => (
                String::new(),
                Some((EXCHANGE_TYPE, self.api.wanting(1, 1).encode())),
            ),
            "heartbeat" => (String::new(), json_body(&json!({"number": 1}))),
            "claim" => (String::new(), json_body(&json!({"worker": self.worker}))),
            "report" => (
                String::new(),
                json_body(&json!({"worker": self.worker, "outcomes": [
                    {"job": job, "lease": 1, "attempt": 1, "released": true}]})),
            ),
            "children" => (
                String::new(),
                json_body(&json!({"batch": self.batch, "positions": "0-1"})),
            ),
            "step" | "prerequisites" => (String::new(), json_body(&json!({"job": job}))),
            "put_output" => (String::new(), json_body(&json!({"printed": []}))),
            "logs" => (format!("?job={job}"), None),
            "put_schedule" => (String::new(), json_body(&hourly())),
            "put_controls" => (
                String::new(),
                json_body(
                    &json!({"controls": [{"scope": {"kind": "double"}, "effect": {"concurrency": {"jobs_max": 5}}}]}),
                ),
            ),
            "lift_controls" => (String::new(), json_body(&json!({"reason": "deploy"}))),
            "pause_schedule" => (String::new(), json_body(&json!({}))),
            "schedule" | "schedules" | "delete_schedule" | "resume_schedule" | "trigger_schedule" => {
                (String::new(), None)
            }
            "operations" | "operation" | "cancel_operation" | "controls" | "flows" | "flow_kinds" | "job"
            | "steps" | "tag_values" | "queues" | "runs" | "workers" | "stats" | "memory" | "events"
            | "metrics" | "health" | "ready" | "openapi" | "leave" | "drain_worker" => (String::new(), None),
            new => panic!("the operation `{new}` is new: say what a right request of it is"),
        };
        // No other request ends this one.
        let job = match operation.id.as_str() {
            "send_event" => format!("{}:1", self.batch),
            _ => job,
        };
        let path = operation
            .path
            .replace("{job}", &job)
            .replace("{schedule}", "nightly")
            .replace("{tag}", "customer")
            .replace("{operation}", &self.operation)
            .replace("{worker}", &self.worker.to_string());
        let (content_type, body) = body.map_or((None, Bytes::new()), |(name, body)| (Some(name), body));
        request(
            &operation.method,
            &format!("{path}{suffix}"),
            token,
            content_type,
            body,
        )
    }

    /// The status only, because the body of the events never ends.
    async fn status(&self, operation: &Operation, token: Option<&str>) -> StatusCode {
        self.api
            .router
            .clone()
            .oneshot(self.right(operation, token))
            .await
            .unwrap()
            .status()
    }
}

/// A schedule that is not due within a test.
fn hourly() -> Value {
    json!({"kind": "double", "rule": {"every": {"interval_ms": 3_600_000}}})
}

fn json_body(body: &Value) -> Option<(&'static str, Bytes)> {
    Some(("application/json", body.to_string().into()))
}

#[tokio::test]
async fn nobody_without_a_good_token_gets_in() {
    let world = World::new().await;
    for operation in operations(&world.api).await {
        for role in Role::ALL {
            let revoked = world.api.revoked_token(role);
            let expired = world.api.expired_token(role);
            let foreign = {
                let elsewhere = tempfile::tempdir().unwrap();
                support::create(&elsewhere, "group", role, &["*"], &gristmill_model::SystemClock).0
            };
            for (what, token) in [
                ("none", None),
                ("expired", Some(&expired)),
                ("revoked", Some(&revoked)),
                ("foreign", Some(&foreign)),
            ] {
                let answer = world
                    .api
                    .send(world.right(&operation, token.map(String::as_str)))
                    .await;
                assert_eq!(
                    answer.status,
                    StatusCode::UNAUTHORIZED,
                    "{what} {role}: {}",
                    operation.id
                );
                assert!(answer.refusal().contains("gristmill token create"));
            }
        }
    }
}

#[tokio::test]
async fn a_token_does_what_its_role_allows_and_nothing_else() {
    for role in Role::ALL {
        let world = World::new().await;
        let token = if role == Role::Agent {
            world.agent.clone()
        } else {
            world.api.token("who", role, &["*"])
        };
        let schedule = world.api.call("PUT", "/schedules/nightly", &hourly()).await;
        assert!(schedule.status.is_success());
        let mut operations = operations(&world.api).await;
        // The operations that end an object of the others run last.
        operations.sort_by_key(|operation| ["leave", "delete_schedule"].contains(&operation.id.as_str()));
        for operation in operations {
            let status = world.status(&operation, Some(&token)).await;
            if operation.roles.contains(&role) {
                assert!(status.is_success(), "{role}: {} {status}", operation.id);
            } else {
                assert_eq!(status, StatusCode::FORBIDDEN, "{role}: {}", operation.id);
            }
        }
    }
}

/// A job may wait for jobs on other queues. An agent reads their outcomes only where its token gives access to them.
#[tokio::test]
async fn an_agent_reads_no_outcomes_of_queues_that_its_token_lacks() {
    let api = Api::new().await;
    let secret = json!({"kind": "double", "payload": 1, "queue": "vault"});
    let secret = api.post("/jobs", &secret).await.json()["first"].clone();
    let after = json!({"kind": "double", "payload": 2, "after": [secret]});
    let asking = api.post("/jobs", &after).await.json()["first"].clone();
    let question = json!({"job": asking});
    for (queues, expected) in [
        (&["default"][..], StatusCode::FORBIDDEN),
        (&["default", "vault"], StatusCode::OK),
        (&["*"], StatusCode::OK),
        (&["vault"], StatusCode::NOT_FOUND),
    ] {
        let agent = api.token("group", Role::Agent, queues);
        let worker = api.register(&agent).await;
        let path = format!("/workers/{worker}/prerequisites");
        let (content_type, body) = json_body(&question).unwrap();
        let answer = api.send(request("POST", &path, Some(&agent), Some(content_type), body));
        let answer = answer.await;
        assert_eq!(answer.status, expected, "{queues:?}");
        if expected == StatusCode::FORBIDDEN {
            assert!(!answer.refusal().contains("vault"), "{}", answer.refusal());
        }
    }
}

/// Operations whose correct requests name the queue, so that a refusal may name it, too.
const NAMING_QUEUES: &[&str] = &[
    "submit",
    "submit_stream",
    "jobs",
    "batches",
    "job_ids",
    "count_jobs",
    "groups",
    "history",
    "backlog",
    "claim",
    "start_operation",
];

#[tokio::test]
async fn an_operator_changes_jobs_and_limits_and_makes_neither_jobs_nor_schedules() {
    let world = World::new().await;
    let schedule = world.api.call("PUT", "/schedules/nightly", &hourly()).await;
    assert!(schedule.status.is_success());
    let operator = world.api.token("desk", Role::Operator, &["*"]);
    let mut denied = Vec::new();
    for operation in operations(&world.api).await {
        let status = world.status(&operation, Some(&operator)).await;
        match status {
            StatusCode::FORBIDDEN => denied.push(operation.id),
            status => assert!(status.is_success(), "{}: {status}", operation.id),
        }
    }
    denied.sort();
    let for_agents = [
        "children",
        "claim",
        "exchange",
        "heartbeat",
        "leave",
        "prerequisites",
        "put_output",
        "register",
        "report",
        "step",
    ];
    denied.retain(|id| !for_agents.contains(&id.as_str()));
    assert_eq!(
        denied,
        [
            "delete_schedule",
            "fork_flows",
            "put_schedule",
            "submit",
            "submit_stream"
        ]
    );
}

#[tokio::test]
async fn a_token_does_not_reach_other_queues() {
    let world = World::new().await;
    for operation in operations(&world.api).await {
        for role in operation.roles.clone() {
            let token = world.api.token("elsewhere", role, &["other"]);
            let answer = world.api.send(world.right(&operation, Some(&token)));
            match operation.queues.as_str() {
                // The caller names no queue, so the answer would reveal other queues: see the next test.
                "named" if !NAMING_QUEUES.contains(&&*operation.id) => {
                    let answer = answer.await;
                    // Flows of other queues do not exist for the token.
                    let is_unknown = |flow: &Value| flow["error"] == "it does not exist";
                    let is_none = answer.status == StatusCode::NOT_FOUND
                        || answer.json()["changed"] == 0
                        || answer.json()["flows"]
                            .as_array()
                            .is_some_and(|flows| flows.iter().all(is_unknown))
                        || answer.json()["events"][0]["receipt"] == "unknown";
                    assert!(is_none, "{role}: {}: {answer:?}", operation.id);
                    let text = String::from_utf8_lossy(&answer.body).into_owned();
                    assert!(!text.contains("default"), "{}: {text}", operation.id);
                }
                "named" | "all" | "worker" => {
                    let answer = answer.await;
                    assert_eq!(answer.status, StatusCode::FORBIDDEN, "{role}: {}", operation.id);
                    let refusal = answer.refusal();
                    let names_queue = refusal.contains("default");
                    assert!(
                        !names_queue || NAMING_QUEUES.contains(&&*operation.id),
                        "{}: {refusal}",
                        operation.id
                    );
                }
                "shown" => {
                    let answer = answer.await;
                    assert_eq!(answer.status, StatusCode::OK, "{role}: {}", operation.id);
                    assert!(
                        !String::from_utf8_lossy(&answer.body).contains("default"),
                        "{}",
                        operation.id
                    );
                }
                "none" => {
                    let body = answer.await;
                    assert!(body.status.is_success(), "{role}: {}", operation.id);
                }
                new => panic!("the rule `{new}` is new: say what it means"),
            }
        }
    }
    let counts = world.api.get("/queues").await.json();
    assert_eq!(counts["queues"][0]["waiting"], 2, "nothing was changed: {counts}");
}

/// Otherwise a caller that counts ids could count the jobs of others.
#[tokio::test]
async fn ids_of_other_queues_are_answered_like_ids_that_do_not_exist() {
    let world = World::new().await;
    let api = &world.api;
    let elsewhere = api.token("elsewhere", Role::Submit, &["other"]);
    let ask = async |method: &str, path: &str, body: &Value| {
        let body = if body.is_null() { None } else { json_body(body) };
        let (kind, body) = body.map_or((None, Bytes::new()), |(kind, body)| (Some(kind), body));
        let answer = api
            .send(request(method, path, Some(&elsewhere), kind, body))
            .await;
        (answer.status, String::from_utf8_lossy(&answer.body).into_owned())
    };
    let (foreign, missing) = (world.batch, 987_654);
    for (method, path, body) in [
        ("GET", "/jobs/BATCH:0", "null"),
        ("GET", "/results?batches=BATCH", "null"),
        ("GET", "/logs?job=BATCH:0", "null"),
        ("GET", "/jobs?batch=BATCH", "null"),
        ("GET", "/jobs?parent=BATCH:0", "null"),
        ("GET", "/operations/BATCH", "null"),
        ("POST", "/jobs/cancel", r#"{"jobs":["BATCH:0"]}"#),
        ("POST", "/jobs/retry", r#"{"jobs":["BATCH:0"]}"#),
        ("POST", "/jobs/pause", r#"{"jobs":["BATCH:0"],"reason":"deploy"}"#),
        ("POST", "/jobs/cancel", r#"{"filter":{"batch":BATCH}}"#),
        ("POST", "/jobs/fork", r#"{"jobs":["BATCH:0"],"from":"a"}"#),
        (
            "POST",
            "/jobs",
            r#"{"kind":"double","payload":1,"queue":"other","after":["BATCH:0"]}"#,
        ),
        (
            "POST",
            "/jobs",
            r#"{"kind":"double","payload":1,"queue":"other","after":["BATCH:99"]}"#,
        ),
    ] {
        let with = async |id: i64| {
            let id = id.to_string();
            let body: Value = serde_json::from_str(&body.replace("BATCH", &id)).unwrap();
            let (status, text) = ask(method, &path.replace("BATCH", &id), &body).await;
            let numberless: String = text.chars().filter(|letter| !letter.is_ascii_digit()).collect();
            (status, numberless)
        };
        assert_eq!(with(foreign).await, with(missing).await, "{method} {path} {body}");
    }
    let counts = api.get("/queues").await.json();
    assert_eq!(counts["queues"][0]["waiting"], 2, "nothing was changed: {counts}");
}

#[tokio::test]
async fn an_agent_reaches_no_worker_of_another_token_even_of_its_own_group() {
    let world = World::new().await;
    let sibling = world.api.token("group", Role::Agent, &["default"]);
    for operation in operations(&world.api).await {
        if operation.queues == "worker" {
            let answer = world.api.send(world.right(&operation, Some(&sibling))).await;
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{}", operation.id);
            assert!(answer.refusal().contains("register your own worker"));
        }
    }
}

#[tokio::test]
async fn a_report_under_another_agents_lease_is_refused_item_by_item() {
    let world = World::new().await;
    let api = &world.api;
    let lease = api.claim(&world.agent, world.worker, api.wanting(1, 2)).await;
    let thief = api.token("thief", Role::Agent, &["default"]);
    let thiefs_worker = api.register(&thief).await;
    let mut exchange = api.wanting(1, 0);
    exchange.reports = vec![completing(&lease, "0-1", "[1,1]")];
    let stolen = read(&api.exchange(&thief, thiefs_worker, exchange.clone()).await);
    assert_eq!(stolen.exchanged.receipts[0].refused.to_string(), "0-1");
    assert!(stolen.exchanged.receipts[0].accepted.is_empty());
    exchange.number = 2;
    let own = read(&api.exchange(&world.agent, world.worker, exchange).await);
    assert_eq!(own.exchanged.receipts[0].accepted.to_string(), "0-1");
}

#[tokio::test]
async fn a_repeated_report_tells_nothing_of_foreign_batches() {
    let world = World::new().await;
    let api = &world.api;
    let lease = api.claim(&world.agent, world.worker, api.wanting(1, 1)).await;
    let done = completing(&lease, "0", "[1]");
    api.report(&world.agent, world.worker, 2, done.clone()).await;
    // One job of the batch has ended, and the other has not. A stranger reports both as released.
    let stranger = api.token("stranger", Role::Agent, &["other"]);
    let worker = api.register(&stranger).await;
    let mut asked = Report::new(lease.id, lease.slices[0].batch, 1);
    asked.released = "0-1".parse().unwrap();
    let mut exchange = api.wanting(1, 0);
    exchange.attempt = 2;
    exchange.reports = vec![asked];
    let told = read(&api.exchange(&stranger, worker, exchange).await);
    let receipt = &told.exchanged.receipts[0];
    assert_eq!(
        (receipt.accepted.len(), receipt.refused.to_string().as_str()),
        (0, "0-1")
    );
    // The worker that reported it still gets its receipt again.
    let mut again = api.wanting(3, 0);
    again.attempt = 2;
    again.reports = vec![done];
    let told = read(&api.exchange(&world.agent, world.worker, again).await);
    assert_eq!(told.exchanged.receipts[0].accepted.to_string(), "0");
}

#[tokio::test]
async fn a_claim_outside_of_the_tokens_queues_is_refused_whole() {
    let world = World::new().await;
    let api = &world.api;
    let mut exchange = api.wanting(1, 1);
    exchange.want.as_mut().unwrap().queues.push("other".into());
    let answer = api.exchange(&world.agent, world.worker, exchange).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    assert!(answer.refusal().contains("`other`"));
    let counts = api.get("/queues").await.json();
    assert_eq!(counts["queues"][0]["running"], 0);
}

#[tokio::test]
async fn a_worker_of_the_store_itself_belongs_to_no_agent() {
    let world = World::new().await;
    let inner = gristmill_engine::process::this_worker("group/x");
    let id = world.api.engine.store().register_worker(inner).await.unwrap();
    let answer = world
        .api
        .exchange(&world.agent, id.0, world.api.wanting(1, 1))
        .await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn an_operation_without_a_rule_is_denied() {
    let api = Api::new().await;
    for (method, path, status) in [
        ("GET", "/settings", StatusCode::NOT_FOUND),
        ("GET", "", StatusCode::NOT_FOUND),
        ("PUT", "/jobs", StatusCode::METHOD_NOT_ALLOWED),
        ("OPTIONS", "/jobs", StatusCode::METHOD_NOT_ALLOWED),
        ("DELETE", "/jobs/1:0", StatusCode::METHOD_NOT_ALLOWED),
    ] {
        let answer = api.send(request(method, path, None, None, Bytes::new())).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{method} {path}");
        let answer = api
            .send(request(method, path, Some(&api.admin), None, Bytes::new()))
            .await;
        assert_eq!(answer.status, status, "{method} {path}");
        assert!(answer.refusal().contains("openapi.json"));
        let allowed = answer
            .headers
            .get("allow")
            .map(|allowed| allowed.to_str().unwrap());
        let expected = match (status, path) {
            (StatusCode::NOT_FOUND, _) => None,
            (_, "/jobs") => Some("POST, GET"),
            _ => Some("GET"),
        };
        assert_eq!(allowed, expected, "{method} {path}");
    }
}
