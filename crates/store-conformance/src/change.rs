//! Changes of single jobs.

pub mod changes;
pub mod pauses;
pub mod priorities;
