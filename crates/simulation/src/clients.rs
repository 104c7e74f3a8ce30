//! Clients: they submit jobs over the network, and check the acknowledgements of the servers.

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::{Request, StatusCode, header};
use gristmill_model::{BatchId, JobId};
use gristmill_server::rules::BASE;
use serde::Deserialize;
use serde_json::json;

use crate::checker::LIMITED;
use crate::flows::{EVENT, FLOW, FlowPayload};
use crate::limits::{CLIENT_PATIENCE, SERVERS, SUBMIT_JOBS_MAX};
use crate::network::{Lost, deliver};
use crate::nodes::{PLAIN, Payload};
use crate::world::World;

/// The longest pause between two submits of a client, in milliseconds.
const SUBMIT_EVERY_MS_MAX: u64 = 8_000;

/// The longest duration of a job, in milliseconds.
const TAKES_MS_MAX: u64 = 1_000;

/// The longest sleep of a flow, in milliseconds.
const WAITS_MS_MAX: u64 = 20_000;

/// The largest number of flows in a submit.
const SUBMIT_FLOWS_MAX: u64 = 4;

/// The largest number of flows to which a client sends events.
const KNOWN_FLOWS_MAX: usize = 20;

/// The attempts of a job.
const ATTEMPTS_MAX: u32 = 3;

/// The checked fields of an acknowledgement.
#[derive(Deserialize)]
struct Submitted {
    batches: Vec<SubmittedBatch>,
}

#[derive(Deserialize)]
struct SubmittedBatch {
    batch: i64,
    first_position: u32,
    count: u32,
}

fn payload(world: &World) -> Payload {
    Payload {
        takes_ms: world.draw(TAKES_MS_MAX),
        fails: match world.draw(10) {
            0 => ATTEMPTS_MAX,
            1 | 2 => 1,
            _ => 0,
        },
    }
}

/// The request that submits these payloads.
fn submission(world: &World, kind: &str, payloads: &serde_json::Value) -> Request<Bytes> {
    let body = json!({
        "kind": kind,
        "payloads": payloads,
        "priority": world.draw(3),
        "retry": {"attempts_max": ATTEMPTS_MAX, "delay_ms": world.draw(3) * 1_000},
    });
    post("/jobs", &body)
}

fn submit_jobs(world: &World) -> Request<Bytes> {
    let count = 1 + world.draw(SUBMIT_JOBS_MAX);
    let payloads: Vec<Payload> = (0..count).map(|_| payload(world)).collect();
    let kind = if world.happens(300) { LIMITED } else { PLAIN };
    submission(world, kind, &json!(payloads))
}

fn submit_flows(world: &World) -> Request<Bytes> {
    let payloads = (0..1 + world.draw(SUBMIT_FLOWS_MAX)).map(|_| FlowPayload {
        step: payload(world),
        waits_ms: 1 + world.draw(WAITS_MS_MAX),
        nested: world.draw(3) as u32,
    });
    submission(world, FLOW, &json!(payloads.collect::<Vec<_>>()))
}

fn post(path: &str, body: &serde_json::Value) -> Request<Bytes> {
    let mut request = Request::new(Bytes::from(body.to_string()));
    *request.method_mut() = axum::http::Method::POST;
    *request.uri_mut() = format!("{BASE}{path}").parse().expect("a path is a URI");
    let headers = request.headers_mut();
    headers.insert(
        header::HOST,
        "127.0.0.1".parse().expect("a host is a header's value"),
    );
    headers.insert(
        header::CONTENT_TYPE,
        "application/json".parse().expect("a type is a header's value"),
    );
    request
}

/// Submits jobs and flows, and sends events to its flows, until the task is aborted.
pub async fn submit(world: Arc<World>, name: String) {
    let mut flows: Vec<JobId> = Vec::new();
    loop {
        tokio::time::sleep(world.draw_time(SUBMIT_EVERY_MS_MAX)).await;
        let server = 1 + world.draw(SERVERS as u64) as usize;
        if !flows.is_empty() && world.happens(400) {
            let flow = flows[world.draw(flows.len() as u64) as usize];
            let event = json!({"name": EVENT, "value": world.draw(1 << 50)});
            let request = post(&format!("/jobs/{flow}/events"), &event);
            // Whether it arrives does not matter: the flow goes on without it, some time later.
            let _ = tokio::time::timeout(CLIENT_PATIENCE, deliver(&world, &name, server, request)).await;
            continue;
        }
        let are_flows = world.happens(300);
        let request = match are_flows {
            true => submit_flows(&world),
            false => submit_jobs(&world),
        };
        let delivered = deliver(&world, &name, server, request);
        let answer = tokio::time::timeout(CLIENT_PATIENCE, delivered).await;
        let Ok(Ok(answer)) = answer.map_err(|_| Lost::Silent) else {
            // The store may have stored the jobs. They run then.
            continue;
        };
        if answer.status() != StatusCode::CREATED {
            continue;
        }
        let submitted: Result<Submitted, _> = serde_json::from_slice(answer.body());
        let Ok(submitted) = submitted else {
            world.require(Err(format!(
                "a server answered a submit with {:?}",
                answer.body()
            )));
            continue;
        };
        // The oldest flows have probably ended.
        flows.drain(..flows.len().saturating_sub(KNOWN_FLOWS_MAX));
        for batch in submitted.batches {
            let count = batch.first_position + batch.count;
            world.require(world.check(|checker| checker.acknowledged(BatchId(batch.batch), count)));
            if are_flows {
                flows.extend((batch.first_position..count).map(|position| JobId {
                    batch: BatchId(batch.batch),
                    position,
                }));
            }
        }
    }
}
