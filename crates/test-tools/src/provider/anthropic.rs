//! Anthropic's interface: messages, and batches of them.

use serde_json::{Value, json};

use super::State;
use super::batch::{self, End, Interface};
use super::http::{Answer, Call};
use super::openai::check;

/// Maximum requests of a batch.
const REQUESTS_MAX: usize = 100_000;

/// Maximum bytes of a batch.
const BATCH_BYTES_MAX: usize = 256 << 20;

/// Maximum characters of the id of a request.
const CUSTOM_ID_CHARACTERS_MAX: usize = 64;

pub(super) fn answer(state: &mut State, call: &Call, path: &[&str]) -> Answer {
    if call.header("anthropic-version").is_none() {
        return Answer::error(400, "anthropic-version: header is required");
    }
    let answered = match (call.method.as_str(), path) {
        ("POST", ["messages"]) => call.json().and_then(|request| {
            check_message(&request)?;
            let done = state.bill(&request, None);
            Ok(Answer::json(200, &message(state, &request, &done)))
        }),
        ("POST", ["messages", "batches"]) => create(state, call),
        ("GET", ["messages", "batches"]) => Ok(list(state, call)),
        ("GET", ["messages", "batches", id]) => {
            found(state, id).map(|place| Answer::json(200, &shown(state, place, call)))
        }
        ("GET", ["messages", "batches", id, "results"]) => {
            found(state, id).and_then(|place| results(state, place))
        }
        ("POST", ["messages", "batches", id, "cancel"]) => found(state, id).map(|place| {
            if state.batches[place].end.is_none() {
                let half = state.batches[place].requests.len() / 2;
                batch::end(state, place, half, End::Cancelled);
            }
            Answer::json(200, &shown(state, place, call))
        }),
        _ => Err(Answer::error(404, "unknown path")),
    };
    answered.unwrap_or_else(|refused| refused)
}

fn check_message(request: &Value) -> Result<(), Answer> {
    if !request["model"].is_string() || !request["max_tokens"].is_u64() {
        return Err(Answer::error(400, "model and max_tokens: Field required"));
    }
    let roles = request["messages"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|message| &message["role"]);
    if roles.clone().count() == 0
        || roles
            .into_iter()
            .any(|role| role != "user" && role != "assistant")
    {
        return Err(Answer::error(400, "messages: Unexpected role"));
    }
    Ok(())
}

fn message(state: &mut State, request: &Value, (words, input, output): &(String, u64, u64)) -> Value {
    json!({
        "id": state.next_id("msg_"),
        "type": "message",
        "role": "assistant",
        "model": request["model"],
        "content": [{"type": "text", "text": words}],
        "stop_reason": "end_turn",
        "stop_sequence": null,
        "usage": {"input_tokens": input, "output_tokens": output, "cache_read_input_tokens": 0},
    })
}

fn create(state: &mut State, call: &Call) -> Result<Answer, Answer> {
    if call.body.len() > BATCH_BYTES_MAX {
        return Err(Answer::error(413, "the batch is larger than 256 MB"));
    }
    let body = call.json()?;
    if body.as_object().is_none_or(|fields| fields.len() != 1) {
        return Err(Answer::error(400, "requests: the only field"));
    }
    let mut requests = Vec::new();
    for request in body["requests"].as_array().into_iter().flatten() {
        let custom_id = request["custom_id"].as_str().unwrap_or_default().to_owned();
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
        if custom_id.is_empty()
            || custom_id.len() > CUSTOM_ID_CHARACTERS_MAX
            || !custom_id.chars().all(is_plain)
        {
            return Err(Answer::error(
                400,
                "custom_id: String should match pattern '^[a-zA-Z0-9_-]{1,64}$'",
            ));
        }
        check_message(&request["params"])?;
        requests.push((custom_id, request["params"].clone()));
    }
    check(&requests, REQUESTS_MAX)?;
    let place = batch::create(state, Interface::Anthropic, requests, Value::Null, None);
    Ok(Answer::json(200, &shown(state, place, call)))
}

fn list(state: &State, call: &Call) -> Answer {
    let limit = call
        .parameter("limit")
        .and_then(|limit| limit.parse().ok())
        .unwrap_or(20)
        .clamp(1, 1_000);
    let (places, has_more) = batch::page(state, Interface::Anthropic, call.parameter("after_id"), limit);
    let data: Vec<Value> = places.iter().map(|place| shown(state, *place, call)).collect();
    let id = |batch: Option<&Value>| batch.map(|batch| batch["id"].clone());
    let (first, last) = (id(data.first()), id(data.last()));
    Answer::json(
        200,
        &json!({ "data": data, "has_more": has_more, "first_id": first, "last_id": last }),
    )
}

fn found(state: &State, id: &str) -> Result<usize, Answer> {
    let found = state
        .batches
        .iter()
        .position(|batch| batch.id == id && batch.interface == Interface::Anthropic);
    found.ok_or_else(|| Answer::error(404, "no such batch"))
}

fn shown(state: &State, place: usize, call: &Call) -> Value {
    let batch = &state.batches[place];
    let left = (batch.requests.len() - batch.done.len()) as u64;
    let of = |end: Option<End>| if batch.end == end { left } else { 0 };
    let host = call.header("host").unwrap_or_default();
    json!({
        "id": batch.id,
        "type": "message_batch",
        "processing_status": if batch.end.is_some() { "ended" } else { "in_progress" },
        "created_at": moment(batch.created_s),
        "expires_at": moment(batch.expires_s()),
        "ended_at": batch.end.map(|_| moment(batch.ended_s)),
        "archived_at": null,
        "cancel_initiated_at": null,
        "results_url": batch.end.map(|_| format!("http://{host}/v1/messages/batches/{}/results", batch.id)),
        "request_counts": {
            "processing": of(None), "succeeded": batch.done.len(), "errored": 0,
            "canceled": of(Some(End::Cancelled)), "expired": of(Some(End::Expired)),
        },
    })
}

/// A time as RFC 3339.
fn moment(seconds: i64) -> String {
    gristmill_model::Timestamp(seconds * 1_000).to_string()
}

fn results(state: &mut State, place: usize) -> Result<Answer, Answer> {
    let batch = &state.batches[place];
    let Some(end) = batch.end else {
        return Err(Answer::error(400, "the batch has not ended"));
    };
    let (done, requests) = (batch.done.clone(), batch.requests.clone());
    let mut lines = Vec::new();
    for at in batch::shuffled(requests.len()) {
        let (custom_id, body) = &requests[at];
        let result = match (done.get(at), end) {
            (Some(words), _) => json!({ "type": "succeeded", "message": message(state, body, words) }),
            (None, End::Cancelled) => json!({ "type": "canceled" }),
            (None, _) => json!({ "type": "expired" }),
        };
        let line = json!({ "custom_id": custom_id, "result": result });
        lines.extend_from_slice(format!("{line}\n").as_bytes());
    }
    Ok(Answer::lines(lines))
}
