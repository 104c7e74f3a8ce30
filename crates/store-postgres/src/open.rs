//! Opening a database: which layout it has, and whether its server can hold it.

use deadpool_postgres::ClientWrapper;
use gristmill_postgres_link::Address;
use gristmill_postgres_link::layout::{Error, SchemaLayout};
use gristmill_store::StoreError;
use gristmill_store::layout::Layout;

use crate::failure::{Failure, Remedy, Result, WRITER_LAYOUT};
use crate::limits::CONNECTION_MAKING_MAX;

/// The schema `gristmill`.
pub(crate) const LAYOUT: SchemaLayout = SchemaLayout {
    schema: "gristmill",
    layout: Layout {
        tables: &[include_str!("schema/tables.sql")],
        code: &[
            include_str!("schema/packed.sql"),
            include_str!("schema/options.sql"),
            include_str!("schema/keys.sql"),
            include_str!("schema/settle.sql"),
            include_str!("schema/families.sql"),
            include_str!("schema/flows.sql"),
            include_str!("schema/change.sql"),
            include_str!("schema/pause.sql"),
            include_str!("schema/submit.sql"),
            include_str!("schema/view.sql"),
            include_str!("schema/events.sql"),
            include_str!("schema/grants.sql"),
        ],
    },
    stop_others: refuse_others,
};

/// From this change on, connections of programs with another layout write nothing: each operation writes a row of
/// `writer`, with the layout of its program, usually before it locks anything else. So this also waits until no
/// operation is in progress.
fn refuse_others(layout: &str) -> String {
    format!(
        "ALTER TABLE gristmill.writer DROP CONSTRAINT IF EXISTS {WRITER_LAYOUT}; \
         ALTER TABLE gristmill.writer ADD CONSTRAINT {WRITER_LAYOUT} CHECK (layout = '{layout}') NOT VALID"
    )
}

/// Makes and migrates the store if needed, one process at a time. Returns the connection.
pub(crate) async fn set_up(address: &Address) -> Result<ClientWrapper> {
    let refused = |error| refusal(error, address);
    let connecting = async {
        let client = address.connect().await?;
        address.find_pooler(&client).await?;
        let is_current = LAYOUT.is_current(&*client).await.map_err(refused)?;
        Ok::<_, Failure>((client, is_current))
    };
    let connected = tokio::time::timeout(CONNECTION_MAKING_MAX, connecting).await;
    let (mut client, is_current) = connected.map_err(|_| {
        let limit_s = CONNECTION_MAKING_MAX.as_secs();
        Failure::Unanswered(format!("a new connection got no answer within {limit_s} s"))
    })??;
    if is_current {
        return Ok(client);
    }
    check_server(&client, address).await?;
    let is_standby: bool = client
        .query_typed_one("SELECT pg_is_in_recovery()", &[])
        .await?
        .try_get(0)?;
    if is_standby {
        return Err(Failure::ReadOnly(
            "it is a standby, and its layout is not this program's; open the store once with this version on the primary"
                .to_owned(),
        ));
    }
    LAYOUT.apply(&mut client).await.map_err(refused)?;
    Ok(client)
}

fn refusal(error: Error, address: &Address) -> Failure {
    let path = address.as_str().into();
    let known = LAYOUT.layout.version();
    match error {
        Error::Newer(found) => StoreError::newer(path, found, known).into(),
        Error::Development => StoreError::Development { path }.into(),
        Error::Failed { found, cause } => match Failure::from(cause) {
            cause if cause.remedy() == Remedy::None => StoreError::Open {
                path,
                reason: format!(
                    "its layout could not be brought from version {found} to {known}: {}",
                    cause.reason()
                ),
            }
            .into(),
            passing => passing,
        },
        Error::Database(cause) => cause.into(),
    }
}

/// The oldest version that has multiranges in PostgreSQL's form (14.0).
const SERVER_VERSION_MIN: i32 = 140_000;

/// Refuses a server or a database that cannot hold the schema.
async fn check_server(client: &ClientWrapper, address: &Address) -> Result<()> {
    let row = client
        .query_typed_one(
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

#[cfg(test)]
mod tests;
