//! The operations on jobs: submit, list, read, change them, and their results.

pub mod awaited;
pub mod cancel;
pub mod count;
pub mod details;
pub mod discard;
pub mod groups;
pub mod ids;
pub mod list;
pub mod pause;
pub mod prioritise;
pub mod priority_name;
pub mod results;
pub mod retry;
pub mod search;
pub mod selection;
pub mod submit;
pub mod submit_options;
pub mod submit_stream;
pub mod tags;
pub mod unique;
