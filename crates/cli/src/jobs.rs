//! The commands on jobs: submit, list, show, follow and change them, and write their results.

pub mod change;
pub mod events;
pub mod filter;
pub mod flow;
pub mod list;
pub mod logs;
mod portion;
pub mod results;
pub mod show;
pub mod submit;
pub mod tags;
pub mod wait;
