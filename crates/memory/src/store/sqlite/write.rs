//! Writes all changes of one call in one transaction. The postings of all changes are written together.

use std::path::Path;

use gristmill_model::Timestamp;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use super::{damaged, database_error, remove, vectors, words};
use crate::embed::Vector;
use crate::error::MemoryError;
use crate::knowledge::Knowledge;
use crate::message::Message;
use crate::property::{Property, normalize_term};
use crate::store::packed;
use crate::store::posting::{NewPostings, NewWords, Segment};
use crate::store::similar::stems;
use crate::store::vectors::dimensions;
use crate::store::{Applied, Change, Learned, NewMessage, NewSource, RelatedTerm, Unread, VectorKey};

/// Applies changes in order, in one transaction.
pub(super) fn apply(
    connection: &mut Connection,
    path: &Path,
    changes: Vec<Change>,
) -> Result<Applied, MemoryError> {
    let failed = |error| database_error(path, &error);
    let transaction = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(failed)?;
    let mut writing = Writing::begin(&transaction).map_err(failed)?;
    for change in changes {
        match writing.change(change) {
            Ok(()) => {}
            Err(Refused::Database(error)) => return Err(failed(error)),
            Err(Refused::Change(error)) => return Err(error),
        }
    }
    let applied = writing.finish().map_err(failed)?;
    transaction.commit().map_err(failed)?;
    Ok(applied)
}

/// The reason why a change failed.
enum Refused {
    Database(rusqlite::Error),
    Change(MemoryError),
}

impl From<rusqlite::Error> for Refused {
    fn from(error: rusqlite::Error) -> Self {
        Refused::Database(error)
    }
}

/// A transaction in progress.
struct Writing<'a> {
    transaction: &'a Transaction<'a>,
    next_message: u32,
    next_ref: u32,
    /// The numbers at the beginning of the transaction.
    first: (u32, u32),
    rewrites: i64,
    /// Postings that are not written yet.
    postings: NewPostings,
    words: NewWords,
    applied: Applied,
}

impl<'a> Writing<'a> {
    fn begin(transaction: &'a Transaction<'a>) -> rusqlite::Result<Self> {
        let counter = |name: &str| {
            transaction
                .prepare_cached("SELECT value FROM counter WHERE name = ?")?
                .query_row([name], |row| row.get(0))
        };
        let (next_message, next_ref) = (counter("next_message")? as u32, counter("next_ref")? as u32);
        Ok(Writing {
            transaction,
            next_message,
            next_ref,
            first: (next_message, next_ref),
            rewrites: counter("rewrites")?,
            postings: NewPostings::default(),
            words: NewWords::default(),
            applied: Applied::default(),
        })
    }

    fn change(&mut self, change: Change) -> Result<(), Refused> {
        match change {
            Change::Begin(source) => self.begin_source(&source),
            Change::Append {
                source,
                first_position,
                messages,
            } => self.append(&source, first_position, messages),
            Change::Learn { source, learned } => self.learn(&source, learned),
            Change::Complete { source } => {
                let (id, _) = self.source(&source)?;
                self.transaction
                    .prepare_cached("UPDATE source SET complete = 1 WHERE id = ?")?
                    .execute([id])?;
                Ok(())
            }
            Change::Continue(source) => {
                let (id, _) = self.source(&source.name)?;
                self.transaction
                    .prepare_cached(
                        "UPDATE source SET complete = 0, digest = ?, ingested_at = ?, stamp = ? WHERE id = ?",
                    )?
                    .execute(params![source.digest, source.ingested_at.0, source.stamp, id])?;
                Ok(())
            }
            Change::Move { source, name } => self.move_source(&source, &name),
            Change::Seen { source, stamp } => {
                // The source may be gone by now.
                self.transaction
                    .prepare_cached("UPDATE source SET stamp = ? WHERE name = ?")?
                    .execute(params![stamp, source])?;
                Ok(())
            }
            Change::SourceFailure {
                source,
                error,
                place,
                at,
            } => Ok(self.replace_failure(&source, error, place, at)?),
            Change::Unread {
                source,
                first,
                unread,
                at,
            } => Ok(self.replace_unread(&source, first, unread, at)?),
            Change::Delete { source } => {
                let (id, _) = self.source(&source)?;
                self.replace_unread(&source, 0, Vec::new(), Timestamp(0))?;
                self.replace_failure(&source, None, None, Timestamp(0))?;
                // This call may have added the rows to delete.
                self.write_postings()?;
                words::write(self.transaction, &mut self.words)?;
                self.applied.refs_deleted += remove::source(self.transaction, id)?;
                self.rewrites += 1;
                Ok(())
            }
            Change::Vectors { model, vectors } => {
                // This call may have added the terms.
                self.write_postings()?;
                self.write_vectors(&model, &vectors)
            }
            Change::ForgetVectors => Ok(vectors::forget(self.transaction)?),
            Change::ListVectors {
                lists,
                entries,
                rewrites,
            } => {
                if rewrites == self.rewrites {
                    vectors::write_lists(self.transaction, &lists, &entries)?;
                }
                Ok(())
            }
            Change::Alias { term, related } => self.alias(&term, &related),
        }
    }

