//! The scaled-out database: a pool of connections, a unit as one pipelined transaction.

pub(crate) mod dump;
pub(crate) mod partitions;
pub(crate) mod rights;
mod tsvector;
mod values;
pub(crate) mod walk;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime, Timeouts};
use futures_util::future::{join_all, join3, maybe_done};
use futures_util::stream::poll_fn;
use futures_util::{StreamExt, poll};
use postgres_types::{ToSql, Type};
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, NoTls};

use crate::error::{REFERENT_GONE, UNSTORABLE_TEXT, chain};
use crate::unit::{Action, Op, Outcome};
use crate::value::{Kind, Row, Value};
use crate::{Committed, Scope, StoreError, Unit};

/// A unit that lost a deadlock or a race is sent again; a busy table needs two or three rounds, never this many.
const MOST_TRIES: u32 = 10;

/// Longer than a server takes to answer under load, shorter than a person waits.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Longer than any of our statements is silent.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);

/// A process that is stopped in the middle of a unit holds locks; after this long the server takes them from it.
const IDLE_TIMEOUT: &str = "5s";

/// Units take milliseconds; whoever waits this long for a connection waits for something that is stuck.
const POOL_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Postgres {
    config: tokio_postgres::Config,
    pool: Pool,
    partitions: partitions::Known,
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
        config.tcp_user_timeout(SILENCE_TIMEOUT).keepalives_idle(SILENCE_TIMEOUT);
        let manager =
            Manager::from_config(config.clone(), NoTls, ManagerConfig { recycling_method: RecyclingMethod::Fast });
        let pool = Pool::builder(manager)
            .max_size(connections)
            .runtime(Runtime::Tokio1)
            .timeouts(Timeouts {
                wait: Some(POOL_TIMEOUT),
                create: Some(CONNECT_TIMEOUT),
                recycle: Some(CONNECT_TIMEOUT),
            })
            .build()
            .map_err(|e| StoreError::other(e.to_string()))?;
        Ok(Self { config, pool, partitions: partitions::Known::default() })
    }

    /// One round trip: all of the transaction leaves at once. Planned for these very values each time: how common a word
    /// is, or which months a list of ids spans, decides between plans a thousandfold apart.
    pub async fn query(&self, scope: Scope, sql: &str, params: &[Value]) -> Result<Vec<Row>, StoreError> {
        Ok(self.query_all(scope, &[(sql, params)]).await?.pop().unwrap_or_default())
    }

    /// Still one round trip.
    pub async fn query_all(&self, scope: Scope, reads: &[(&str, &[Value])]) -> Result<Vec<Vec<Row>>, StoreError> {
        let client = &self.client().await?;
        let begin = begin(scope, "begin read only");
        let answers = reads.iter().map(|&(sql, params)| async move {
            let params: Vec<(&(dyn ToSql + Sync), Type)> =
                params.iter().map(|value| (value as &(dyn ToSql + Sync), values::type_of(value))).collect();
            client.query_typed(sql, &params).await
        });
        // Each sends when it is first polled, in this order; whoever drops the call after that has sent the end as well.
        let (begun, answers, _) =
            join3(client.batch_execute(&begin), join_all(answers), client.batch_execute("commit")).await;
        begun.map_err(error)?;
        let rows = |answer: Result<Vec<_>, _>| answer.map_err(error)?.iter().map(values::row).collect();
        answers.into_iter().map(rows).collect()
    }

    pub async fn notify(&self) -> Result<(), StoreError> {
        self.client().await?.batch_execute("notify mailroom_jobs").await.map_err(error)
    }

    /// On a connection of its own, until it ends.
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

    /// As the login itself: for the schema.
    pub async fn query_schema(&self, sql: &str) -> Result<Vec<Row>, StoreError> {
        let client = self.client().await?;
        let rows = client.query_typed(sql, &[]).await.map_err(error)?;
        rows.iter().map(values::row).collect()
    }

    pub async fn commit(&self, scope: Scope, unit: &Unit) -> Result<Committed, StoreError> {
        if !unit.emails.is_empty() {
            // A unit of its own, and so no part of this one: a partition too many harms nobody.
            Box::pin(partitions::prepare(self, &unit.emails)).await?;
        }
        let steps: Vec<Step<'_>> = unit.ops.iter().map(Step::of).collect();
        let begin = begin(scope, "begin");
        let mut tries = 1;
        loop {
            match self.try_commit(&begin, &steps).await {
                Err(TryError::Again(e)) if tries < MOST_TRIES => {
                    tracing::debug!(tries, "a unit is sent again: {e}");
                    // The other side of a deadlock has gone on; a growing pause lets a crowd sort itself out.
                    tokio::time::sleep(Duration::from_millis(u64::from(tries * tries))).await;
                    tries += 1;
                }
                Err(TryError::Again(e) | TryError::Final(e)) => return Err(e),
                Ok(committed) => return Ok(committed),
            }
        }
    }

    /// Two round trips: `begin` and every statement, then `commit` once the counts are as expected.
    async fn try_commit(&self, begin: &str, steps: &[Step<'_>]) -> Result<Committed, TryError> {
        let open = OpenTransaction(Some(self.client().await.map_err(TryError::Final)?));
        let outcomes = send(open.client(), begin, steps).await;
        let end = if outcomes.is_ok() { "commit" } else { "rollback" };
        let ended = open.client().batch_execute(end).await.map_err(TryError::of);
        if ended.is_ok() {
            open.close();
        }
        let outcomes = outcomes?;
        ended.map(|()| Committed { outcomes })
    }

    pub async fn client(&self) -> Result<Object, StoreError> {
        self.pool.get().await.map_err(|e| match e {
            PoolError::Backend(e) => error(e),
            PoolError::Timeout(_) => StoreError::Unavailable("it does not answer".into()),
            other => StoreError::Unavailable(other.to_string().into()),
        })
    }
}

