//! Deletes a source completely: its messages, their refs, and these refs in every posting.

use std::collections::{HashMap, HashSet};

use deadpool_postgres::Transaction;

use super::connection::{Result, damaged};
use super::index::{SegmentRows, stored_stems};
use super::{Digest, digest, without_nul, words};
use crate::limits::POSTGRES_TERMS_AT_ONCE;
use crate::message::Message;
use crate::property::{Property, terms};
use crate::store::packed;
use crate::store::posting::{RemovedWords, Segment, decode};

/// Rows of knowledge in one page.
const ROWS_AT_ONCE: i64 = 5_000;

/// Deletes a source, and returns the number of its refs.
pub(super) async fn source(transaction: &Transaction<'_>, source: i64) -> Result<u32> {
    let removed = refs_of(transaction, source).await?;
    let by_term: Vec<(&(Digest, Property), &HashSet<u32>)> = removed.by_term.iter().collect();
    for part in by_term.chunks(POSTGRES_TERMS_AT_ONCE) {
        remove_refs(transaction, part).await?;
    }
    let digests: HashSet<&Digest> = removed.by_term.keys().map(|(term, _)| term).collect();
    let digests: Vec<&Digest> = digests.into_iter().collect();
    for part in digests.chunks(POSTGRES_TERMS_AT_ONCE) {
        remove_unused_terms(transaction, part).await?;
    }
    remove_words(transaction, source).await?;
    for statement in [
        "DELETE FROM knowledge USING message WHERE message.ordinal = knowledge.message AND message.source = $1",
        "DELETE FROM failure USING message WHERE message.ordinal = failure.message AND message.source = $1",
        "DELETE FROM chunk_vector USING message WHERE message.ordinal = chunk_vector.message AND message.source = $1",
        "DELETE FROM message WHERE source = $1",
        "DELETE FROM source WHERE id = $1",
    ] {
        transaction.execute(statement, &[&source]).await?;
    }
    // A list is not searched for single messages. The next ingestion makes all lists anew.
    super::vectors::forget_lists(transaction).await?;
    Ok(removed.count)
}

/// Removes the messages of a source from the word index.
async fn remove_words(transaction: &Transaction<'_>, source: i64) -> Result<()> {
    let statement = transaction
        .prepare_cached(
            "SELECT ordinal, body FROM message WHERE source = $1 AND ordinal > $2 ORDER BY ordinal LIMIT $3",
        )
        .await?;
    let mut after = -1_i64;
    loop {
        let rows = transaction
            .query(&statement, &[&source, &after, &ROWS_AT_ONCE])
            .await?;
        if rows.is_empty() {
            return Ok(());
        }
        let before = after;
        let mut removed = RemovedWords::default();
        for row in rows {
            after = row.try_get(0)?;
            let message: Message =
                serde_json::from_str(row.try_get(1)?).map_err(|error| damaged("a message", error))?;
            removed.add(after as u32, &message);
        }
        assert!(before < after, "pages of messages ascend");
        words::remove(transaction, removed.0).await?;
    }
}

/// The refs of a source, by term and role.
struct Removed {
    by_term: HashMap<(Digest, Property), HashSet<u32>>,
    count: u32,
}

async fn refs_of(transaction: &Transaction<'_>, source: i64) -> Result<Removed> {
    let mut removed = Removed {
        by_term: HashMap::new(),
        count: 0,
    };
    let statement = transaction
        .prepare_cached(
            "SELECT first_ref, kinds, items FROM knowledge JOIN message ON message.ordinal = knowledge.message
             WHERE message.source = $1 AND first_ref > $2 ORDER BY first_ref LIMIT $3",
        )
        .await?;
    let mut after = -1_i64;
    loop {
        let rows = transaction
            .query(&statement, &[&source, &after, &ROWS_AT_ONCE])
            .await?;
        if rows.is_empty() {
            return Ok(removed);
        }
        for row in rows {
            after = row.try_get(0)?;
            let items = packed::unpack(row.try_get(1)?, row.try_get(2)?)
                .map_err(|reason| damaged("knowledge", reason))?;
            for (ordinal, item) in (after as u32..).zip(items) {
                removed.count += 1;
                terms(&item, |property, term| {
                    let key = (digest(&without_nul(term)), property);
                    removed.by_term.entry(key).or_default().insert(ordinal);
                });
            }
        }
    }
}

