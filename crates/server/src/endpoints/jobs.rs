//! The operations on jobs: submit, list, read, change them, and their results.

pub mod awaited;
pub mod change;
pub mod count;
pub mod details;
pub mod flow_event;
pub mod fork;
pub mod groups;
pub mod ids;
pub mod list;
pub mod results;
pub mod steps;
pub mod submit;
pub mod submit_stream;
pub mod submitted;
pub mod tags;
