//! The built-in handler of the kind `http`: it posts a JSON body to a URL, such as the summary of an ended batch.
//!
//! A payload is `{"url": …, "body": …}`. Anyone who can submit a job can choose the URL. The handler therefore sends
//! requests only to hosts that the operator allows, and follows no redirect. Each request is signed by the scheme of
//! [Standard Webhooks](https://www.standardwebhooks.com). Without a successful answer the attempt fails, and the job's
//! retry policy decides about the next attempt.

mod error;
mod handler;
mod host;
mod limits;
mod signature;

pub use error::WebhookError;
pub use handler::{WebhookOptions, webhook_handler};
pub use host::AllowedHost;
pub use signature::WebhookSecret;
