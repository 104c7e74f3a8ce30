//! Links of the description: what an answer names, and the operations that take it.

use serde_json::Value;
use utoipa::openapi::link::Link;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::{OpenApi, RefOr};

const JOB: &str = "$response.body#/first";
const BATCH: &str = "$response.body#/batches/0/batch";
const WORKER: &str = "$response.body#/worker";
const SCHEDULE: &str = "$request.path.schedule";

/// What the linked operation is given.
enum Given {
    Parameter(&'static str, &'static str),
    /// The body, as JSON with expressions.
    Body(&'static str),
}

use Given::{Body, Parameter};

const SELECTED: Given = Body(r#"{"jobs": ["$response.body#/first"]}"#);

/// The operation and the status that answers, the operation that takes it, and how.
const LINKS: [(&str, &str, &str, Given); 27] = [
    ("submit", "201", "job", Parameter("job", JOB)),
    ("submit", "201", "results", Parameter("batches", BATCH)),
    ("submit", "201", "jobs", Parameter("batch", BATCH)),
    ("submit", "201", "count_jobs", Parameter("batch", BATCH)),
    ("submit", "201", "cancel", SELECTED),
    ("submit", "201", "retry", SELECTED),
    ("submit", "201", "discard", SELECTED),
    (
        "submit",
        "201",
        "prioritise",
        Body(r#"{"jobs": ["$response.body#/first"], "priority": 7}"#),
    ),
    (
        "submit",
        "201",
        "pause_jobs",
        Body(r#"{"jobs": ["$response.body#/first"], "reason": "test"}"#),
    ),
    ("submit", "201", "resume_jobs", SELECTED),
    ("submit_stream", "201", "results", Parameter("batches", BATCH)),
    ("submit_stream", "201", "job", Parameter("job", JOB)),
    (
        "register",
        "201",
        "claim",
        Body(r#"{"worker": "$response.body#/worker", "jobs_max": 5}"#),
    ),
    ("register", "201", "exchange", Parameter("worker", WORKER)),
    ("register", "201", "heartbeat", Parameter("worker", WORKER)),
    ("register", "201", "put_output", Parameter("worker", WORKER)),
    ("register", "201", "children", Parameter("worker", WORKER)),
    ("register", "201", "drain_worker", Parameter("worker", WORKER)),
    ("register", "201", "leave", Parameter("worker", WORKER)),
    ("claim", "200", "report", Body(COMPLETED)),
    ("claim", "200", "heartbeat", Parameter("worker", WORKER)),
    (
        "claim",
        "200",
        "claim",
        Body(r#"{"worker": "$response.body#/worker"}"#),
    ),
    ("put_schedule", "200", "schedule", Parameter("schedule", SCHEDULE)),
    (
        "put_schedule",
        "200",
        "pause_schedule",
        Parameter("schedule", SCHEDULE),
    ),
    (
        "put_schedule",
        "200",
        "trigger_schedule",
        Parameter("schedule", SCHEDULE),
    ),
    (
        "pause_schedule",
        "200",
        "resume_schedule",
        Parameter("schedule", SCHEDULE),
    ),
    (
        "trigger_schedule",
        "200",
        "delete_schedule",
        Parameter("schedule", SCHEDULE),
    ),
];

/// A report of the first claimed job.
const COMPLETED: &str = r#"{
    "worker": "$response.body#/worker",
    "outcomes": [{
        "job": "$response.body#/jobs/0/job",
        "lease": "$response.body#/jobs/0/lease",
        "attempt": "$response.body#/jobs/0/attempt",
        "value": 7
    }]
}"#;

/// Adds the links to the answers of a description.
pub fn add(description: &mut OpenApi) {
    let items = description.paths.paths.values_mut();
    for operation in items.flat_map(operations) {
        let id = operation.operation_id.clone().unwrap_or_default();
        for (from, status, to, given) in &LINKS {
            let answer = operation.responses.responses.get_mut(*status);
            if *from == id
                && let Some(RefOr::T(answer)) = answer
            {
                answer.links.insert((*to).to_owned(), RefOr::T(link(to, given)));
            }
        }
    }
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let all = [&mut item.get, &mut item.post, &mut item.put, &mut item.delete];
    all.into_iter().flatten()
}

fn link(to: &str, given: &Given) -> Link {
    let link = Link::builder().operation_id(to);
    match given {
        Parameter(name, expression) => link.parameter(*name, *expression),
        Body(body) => link.request_body(Some(serde_json::from_str::<Value>(body).unwrap_or_default())),
    }
    .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_link_is_described_and_leads_to_an_operation() {
        let (_, mut description) = crate::openapi::router();
        let mut links = 0;
        let operations: Vec<Operation> = description
            .paths
            .paths
            .values_mut()
            .flat_map(operations)
            .map(|operation| operation.clone())
            .collect();
        for operation in &operations {
            for answer in operation.responses.responses.values() {
                let RefOr::T(answer) = answer else { continue };
                for link in answer.links.values() {
                    let RefOr::T(link) = link else {
                        panic!("a link is named")
                    };
                    let to = operations
                        .iter()
                        .find(|to| to.operation_id.as_ref() == Some(&link.operation_id));
                    let to = to.unwrap_or_else(|| panic!("no operation {}", link.operation_id));
                    let known: Vec<&String> = to
                        .parameters
                        .iter()
                        .flatten()
                        .filter_map(|parameter| match parameter {
                            RefOr::T(parameter) => Some(&parameter.name),
                            RefOr::Ref(_) => None,
                        })
                        .collect();
                    assert!(
                        link.parameters.keys().all(|name| known.contains(&name)),
                        "{known:?}"
                    );
                    assert_ne!(link.request_body, Some(Value::Null), "{}", link.operation_id);
                    links += 1;
                }
            }
        }
        assert_eq!(links, LINKS.len());
    }
}
