//! Tags and groups, and the jobs that a filter's keys and tags select.

use std::borrow::Cow;
use std::collections::BTreeMap;

use gristmill_model::limits::BATCH_JOBS_MAX;
use gristmill_model::{BatchId, Positions, Tag, TagCondition};
use gristmill_store::query::Narrowed;
use gristmill_store::{JobFilter, TagValue};
use rusqlite::{Connection, params};

use crate::columns::read_positions;
use crate::failure::Result;
use crate::graph::family::all_children;
use crate::labels::{StoredTag, tags_of_batch};
use crate::transaction::Transaction;

impl Transaction<'_> {
    /// Stores the tags of a batch of `count` jobs.
    pub fn insert_tags(&self, batch: BatchId, count: u32, tags: &[Tag]) -> Result<()> {
        // In the order of the key, which is the fastest for a b-tree.
        let mut tags: Vec<&Tag> = tags.iter().collect();
        tags.sort_unstable_by_key(|tag| (&tag.name, &tag.value));
        let mut insert = self.connection.prepare_cached(
            "INSERT INTO tag (name, value, batch_id, count, positions) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?;
        let mut packed: Vec<StoredTag<'_>> = Vec::with_capacity(tags.len());
        for tag in tags {
            let positions = tag.positions.as_ref().map(Positions::to_string);
            let jobs = tag.positions.as_ref().map_or(count, Positions::len);
            insert.execute(params![tag.name, tag.value, batch.0, jobs, positions])?;
            packed.push((
                Cow::Borrowed(&tag.name),
                Cow::Borrowed(&tag.value),
                positions.map(Cow::Owned),
            ));
        }
        self.execute(
            "INSERT INTO tagged (batch_id, tags) VALUES (?1, ?2)",
            params![batch.0, serde_json::to_string(&packed)?],
        )?;
        Ok(())
    }

    /// Deletes the tags of a batch.
    pub fn delete_tags(&self, batch: BatchId) -> Result<()> {
        self.execute(
            // Each by its whole key: with a list of all three columns SQLite seeks by two of them, through all batches
            // with the tag.
            "DELETE FROM tag WHERE batch_id = ?1 AND (name, value) IN ( \
             SELECT j.value ->> 0, j.value ->> 1 FROM tagged t CROSS JOIN json_each(t.tags) j WHERE t.batch_id = ?1)",
            [batch.0],
        )?;
        self.execute("DELETE FROM tagged WHERE batch_id = ?1", [batch.0])?;
        Ok(())
    }
}

/// The jobs that the filter's keys and tags select; `None` if it has none.
pub(crate) fn narrowed(connection: &Connection, filter: &JobFilter) -> Result<Option<Narrowed>> {
    if !filter.tells_jobs_apart() {
        return Ok(None);
    }
    let mut left: Option<Narrowed> = None;
    let mut narrow = |found: Narrowed| {
        left = Some(match left.take() {
            None => found,
            Some(left) => both(&left, &found),
        });
    };
    for condition in &filter.tags {
        narrow(tagged(connection, condition, filter.batch)?);
    }
    if filter.key.is_some() || filter.key_prefix.is_some() {
        narrow(keyed(connection, filter)?);
    }
    if let Some(parent) = filter.parent {
        narrow(all_children(connection, parent)?);
    }
    Ok(left)
}

fn both(left: &Narrowed, found: &Narrowed) -> Narrowed {
    let both = left.iter().filter_map(|(batch, positions)| {
        let positions = positions.intersection(found.get(batch)?);
        (!positions.is_empty()).then_some((*batch, positions))
    });
    both.collect()
}

/// The end of the names that begin with a text.
const AFTER_PREFIX: &str = "char(1114111)";

fn tagged(connection: &Connection, condition: &TagCondition, batch: Option<BatchId>) -> Result<Narrowed> {
    let mut sql = "SELECT batch_id, positions FROM tag WHERE ".to_owned();
    sql.push_str(if condition.prefix {
        "name >= ?1 AND name < ?1 || "
    } else {
        "name = ?1"
    });
    if condition.prefix {
        sql.push_str(AFTER_PREFIX);
    }
    sql.push_str(match condition.value {
        Some(_) => " AND value = ?2",
        None => " AND ?2 IS NULL",
    });
    sql.push_str(match batch {
        Some(_) => " AND batch_id = ?3",
        None => " AND ?3 IS NULL",
    });
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params![
        condition.name,
        condition.value,
        batch.map(|batch| batch.0)
    ])?;
    let mut found = Narrowed::new();
    while let Some(row) = rows.next()? {
        let positions = match row.get_ref(1)? {
            rusqlite::types::ValueRef::Null => Positions::all(BATCH_JOBS_MAX),
            _ => read_positions(row, 1)?,
        };
        let all = found.entry(BatchId(row.get(0)?)).or_default();
        *all = all.union(&positions);
    }
    Ok(found)
}

fn keyed(connection: &Connection, filter: &JobFilter) -> Result<Narrowed> {
    // Searches the text as a whole before it unpacks it. A text with an escape may have a key that it does not show.
    let mut statement = connection.prepare_cached(
        "SELECT b.batch_id, j.key FROM keyed b CROSS JOIN json_each(b.keys) j \
         WHERE (?1 IS NULL OR ((instr(b.keys, ?1) OR instr(b.keys, '\\')) AND j.value = ?1)) \
         AND (?2 IS NULL OR ((instr(b.keys, ?2) OR instr(b.keys, '\\')) AND substr(j.value, 1, length(?2)) = ?2)) \
         AND (?3 IS NULL OR b.batch_id = ?3)",
    )?;
    let mut rows = statement.query(params![
        filter.key,
        filter.key_prefix,
        filter.batch.map(|batch| batch.0)
    ])?;
    let mut found = Narrowed::new();
    while let Some(row) = rows.next()? {
        found.entry(BatchId(row.get(0)?)).or_default().insert(row.get(1)?);
    }
    Ok(found)
}

/// The tags of one job.
pub(crate) fn tags_of(
    connection: &Connection,
    batch: BatchId,
    position: u32,
) -> Result<BTreeMap<String, String>> {
    let tags = tags_of_batch(connection, batch)?.into_iter();
    let has = |tag: &Tag| (tag.positions.as_ref()).is_none_or(|positions| positions.contains(position));
    Ok(tags.filter(has).map(|tag| (tag.name, tag.value)).collect())
}

/// The values of a tag, after `after`.
pub(crate) fn tag_values(
    connection: &Connection,
    name: &str,
    after: Option<&str>,
    limit: u32,
) -> Result<Vec<TagValue>> {
    let mut statement = connection.prepare_cached(
        "SELECT value, sum(count) FROM tag WHERE name = ?1 AND (?2 IS NULL OR value > ?2) \
         GROUP BY value ORDER BY value LIMIT ?3",
    )?;
    let rows = statement.query_map(params![name, after, limit], |row| {
        Ok(TagValue {
            value: row.get(0)?,
            jobs: row.get::<_, i64>(1)?.unsigned_abs(),
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// The groups that lanes of a queue have and that begin with a text.
pub(crate) fn groups(
    connection: &Connection,
    queue: Option<&str>,
    prefix: &str,
    limit: u32,
) -> Result<Vec<String>> {
    let mut statement = connection.prepare_cached(
        "SELECT DISTINCT job_group FROM lane WHERE job_group <> '' AND (?1 IS NULL OR queue = ?1) \
         AND substr(job_group, 1, length(?2)) = ?2 ORDER BY job_group LIMIT ?3",
    )?;
    let rows = statement.query_map(params![queue, prefix, limit], |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}
