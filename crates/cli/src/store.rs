//! The store of a command, and the commands on a whole store: its runs, statistics, history and pruning.

pub mod backup;
pub mod check;
pub mod checkpoint;
pub mod history;
pub mod location;
pub mod open;
pub mod prune;
pub mod queues;
pub mod runs;
pub mod stats;
