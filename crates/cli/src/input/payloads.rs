//! Payloads that are made of items.

use std::sync::Arc;

/// Makes the payload of a job of an item, both as JSON. An error is the problem of the item.
#[derive(Clone)]
pub struct Payloads(pub Arc<PayloadOf>);

/// The function that makes payloads.
pub type PayloadOf = dyn Fn(&str) -> Result<String, String> + Send + Sync;

impl std::fmt::Debug for Payloads {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Payloads")
    }
}
