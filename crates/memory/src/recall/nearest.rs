//! Finds the messages whose meaning is nearest to a question.

use crate::embed::lists::{Centres, look_through};
use crate::embed::{Embedder, Vector};
use crate::error::MemoryError;
use crate::limits::NEAREST_MESSAGES_MAX;
use crate::message::MessageOrdinal;
use crate::store::{KnowledgeStore, blocking};

/// Candidates from lists that are compared again exactly, for each wanted message. Bytes give cosines to about a hundredth.
const COMPARED_AGAIN: usize = 2;

/// The largest error of a cosine from bytes.
const COSINE_FAULT: f64 = 0.02;

/// Finds the messages whose meaning is nearest to the question, best first. The nearest one gets the weight of the
/// embedder, and a message that just misses the result would get 0. So models with high cosines count as much as models
/// with low ones.
pub(super) async fn nearest(
    store: &dyn KnowledgeStore,
    question: &str,
    embedder: &dyn Embedder,
    cosine_min: f64,
) -> Result<Vec<(MessageOrdinal, f64)>, MemoryError> {
    if question.trim().is_empty() {
        return Ok(Vec::new());
    }
    let Some(vector) = embedder.embed(vec![question.to_owned()]).await?.pop() else {
        return Ok(Vec::new());
    };
    let found = nearest_messages(store, vector, NEAREST_MESSAGES_MAX, cosine_min).await?;
    let best = found.first().map_or(1.0, |(_, cosine)| *cosine);
    let least = match found.last() {
        Some((_, cosine)) if found.len() == NEAREST_MESSAGES_MAX => *cosine,
        _ => cosine_min,
    };
    let nearness = |cosine: f64| {
        if best > least {
            (cosine - least) / (best - least)
        } else {
            1.0
        }
    };
    let near = found
        .into_iter()
        .map(|(message, cosine)| (message, embedder.weight() * nearness(cosine)));
    Ok(near.collect())
}

/// Finds the messages whose chunks are nearest to a vector, best first, with the cosines of their nearest chunks.
/// Returns at most `max` messages with a cosine of at least `cosine_min`. If the vectors are in lists, only the nearest
/// lists are searched, so a message in another list may be missed.
///
/// # Errors
///
/// Errors of the store.
pub async fn nearest_messages(
    store: &dyn KnowledgeStore,
    vector: Vector,
    max: usize,
    cosine_min: f64,
) -> Result<Vec<(MessageOrdinal, f64)>, MemoryError> {
    let lists = store.vector_lists().await?;
    let listed = lists.and_then(|lists| {
        let centres = Centres::from_bytes(&lists.centres, vector.dimensions())?;
        Some((lists.end, centres))
    });
    let Some((end, centres)) = listed else {
        return store
            .nearest_messages(MessageOrdinal(0), vector, max, cosine_min)
            .await;
    };
    let entries = store.list_entries(centres.probed(&vector)).await?;
    let asked = vector.clone();
    let about = move || {
        let max = max.saturating_mul(COMPARED_AGAIN);
        Ok(look_through(&entries, &asked, max, cosine_min - COSINE_FAULT))
    };
    let about = blocking(about).await?;
    let listed = about.into_iter().map(|(message, _)| message).collect();
    let mut found = store.cosines(listed, vector.clone()).await?;
    found.retain(|(message, cosine)| *cosine >= cosine_min && *message < end);
    let unlisted = store.nearest_messages(end, vector, max, cosine_min).await?;
    assert!(
        unlisted.iter().all(|(message, _)| *message >= end),
        "the store compares unlisted messages only"
    );
    found.extend(unlisted);
    found.sort_by(|left, right| right.1.total_cmp(&left.1).then(left.0.cmp(&right.0)));
    found.truncate(max);
    Ok(found)
}