    fn replace_failure(
        &self,
        source: &str,
        error: Option<String>,
        place: Option<String>,
        at: Timestamp,
    ) -> rusqlite::Result<()> {
        self.transaction
            .prepare_cached("DELETE FROM source_failure WHERE source = ?")?
            .execute([source])?;
        if let Some(error) = error {
            self.transaction
                .prepare_cached("INSERT INTO source_failure (source, error, place, at) VALUES (?, ?, ?, ?)")?
                .execute(params![source, error, place, at.0])?;
        }
        Ok(())
    }

    fn replace_unread(
        &self,
        source: &str,
        first: u32,
        unread: Vec<Unread>,
        at: Timestamp,
    ) -> rusqlite::Result<()> {
        self.transaction
            .prepare_cached("DELETE FROM unread WHERE source = ? AND number >= ?")?
            .execute(params![source, first])?;
        for (number, one) in (first..).zip(unread) {
            self.transaction
                .prepare_cached(
                    "INSERT INTO unread (source, number, place, error, at) VALUES (?, ?, ?, ?, ?)",
                )?
                .execute(params![source, number, one.place, one.error, at.0])?;
        }
        Ok(())
    }

    fn write_vectors(&mut self, model: &str, new: &[(VectorKey, Vector)]) -> Result<(), Refused> {
        if let Some(dimensions) = dimensions(new) {
            match vectors::embedder(self.transaction)? {
                Some(known) => known.check_new(model, dimensions).map_err(Refused::Change)?,
                None => vectors::write_embedder(self.transaction, model, dimensions)?,
            }
        }
        Ok(vectors::write(self.transaction, new)?)
    }

    fn move_source(&mut self, source: &str, name: &str) -> Result<(), Refused> {
        let (id, _) = self.source(source)?;
        if self.is_taken(name)? {
            return Err(Refused::Change(MemoryError::name_taken(name)));
        }
        for statement in [
            // Another file that could not be read may have the new name. It is known by its path from now on.
            "DELETE FROM source_failure WHERE source = ?1 OR source = ?2
                AND (place IS NULL OR place = (SELECT substr(stamp, instr(stamp, '/')) FROM source WHERE name = ?1))",
            "UPDATE OR REPLACE source_failure SET source = place WHERE source = ?2",
            "DELETE FROM unread WHERE source = ?2",
            "UPDATE unread SET source = ?2 WHERE source = ?1",
        ] {
            self.transaction
                .prepare_cached(statement)?
                .execute(params![source, name])?;
        }
        self.transaction
            .prepare_cached("UPDATE source SET name = ? WHERE id = ?")?
            .execute(params![name, id])?;
        // The columns have the names of sources.
        self.rewrites += 1;
        Ok(())
    }

    fn is_taken(&self, name: &str) -> rusqlite::Result<bool> {
        self.transaction
            .prepare_cached("SELECT 1 FROM source WHERE name = ?")?
            .exists([name])
    }

