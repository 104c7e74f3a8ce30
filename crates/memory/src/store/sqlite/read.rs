//! Queries of the SQLite store.

use std::collections::BTreeSet;

use gristmill_model::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::damaged;
use crate::knowledge::{KnowledgeKind, RefOrdinal, SemanticRef};
use crate::limits::{RELATED_TERMS_MAX, STEM_CANDIDATES_MAX, STEMS_COMPARED_MAX};
use crate::message::{Message, MessageOrdinal, Moment, TextRange};
use crate::property::Property;
use crate::store::packed;
use crate::store::posting::decode;
use crate::store::similar::{self, stems};
use crate::store::{
    Columns, KnowledgeStats, Postings, RelatedTerm, Source, SourceFailure, StoredFailure, StoredMessage,
    UnreadMessage,
};
use crate::words::Languages;

/// Reads the columns again, if they have changed.
pub(super) fn columns(connection: &Connection, known: &Columns) -> rusqlite::Result<Option<Columns>> {
    let counter = |name: &str| -> rusqlite::Result<i64> {
        connection
            .prepare_cached("SELECT value FROM counter WHERE name = ?")?
            .query_row([name], |row| row.get(0))
    };
    let (ref_end, message_end) = (counter("next_ref")? as u32, counter("next_message")? as u32);
    let rewrites = counter("rewrites")?;
    let is_grown = rewrites == known.rewrites();
    if is_grown && ref_end == known.ref_end() && message_end == known.message_end() {
        return Ok(None);
    }
    let mut columns = if is_grown {
        known.clone()
    } else {
        Columns::new(rewrites)
    };
    let (first_ref, first_message) = (columns.ref_end(), columns.message_end());
    columns.grow(ref_end, message_end);
    let mut statement = connection.prepare_cached("SELECT id, name, format FROM source WHERE id > ?")?;
    let mut rows = statement.query([columns.last_source()])?;
    while let Some(row) = rows.next()? {
        columns.set_source(row.get(0)?, row.get(1)?, row.get_ref(2)?.as_str()?);
    }
    // The covering index is best for reading everything, and the key for reading the newest rows.
    let sql = if first_ref == 0 {
        "SELECT first_ref, message, kinds FROM knowledge INDEXED BY knowledge_columns WHERE first_ref >= ?"
    } else {
        "SELECT first_ref, message, kinds FROM knowledge NOT INDEXED WHERE first_ref >= ?"
    };
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([first_ref])?;
    while let Some(row) = rows.next()? {
        let kinds = row.get_ref(2)?.as_bytes()?;
        columns.set_refs(RefOrdinal(row.get(0)?), MessageOrdinal(row.get(1)?), kinds);
    }
    let sql = if first_message == 0 {
        "SELECT ordinal, source, at, words, thread_number FROM message INDEXED BY message_columns WHERE ordinal >= ?"
    } else {
        "SELECT ordinal, source, at, words, thread_number FROM message NOT INDEXED WHERE ordinal >= ?"
    };
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([first_message])?;
    while let Some(row) = rows.next()? {
        let at: Option<i64> = row.get(2)?;
        columns.set_message(
            MessageOrdinal(row.get(0)?),
            row.get(1)?,
            at.map(Timestamp),
            row.get(3)?,
            row.get(4)?,
        );
    }
    columns.set_languages(Languages(counter("languages")? as u32));
    Ok(Some(columns))
}

/// Reads the postings of terms.
pub(super) fn postings(connection: &Connection, terms: &[String]) -> rusqlite::Result<Vec<Postings>> {
    let mut statement = connection.prepare_cached(
        "SELECT property, first_ref, refs FROM posting WHERE term = (SELECT id FROM term WHERE text = ?)
         ORDER BY property, first_ref",
    )?;
    let mut found = Vec::with_capacity(terms.len());
    for term in terms {
        let mut postings = Postings::default();
        let mut rows = statement.query([term])?;
        while let Some(row) = rows.next()? {
            let number: u8 = row.get(0)?;
            let property = Property::from_number(number).ok_or_else(|| damaged("a posting", term))?;
            let is_next = postings
                .by_property
                .last()
                .is_none_or(|(last, _)| *last != property);
            if is_next {
                postings.by_property.push((property, Vec::new()));
            }
            if let Some((_, refs)) = postings.by_property.last_mut() {
                let bytes = row.get_ref(2)?.as_blob()?;
                decode(row.get(1)?, bytes, refs).ok_or_else(|| damaged("a posting", term))?;
            }
        }
        found.push(postings);
    }
    Ok(found)
}

