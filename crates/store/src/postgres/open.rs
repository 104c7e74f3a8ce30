//! Opening a database: whose it is, and which schema it has.

use deadpool_postgres::ClientWrapper;

use super::address::Address;
use super::failure::Result;
use crate::StoreError;

mod embedded {
    refinery::embed_migrations!("src/postgres/migrations");
}

/// The table of migrations.
const HISTORY: &str = "gristmill.migration";

/// Makes and migrates the store where that is needed, one process at a time. Gives back the connection.
pub(super) async fn set_up(address: &Address) -> Result<ClientWrapper> {
    let mut client = address.connect().await?;
    if schema_version(&client).await? == Some(known_version()) {
        forget_old_writers(&client).await?;
        return Ok(client);
    }
    // Released with the connection, too.
    client
        .batch_execute("SELECT pg_advisory_lock(1196576076, 1)")
        .await?;
    let found = schema_version(&client).await?;
    if found.unwrap_or(0) > known_version() {
        return Err(StoreError::NewerSchema {
            path: address.as_str().into(),
            found: found.unwrap_or(0),
            known: known_version(),
        }
        .into());
    }
    check_server(&client, address).await?;
    client
        .batch_execute("CREATE SCHEMA IF NOT EXISTS gristmill")
        .await?;
    let mut runner = embedded::migrations::runner().set_grouped(true);
    runner.set_migration_table_name(HISTORY);
    if let Err(error) = runner.run_async(&mut *client).await {
        return Err(StoreError::Open {
            path: address.as_str().into(),
            reason: format!(
                "its schema could not be brought from version {} to {}: {}",
                found.unwrap_or(0),
                known_version(),
                chain(&error)
            ),
        }
        .into());
    }
    client
        .batch_execute("SELECT pg_advisory_unlock(1196576076, 1)")
        .await?;
    Ok(client)
}

/// The oldest version that has multiranges, in PostgreSQL's form (14.0).
const SERVER_VERSION_MIN: i32 = 140_000;

/// Refuses a server or a database that cannot hold the schema.
async fn check_server(client: &ClientWrapper, address: &Address) -> Result<()> {
    let row = client
        .query_one(
            "SELECT current_setting('server_version_num')::integer, current_setting('server_version'), getdatabaseencoding()::text",
            &[],
        )
        .await?;
    let (number, version, encoding): (i32, &str, &str) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let reason = if number < SERVER_VERSION_MIN {
        format!("it is PostgreSQL {version}, and this program needs 14 or newer")
    } else if encoding != "UTF8" {
        format!(
            "its encoding is {encoding}; make one with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
        )
    } else {
        return Ok(());
    };
    Err(StoreError::Open {
        path: address.as_str().into(),
        reason,
    }
    .into())
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
async fn schema_version(client: &ClientWrapper) -> Result<Option<i64>> {
    let exists: bool = client
        .query_one("SELECT to_regclass('gristmill.migration') IS NOT NULL", &[])
        .await?
        .try_get(0)?;
    if !exists {
        return Ok(None);
    }
    let version: Option<i32> = client
        .query_one("SELECT max(version) FROM gristmill.migration", &[])
        .await?
        .try_get(0)?;
    Ok(version.map(i64::from))
}

/// Takes the rows away of connections that ended long ago, with processes that could not do it by themselves.
async fn forget_old_writers(client: &ClientWrapper) -> Result<()> {
    client
        .batch_execute("DELETE FROM gristmill.writer WHERE at < now() - interval '1 day'")
        .await?;
    Ok(())
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(&format!(": {error}"));
        source = error.source();
    }
    text
}
