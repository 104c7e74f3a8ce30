//! Submits a job with the client of openapi-generator, and prints its value.

use std::collections::HashMap;

use openapi::apis::configuration::Configuration;
use openapi::apis::jobs_api;
use openapi::models::{PriorityName, RetryOptions, SubmitRequest, SubmitTags};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut configuration = Configuration::new();
    configuration.base_path = std::env::var("GRISTMILL_URL").expect("a URL");
    let mut retry = RetryOptions::new();
    retry.attempts_max = Some(Some(2));
    let tags = HashMap::from([("team".to_owned(), "red".to_owned())]);
    let mut request = SubmitRequest::new("double".to_owned());
    request.payload = Some(Some(21.into()));
    request.priority = Some(Some(Box::new(PriorityName::PriorityNameText("high".to_owned()))));
    request.retry = Some(Some(Box::new(retry)));
    request.tags = Some(Some(Box::new(SubmitTags::SubmitTagsMap(tags))));
    let awaited = jobs_api::submit(&configuration, request, Some("30s"), None).await;
    let results = awaited.expect("an answer").results.flatten().expect("results");
    println!("{}", results[0]["value"]);
}