/// Reads the aliases of terms.
pub(super) fn aliases(
    connection: &Connection,
    terms: &[String],
) -> rusqlite::Result<Vec<Option<Vec<RelatedTerm>>>> {
    let mut statement =
        connection.prepare_cached("SELECT related, weight FROM alias WHERE term = ? ORDER BY related")?;
    let mut found = Vec::with_capacity(terms.len());
    for term in terms {
        let related: Vec<RelatedTerm> = statement
            .query_map([term], |row| related_term(row, 0))?
            .collect::<rusqlite::Result<_>>()?;
        found.push((!related.is_empty()).then_some(related));
    }
    Ok(found)
}

/// Reads all aliases.
pub(super) fn all_aliases(connection: &Connection) -> rusqlite::Result<Vec<(String, RelatedTerm)>> {
    connection
        .prepare_cached("SELECT term, related, weight FROM alias ORDER BY term, related")?
        .query_map([], |row| Ok((row.get(0)?, related_term(row, 1)?)))?
        .collect()
}

fn related_term(row: &Row<'_>, first: usize) -> rusqlite::Result<RelatedTerm> {
    Ok(RelatedTerm {
        text: row.get(first)?,
        weight: row.get(first + 1)?,
    })
}

/// Finds terms with a similar spelling.
pub(super) fn similar_terms(
    connection: &Connection,
    terms: &[String],
) -> rusqlite::Result<Vec<Vec<RelatedTerm>>> {
    terms.iter().map(|term| similar_to(connection, term)).collect()
}

fn similar_to(connection: &Connection, term: &str) -> rusqlite::Result<Vec<RelatedTerm>> {
    if let Some(prefix) = term.strip_suffix('*').filter(|prefix| !prefix.is_empty()) {
        return beginning_with(connection, prefix);
    }
    let wanted = stems(term);
    let candidates = sharing_a_stem(connection, &wanted)?;
    if candidates.is_empty()
        && let [word] = &wanted[..]
        && let Some((corrected, weight)) = nearest_stem(connection, word)?
    {
        let candidates = sharing_a_stem(connection, std::slice::from_ref(&corrected))?;
        return Ok(similar::misspelt(term, &corrected, weight, candidates));
    }
    Ok(similar::nearest(term, &wanted, candidates))
}

/// Finds terms with this prefix. They count as exact matches.
fn beginning_with(connection: &Connection, prefix: &str) -> rusqlite::Result<Vec<RelatedTerm>> {
    connection
        .prepare_cached("SELECT text, NULL FROM term WHERE text >= ?1 AND text < ?1 || char(1114111) ORDER BY text LIMIT ?2")?
        .query_map(params![prefix, RELATED_TERMS_MAX as u32], |row| related_term(row, 0))?
        .collect()
}

/// Finds terms that have a stem in common with `wanted`.
fn sharing_a_stem(connection: &Connection, wanted: &[String]) -> rusqlite::Result<BTreeSet<String>> {
    let words_max = similar::words_max(wanted);
    let mut statement = connection.prepare_cached(
        "SELECT term.text FROM stem JOIN term ON term.id = stem.term WHERE stem.stem = ? AND stem.words <= ?
         ORDER BY stem.words LIMIT ?",
    )?;
    let mut found = BTreeSet::new();
    for stem in wanted {
        let texts = statement.query_map(params![stem, words_max, STEM_CANDIDATES_MAX], |row| {
            row.get::<_, String>(0)
        })?;
        for text in texts {
            found.insert(text?);
        }
    }
    Ok(found)
}

