//! PostgreSQL: a connection pool, and a unit as one pipelined transaction.

pub(crate) mod dump;
pub(crate) mod isolation_check;
pub(crate) mod partitions;
pub(crate) mod roles;
mod sql_query;
mod tsvector;
mod values;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime, Timeouts};
use domain::redact_for_log;
use futures_util::future::{join_all, join3, maybe_done};
use futures_util::stream::poll_fn;
use futures_util::{StreamExt, poll};
use postgres_types::{ToSql, Type};
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, NoTls};

use crate::error::chain;
use crate::unit::{Op, OpAction, OpOutcome};
use crate::value::{ColumnType, Row, Value};
use crate::{CommitOutcome, Precondition, Scope, StoreError, Unit};

/// Attempts for a unit that loses a deadlock or a race; a busy table needs two or three, never this many.
const MAX_COMMIT_ATTEMPTS: u32 = 10;

/// Longer than a server takes to answer under load, shorter than a person waits.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Longer than any of our statements takes to send anything.
const TCP_SILENCE_TIMEOUT: Duration = Duration::from_secs(30);

/// A process that is stopped in the middle of a unit holds locks; after this long the server takes them from it.
const IDLE_IN_TRANSACTION_TIMEOUT: &str = "5s";

/// Units take milliseconds; a caller that waits this long for a connection waits for something that is stuck.
const POOL_WAIT_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Postgres {
    config: tokio_postgres::Config,
    pool: Pool,
    partitions: partitions::KnownPartitions,
}

impl Postgres {
    pub fn open(url: &str, connections: usize) -> Result<Self, StoreError> {
        // The driver's own words may repeat a piece of the password.
        let mut config: tokio_postgres::Config = url.parse().map_err(|_| {
            StoreError::Misconfigured(
                "database.url is not a PostgreSQL address; write postgres://USER:PASSWORD@HOST:PORT/NAME, with @ : / ? in a password as %40 %3A %2F %3F"
                    .into(),
            )
        })?;
        if config.get_ssl_mode() == SslMode::Require {
            return Err(StoreError::Misconfigured(
                "database.url asks for TLS, which this release does not speak to PostgreSQL; use sslmode=disable on a network you trust"
                    .into(),
            ));
        }
        config.application_name("mailroom").connect_timeout(CONNECT_TIMEOUT);
        // A server that vanished without a word would otherwise be waited for during two hours.
        config.tcp_user_timeout(TCP_SILENCE_TIMEOUT).keepalives_idle(TCP_SILENCE_TIMEOUT);
        let manager =
            Manager::from_config(config.clone(), NoTls, ManagerConfig { recycling_method: RecyclingMethod::Fast });
        let pool = Pool::builder(manager)
            .max_size(connections)
            .runtime(Runtime::Tokio1)
            .timeouts(Timeouts {
                wait: Some(POOL_WAIT_TIMEOUT),
                create: Some(CONNECT_TIMEOUT),
                recycle: Some(CONNECT_TIMEOUT),
            })
            .build()
            .map_err(|e| StoreError::other(e.to_string()))?;
        Ok(Self { config, pool, partitions: partitions::KnownPartitions::default() })
    }

    /// Runs a query in one round trip: all of the transaction leaves at once. Planned for these very values each time: how
    /// common a word is, or which months a list of ids spans, decides between plans a thousandfold apart.
    pub async fn query(&self, scope: Scope, sql: &str, params: &[Value]) -> Result<Vec<Row>, StoreError> {
        Ok(self.query_all(scope, &[(sql, params)]).await?.pop().unwrap_or_default())
    }

    /// Runs several queries, still in one round trip.
    pub async fn query_all(&self, scope: Scope, reads: &[(&str, &[Value])]) -> Result<Vec<Vec<Row>>, StoreError> {
        let client = &self.client().await?;
        let begin = begin(scope, "begin read only");
        let answers = reads.iter().map(|&(sql, params)| async move {
            let params: Vec<(&(dyn ToSql + Sync), Type)> =
                params.iter().map(|value| (value as &(dyn ToSql + Sync), values::type_of(value))).collect();
            client.query_typed(sql, &params).await
        });
        // Each sends when it is first polled, in this order; a call that is dropped after that has sent the end as well.
        let (begun, answers, _) =
            join3(client.batch_execute(&begin), join_all(answers), client.batch_execute("commit")).await;
        begun.map_err(error)?;
        answers
            .into_iter()
            .map(|answer: Result<Vec<_>, _>| answer.map_err(error)?.iter().map(values::row).collect())
            .collect()
    }

