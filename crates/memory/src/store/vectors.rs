//! What a store tells of vectors.

use serde::Serialize;

use crate::message::MessageOrdinal;

/// The text of a vector.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum VectorKey {
    /// A term, in lower case.
    Term(String),
    /// A chunk of a message.
    Chunk {
        /// The message.
        message: MessageOrdinal,
        /// The chunk, from 0.
        chunk: u32,
    },
}

/// Where a search for texts without vectors goes on. What is added later comes after it; what was passed over is found
/// again from the beginning, the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VectorCursor {
    /// The store's number of the last term that was looked at.
    pub term: i64,
    /// The number of the next message to be looked at.
    pub message: u32,
}

/// Texts without vectors.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VectorTexts {
    /// What they stand for, and the texts themselves. None where all that is there has vectors.
    pub texts: Vec<(VectorKey, String)>,
    /// Where the next ones come.
    pub cursor: VectorCursor,
}

/// A model that there are vectors of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VectorModel {
    /// Its [identity](crate::embed::Embedder::identity).
    pub model: String,
    /// Terms with a vector.
    pub terms: u64,
    /// Chunks with a vector.
    pub chunks: u64,
}
