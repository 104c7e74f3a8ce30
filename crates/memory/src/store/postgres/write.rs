//! Writes all changes of one call in one transaction. Rows are gathered and written with a few statements.

use deadpool_postgres::Transaction;
use gristmill_model::Timestamp;

use super::connection::{Database, Result, damaged};
use super::rows::Rows;
use super::{Digest, digest, index, remove, vectors, without_nul, words};
use crate::embed::Vector;
use crate::error::MemoryError;
use crate::knowledge::Knowledge;
use crate::limits::POSTGRES_ROWS_BYTES_MAX;
use crate::store::posting::{NewPostings, NewWords};
use crate::store::vectors::dimensions;
use crate::store::{Applied, Change, Learned, NewMessage, NewSource, Unread, VectorKey};

/// Applies changes in order, in one transaction.
pub(super) async fn apply(database: &Database, changes: Vec<Change>) -> Result<Applied> {
    let mut connection = database.connection().await?;
    let transaction = connection.transaction().await?;
    let mut writing = Writing::begin(&transaction).await?;
    for change in changes {
        writing.change(change).await?;
    }
    let applied = writing.finish().await?;
    transaction.commit().await?;
    Ok(applied)
}

/// A transaction in progress.
struct Writing<'a> {
    transaction: &'a Transaction<'a>,
    next_message: u32,
    next_ref: u32,
    /// The numbers at the beginning of the transaction.
    first: (u32, u32),
    rewrites: i64,
    /// Rows that are not written yet.
    rows: Rows,
    postings: NewPostings,
    words: NewWords,
    applied: Applied,
}

impl<'a> Writing<'a> {
    /// Takes the lock of the writers.
    async fn begin(transaction: &'a Transaction<'a>) -> Result<Self> {
        let row = transaction
            .query_one(
                "SELECT next_message, next_ref, rewrites FROM counter FOR UPDATE",
                &[],
            )
            .await?;
        Ok(Writing {
            transaction,
            next_message: row.try_get::<_, i64>(0)? as u32,
            next_ref: row.try_get::<_, i64>(1)? as u32,
            first: (row.try_get::<_, i64>(0)? as u32, row.try_get::<_, i64>(1)? as u32),
            rewrites: row.try_get(2)?,
            rows: Rows::default(),
            postings: NewPostings::default(),
            words: NewWords::default(),
            applied: Applied::default(),
        })
    }

    async fn change(&mut self, change: Change) -> Result<()> {
        match change {
            Change::Begin(source) => self.begin_source(source).await,
            Change::Append {
                source,
                first_position,
                messages,
            } => self.append(&source, first_position, messages).await,
            Change::Learn { source, learned } => self.learn(&source, learned).await,
            Change::Complete { source } => {
                let (id, _) = self.source(&source).await?;
                let statement = "UPDATE source SET complete = true WHERE id = $1";
                self.transaction.execute(statement, &[&id]).await?;
                Ok(())
            }
            Change::Continue(source) => {
                let (id, _) = self.source(&source.name).await?;
                let statement = "UPDATE source SET complete = false, digest = $2, ingested_at = $3, stamp = $4 WHERE id = $1";
                let (digest, at) = (without_nul(source.digest), source.ingested_at.0);
                self.transaction
                    .execute(statement, &[&id, &digest, &at, &source.stamp])
                    .await?;
                Ok(())
            }
            Change::Move { source, name } => self.move_source(source, name).await,
            Change::Seen { source, stamp } => {
                // The source may be gone by now.
                let name = digest(&without_nul(source));
                let statement = "UPDATE source SET stamp = $2 WHERE name_digest = $1";
                self.transaction.execute(statement, &[&name, &stamp]).await?;
                Ok(())
            }
            Change::SourceFailure {
                source,
                error,
                place,
                at,
            } => self.replace_failure(source, error, place, at).await,
            Change::Unread {
                source,
                first,
                unread,
                at,
            } => self.replace_unread(source, first, unread, at).await,
            Change::Delete { source } => {
                let (id, _) = self.source(&source).await?;
                self.replace_failure(source.clone(), None, None, Timestamp(0))
                    .await?;
                self.replace_unread(source, 0, Vec::new(), Timestamp(0)).await?;
                // This call may have added the rows to delete.
                self.write().await?;
                self.applied.refs_deleted += remove::source(self.transaction, id).await?;
                self.rewrites += 1;
                Ok(())
            }
            Change::Alias { term, related } => {
                self.rows.alias(&term, &related);
                Ok(())
            }
            Change::Vectors { model, vectors } => {
                // This call may have added the terms.
                self.write().await?;
                self.write_vectors(&model, &vectors).await
            }
            Change::ForgetVectors => vectors::forget(self.transaction).await,
            Change::ListVectors {
                lists,
                entries,
                rewrites,
            } => {
                if rewrites == self.rewrites {
                    vectors::write_lists(self.transaction, &lists, &entries).await
                } else {
                    Ok(())
                }
            }
        }
    }

