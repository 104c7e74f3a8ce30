//! OpenAI's interface: chat completions, files, batches.

use serde_json::{Value, json};

use super::State;
use super::batch::{self, End, Interface};
use super::http::{Answer, Call};

/// Maximum requests of a batch.
const REQUESTS_MAX: usize = 50_000;

/// Maximum bytes of a file of requests.
const FILE_BYTES_MAX: usize = 200 << 20;

pub(super) fn answer(state: &mut State, call: &Call, path: &[&str]) -> Answer {
    for place in 0..state.batches.len() {
        let batch = &state.batches[place];
        let has_files = batch.output_file.is_some() || batch.error_file.is_some();
        if batch.interface == Interface::OpenAi && batch.end.is_some() && !has_files {
            write_files(state, place);
        }
    }
    let answered = match (call.method.as_str(), path) {
        ("POST", ["chat", "completions"]) => call.json().and_then(|request| complete(state, &request)),
        ("POST", ["files"]) => upload(state, call),
        ("GET", ["files", id, "content"]) => match state.files.get(*id) {
            Some(bytes) => Ok(Answer::lines(bytes.clone())),
            None => Err(Answer::error(404, "no such file")),
        },
        ("POST", ["batches"]) => call.json().and_then(|request| create(state, &request)),
        ("GET", ["batches"]) => Ok(list(state, call)),
        ("GET", ["batches", id]) => found(state, id).map(|place| Answer::json(200, &shown(state, place))),
        ("POST", ["batches", id, "cancel"]) => found(state, id).map(|place| {
            if state.batches[place].end.is_none() {
                let half = state.batches[place].requests.len() / 2;
                batch::end(state, place, half, End::Cancelled);
                write_files(state, place);
            }
            Answer::json(200, &shown(state, place))
        }),
        _ => Err(Answer::error(404, "unknown path")),
    };
    answered.unwrap_or_else(|refused| refused)
}

fn complete(state: &mut State, request: &Value) -> Result<Answer, Answer> {
    let model = request["model"]
        .as_str()
        .ok_or_else(|| Answer::error(400, "you must provide a model"))?;
    if request["messages"].as_array().is_none_or(Vec::is_empty) {
        return Err(Answer::error(400, "messages is empty"));
    }
    let done = state.bill(request, None);
    Ok(Answer::json(200, &completion(state, model, &done)))
}

