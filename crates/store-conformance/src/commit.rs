//! Reports, and the data that running jobs send.

pub mod compaction;
pub mod live_output;
pub mod progress;
pub mod reports;
