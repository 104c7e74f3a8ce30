//! Claims: their order, limits, and workers that wait.

pub mod claims;
pub mod limits;
pub mod waiting;
