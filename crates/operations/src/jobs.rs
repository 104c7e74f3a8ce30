//! Operations on jobs: list, count, search, show and change them.

pub mod change;
pub mod details;
pub mod list;
pub mod newest_batches;
pub mod search;
pub mod selection;
pub mod tags;