/// Removes refs from the segments of some terms.
async fn remove_refs(
    transaction: &Transaction<'_>,
    removed: &[(&(Digest, Property), &HashSet<u32>)],
) -> Result<()> {
    let digests: Vec<&Digest> = removed.iter().map(|((digest, _), _)| digest).collect();
    let properties: Vec<i16> = removed
        .iter()
        .map(|((_, property), _)| *property as i16)
        .collect();
    let bound = |of: fn(&HashSet<u32>) -> Option<&u32>| -> Vec<i64> {
        removed
            .iter()
            .map(|(_, refs)| of(refs).map_or(-1, |&ordinal| i64::from(ordinal)))
            .collect()
    };
    let lowest = bound(|refs| refs.iter().min());
    let highest = bound(|refs| refs.iter().max());
    let statement = transaction
        .prepare_cached(
            "SELECT removed.place, posting.term, posting.first_ref, posting.refs
             FROM unnest($1::bytea[], $2::smallint[], $3::bigint[], $4::bigint[])
                 WITH ORDINALITY AS removed (digest, property, lowest, highest, place)
             JOIN term ON term.digest = removed.digest
             JOIN posting ON posting.term = term.id AND posting.property = removed.property
                 AND posting.first_ref <= removed.highest AND posting.last_ref >= removed.lowest",
        )
        .await?;
    let rows = transaction
        .query(&statement, &[&digests, &properties, &lowest, &highest])
        .await?;
    let (mut gone_terms, mut gone_properties, mut gone_firsts) = (Vec::new(), Vec::new(), Vec::new());
    let mut left = SegmentRows::default();
    for row in rows {
        let ((_, property), removed) = removed[row.try_get::<_, i64>(0)? as usize - 1];
        let (term, first): (i64, i64) = (row.try_get(1)?, row.try_get(2)?);
        let mut refs = Vec::new();
        decode(first as u32, row.try_get(3)?, &mut refs).ok_or_else(|| damaged("a posting", first))?;
        let before = refs.len();
        refs.retain(|ordinal| !removed.contains(ordinal));
        if refs.len() == before {
            continue;
        }
        assert!(refs.len() < before, "removing refs shortens their segment");
        gone_terms.push(term);
        gone_properties.push(*property as i16);
        gone_firsts.push(first);
        if let Some(segment) = Segment::of(&refs) {
            left.add(term, *property, segment);
        }
    }
    let statement = transaction
        .prepare_cached(
            "DELETE FROM posting USING unnest($1::bigint[], $2::smallint[], $3::bigint[])
                 AS gone (term, property, first_ref)
             WHERE posting.term = gone.term AND posting.property = gone.property
               AND posting.first_ref = gone.first_ref",
        )
        .await?;
    transaction
        .execute(&statement, &[&gone_terms, &gone_properties, &gone_firsts])
        .await?;
    left.insert(transaction).await
}

/// Deletes those of some terms that no ref contains any more.
async fn remove_unused_terms(transaction: &Transaction<'_>, digests: &[&Digest]) -> Result<()> {
    let statement = transaction
        .prepare_cached(
            "DELETE FROM term WHERE digest = ANY ($1)
             AND NOT EXISTS (SELECT 1 FROM posting WHERE posting.term = term.id) RETURNING id, text",
        )
        .await?;
    let rows = transaction.query(&statement, &[&digests]).await?;
    let (mut stems, mut terms, mut unused) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        let id: i64 = row.try_get(0)?;
        for stem in stored_stems(row.try_get(1)?) {
            stems.push(stem);
            terms.push(id);
        }
        unused.push(id);
    }
    transaction
        .execute(
            "DELETE FROM stem USING unnest($1::text[], $2::bigint[]) AS unused (stem, term)
             WHERE stem.stem = unused.stem AND stem.term = unused.term",
            &[&stems, &terms],
        )
        .await?;
    transaction
        .execute("DELETE FROM term_vector WHERE term = ANY ($1)", &[&unused])
        .await?;
    Ok(())
}