    fn begin_source(&mut self, source: &NewSource) -> Result<(), Refused> {
        if self.is_taken(&source.name)? {
            return Err(Refused::Change(MemoryError::invalid(
                &source.name,
                "a source with this name exists; delete it in the same call to replace it",
            )));
        }
        self.transaction
            .prepare_cached(
                "INSERT INTO source (name, format, digest, settings, complete, messages, zone_minutes,
                                     ingested_at, stamp)
                 VALUES (?, ?, ?, ?, 0, 0, ?, ?, ?)",
            )?
            .execute(params![
                source.name,
                source.format,
                source.digest,
                source.settings,
                source.zone_minutes,
                source.ingested_at.0,
                source.stamp,
            ])?;
        Ok(())
    }

    /// Reads the id of a source, and the number of its messages.
    fn source(&self, name: &str) -> Result<(i64, u32), Refused> {
        let found = self
            .transaction
            .prepare_cached("SELECT id, messages FROM source WHERE name = ?")?
            .query_row([name], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        found.ok_or_else(|| Refused::Change(MemoryError::SourceUnknown(name.to_owned())))
    }

    fn append(&mut self, source: &str, first: u32, messages: Vec<NewMessage>) -> Result<(), Refused> {
        let (id, stored) = self.source(source)?;
        if first != stored {
            return Err(Refused::Change(MemoryError::invalid(
                source,
                format!("it has {stored} messages, and the next to be added is number {first}"),
            )));
        }
        let count = messages.len() as u32;
        for (position, message) in (first..).zip(messages) {
            let ordinal = self.next_message;
            self.next_message += 1;
            self.insert_message(ordinal, id, position, &message.message)?;
            for failure in &message.failures {
                self.insert_failure(ordinal, failure.chunk, &failure.error, failure.at)?;
            }
            for (chunk, knowledge) in message.knowledge {
                self.add_knowledge(ordinal, chunk, &knowledge)?;
            }
        }
        self.transaction
            .prepare_cached("UPDATE source SET messages = messages + ? WHERE id = ?")?
            .execute(params![count, id])?;
        self.applied.messages += count;
        Ok(())
    }

    fn insert_message(
        &mut self,
        ordinal: u32,
        source: i64,
        position: u32,
        message: &Message,
    ) -> rusqlite::Result<()> {
        let json =
            |texts: &[String]| serde_json::to_string(texts).map_err(|error| damaged("a message", error));
        let list = |texts: &[String]| (!texts.is_empty()).then(|| json(texts)).transpose();
        self.transaction
            .prepare_cached(
                "INSERT INTO message (ordinal, source, position, text_chunks, speaker, recipients, subject, tags, at,
                                      zone_minutes, id, thread, place, words, thread_number)
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            )?
            .execute(params![
                ordinal,
                source,
                position,
                json(&message.text_chunks)?,
                message.speaker,
                list(&message.recipients)?,
                message.subject,
                list(&message.tags)?,
                message.moment.map(|moment| moment.at.0),
                message.moment.and_then(|moment| moment.zone_minutes),
                message.id,
                message.thread,
                message.place,
                self.words.add(ordinal, message),
                message.thread_number(),
            ])?;
        Ok(())
    }

    fn insert_failure(&self, message: u32, chunk: u32, error: &str, at: Timestamp) -> rusqlite::Result<()> {
        self.transaction
            .prepare_cached("INSERT OR REPLACE INTO failure (message, chunk, error, at) VALUES (?, ?, ?, ?)")?
            .execute(params![message, chunk, error, at.0])?;
        Ok(())
    }

    fn learn(&mut self, source: &str, learned: Vec<Learned>) -> Result<(), Refused> {
        let (id, _) = self.source(source)?;
        for Learned {
            position,
            chunk,
            knowledge,
        } in learned
        {
            let ordinal: Option<u32> = self
                .transaction
                .prepare_cached("SELECT ordinal FROM message WHERE source = ? AND position = ?")?
                .query_row(params![id, position], |row| row.get(0))
                .optional()?;
            let Some(ordinal) = ordinal else {
                return Err(Refused::Change(MemoryError::invalid(
                    source,
                    format!("it has no message number {position} to learn about"),
                )));
            };
            self.transaction
                .prepare_cached("DELETE FROM failure WHERE message = ? AND chunk = ?")?
                .execute(params![ordinal, chunk])?;
            self.add_knowledge(ordinal, chunk, &knowledge)?;
        }
        Ok(())
    }

    /// Adds refs to one chunk, in one row. Their terms join the pending writes.
    fn add_knowledge(&mut self, message: u32, chunk: u32, knowledge: &[Knowledge]) -> rusqlite::Result<()> {
        if knowledge.is_empty() {
            return Ok(());
        }
        let first = self.next_ref;
        let items = packed::pack(knowledge).map_err(|reason| damaged("knowledge", reason))?;
        self.transaction
            .prepare_cached(
                "INSERT INTO knowledge (first_ref, message, chunk, kinds, items) VALUES (?, ?, ?, ?, ?)",
            )?
            .execute(params![first, message, chunk, packed::kinds(knowledge), items])?;
        for (ordinal, item) in (first..).zip(knowledge) {
            self.postings.add(ordinal, item);
        }
        self.next_ref += knowledge.len() as u32;
        self.applied.refs += knowledge.len() as u32;
        Ok(())
    }

    fn alias(&self, term: &str, related: &RelatedTerm) -> Result<(), Refused> {
        self.transaction
            .prepare_cached("INSERT OR REPLACE INTO alias (term, related, weight) VALUES (?, ?, ?)")?
            .execute(params![
                normalize_term(term),
                normalize_term(&related.text),
                related.weight
            ])?;
        Ok(())
    }

    fn write_postings(&mut self) -> rusqlite::Result<()> {
        let mut insert_term = self
            .transaction
            .prepare_cached("INSERT OR IGNORE INTO term (text) VALUES (?)")?;
        let mut find_term = self
            .transaction
            .prepare_cached("SELECT id FROM term WHERE text = ?")?;
        let mut insert_stem = self
            .transaction
            .prepare_cached("INSERT INTO stem (stem, words, term) VALUES (?, ?, ?)")?;
        let mut segments = Segments::prepare(self.transaction)?;
        for (text, properties) in self.postings.take() {
            let is_new = insert_term.execute([&text])? > 0;
            let id = if is_new {
                self.transaction.last_insert_rowid()
            } else {
                find_term.query_row([&text], |row| row.get(0))?
            };
            if is_new {
                let stems = stems(&text);
                for stem in &stems {
                    insert_stem.execute(params![stem, stems.len() as u32, id])?;
                }
            }
            for (property, refs) in properties {
                segments.add(id, property, &refs, is_new)?;
            }
        }
        Ok(())
    }

    fn finish(mut self) -> rusqlite::Result<Applied> {
        self.write_postings()?;
        words::write(self.transaction, &mut self.words)?;
        let added = (self.next_message - self.first.0, self.next_ref - self.first.1);
        assert_eq!(
            added,
            (self.applied.messages, self.applied.refs),
            "each new row has a number of its own"
        );
        self.transaction
            .prepare_cached(
                "UPDATE counter SET value = value | ?1 WHERE name = 'languages' AND value | ?1 <> value",
            )?
            .execute([self.words.languages().0])?;
        for (name, value) in [
            ("next_message", i64::from(self.next_message)),
            ("next_ref", i64::from(self.next_ref)),
            ("rewrites", self.rewrites),
        ] {
            self.transaction
                .prepare_cached("UPDATE counter SET value = ?2 WHERE name = ?1 AND value <> ?2")?
                .execute(params![name, value])?;
        }
        Ok(self.applied)
    }
}

