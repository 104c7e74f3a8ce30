//! What a store tells of vectors.

use serde::Serialize;

use crate::embed::Vector;
use crate::error::MemoryError;
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

/// The embedder that made the vectors of a knowledge base.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StoredEmbedder {
    /// Its [identity](crate::embed::Embedder::identity).
    pub model: String,
    /// The dimensions of its vectors.
    pub dimensions: u32,
}

impl StoredEmbedder {
    /// Checks that vectors of a model can be compared with those that are there.
    ///
    /// # Errors
    ///
    /// [`MemoryError::OtherEmbedder`].
    pub fn check(&self, model: &str) -> Result<(), MemoryError> {
        match self.model == model {
            true => Ok(()),
            false => Err(MemoryError::OtherEmbedder {
                known: self.model.clone(),
                dimensions: self.dimensions,
                asked: model.to_owned(),
            }),
        }
    }

    /// Checks that new vectors of a model fit those that are there.
    pub(super) fn check_new(&self, model: &str, dimensions: u32) -> Result<(), MemoryError> {
        self.check(model)?;
        match self.dimensions == dimensions {
            true => Ok(()),
            false => Err(MemoryError::invalid(
                format!("the vectors of {model}"),
                format!(
                    "they have {dimensions} dimensions, and the knowledge base has vectors of {} dimensions of the same model",
                    self.dimensions
                ),
            )),
        }
    }
}

/// The dimensions of vectors: those of the first that has any.
pub(super) fn dimensions(vectors: &[(VectorKey, Vector)]) -> Option<u32> {
    let mut dimensions = vectors.iter().map(|(_, vector)| vector.dimensions() as u32);
    dimensions.find(|&dimensions| dimensions > 0)
}

/// A chunk of a message.
pub type ChunkPlace = (MessageOrdinal, u32);

/// The centres of the [lists of vectors](crate::embed::lists), and the messages that they hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VectorLists {
    /// The vectors of all messages below this one are in lists.
    pub end: MessageOrdinal,
    /// The centres of the lists.
    pub centres: Vec<u8>,
}

/// How many vectors there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct VectorCounts {
    /// Terms with a vector.
    pub terms: u64,
    /// Chunks with a vector.
    pub chunks: u64,
}
