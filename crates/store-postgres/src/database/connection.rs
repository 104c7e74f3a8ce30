//! Connections, and the pools that keep them.

use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use deadpool::managed::{self, Metrics, RecycleError, RecycleResult};
use deadpool_postgres::ClientWrapper;
use futures::FutureExt;
use futures::future::BoxFuture;
use gristmill_postgres_link::Address;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::failure::{Failure, Result};
use crate::limits;
use crate::open::LAYOUT;

/// A parameter that a request owns.
pub(crate) type Param = Box<dyn ToSql + Sync + Send>;

/// An answer that is under way. A connection hands over answers in the order of the requests, and stops where one with
/// many rows is not taken: so such answers must be awaited before those of later requests, or [`drained`].
pub(crate) type Pending<T> = BoxFuture<'static, Result<T>>;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Operations: known to the server as a writer, see the table of that name. What it reads is read by index,
    /// whatever the statistics say: most tables grow and shrink faster than they are analysed, and a plan that was made
    /// for an empty table would be kept for a large one. For the same reason what an index has in nearly the right order is
    /// sorted in parts, as far as it is read, and not as a whole.
    Write,
    /// Queries.
    Read,
}

/// A connection, with its prepared statements.
#[derive(Debug)]
pub(crate) struct Connection {
    client: Arc<ClientWrapper>,
    /// For those that write.
    pub writer: Option<Writer>,
    /// Whether a transaction has begun and is not known to have ended: such a connection is not used again.
    pub is_amid: bool,
}

/// What the server knows a connection as, and how many operations it has begun.
#[derive(Debug)]
pub(crate) struct Writer {
    pub id: Arc<str>,
    pub operation: i64,
    /// The last batch that it stored by a lone submit.
    pub lone_batch: i64,
}

/// What a lost COMMIT is looked up by.
#[derive(Debug, Clone)]
pub(crate) struct Mark {
    pub writer: Arc<str>,
    expected: Expected,
}

/// What the writer's row says of an operation once that is committed.
#[derive(Debug, Clone, Copy)]
enum Expected {
    /// Its number.
    Number(i64),
    /// The id, negated, of a batch that came after this one.
    BatchAfter(i64),
}

impl Mark {
    /// Whether the row says that it was committed.
    pub fn is_committed(&self, operation: i64) -> bool {
        match self.expected {
            Expected::Number(number) => operation == number,
            Expected::BatchAfter(batch) => operation < -batch,
        }
    }
}

impl Writer {
    /// Of the operation that has begun.
    pub fn mark(&self) -> Mark {
        Mark {
            writer: self.id.clone(),
            expected: Expected::Number(self.operation),
        }
    }

    /// Of a lone submit.
    pub fn lone_mark(&self) -> Mark {
        Mark {
            writer: self.id.clone(),
            expected: Expected::BatchAfter(self.lone_batch),
        }
    }
}

/// Makes connections.
#[derive(Debug)]
pub(crate) struct Manager {
    pub address: Arc<Address>,
    pub role: Role,
    /// How long a statement waits for a lock.
    pub lock_wait: Duration,
}

pub(crate) type Pool = managed::Pool<Manager>;
pub(crate) type Pooled = managed::Object<Manager>;

impl managed::Manager for Manager {
    type Type = Connection;
    type Error = Failure;

    async fn create(&self) -> Result<Connection> {
        let client = self.address.connect().await?;
        let mut connection = Connection {
            client: Arc::new(client),
            writer: None,
            is_amid: false,
        };
        match self.role {
            Role::Write => connection.become_writer(self.lock_wait).await?,
            Role::Read => {
                let bounds = bounds(self.lock_wait);
                let settings = format!("SET jit = off; SET application_name = 'gristmill'; {bounds}");
                connection.client.batch_execute(&settings).await?;
            }
        }
        Ok(connection)
    }

    async fn recycle(&self, connection: &mut Connection, _: &Metrics) -> RecycleResult<Failure> {
        match connection.client.is_closed() || connection.is_amid {
            true => Err(RecycleError::message(
                "the connection is closed, or in the middle of something",
            )),
            false => Ok(()),
        }
    }
}

