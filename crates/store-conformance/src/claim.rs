//! Claims: their order, limits, many lanes, and workers that wait.

pub mod claims;
pub mod lanes;
pub mod limits;
pub mod waiting;
