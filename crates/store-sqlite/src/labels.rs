//! The stored keys and tags of the jobs of a batch.

use std::borrow::Cow;

use gristmill_model::{BatchId, PackedArray, Tag};
use gristmill_store::integrity::keys_sum;
use rusqlite::{Connection, OptionalExtension};

use crate::failure::{Failure, Result};
use crate::sums::{damaged, in_batch};

/// Name, value, and positions; the positions are packed with those of the other tags of a batch.
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

/// The keys of a batch's jobs, and their scope.
#[derive(Debug)]
pub(crate) struct BatchKeys {
    pub scope: i64,
    pub keys: PackedArray,
}

/// The keys of a batch, if it has some.
pub(crate) fn keys_of(connection: &Connection, batch: BatchId) -> Result<Option<BatchKeys>> {
    let mut statement =
        connection.prepare_cached("SELECT scope, sum, keys FROM keyed WHERE batch_id = ?1")?;
    let keys = statement.query_row([batch.0], |row| {
        let (scope, sum, keys) = (row.get(0)?, row.get::<_, i64>(1)?, row.get_ref(2)?.as_str()?);
        Ok((keys_sum(batch, scope, keys) == sum).then(|| BatchKeys {
            scope,
            keys: PackedArray::from_stored(keys),
        }))
    });
    match in_batch(batch, "keyed", keys.optional().map_err(Failure::from))? {
        None => Ok(None),
        Some(Some(keys)) => Ok(Some(keys)),
        Some(None) => Err(damaged(
            batch,
            "keyed",
            "its keys have changed since they were stored",
        )),
    }
}