impl Deref for Connection {
    type Target = ClientWrapper;

    fn deref(&self) -> &ClientWrapper {
        &self.client
    }
}

impl Connection {
    async fn become_writer(&mut self, lock_wait: Duration) -> Result<()> {
        self.client
            .batch_execute(&format!(
                "SET jit = off; SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off; \
                 SET plan_cache_mode = force_generic_plan; SET default_transaction_isolation = 'read committed'; \
                 SET gristmill.layout = '{}'; {}",
                LAYOUT.layout.id(),
                bounds(lock_wait),
            ))
            .await?;
        let row = self
            .client
            .query_one(
                "INSERT INTO gristmill.writer (id, operation) VALUES (gen_random_uuid(), 0) \
                 RETURNING id, set_config('application_name', 'gristmill ' || id, false)",
                &[],
            )
            .await?;
        self.writer = Some(Writer {
            id: row.try_get::<_, &str>(0)?.into(),
            operation: 0,
            lone_batch: 0,
        });
        Ok(())
    }

    /// What the server knows it as. Fails for one that is for queries.
    pub fn writer(&mut self) -> Result<&mut Writer> {
        self.writer
            .as_mut()
            .ok_or_else(|| Failure::Damaged("an operation got a connection for queries".to_owned()))
    }

    /// All rows of a prepared query.
    pub async fn rows(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
        let statement = self.client.prepare_cached(sql).await?;
        Ok(self.client.query(&statement, params).await?)
    }

    /// Runs a prepared statement; gives back how many rows it changed.
    pub async fn execute_prepared(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<u64> {
        let statement = self.client.prepare_cached(sql).await?;
        Ok(self.client.execute(&statement, params).await?)
    }

    /// Sends a query and leaves the answer for later. The next request follows at once.
    pub async fn send(&self, sql: &str, params: Vec<Param>) -> Result<Pending<Vec<Row>>> {
        let statement = self.client.prepare_cached(sql).await?;
        let client = self.client.clone();
        Ok(sent(
            async move {
                let params: Vec<&(dyn ToSql + Sync)> = params
                    .iter()
                    .map(|param| &**param as &(dyn ToSql + Sync))
                    .collect();
                Ok(client.query(&statement, &params).await?)
            }
            .boxed(),
        ))
    }

    /// As [`send`](Connection::send), for commands without parameters.
    pub fn send_command(&self, sql: &'static str) -> Pending<()> {
        let client = self.client.clone();
        sent(async move { Ok(client.batch_execute(sql).await?) }.boxed())
    }
}

/// Bounds how long the server waits for this process within a transaction, and for locks of others. A shorter bound that
/// the server or the database is set to stays.
fn bounds(lock_wait: Duration) -> String {
    let (idle_ms, lock_ms) = (
        limits::IDLE_IN_TRANSACTION.as_millis(),
        lock_wait.as_millis().max(1),
    );
    format!(
        "SELECT set_config(b.name, b.limit_ms::text, false) FROM (VALUES \
         ('idle_in_transaction_session_timeout', {idle_ms}), ('tcp_user_timeout', {idle_ms}), ('lock_timeout', {lock_ms})) \
         AS b (name, limit_ms) WHERE (SELECT s.setting FROM pg_settings s WHERE s.name = b.name)::bigint \
         NOT BETWEEN 1 AND b.limit_ms"
    )
}

/// Takes an answer in as it comes, whatever else is awaited.
pub(crate) fn drained<T: Send + 'static>(answer: Pending<T>) -> Pending<T> {
    let task = tokio::spawn(answer);
    async move {
        task.await
            .unwrap_or_else(|error| Err(Failure::Disconnected(error.to_string())))
    }
    .boxed()
}

/// Looks at a request once, which sends it.
fn sent<T: Send + 'static>(mut request: Pending<T>) -> Pending<T> {
    match Pin::new(&mut request).now_or_never() {
        Some(answer) => futures::future::ready(answer).boxed(),
        None => request,
    }
}

/// Takes a connection out of its pool and closes it.
pub(crate) fn close(connection: Pooled) {
    drop(Pooled::take(connection));
}
