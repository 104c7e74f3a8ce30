//! Clients: they submit jobs over the network, and check the acknowledgements of the servers.

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::{Request, StatusCode, header};
use gristmill_model::BatchId;
use gristmill_server::rules::BASE;
use serde::Deserialize;
use serde_json::json;

use crate::checker::LIMITED;
use crate::limits::{CLIENT_PATIENCE, SERVERS, SUBMIT_JOBS_MAX};
use crate::network::{Lost, deliver};
use crate::nodes::{PLAIN, Payload};
use crate::world::World;

/// The longest pause between two submits of a client, in milliseconds.
const SUBMIT_EVERY_MS_MAX: u64 = 8_000;

/// The longest duration of a job, in milliseconds.
const TAKES_MS_MAX: u64 = 1_000;

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

fn request(world: &World) -> Request<Bytes> {
    let count = 1 + world.draw(SUBMIT_JOBS_MAX);
    let payloads: Vec<Payload> = (0..count).map(|_| payload(world)).collect();
    let body = json!({
        "kind": if world.happens(300) { LIMITED } else { PLAIN },
        "payloads": payloads,
        "priority": world.draw(3),
        "retry": {"attempts_max": ATTEMPTS_MAX, "delay_ms": world.draw(3) * 1_000},
    });
    let mut request = Request::new(Bytes::from(body.to_string()));
    *request.method_mut() = axum::http::Method::POST;
    *request.uri_mut() = format!("{BASE}/jobs").parse().expect("a path is a URI");
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

/// Submits jobs until the task is aborted.
pub async fn submit(world: Arc<World>, name: String) {
    loop {
        tokio::time::sleep(world.draw_time(SUBMIT_EVERY_MS_MAX)).await;
        let server = 1 + world.draw(SERVERS as u64) as usize;
        let delivered = deliver(&world, &name, server, request(&world));
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
        for batch in submitted.batches {
            let count = batch.first_position + batch.count;
            world.require(world.check(|checker| checker.acknowledged(BatchId(batch.batch), count)));
        }
    }
}
