//! Gives the free pages of the file back to the disk after a prune, in portions.
//!
//! SQLite moves pages from the end of the file to free ones before it, and cuts the file with the next checkpoint. Some free
//! pages stay for the next jobs, which would otherwise let the file grow again at once. Files that were made without
//! `auto_vacuum` keep their size.
//!
//! For each page, SQLite may search the whole list of free pages: with gigabytes of them, that takes a millisecond. So a portion ends
//! after some milliseconds, and others write between two portions. While somebody reads an old state of the file, the log keeps all
//! moved pages: the last portion is the one that lets it grow too much.

use std::sync::Arc;

use gristmill_store::StoreError;
use rusqlite::Connection;

use crate::failure::Result;
use crate::limits::{
    FREE_PAGES_KEPT_MIN, FREE_PAGES_KEPT_SHARE, LOG_BYTES_KEPT_MAX, SHRINK_MAX_MS, SHRINK_PAUSE,
    SHRINK_PORTION_MS, VACUUMED_PAGES_PER_TRANSACTION,
};
use crate::transaction::Transaction;
use crate::writer::operation::Durability;
use crate::{SqliteStore, SteadyClock, log_path};

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
    /// Gives a portion of the spare pages back. Returns whether there are more. Others may have used some since the last portion.
    fn give_pages_back(&self, clock: &dyn SteadyClock) -> Result<bool> {
        let pages = spare_pages(self.connection)?.min(VACUUMED_PAGES_PER_TRANSACTION);
        if pages == 0 {
            return Ok(false);
        }
        let until_ms = clock.now_ms() + SHRINK_PORTION_MS;
        let mut statement = self
            .connection
            .prepare(&format!("PRAGMA incremental_vacuum({pages})"))?;
        let mut rows = statement.query([])?;
        // Each step gives back one page.
        while rows.next()?.is_some() && clock.now_ms() < until_ms {}
        drop(rows);
        Ok(spare_pages(self.connection)? > 0)
    }
}

impl SqliteStore {
    /// Gives spare free pages back, for a limited time; the next prune goes on. A failure is only logged: the pages stay free.
    pub(crate) async fn shrink_or_warn(&self) {
        if let Err(error) = self.shrink().await {
            tracing::warn!(%error, "free pages of the file could not be given back");
        }
    }

    async fn shrink(&self) -> std::result::Result<(), StoreError> {
        // A transaction that changes nothing would still take the write lock.
        if self.read(spare_pages).await? == 0 {
            return Ok(());
        }
        let log = log_path(&self.path);
        // Without a log there are no pages in it.
        let log_bytes = || std::fs::metadata(&log).map_or(0, |log| log.len());
        let log_bytes_max = log_bytes().max(LOG_BYTES_KEPT_MAX);
        let clock = self.clock.steady();
        let until_ms = clock.now_ms() + SHRINK_MAX_MS;
        loop {
            let of_portion = Arc::clone(clock);
            let has_more = self
                .write_with(Durability::Needless, 0, move |transaction| {
                    transaction.give_pages_back(&*of_portion)
                })
                .await?;
            if !has_more || clock.now_ms() >= until_ms || log_bytes() > log_bytes_max {
                return Ok(());
            }
            tokio::time::sleep(SHRINK_PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use gristmill_model::{SplitMix64, Timestamp};

    use super::*;
    use crate::transaction::Memory;

    /// A clock that each look sets forward.
    #[derive(Debug)]
    struct Ticking {
        now_ms: AtomicI64,
        tick_ms: i64,
    }

    impl SteadyClock for Ticking {
        fn now_ms(&self) -> i64 {
            self.now_ms.fetch_add(self.tick_ms, Ordering::Relaxed)
        }

        fn boot(&self) -> &str {
            ""
        }
    }

    const FREE_PAGES: i64 = 3_000;

    /// A database with so many free pages before its last ones.
    fn with_free_pages() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        let sql = "PRAGMA auto_vacuum = INCREMENTAL; CREATE TABLE gone (x); CREATE TABLE kept (x); \
             INSERT INTO gone SELECT zeroblob(4000) FROM generate; \
             INSERT INTO kept VALUES (zeroblob(9000)); DELETE FROM gone";
        let numbers = format!(
            "(WITH RECURSIVE n (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM n WHERE n < {FREE_PAGES}) SELECT n FROM n)"
        );
        connection
            .execute_batch(&sql.replace("generate", &numbers))
            .unwrap();
        connection
    }

    fn give_back(connection: &Connection, tick_ms: i64) -> (bool, i64) {
        let free = || -> i64 {
            connection
                .pragma_query_value(None, "freelist_count", |row| row.get(0))
                .unwrap()
        };
        let clock = Ticking {
            now_ms: AtomicI64::new(0),
            tick_ms,
        };
        let mut memory = Memory::new(Box::new(SplitMix64::new(1)));
        let before = free();
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        let has_more = Transaction::new(connection, &mut memory, Timestamp(0))
            .give_pages_back(&clock)
            .unwrap();
        connection.execute_batch("COMMIT").unwrap();
        (has_more, before - free())
    }

    #[test]
    fn a_portion_ends_after_some_milliseconds() {
        let connection = with_free_pages();
        assert_eq!(give_back(&connection, 1), (true, SHRINK_PORTION_MS));
        assert_eq!(give_back(&connection, 0), (true, VACUUMED_PAGES_PER_TRANSACTION));
    }

    /// Pages that were spare at the beginning, and that others have used since, are not given back in place of those that stay.
    #[test]
    fn the_pages_that_stay_are_counted_in_each_portion() {
        let connection = with_free_pages();
        assert!(give_back(&connection, 1).0);
        let sql = "WITH RECURSIVE n (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM n WHERE n < 2500) \
             INSERT INTO kept SELECT zeroblob(4000) FROM n";
        connection.execute_batch(sql).unwrap();
        assert_eq!(give_back(&connection, 0), (false, 0));
    }
}
