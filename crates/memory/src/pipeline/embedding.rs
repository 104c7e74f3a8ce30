//! Adds vectors to committed texts, while the ingestion goes on.
//!
//! The store lists the texts that have no vectors, so none is lost or forgotten. Texts that arrive during some calls
//! are embedded by the next calls. Texts of earlier runs, or texts with vectors of another embedder, are embedded too.
//! The writer of the store also writes the vectors, and only for texts that still exist.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::{StreamExt, TryStreamExt};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::embed::{Embedder, Vector};
use crate::limits::{VECTOR_CALLS_MAX, VECTOR_TEXTS_MAX};
use crate::pipeline::IngestError;
use crate::store::{Change, KnowledgeStore, VectorCursor, VectorKey};

/// The progress of the ingestion, as far as the embedding needs it.
#[derive(Debug, Clone, Copy, Default)]
struct Stage {
    commits: u64,
    ended: bool,
}

/// The embedding of one ingestion, while it runs.
#[derive(Debug)]
pub struct Embedding {
    stage: watch::Sender<Stage>,
    embedded: Arc<AtomicU64>,
    task: JoinHandle<Result<(), IngestError>>,
}

impl Embedding {
    /// Begins with the stored texts.
    pub fn start(store: Arc<dyn KnowledgeStore>, embedder: Arc<dyn Embedder>) -> Embedding {
        let (stage, stages) = watch::channel(Stage::default());
        let embedded = Arc::new(AtomicU64::new(0));
        let task = tokio::spawn(follow(store, embedder, stages, embedded.clone()));
        Embedding {
            stage,
            embedded,
            task,
        }
    }

    /// Announces a commit, after which there may be more texts to embed.
    pub fn committed(&self) {
        self.stage.send_modify(|stage| stage.commits += 1);
    }

    /// Number of vectors on disk.
    pub fn embedded(&self) -> u64 {
        self.embedded.load(Ordering::Relaxed)
    }

    /// Waits until all committed texts have vectors, and returns the number of new ones.
    ///
    /// # Errors
    ///
    /// [`IngestError::Embed`], and errors of the store. The vectors made before are kept.
    pub async fn finish(self) -> Result<u64, IngestError> {
        self.stage.send_modify(|stage| stage.ended = true);
        match self.task.await {
            Ok(done) => done.map(|()| self.embedded.load(Ordering::Relaxed)),
            Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
            Err(ended) => Err(IngestError::Worker(ended.to_string())),
        }
    }

    /// Gives up the calls under way.
    pub fn abort(&self) {
        self.task.abort();
    }
}

async fn follow(
    store: Arc<dyn KnowledgeStore>,
    embedder: Arc<dyn Embedder>,
    mut stages: watch::Receiver<Stage>,
    embedded: Arc<AtomicU64>,
) -> Result<(), IngestError> {
    let mut cursor = VectorCursor::default();
    loop {
        let ended = stages.borrow_and_update().ended;
        if ended {
            // The last round begins at the start again: a replaced source may have changed texts that the cursor has passed.
            cursor = VectorCursor::default();
        }
        cursor = embed_missing(&*store, &*embedder, cursor, &embedded).await?;
        if ended || stages.changed().await.is_err() {
            return Ok(());
        }
    }
}

/// Adds vectors to all texts after `cursor` that have none.
///
/// # Errors
///
/// [`IngestError::Embed`], and errors of the store. The vectors made before are kept.
pub async fn embed_missing(
    store: &dyn KnowledgeStore,
    embedder: &dyn Embedder,
    mut cursor: VectorCursor,
    embedded: &AtomicU64,
) -> Result<VectorCursor, IngestError> {
    let model = embedder.identity();
    loop {
        let missing = store.texts_without_vectors(cursor, VECTOR_TEXTS_MAX).await?;
        if missing.texts.is_empty() {
            return Ok(cursor);
        }
        assert!(
            missing.texts.len() <= VECTOR_TEXTS_MAX,
            "a page of texts keeps to its limit"
        );
        assert_ne!(
            missing.cursor, cursor,
            "each page of texts moves the cursor forward"
        );
        cursor = missing.cursor;
        let calls = cut(missing.texts, embedder.texts_max(), embedder.bytes_max());
        futures::stream::iter(calls)
            .map(|texts| embed(store, embedder, &model, texts, embedded))
            .buffer_unordered(VECTOR_CALLS_MAX)
            .try_collect::<()>()
            .await?;
    }
}

async fn embed(
    store: &dyn KnowledgeStore,
    embedder: &dyn Embedder,
    model: &str,
    texts: Vec<(VectorKey, String)>,
    embedded: &AtomicU64,
) -> Result<(), IngestError> {
    let count = texts.len() as u64;
    let (full, empty): (Vec<_>, Vec<_>) = texts.into_iter().partition(|(_, text)| !text.trim().is_empty());
    // An empty text has no meaning, and services refuse it.
    let mut vectors: Vec<(VectorKey, Vector)> = empty
        .into_iter()
        .map(|(key, _)| (key, Vector::new(Vec::new())))
        .collect();
    if !full.is_empty() {
        let (keys, texts): (Vec<VectorKey>, Vec<String>) = full.into_iter().unzip();
        vectors.extend(keys.into_iter().zip(embedder.embed(texts).await?));
    }
    assert_eq!(vectors.len() as u64, count, "each text has one vector");
    let change = Change::Vectors {
        model: model.to_owned(),
        vectors,
    };
    store.apply(vec![change]).await?;
    embedded.fetch_add(count, Ordering::Relaxed);
    Ok(())
}

/// Divides texts into calls of at most `texts_max` texts and `bytes_max` bytes. A longer text is a call of its own.
fn cut(texts: Vec<(VectorKey, String)>, texts_max: usize, bytes_max: usize) -> Vec<Vec<(VectorKey, String)>> {
    let count = texts.len();
    let mut calls: Vec<Vec<(VectorKey, String)>> = Vec::new();
    let mut bytes = 0;
    for text in texts {
        let length = text.1.len();
        match calls.last_mut() {
            Some(call) if call.len() < texts_max && bytes + length <= bytes_max => {
                call.push(text);
                bytes += length;
            }
            _ => {
                calls.push(vec![text]);
                bytes = length;
            }
        }
    }
    assert_eq!(
        calls.iter().map(Vec::len).sum::<usize>(),
        count,
        "each text is in one call"
    );
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_by_texts_and_bytes() {
        let texts = ["aa", "bb", "cc", "dddddd", "e"].map(|text| {
            let key = VectorKey::Term(text.to_owned());
            (key, text.to_owned())
        });
        let lengths =
            |calls: Vec<Vec<(VectorKey, String)>>| -> Vec<usize> { calls.iter().map(Vec::len).collect() };
        assert_eq!(lengths(cut(texts.to_vec(), 2, 100)), [2, 2, 1]);
        assert_eq!(lengths(cut(texts.to_vec(), 9, 4)), [2, 1, 1, 1]);
        assert!(cut(Vec::new(), 2, 4).is_empty());
    }
}
