//! Statements of a connection: prepared, or behind a pooler sent with their text each time. For the next transaction a
//! pooler may lend another server, which does not know earlier statements, or knows another program's statement by the
//! same name.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use deadpool_postgres::ClientWrapper;
use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::types::Type;

use crate::database::handle_cache::lock;
use crate::failure::{Failure, Result};
use crate::limits::PARAMETER_TYPES_MAX;

/// A statement that can be run.
#[derive(Debug, Clone)]
pub(crate) enum Statement {
    /// Prepared in the session.
    Prepared(tokio_postgres::Statement),
    /// Sent with its text.
    Text {
        /// The statement.
        sql: Arc<str>,
        /// The types of its parameters.
        types: Arc<[Type]>,
    },
}

impl Statement {
    /// The types of its parameters.
    pub fn types(&self) -> &[Type] {
        match self {
            Statement::Prepared(statement) => statement.params(),
            Statement::Text { types, .. } => types,
        }
    }
}

/// The parameter types of statements that a handle has run behind a pooler.
#[derive(Debug, Default)]
pub(crate) struct ParameterTypes {
    by_statement: Mutex<HashMap<Arc<str>, Arc<[Type]>>>,
    asked: AtomicU64,
}

impl ParameterTypes {
    /// The statement, if it has run before.
    pub fn known(&self, sql: &str) -> Option<Statement> {
        let by_statement = lock(&self.by_statement);
        let (sql, types) = by_statement.get_key_value(sql)?;
        Some(Statement::Text {
            sql: sql.clone(),
            types: types.clone(),
        })
    }

    /// The statement, with the types that the database finds for its parameters. One request prepares it under a unique
    /// name and deletes it, so no pooler comes between.
    pub async fn learn(&self, client: &ClientWrapper, sql: &str) -> Result<Statement> {
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        let name = format!("gristmill {} {number}", std::process::id());
        let request = format!(
            "PREPARE \"{name}\" AS {sql}; \
             SELECT array_to_string(parameter_types::oid[], ' ') FROM pg_prepared_statements WHERE name = '{name}'; \
             DEALLOCATE \"{name}\""
        );
        let answers = client.simple_query(&request).await?;
        let listed = answers.iter().find_map(|answer| match answer {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        let types = listed.unwrap_or_default().split_whitespace().map(|oid| {
            let found = oid.parse().ok().and_then(Type::from_oid);
            found.ok_or_else(|| {
                Failure::Damaged(format!(
                    "a statement has a parameter of the unknown type {oid}: {sql}"
                ))
            })
        });
        let types: Arc<[Type]> = types.collect::<Result<Vec<_>>>()?.into();
        let sql: Arc<str> = sql.into();
        let mut by_statement = lock(&self.by_statement);
        if by_statement.len() >= PARAMETER_TYPES_MAX {
            by_statement.clear();
        }
        by_statement.insert(sql.clone(), types.clone());
        Ok(Statement::Text { sql, types })
    }
}
