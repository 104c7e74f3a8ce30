//! Queries of the PostgreSQL store.

use std::collections::{BTreeSet, HashMap};

use deadpool_postgres::Object;
use futures::{StreamExt, TryStreamExt};
use gristmill_model::Timestamp;
use tokio_postgres::{IsolationLevel, Row};

use super::connection::{Result, damaged};
use super::{Digest, digest, without_nul};
use crate::knowledge::{KnowledgeKind, RefOrdinal, SemanticRef};
use crate::limits::{RELATED_TERMS_MAX, STEM_CANDIDATES_MAX, STEM_CHARACTERS_MAX, STEMS_COMPARED_MAX};
use crate::message::{MessageOrdinal, TextRange};
use crate::property::Property;
use crate::store::posting::decode;
use crate::store::{
    Columns, KnowledgeStats, Postings, RelatedTerm, Source, SourceFailure, StoredFailure, StoredMessage,
    UnreadMessage, packed, similar,
};
use crate::words::Languages;

const COUNTER: &str = "SELECT next_ref, next_message, rewrites FROM counter";

/// Reads the columns again, if they have changed.
pub(super) async fn columns(connection: &mut Object, known: &Columns) -> Result<Option<Columns>> {
    let counter = |row: Row| -> Result<(u32, u32, i64)> {
        Ok((
            row.try_get::<_, i64>(0)? as u32,
            row.try_get::<_, i64>(1)? as u32,
            row.try_get(2)?,
        ))
    };
    let statement = connection.prepare_cached(COUNTER).await?;
    let now = counter(connection.query_one(&statement, &[]).await?)?;
    if now == (known.ref_end(), known.message_end(), known.rewrites()) {
        return Ok(None);
    }
    // One snapshot gives all rows of the same moment.
    let transaction = connection
        .build_transaction()
        .isolation_level(IsolationLevel::RepeatableRead)
        .read_only(true)
        .start()
        .await?;
    let (ref_end, message_end, rewrites) = counter(transaction.query_one(&statement, &[]).await?)?;
    let mut columns = if rewrites == known.rewrites() {
        known.clone()
    } else {
        Columns::new(rewrites)
    };
    let (first_ref, first_message) = (columns.ref_end(), columns.message_end());
    columns.grow(ref_end, message_end);
    let sql = "SELECT id, name, format FROM source WHERE id > $1";
    let mut rows = transaction.query_raw(sql, [columns.last_source()]).await?.boxed();
    while let Some(row) = rows.try_next().await? {
        columns.set_source(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    }
    let sql = "SELECT first_ref, message, kinds FROM knowledge WHERE first_ref >= $1";
    let mut rows = transaction.query_raw(sql, [i64::from(first_ref)]).await?.boxed();
    while let Some(row) = rows.try_next().await? {
        let (first, message): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        let kinds: &str = row.try_get(2)?;
        columns.set_refs(
            RefOrdinal(first as u32),
            MessageOrdinal(message as u32),
            kinds.as_bytes(),
        );
    }
    let sql = "SELECT ordinal, source, at, words, thread_number FROM message WHERE ordinal >= $1";
    let mut rows = transaction
        .query_raw(sql, [i64::from(first_message)])
        .await?
        .boxed();
    while let Some(row) = rows.try_next().await? {
        let ordinal = MessageOrdinal(row.try_get::<_, i64>(0)? as u32);
        let at: Option<i64> = row.try_get(2)?;
        let words = row.try_get::<_, i32>(3)? as u32;
        let thread = row.try_get::<_, i64>(4)? as u32;
        columns.set_message(ordinal, row.try_get(1)?, at.map(Timestamp), words, thread);
    }
    let row = transaction
        .query_one("SELECT languages FROM counter", &[])
        .await?;
    columns.set_languages(Languages(row.try_get::<_, i64>(0)? as u32));
    Ok(Some(columns))
}

/// Reads the postings of terms.
pub(super) async fn postings(connection: &Object, terms: &[String]) -> Result<Vec<Postings>> {
    let digests = digests(terms);
    let statement = connection
        .prepare_cached(
            "SELECT term.digest, property, first_ref, refs FROM term JOIN posting ON posting.term = term.id
             WHERE term.digest = ANY ($1) ORDER BY term.id, property, first_ref",
        )
        .await?;
    let mut found: HashMap<Digest, Postings> = HashMap::new();
    for row in connection.query(&statement, &[&digests]).await? {
        let postings = match found.get_mut(row.try_get::<_, &[u8]>(0)?) {
            Some(postings) => postings,
            None => found.entry(row.try_get(0)?).or_default(),
        };
        let number: i16 = row.try_get(1)?;
        let property =
            Property::from_number(number as u8).ok_or_else(|| damaged("a posting", "an unknown role"))?;
        let last = postings.by_property.last();
        if last.is_none_or(|(last, _)| *last != property) {
            postings.by_property.push((property, Vec::new()));
        }
        if let Some((_, refs)) = postings.by_property.last_mut() {
            let first = row.try_get::<_, i64>(2)? as u32;
            decode(first, row.try_get(3)?, refs).ok_or_else(|| damaged("a posting", first))?;
        }
    }
    let in_order = digests.iter().map(|digest| found.get(digest).cloned());
    Ok(in_order.map(Option::unwrap_or_default).collect())
}

fn digests(texts: &[String]) -> Vec<Digest> {
    texts
        .iter()
        .map(|text| digest(&without_nul(text.clone())))
        .collect()
}

/// Reads the aliases of terms.
pub(super) async fn aliases(connection: &Object, terms: &[String]) -> Result<Vec<Option<Vec<RelatedTerm>>>> {
    let digests = digests(terms);
    let statement = connection
        .prepare_cached(
            "SELECT term_digest, related, weight FROM alias WHERE term_digest = ANY ($1) ORDER BY related",
        )
        .await?;
    let mut found: HashMap<Digest, Vec<RelatedTerm>> = HashMap::new();
    for row in connection.query(&statement, &[&digests]).await? {
        found
            .entry(row.try_get(0)?)
            .or_default()
            .push(related_term(&row, 1)?);
    }
    Ok(digests.iter().map(|digest| found.get(digest).cloned()).collect())
}

/// Reads all aliases.
pub(super) async fn all_aliases(connection: &Object) -> Result<Vec<(String, RelatedTerm)>> {
    let sql = "SELECT term, related, weight FROM alias ORDER BY term, related";
    let rows = connection.query(sql, &[]).await?;
    rows.iter()
        .map(|row| Ok((row.try_get(0)?, related_term(row, 1)?)))
        .collect()
}

fn related_term(row: &Row, first: usize) -> Result<RelatedTerm> {
    Ok(RelatedTerm {
        text: row.try_get(first)?,
        weight: row.try_get(first + 1)?,
    })
}

/// Finds terms with a similar spelling.
pub(super) async fn similar_terms(connection: &Object, terms: &[String]) -> Result<Vec<Vec<RelatedTerm>>> {
    let wanted: Vec<Vec<String>> = terms.iter().map(|term| similar::stems(term)).collect();
    let candidates = sharing_a_stem(connection, &wanted).await?;
    let mut found = Vec::with_capacity(terms.len());
    for ((term, wanted), candidates) in terms.iter().zip(&wanted).zip(candidates) {
        let prefix = term.strip_suffix('*').filter(|prefix| !prefix.is_empty());
        found.push(match (prefix, &wanted[..]) {
            (Some(prefix), _) => beginning_with(connection, prefix).await?,
            (None, [word]) if candidates.is_empty() => misspelt(connection, term, word).await?,
            _ => similar::nearest(term, wanted, candidates),
        });
    }
    Ok(found)
}

/// Finds the terms of the word that a misspelt word means.
async fn misspelt(connection: &Object, term: &str, word: &str) -> Result<Vec<RelatedTerm>> {
    let prefix = without_nul(similar::stem_prefix(word));
    let statement = connection
        .prepare_cached(
            "SELECT DISTINCT stem FROM stem WHERE stem > $1 AND stem < $1 || chr(1114111) ORDER BY stem LIMIT $2",
        )
        .await?;
    let rows = connection
        .query(&statement, &[&prefix, &(STEMS_COMPARED_MAX as i64)])
        .await?;
    let stems = rows
        .iter()
        .map(|row| Ok(row.try_get(0)?))
        .collect::<Result<_>>()?;
    let Some((corrected, nearness)) = similar::nearest_stem(word, stems) else {
        return Ok(Vec::new());
    };
    let candidates = sharing_a_stem(connection, &[vec![corrected.clone()]]).await?;
    let candidates = candidates.into_iter().next().unwrap_or_default();
    Ok(similar::misspelt(term, &corrected, nearness, candidates))
}

/// Finds terms with this prefix. They count as exact matches.
async fn beginning_with(connection: &Object, prefix: &str) -> Result<Vec<RelatedTerm>> {
    let statement = connection
        .prepare_cached(
            "SELECT text, NULL::float8 FROM term
             WHERE left(text, 200) COLLATE \"C\" >= left($1, 200)
               AND left(text, 200) COLLATE \"C\" < left($1, 200) || chr(1114111)
               AND starts_with(text, $1) ORDER BY text LIMIT $2",
        )
        .await?;
    let prefix = without_nul(prefix.to_owned());
    let rows = connection
        .query(&statement, &[&prefix, &(RELATED_TERMS_MAX as i64)])
        .await?;
    rows.iter().map(|row| related_term(row, 0)).collect()
}

/// Finds for each list of stems the terms that have one of them.
async fn sharing_a_stem(connection: &Object, wanted: &[Vec<String>]) -> Result<Vec<BTreeSet<String>>> {
    let (mut stems, mut words_max, mut places) = (Vec::new(), Vec::new(), Vec::new());
    for (place, wanted) in (0_i32..).zip(wanted) {
        for stem in wanted {
            let stored: String = stem.chars().take(STEM_CHARACTERS_MAX).collect();
            stems.push(stored);
            words_max.push(similar::words_max(wanted) as i32);
            places.push(place);
        }
    }
    let statement = connection
        .prepare_cached(
            "SELECT wanted.place, term.text
             FROM unnest($1::text[], $2::int[], $3::int[]) AS wanted (stem, words_max, place)
             CROSS JOIN LATERAL (
                 SELECT stem.term FROM stem WHERE stem.stem = wanted.stem AND stem.words <= wanted.words_max
                 ORDER BY stem.words, stem.term LIMIT $4
             ) AS found
             JOIN term ON term.id = found.term",
        )
        .await?;
    let rows = connection
        .query(
            &statement,
            &[&stems, &words_max, &places, &i64::from(STEM_CANDIDATES_MAX)],
        )
        .await?;
    let mut found = vec![BTreeSet::new(); wanted.len()];
    for row in rows {
        found[row.try_get::<_, i32>(0)? as usize].insert(row.try_get(1)?);
    }
    Ok(found)
}

/// Reads messages by their numbers.
pub(super) async fn messages(connection: &Object, ordinals: &[MessageOrdinal]) -> Result<Vec<StoredMessage>> {
    let wanted: Vec<i64> = ordinals.iter().map(|ordinal| i64::from(ordinal.0)).collect();
    let statement = connection
        .prepare_cached(
            "SELECT ordinal, source.name, position, body
             FROM unnest($1::bigint[]) WITH ORDINALITY AS wanted (number, place)
             JOIN message ON message.ordinal = wanted.number JOIN source ON source.id = message.source
             ORDER BY wanted.place",
        )
        .await?;
    let rows = connection.query(&statement, &[&wanted]).await?;
    rows.iter().map(message).collect()
}

/// Reads messages of one source.
pub(super) async fn source_messages(
    connection: &Object,
    source: &str,
    from_position: u32,
    limit: u32,
) -> Result<Vec<StoredMessage>> {
    let statement = connection
        .prepare_cached(
            "SELECT ordinal, source.name, position, body
             FROM message JOIN source ON source.id = message.source
             WHERE source.name_digest = $1 AND position >= $2 ORDER BY position LIMIT $3",
        )
        .await?;
    let key = digest(&without_nul(source.to_owned()));
    let rows = connection
        .query(&statement, &[&key, &i64::from(from_position), &i64::from(limit)])
        .await?;
    rows.iter().map(message).collect()
}

fn message(row: &Row) -> Result<StoredMessage> {
    Ok(StoredMessage {
        ordinal: MessageOrdinal(row.try_get::<_, i64>(0)? as u32),
        source: row.try_get(1)?,
        position: row.try_get::<_, i64>(2)? as u32,
        message: serde_json::from_str(row.try_get(3)?).map_err(|error| damaged("a message", error))?,
    })
}

/// Reads refs by their numbers.
pub(super) async fn refs(connection: &Object, ordinals: &[RefOrdinal]) -> Result<Vec<SemanticRef>> {
    let wanted: Vec<i64> = ordinals.iter().map(|ordinal| i64::from(ordinal.0)).collect();
    let statement = connection
        .prepare_cached(
            "SELECT wanted.number, found.first_ref, found.message, found.chunk, found.kinds, found.items
             FROM unnest($1::bigint[]) WITH ORDINALITY AS wanted (number, place)
             CROSS JOIN LATERAL (
                 SELECT * FROM knowledge WHERE first_ref <= wanted.number ORDER BY first_ref DESC LIMIT 1
             ) AS found ORDER BY wanted.place",
        )
        .await?;
    let mut refs = Vec::with_capacity(ordinals.len());
    for row in connection.query(&statement, &[&wanted]).await? {
        let (number, first): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        let item = packed::item(row.try_get(4)?, row.try_get(5)?, (number - first) as usize)
            .map_err(|reason| damaged("knowledge", reason))?;
        let range = TextRange {
            message: MessageOrdinal(row.try_get::<_, i64>(2)? as u32),
            chunk: row.try_get::<_, i64>(3)? as u32,
        };
        refs.extend(item.map(|knowledge| SemanticRef {
            ordinal: RefOrdinal(number as u32),
            range,
            knowledge,
        }));
    }
    Ok(refs)
}

/// Reads all sources, or the one with this name.
pub(super) async fn sources(connection: &Object, name: Option<&str>) -> Result<Vec<Source>> {
    let statement = connection
        .prepare_cached(
            "SELECT name, format, digest, settings, complete, messages, zone_minutes, ingested_at, stamp
             FROM source
             WHERE $1::bytea IS NULL OR name_digest = $1 ORDER BY name",
        )
        .await?;
    let key = name.map(|name| digest(&without_nul(name.to_owned())));
    let rows = connection.query(&statement, &[&key]).await?;
    rows.iter()
        .map(|row| {
            Ok(Source {
                name: row.try_get(0)?,
                format: row.try_get(1)?,
                digest: row.try_get(2)?,
                settings: row.try_get(3)?,
                complete: row.try_get(4)?,
                messages: row.try_get::<_, i64>(5)? as u32,
                zone_minutes: row.try_get(6)?,
                ingested_at: Timestamp(row.try_get(7)?),
                stamp: row.try_get(8)?,
            })
        })
        .collect()
}

/// Reads the failed chunks.
pub(super) async fn failures(connection: &Object) -> Result<Vec<StoredFailure>> {
    let rows = connection
        .query(
            "SELECT failure.message, source.name, message.position, failure.chunk, failure.error, failure.at
             FROM failure JOIN message ON message.ordinal = failure.message
             JOIN source ON source.id = message.source ORDER BY failure.message, failure.chunk",
            &[],
        )
        .await?;
    rows.iter()
        .map(|row| {
            Ok(StoredFailure {
                message: MessageOrdinal(row.try_get::<_, i64>(0)? as u32),
                source: row.try_get(1)?,
                position: row.try_get::<_, i64>(2)? as u32,
                chunk: row.try_get::<_, i64>(3)? as u32,
                error: row.try_get(4)?,
                at: Timestamp(row.try_get(5)?),
            })
        })
        .collect()
}

/// Reads the sources that could not be read.
pub(super) async fn source_failures(connection: &Object) -> Result<Vec<SourceFailure>> {
    let sql = "SELECT source, error, place, at FROM source_failure ORDER BY source";
    let rows = connection.query(sql, &[]).await?;
    rows.iter()
        .map(|row| {
            Ok(SourceFailure {
                source: row.try_get(0)?,
                error: row.try_get(1)?,
                place: row.try_get(2)?,
                at: Timestamp(row.try_get(3)?),
            })
        })
        .collect()
}

/// Reads the records of messages that could not be read.
pub(super) async fn unread(connection: &Object, source: Option<&str>) -> Result<Vec<UnreadMessage>> {
    let sql = "SELECT source, place, error, at FROM unread WHERE $1::bytea IS NULL OR source_digest = $1
               ORDER BY source, number";
    let key = source.map(|source| digest(&without_nul(source.to_owned())));
    let rows = connection.query(sql, &[&key]).await?;
    rows.iter()
        .map(|row| {
            Ok(UnreadMessage {
                source: row.try_get(0)?,
                place: row.try_get(1)?,
                error: row.try_get(2)?,
                at: Timestamp(row.try_get(3)?),
            })
        })
        .collect()
}

/// Counts everything.
pub(super) async fn stats(connection: &Object, columns: &Columns) -> Result<KnowledgeStats> {
    let row = connection
        .query_one(
            "SELECT (SELECT count(*) FROM source), (SELECT count(*) FROM message), (SELECT count(*) FROM term),
                    (SELECT coalesce(sum(count), 0)::bigint FROM posting), (SELECT count(*) FROM alias),
                    (SELECT count(*) FROM failure),
                    (SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class
                     WHERE relnamespace = 'gristmill_memory'::regnamespace AND relkind = 'r')",
            &[],
        )
        .await?;
    let count = |at: usize| -> Result<u64> { Ok(row.try_get::<_, i64>(at)? as u64) };
    Ok(KnowledgeStats {
        sources: count(0)?,
        messages: count(1)?,
        entities: columns.count(KnowledgeKind::Entity),
        actions: columns.count(KnowledgeKind::Action),
        topics: columns.count(KnowledgeKind::Topic),
        tags: columns.count(KnowledgeKind::Tag),
        terms: count(2)?,
        postings: count(3)?,
        aliases: count(4)?,
        failures: count(5)?,
        bytes: count(6)?,
    })
}
