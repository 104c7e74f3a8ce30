//! The index of the words in messages.

use std::collections::{BTreeMap, HashMap, HashSet};

use deadpool_postgres::{Object, Transaction};
use tokio_postgres::Row;

use super::connection::{Result, damaged};
use super::without_nul;
use crate::limits::{POSTGRES_TERMS_AT_ONCE, SEGMENT_REFS_MAX};
use crate::store::posting::{NewWords, Segment, decode};

/// Finds the messages that contain words.
pub(super) async fn messages_with(connection: &Object, words: &[String]) -> Result<Vec<Vec<u32>>> {
    let statement = connection
        .prepare_cached(
            "SELECT word, first_message, messages FROM word WHERE word = ANY ($1) ORDER BY word, first_message",
        )
        .await?;
    let asked: Vec<String> = words.iter().map(|word| without_nul(word.clone())).collect();
    let mut found: HashMap<String, Vec<u32>> = HashMap::new();
    for row in connection.query(&statement, &[&asked]).await? {
        let messages = match found.get_mut(row.try_get::<_, &str>(0)?) {
            Some(messages) => messages,
            None => found.entry(row.try_get(0)?).or_default(),
        };
        decode_row(&row, 1, messages)?;
    }
    let in_order = asked.iter().map(|word| found.get(word).cloned());
    Ok(in_order.map(Option::unwrap_or_default).collect())
}

fn decode_row(row: &Row, first: usize, messages: &mut Vec<u32>) -> Result<()> {
    let number: i64 = row.try_get(first)?;
    decode(number as u32, row.try_get(first + 1)?, messages)
        .ok_or_else(|| damaged("the index of words", number))
}

/// Lists words that begin with `prefix`, in order.
pub(super) async fn beginning(connection: &Object, prefix: &str, limit: usize) -> Result<Vec<String>> {
    let statement = connection
        .prepare_cached(
            "SELECT DISTINCT word FROM word WHERE word > $1 AND word < $1 || chr(1114111) ORDER BY word LIMIT $2",
        )
        .await?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = connection
        .query(&statement, &[&without_nul(prefix.to_owned()), &limit])
        .await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// Writes the words of new messages: to the last segment of each word while it has room, and then to new segments.
pub(super) async fn write(transaction: &Transaction<'_>, words: &mut NewWords) -> Result<()> {
    let words = words.take();
    for part in words.chunks(POSTGRES_TERMS_AT_ONCE) {
        let mut last = last_segments(transaction, part).await?;
        let (mut extended, mut new) = (Rows::default(), Rows::default());
        for (word, messages) in part {
            let mut rest = &messages[..];
            if let Some(mut segment) = last.remove(word) {
                rest = segment.extend(messages);
                extended.add(word, segment);
            }
            for segment in Segment::cut(rest) {
                new.add(word, segment);
            }
        }
        extended
            .run(
                transaction,
                "UPDATE word SET last_message = new.last_message, count = new.count, messages = new.messages
                 FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::int[], $5::bytea[])
                     AS new (word, first_message, last_message, count, messages)
                 WHERE word.word = new.word AND word.first_message = new.first_message",
            )
            .await?;
        new.insert(transaction).await?;
    }
    Ok(())
}

/// Reads the last segments of words that have room.
async fn last_segments(
    transaction: &Transaction<'_>,
    words: &[(String, Vec<u32>)],
) -> Result<HashMap<String, Segment>> {
    let texts: Vec<&str> = words.iter().map(|(word, _)| word.as_str()).collect();
    let statement = transaction
        .prepare_cached(
            "SELECT wanted.word, last.first_message, last.last_message, last.count, last.messages
             FROM unnest($1::text[]) AS wanted (word)
             CROSS JOIN LATERAL (
                 SELECT * FROM word WHERE word.word = wanted.word ORDER BY first_message DESC LIMIT 1
             ) AS last WHERE last.count < $2",
        )
        .await?;
    let rows = transaction
        .query(&statement, &[&texts, &(SEGMENT_REFS_MAX as i32)])
        .await?;
    rows.iter()
        .map(|row| {
            let segment = Segment {
                first: row.try_get::<_, i64>(1)? as u32,
                last: row.try_get::<_, i64>(2)? as u32,
                count: row.try_get::<_, i32>(3)? as u32,
                bytes: row.try_get(4)?,
            };
            Ok((row.try_get(0)?, segment))
        })
        .collect()
}

