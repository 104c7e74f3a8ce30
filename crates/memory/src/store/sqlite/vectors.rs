//! Vectors of terms and chunks. They are written with all other rows, and found by an exact scan, or in lists if there
//! are many.

use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::damaged;
use crate::embed::Vector;
use crate::embed::vector::Nearest;
use crate::message::MessageOrdinal;
use crate::store::{
    ChunkPlace, RelatedTerm, StoredEmbedder, VectorCounts, VectorCursor, VectorKey, VectorLists, VectorTexts,
};

/// Reads the embedder that made the vectors.
pub(super) fn embedder(connection: &Connection) -> rusqlite::Result<Option<StoredEmbedder>> {
    connection
        .prepare_cached("SELECT model, dimensions FROM embedder")?
        .query_row([], |row| {
            Ok(StoredEmbedder {
                model: row.get(0)?,
                dimensions: row.get(1)?,
            })
        })
        .optional()
}

/// Records the embedder of the vectors.
pub(super) fn write_embedder(
    transaction: &Transaction<'_>,
    model: &str,
    dimensions: u32,
) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("INSERT INTO embedder (one, model, dimensions) VALUES (1, ?, ?)")?
        .execute(params![model, dimensions])
        .map(|_| ())
}

/// Deletes all vectors.
pub(super) fn forget(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    forget_lists(transaction)?;
    transaction.execute_batch("DELETE FROM term_vector; DELETE FROM chunk_vector; DELETE FROM embedder")
}

/// Deletes all lists of vectors.
pub(super) fn forget_lists(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    transaction.execute_batch("DELETE FROM vector_centres; DELETE FROM vector_list")
}

/// Replaces the lists of vectors.
pub(super) fn write_lists(
    transaction: &Transaction<'_>,
    lists: &VectorLists,
    entries: &[Vec<u8>],
) -> rusqlite::Result<()> {
    forget_lists(transaction)?;
    transaction.execute(
        "INSERT INTO vector_centres (one, next_message, centres) VALUES (1, ?, ?)",
        params![lists.end.0, lists.centres],
    )?;
    let mut list = transaction.prepare_cached("INSERT INTO vector_list (list, entries) VALUES (?, ?)")?;
    for (number, entries) in (0_u32..).zip(entries) {
        list.execute(params![number, entries])?;
    }
    Ok(())
}

/// Reads the centres of the lists of vectors, and the end of the listed messages.
pub(super) fn lists(connection: &Connection) -> rusqlite::Result<Option<VectorLists>> {
    connection
        .prepare_cached("SELECT next_message, centres FROM vector_centres")?
        .query_row([], |row| {
            Ok(VectorLists {
                end: MessageOrdinal(row.get(0)?),
                centres: row.get(1)?,
            })
        })
        .optional()
}

/// Reads the entries of some lists.
pub(super) fn list_entries(connection: &Connection, lists: &[u32]) -> rusqlite::Result<Vec<Vec<u8>>> {
    let mut entries = connection.prepare_cached("SELECT entries FROM vector_list WHERE list = ?")?;
    let found = lists
        .iter()
        .map(|list| entries.query_row([list], |row| row.get(0)).optional());
    found.filter_map(Result::transpose).collect()
}

/// Reads the vectors of chunks after a place.
pub(super) fn chunk_vectors(
    connection: &Connection,
    after: Option<ChunkPlace>,
    limit: usize,
) -> rusqlite::Result<Vec<(ChunkPlace, Vector)>> {
    let (message, chunk) = after.map_or((-1, -1), |(message, chunk)| {
        (i64::from(message.0), i64::from(chunk))
    });
    connection
        .prepare_cached(
            "SELECT message, chunk, vector FROM chunk_vector WHERE (message, chunk) > (?, ?)
             ORDER BY message, chunk LIMIT ?",
        )?
        .query_map(
            params![message, chunk, i64::try_from(limit).unwrap_or(i64::MAX)],
            |row| {
                let place = (MessageOrdinal(row.get(0)?), row.get(1)?);
                Ok((place, Vector::from_bytes(row.get_ref(2)?.as_blob()?)))
            },
        )?
        .collect()
}

/// Computes the cosines of messages to a vector.
pub(super) fn cosines(
    connection: &Connection,
    messages: &[MessageOrdinal],
    vector: &Vector,
) -> rusqlite::Result<Vec<(MessageOrdinal, f64)>> {
    let mut statement = connection.prepare_cached("SELECT vector FROM chunk_vector WHERE message = ?")?;
    let mut cosines = Vec::with_capacity(messages.len());
    for &message in messages {
        let mut rows = statement.query([message.0])?;
        let mut best: Option<f64> = None;
        while let Some(row) = rows.next()? {
            let cosine = vector.cosine_to_bytes(row.get_ref(0)?.as_blob()?);
            best = best.into_iter().chain(cosine).reduce(f64::max);
        }
        cosines.extend(best.map(|cosine| (message, cosine)));
    }
    Ok(cosines)
}

