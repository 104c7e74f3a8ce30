//! The index of the words in messages.

use std::collections::{BTreeMap, HashSet};

use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::damaged;
use crate::store::posting::{NewWords, Segment, decode};

/// Finds the messages that contain words.
pub(super) fn messages_with(connection: &Connection, words: &[String]) -> rusqlite::Result<Vec<Vec<u32>>> {
    let mut statement = connection
        .prepare_cached("SELECT first_message, messages FROM word WHERE word = ? ORDER BY first_message")?;
    let mut found = Vec::with_capacity(words.len());
    for word in words {
        let mut messages = Vec::new();
        let mut rows = statement.query([word])?;
        while let Some(row) = rows.next()? {
            let bytes = row.get_ref(1)?.as_blob()?;
            decode(row.get(0)?, bytes, &mut messages).ok_or_else(|| damaged("the index of words", word))?;
        }
        found.push(messages);
    }
    Ok(found)
}

/// Lists words that begin with `prefix`, in order.
pub(super) fn beginning(
    connection: &Connection,
    prefix: &str,
    limit: usize,
) -> rusqlite::Result<Vec<String>> {
    // Each step finds one word, whatever the number of its segments.
    let mut next = connection.prepare_cached("SELECT min(word) FROM word WHERE word > ?")?;
    let mut words = Vec::new();
    let mut at = prefix.to_owned();
    while words.len() < limit {
        let found: Option<String> = next.query_row([&at], |row| row.get(0))?;
        let Some(word) = found.filter(|word| word.starts_with(prefix)) else {
            break;
        };
        at.clone_from(&word);
        words.push(word);
    }
    Ok(words)
}

/// Writes the words of new messages: to the last segment of each word while it has room, and then to new segments.
pub(super) fn write(transaction: &Transaction<'_>, words: &mut NewWords) -> rusqlite::Result<()> {
    let mut last = transaction.prepare_cached(
        "SELECT first_message, last_message, count, messages FROM word WHERE word = ?
         ORDER BY first_message DESC LIMIT 1",
    )?;
    let mut extend = transaction.prepare_cached(
        "UPDATE word SET last_message = ?, count = ?, messages = ? WHERE word = ? AND first_message = ?",
    )?;
    for (word, messages) in words.take() {
        let segment = last.query_row([&word], |row| {
            Ok(Segment {
                first: row.get(0)?,
                last: row.get(1)?,
                count: row.get(2)?,
                bytes: row.get(3)?,
            })
        });
        let mut rest = &messages[..];
        if let Some(mut segment) = segment.optional()? {
            rest = segment.extend(&messages);
            if rest.len() < messages.len() {
                extend.execute(params![
                    segment.last,
                    segment.count,
                    segment.bytes,
                    word,
                    segment.first
                ])?;
            }
        }
        for segment in Segment::cut(rest) {
            insert(transaction, &word, &segment)?;
        }
    }
    Ok(())
}

fn insert(transaction: &Transaction<'_>, word: &str, segment: &Segment) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(
            "INSERT INTO word (word, first_message, last_message, count, messages) VALUES (?, ?, ?, ?, ?)",
        )?
        .execute(params![
            word,
            segment.first,
            segment.last,
            segment.count,
            segment.bytes
        ])?;
    Ok(())
}

/// Removes messages from the segments of their words.
pub(super) fn remove(
    transaction: &Transaction<'_>,
    removed: &BTreeMap<String, HashSet<u32>>,
) -> rusqlite::Result<()> {
    let mut select = transaction.prepare_cached(
        "SELECT first_message, messages FROM word WHERE word = ? AND first_message <= ? AND last_message >= ?",
    )?;
    let mut delete = transaction.prepare_cached("DELETE FROM word WHERE word = ? AND first_message = ?")?;
    for (word, messages) in removed {
        let (Some(lowest), Some(highest)) = (messages.iter().min(), messages.iter().max()) else {
            continue;
        };
        let rows = select.query_map(params![word, highest, lowest], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
        let segments: Vec<(u32, Vec<u8>)> = rows.collect::<rusqlite::Result<_>>()?;
        for (first, bytes) in segments {
            let mut left = Vec::new();
            decode(first, &bytes, &mut left).ok_or_else(|| damaged("the index of words", word))?;
            let before = left.len();
            left.retain(|message| !messages.contains(message));
            if left.len() == before {
                continue;
            }
            delete.execute(params![word, first])?;
            if let Some(segment) = Segment::of(&left) {
                insert(transaction, word, &segment)?;
            }
        }
    }
    Ok(())
}
