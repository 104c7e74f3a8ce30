//! Connections, and the pools that keep them.

use std::error::Error;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use deadpool::managed::{self, Metrics, RecycleError, RecycleResult};
use deadpool_postgres::ClientWrapper;
use futures::TryStreamExt;
use gristmill_postgres_link::Address;
use gristmill_store::StoreError;
use gristmill_store::rules::report_write::ONE_PARAMETER;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{Format, FromSqlOwned, IsNull, ToSql, Type, private::BytesMut};

use crate::database::answers::{Answers, Awaited, Backend, Pending, Silence, answers};
use crate::database::session::{self, Role, Waits};
use crate::database::statement::{ParameterTypes, Statement};
use crate::database::writability::Writability;
use crate::failure::{Failure, Result};
use crate::limits;

/// Makes the row of a new writer, and deletes old ones. Reads the whole table.
const NEW_WRITER: &str = "WITH old AS (DELETE FROM gristmill.writer WHERE id IN (SELECT id FROM gristmill.writer \
         WHERE at < now() - interval '1 day' FOR UPDATE SKIP LOCKED)) \
     INSERT INTO gristmill.writer (id, operation) VALUES (gen_random_uuid(), 0) \
     RETURNING id, set_config('application_name', replace($1, '%', id), $2)";

/// Makes another row of a writer, and deletes its last one. Reads that one alone: the table may have many dead rows.
const ANOTHER_WRITER: &str = "WITH old AS (DELETE FROM gristmill.writer WHERE id = $3) \
     INSERT INTO gristmill.writer (id, operation) VALUES (gen_random_uuid(), 0) \
     RETURNING id, set_config('application_name', replace($1, '%', id), $2)";

/// A parameter that a request owns.
pub(crate) type Param = Box<dyn ToSql + Sync + Send>;

/// A connection, with its prepared statements. All requests go through its methods, so that each answer is taken as it
/// comes, and within a limit.
#[derive(Debug)]
pub(crate) struct Connection {
    client: Arc<ClientWrapper>,
    answers: Answers,
    /// The writer, for connections that write.
    pub writer: Option<Writer>,
    /// Whether a transaction has begun and is not known to have ended: such a connection is not used again.
    pub is_amid: bool,
    /// For a pooler that lends a server for each transaction.
    lent: Option<Lent>,
}

/// The state that a connection keeps where no session does.
#[derive(Debug)]
struct Lent {
    /// The statements that begin each transaction.
    settings: String,
    /// Whether the last request was sent within a transaction.
    is_amid: AtomicBool,
    types: Arc<ParameterTypes>,
}

/// The name of a connection for the server, and the number of operations that it has begun.
#[derive(Debug)]
pub(crate) struct Writer {
    pub id: Arc<str>,
    pub operation: i64,
    /// The last batch that it stored by a lone submit.
    pub lone_batch: i64,
    /// The number of its lone submits.
    lone_submits: i64,
}

/// The key by which a lost COMMIT is looked up.
#[derive(Debug, Clone)]
pub(crate) struct Mark {
    pub writer: Arc<str>,
    expected: Expected,
}

/// The expected value of the writer's row after an operation was committed.
#[derive(Debug, Clone, Copy)]
enum Expected {
    /// The number of the operation.
    Number(i64),
    /// The negated id of a batch after this one.
    BatchAfter(i64),
}

impl Mark {
    /// Reports whether the row shows that the operation was committed.
    pub fn is_committed(&self, operation: i64) -> bool {
        match self.expected {
            Expected::Number(number) => operation == number,
            Expected::BatchAfter(batch) => operation < -batch,
        }
    }
}

impl Writer {
    /// The mark of the current operation.
    pub fn mark(&self) -> Mark {
        Mark {
            writer: self.id.clone(),
            expected: Expected::Number(self.operation),
        }
    }

    /// The mark of the next lone submit.
    pub fn lone_mark(&mut self) -> Mark {
        self.lone_submits += 1;
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
    pub waits: Waits,
    pub writability: Arc<Writability>,
    pub types: Arc<ParameterTypes>,
}

pub(crate) type Pool = managed::Pool<Manager>;
pub(crate) type Pooled = managed::Object<Manager>;

impl managed::Manager for Manager {
    type Type = Connection;
    type Error = Failure;