/// The statements that add to posting segments.
struct Segments<'a> {
    last: rusqlite::CachedStatement<'a>,
    extend: rusqlite::CachedStatement<'a>,
    insert: rusqlite::CachedStatement<'a>,
}

impl<'a> Segments<'a> {
    fn prepare(transaction: &'a Transaction<'a>) -> rusqlite::Result<Self> {
        Ok(Segments {
            last: transaction.prepare_cached(
                "SELECT first_ref, last_ref, count, refs FROM posting WHERE term = ? AND property = ?
                 ORDER BY first_ref DESC LIMIT 1",
            )?,
            extend: transaction.prepare_cached(
                "UPDATE posting SET last_ref = ?, count = ?, refs = ? WHERE term = ? AND property = ? AND first_ref = ?",
            )?,
            insert: transaction.prepare_cached(
                "INSERT INTO posting (term, property, first_ref, last_ref, count, refs) VALUES (?, ?, ?, ?, ?, ?)",
            )?,
        })
    }

    /// Adds ascending refs, none of them below the stored ones: to the last segment while it has room, and then to new
    /// segments.
    fn add(&mut self, term: i64, property: Property, refs: &[u32], is_new: bool) -> rusqlite::Result<()> {
        let property = property as u8;
        let mut rest = refs;
        if !is_new {
            let last = self.last.query_row(params![term, property], |row| {
                Ok(Segment {
                    first: row.get(0)?,
                    last: row.get(1)?,
                    count: row.get(2)?,
                    bytes: row.get(3)?,
                })
            });
            if let Some(mut segment) = last.optional()? {
                rest = segment.extend(refs);
                if rest.len() < refs.len() {
                    self.extend.execute(params![
                        segment.last,
                        segment.count,
                        segment.bytes,
                        term,
                        property,
                        segment.first
                    ])?;
                }
            }
        }
        for segment in Segment::cut(rest) {
            self.insert.execute(params![
                term,
                property,
                segment.first,
                segment.last,
                segment.count,
                segment.bytes
            ])?;
        }
        Ok(())
    }
}