/// Removes messages from the segments of their words.
pub(super) async fn remove(
    transaction: &Transaction<'_>,
    removed: BTreeMap<String, HashSet<u32>>,
) -> Result<()> {
    let removed: Vec<(String, HashSet<u32>)> = removed.into_iter().collect();
    for part in removed.chunks(POSTGRES_TERMS_AT_ONCE) {
        remove_part(transaction, part).await?;
    }
    Ok(())
}

async fn remove_part(transaction: &Transaction<'_>, removed: &[(String, HashSet<u32>)]) -> Result<()> {
    let bound = |of: fn(&HashSet<u32>) -> Option<&u32>| -> Vec<i64> {
        let bounds = removed.iter().map(|(_, messages)| of(messages));
        bounds
            .map(|bound| bound.map_or(-1, |&message| i64::from(message)))
            .collect()
    };
    let words: Vec<&str> = removed.iter().map(|(word, _)| word.as_str()).collect();
    let lowest = bound(|messages| messages.iter().min());
    let highest = bound(|messages| messages.iter().max());
    let statement = transaction
        .prepare_cached(
            "SELECT removed.place, word.first_message, word.messages
             FROM unnest($1::text[], $2::bigint[], $3::bigint[]) WITH ORDINALITY
                 AS removed (word, lowest, highest, place)
             JOIN word ON word.word = removed.word AND word.first_message <= removed.highest
                 AND word.last_message >= removed.lowest",
        )
        .await?;
    let rows = transaction
        .query(&statement, &[&words, &lowest, &highest])
        .await?;
    let (mut gone_words, mut gone_firsts) = (Vec::new(), Vec::new());
    let mut left = Rows::default();
    for row in rows {
        let (word, removed) = &removed[row.try_get::<_, i64>(0)? as usize - 1];
        let mut messages = Vec::new();
        decode_row(&row, 1, &mut messages)?;
        let before = messages.len();
        messages.retain(|message| !removed.contains(message));
        if messages.len() == before {
            continue;
        }
        assert!(
            messages.len() < before,
            "removing messages shortens their segment"
        );
        gone_words.push(word.as_str());
        gone_firsts.push(row.try_get::<_, i64>(1)?);
        if let Some(segment) = Segment::of(&messages) {
            left.add(word, segment);
        }
    }
    let statement = transaction
        .prepare_cached(
            "DELETE FROM word USING unnest($1::text[], $2::bigint[]) AS gone (word, first_message)
             WHERE word.word = gone.word AND word.first_message = gone.first_message",
        )
        .await?;
    transaction
        .execute(&statement, &[&gone_words, &gone_firsts])
        .await?;
    left.insert(transaction).await
}

/// Segments to write, column by column.
#[derive(Default)]
struct Rows<'a> {
    words: Vec<&'a str>,
    firsts: Vec<i64>,
    lasts: Vec<i64>,
    counts: Vec<i32>,
    bytes: Vec<Vec<u8>>,
}

impl<'a> Rows<'a> {
    fn add(&mut self, word: &'a str, segment: Segment) {
        self.words.push(word);
        self.firsts.push(i64::from(segment.first));
        self.lasts.push(i64::from(segment.last));
        self.counts.push(segment.count as i32);
        self.bytes.push(segment.bytes);
    }

    async fn insert(&self, transaction: &Transaction<'_>) -> Result<()> {
        self.run(
            transaction,
            "INSERT INTO word (word, first_message, last_message, count, messages)
             SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::int[], $5::bytea[])",
        )
        .await
    }

    async fn run(&self, transaction: &Transaction<'_>, sql: &str) -> Result<()> {
        if self.words.is_empty() {
            return Ok(());
        }
        assert!(
            self.words.len() == self.firsts.len() && self.words.len() == self.bytes.len(),
            "each segment fills each column"
        );
        let statement = transaction.prepare_cached(sql).await?;
        transaction
            .execute(
                &statement,
                &[&self.words, &self.firsts, &self.lasts, &self.counts, &self.bytes],
            )
            .await?;
        Ok(())
    }
}
