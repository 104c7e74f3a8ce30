//! Batches: what both interfaces have in common.

use serde_json::Value;

use super::State;

/// Seconds after which a batch expires.
const EXPIRES_AFTER_S: i64 = 86_400;

/// The interface by which a batch was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interface {
    OpenAi,
    Anthropic,
}

/// The way in which a batch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Completed,
    Expired,
    Cancelled,
}

/// A batch.
pub(super) struct Batch {
    pub id: String,
    pub interface: Interface,
    pub created_s: i64,
    pub ends_s: i64,
    pub done_share: f64,
    /// The ids of the requests, and their bodies.
    pub requests: Vec<(String, Value)>,
    pub metadata: Value,
    pub input_file: Option<String>,
    /// The words and tokens of the requests that are done, in the order of the requests.
    pub done: Vec<(String, u64, u64)>,
    pub end: Option<End>,
    pub ended_s: i64,
    pub output_file: Option<String>,
    pub error_file: Option<String>,
}

impl Batch {
    pub fn expires_s(&self) -> i64 {
        self.created_s + EXPIRES_AFTER_S
    }
}

/// Adds a batch, and returns its place.
pub(super) fn create(
    state: &mut State,
    interface: Interface,
    requests: Vec<(String, Value)>,
    metadata: Value,
    input_file: Option<String>,
) -> usize {
    let id = state.next_id(match interface {
        Interface::OpenAi => "batch_",
        Interface::Anthropic => "msgbatch_",
    });
    let takes_s = if state.done_share < 1.0 {
        EXPIRES_AFTER_S
    } else {
        state.batch_takes_s
    };
    state.batches.push(Batch {
        id,
        interface,
        created_s: state.now_s,
        ends_s: state.now_s + takes_s.min(EXPIRES_AFTER_S),
        done_share: state.done_share,
        requests,
        metadata,
        input_file,
        done: Vec::new(),
        end: None,
        ended_s: 0,
        output_file: None,
        error_file: None,
    });
    state.batches.len() - 1
}

/// Ends the batches whose time has come.
pub(super) fn end_due(state: &mut State) {
    for place in 0..state.batches.len() {
        let batch = &state.batches[place];
        if batch.end.is_none() && batch.ends_s <= state.now_s {
            let (share, count) = (batch.done_share, batch.requests.len());
            let done = (count as f64 * share).floor() as usize;
            end(
                state,
                place,
                done,
                if done < count {
                    End::Expired
                } else {
                    End::Completed
                },
            );
        }
    }
}

/// Ends a batch whose first requests are done. They are billed.
pub(super) fn end(state: &mut State, place: usize, done: usize, end: End) {
    let requests: Vec<(String, Value)> = state.batches[place].requests[..done].to_vec();
    let done = requests
        .iter()
        .map(|(id, body)| state.bill(body, Some(id)))
        .collect();
    let now_s = state.now_s;
    let batch = &mut state.batches[place];
    assert!(batch.end.is_none(), "a batch ends once");
    batch.done = done;
    batch.end = Some(end);
    batch.ended_s = now_s;
}

/// The places of the batches of an interface, the latest first, on one page: those after `after`, and whether there are more.
pub(super) fn page(
    state: &State,
    interface: Interface,
    after: Option<&str>,
    limit: usize,
) -> (Vec<usize>, bool) {
    let places: Vec<usize> = (0..state.batches.len())
        .rev()
        .filter(|place| state.batches[*place].interface == interface)
        .collect();
    let from = match after {
        None => 0,
        Some(id) => places
            .iter()
            .position(|place| state.batches[*place].id == id)
            .map_or(0, |at| at + 1),
    };
    let rest = &places[from..];
    (rest.iter().copied().take(limit).collect(), rest.len() > limit)
}

/// The places of the requests in an order that is not theirs, as providers give results.
pub(super) fn shuffled(count: usize) -> impl Iterator<Item = usize> {
    (0..count).rev()
}