fn completion(state: &mut State, model: &str, (words, input, output): &(String, u64, u64)) -> Value {
    json!({
        "id": state.next_id("chatcmpl-"),
        "object": "chat.completion",
        "created": state.now_s,
        "model": model,
        "choices": [{
            "index": 0,
            "message": {"role": "assistant", "content": words, "refusal": null},
            "finish_reason": "stop",
            "logprobs": null,
        }],
        "usage": {
            "prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    })
}

/// Takes the file of a form: the part with a name of a file.
fn upload(state: &mut State, call: &Call) -> Result<Answer, Answer> {
    let refused = |reason: &str| Answer::error(400, reason);
    let boundary = call
        .header("content-type")
        .and_then(|kind| kind.split("boundary=").nth(1))
        .ok_or_else(|| refused("no form"))?;
    let mark = format!("--{}", boundary.trim_matches('"')).into_bytes();
    let (mut file, mut purpose) = (None, None);
    for part in split(&call.body, &mark) {
        let Some(at) = find(part, b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8_lossy(&part[..at]).to_lowercase();
        let body = part[at + 4..].strip_suffix(b"\r\n").unwrap_or(&part[at + 4..]);
        if head.contains("name=\"file\"") {
            file = Some(body.to_vec());
        } else if head.contains("name=\"purpose\"") {
            purpose = Some(String::from_utf8_lossy(body).into_owned());
        }
    }
    let file = file.ok_or_else(|| refused("the form has no file"))?;
    if purpose.as_deref() != Some("batch") {
        return Err(refused("the purpose is not batch"));
    }
    if file.len() > FILE_BYTES_MAX {
        return Err(Answer::error(413, "the file is larger than 200 MB"));
    }
    let id = state.next_id("file-");
    let shown = json!({
        "id": id, "object": "file", "bytes": file.len(), "created_at": state.now_s, "filename": "requests.jsonl",
        "purpose": "batch", "status": "processed",
    });
    state.files.insert(id, file);
    Ok(Answer::json(200, &shown))
}

fn create(state: &mut State, request: &Value) -> Result<Answer, Answer> {
    let id = request["input_file_id"].as_str().unwrap_or_default();
    let file = state
        .files
        .get(id)
        .ok_or_else(|| Answer::error(400, "no such input file"))?;
    if request["completion_window"] != "24h" || request["endpoint"] != "/v1/chat/completions" {
        return Err(Answer::error(400, "wrong completion_window or endpoint"));
    }
    let mut requests: Vec<(String, Value)> = Vec::new();
    for line in file.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let line: Value =
            serde_json::from_slice(line).map_err(|error| Answer::error(400, &error.to_string()))?;
        let custom_id = line["custom_id"].as_str().unwrap_or_default().to_owned();
        if custom_id.is_empty() || line["method"] != "POST" || line["url"] != "/v1/chat/completions" {
            return Err(Answer::error(400, "a line needs custom_id, method and url"));
        }
        if !line["body"]["model"].is_string() {
            return Err(Answer::error(400, "a line's body needs a model"));
        }
        requests.push((custom_id, line["body"].clone()));
    }
    check(&requests, REQUESTS_MAX)?;
    let metadata = request["metadata"].clone();
    let place = batch::create(state, Interface::OpenAi, requests, metadata, Some(id.to_owned()));
    Ok(Answer::json(200, &shown(state, place)))
}

/// Refuses a batch with too many requests, or with an id that stands twice.
pub(super) fn check(requests: &[(String, Value)], requests_max: usize) -> Result<(), Answer> {
    if requests.is_empty() || requests.len() > requests_max {
        let reason = format!(
            "{} requests; from 1 to {requests_max} are allowed",
            requests.len()
        );
        return Err(Answer::error(400, &reason));
    }
    let mut ids: Vec<&str> = requests.iter().map(|(id, _)| id.as_str()).collect();
    ids.sort_unstable();
    match ids.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Answer::error(400, &format!("custom_id {} stands twice", pair[0]))),
        None => Ok(()),
    }
}

fn list(state: &State, call: &Call) -> Answer {
    let limit = call
        .parameter("limit")
        .and_then(|limit| limit.parse().ok())
        .unwrap_or(20)
        .clamp(1, 100);
    let (places, has_more) = batch::page(state, Interface::OpenAi, call.parameter("after"), limit);
    let data: Vec<Value> = places.iter().map(|place| shown(state, *place)).collect();
    Answer::json(
        200,
        &json!({ "object": "list", "data": data, "has_more": has_more }),
    )
}

fn found(state: &State, id: &str) -> Result<usize, Answer> {
    let found = state
        .batches
        .iter()
        .position(|batch| batch.id == id && batch.interface == Interface::OpenAi);
    found.ok_or_else(|| Answer::error(404, "no such batch"))
}

fn shown(state: &State, place: usize) -> Value {
    let batch = &state.batches[place];
    let status = match batch.end {
        None => "in_progress",
        Some(End::Completed) => "completed",
        Some(End::Expired) => "expired",
        Some(End::Cancelled) => "cancelled",
    };
    json!({
        "id": batch.id,
        "object": "batch",
        "endpoint": "/v1/chat/completions",
        "completion_window": "24h",
        "input_file_id": batch.input_file,
        "status": status,
        "created_at": batch.created_s,
        "expires_at": batch.expires_s(),
        "completed_at": batch.end.map(|_| batch.ended_s),
        "output_file_id": batch.output_file,
        "error_file_id": batch.error_file,
        "metadata": batch.metadata,
        "request_counts": {"total": batch.requests.len(), "completed": batch.done.len(), "failed": 0},
    })
}

/// Writes the files of a batch that has ended: the answers, and the requests that have none.
fn write_files(state: &mut State, place: usize) {
    let (done, requests, end) = {
        let batch = &state.batches[place];
        (batch.done.clone(), batch.requests.clone(), batch.end)
    };
    let (mut output, mut errors) = (Vec::new(), Vec::new());
    for at in batch::shuffled(requests.len()) {
        let (custom_id, body) = &requests[at];
        let id = state.next_id("batch_req_");
        match done.get(at) {
            Some(words) => {
                let body = completion(state, body["model"].as_str().unwrap_or_default(), words);
                let response = json!({ "status_code": 200, "request_id": id, "body": body });
                let line = json!({ "id": id, "custom_id": custom_id, "response": response, "error": null });
                output.extend_from_slice(format!("{line}\n").as_bytes());
            }
            None => {
                let code = if end == Some(End::Expired) {
                    "batch_expired"
                } else {
                    "batch_cancelled"
                };
                let error = json!({ "code": code, "message": "This request was not executed" });
                let line = json!({ "id": id, "custom_id": custom_id, "response": null, "error": error });
                errors.extend_from_slice(format!("{line}\n").as_bytes());
            }
        }
    }
    let mut keep = |bytes: Vec<u8>| {
        (!bytes.is_empty()).then(|| {
            let id = state.next_id("file-");
            state.files.insert(id.clone(), bytes);
            id
        })
    };
    let (output, errors) = (keep(output), keep(errors));
    let batch = &mut state.batches[place];
    batch.output_file = output;
    batch.error_file = errors;
}

fn find(bytes: &[u8], mark: &[u8]) -> Option<usize> {
    bytes.windows(mark.len()).position(|window| window == mark)
}

/// The parts between the marks of a form.
fn split<'b>(mut bytes: &'b [u8], mark: &[u8]) -> Vec<&'b [u8]> {
    let mut parts = Vec::new();
    while let Some(at) = find(bytes, mark) {
        parts.push(&bytes[..at]);
        bytes = &bytes[at + mark.len()..];
    }
    parts
}