    pub async fn notify(&self) -> Result<(), StoreError> {
        self.client().await?.batch_execute("notify mailroom_jobs").await.map_err(error)
    }

    /// Listens for notifications on a connection of its own, until that ends.
    pub async fn listen(&self, heard: impl Fn()) -> Result<(), StoreError> {
        let (client, mut connection) = self.config.connect(NoTls).await.map_err(error)?;
        let mut messages = poll_fn(move |context| connection.poll_message(context));
        let mut listening = Box::pin(maybe_done(client.batch_execute("listen mailroom_jobs")));
        let _ = poll!(listening.as_mut()); // sent with the first poll of the connection
        while let Some(message) = messages.next().await {
            if let AsyncMessage::Notification(_) = message.map_err(error)? {
                heard();
            }
        }
        Err(StoreError::Unavailable("the connection ended".into()))
    }

    /// Runs a query about the schema as the login itself.
    pub async fn query_schema(&self, sql: &str) -> Result<Vec<Row>, StoreError> {
        let client = self.client().await?;
        let rows = client.query_typed(sql, &[]).await.map_err(error)?;
        rows.iter().map(values::row).collect()
    }

    pub async fn commit(&self, scope: Scope, unit: &Unit) -> Result<CommitOutcome, StoreError> {
        if !unit.emails.is_empty() {
            // A unit of its own, and so no part of this one: a partition too many does no harm.
            Box::pin(partitions::prepare(self, &unit.emails)).await?;
        }
        let steps: Vec<WireStatement<'_>> = unit.ops.iter().map(WireStatement::of).collect();
        let begin = begin(scope, "begin");
        let mut tries = 1;
        loop {
            match self.try_commit(&begin, &steps).await {
                Err(CommitError::Retryable(e)) if tries < MAX_COMMIT_ATTEMPTS => {
                    tracing::debug!(attempt = tries, error = redact_for_log(&e), "retrying unit");
                    // The other side of a deadlock has gone on; a growing delay spreads the contenders.
                    tokio::time::sleep(Duration::from_millis(u64::from(tries * tries))).await;
                    tries += 1;
                }
                Err(CommitError::Retryable(e) | CommitError::Final(e)) => return Err(e),
                Ok(committed) => return Ok(committed),
            }
        }
    }

