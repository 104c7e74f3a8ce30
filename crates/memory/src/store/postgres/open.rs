//! Creates the schema, and migrates it to the layout of this program.

use gristmill_postgres_link::layout::{Error, SchemaLayout};
use gristmill_store::layout::Layout;

use super::connection::{Database, Failure, Result};
use crate::error::MemoryError;

/// The schema `gristmill_memory`.
const LAYOUT: SchemaLayout = SchemaLayout {
    schema: "gristmill_memory",
    layout: Layout {
        tables: &[
            include_str!("schema/tables.sql"),
            include_str!("schema/failure_places.sql"),
        ],
        code: &[include_str!("schema/views.sql")],
    },
    stop_others: |_| String::new(),
};

/// Creates a missing knowledge base if `create` is set, and migrates it to the layout of this program.
pub(super) async fn set_up(database: &Database, create: bool) -> Result<()> {
    let refused = |error: Error| {
        let failed = |cause| database.error(Failure::Database(cause));
        Failure::Refused(MemoryError::of_layout(
            error,
            database.shown(),
            &LAYOUT.layout,
            failed,
        ))
    };
    let mut connection = database.connection().await?;
    let found = LAYOUT.read(&**connection).await.map_err(refused)?;
    if found.is_none() && !create {
        return Err(Failure::Refused(MemoryError::Missing {
            path: database.shown(),
        }));
    }
    if LAYOUT.is_current(&**connection).await.map_err(refused)? {
        return Ok(());
    }
    LAYOUT.apply(&mut connection).await.map_err(refused)
}
