//! The addon below the package `gristmill` for Node: a thin layer over the engine and its operations. `lib/native.ts` has its
//! interface in TypeScript's terms.
//!
//! All data crosses as text in batches: a request of the HTTP API with all payloads of a portion, the packed payloads of a
//! micro-batch, the packed values of the jobs that have ended. Only JavaScript's own thread parses values.

mod engine;
mod events;
mod foreign;
mod handler;
mod inbox;
mod limits;
mod run;
mod run_lock;
mod worker;

use gristmill_operations::Refused;
use napi::{Error, Status};

/// An error of the store or the engine.
fn store_error(error: impl std::fmt::Display) -> Error {
    Error::new(Status::GenericFailure, error.to_string())
}

/// A refusal of an operation. Its status says whether the object does not exist.
fn refusal(refused: Refused) -> Error {
    match refused {
        Refused::NotFound { .. } => Error::new(Status::ObjectExpected, refused.to_string()),
        refused => Error::new(Status::GenericFailure, refused.told()),
    }
}
