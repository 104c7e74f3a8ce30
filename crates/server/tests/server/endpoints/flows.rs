//! The steps of flows, and events for them.

use axum::http::StatusCode;
use bytes::Bytes;
use gristmill_engine::{ChildBatch, Finalizing, Job, JobError, Kind, Signal, Spawn, Step, Wake};
use gristmill_model::SystemClock;
use gristmill_model::limits::KEPT_EVENTS_MAX;
use gristmill_server::{EventScope, NewToken, Role};
use gristmill_store::FlowEvent;
use serde_json::{Value, json};

use crate::support::{Api, request};

/// A flow that awaits an approval for a minute.
struct Approval;

impl Kind for Approval {
    const NAME: &'static str = "approval@2";
    type Payload = u32;
    type Value = Value;
}

async fn work(api: &Api) {
    let mut worker = api.engine.worker();
    worker.handle_parent::<Approval, Vec<Value>, _, _, _, _>(
        |_: Job<u32>| async {
            let approve = ChildBatch::of_signal(Signal::Event("approve".to_owned()), Some(60_000));
            let spawn = Spawn::new().batch(approve).flow(Wake::All);
            let spawn = spawn.memo(&json!({"steps": [["@approve", 0]]}));
            Ok(Step::Wait(
                spawn.map_err(|error| JobError::new("spawn", error.to_string()))?,
            ))
        },
        |flow: Finalizing<u32, Vec<Value>>| async move { Ok(Step::Done(flow.values()?.remove(0))) },
    );
    worker.until_idle().run().await.unwrap();
}

#[tokio::test]
async fn many_events_name_their_flows_by_id_or_key() {
    let api = Api::new().await;
    let keyed = json!({"kind": "approval@2", "payload": 1, "key": "order-17"});
    let keyed = api.post("/jobs", &keyed).await.json();
    let batch = api.submit("approval@2", json!([1])).await;
    work(&api).await;
    let events = json!({"events": [
        {"key": "order-17", "name": "approve", "value": 7},
        {"job": format!("{batch}:0"), "name": "later"},
        {"job": format!("{batch}:9"), "name": "approve"},
        {"key": "order-18", "name": "approve"},
    ]});
    let sent = api.post("/jobs/events", &events).await;
    assert_eq!(sent.status, StatusCode::OK, "{:?}", sent.json());
    let sent = sent.json();
    let receipts: Vec<&Value> = (0..4).map(|number| &sent["events"][number]["receipt"]).collect();
    assert_eq!(receipts, ["delivered", "kept", "unknown", "unknown"]);
    assert_eq!(
        (&sent["events"][0]["flow"], &sent["events"][0]["job"]),
        (&json!("key=order-17"), &keyed["first"])
    );
    let wrong = json!({"events": [{"job": format!("{batch}:0"), "name": "approve"}, {"name": "approve"}]});
    assert_eq!(
        api.post("/jobs/events", &wrong).await.status,
        StatusCode::BAD_REQUEST
    );
    work(&api).await;
    let job = api.get(&format!("/jobs/{batch}:0")).await.json();
    assert_eq!(job["state"], "blocked", "no event of a wrong request is sent");
}

#[tokio::test]
async fn ended_flows_are_forked() {
    let api = Api::new().await;
    let batch = api.submit("approval@2", json!([1, 2])).await;
    let flow = format!("{batch}:0");
    work(&api).await;
    let value = json!({"name": "approve", "value": 7});
    api.post(&format!("/jobs/{flow}/events"), &value).await;
    work(&api).await;
    let fork =
        json!({"jobs": ["9999:7", format!("{batch}:1"), flow, format!("{batch}:2")], "from": "approve"});
    let forked = api.post("/jobs/fork", &fork).await.json();
    let told = &forked["flows"];
    for (number, unknown) in [(2, format!("{batch}:2")), (3, "9999:7".to_owned())] {
        assert_eq!(
            told[number],
            json!({"flow": unknown, "error": "it does not exist"})
        );
    }
    assert_eq!(
        (&told[0]["flow"], &told[0]["error"]),
        (&json!(flow), &Value::Null)
    );
    assert_eq!(
        told[1]["error"],
        "it has not ended (blocked): cancel it, or wait for its end"
    );
    let id = told[0]["fork"].as_str().unwrap();
    let steps = api.get(&format!("/jobs/{id}/steps")).await.json();
    assert_eq!((&steps["origin"], &steps["total"]), (&json!(flow), &json!(0)));
    for wrong in [
        json!({"jobs": [flow], "from": 0, "step_key": "k"}),
        json!({"from": "approve"}),
        json!({"jobs": [flow], "from": "approve", "version": "a@b"}),
    ] {
        assert_eq!(
            api.post("/jobs/fork", &wrong).await.status,
            StatusCode::BAD_REQUEST,
            "{wrong}"
        );
    }
}

