//! Changes of all matching jobs in the background, on both stores.

use std::time::Duration;

use axum::http::StatusCode;
use bytes::Bytes;
use gristmill_model::{NewBatch, PackedArray, SystemClock};
use gristmill_server::Role;
use gristmill_server::endpoints::operations::kept::Operations;
use gristmill_server::limits::{OPERATIONS_KEPT_MAX, OPERATIONS_RUNNING_MAX};
use serde_json::{Value, json};

use crate::support::{self, Answer, Api, request};

/// Enough batches of one job for several portions.
const JOBS: usize = 2_000;

async fn fill(api: &Api) {
    let one = || NewBatch::new("mail", PackedArray::parse("[1]").unwrap());
    let batches = std::iter::repeat_with(one).take(JOBS).collect();
    api.engine.submit_batches(batches).await.unwrap();
}

async fn send(api: &Api, method: &str, path: &str, token: &str, body: &Value) -> Answer {
    let body = match body {
        Value::Null => (None, Bytes::new()),
        body => (Some("application/json"), Bytes::from(body.to_string())),
    };
    api.send(request(method, path, Some(token), body.0, body.1)).await
}

/// Starts an operation, and returns its path.
async fn begin(api: &Api, token: &str, body: &Value) -> String {
    let answer = send(api, "POST", "/operations", token, body).await;
    assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.json());
    format!("/operations/{}", answer.json()["operation"].as_str().unwrap())
}

