//! Vectors of terms and chunks. They are written with all other rows, and found by an exact scan, or in lists if there
//! are many.

use std::collections::HashMap;

use deadpool_postgres::{GenericClient, Object, Transaction};
use futures::{StreamExt, TryStreamExt};

use super::connection::{Result, damaged};
use super::{digest, without_nul};
use crate::embed::Vector;
use crate::embed::vector::Nearest;
use crate::message::{Message, MessageOrdinal};
use crate::store::{
    ChunkPlace, RelatedTerm, StoredEmbedder, VectorCounts, VectorCursor, VectorKey, VectorLists, VectorTexts,
};

/// The parameters of a statement without parameters.
const NO_PARAMETERS: [&str; 0] = [];

/// Messages in one page of the search for chunks without vectors.
const MESSAGES_AT_ONCE: i64 = 500;

/// Reads the embedder that made the vectors.
pub(super) async fn embedder(client: &impl GenericClient) -> Result<Option<StoredEmbedder>> {
    let row = client
        .query_opt("SELECT model, dimensions FROM embedder", &[])
        .await?;
    row.map(|row| {
        Ok(StoredEmbedder {
            model: row.try_get(0)?,
            dimensions: row.try_get::<_, i64>(1)? as u32,
        })
    })
    .transpose()
}

/// Records the embedder of the vectors.
pub(super) async fn write_embedder(
    transaction: &Transaction<'_>,
    model: &str,
    dimensions: u32,
) -> Result<()> {
    let statement = "INSERT INTO embedder (model, dimensions) VALUES ($1, $2)";
    transaction
        .execute(
            statement,
            &[&without_nul(model.to_owned()), &i64::from(dimensions)],
        )
        .await?;
    Ok(())
}

/// Deletes all vectors.
pub(super) async fn forget(transaction: &Transaction<'_>) -> Result<()> {
    forget_lists(transaction).await?;
    let statements = "DELETE FROM term_vector; DELETE FROM chunk_vector; DELETE FROM embedder";
    Ok(transaction.batch_execute(statements).await?)
}

/// Deletes all lists of vectors.
pub(super) async fn forget_lists(transaction: &Transaction<'_>) -> Result<()> {
    let statements = "DELETE FROM vector_centres; DELETE FROM vector_list";
    Ok(transaction.batch_execute(statements).await?)
}

/// Replaces the lists of vectors.
pub(super) async fn write_lists(
    transaction: &Transaction<'_>,
    lists: &VectorLists,
    entries: &[Vec<u8>],
) -> Result<()> {
    forget_lists(transaction).await?;
    transaction
        .execute(
            "INSERT INTO vector_centres (next_message, centres) VALUES ($1, $2)",
            &[&i64::from(lists.end.0), &lists.centres],
        )
        .await?;
    let statement = transaction
        .prepare_cached("INSERT INTO vector_list (list, entries) VALUES ($1, $2)")
        .await?;
    for (number, entries) in (0_i64..).zip(entries) {
        transaction.execute(&statement, &[&number, entries]).await?;
    }
    Ok(())
}

/// Reads the centres of the lists of vectors, and the end of the listed messages.
pub(super) async fn lists(connection: &Object) -> Result<Option<VectorLists>> {
    let sql = "SELECT next_message, centres FROM vector_centres";
    let row = connection.query_opt(sql, &[]).await?;
    row.map(|row| {
        Ok(VectorLists {
            end: MessageOrdinal(row.try_get::<_, i64>(0)? as u32),
            centres: row.try_get(1)?,
        })
    })
    .transpose()
}

