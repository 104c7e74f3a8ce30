//! Making the schema, and bringing it up to date.

use deadpool_postgres::Object;

use super::connection::{Database, Failure, Result, in_words};
use crate::error::MemoryError;

mod embedded {
    refinery::embed_migrations!("src/store/postgres/migrations");
}

/// The table of migrations.
const HISTORY: &str = "gristmill_memory.migration";

/// One process at a time makes or migrates a knowledge base. The first number says whose lock it is: `GRMK`.
const LOCK: &str = "SELECT pg_advisory_lock(1196575051, 1)";
const UNLOCK: &str = "SELECT pg_advisory_unlock(1196575051, 1)";

/// Makes the knowledge base where `create` allows it, and brings its schema up to the version of this program.
pub(super) async fn set_up(database: &Database, create: bool) -> Result<()> {
    let mut connection = database.connection().await?;
    let found = schema_version(&connection).await?;
    if found.is_none() && !create {
        return Err(Failure::Refused(MemoryError::Missing {
            path: database.shown(),
        }));
    }
    if found == Some(known_version()) {
        return Ok(());
    }
    connection.batch_execute(LOCK).await?;
    let migrated = migrate(database, &mut connection).await;
    if migrated.is_err() {
        // The lock goes with the connection, which is in no state to be used again.
        drop(Object::take(connection));
        return migrated;
    }
    connection.batch_execute(UNLOCK).await?;
    Ok(())
}

async fn migrate(database: &Database, connection: &mut Object) -> Result<()> {
    // Another process may have been faster.
    let found = schema_version(connection).await?.unwrap_or(0);
    let known = known_version();
    if found > known {
        return Err(Failure::Refused(MemoryError::NewerSchema {
            path: database.shown(),
            found,
            known,
        }));
    }
    connection
        .batch_execute("CREATE SCHEMA IF NOT EXISTS gristmill_memory")
        .await?;
    let mut runner = embedded::migrations::runner().set_grouped(true);
    runner.set_migration_table_name(HISTORY);
    let migrated = runner.run_async(&mut ***connection).await;
    migrated.map(|_| ()).map_err(|error| {
        Failure::Connection(format!(
            "migrating its schema from version {found} to {known} failed: {}",
            in_words(&error)
        ))
    })
}

/// The newest schema version that this program knows.
fn known_version() -> i64 {
    let runner = embedded::migrations::runner();
    let versions = runner
        .get_migrations()
        .iter()
        .map(|migration| i64::from(migration.version()));
    versions.max().unwrap_or(0)
}

/// The version of the schema in the database; `None` where there is none.
async fn schema_version(connection: &Object) -> Result<Option<i64>> {
    let exists: bool = connection
        .query_one(
            "SELECT to_regclass('gristmill_memory.migration') IS NOT NULL",
            &[],
        )
        .await?
        .try_get(0)?;
    if !exists {
        return Ok(None);
    }
    let version: Option<i32> = connection
        .query_one("SELECT max(version) FROM gristmill_memory.migration", &[])
        .await?
        .try_get(0)?;
    Ok(version.map(i64::from))
}
