//! Groups vectors into lists, so that a search compares only some of them.

use gristmill_model::SplitMix64;

use crate::embed::Vector;
use crate::embed::lists::{Centres, push_entry};
use crate::error::MemoryError;
use crate::limits::{VECTORS_LISTED_MAX, VECTORS_READ_AT_ONCE, VECTORS_UNLISTED_SHARE_MAX};
use crate::message::MessageOrdinal;
use crate::store::{Change, ChunkPlace, KnowledgeStore, VectorLists, blocking};

/// The seed of the first centres. It is fixed, so that the same vectors always get the same lists.
const SEED: u64 = 16;

/// Groups the chunks' vectors into lists if there are more than `compared_max` and too many of them are in no list.
/// Returns whether it did.
///
/// # Errors
///
/// Errors of the store.
pub async fn list_vectors(store: &dyn KnowledgeStore, compared_max: u64) -> Result<bool, MemoryError> {
    let all = store.vector_counts().await?.chunks;
    let Some(embedder) = store.embedder().await?.filter(|_| all > compared_max) else {
        return Ok(false);
    };
    let columns = store.columns().await?;
    if let Some(lists) = store.vector_lists().await? {
        let messages = columns.message_end().max(1);
        let unlisted = messages.saturating_sub(lists.end.0);
        if f64::from(unlisted) <= f64::from(messages) * VECTORS_UNLISTED_SHARE_MAX {
            return Ok(false);
        }
    }
    let all = all.min(VECTORS_LISTED_MAX);
    let count = Centres::count_for(all);
    let dimensions = embedder.dimensions as usize;
    let every = (all as usize / Centres::sample_for(count)).max(1);
    let mut sample = Vec::new();
    let mut pages = Pages::new(store, dimensions, all);
    while let Some(page) = pages.next().await? {
        sample.extend(page.into_iter().step_by(every).map(|(_, vector)| vector));
    }
    if sample.is_empty() {
        return Ok(false);
    }
    let centres = blocking(move || Ok(Centres::of(&sample, count, &mut SplitMix64::new(SEED)))).await?;
    let mut entries = vec![Vec::new(); count];
    let mut pages = Pages::new(store, dimensions, all);
    while let Some(page) = pages.next().await? {
        let (messages, vectors): (Vec<MessageOrdinal>, Vec<Vector>) = page.into_iter().unzip();
        let moved = centres.clone();
        let (vectors, lists) = blocking(move || {
            let lists = moved.lists_of(&vectors);
            Ok((vectors, lists))
        })
        .await?;
        assert_eq!(lists.len(), vectors.len(), "each vector has a list");
        assert_eq!(messages.len(), vectors.len(), "each vector has a message");
        for ((message, vector), list) in messages.into_iter().zip(&vectors).zip(lists) {
            push_entry(&mut entries[list as usize], message, vector);
        }
    }
    let lists = VectorLists {
        end: pages.end(),
        centres: centres.to_bytes(),
    };
    let change = Change::ListVectors {
        lists,
        entries,
        rewrites: columns.rewrites(),
    };
    store.apply(vec![change]).await?;
    Ok(true)
}

/// Pages of the chunks' vectors, without the vectors of texts that have no meaning.
struct Pages<'a> {
    store: &'a dyn KnowledgeStore,
    dimensions: usize,
    after: Option<ChunkPlace>,
    left: u64,
}

impl<'a> Pages<'a> {
    fn new(store: &'a dyn KnowledgeStore, dimensions: usize, max: u64) -> Pages<'a> {
        Pages {
            store,
            dimensions,
            after: None,
            left: max,
        }
    }

    async fn next(&mut self) -> Result<Option<Vec<(MessageOrdinal, Vector)>>, MemoryError> {
        let limit = VECTORS_READ_AT_ONCE.min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if limit == 0 {
            return Ok(None);
        }
        let page = self.store.chunk_vectors(self.after, limit).await?;
        assert!(page.len() <= limit, "a page of vectors keeps to its limit");
        let Some((last, _)) = page.last() else {
            return Ok(None);
        };
        assert!(
            self.after.is_none_or(|before| before < *last),
            "pages of vectors ascend"
        );
        self.after = Some(*last);
        self.left -= page.len() as u64;
        let dimensions = self.dimensions;
        let full = page
            .into_iter()
            .filter(|(_, vector)| vector.dimensions() == dimensions);
        Ok(Some(
            full.map(|((message, _), vector)| (message, vector)).collect(),
        ))
    }

    /// The message below which all vectors have been read.
    fn end(&self) -> MessageOrdinal {
        match self.after {
            // The page limit may have cut off further chunks of the last message.
            Some((last, _)) if self.left == 0 => last,
            Some((last, _)) => MessageOrdinal(last.0 + 1),
            None => MessageOrdinal(0),
        }
    }
}