    async fn replace_failure(
        &self,
        source: String,
        error: Option<String>,
        place: Option<String>,
        at: Timestamp,
    ) -> Result<()> {
        let name = without_nul(source);
        let key = digest(&name);
        let statement = "DELETE FROM source_failure WHERE source_digest = $1";
        self.transaction.execute(statement, &[&key]).await?;
        if let Some(error) = error {
            let statement = "INSERT INTO source_failure (source_digest, source, error, place, at) VALUES ($1, $2, $3, $4, $5)";
            self.transaction
                .execute(statement, &[&key, &name, &without_nul(error), &place, &at.0])
                .await?;
        }
        Ok(())
    }

    async fn replace_unread(
        &self,
        source: String,
        first: u32,
        unread: Vec<Unread>,
        at: Timestamp,
    ) -> Result<()> {
        let name = without_nul(source);
        let key = digest(&name);
        let statement = "DELETE FROM unread WHERE source_digest = $1 AND number >= $2";
        self.transaction
            .execute(statement, &[&key, &i64::from(first)])
            .await?;
        if unread.is_empty() {
            return Ok(());
        }
        let statement = "INSERT INTO unread (source_digest, number, source, place, error, at)
             SELECT $1, number, $2, place, error, $6
             FROM unnest($3::bigint[], $4::text[], $5::text[]) AS one (number, place, error)";
        let numbers: Vec<i64> = (i64::from(first)..).take(unread.len()).collect();
        let (places, errors): (Vec<String>, Vec<String>) = unread
            .into_iter()
            .map(|one| (without_nul(one.place), without_nul(one.error)))
            .unzip();
        self.transaction
            .execute(statement, &[&key, &name, &numbers, &places, &errors, &at.0])
            .await?;
        Ok(())
    }

    async fn write_vectors(&mut self, model: &str, new: &[(VectorKey, Vector)]) -> Result<()> {
        if let Some(dimensions) = dimensions(new) {
            match vectors::embedder(self.transaction).await? {
                Some(known) => known.check_new(model, dimensions)?,
                None => vectors::write_embedder(self.transaction, model, dimensions).await?,
            }
        }
        vectors::write(self.transaction, new).await
    }

    async fn move_source(&mut self, source: String, name: String) -> Result<()> {
        let (id, _) = self.source(&source).await?;
        let name = without_nul(name);
        let (old, new) = (digest(&without_nul(source)), digest(&name));
        let taken = "SELECT 1 FROM source WHERE name_digest = $1";
        if self.transaction.query_opt(taken, &[&new]).await?.is_some() {
            return Err(MemoryError::name_taken(&name).into());
        }
        let failures = "DELETE FROM source_failure WHERE source_digest = $1 OR source_digest = $2
            AND (place IS NULL OR place = (SELECT substr(stamp, strpos(stamp, '/')) FROM source WHERE id = $3))";
        self.transaction.execute(failures, &[&old, &new, &id]).await?;
        self.rename_failure(&new).await?;
        let unread = "DELETE FROM unread WHERE source_digest = $1";
        self.transaction.execute(unread, &[&new]).await?;
        let unread = "UPDATE unread SET source_digest = $2, source = $3 WHERE source_digest = $1";
        self.transaction.execute(unread, &[&old, &new, &name]).await?;
        let statement = "UPDATE source SET name_digest = $2, name = $3 WHERE id = $1";
        self.transaction.execute(statement, &[&id, &new, &name]).await?;
        // The columns have the names of sources.
        self.rewrites += 1;
        Ok(())
    }

    /// Names the failure of a file by the path of the file, because a source gets its name.
    async fn rename_failure(&self, key: &Digest) -> Result<()> {
        let place = "SELECT place FROM source_failure WHERE source_digest = $1";
        let Some(row) = self.transaction.query_opt(place, &[key]).await? else {
            return Ok(());
        };
        let place: String = row.try_get(0)?;
        let other = digest(&place);
        let earlier = "DELETE FROM source_failure WHERE source_digest = $1";
        self.transaction.execute(earlier, &[&other]).await?;
        let renamed = "UPDATE source_failure SET source_digest = $2, source = place WHERE source_digest = $1";
        self.transaction.execute(renamed, &[key, &other]).await?;
        Ok(())
    }

