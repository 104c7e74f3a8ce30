//! Claims: their order, limits, many lanes, and workers that wait.

pub mod claims;
pub mod held_back;
pub mod lanes;
pub mod limits;
pub mod next;
pub mod waiting;
