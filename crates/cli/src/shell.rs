//! The commands that print completions for shells and manual pages.

pub mod completions;
pub mod man;
