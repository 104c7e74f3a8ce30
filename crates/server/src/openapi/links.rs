//! The links of the description: from a value in an answer to the operations that take it.

use utoipa::openapi::link::Link;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::{OpenApi, RefOr};

const JOB: &str = "$response.body#/first";
const BATCH: &str = "$response.body#/batches/0/batch";
const WORKER: &str = "$response.body#/worker";
const SCHEDULE: &str = "$request.path.schedule";

/// The operation and the status that answers, the operation that takes the value, and its parameter. No link has a
/// body, because generators read a body as a single text (`requestBody is not of type string`).
const LINKS: [(&str, &str, &str, &str, &str); 19] = [
    ("submit", "201", "job", "job", JOB),
    ("submit", "201", "steps", "job", JOB),
    ("submit", "201", "results", "batches", BATCH),
    ("submit", "201", "jobs", "batch", BATCH),
    ("submit", "201", "count_jobs", "batch", BATCH),
    ("submit_stream", "201", "results", "batches", BATCH),
    ("submit_stream", "201", "job", "job", JOB),
    ("register", "201", "exchange", "worker", WORKER),
    ("register", "201", "heartbeat", "worker", WORKER),
    ("register", "201", "put_output", "worker", WORKER),
    ("register", "201", "children", "worker", WORKER),
    ("register", "201", "drain_worker", "worker", WORKER),
    ("register", "201", "leave", "worker", WORKER),
    ("claim", "200", "heartbeat", "worker", WORKER),
    ("put_schedule", "200", "schedule", "schedule", SCHEDULE),
    ("put_schedule", "200", "pause_schedule", "schedule", SCHEDULE),
    ("put_schedule", "200", "trigger_schedule", "schedule", SCHEDULE),
    ("pause_schedule", "200", "resume_schedule", "schedule", SCHEDULE),
    ("trigger_schedule", "200", "delete_schedule", "schedule", SCHEDULE),
];

/// Adds the links to the answers of a description.
pub fn add(description: &mut OpenApi) {
    let items = description.paths.paths.values_mut();
    for operation in items.flat_map(operations) {
        let id = operation.operation_id.clone().unwrap_or_default();
        for (from, status, to, parameter, expression) in LINKS {
            let answer = operation.responses.responses.get_mut(status);
            if from == id
                && let Some(RefOr::T(answer)) = answer
            {
                let link = Link::builder()
                    .operation_id(to)
                    .parameter(parameter, expression)
                    .build();
                answer.links.insert(to.to_owned(), RefOr::T(link));
            }
        }
    }
}

/// The operations of a path.
pub fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let all = [&mut item.get, &mut item.post, &mut item.put, &mut item.delete];
    all.into_iter().flatten()
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
                    assert_eq!(link.request_body, None, "{}", link.operation_id);
                    links += 1;
                }
            }
        }
        assert_eq!(links, LINKS.len());
    }
}