    async fn create(&self) -> Result<Connection> {
        let limit = limits::CONNECTION_MAKING_MAX.min(self.waits.silence().max);
        let made = tokio::time::timeout(limit, self.connect()).await;
        made.unwrap_or_else(|_| {
            let limit_ms = limit.as_millis();
            Err(Failure::Unanswered(format!(
                "a new connection got no answer within {limit_ms} ms"
            )))
        })
    }

    async fn recycle(&self, connection: &mut Connection, _: &Metrics) -> RecycleResult<Failure> {
        if connection.client.is_closed() || connection.is_amid {
            return Err(RecycleError::message(
                "the connection is closed, or in the middle of something",
            ));
        }
        let writer = connection.writer.as_ref().filter(|_| connection.lent.is_none());
        if writer
            .is_some_and(|writer| writer.operation + writer.lone_submits >= limits::WRITER_ROW_OPERATIONS_MAX)
        {
            connection.become_writer(&self.address, self.waits).await?;
        }
        Ok(())
    }
}

impl Manager {
    async fn connect(&self) -> Result<Connection> {
        let (answers, taker) = answers(self.address.clone(), self.waits.silence());
        let client = self.address.connect_beside(taker.run()).await?;
        let mut connection = Connection {
            client: Arc::new(client),
            answers,
            writer: None,
            is_amid: false,
            lent: self.address.is_pooled().then(|| Lent {
                settings: session::settings_of_transaction(self.role, self.waits),
                is_amid: AtomicBool::new(false),
                types: self.types.clone(),
            }),
        };
        match self.role {
            Role::Write => {
                if let Err(failure) = connection.become_writer(&self.address, self.waits).await {
                    return Err(self
                        .writability
                        .explain(failure, connection.is_of_standby())
                        .await);
                }
                self.writability.note_written();
            }
            Role::Read if connection.lent.is_some() => {
                let id: String = connection.only("SELECT gen_random_uuid()::text").await?;
                connection.name_transactions(&self.address, &id);
            }
            Role::Read => {
                connection
                    .command(&session::settings(self.role, self.waits))
                    .await?
            }
        }
        if connection.lent.is_none() {
            let process = connection.only("SELECT pg_backend_pid()").await?;
            connection
                .answers
                .silence
                .is_worked_for_by(Backend::Process(process));
        }
        Ok(connection)
    }
}

impl Connection {
    /// Makes this connection a writer, or gives a writer that is in the middle of nothing another row. Deletes its last row. A new
    /// writer deletes old rows of writers whose processes could not delete them.
    async fn become_writer(&mut self, address: &Address, waits: Waits) -> Result<()> {
        let is_lent = self.lent.is_some();
        if !is_lent {
            self.command(&session::settings(Role::Write, waits)).await?;
        }
        let name = address.application_name(Some("%"));
        let last = self.writer.take().map(|writer| writer.id.to_string());
        let rows = match &last {
            Some(last) => self.rows(ANOTHER_WRITER, &[&name, &is_lent, last]).await?,
            None => self.rows(NEW_WRITER, &[&name, &is_lent]).await?,
        };
        let row = rows
            .first()
            .ok_or_else(|| Failure::Damaged("a writer got no row".to_owned()))?;
        let id: &str = row.try_get(0)?;
        self.name_transactions(address, id);
        self.writer = Some(Writer {
            id: id.into(),
            operation: 0,
            lone_batch: 0,
            lone_submits: 0,
        });
        Ok(())
    }

    /// Behind a pooler, names the process that works for a transaction of this connection.
    fn name_transactions(&mut self, address: &Address, id: &str) {
        if let Some(lent) = &mut self.lent {
            let name = address.application_name(Some(id)).replace('\'', "''");
            lent.settings
                .push_str(&format!("; SET LOCAL application_name = '{name}'"));
            // The server may cut the text after the id.
            let begins = format!("gristmill {id}");
            self.answers.silence.is_worked_for_by(Backend::Named(begins));
        }
    }

    async fn is_of_standby(&self) -> Result<bool> {
        self.only("SELECT pg_is_in_recovery()").await
    }

    /// The value of a query that has one row and one column.
    async fn only<T: FromSqlOwned>(&self, sql: &str) -> Result<T> {
        let rows = self.rows(sql, &[]).await?;
        let row = rows
            .first()
            .ok_or_else(|| Failure::Damaged("a query got no row".to_owned()))?;
        Ok(row.try_get(0)?)
    }