/// Whose rows the transaction sees. Local to it, so a connection that goes back to a pool, ours or PgBouncer's, carries
/// nothing along.
fn begin(scope: Scope, begin: &str) -> String {
    let (role, tenant) = match scope {
        Scope::System => (rights::SYSTEM_ROLE, String::new()),
        Scope::Tenant(id) => (rights::TENANT_ROLE, id.to_string()),
    };
    format!(
        "{begin}; select set_config('role', '{role}', true), set_config('mailroom.tenant', '{tenant}', true),
         set_config('idle_in_transaction_session_timeout', '{IDLE_TIMEOUT}', true)"
    )
}

/// A test may want it one by one.
async fn send(client: &Object, begin: &str, steps: &[Step<'_>]) -> Result<Vec<Outcome>, TryError> {
    #[cfg(feature = "testing")]
    if let Some(gate) = crate::testing::steps::gate() {
        client.batch_execute(begin).await.map_err(TryError::of)?;
        gate.begun(client).await.map_err(TryError::Final)?;
        let mut outcomes = Vec::with_capacity(steps.len());
        for step in steps {
            gate.turn().await;
            outcomes.push(step.check(step.execute(client).await.map_err(TryError::of)?)?);
        }
        gate.turn().await; // to commit
        return Ok(outcomes);
    }
    send_all(client, begin, steps).await
}

/// Sends `begin` and all statements without waiting in between, and collects what each did.
async fn send_all(client: &Object, begin: &str, steps: &[Step<'_>]) -> Result<Vec<Outcome>, TryError> {
    let mut begun = Box::pin(maybe_done(client.batch_execute(begin)));
    let _ = poll!(begun.as_mut()); // the first poll is what sends it
    let mut replies = Vec::with_capacity(steps.len());
    for step in steps {
        let mut reply = Box::pin(maybe_done(step.execute(client)));
        let _ = poll!(reply.as_mut());
        replies.push(reply);
    }
    let unanswered = || TryError::Final(StoreError::other("a statement was not answered"));
    begun.as_mut().await;
    begun.as_mut().take_output().ok_or_else(unanswered)?.map_err(TryError::of)?;
    let mut outcomes = Vec::with_capacity(steps.len());
    for (mut reply, step) in replies.into_iter().zip(steps) {
        reply.as_mut().await;
        let outcome = reply.as_mut().take_output().ok_or_else(unanswered)?.map_err(TryError::of)?;
        outcomes.push(step.check(outcome)?);
    }
    Ok(outcomes)
}

/// A connection in a transaction. Given up half-way, it is closed instead of going back to the pool.
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
struct Step<'a> {
    sql: Cow<'a, str>,
    params: Vec<Param<'a>>,
    returns: bool,
    expect: Option<(u64, &'static str)>,
}

/// What a statement did, as the driver tells it.
enum Reply {
    Changed(u64),
    Returned(Vec<tokio_postgres::Row>),
}

impl Reply {
    fn rows(&self) -> u64 {
        match self {
            Self::Changed(rows) => *rows,
            Self::Returned(rows) => rows.len() as u64,
        }
    }

    fn collect(self) -> Result<Outcome, StoreError> {
        Ok(match self {
            Self::Changed(rows) => Outcome::Changed(rows),
            Self::Returned(rows) => Outcome::Returned(rows.iter().map(values::row).collect::<Result<_, _>>()?),
        })
    }
}

enum Param<'a> {
    One(&'a Value),
    /// A column of a bulk insert.
    Many(Kind, Vec<&'a Value>),
}

impl Param<'_> {
    fn typed(&self) -> (&(dyn ToSql + Sync), Type) {
        match self {
            Self::One(value) => (*value, values::type_of(value)),
            Self::Many(kind, values) => (values, values::array_of(*kind)),
        }
    }
}

impl<'a> Step<'a> {
    /// Unnamed, because a prepared statement belongs to a session and PgBouncer hands sessions round.
    async fn execute(&self, client: &Object) -> Result<Reply, tokio_postgres::Error> {
        let params: Vec<(&(dyn ToSql + Sync), Type)> = self.params.iter().map(Param::typed).collect();
        if self.returns {
            client.query_typed(&self.sql, &params).await.map(Reply::Returned)
        } else {
            client.execute_typed(&self.sql, &params).await.map(Reply::Changed)
        }
    }

    /// What it did, if that is what was expected.
    fn check(&self, reply: Reply) -> Result<Outcome, TryError> {
        match self.expect {
            Some((expected, or_else)) if expected != reply.rows() => {
                Err(TryError::Final(StoreError::Precondition(or_else)))
            }
            _ => reply.collect().map_err(TryError::Final),
        }
    }

    fn of(op: &'a Op) -> Self {
        let expect = op.expect.as_ref().map(|expect| (expect.rows, expect.or_else));
        let ones = |params: &'a [Value]| params.iter().map(Param::One).collect();
        match &op.action {
            Action::Statement { sql, params } => Self { sql: sql.into(), params: ones(params), returns: false, expect },
            Action::Returning { sql, params } => Self { sql: sql.into(), params: ones(params), returns: true, expect },
            Action::Insert(insert) => {
                let column = |(n, (_, kind)): (usize, &(&str, Kind))| {
                    Param::Many(*kind, insert.rows.iter().map(|row| &row[n]).collect())
                };
                let params = insert.columns.iter().enumerate().map(column).collect();
                Self { sql: insert.postgres_sql().into(), params, returns: false, expect }
            }
        }
    }
}

enum TryError {
    Again(StoreError),
    Final(StoreError),
}

impl TryError {
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
        if again { Self::Again(e) } else { Self::Final(e) }
    }
}

pub(crate) fn error(e: tokio_postgres::Error) -> StoreError {
    let Some(refusal) = e.as_db_error() else {
        return StoreError::Unavailable(chain(&e).into());
    };
    // Not its detail or hint: they hold contents of rows, over several lines.
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
        "23503" => StoreError::Precondition(REFERENT_GONE),
        "22021" | "22P05" => StoreError::Precondition(UNSTORABLE_TEXT),
        "22023" if text.starts_with("role ") => StoreError::Refused(
            format!("PostgreSQL says: {text}; run `mailroom migrate`, which makes the roles").into(),
        ),
        "53100" => StoreError::Full("the PostgreSQL database".into()),
        "25006" => StoreError::Refused("the PostgreSQL server is read-only; point database.url at the primary".into()),
        // Class 08: connection; 57P: shutting down or starting; 53300: too many connections.
        code if code.starts_with("08") || code.starts_with("57P") || code == "53300" => StoreError::Unavailable(text),
        _ => StoreError::Other(text),
    }
}
