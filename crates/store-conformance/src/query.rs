//! Queries and events.

pub mod events;
pub mod history;
pub mod queries;
pub mod tags;