    async fn begin_source(&mut self, source: NewSource) -> Result<()> {
        let name = without_nul(source.name);
        let statement = self
            .transaction
            .prepare_cached(
                "INSERT INTO source (name_digest, name, format, digest, settings, complete, messages, zone_minutes,
                                     ingested_at, stamp)
                 VALUES ($1, $2, $3, $4, $5, false, 0, $6, $7, $8) ON CONFLICT (name_digest) DO NOTHING",
            )
            .await?;
        let inserted = self
            .transaction
            .execute(
                &statement,
                &[
                    &digest(&name),
                    &name,
                    &without_nul(source.format),
                    &without_nul(source.digest),
                    &without_nul(source.settings),
                    &source.zone_minutes,
                    &source.ingested_at.0,
                    &source.stamp,
                ],
            )
            .await?;
        if inserted == 0 {
            return Err(MemoryError::invalid(
                name,
                "a source with this name exists; delete it in the same call to replace it",
            )
            .into());
        }
        Ok(())
    }

    /// Reads the id of a source, and the number of its messages.
    async fn source(&self, name: &str) -> Result<(i64, u32)> {
        let statement = self
            .transaction
            .prepare_cached("SELECT id, messages FROM source WHERE name_digest = $1")
            .await?;
        let key = digest(&without_nul(name.to_owned()));
        let row = self.transaction.query_opt(&statement, &[&key]).await?;
        let row = row.ok_or_else(|| MemoryError::SourceUnknown(name.to_owned()))?;
        Ok((row.try_get(0)?, row.try_get::<_, i64>(1)? as u32))
    }

    async fn append(&mut self, source: &str, first: u32, messages: Vec<NewMessage>) -> Result<()> {
        let (id, stored) = self.source(source).await?;
        if first != stored {
            return Err(MemoryError::invalid(
                source,
                format!("it has {stored} messages, and the next to be added is number {first}"),
            )
            .into());
        }
        let count = messages.len() as u32;
        for (position, message) in (first..).zip(messages) {
            let ordinal = self.next_message;
            self.next_message += 1;
            let words = self.words.add(ordinal, &message.message);
            self.rows
                .message(ordinal, id, position, &message.message, words)
                .map_err(|error| damaged("a message", error))?;
            for failure in message.failures {
                self.rows
                    .failure(ordinal, failure.chunk, failure.error, failure.at);
            }
            for (chunk, knowledge) in message.knowledge {
                self.add_knowledge(ordinal, chunk, &knowledge)?;
            }
            if self.rows.bytes() > POSTGRES_ROWS_BYTES_MAX {
                self.rows.write(self.transaction).await?;
            }
        }
        let statement = "UPDATE source SET messages = messages + $2 WHERE id = $1";
        self.transaction
            .execute(statement, &[&id, &i64::from(count)])
            .await?;
        self.applied.messages += count;
        Ok(())
    }

    async fn learn(&mut self, source: &str, learned: Vec<Learned>) -> Result<()> {
        let (id, _) = self.source(source).await?;
        self.rows.write(self.transaction).await?;
        let positions: Vec<i64> = learned
            .iter()
            .map(|learned| i64::from(learned.position))
            .collect();
        let statement = self
            .transaction
            .prepare_cached(
                "SELECT message.ordinal FROM unnest($2::bigint[]) WITH ORDINALITY AS wanted (position, place)
                 LEFT JOIN message ON message.source = $1 AND message.position = wanted.position ORDER BY place",
            )
            .await?;
        let rows = self.transaction.query(&statement, &[&id, &positions]).await?;
        let (mut messages, mut chunks) = (Vec::new(), Vec::new());
        assert_eq!(rows.len(), positions.len(), "each position has a row");
        for (row, learned) in rows.iter().zip(learned) {
            let Some(ordinal) = row.try_get::<_, Option<i64>>(0)? else {
                return Err(MemoryError::invalid(
                    source,
                    format!("it has no message number {} to learn about", learned.position),
                )
                .into());
            };
            messages.push(ordinal);
            chunks.push(i64::from(learned.chunk));
            self.add_knowledge(ordinal as u32, learned.chunk, &learned.knowledge)?;
        }
        let statement =
            "DELETE FROM failure USING unnest($1::bigint[], $2::bigint[]) AS learned (message, chunk)
                         WHERE failure.message = learned.message AND failure.chunk = learned.chunk";
        self.transaction.execute(statement, &[&messages, &chunks]).await?;
        Ok(())
    }

    /// Adds refs to one chunk, in one row. Their terms join the pending writes.
    fn add_knowledge(&mut self, message: u32, chunk: u32, knowledge: &[Knowledge]) -> Result<()> {
        if knowledge.is_empty() {
            return Ok(());
        }
        self.rows
            .knowledge(self.next_ref, message, chunk, knowledge)
            .map_err(|reason| damaged("knowledge", reason))?;
        for (ordinal, item) in (self.next_ref..).zip(knowledge) {
            self.postings.add(ordinal, item);
        }
        self.next_ref += knowledge.len() as u32;
        self.applied.refs += knowledge.len() as u32;
        Ok(())
    }

    /// Writes all gathered rows.
    async fn write(&mut self) -> Result<()> {
        self.rows.write(self.transaction).await?;
        words::write(self.transaction, &mut self.words).await?;
        index::write(self.transaction, &mut self.postings).await
    }

    async fn finish(mut self) -> Result<Applied> {
        self.write().await?;
        let added = (self.next_message - self.first.0, self.next_ref - self.first.1);
        assert_eq!(
            added,
            (self.applied.messages, self.applied.refs),
            "each new row has a number of its own"
        );
        self.transaction
            .execute(
                "UPDATE counter SET next_message = $1, next_ref = $2, rewrites = $3, languages = languages | $4",
                &[
                    &i64::from(self.next_message),
                    &i64::from(self.next_ref),
                    &self.rewrites,
                    &i64::from(self.words.languages().0),
                ],
            )
            .await?;
        Ok(self.applied)
    }
}
