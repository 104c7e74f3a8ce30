//! The traces that submits belong to.

use axum::http::{HeaderValue, StatusCode};
use bytes::Bytes;
use gristmill_model::{BatchId, JobId};
use serde_json::{Value, json};

use crate::support::{Api, request};

const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// The contexts that are stored with the batches of a submit, in order.
async fn submitted(
    api: &Api,
    path: &str,
    content_type: &str,
    body: String,
    header: &str,
) -> Vec<Option<String>> {
    let mut request = request(
        "POST",
        path,
        Some(&api.admin),
        Some(content_type),
        Bytes::from(body),
    );
    let header = HeaderValue::from_str(header).unwrap();
    request.headers_mut().insert("traceparent", header);
    let answer = api.send(request).await;
    assert_eq!(answer.status, StatusCode::CREATED);
    let mut stored = Vec::new();
    for batch in answer.json()["batches"].as_array().unwrap() {
        let job = JobId {
            batch: BatchId(batch["batch"].as_i64().unwrap()),
            position: 0,
        };
        let details = api.engine.job(job).await.unwrap().unwrap();
        stored.push(details.options.traceparent.map(|parent| parent.to_string()));
    }
    stored
}

#[tokio::test]
async fn all_batches_of_a_request_belong_to_its_trace() {
    let api = Api::new().await;
    let payloads: Vec<Value> = (0..2_500).map(Value::from).collect();
    let many = json!({"kind": "double", "payloads": payloads}).to_string();
    let one = json!({"kind": "double", "payload": 1, "key": "a"}).to_string();
    let lines = (0..1_500).map(|number| format!("{number}\n")).collect::<String>();
    let unsampled = TRACEPARENT.replace("-01", "-00");
    let kept = Some(TRACEPARENT.to_owned());
    for (path, content_type, body, header, expected) in [
        (
            "/jobs",
            "application/json",
            &many,
            TRACEPARENT,
            vec![kept.clone(); 3],
        ),
        ("/jobs", "application/json", &one, TRACEPARENT, vec![kept.clone()]),
        (
            "/jobs/stream?kind=double",
            "application/x-ndjson",
            &lines,
            TRACEPARENT,
            vec![kept; 2],
        ),
        ("/jobs", "application/json", &many, &unsampled, vec![None; 3]),
        ("/jobs", "application/json", &many, "nonsense", vec![None; 3]),
    ] {
        let stored = submitted(&api, path, content_type, body.clone(), header).await;
        assert_eq!(stored, expected, "{path} {header}");
    }
}
