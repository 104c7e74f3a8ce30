//! The messages that mean about what a question does.

use crate::embed::lists::{Centres, look_through};
use crate::embed::{Embedder, Vector};
use crate::error::MemoryError;
use crate::limits::NEAREST_MESSAGES_MAX;
use crate::message::MessageOrdinal;
use crate::store::{KnowledgeStore, blocking};

/// Messages from lists that are compared again, for each that is wanted: bytes tell cosines to about a hundredth.
const COMPARED_AGAIN: usize = 2;

/// How far a cosine from bytes may be from the exact one.
const COSINE_FAULT: f64 = 0.02;

/// The messages that mean about what the question does, best first, with their nearness: the weight of the embedder for the
/// nearest, 0 for one that is left out. So models whose cosines are all high count as those whose cosines are low.
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
    let nearness = |cosine: f64| match best > least {
        true => (cosine - least) / (best - least),
        false => 1.0,
    };
    let near = found
        .into_iter()
        .map(|(message, cosine)| (message, embedder.weight() * nearness(cosine)));
    Ok(near.collect())
}

/// The messages with the chunks nearest to a vector, best first, with the cosines of their nearest chunks: at most `max`, with
/// a cosine of at least `cosine_min`. Where vectors stand in lists, the nearest lists are looked through, and a message of
/// another list may be missed.
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
    found.extend(store.nearest_messages(end, vector, max, cosine_min).await?);
    found.sort_by(|left, right| right.1.total_cmp(&left.1).then(left.0.cmp(&right.0)));
    found.truncate(max);
    Ok(found)
}