/// Finds the stem with the spelling nearest to a word, among the stems with the same beginning.
fn nearest_stem(connection: &Connection, word: &str) -> rusqlite::Result<Option<(String, f64)>> {
    let prefix = similar::stem_prefix(word);
    let mut next = connection.prepare_cached("SELECT min(stem) FROM stem WHERE stem > ?")?;
    let mut stems = Vec::new();
    let mut at = prefix.clone();
    while stems.len() < STEMS_COMPARED_MAX {
        let found: Option<String> = next.query_row([&at], |row| row.get(0))?;
        let Some(stem) = found.filter(|stem| stem.starts_with(&prefix)) else {
            break;
        };
        at.clone_from(&stem);
        stems.push(stem);
    }
    Ok(similar::nearest_stem(word, stems))
}

/// Reads messages by their numbers.
pub(super) fn messages(
    connection: &Connection,
    ordinals: &[MessageOrdinal],
) -> rusqlite::Result<Vec<StoredMessage>> {
    let mut statement = connection.prepare_cached(
        "SELECT ordinal, source.name, position, text_chunks, speaker, recipients, subject, tags, at,
                message.zone_minutes, message.id, thread, place
         FROM message JOIN source ON source.id = message.source WHERE ordinal = ?",
    )?;
    let mut found = Vec::with_capacity(ordinals.len());
    for ordinal in ordinals {
        found.extend(statement.query_row([ordinal.0], message).optional()?);
    }
    Ok(found)
}

/// Reads messages of one source.
pub(super) fn source_messages(
    connection: &Connection,
    source: &str,
    from_position: u32,
    limit: u32,
) -> rusqlite::Result<Vec<StoredMessage>> {
    connection
        .prepare_cached(
            "SELECT ordinal, source.name, position, text_chunks, speaker, recipients, subject, tags, at,
                    message.zone_minutes, message.id, thread, place
             FROM message JOIN source ON source.id = message.source
             WHERE source.name = ? AND position >= ? ORDER BY position LIMIT ?",
        )?
        .query_map(params![source, from_position, limit], message)?
        .collect()
}

fn message(row: &Row<'_>) -> rusqlite::Result<StoredMessage> {
    let list = |column: usize| -> rusqlite::Result<Vec<String>> {
        let json: Option<String> = row.get(column)?;
        let parsed = json.map(|json| serde_json::from_str(&json)).transpose();
        Ok(parsed
            .map_err(|error| damaged("a message", error))?
            .unwrap_or_default())
    };
    let at: Option<i64> = row.get(8)?;
    let zone_minutes = row.get(9)?;
    Ok(StoredMessage {
        ordinal: MessageOrdinal(row.get(0)?),
        source: row.get(1)?,
        position: row.get(2)?,
        message: Message {
            text_chunks: list(3)?,
            speaker: row.get(4)?,
            recipients: list(5)?,
            subject: row.get(6)?,
            tags: list(7)?,
            moment: at.map(|at| Moment {
                at: Timestamp(at),
                zone_minutes,
            }),
            id: row.get(10)?,
            thread: row.get(11)?,
            place: row.get(12)?,
        },
    })
}

/// Reads refs by their numbers.
pub(super) fn refs(connection: &Connection, ordinals: &[RefOrdinal]) -> rusqlite::Result<Vec<SemanticRef>> {
    let mut statement = connection.prepare_cached(
        "SELECT first_ref, message, chunk, kinds, items FROM knowledge WHERE first_ref <= ?
         ORDER BY first_ref DESC LIMIT 1",
    )?;
    let mut found = Vec::with_capacity(ordinals.len());
    for &ordinal in ordinals {
        let mut rows = statement.query([ordinal.0])?;
        let Some(row) = rows.next()? else { continue };
        let index = (ordinal.0 - row.get::<_, u32>(0)?) as usize;
        let range = TextRange {
            message: MessageOrdinal(row.get(1)?),
            chunk: row.get(2)?,
        };
        let (kinds, items) = (row.get_ref(3)?.as_str()?, row.get_ref(4)?.as_str()?);
        let knowledge = packed::item(kinds, items, index).map_err(|reason| damaged("knowledge", reason))?;
        found.extend(knowledge.map(|knowledge| SemanticRef {
            ordinal,
            range,
            knowledge,
        }));
    }
    Ok(found)
}

