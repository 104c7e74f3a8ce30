//! The commands that print what shells and manuals need.

pub mod completions;
pub mod man;