/// An answer has memos of at most 32 MiB, and names the flows that are left.
#[tokio::test]
async fn large_memos_come_in_portions() {
    let api = Api::new().await;
    let mut flows = Vec::new();
    for _ in 0..3 {
        let payload = "x".repeat(12 << 20);
        let batch = api.submit("approval@2", json!([payload])).await;
        flows.push(format!("{batch}:0"));
    }
    let first = api.post("/jobs/memos", &json!({"jobs": flows})).await.json();
    assert_eq!(
        (first["flows"].as_array().unwrap().len(), &first["left"]),
        (2, &json!([flows[2]]))
    );
    let second = api.post("/jobs/memos", &json!({"jobs": first["left"]})).await;
    let second = second.json();
    assert_eq!(
        (&second["flows"][0]["job"], &second["left"]),
        (&json!(flows[2]), &Value::Null)
    );
}

#[tokio::test]
async fn a_flow_shows_its_steps_and_takes_events() {
    let api = Api::new().await;
    let batch = api.submit("approval@2", json!([1, 2])).await;
    let flow = format!("{batch}:0");
    let none = api.get(&format!("/jobs/{flow}/steps")).await.json();
    assert_eq!(none, json!({"flow": false, "total": 0, "steps": []}));
    work(&api).await;
    let steps = api.get(&format!("/jobs/{flow}/steps?limit=1")).await.json();
    let step = &steps["steps"][0];
    assert_eq!(
        (
            &steps["total"],
            &step["name"],
            &step["event"],
            &step["state"],
            &steps["next"]
        ),
        (
            &json!(1),
            &json!("@approve"),
            &json!("approve"),
            &json!("blocked"),
            &Value::Null
        )
    );
    assert!(step["until"].is_i64() && step["submitted_at"].is_i64(), "{step}");
    assert_eq!(
        api.get(&format!("/jobs/{flow}/steps?from=1")).await.json(),
        json!({"flow": true, "total": 1, "steps": []})
    );

    let events = format!("/jobs/{flow}/events");
    let other = api.post(&events, &json!({"name": "other"})).await;
    assert_eq!(
        (other.status, other.json()),
        (StatusCode::OK, json!({"receipt": "kept"}))
    );
    let value = json!({"name": "approve", "value": {"by": "Ada"}});
    assert_eq!(
        api.post(&events, &value).await.json(),
        json!({"receipt": "delivered"})
    );
    work(&api).await;
    let job = api.get(&format!("/jobs/{flow}")).await.json();
    assert_eq!(
        (&job["state"], &job["value"]),
        (&json!("completed"), &json!({"by": "Ada"}))
    );
    let ended = api.post(&events, &value).await;
    assert_eq!(
        (ended.status, &ended.json()["code"]),
        (StatusCode::CONFLICT, &json!("flow_ended"))
    );
    assert!(ended.refusal().contains("has ended; the event is not sent"));
}

#[tokio::test]
async fn flows_are_counted_and_listed_with_what_they_wait_for() {
    let api = Api::new().await;
    let none = api.get("/flows/kinds").await.json();
    assert_eq!(none, json!({"kinds": []}));
    let batch = api.submit("approval@2", json!([1, 2, 3])).await;
    api.submit("plain", json!([1])).await;
    work(&api).await;
    let sent = json!({"name": "approve"});
    api.post(&format!("/jobs/{batch}:0/events"), &sent).await;
    work(&api).await;

    let kinds = api.get("/flows/kinds?flow=approval").await.json();
    let kind = &kinds["kinds"][0];
    assert_eq!(
        (
            &kind["name"],
            &kind["version"],
            &kind["queue"],
            &kind["blocked"],
            &kind["completed"]
        ),
        (
            &json!("approval"),
            &json!("2"),
            &json!("default"),
            &json!(2),
            &json!(1)
        )
    );
    assert_eq!(kinds["kinds"].as_array().unwrap().len(), 1, "{kinds}");
    let unserved = api.get("/flows/kinds?no_worker=true&queue=default").await.json();
    assert_eq!(unserved, kinds);
    let elsewhere = api.get("/flows/kinds?queue=other").await.json();
    assert_eq!(elsewhere, json!({"kinds": []}));

    let jobs = |page: &Value| -> Vec<String> {
        let flows = page["flows"].as_array().unwrap().iter();
        flows
            .map(|flow| flow["job"].as_str().unwrap().to_owned())
            .collect()
    };
    let first = api.get("/flows?limit=2").await.json();
    assert_eq!(jobs(&first), [format!("{batch}:0"), format!("{batch}:1")]);
    let next = first["next"].as_str().unwrap();
    let second = api.get(&format!("/flows?limit=2&after={next}")).await.json();
    assert_eq!(
        (jobs(&second), &second["next"]),
        (vec![format!("{batch}:2")], &Value::Null)
    );
    let blocked = api
        .get("/flows?flow=approval@2&states=blocked&queue=default")
        .await
        .json();
    assert_eq!(jobs(&blocked), [format!("{batch}:1"), format!("{batch}:2")]);
    assert_eq!(blocked["flows"][0]["priority"], 0, "a flow is listed as any job");
    let awaited = &blocked["flows"][0]["awaited"][0];
    assert_eq!(awaited["event"], json!("approve"), "{awaited}");
    assert!(awaited["until"].is_i64(), "{awaited}");
    for nothing in ["flow=approval@3", "flow=plain", "states=dead", "queue=other"] {
        let page = api.get(&format!("/flows?{nothing}")).await.json();
        assert_eq!(page, json!({"flows": []}), "{nothing}");
    }
    for refused in ["limit=0", "limit=201", "states=blockd", "after=x", "kind=a"] {
        let answer = api.get(&format!("/flows?{refused}")).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{refused}");
    }

    let elsewhere = api.token("elsewhere", Role::Operator, &["other"]);
    for path in ["/flows", "/flows/kinds"] {
        let answer = api
            .send(request("GET", path, Some(&elsewhere), None, Bytes::new()))
            .await;
        let shown = answer.json();
        let shown = shown.as_object().unwrap().values().next().unwrap();
        assert_eq!(shown, &json!([]), "{path}");
    }
}

