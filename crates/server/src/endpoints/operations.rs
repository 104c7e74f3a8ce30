//! Operations: changes of all jobs that match a filter, in portions, with progress.
//!
//! They are in the memory of the server that started them, and end with it, between two portions.

pub mod kept;
pub mod single;
pub mod start;
