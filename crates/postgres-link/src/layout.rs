//! Layouts of schemas in PostgreSQL databases.

use gristmill_store::layout::{Found, Layout, LayoutError, PROGRAM};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, GenericClient, IsolationLevel, Transaction};

/// Finds out whether a schema has the tables `layout` and `migration`. It reads the catalogs themselves, because
/// `to_regclass` answers from the session's cache, which does not see what another session committed while this one
/// waited for the lock.
const TABLES: &str = "
    SELECT count(*) FILTER (WHERE relation.relname = 'layout') > 0,
        count(*) FILTER (WHERE relation.relname = 'migration') > 0
    FROM pg_catalog.pg_class AS relation
    JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = relation.relnamespace
    WHERE namespace.nspname = $1::text::name AND relation.relname IN ('layout', 'migration')";

/// Finds out whether there is a schema with this name.
const SCHEMA_EXISTS: &str =
    "SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1::text::name)";

/// The settings of a migration: no short limit of the role or the server ends it, and literals have the meaning that
/// its files expect. (Older servers have no `transaction_timeout`.)
const UNDISTURBED: &str = "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; \
    SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL standard_conforming_strings = on; \
    SELECT set_config(name, '0', true) FROM pg_catalog.pg_settings WHERE name = 'transaction_timeout'";

/// The number of attempts while other processes create the same schema at the same time.
const MAKING_ATTEMPTS_MAX: u32 = 20;

/// The error of a schema without the layout.
pub type Error = LayoutError<tokio_postgres::Error>;

/// The layout of one schema in a database.
#[derive(Debug, Clone, Copy)]
pub struct SchemaLayout {
    /// The schema's name, in plain letters.
    pub schema: &'static str,
    /// Its contents.
    pub layout: Layout,
    /// Statements that stop the programs of other layouts, by the id of this layout. They run before the migrations, so
    /// that no migration waits for an operation that waits for it. In a new database they run after its tables.
    pub stop_others: fn(&str) -> String,
}

impl SchemaLayout {
    /// The current layout of the schema. `None` without one.
    ///
    /// # Errors
    ///
    /// [`LayoutError::Development`] for a schema of a development version, [`LayoutError::Database`].
    pub async fn read(&self, client: &impl GenericClient) -> Result<Option<Found>, Error> {
        let row = client
            .query_typed_one(TABLES, &[(&self.schema, Type::TEXT)])
            .await?;
        let (exists, is_of_development): (bool, bool) = (row.try_get(0)?, row.try_get(1)?);
        if !exists {
            return if is_of_development {
                Err(LayoutError::Development)
            } else {
                Ok(None)
            };
        }
        let sql = format!(
            "SELECT version, tables, code, program, objects FROM {}",
            self.table("layout")
        );
        let row = client.query_typed_one(&sql, &[]).await?;
        Ok(Some(Found {
            version: row.try_get(0)?,
            tables: row.try_get(1)?,
            code: row.try_get(2)?,
            program: row.try_get(3)?,
            objects: row.try_get(4)?,
        }))
    }

    /// Reports whether the schema has this layout.
    ///
    /// # Errors
    ///
    /// [`LayoutError::Newer`] if it has the layout of a newer program, and the errors of [`read`](SchemaLayout::read).
    pub async fn is_current(&self, client: &impl GenericClient) -> Result<bool, Error> {
        match self.read(client).await? {
            Some(found) => self.layout.is_that_of(&found),
            None => Ok(false),
        }
    }

    /// Brings the schema to this layout in one transaction. Writes nothing if it already has it. Other processes that
    /// do the same wait meanwhile: for the lock of the table that records the layout, or, in a new schema, for its
    /// name. Only roles that may write to the schema can make them wait.
    ///
    /// # Errors
    ///
    /// The errors of [`is_current`](SchemaLayout::is_current), and [`LayoutError::Failed`].
    pub async fn apply(&self, client: &mut Client) -> Result<(), Error> {
        for _ in 1..MAKING_ATTEMPTS_MAX {
            match self.apply_once(client).await {
                Err(error) if is_of_another_maker(&error) => {}
                applied => return applied,
            }
        }
        self.apply_once(client).await
    }

    async fn apply_once(&self, client: &mut Client) -> Result<(), Error> {
        let transaction = client
            .build_transaction()
            .isolation_level(IsolationLevel::ReadCommitted)
            .start()
            .await?;
        transaction.batch_execute(UNDISTURBED).await?;
        let mut found = self.read(&transaction).await?;
        if found.is_some() {
            let lock = format!("LOCK TABLE {} IN EXCLUSIVE MODE", self.table("layout"));
            transaction.batch_execute(&lock).await?;
            // Another process may have been faster.
            found = self.read(&transaction).await?;
        }
        if let Some(found) = &found
            && self.layout.is_that_of(found)?
        {
            return Ok(());
        }
        let version = found.as_ref().map_or(0, |found| found.version);
        self.change(&transaction, found)
            .await
            .map_err(|cause| LayoutError::Failed {
                found: version,
                cause,
            })?;
        Ok(transaction.commit().await?)
    }

