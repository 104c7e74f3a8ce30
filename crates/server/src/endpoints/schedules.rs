//! The operations on schedules: the list, and the operations on a single schedule.

pub mod list;
pub mod single;
