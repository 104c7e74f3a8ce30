//! The recorded formats: the index, which [`import`] reads and [`export`] writes, and files of recorded [`questions`].

pub mod export;
pub mod import;
pub mod questions;

pub use questions::{Candidate, RecordedQuestion, read, run};