#[tokio::test]
async fn events_have_limits_and_reasons() {
    let api = Api::new().await;
    let batch = api.submit("approval@2", json!([1])).await;
    let events = format!("/jobs/{batch}:0/events");
    let full: Vec<FlowEvent> = (0..KEPT_EVENTS_MAX)
        .map(|_| FlowEvent::new(format!("{batch}:0").parse().unwrap(), "approve", "1").unwrap())
        .collect();
    api.engine.send_events(full).await.unwrap();
    let full = api.post(&events, &json!({"name": "approve"})).await;
    assert_eq!(
        (full.status, &full.json()["code"]),
        (StatusCode::CONFLICT, &json!("events_full"))
    );
    for (body, expected) in [
        (json!({}), "missing field `name`"),
        (json!({"name": ""}), "event"),
        (json!({"name": "a", "payload": 1}), "payload"),
        (json!({"name": "x".repeat(1_000)}), "event"),
    ] {
        let refusal = api.post(&events, &body).await;
        assert_eq!(refusal.status, StatusCode::BAD_REQUEST);
        assert!(refusal.refusal().contains(expected), "{}", refusal.refusal());
    }
    assert_eq!(
        api.post("/jobs/99:0/events", &json!({"name": "a"})).await.status,
        StatusCode::NOT_FOUND
    );
    assert_eq!(api.get("/jobs/99:0/steps").await.status, StatusCode::NOT_FOUND);
    for query in ["limit=0", "limit=1001", "form=1"] {
        let refused = api.get(&format!("/jobs/{batch}:0/steps?{query}")).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{query}");
    }
    let elsewhere = api.token("elsewhere", Role::Operator, &["other"]);
    let body = Bytes::from_static(b"{\"name\":\"approve\"}");
    let hidden = request("POST", &events, Some(&elsewhere), Some("application/json"), body);
    assert_eq!(api.send(hidden).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_token_for_one_event_allows_nothing_else() {
    let api = Api::new().await;
    let batch = api.submit("approval@2", json!([1, 2])).await;
    let new = NewToken {
        subject: "ada".to_owned(),
        role: Role::Submit,
        queues: Vec::new(),
        event: Some(EventScope {
            job: format!("{batch}:1").parse().unwrap(),
            name: "approve".to_owned(),
        }),
        life_ms: 60_000,
    };
    let (token, record) = api.trust().create(&new, &SystemClock).unwrap();
    let send = async |path: &str, body: Value| {
        let body = Bytes::from(body.to_string());
        api.send(request(
            "POST",
            path,
            Some(&token),
            Some("application/json"),
            body,
        ))
        .await
    };
    let events = format!("/jobs/{batch}:1/events");
    for (path, body) in [
        (&*events, json!({"name": "other"})),
        (&*format!("/jobs/{batch}:0/events"), json!({"name": "approve"})),
        ("/jobs", json!({"kind": "double", "payload": 1})),
        ("/jobs/cancel", json!({"jobs": [format!("{batch}:1")]})),
    ] {
        let refused = send(path, body).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{path}");
        assert!(
            refused.refusal().contains("approve"),
            "{path}: {}",
            refused.refusal()
        );
    }
    let read = api
        .send(request(
            "GET",
            &format!("/jobs/{batch}:1"),
            Some(&token),
            None,
            Bytes::new(),
        ))
        .await;
    assert_eq!(read.status, StatusCode::FORBIDDEN);
    let sent = send(&events, json!({"name": "approve", "value": true})).await;
    assert_eq!(sent.json(), json!({"receipt": "kept"}));
    api.trust().revoke(&record.jti, &SystemClock).unwrap();
    assert_eq!(
        send(&events, json!({"name": "approve"})).await.status,
        StatusCode::UNAUTHORIZED
    );
}
