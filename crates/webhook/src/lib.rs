//! The built-in handler of the kind `http`: it posts a JSON body, such as the summary of an ended batch, to a URL.
//!
//! A payload is `{"url": …, "body": …}`. Anyone who can submit a job chooses the URL, so the handler sends requests only
//! to hosts that the operator allows, and follows no redirect. Each request is signed as
//! [Standard Webhooks](https://www.standardwebhooks.com) describes. A request that is not answered with success fails its
//! attempt, and the retry policy of the job decides on the next one.

mod error;
mod handler;
mod host;
mod limits;
mod signature;

pub use error::WebhookError;
pub use handler::{WebhookOptions, webhook_handler};
pub use host::AllowedHost;
pub use signature::WebhookSecret;
