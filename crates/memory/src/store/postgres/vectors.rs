//! Vectors of terms and chunks: written with everything else, found by an exact scan.

use std::collections::HashMap;

use deadpool_postgres::{Object, Transaction};
use futures::{StreamExt, TryStreamExt};

use super::connection::{Result, damaged};
use super::{digest, without_nul};
use crate::embed::Vector;
use crate::embed::vector::Nearest;
use crate::message::{Message, MessageOrdinal};
use crate::store::{RelatedTerm, VectorCursor, VectorKey, VectorModel, VectorTexts};

/// Messages that are looked at for chunks without vectors at once.
const MESSAGES_AT_ONCE: i64 = 500;

/// Writes vectors, except for texts that no longer exist.
pub(super) async fn write(
    transaction: &Transaction<'_>,
    model: &str,
    vectors: &[(VectorKey, Vector)],
) -> Result<()> {
    // The last one counts, where one thing has two.
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
            "INSERT INTO term_vector (term, model, vector)
             SELECT term.id, $1, new.vector FROM unnest($2::bytea[], $3::bytea[]) AS new (digest, vector)
             JOIN term ON term.digest = new.digest
             ON CONFLICT (term, model) DO UPDATE SET vector = excluded.vector",
        )
        .await?;
    transaction
        .execute(&statement, &[&model, &digests, &bytes])
        .await?;
    let (keys, bytes): (Vec<(i64, i64)>, Vec<_>) = chunks.into_iter().unzip();
    let (messages, chunks): (Vec<i64>, Vec<i64>) = keys.into_iter().unzip();
    let statement = transaction
        .prepare_cached(
            "INSERT INTO chunk_vector (message, chunk, model, vector)
             SELECT message.ordinal, new.chunk, $1, new.vector
             FROM unnest($2::bigint[], $3::bigint[], $4::bytea[]) AS new (message, chunk, vector)
             JOIN message ON message.ordinal = new.message
             ON CONFLICT (message, chunk, model) DO UPDATE SET vector = excluded.vector",
        )
        .await?;
    transaction
        .execute(&statement, &[&model, &messages, &chunks, &bytes])
        .await?;
    Ok(())
}

/// Terms and chunks after `cursor` without a vector.
pub(super) async fn texts_without(
    connection: &Object,
    model: &str,
    mut cursor: VectorCursor,
    limit: usize,
) -> Result<VectorTexts> {
    let mut texts = Vec::new();
    let statement = connection
        .prepare_cached(
            "SELECT id, text FROM term WHERE id > $1
             AND NOT EXISTS (SELECT 1 FROM term_vector WHERE term_vector.term = term.id AND term_vector.model = $2)
             ORDER BY id LIMIT $3",
        )
        .await?;
    let limit_rows = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = connection
        .query(&statement, &[&cursor.term, &model, &limit_rows])
        .await?;
    for row in rows {
        cursor.term = row.try_get(0)?;
        let text: String = row.try_get(1)?;
        texts.push((VectorKey::Term(text.clone()), text));
    }
    let statement = connection
        .prepare_cached(
            "SELECT ordinal, body FROM message WHERE ordinal >= $1
             AND (SELECT count(*) FROM chunk_vector WHERE chunk_vector.message = ordinal AND model = $2) < chunks
             ORDER BY ordinal LIMIT $3",
        )
        .await?;
    while texts.len() < limit {
        let rows = connection
            .query(
                &statement,
                &[&i64::from(cursor.message), &model, &MESSAGES_AT_ONCE],
            )
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
            // All chunks of one message, so that the cursor stands between messages.
            texts.extend((0..).zip(body.text_chunks).map(|(chunk, text)| {
                let message = MessageOrdinal(message);
                (VectorKey::Chunk { message, chunk }, text)
            }));
            cursor.message = message + 1;
        }
    }
    Ok(VectorTexts { texts, cursor })
}

/// The terms nearest to each of some vectors, in one scan.
pub(super) async fn nearest_terms(
    connection: &Object,
    model: &str,
    vectors: &[Vector],
    limit: usize,
    cosine_min: f64,
) -> Result<Vec<Vec<RelatedTerm>>> {
    let mut nearest: Vec<Nearest<i64>> = vec![Nearest::new(limit, cosine_min); vectors.len()];
    if vectors.is_empty() {
        return Ok(Vec::new());
    }
    let sql = "SELECT term, vector FROM term_vector WHERE model = $1";
    let mut rows = connection.query_raw(sql, [model]).await?.boxed();
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

/// The messages with the chunks nearest to a vector.
pub(super) async fn nearest_messages(
    connection: &Object,
    model: &str,
    vector: &Vector,
    limit: usize,
    cosine_min: f64,
) -> Result<Vec<(MessageOrdinal, f64)>> {
    let sql = "SELECT message, vector FROM chunk_vector WHERE model = $1";
    let mut rows = connection.query_raw(sql, [model]).await?.boxed();
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

/// The models that there are vectors of.
pub(super) async fn models(connection: &Object) -> Result<Vec<VectorModel>> {
    let rows = connection
        .query(
            "SELECT model, sum(terms)::bigint, sum(chunks)::bigint FROM (
                 SELECT model, count(*) AS terms, 0 AS chunks FROM term_vector GROUP BY model
                 UNION ALL SELECT model, 0, count(*) FROM chunk_vector GROUP BY model
             ) AS counted GROUP BY model ORDER BY model",
            &[],
        )
        .await?;
    rows.iter()
        .map(|row| {
            Ok(VectorModel {
                model: row.try_get(0)?,
                terms: row.try_get::<_, i64>(1)? as u64,
                chunks: row.try_get::<_, i64>(2)? as u64,
            })
        })
        .collect()
}
