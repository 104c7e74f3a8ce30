//! From the text of a chunk to knowledge.
//!
//! * [`known`]: what a message tells of itself, with no model: who said it to whom, and what it is about.
//! * [`local`]: an extractor by rules: no network, the same answer for the same text.

pub mod known;
pub mod local;
