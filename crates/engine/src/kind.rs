//! Typed jobs.

use gristmill_model::batch::DEFAULT_QUEUE;
use gristmill_model::{BatchOptions, PackedArray, PackedBuilder, PackedError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::EngineError;

/// One kind of jobs: its name, its payload and its value.
pub trait Kind {
    /// The kind's name, as it is stored.
    const NAME: &'static str;
    /// The queue of its jobs.
    const QUEUE: &'static str = DEFAULT_QUEUE;
    /// The payload of a job.
    type Payload: Serialize + DeserializeOwned + Send + 'static;
    /// The value of a job.
    type Value: Serialize + DeserializeOwned + Send + 'static;

    /// The default options of its jobs.
    fn options() -> BatchOptions {
        BatchOptions::default()
    }
}

/// Packs one payload.
pub(crate) fn packed<K: Kind>(payload: &K::Payload) -> Result<PackedArray, EngineError> {
    let mut builder = PackedBuilder::new();
    builder.push_value(payload).map_err(refused::<K>)?;
    Ok(builder.finish())
}

/// The error for a payload of a kind that cannot be packed.
pub(crate) fn refused<K: Kind>(error: PackedError) -> EngineError {
    match error {
        PackedError::NotJson { reason, .. } => EngineError::Type {
            what: "payload",
            kind: K::NAME,
            reason,
        },
        other => other.into(),
    }
}
