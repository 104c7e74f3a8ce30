//! The store of a command, and the commands on a whole store: its runs, statistics, history and pruning.

pub mod backup;
pub mod check;
pub mod checkpoint;
pub mod history;
pub mod location;
pub mod open;
#[cfg(feature = "full")]
pub mod postgres;
#[cfg(not(feature = "full"))]
#[path = "left_out/postgres.rs"]
pub mod postgres;
pub mod prune;
pub mod queues;
pub mod runs;
pub mod stats;
