//! The types of vectors in a store.

use serde::Serialize;

use crate::embed::Vector;
use crate::error::MemoryError;
use crate::message::MessageOrdinal;

/// The text to which a vector belongs.
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

/// The place at which a search for texts without vectors continues. New texts come after it. Texts that it has passed
/// are found again from the beginning, which is the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VectorCursor {
    /// The store's number of the last term that was read.
    pub term: i64,
    /// The number of the next message to read.
    pub message: u32,
}

/// A page of texts without vectors.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VectorTexts {
    /// The texts with their keys. It is empty if all texts have vectors.
    pub texts: Vec<(VectorKey, String)>,
    /// The place at which the next page begins.
    pub cursor: VectorCursor,
}

/// The embedder that made the vectors of a knowledge base.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StoredEmbedder {
    /// Its [identity](crate::embed::Embedder::identity).
    pub model: String,
    /// Number of dimensions of its vectors.
    pub dimensions: u32,
}

impl StoredEmbedder {
    /// Checks that vectors of a model can be compared with the stored ones.
    ///
    /// # Errors
    ///
    /// [`MemoryError::OtherEmbedder`].
    pub fn check(&self, model: &str) -> Result<(), MemoryError> {
        if self.model == model {
            return Ok(());
        }
        Err(MemoryError::OtherEmbedder {
            known: self.model.clone(),
            dimensions: self.dimensions,
            asked: model.to_owned(),
        })
    }

    /// Checks that new vectors of a model have the dimensions of the stored ones.
    pub(super) fn check_new(&self, model: &str, dimensions: u32) -> Result<(), MemoryError> {
        self.check(model)?;
        if self.dimensions == dimensions {
            return Ok(());
        }
        Err(MemoryError::invalid(
            format!("the vectors of {model}"),
            format!(
                "they have {dimensions} dimensions, and the knowledge base has vectors of {} dimensions of the same model",
                self.dimensions
            ),
        ))
    }
}

/// The number of dimensions of the first vector that has any.
pub(super) fn dimensions(vectors: &[(VectorKey, Vector)]) -> Option<u32> {
    let mut dimensions = vectors.iter().map(|(_, vector)| vector.dimensions() as u32);
    dimensions.find(|&dimensions| dimensions > 0)
}

/// A chunk of a message.
pub type ChunkPlace = (MessageOrdinal, u32);

/// The centres of the [lists of vectors](crate::embed::lists), and the end of the listed messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VectorLists {
    /// The message below which all vectors are in lists.
    pub end: MessageOrdinal,
    /// The centres of the lists.
    pub centres: Vec<u8>,
}

/// The number of vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct VectorCounts {
    /// Number of terms with a vector.
    pub terms: u64,
    /// Number of chunks with a vector.
    pub chunks: u64,
}
