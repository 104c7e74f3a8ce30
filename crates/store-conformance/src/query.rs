//! Queries and events.

pub mod events;
pub mod history;
pub mod metrics;
pub mod queries;
pub mod tags;
