//! Operations on jobs: list, count, search, show, change and fork them, and flows with their steps.

pub mod change;
pub mod details;
pub mod events;
pub mod flows;
pub mod fork;
pub mod ids;
pub mod list;
pub mod memos;
pub mod newest_batches;
pub mod search;
pub mod selection;
pub mod steps;
pub mod tags;
