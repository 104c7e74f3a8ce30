//! Vectors of terms and chunks: written with everything else, found by an exact scan.

use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::damaged;
use crate::embed::Vector;
use crate::embed::vector::Nearest;
use crate::message::MessageOrdinal;
use crate::store::{RelatedTerm, VectorCursor, VectorKey, VectorModel, VectorTexts};

/// Writes vectors, except for texts that no longer exist.
pub(super) fn write(
    transaction: &Transaction<'_>,
    model: &str,
    vectors: &[(VectorKey, Vector)],
) -> rusqlite::Result<()> {
    let mut term = transaction.prepare_cached(
        "INSERT OR REPLACE INTO term_vector (term, model, vector) SELECT id, ?2, ?3 FROM term WHERE text = ?1",
    )?;
    let mut chunk = transaction.prepare_cached(
        "INSERT OR REPLACE INTO chunk_vector (message, chunk, model, vector)
         SELECT ordinal, ?2, ?3, ?4 FROM message WHERE ordinal = ?1",
    )?;
    for (key, vector) in vectors {
        match key {
            VectorKey::Term(text) => term.execute(params![text, model, vector.to_bytes()])?,
            VectorKey::Chunk {
                message,
                chunk: number,
            } => chunk.execute(params![message.0, number, model, vector.to_bytes()])?,
        };
    }
    Ok(())
}

/// Terms and chunks after `cursor` without a vector.
pub(super) fn texts_without(
    connection: &Connection,
    model: &str,
    mut cursor: VectorCursor,
    limit: usize,
) -> rusqlite::Result<VectorTexts> {
    let mut texts = Vec::new();
    let mut statement = connection.prepare_cached(
        "SELECT id, text FROM term
         WHERE id > ?1 AND NOT EXISTS (SELECT 1 FROM term_vector WHERE model = ?2 AND term = id)
         ORDER BY id LIMIT ?3",
    )?;
    let mut rows = statement.query(params![
        cursor.term,
        model,
        i64::try_from(limit).unwrap_or(i64::MAX)
    ])?;
    while let Some(row) = rows.next()? {
        cursor.term = row.get(0)?;
        texts.push((VectorKey::Term(row.get(1)?), row.get(1)?));
    }
    let mut statement = connection.prepare_cached(
        "SELECT ordinal, text_chunks FROM message WHERE ordinal >= ?1
         AND (SELECT count(*) FROM chunk_vector WHERE model = ?2 AND message = ordinal)
             < json_array_length(text_chunks)
         ORDER BY ordinal",
    )?;
    let mut rows = statement.query(params![cursor.message, model])?;
    while texts.len() < limit
        && let Some(row) = rows.next()?
    {
        let message: u32 = row.get(0)?;
        let chunks: Vec<String> =
            serde_json::from_str(row.get_ref(1)?.as_str()?).map_err(|error| damaged("a message", error))?;
        // All chunks of one message, so that the cursor stands between messages.
        texts.extend((0..).zip(chunks).map(|(chunk, text)| {
            let message = MessageOrdinal(message);
            (VectorKey::Chunk { message, chunk }, text)
        }));
        cursor.message = message + 1;
    }
    Ok(VectorTexts { texts, cursor })
}

/// The terms nearest to each of some vectors, in one scan.
pub(super) fn nearest_terms(
    connection: &Connection,
    model: &str,
    vectors: &[Vector],
    limit: usize,
    cosine_min: f64,
) -> rusqlite::Result<Vec<Vec<RelatedTerm>>> {
    let mut nearest: Vec<Nearest<i64>> = vec![Nearest::new(limit, cosine_min); vectors.len()];
    if vectors.is_empty() {
        return Ok(Vec::new());
    }
    let mut statement = connection.prepare_cached("SELECT term, vector FROM term_vector WHERE model = ?")?;
    let mut rows = statement.query([model])?;
    while let Some(row) = rows.next()? {
        let (term, bytes) = (row.get(0)?, row.get_ref(1)?.as_blob()?);
        for (vector, nearest) in vectors.iter().zip(&mut nearest) {
            if let Some(cosine) = vector.cosine_to_bytes(bytes) {
                nearest.look(term, cosine);
            }
        }
    }
    let mut text = connection.prepare_cached("SELECT text FROM term WHERE id = ?")?;
    let mut found = Vec::with_capacity(nearest.len());
    for nearest in nearest {
        let mut related = Vec::new();
        for (term, cosine) in nearest.into_best() {
            let text: Option<String> = text.query_row([term], |row| row.get(0)).optional()?;
            related.extend(text.map(|text| RelatedTerm {
                text,
                weight: Some(cosine),
            }));
        }
        found.push(related);
    }
    Ok(found)
}

/// The messages with the chunks nearest to a vector.
pub(super) fn nearest_messages(
    connection: &Connection,
    model: &str,
    vector: &Vector,
    limit: usize,
    cosine_min: f64,
) -> rusqlite::Result<Vec<(MessageOrdinal, f64)>> {
    let mut nearest = Nearest::new(limit, cosine_min);
    // In the order of the key: the chunks of one message come together.
    let mut statement = connection
        .prepare_cached("SELECT message, vector FROM chunk_vector WHERE model = ? ORDER BY message, chunk")?;
    let mut rows = statement.query([model])?;
    let mut best: Option<(u32, f64)> = None;
    while let Some(row) = rows.next()? {
        let message: u32 = row.get(0)?;
        let Some(cosine) = vector.cosine_to_bytes(row.get_ref(1)?.as_blob()?) else {
            continue;
        };
        match &mut best {
            Some((last, known)) if *last == message => *known = known.max(cosine),
            other => {
                if let Some((last, known)) = other.replace((message, cosine)) {
                    nearest.look(MessageOrdinal(last), known);
                }
            }
        }
    }
    if let Some((last, known)) = best {
        nearest.look(MessageOrdinal(last), known);
    }
    Ok(nearest.into_best())
}

/// The models that there are vectors of.
pub(super) fn models(connection: &Connection) -> rusqlite::Result<Vec<VectorModel>> {
    connection
        .prepare_cached(
            "SELECT model, sum(terms), sum(chunks) FROM (
                 SELECT model, count(*) AS terms, 0 AS chunks FROM term_vector GROUP BY model
                 UNION ALL SELECT model, 0, count(*) FROM chunk_vector GROUP BY model
             ) GROUP BY model ORDER BY model",
        )?
        .query_map([], |row| {
            Ok(VectorModel {
                model: row.get(0)?,
                terms: row.get::<_, i64>(1)? as u64,
                chunks: row.get::<_, i64>(2)? as u64,
            })
        })?
        .collect()
}