    /// The writer of this connection. Fails for a connection for queries.
    pub fn writer(&mut self) -> Result<&mut Writer> {
        self.writer
            .as_mut()
            .ok_or_else(|| Failure::Damaged("an operation got a connection for queries".to_owned()))
    }

    /// Prepares a statement, unless it is prepared already.
    pub async fn prepare(&self, sql: &str) -> Result<Statement> {
        let silence = &self.answers.silence;
        let Some(lent) = &self.lent else {
            let _awaited = silence.begin();
            let prepared = self.client.prepare_cached(sql).await;
            return prepared
                .map(Statement::Prepared)
                .map_err(|error| failure(error, silence));
        };
        match lent.types.known(sql) {
            Some(statement) => Ok(statement),
            None => {
                let _awaited = silence.begin();
                let learnt = lent.types.learn(&self.client, sql).await;
                learnt.map_err(|failure| match silence.reason() {
                    Some(reason) => Failure::Silent(reason),
                    None => failure,
                })
            }
        }
    }

    /// Returns all rows of a prepared query.
    pub async fn rows(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
        let statement = self.prepare(sql).await?;
        let (rows, _) = self
            .in_transaction(taken(&self.client, &self.answers.silence, &statement, params))
            .await?;
        Ok(rows)
    }

    /// Runs a prepared statement; returns how many rows it changed.
    pub async fn execute_prepared(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<u64> {
        let statement = self.prepare(sql).await?;
        let (_, changed) = self
            .in_transaction(taken(&self.client, &self.answers.silence, &statement, params))
            .await?;
        Ok(changed)
    }

    /// Runs a statement of a handler, whose only parameter takes JSON.
    pub async fn execute_with_json(&self, sql: &str, items: &str) -> Result<()> {
        let statement = match &self.lent {
            None => self.prepare(sql).await?,
            // A handler's statement is not prepared for its types alone: it may be several statements. The server finds
            // the type.
            Some(_) => Statement::Text {
                sql: sql.into(),
                types: Arc::new([Type::UNKNOWN]),
            },
        };
        let one_parameter = || StoreError::InvalidInput(ONE_PARAMETER.to_owned()).into();
        if statement.types().len() != 1 {
            return Err(one_parameter());
        }
        let silence = &self.answers.silence;
        let taken = self
            .in_transaction(taken(&self.client, silence, &statement, &[&JsonText(items)]))
            .await;
        match taken {
            // The server got one parameter, and wants none or several.
            Err(Failure::Postgres(error))
                if error.code().is_some_and(|state| {
                    [SqlState::PROTOCOL_VIOLATION, SqlState::INDETERMINATE_DATATYPE].contains(state)
                }) =>
            {
                Err(one_parameter())
            }
            taken => taken.map(|_| ()),
        }
    }

    /// Sends a query without waiting for the answer. The next request follows at once.
    pub async fn send(&self, sql: &str, params: Vec<Param>) -> Result<Pending<Vec<Row>>> {
        let statement = self.prepare(sql).await?;
        let (client, silence) = (self.client.clone(), self.answers.silence.clone());
        let begun = self.begin_alone();
        let answer = self.answers.send(async move {
            let params: Vec<&(dyn ToSql + Sync)> = params
                .iter()
                .map(|param| &**param as &(dyn ToSql + Sync))
                .collect();
            let (rows, _) = taken(&client, &silence, &statement, &params).await?;
            Ok(rows)
        });
        let Some(begun) = begun else { return Ok(answer) };
        let ended = self.commit();
        Ok(self.answers.send(async move {
            let (begun, answer, ended) = (begun.await, answer.await, ended.await);
            let rows = answer?;
            begun.and(ended).map(|()| rows)
        }))
    }

    /// Begins a transaction of this isolation level, without waiting for the answer.
    pub fn begin(&self, level: &str) -> Pending<()> {
        let mut begin = format!("BEGIN ISOLATION LEVEL {level}");
        if let Some(lent) = &self.lent {
            lent.is_amid.store(true, Ordering::Relaxed);
            begin.push_str("; ");
            begin.push_str(&lent.settings);
        }
        self.send_command(&begin)
    }

    /// Commits the transaction, without waiting for the answer.
    pub fn commit(&self) -> Pending<()> {
        self.end("COMMIT")
    }

    /// Rolls the transaction back, without waiting for the answer.
    pub fn roll_back(&self) -> Pending<()> {
        self.end("ROLLBACK")
    }

    fn end(&self, command: &str) -> Pending<()> {
        if let Some(lent) = &self.lent {
            lent.is_amid.store(false, Ordering::Relaxed);
        }
        self.send_command(command)
    }

    /// Begins a transaction for a single statement if it needs one: behind a pooler, for the settings.
    fn begin_alone(&self) -> Option<Pending<()>> {
        let lent = self.lent.as_ref()?;
        (!lent.is_amid.load(Ordering::Relaxed)).then(|| self.begin("READ COMMITTED"))
    }

    /// Runs a statement in the current transaction, or in one of its own if it needs one. It sends everything at once,
    /// so that no lock waits for this process.
    async fn in_transaction<T>(&self, statement: impl Future<Output = Result<T>>) -> Result<T> {
        let Some(begun) = self.begin_alone() else {
            return statement.await;
        };
        // The statement is sent first. If it fails, the commit undoes it.
        let (answer, ended) = futures::join!(statement, async { self.commit().await });
        let answer = answer?;
        begun.await.and(ended).map(|()| answer)
    }

    /// Sends commands without parameters, without waiting for the answer.
    pub fn send_command(&self, sql: &str) -> Pending<()> {
        let (client, silence) = (self.client.clone(), self.answers.silence.clone());
        let sql = sql.to_owned();
        self.answers.send(async move {
            let _awaited = silence.begin();
            let done = client.batch_execute(&sql).await;
            done.map_err(|error| failure(error, &silence))
        })
    }

    /// Runs commands without parameters.
    pub async fn command(&self, sql: &str) -> Result<()> {
        self.send_command(sql).await
    }
}

/// Takes all rows of an answer, and how many rows its statement changed.
async fn taken(
    client: &ClientWrapper,
    silence: &Silence,
    statement: &Statement,
    params: &[&(dyn ToSql + Sync)],
) -> Result<(Vec<Row>, u64)> {
    let awaited = silence.begin();
    let taken = async {
        let params = params.iter().map(|param| Measured {
            param: *param,
            awaited: &awaited,
        });
        let stream = match statement {
            Statement::Prepared(statement) => client.query_raw(statement, params).await?,
            Statement::Text { sql, types } => {
                client
                    .query_typed_raw(sql, params.zip(types.iter().cloned()))
                    .await?
            }
        };
        let mut stream = pin!(stream);
        let mut rows = Vec::new();
        while let Some(row) = stream.try_next().await? {
            awaited.is_coming();
            rows.push(row);
        }
        Ok((rows, stream.rows_affected().unwrap_or(0)))
    };
    taken.await.map_err(|error| failure(error, silence))
}

fn failure(error: tokio_postgres::Error, silence: &Silence) -> Failure {
    match silence.reason() {
        Some(reason) => Failure::Silent(reason),
        None => error.into(),
    }
}

/// A parameter that counts the bytes that are sent for it.
#[derive(Debug)]
struct Measured<'a> {
    param: &'a (dyn ToSql + Sync),
    awaited: &'a Awaited<'a>,
}

impl ToSql for Measured<'_> {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> std::result::Result<IsNull, Box<dyn Error + Sync + Send>> {
        let before = out.len();
        let is_null = self.param.to_sql_checked(ty, out)?;
        self.awaited.sends(out.len() - before);
        Ok(is_null)
    }

    /// What the parameter accepts is checked as it is written.
    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, ty: &Type) -> Format {
        self.param.encode_format(ty)
    }

    tokio_postgres::types::to_sql_checked!();
}

/// JSON as a parameter, whatever type the statement gives it.
#[derive(Debug)]
struct JsonText<'a>(&'a str);

impl ToSql for JsonText<'_> {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> std::result::Result<IsNull, Box<dyn Error + Sync + Send>> {
        if *ty == Type::JSONB {
            // The version of the binary format.
            out.extend_from_slice(&[1]);
        }
        out.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        [Type::JSON, Type::JSONB, Type::TEXT, Type::VARCHAR, Type::UNKNOWN].contains(ty)
    }

    /// Sent as text if the server finds the type.
    fn encode_format(&self, ty: &Type) -> Format {
        match *ty {
            Type::UNKNOWN => Format::Text,
            _ => Format::Binary,
        }
    }

    tokio_postgres::types::to_sql_checked!();
}

/// Takes a connection out of its pool and closes it.
pub(crate) fn close(connection: Pooled) {
    drop(Pooled::take(connection));
}
