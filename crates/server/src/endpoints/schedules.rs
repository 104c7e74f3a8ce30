//! The operations on schedules: the list, and all on a single schedule.

pub mod list;
pub mod single;