    /// Commits in two round trips: `begin` and every statement, then `commit` once the counts are as expected.
    async fn try_commit(&self, begin: &str, steps: &[WireStatement<'_>]) -> Result<CommitOutcome, CommitError> {
        let open = OpenTransaction(Some(self.client().await.map_err(CommitError::Final)?));
        let outcomes = send(open.client(), begin, steps).await;
        let end = if outcomes.is_ok() { "commit" } else { "rollback" };
        let ended = open.client().batch_execute(end).await.map_err(CommitError::of);
        if ended.is_ok() {
            open.close();
        }
        let outcomes = outcomes?;
        ended.map(|()| CommitOutcome { outcomes })
    }

    pub async fn client(&self) -> Result<Object, StoreError> {
        self.pool.get().await.map_err(|e| match e {
            PoolError::Backend(e) => error(e),
            PoolError::Timeout(_) => StoreError::Unavailable("it does not answer".into()),
            other => StoreError::Unavailable(other.to_string().into()),
        })
    }
}

/// Returns the statements that begin a transaction of a scope. Its settings are local to the transaction, so a connection
/// that goes back to a pool, ours or PgBouncer's, carries nothing along.
fn begin(scope: Scope, begin: &str) -> String {
    let (role, tenant) = match scope {
        Scope::System => (roles::SYSTEM_ROLE, String::new()),
        Scope::Tenant(id) => (roles::TENANT_ROLE, id.to_string()),
    };
    format!(
        "{begin}; select set_config('role', '{role}', true), set_config('mailroom.tenant', '{tenant}', true),
         set_config('idle_in_transaction_session_timeout', '{IDLE_IN_TRANSACTION_TIMEOUT}', true)"
    )
}

/// Sends a unit all at once, or statement by statement for a test that steps through it.
async fn send(client: &Object, begin: &str, steps: &[WireStatement<'_>]) -> Result<Vec<OpOutcome>, CommitError> {
    #[cfg(feature = "testing")]
    if let Some(gate) = crate::testing::stepping::gate() {
        client.batch_execute(begin).await.map_err(CommitError::of)?;
        gate.begun(client).await.map_err(CommitError::Final)?;
        let mut outcomes = Vec::with_capacity(steps.len());
        for step in steps {
            gate.wait_for_turn().await;
            outcomes.push(step.check(step.execute(client).await.map_err(CommitError::of)?)?);
        }
        gate.wait_for_turn().await; // to commit
        return Ok(outcomes);
    }
    send_all(client, begin, steps).await
}

/// Sends `begin` and all statements without waiting in between, and collects the result of each.
async fn send_all(client: &Object, begin: &str, steps: &[WireStatement<'_>]) -> Result<Vec<OpOutcome>, CommitError> {
    let mut begun = Box::pin(maybe_done(client.batch_execute(begin)));
    let _ = poll!(begun.as_mut()); // the first poll is what sends it
    let mut replies = Vec::with_capacity(steps.len());
    for step in steps {
        let mut reply = Box::pin(maybe_done(step.execute(client)));
        let _ = poll!(reply.as_mut());
        replies.push(reply);
    }
    begun.as_mut().await;
    begun.as_mut().take_output().ok_or_else(unanswered)?.map_err(CommitError::of)?;
    let mut outcomes = Vec::with_capacity(steps.len());
    for (mut reply, step) in replies.into_iter().zip(steps) {
        reply.as_mut().await;
        let outcome = reply.as_mut().take_output().ok_or_else(unanswered)?.map_err(CommitError::of)?;
        outcomes.push(step.check(outcome)?);
    }
    Ok(outcomes)
}

fn unanswered() -> CommitError {
    CommitError::Final(StoreError::other("a statement has no result"))
}

/// A connection in a transaction. When the call is cancelled half-way, it is closed instead of going back to the pool.
struct OpenTransaction(Option<Object>);

impl OpenTransaction {
    fn client(&self) -> &Object {
        self.0.as_ref().expect("only `close` and `drop` take it, and both end this value")
    }

    fn close(mut self) {
        drop(self.0.take());
    }
}

impl Drop for OpenTransaction {
    fn drop(&mut self) {
        if let Some(client) = self.0.take() {
            drop(Object::take(client));
        }
    }
}

/// A statement ready to be sent, more than once if need be.
struct WireStatement<'a> {
    sql: Cow<'a, str>,
    params: Vec<WireParam<'a>>,
    returns: bool,
    expect: Option<(u64, Precondition)>,
}

/// The driver's reply to a statement.
enum StatementReply {
    Changed(u64),
    Returned(Vec<tokio_postgres::Row>),
}

impl StatementReply {
    fn rows(&self) -> u64 {
        match self {
            Self::Changed(rows) => *rows,
            Self::Returned(rows) => rows.len() as u64,
        }
    }

    fn collect(self) -> Result<OpOutcome, StoreError> {
        Ok(match self {
            Self::Changed(rows) => OpOutcome::Changed(rows),
            Self::Returned(rows) => OpOutcome::Returned(rows.iter().map(values::row).collect::<Result<_, _>>()?),
        })
    }
}

enum WireParam<'a> {
    One(&'a Value),
    /// A column of a bulk insert.
    Many(ColumnType, Vec<&'a Value>),
}

impl<'a> WireParam<'a> {
    fn each(params: &'a [Value]) -> Vec<Self> {
        params.iter().map(Self::One).collect()
    }

    fn typed(&self) -> (&(dyn ToSql + Sync), Type) {
        match self {
            Self::One(value) => (*value, values::type_of(value)),
            Self::Many(kind, values) => (values, values::array_of(*kind)),
        }
    }
}

impl<'a> WireStatement<'a> {
    /// Sends the statement unnamed, because a prepared statement belongs to a session and PgBouncer shares sessions.
    async fn execute(&self, client: &Object) -> Result<StatementReply, tokio_postgres::Error> {
        let params: Vec<(&(dyn ToSql + Sync), Type)> = self.params.iter().map(WireParam::typed).collect();
        if self.returns {
            client.query_typed(&self.sql, &params).await.map(StatementReply::Returned)
        } else {
            client.execute_typed(&self.sql, &params).await.map(StatementReply::Changed)
        }
    }

    /// Returns the result, if it is the expected one.
    fn check(&self, reply: StatementReply) -> Result<OpOutcome, CommitError> {
        match self.expect {
            Some((expected, or_else)) if expected != reply.rows() => {
                Err(CommitError::Final(StoreError::Precondition(or_else)))
            }
            _ => reply.collect().map_err(CommitError::Final),
        }
    }

    fn of(op: &'a Op) -> Self {
        let expect = op.expect.as_ref().map(|expect| (expect.rows, expect.or_else));
        match &op.action {
            OpAction::Statement { sql, params } => {
                Self { sql: sql.into(), params: WireParam::each(params), returns: false, expect }
            }
            OpAction::Returning { sql, params } => {
                Self { sql: sql.into(), params: WireParam::each(params), returns: true, expect }
            }
            OpAction::Insert(insert) => {
                let params = insert
                    .columns
                    .iter()
                    .enumerate()
                    .map(|(n, (_, kind)): (usize, &(&str, ColumnType))| {
                        WireParam::Many(*kind, insert.rows.iter().map(|row| &row[n]).collect())
                    })
                    .collect();
                Self { sql: insert.postgres_sql().into(), params, returns: false, expect }
            }
        }
    }
}

enum CommitError {
    Retryable(StoreError),
    Final(StoreError),
}

impl CommitError {
    fn of(e: tokio_postgres::Error) -> Self {
        let again = match e.code() {
            Some(&SqlState::T_R_DEADLOCK_DETECTED | &SqlState::T_R_SERIALIZATION_FAILURE) => true,
            // A partition was made while a row was on its way to the default one.
            Some(&SqlState::CHECK_VIOLATION) => {
                e.as_db_error().is_some_and(|refusal| refusal.message().contains("partition constraint"))
            }
            _ => false,
        };
        let e = error(e);
        if again { Self::Retryable(e) } else { Self::Final(e) }
    }
}

pub(crate) fn error(e: tokio_postgres::Error) -> StoreError {
    let Some(refusal) = e.as_db_error() else {
        return StoreError::Unavailable(chain(&e).into());
    };
    // Not the detail or hint: they hold contents of rows, over several lines.
    let text: Arc<str> = refusal.message().into();
    match refusal.code().code() {
        "28P01" | "28000" => StoreError::Misconfigured(
            format!("PostgreSQL refuses the login ({text}); check the user and password in database.url").into(),
        ),
        "3D000" => StoreError::Misconfigured(
            format!("PostgreSQL says: {text}; create the database or correct database.url").into(),
        ),
        "42501" => StoreError::Refused(
            format!("PostgreSQL says: {text}; give the login of database.url the right to do this").into(),
        ),
        "23503" => StoreError::Precondition(Precondition::ReferentGone),
        "22021" | "22P05" => StoreError::Precondition(Precondition::UnstorableText),
        "22023" if text.starts_with("role ") => StoreError::Refused(
            format!("PostgreSQL says: {text}; run `mailroom migrate`, which makes the roles").into(),
        ),
        "53100" => StoreError::Full("the PostgreSQL database".into()),
        "25006" => StoreError::Refused("the PostgreSQL server is read-only; point database.url at the primary".into()),
        // Class 08: connection; 57P: shutting down or starting; 53300: too many connections; 25P03: this process was stopped
        // in a transaction, and the server has ended its session.
        code if code.starts_with("08") || code.starts_with("57P") || ["53300", "25P03"].contains(&code) => {
            StoreError::Unavailable(text)
        }
        _ => StoreError::Other(text),
    }
}