    async fn change(
        &self,
        transaction: &Transaction<'_>,
        found: Option<Found>,
    ) -> Result<(), tokio_postgres::Error> {
        let stop_others = (self.stop_others)(&self.layout.id());
        let is_new = found.is_none();
        let (version, before) = match found {
            Some(found) => {
                transaction.batch_execute(&stop_others).await?;
                (found.version, found.objects)
            }
            None => {
                self.begin(transaction).await?;
                (0, Vec::new())
            }
        };
        for migration in self.layout.split_at(version).1 {
            transaction.batch_execute(migration).await?;
        }
        if is_new {
            transaction.batch_execute(&stop_others).await?;
        }
        // A replaced object keeps the rights that were granted on it.
        transaction
            .execute_typed(FUNCTIONS_BEFORE, &[(&self.schema, Type::TEXT)])
            .await?;
        for file in self.layout.code {
            transaction.batch_execute(file).await?;
        }
        transaction
            .batch_execute("SET LOCAL search_path = pg_catalog, pg_temp")
            .await?;
        let rows = transaction
            .query_typed(OBJECTS_MADE, &[(&self.schema, Type::TEXT)])
            .await?;
        let objects: Vec<String> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        for object in before.iter().filter(|object| !objects.contains(object)) {
            transaction.batch_execute(&format!("DROP {object}")).await?;
        }
        let record = format!(
            "INSERT INTO {} (version, tables, code, program, objects) VALUES ($1, $2, $3, $4, $5) \
             ON CONFLICT (one) DO UPDATE SET version = excluded.version, tables = excluded.tables, \
             code = excluded.code, program = excluded.program, objects = excluded.objects",
            self.table("layout")
        );
        let (version, tables) = (self.layout.version(), self.layout.tables_digest());
        let code = self.layout.code_digest();
        transaction
            .execute_typed(
                &record,
                &[
                    (&version, Type::INT8),
                    (&tables, Type::TEXT),
                    (&code, Type::TEXT),
                    (&PROGRAM, Type::TEXT),
                    (&objects, Type::TEXT_ARRAY),
                ],
            )
            .await?;
        Ok(())
    }

    /// Creates the schema, unless the owner of the database has created it, and the table that records its layout.
    async fn begin(&self, transaction: &Transaction<'_>) -> Result<(), tokio_postgres::Error> {
        let exists: bool = transaction
            .query_typed_one(SCHEMA_EXISTS, &[(&self.schema, Type::TEXT)])
            .await?
            .try_get(0)?;
        if !exists {
            let create = format!("CREATE SCHEMA {}", self.schema);
            transaction.batch_execute(&create).await?;
        }
        let create = format!(
            "CREATE TABLE {} (
                one     boolean PRIMARY KEY DEFAULT true CHECK (one),
                version bigint NOT NULL, -- of the tables
                tables  text NOT NULL,   -- a digest of the files that made them
                code    text NOT NULL,   -- a digest of the views, functions and triggers
                program text NOT NULL,   -- the version of Gristmill that wrote this row
                objects text[] NOT NULL  -- those views, functions and triggers, each as DROP names it
            )",
            self.table("layout")
        );
        transaction.batch_execute(&create).await
    }

    fn table(&self, name: &str) -> String {
        format!("{}.{name}", self.schema)
    }
}

/// Reports whether another process has created the schema meanwhile, for which this one waited.
fn is_of_another_maker(error: &Error) -> bool {
    let code = match error {
        LayoutError::Failed { found: 0, cause } => cause.code(),
        _ => None,
    };
    let made = [
        SqlState::UNIQUE_VIOLATION,
        SqlState::DUPLICATE_SCHEMA,
        SqlState::DUPLICATE_TABLE,
    ];
    code.is_some_and(|code| made.contains(code))
}

/// Stores the existing functions for a file of rights.
const FUNCTIONS_BEFORE: &str = "SELECT set_config('gristmill.functions_before', coalesce(array_agg(oid), '{}')::text, true) \
    FROM pg_proc WHERE pronamespace = to_regnamespace($1)";

/// The views, functions and triggers that this transaction has created or replaced: it owns their rows. Triggers come
/// before views, and views before functions, because each may depend on later ones.
const OBJECTS_MADE: &str = "
    SELECT format('TRIGGER IF EXISTS %I ON %s', t.tgname, t.tgrelid::regclass) FROM pg_trigger t
    JOIN pg_class c ON c.oid = t.tgrelid
    WHERE c.relnamespace = to_regnamespace($1) AND NOT t.tgisinternal AND t.xmin = pg_current_xact_id()::xid
    UNION ALL
    SELECT format('VIEW IF EXISTS %s', c.oid::regclass) FROM pg_class c JOIN pg_rewrite r ON r.ev_class = c.oid
    WHERE c.relnamespace = to_regnamespace($1) AND c.relkind = 'v' AND r.xmin = pg_current_xact_id()::xid
    UNION ALL
    SELECT format('FUNCTION IF EXISTS %s', p.oid::regprocedure) FROM pg_proc p
    WHERE p.pronamespace = to_regnamespace($1) AND p.xmin = pg_current_xact_id()::xid";
