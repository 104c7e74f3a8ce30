//! Typed jobs.

use gristmill_model::BatchOptions;
use gristmill_model::batch::DEFAULT_QUEUE;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// One kind of jobs: its name, what goes in and what comes out.
pub trait Kind {
    /// The kind's name, as it is stored.
    const NAME: &'static str;
    /// The queue that its jobs go to.
    const QUEUE: &'static str = DEFAULT_QUEUE;
    /// What a job is made of.
    type Payload: Serialize + DeserializeOwned + Send + 'static;
    /// What it is turned into.
    type Value: Serialize + DeserializeOwned + Send + 'static;

    /// What holds for its jobs where a submit says nothing else.
    fn options() -> BatchOptions {
        BatchOptions::default()
    }
}
