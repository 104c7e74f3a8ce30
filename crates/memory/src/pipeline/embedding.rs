//! Vectors for what ingestion commits, made beside it.
//!
//! What has no vector yet is asked of the store, so that nothing of it can be lost or forgotten: what gathered while
//! the last calls ran is embedded by the next ones, and what an earlier run left, or ingested with another embedder, is
//! made up for. Vectors are written by the same writer as everything else, and only for what is there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::{StreamExt, TryStreamExt};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::embed::{Embedder, Vector};
use crate::limits::{VECTOR_CALLS_MAX, VECTOR_TEXTS_MAX};
use crate::pipeline::IngestError;
use crate::store::{Change, KnowledgeStore, VectorCursor, VectorKey};

/// How far the ingestion is, as the embedding needs to know it.
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
    /// Begins with what is there.
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

    /// There may be more to embed.
    pub fn committed(&self) {
        self.stage.send_modify(|stage| stage.commits += 1);
    }

    /// Vectors that are on disk.
    pub fn embedded(&self) -> u64 {
        self.embedded.load(Ordering::Relaxed)
    }

    /// Waits until all committed texts have vectors, and returns the number of new ones.
    ///
    /// # Errors
    ///
    /// [`IngestError::Embed`] and what the store says. The vectors that were made before are kept.
    pub async fn finish(self) -> Result<u64, IngestError> {
        self.stage.send_modify(|stage| stage.ended = true);
        match self.task.await {
            Ok(done) => done.map(|()| self.embedded.load(Ordering::Relaxed)),
            Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
            Err(ended) => Err(IngestError::Worker(ended.to_string())),
        }
    }

    /// Gives up what is under way.
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
            // Once more from the beginning: a replaced source may have freed numbers that were passed.
            cursor = VectorCursor::default();
        }
        cursor = embed_missing(&*store, &*embedder, cursor, &embedded).await?;
        if ended || stages.changed().await.is_err() {
            return Ok(());
        }
    }
}

/// Gives vectors to everything after `cursor` that has none.
///
/// # Errors
///
/// [`IngestError::Embed`] and what the store says. The vectors that were made before are kept.
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
    let change = Change::Vectors {
        model: model.to_owned(),
        vectors,
    };
    store.apply(vec![change]).await?;
    embedded.fetch_add(count, Ordering::Relaxed);
    Ok(())
}

/// Cuts texts into calls of at most so many texts and bytes.
fn cut(texts: Vec<(VectorKey, String)>, texts_max: usize, bytes_max: usize) -> Vec<Vec<(VectorKey, String)>> {
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
