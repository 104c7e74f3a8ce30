//! The operations, one in each file: its route, description and handler. Roles are in
//! [`rules`](crate::rules).

pub mod backlog;
pub mod batches;
pub mod controls;
pub mod events;
pub mod flows;
pub mod health;
pub mod history;
pub mod jobs;
pub mod logs;
pub mod memory;
pub mod metrics;
pub mod openapi;
pub mod operations;
pub mod probes;
pub mod queues;
pub mod ready;
pub mod runs;
pub mod schedules;
pub mod stats;
pub mod workers;
