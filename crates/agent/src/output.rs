//! The output of followed jobs, on its way to a server.

use gristmill_model::{Followed, Printed};
use gristmill_protocol::worker::{OutputAnswer, OutputRequest};
use gristmill_worker::SourceError;
use reqwest::Method;

use crate::connection::Request;
use crate::registration::Shared;
use crate::requests::HEARTBEAT_TIMEOUT;

impl Shared {
    /// Sends the output of followed jobs to a server, once. Output that does not arrive comes later with the jobs' logs.
    pub async fn put_output(&self, printed: Vec<Printed>) -> Result<(), SourceError> {
        let worker = self.registration()?.worker;
        let request = Request {
            method: Method::POST,
            path: format!("/workers/{worker}/output"),
            content_type: "application/json",
            timeout: HEARTBEAT_TIMEOUT,
            insist: false,
            must_arrive: false,
        };
        let body = OutputRequest { printed };
        let answer: OutputAnswer = self.send_json(&request, &body).await?;
        if let Some(first) = answer.refused.first() {
            tracing::debug!(job = %first, "the server did not take output of ended jobs");
        }
        Ok(())
    }

    /// Resolves when an answer to an exchange has a new list of followed jobs.
    pub async fn followed(&self) -> Vec<Followed> {
        loop {
            if let Some(followed) = self.lock().followed.take() {
                return followed;
            }
            self.learned.notified().await;
        }
    }
}