/// The operation after its end.
async fn ended(api: &Api, path: &str) -> Value {
    let ended = async {
        loop {
            let operation = api.get(path).await.json();
            if operation["state"] != "running" {
                return operation;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), ended)
        .await
        .unwrap()
}

async fn counted(api: &Api, state: &str) -> usize {
    let counts = api.get("/jobs/count?kind=mail").await.json();
    counts["states"][state].as_u64().unwrap() as usize
}

async fn an_operation_changes_all_that_matches(api: Api) {
    fill(&api).await;
    api.submit("report", json!([1])).await;
    let pause = json!({"change": "pause", "filter": {"kind": "mail"}, "reason": "deploy"});
    let path = begin(&api, &api.admin, &pause).await;
    let operation = ended(&api, &path).await;
    assert_eq!(operation["state"], "completed", "{operation}");
    assert_eq!(
        (&operation["matched"], &operation["changed"]),
        (&json!(JOBS), &json!(JOBS))
    );
    assert_eq!(operation["filter"], json!({"kind": "mail"}));
    assert_eq!(
        (&operation["change"], &operation["reason"]),
        (&json!("pause"), &json!("deploy"))
    );
    assert!(operation["ended_at"].as_i64() >= operation["started_at"].as_i64());
    assert_eq!(counted(&api, "paused").await, JOBS);

    // The undo is an operation, too; a repeated one finds nothing.
    let resume =
        json!({"change": "resume", "filter": {"kind": "mail", "states": ["paused"]}, "reason": "deploy"});
    for left in [JOBS, 0] {
        let path = begin(&api, &api.admin, &resume).await;
        let operation = ended(&api, &path).await;
        assert_eq!(
            (&operation["matched"], &operation["changed"]),
            (&json!(left), &json!(left))
        );
    }
    assert_eq!(counted(&api, "waiting").await, JOBS);
    let raise = json!({"change": "prioritise", "filter": {"kind": "mail"}, "priority": "high"});
    let path = begin(&api, &api.admin, &raise).await;
    assert_eq!(ended(&api, &path).await["changed"], json!(JOBS));
    let jobs = api.get("/jobs?kind=mail&limit=1").await.json();
    assert_eq!(jobs["jobs"][0]["priority"], 10);
    let listed = api.get("/operations").await.json();
    let changes: Vec<&Value> = listed["operations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["change"])
        .collect();
    assert_eq!(
        changes,
        ["prioritise", "resume", "resume", "pause"],
        "the newest first"
    );
}

#[tokio::test]
async fn an_operation_changes_all_that_matches_on_sqlite() {
    an_operation_changes_all_that_matches(Api::new().await).await;
}

#[tokio::test]
async fn an_operation_changes_all_that_matches_on_postgres() {
    an_operation_changes_all_that_matches(Api::on_postgres().await).await;
}

async fn a_cancelled_operation_ends_between_two_portions(api: Api) {
    fill(&api).await;
    let cancel = json!({"change": "cancel", "filter": {"kind": "mail"}});
    let path = begin(&api, &api.admin, &cancel).await;
    let asked = api.call("DELETE", &path, &Value::Null).await;
    assert_eq!(asked.status, StatusCode::ACCEPTED);
    let operation = ended(&api, &path).await;
    assert_eq!(operation["state"], "cancelled", "{operation}");
    let changed = operation["changed"].as_u64().unwrap() as usize;
    assert!(changed < JOBS, "{operation}");
    assert_eq!(
        (counted(&api, "cancelled").await, counted(&api, "waiting").await),
        (changed, JOBS - changed)
    );
    // The end stays as it is, and the same change changes the others.
    api.call("DELETE", &path, &Value::Null).await;
    assert_eq!(ended(&api, &path).await, operation);
    let path = begin(&api, &api.admin, &cancel).await;
    assert_eq!(ended(&api, &path).await["changed"], json!(JOBS - changed));
}

#[tokio::test]
async fn a_cancelled_operation_ends_between_two_portions_on_sqlite() {
    a_cancelled_operation_ends_between_two_portions(Api::new().await).await;
}

#[tokio::test]
async fn a_cancelled_operation_ends_between_two_portions_on_postgres() {
    a_cancelled_operation_ends_between_two_portions(Api::on_postgres().await).await;
}

#[tokio::test]
async fn an_operation_ends_with_its_token_and_with_the_server() {
    let api = Api::new().await;
    fill(&api).await;
    let (token, record) = support::create(&api.folder, "desk", Role::Operator, &["*"], &SystemClock);
    let cancel = json!({"change": "cancel", "filter": {"kind": "mail"}});
    let path = begin(&api, &token, &cancel).await;
    api.trust().revoke(&record.jti, &SystemClock).unwrap();
    let operation = ended(&api, &path).await;
    assert_eq!(
        (&operation["state"], &operation["failure"]["code"]),
        (&json!("failed"), &json!("unauthorized"))
    );
    assert!(counted(&api, "waiting").await > 0);

    let path = begin(&api, &api.admin, &cancel).await;
    api.app.stopping.send_replace(true);
    let operation = ended(&api, &path).await;
    assert_eq!(
        (&operation["state"], &operation["failure"]["code"]),
        (&json!("failed"), &json!("stopping"))
    );
}

#[tokio::test]
async fn a_token_sees_and_cancels_the_operations_of_its_queues_alone() {
    let api = Api::new().await;
    let (here, elsewhere) = (
        api.token("here", Role::Submit, &["mail"]),
        api.token("elsewhere", Role::Submit, &["other"]),
    );
    // Without a queue in the filter, it is the token's only one.
    let own = begin(
        &api,
        &here,
        &json!({"change": "retry", "filter": {"kind": "mail"}}),
    )
    .await;
    assert_eq!(
        ended(&api, &own).await["filter"],
        json!({"kind": "mail", "queue": "mail"})
    );
    let all = begin(
        &api,
        &api.admin,
        &json!({"change": "retry", "filter": {"kind": "mail"}}),
    )
    .await;
    let named = json!({"change": "retry", "filter": {"queue": "mail"}});
    let refused = send(&api, "POST", "/operations", &elsewhere, &named).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    for (token, path, status) in [
        (&here, &own, StatusCode::OK),
        (&here, &all, StatusCode::NOT_FOUND),
        (&elsewhere, &own, StatusCode::NOT_FOUND),
        (&api.admin, &own, StatusCode::OK),
    ] {
        assert_eq!(
            send(&api, "GET", path, token, &Value::Null).await.status,
            status,
            "{path}"
        );
        let status = if status == StatusCode::OK {
            StatusCode::ACCEPTED
        } else {
            status
        };
        assert_eq!(
            send(&api, "DELETE", path, token, &Value::Null).await.status,
            status,
            "{path}"
        );
    }
    for (token, count) in [(&here, 1), (&elsewhere, 0), (&api.admin, 2)] {
        let listed = send(&api, "GET", "/operations", token, &Value::Null).await.json();
        assert_eq!(listed["operations"].as_array().unwrap().len(), count);
    }
}

#[tokio::test]
async fn wrong_operations_are_refused() {
    let api = Api::new().await;
    for (body, problem) in [
        (json!({"change": "cancel", "filter": {}}), "without conditions"),
        (json!({"change": "erase", "filter": {"kind": "a"}}), "erase"),
        (
            json!({"change": "pause", "filter": {"kind": "a"}}),
            "`reason` is missing",
        ),
        (
            json!({"change": "pause", "filter": {"kind": "a"}, "reason": "x", "until": -1}),
            "`until` is -1",
        ),
        (
            json!({"change": "prioritise", "filter": {"kind": "a"}}),
            "`priority` is missing",
        ),
        (
            json!({"change": "retry", "filter": {"kind": "a"}, "priority": 1}),
            "does not take `priority`",
        ),
        (
            json!({"change": "cancel", "filter": {"kind": "a".repeat(20_000)}}),
            "limit of 16384 bytes",
        ),
        (json!({"change": "cancel", "jobs": ["1:0"]}), "jobs"),
    ] {
        let refusal = api.post("/operations", &body).await.refusal();
        assert!(refusal.contains(problem), "{refusal}");
    }
    let unknown = api.get("/operations/nothing-1").await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
    assert_eq!(api.get("/operations").await.json(), json!({"operations": []}));
}

#[tokio::test]
async fn operations_are_bounded() {
    let api = Api::new().await;
    let retry = json!({"change": "retry", "filter": {"kind": "mail"}});
    let first = begin(&api, &api.admin, &retry).await;
    ended(&api, &first).await;
    for _ in 0..OPERATIONS_KEPT_MAX {
        let path = begin(&api, &api.admin, &retry).await;
        ended(&api, &path).await;
    }
    let listed = api.get("/operations").await.json();
    assert_eq!(
        listed["operations"].as_array().unwrap().len(),
        OPERATIONS_KEPT_MAX
    );
    assert_eq!(api.get(&first).await.status, StatusCode::NOT_FOUND);

    let _taken: Vec<_> = (0..OPERATIONS_RUNNING_MAX)
        .map(|_| api.app.state::<Operations>().room().unwrap())
        .collect();
    let refused = api.post("/operations", &retry).await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert!(refused.refusal().contains("8 operations"));
}

/// The answer to the start is the refusal. Nothing has changed, and the permit is given back.
#[tokio::test]
async fn a_change_that_cannot_begin_leaves_nothing() {
    let api = Api::new().await;
    let tags: Vec<String> = (0..40).map(|number| format!("tag{number}")).collect();
    let refused = api
        .post(
            "/operations",
            &json!({"change": "cancel", "filter": {"tags": tags}}),
        )
        .await;
    assert!(refused.refusal().contains("conditions on tags"));
    assert_eq!(api.get("/operations").await.json(), json!({"operations": []}));
    let rooms: Vec<_> = (0..OPERATIONS_RUNNING_MAX)
        .map(|_| api.app.state::<Operations>().room())
        .collect();
    assert!(rooms.iter().all(Result::is_ok));
}
