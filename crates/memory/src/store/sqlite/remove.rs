//! Deletes a source completely: its messages, their refs, and these refs in every posting.

use std::collections::{HashMap, HashSet};

use rusqlite::{Transaction, params};

use super::damaged;
use crate::message::Message;
use crate::property::{Property, terms};
use crate::store::packed;
use crate::store::posting::{RemovedWords, Segment, decode};

/// Deletes a source, and returns the number of its refs.
pub(super) fn source(transaction: &Transaction<'_>, source: i64) -> rusqlite::Result<u32> {
    let removed = refs_of(transaction, source)?;
    for ((term, property), refs) in &removed.by_term {
        remove_refs(transaction, term, *property, refs)?;
    }
    remove_unused_terms(transaction, removed.by_term.keys().map(|(term, _)| term.as_str()))?;
    super::words::remove(transaction, &words_of(transaction, source)?.0)?;
    for statement in [
        "DELETE FROM knowledge WHERE message IN (SELECT ordinal FROM message WHERE source = ?)",
        "DELETE FROM failure WHERE message IN (SELECT ordinal FROM message WHERE source = ?)",
        "DELETE FROM chunk_vector WHERE message IN (SELECT ordinal FROM message WHERE source = ?)",
        "DELETE FROM message WHERE source = ?",
        "DELETE FROM source WHERE id = ?",
    ] {
        transaction.prepare_cached(statement)?.execute([source])?;
    }
    // A list is not searched for single messages. The next ingestion makes all lists anew.
    super::vectors::forget_lists(transaction)?;
    Ok(removed.count)
}

/// The refs of a source, by term and role.
struct Removed {
    by_term: HashMap<(String, Property), HashSet<u32>>,
    count: u32,
}

fn refs_of(transaction: &Transaction<'_>, source: i64) -> rusqlite::Result<Removed> {
    let mut removed = Removed {
        by_term: HashMap::new(),
        count: 0,
    };
    let mut statement = transaction.prepare_cached(
        "SELECT first_ref, kinds, items FROM knowledge JOIN message ON message.ordinal = knowledge.message
         WHERE message.source = ?",
    )?;
    let mut rows = statement.query([source])?;
    while let Some(row) = rows.next()? {
        let first: u32 = row.get(0)?;
        let (kinds, items): (String, String) = (row.get(1)?, row.get(2)?);
        for (ordinal, item) in
            (first..).zip(packed::unpack(&kinds, &items).map_err(|reason| damaged("knowledge", reason))?)
        {
            removed.count += 1;
            terms(&item, |property, term| {
                removed
                    .by_term
                    .entry((term, property))
                    .or_default()
                    .insert(ordinal);
            });
        }
    }
    Ok(removed)
}

/// Gathers the words of a source's messages.
fn words_of(transaction: &Transaction<'_>, source: i64) -> rusqlite::Result<RemovedWords> {
    let mut removed = RemovedWords::default();
    let mut statement = transaction
        .prepare_cached("SELECT ordinal, text_chunks, speaker, subject FROM message WHERE source = ?")?;
    let mut rows = statement.query([source])?;
    while let Some(row) = rows.next()? {
        let chunks = row.get_ref(1)?.as_str()?;
        let message = Message {
            text_chunks: serde_json::from_str(chunks).map_err(|error| damaged("a message", error))?,
            speaker: row.get(2)?,
            subject: row.get(3)?,
            ..Message::default()
        };
        removed.add(row.get(0)?, &message);
    }
    Ok(removed)
}

/// Removes refs from the segments of one term in one role.
fn remove_refs(
    transaction: &Transaction<'_>,
    term: &str,
    property: Property,
    removed: &HashSet<u32>,
) -> rusqlite::Result<()> {
    let (Some(&lowest), Some(&highest)) = (removed.iter().min(), removed.iter().max()) else {
        return Ok(());
    };
    let mut select = transaction.prepare_cached(
        "SELECT term.id, first_ref, refs FROM posting JOIN term ON term.id = posting.term
         WHERE term.text = ? AND property = ? AND first_ref <= ? AND last_ref >= ?",
    )?;
    let rows = select.query_map(params![term, property as u8, highest, lowest], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?))
    })?;
    let segments: Vec<(i64, u32, Vec<u8>)> = rows.collect::<rusqlite::Result<_>>()?;
    for (id, first, bytes) in segments {
        let mut refs = Vec::new();
        decode(first, &bytes, &mut refs).ok_or_else(|| damaged("a posting", term))?;
        let before = refs.len();
        refs.retain(|ordinal| !removed.contains(ordinal));
        if refs.len() == before {
            continue;
        }
        assert!(refs.len() < before, "removing refs shortens their segment");
        transaction
            .prepare_cached("DELETE FROM posting WHERE term = ? AND property = ? AND first_ref = ?")?
            .execute(params![id, property as u8, first])?;
        if let Some(left) = Segment::of(&refs) {
            transaction
                .prepare_cached(
                    "INSERT INTO posting (term, property, first_ref, last_ref, count, refs) VALUES (?, ?, ?, ?, ?, ?)",
                )?
                .execute(params![id, property as u8, left.first, left.last, left.count, left.bytes])?;
        }
    }
    Ok(())
}

/// Deletes those of some terms that no ref contains any more.
fn remove_unused_terms<'a>(
    transaction: &Transaction<'_>,
    terms: impl Iterator<Item = &'a str>,
) -> rusqlite::Result<()> {
    let mut unused = transaction.prepare_cached(
        "SELECT id FROM term WHERE text = ? AND NOT EXISTS (SELECT 1 FROM posting WHERE posting.term = term.id)",
    )?;
    for term in terms.collect::<HashSet<_>>() {
        let mut rows = unused.query([term])?;
        let Some(row) = rows.next()? else { continue };
        let id: i64 = row.get(0)?;
        for stem in crate::store::similar::stems(term) {
            transaction
                .prepare_cached("DELETE FROM stem WHERE stem = ? AND term = ?")?
                .execute(params![stem, id])?;
        }
        for statement in [
            "DELETE FROM term_vector WHERE term = ?",
            "DELETE FROM term WHERE id = ?",
        ] {
            transaction.prepare_cached(statement)?.execute([id])?;
        }
    }
    Ok(())
}
