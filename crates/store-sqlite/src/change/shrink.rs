//! Gives the free pages of the file back to the disk after a prune, in portions.
//!
//! SQLite moves pages from the end of the file to free ones before it, and cuts the file with the next checkpoint. Some free
//! pages stay for the next jobs, which would otherwise let the file grow again at once. Files that were made without
//! `auto_vacuum` keep their size.

use gristmill_store::StoreError;
use rusqlite::Connection;

use crate::SqliteStore;
use crate::failure::Result;
use crate::limits::{FREE_PAGES_KEPT_MIN, FREE_PAGES_KEPT_SHARE, VACUUMED_PAGES_PER_TRANSACTION};
use crate::transaction::Transaction;
use crate::writer::operation::Durability;

/// The value of `PRAGMA auto_vacuum` by which pages are given back on demand.
const INCREMENTAL: i64 = 2;

/// The number of free pages beyond those that stay.
fn spare_pages(connection: &Connection) -> Result<i64> {
    let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    if pragma("auto_vacuum")? != INCREMENTAL {
        return Ok(0);
    }
    let kept = FREE_PAGES_KEPT_MIN.max(pragma("page_count")? / FREE_PAGES_KEPT_SHARE);
    Ok((pragma("freelist_count")? - kept).max(0))
}

impl Transaction<'_> {
    /// Gives back so many free pages.
    fn give_pages_back(&self, pages: i64) -> Result<()> {
        let mut statement = self
            .connection
            .prepare(&format!("PRAGMA incremental_vacuum({pages})"))?;
        let mut rows = statement.query([])?;
        // Each step gives back one page.
        while rows.next()?.is_some() {}
        Ok(())
    }
}

impl SqliteStore {
    /// Gives back the free pages that are there at the beginning, except for those that stay. A failure is only logged: the
    /// pages stay free, and the next prune tries again.
    pub(crate) async fn shrink_or_warn(&self) {
        if let Err(error) = self.shrink().await {
            tracing::warn!(%error, "free pages of the file could not be given back");
        }
    }

    async fn shrink(&self) -> std::result::Result<(), StoreError> {
        let mut left = self.read(spare_pages).await?;
        while left > 0 {
            let pages = left.min(VACUUMED_PAGES_PER_TRANSACTION);
            self.write_with(Durability::Needless, 0, move |transaction| {
                transaction.give_pages_back(pages)
            })
            .await?;
            left -= pages;
        }
        Ok(())
    }
}