/// Reads all sources, or the one with this name.
pub(super) fn sources(connection: &Connection, name: Option<&str>) -> rusqlite::Result<Vec<Source>> {
    connection
        .prepare_cached(
            "SELECT name, format, digest, settings, complete, messages, zone_minutes, ingested_at, stamp
             FROM source
             WHERE ?1 IS NULL OR name = ?1 ORDER BY name",
        )?
        .query_map([name], |row| {
            Ok(Source {
                name: row.get(0)?,
                format: row.get(1)?,
                digest: row.get(2)?,
                settings: row.get(3)?,
                complete: row.get(4)?,
                messages: row.get(5)?,
                zone_minutes: row.get(6)?,
                ingested_at: Timestamp(row.get(7)?),
                stamp: row.get(8)?,
            })
        })?
        .collect()
}

/// Reads the failed chunks.
pub(super) fn failures(connection: &Connection) -> rusqlite::Result<Vec<StoredFailure>> {
    connection
        .prepare_cached(
            "SELECT failure.message, source.name, message.position, failure.chunk, failure.error, failure.at
             FROM failure JOIN message ON message.ordinal = failure.message
             JOIN source ON source.id = message.source ORDER BY failure.message, failure.chunk",
        )?
        .query_map([], |row| {
            Ok(StoredFailure {
                message: MessageOrdinal(row.get(0)?),
                source: row.get(1)?,
                position: row.get(2)?,
                chunk: row.get(3)?,
                error: row.get(4)?,
                at: Timestamp(row.get(5)?),
            })
        })?
        .collect()
}

/// Reads the sources that could not be read.
pub(super) fn source_failures(connection: &Connection) -> rusqlite::Result<Vec<SourceFailure>> {
    connection
        .prepare_cached("SELECT source, error, place, at FROM source_failure ORDER BY source")?
        .query_map([], |row| {
            Ok(SourceFailure {
                source: row.get(0)?,
                error: row.get(1)?,
                place: row.get(2)?,
                at: Timestamp(row.get(3)?),
            })
        })?
        .collect()
}

/// Reads the records of messages that could not be read.
pub(super) fn unread(connection: &Connection, source: Option<&str>) -> rusqlite::Result<Vec<UnreadMessage>> {
    connection
        .prepare_cached(
            "SELECT source, place, error, at FROM unread WHERE ?1 IS NULL OR source = ?1 ORDER BY source, number",
        )?
        .query_map([source], |row| {
            Ok(UnreadMessage {
                source: row.get(0)?,
                place: row.get(1)?,
                error: row.get(2)?,
                at: Timestamp(row.get(3)?),
            })
        })?
        .collect()
}

/// Counts everything.
pub(super) fn stats(connection: &Connection, columns: &Columns) -> rusqlite::Result<KnowledgeStats> {
    let count = |sql: &str| -> rusqlite::Result<u64> {
        connection.query_row(sql, [], |row| Ok(row.get::<_, i64>(0)? as u64))
    };
    Ok(KnowledgeStats {
        sources: count("SELECT count(*) FROM source")?,
        messages: count("SELECT count(*) FROM message")?,
        entities: columns.count(KnowledgeKind::Entity),
        actions: columns.count(KnowledgeKind::Action),
        topics: columns.count(KnowledgeKind::Topic),
        tags: columns.count(KnowledgeKind::Tag),
        terms: count("SELECT count(*) FROM term")?,
        postings: count("SELECT ifnull(sum(count), 0) FROM posting")?,
        aliases: count("SELECT count(*) FROM alias")?,
        failures: count("SELECT count(*) FROM failure")?,
        bytes: count("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()")?,
    })
}