/// Reads the entries of some lists.
pub(super) async fn list_entries(connection: &Object, lists: &[u32]) -> Result<Vec<Vec<u8>>> {
    let lists: Vec<i64> = lists.iter().map(|&list| i64::from(list)).collect();
    let sql = "SELECT entries FROM vector_list WHERE list = ANY ($1)";
    let rows = connection.query(sql, &[&lists]).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// Reads the vectors of chunks after a place.
pub(super) async fn chunk_vectors(
    connection: &Object,
    after: Option<ChunkPlace>,
    limit: usize,
) -> Result<Vec<(ChunkPlace, Vector)>> {
    let (message, chunk) = after.map_or((-1, -1), |(message, chunk)| {
        (i64::from(message.0), i64::from(chunk))
    });
    let statement = connection
        .prepare_cached(
            "SELECT message, chunk, vector FROM chunk_vector WHERE (message, chunk) > ($1, $2)
             ORDER BY message, chunk LIMIT $3",
        )
        .await?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = connection.query(&statement, &[&message, &chunk, &limit]).await?;
    let vectors = rows.iter().map(|row| {
        let place = (
            MessageOrdinal(row.try_get::<_, i64>(0)? as u32),
            row.try_get::<_, i64>(1)? as u32,
        );
        Ok((place, Vector::from_bytes(row.try_get(2)?)))
    });
    vectors.collect()
}

/// Computes the cosines of messages to a vector.
pub(super) async fn cosines(
    connection: &Object,
    messages: &[MessageOrdinal],
    vector: &Vector,
) -> Result<Vec<(MessageOrdinal, f64)>> {
    let numbers: Vec<i64> = messages.iter().map(|message| i64::from(message.0)).collect();
    let sql = "SELECT message, vector FROM chunk_vector WHERE message = ANY ($1)";
    let rows = connection.query(sql, &[&numbers]).await?;
    let mut best: HashMap<u32, f64> = HashMap::new();
    for row in rows {
        let message = row.try_get::<_, i64>(0)? as u32;
        if let Some(cosine) = vector.cosine_to_bytes(row.try_get(1)?) {
            let known = best.entry(message).or_insert(cosine);
            *known = known.max(cosine);
        }
    }
    let cosines = messages
        .iter()
        .filter_map(|&message| Some((message, *best.get(&message.0)?)));
    Ok(cosines.collect())
}

/// Writes vectors, except for texts that no longer exist.
pub(super) async fn write(transaction: &Transaction<'_>, vectors: &[(VectorKey, Vector)]) -> Result<()> {
    // If a text has two vectors, the last one counts.
    let (mut terms, mut chunks) = (HashMap::new(), HashMap::new());
    for (key, vector) in vectors {
        match key {
            VectorKey::Term(text) => {
                terms.insert(digest(&without_nul(text.clone())), vector.to_bytes());
            }
            VectorKey::Chunk { message, chunk } => {
                chunks.insert((i64::from(message.0), i64::from(*chunk)), vector.to_bytes());
            }
        }
    }
    let (digests, bytes): (Vec<_>, Vec<_>) = terms.into_iter().unzip();
    let statement = transaction
        .prepare_cached(
            "INSERT INTO term_vector (term, vector)
             SELECT term.id, new.vector FROM unnest($1::bytea[], $2::bytea[]) AS new (digest, vector)
             JOIN term ON term.digest = new.digest
             ON CONFLICT (term) DO UPDATE SET vector = excluded.vector",
        )
        .await?;
    transaction.execute(&statement, &[&digests, &bytes]).await?;
    let (keys, bytes): (Vec<(i64, i64)>, Vec<_>) = chunks.into_iter().unzip();
    let (messages, chunks): (Vec<i64>, Vec<i64>) = keys.into_iter().unzip();
    let statement = transaction
        .prepare_cached(
            "INSERT INTO chunk_vector (message, chunk, vector)
             SELECT message.ordinal, new.chunk, new.vector
             FROM unnest($1::bigint[], $2::bigint[], $3::bytea[]) AS new (message, chunk, vector)
             JOIN message ON message.ordinal = new.message
             ON CONFLICT (message, chunk) DO UPDATE SET vector = excluded.vector",
        )
        .await?;
    transaction
        .execute(&statement, &[&messages, &chunks, &bytes])
        .await?;
    Ok(())
}

/// Lists terms and chunks after `cursor` without a vector.
pub(super) async fn texts_without(
    connection: &Object,
    mut cursor: VectorCursor,
    limit: usize,
) -> Result<VectorTexts> {
    let begin = cursor;
    let mut texts = Vec::new();
    let statement = connection
        .prepare_cached(
            "SELECT id, text FROM term WHERE id > $1
             AND NOT EXISTS (SELECT 1 FROM term_vector WHERE term_vector.term = term.id)
             ORDER BY id LIMIT $2",
        )
        .await?;
    let limit_rows = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = connection.query(&statement, &[&cursor.term, &limit_rows]).await?;
    for row in rows {
        cursor.term = row.try_get(0)?;
        let text: String = row.try_get(1)?;
        texts.push((VectorKey::Term(text.clone()), text));
    }
    let statement = connection
        .prepare_cached(
            "SELECT ordinal, body FROM message WHERE ordinal >= $1
             AND (SELECT count(*) FROM chunk_vector WHERE chunk_vector.message = ordinal) < chunks
             ORDER BY ordinal LIMIT $2",
        )
        .await?;
    while texts.len() < limit {
        let rows = connection
            .query(&statement, &[&i64::from(cursor.message), &MESSAGES_AT_ONCE])
            .await?;
        if rows.is_empty() {
            break;
        }
        for row in rows {
            if texts.len() >= limit {
                break;
            }
            let message = row.try_get::<_, i64>(0)? as u32;
            let body: Message =
                serde_json::from_str(row.try_get(1)?).map_err(|error| damaged("a message", error))?;
            // A message adds all its chunks, so that the cursor is always between messages.
            texts.extend((0..).zip(body.text_chunks).map(|(chunk, text)| {
                let message = MessageOrdinal(message);
                (VectorKey::Chunk { message, chunk }, text)
            }));
            cursor.message = message + 1;
        }
    }
    assert!(
        cursor.term >= begin.term && cursor.message >= begin.message,
        "a cursor only moves forward"
    );
    Ok(VectorTexts { texts, cursor })
}

/// Finds the terms nearest to each of some vectors, in one scan.
pub(super) async fn nearest_terms(
    connection: &Object,
    vectors: &[Vector],
    limit: usize,
    cosine_min: f64,
) -> Result<Vec<Vec<RelatedTerm>>> {
    let mut nearest: Vec<Nearest<i64>> = vec![Nearest::new(limit, cosine_min); vectors.len()];
    if vectors.is_empty() {
        return Ok(Vec::new());
    }
    let sql = "SELECT term, vector FROM term_vector";
    let mut rows = connection.query_raw(sql, NO_PARAMETERS).await?.boxed();
    while let Some(row) = rows.try_next().await? {
        let (term, bytes): (i64, &[u8]) = (row.try_get(0)?, row.try_get(1)?);
        for (vector, nearest) in vectors.iter().zip(&mut nearest) {
            if let Some(cosine) = vector.cosine_to_bytes(bytes) {
                nearest.look(term, cosine);
            }
        }
    }
    let best: Vec<Vec<(i64, f64)>> = nearest.into_iter().map(Nearest::into_best).collect();
    let ids: Vec<i64> = best.iter().flatten().map(|(term, _)| *term).collect();
    let rows = connection
        .query("SELECT id, text FROM term WHERE id = ANY ($1)", &[&ids])
        .await?;
    let texts: HashMap<i64, String> = rows
        .iter()
        .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
        .collect::<Result<_>>()?;
    let related = best.into_iter().map(|best| {
        let found = best.into_iter().filter_map(|(term, cosine)| {
            Some(RelatedTerm {
                text: texts.get(&term)?.clone(),
                weight: Some(cosine),
            })
        });
        found.collect()
    });
    Ok(related.collect())
}

/// Finds the messages from a number on whose chunks are nearest to a vector.
pub(super) async fn nearest_messages(
    connection: &Object,
    from: MessageOrdinal,
    vector: &Vector,
    limit: usize,
    cosine_min: f64,
) -> Result<Vec<(MessageOrdinal, f64)>> {
    let sql = "SELECT message, vector FROM chunk_vector WHERE message >= $1";
    let mut rows = connection.query_raw(sql, [i64::from(from.0)]).await?.boxed();
    let mut best: HashMap<u32, f64> = HashMap::new();
    while let Some(row) = rows.try_next().await? {
        let message = row.try_get::<_, i64>(0)? as u32;
        if let Some(cosine) = vector.cosine_to_bytes(row.try_get(1)?) {
            let known = best.entry(message).or_insert(cosine);
            *known = known.max(cosine);
        }
    }
    let mut nearest = Nearest::new(limit, cosine_min);
    for (message, cosine) in best {
        nearest.look(MessageOrdinal(message), cosine);
    }
    Ok(nearest.into_best())
}

/// Counts the vectors.
pub(super) async fn counts(connection: &Object) -> Result<VectorCounts> {
    let sql = "SELECT (SELECT count(*) FROM term_vector), (SELECT count(*) FROM chunk_vector)";
    let row = connection.query_one(sql, &[]).await?;
    Ok(VectorCounts {
        terms: row.try_get::<_, i64>(0)? as u64,
        chunks: row.try_get::<_, i64>(1)? as u64,
    })
}
