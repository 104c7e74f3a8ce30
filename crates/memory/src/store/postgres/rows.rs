//! Rows that a transaction gathers, and writes with one statement for each table.

use std::collections::BTreeMap;

use deadpool_postgres::Transaction;
use gristmill_model::Timestamp;

use super::connection::Result;
use super::{Digest, digest, without_nul};
use crate::knowledge::Knowledge;
use crate::message::Message;
use crate::property::normalize_term;
use crate::store::{RelatedTerm, packed};

/// The gathered rows, column by column.
#[derive(Default)]
pub(super) struct Rows {
    messages: Messages,
    knowledge: KnowledgeRows,
    /// The error and the time of a failure, by message and chunk.
    failures: BTreeMap<(i64, i64), (String, i64)>,
    /// The terms and the weight of an alias, by the digests of both terms.
    aliases: BTreeMap<(Digest, Digest), (String, String, Option<f64>)>,
    bytes: usize,
}

#[derive(Default)]
struct Messages {
    ordinals: Vec<i64>,
    sources: Vec<i64>,
    positions: Vec<i64>,
    bodies: Vec<String>,
    chunks: Vec<i32>,
    times: Vec<Option<i64>>,
    words: Vec<i32>,
    thread_numbers: Vec<i64>,
}

#[derive(Default)]
struct KnowledgeRows {
    first_refs: Vec<i64>,
    messages: Vec<i64>,
    chunks: Vec<i64>,
    kinds: Vec<String>,
    items: Vec<String>,
}

impl Rows {
    /// Bytes of the gathered texts.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn message(
        &mut self,
        ordinal: u32,
        source: i64,
        position: u32,
        message: &Message,
        words: u32,
    ) -> std::result::Result<(), serde_json::Error> {
        let body = serde_json::to_string(message)?;
        self.bytes += body.len();
        self.messages.ordinals.push(i64::from(ordinal));
        self.messages.sources.push(source);
        self.messages.positions.push(i64::from(position));
        self.messages.bodies.push(body);
        self.messages.chunks.push(message.text_chunks.len() as i32);
        self.messages.times.push(message.moment.map(|moment| moment.at.0));
        self.messages.words.push(words as i32);
        self.messages
            .thread_numbers
            .push(i64::from(message.thread_number()));
        Ok(())
    }

    pub(super) fn knowledge(
        &mut self,
        first_ref: u32,
        message: u32,
        chunk: u32,
        knowledge: &[Knowledge],
    ) -> std::result::Result<(), String> {
        let items = packed::pack(knowledge)?;
        self.bytes += items.len();
        self.knowledge.first_refs.push(i64::from(first_ref));
        self.knowledge.messages.push(i64::from(message));
        self.knowledge.chunks.push(i64::from(chunk));
        self.knowledge.kinds.push(packed::kinds(knowledge));
        self.knowledge.items.push(items);
        Ok(())
    }

    pub(super) fn failure(&mut self, message: u32, chunk: u32, error: String, at: Timestamp) {
        self.failures
            .insert((i64::from(message), i64::from(chunk)), (without_nul(error), at.0));
    }

    pub(super) fn alias(&mut self, term: &str, related: &RelatedTerm) {
        let term = without_nul(normalize_term(term));
        let text = without_nul(normalize_term(&related.text));
        self.aliases
            .insert((digest(&term), digest(&text)), (term, text, related.weight));
    }

    /// Writes all gathered rows.
    pub(super) async fn write(&mut self, transaction: &Transaction<'_>) -> Result<()> {
        let rows = std::mem::take(self);
        rows.messages.insert(transaction).await?;
        rows.knowledge.insert(transaction).await?;
        insert_failures(transaction, rows.failures).await?;
        insert_aliases(transaction, rows.aliases).await
    }
}

impl Messages {
    async fn insert(self, transaction: &Transaction<'_>) -> Result<()> {
        if self.ordinals.is_empty() {
            return Ok(());
        }
        assert!(
            self.ordinals.len() == self.bodies.len() && self.ordinals.len() == self.words.len(),
            "each message fills each column"
        );
        let statement = transaction
            .prepare_cached(
                "INSERT INTO message (ordinal, source, position, body, chunks, at, words, thread_number)
                 SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::int[], $6::bigint[],
                                      $7::int[], $8::bigint[])",
            )
            .await?;
        transaction
            .execute(
                &statement,
                &[
                    &self.ordinals,
                    &self.sources,
                    &self.positions,
                    &self.bodies,
                    &self.chunks,
                    &self.times,
                    &self.words,
                    &self.thread_numbers,
                ],
            )
            .await?;
        Ok(())
    }
}

impl KnowledgeRows {
    async fn insert(self, transaction: &Transaction<'_>) -> Result<()> {
        if self.first_refs.is_empty() {
            return Ok(());
        }
        assert!(
            self.first_refs.len() == self.kinds.len() && self.first_refs.len() == self.items.len(),
            "each row of knowledge fills each column"
        );
        let statement = transaction
            .prepare_cached(
                "INSERT INTO knowledge (first_ref, message, chunk, kinds, items)
                 SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::text[])",
            )
            .await?;
        transaction
            .execute(
                &statement,
                &[
                    &self.first_refs,
                    &self.messages,
                    &self.chunks,
                    &self.kinds,
                    &self.items,
                ],
            )
            .await?;
        Ok(())
    }
}

async fn insert_failures(
    transaction: &Transaction<'_>,
    failures: BTreeMap<(i64, i64), (String, i64)>,
) -> Result<()> {
    if failures.is_empty() {
        return Ok(());
    }
    let (messages, chunks): (Vec<i64>, Vec<i64>) = failures.keys().copied().unzip();
    let (errors, times): (Vec<String>, Vec<i64>) = failures.into_values().unzip();
    transaction
        .execute(
            "INSERT INTO failure (message, chunk, error, at)
             SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[])
             ON CONFLICT (message, chunk) DO UPDATE SET error = excluded.error, at = excluded.at",
            &[&messages, &chunks, &errors, &times],
        )
        .await?;
    Ok(())
}

async fn insert_aliases(
    transaction: &Transaction<'_>,
    aliases: BTreeMap<(Digest, Digest), (String, String, Option<f64>)>,
) -> Result<()> {
    if aliases.is_empty() {
        return Ok(());
    }
    let (term_digests, related_digests): (Vec<&Digest>, Vec<&Digest>) =
        aliases.keys().map(|(term, related)| (term, related)).unzip();
    let (terms, relateds): (Vec<&str>, Vec<&str>) = aliases
        .values()
        .map(|(term, related, _)| (term.as_str(), related.as_str()))
        .unzip();
    let weights: Vec<Option<f64>> = aliases.values().map(|(_, _, weight)| *weight).collect();
    transaction
        .execute(
            "INSERT INTO alias (term_digest, related_digest, term, related, weight)
             SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::text[], $4::text[], $5::float8[])
             ON CONFLICT (term_digest, related_digest) DO UPDATE SET weight = excluded.weight",
            &[&term_digests, &related_digests, &terms, &relateds, &weights],
        )
        .await?;
    Ok(())
}