/// Writes vectors, except for texts that no longer exist.
pub(super) fn write(transaction: &Transaction<'_>, vectors: &[(VectorKey, Vector)]) -> rusqlite::Result<()> {
    let mut term = transaction.prepare_cached(
        "INSERT OR REPLACE INTO term_vector (term, vector) SELECT id, ?2 FROM term WHERE text = ?1",
    )?;
    let mut chunk = transaction.prepare_cached(
        "INSERT OR REPLACE INTO chunk_vector (message, chunk, vector)
         SELECT ordinal, ?2, ?3 FROM message WHERE ordinal = ?1",
    )?;
    for (key, vector) in vectors {
        match key {
            VectorKey::Term(text) => term.execute(params![text, vector.to_bytes()])?,
            VectorKey::Chunk {
                message,
                chunk: number,
            } => chunk.execute(params![message.0, number, vector.to_bytes()])?,
        };
    }
    Ok(())
}

/// Lists terms and chunks after `cursor` without a vector.
pub(super) fn texts_without(
    connection: &Connection,
    mut cursor: VectorCursor,
    limit: usize,
) -> rusqlite::Result<VectorTexts> {
    let begin = cursor;
    let mut texts = Vec::new();
    let mut statement = connection.prepare_cached(
        "SELECT id, text FROM term
         WHERE id > ?1 AND NOT EXISTS (SELECT 1 FROM term_vector WHERE term = id)
         ORDER BY id LIMIT ?2",
    )?;
    let mut rows = statement.query(params![cursor.term, i64::try_from(limit).unwrap_or(i64::MAX)])?;
    while let Some(row) = rows.next()? {
        cursor.term = row.get(0)?;
        texts.push((VectorKey::Term(row.get(1)?), row.get(1)?));
    }
    let mut statement = connection.prepare_cached(
        "SELECT ordinal, text_chunks FROM message WHERE ordinal >= ?1
         AND (SELECT count(*) FROM chunk_vector WHERE message = ordinal) < json_array_length(text_chunks)
         ORDER BY ordinal",
    )?;
    let mut rows = statement.query([cursor.message])?;
    while texts.len() < limit
        && let Some(row) = rows.next()?
    {
        let message: u32 = row.get(0)?;
        let chunks: Vec<String> =
            serde_json::from_str(row.get_ref(1)?.as_str()?).map_err(|error| damaged("a message", error))?;
        // A message adds all its chunks, so that the cursor is always between messages.
        texts.extend((0..).zip(chunks).map(|(chunk, text)| {
            let message = MessageOrdinal(message);
            (VectorKey::Chunk { message, chunk }, text)
        }));
        cursor.message = message + 1;
    }
    assert!(
        cursor.term >= begin.term && cursor.message >= begin.message,
        "a cursor only moves forward"
    );
    Ok(VectorTexts { texts, cursor })
}

/// Finds the terms nearest to each of some vectors, in one scan.
pub(super) fn nearest_terms(
    connection: &Connection,
    vectors: &[Vector],
    limit: usize,
    cosine_min: f64,
) -> rusqlite::Result<Vec<Vec<RelatedTerm>>> {
    let mut nearest: Vec<Nearest<i64>> = vec![Nearest::new(limit, cosine_min); vectors.len()];
    if vectors.is_empty() {
        return Ok(Vec::new());
    }
    let mut statement = connection.prepare_cached("SELECT term, vector FROM term_vector")?;
    let mut rows = statement.query([])?;
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

/// Finds the messages from a number on whose chunks are nearest to a vector.
pub(super) fn nearest_messages(
    connection: &Connection,
    from: MessageOrdinal,
    vector: &Vector,
    limit: usize,
    cosine_min: f64,
) -> rusqlite::Result<Vec<(MessageOrdinal, f64)>> {
    let mut nearest = Nearest::new(limit, cosine_min);
    // In the order of the key, the chunks of a message come together.
    let mut statement = connection.prepare_cached(
        "SELECT message, vector FROM chunk_vector WHERE message >= ? ORDER BY message, chunk",
    )?;
    let mut rows = statement.query([from.0])?;
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
                    assert!(last < message, "rows come in the order of messages");
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

/// Counts the vectors.
pub(super) fn counts(connection: &Connection) -> rusqlite::Result<VectorCounts> {
    connection
        .prepare_cached("SELECT (SELECT count(*) FROM term_vector), (SELECT count(*) FROM chunk_vector)")?
        .query_row([], |row| {
            Ok(VectorCounts {
                terms: row.get::<_, i64>(0)? as u64,
                chunks: row.get::<_, i64>(1)? as u64,
            })
        })
}
