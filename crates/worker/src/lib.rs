//! The worker: claim → run → commit, overlapped, over any [source](gristmill_store::Store) of leases.

pub mod handler;

pub use handler::{Handler, OutcomeSink, Outcomes};
