//! The keys and tags of the jobs of a batch, as they are stored.

use std::borrow::Cow;

use gristmill_model::{BatchId, PackedArray, Tag};
use rusqlite::{Connection, OptionalExtension};

use crate::failure::Result;

/// Name, value, and positions as they are packed with those of the other tags of a batch.
pub(crate) type StoredTag<'t> = (Cow<'t, str>, Cow<'t, str>, Option<Cow<'t, str>>);

/// The tags of a batch.
pub(crate) fn tags_of_batch(connection: &Connection, batch: BatchId) -> Result<Vec<Tag>> {
    let mut statement = connection.prepare_cached("SELECT tags FROM tagged WHERE batch_id = ?1")?;
    let mut rows = statement.query([batch.0])?;
    let mut tags = Vec::new();
    if let Some(row) = rows.next()? {
        let packed = row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?;
        let packed: Vec<StoredTag<'_>> = serde_json::from_str(packed)?;
        for (name, value, positions) in packed {
            tags.push(Tag {
                positions: positions.map(|positions| positions.parse()).transpose()?,
                ..Tag::all(name.into_owned(), value.into_owned())
            });
        }
    }
    Ok(tags)
}

/// The keys of a batch's jobs, and what they belong to.
#[derive(Debug)]
pub(crate) struct BatchKeys {
    pub scope: i64,
    pub keys: PackedArray,
}

/// The keys of a batch, where it has some.
pub(crate) fn keys_of(connection: &Connection, batch: BatchId) -> Result<Option<BatchKeys>> {
    let mut statement = connection.prepare_cached("SELECT scope, keys FROM keyed WHERE batch_id = ?1")?;
    let keys = statement.query_row([batch.0], |row| {
        Ok(BatchKeys {
            scope: row.get(0)?,
            keys: PackedArray::from_stored(row.get_ref(1)?.as_str()?),
        })
    });
    Ok(keys.optional()?)
}
