//! The scaled-out database: a pool of connections, a unit as one pipelined transaction.

pub(crate) mod dump;
mod tsvector;
mod values;

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime, Timeouts};
use futures_util::future::try_join_all;
use postgres_types::{ToSql, Type};
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::{NoTls, Statement};

use crate::error::chain;
use crate::unit::{Action, Op};
use crate::value::{Row, Value};
use crate::{Committed, Scope, StoreError, Unit};

/// A unit that lost a deadlock or a race is sent again; a busy table needs two or three rounds, never this many.
const MOST_TRIES: u32 = 10;

/// Longer than a server takes to answer under load, shorter than a person waits.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Longer than any of our statements is silent.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);

/// Units take milliseconds; whoever waits this long for a connection waits for something that is stuck.
const POOL_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Postgres {
    pool: Pool,
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
        let manager = Manager::from_config(config, NoTls, ManagerConfig { recycling_method: RecyclingMethod::Fast });
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
        Ok(Self { pool })
    }

    pub async fn query(&self, _scope: Scope, sql: &str, params: &[Value]) -> Result<Vec<Row>, StoreError> {
        let client = self.client().await?;
        let statement = client.prepare_cached(sql).await.map_err(error)?;
        let params: Vec<&(dyn ToSql + Sync)> = params.iter().map(|value| value as _).collect();
        let rows = client.query(&statement, &params).await.map_err(error)?;
        rows.iter().map(values::row).collect()
    }

    /// As the login itself: for the schema.
    pub async fn query_schema(&self, sql: &str) -> Result<Vec<Row>, StoreError> {
        let client = self.client().await?;
        let rows = client.query_typed(sql, &[]).await.map_err(error)?;
        rows.iter().map(values::row).collect()
    }

    /// Planned for these very values each time: how common a word is decides between two plans a thousandfold apart.
    pub async fn query_once(&self, _scope: Scope, sql: &str, params: &[Value]) -> Result<Vec<Row>, StoreError> {
        let client = self.client().await?;
        let params: Vec<(&(dyn ToSql + Sync), Type)> =
            params.iter().map(|value| (value as &(dyn ToSql + Sync), values::type_of(value))).collect();
        let rows = client.query_typed(sql, &params).await.map_err(error)?;
        rows.iter().map(values::row).collect()
    }

    pub async fn commit(&self, _scope: Scope, unit: Unit) -> Result<Committed, StoreError> {
        let steps: Vec<Step> = unit.ops.into_iter().map(Step::of).collect();
        let mut tries = 1;
        loop {
            match self.try_commit(&steps).await {
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
    async fn try_commit(&self, steps: &[Step]) -> Result<Committed, TryError> {
        let mut client = self.client().await.map_err(TryError::Final)?;
        let prepared: Vec<Statement> =
            try_join_all(steps.iter().map(|step| client.prepare_cached(&step.sql))).await.map_err(TryError::of)?;
        // Dropped without a commit it rolls back, whatever ends this function.
        let transaction = client.transaction().await.map_err(TryError::of)?;
        let sent = steps.iter().zip(&prepared).map(|(step, statement)| {
            let params: Vec<&(dyn ToSql + Sync)> = step.params.iter().map(Param::as_sql).collect();
            let transaction = &transaction;
            async move { transaction.execute(statement, &params).await }
        });
        let changed = try_join_all(sent).await.map_err(TryError::of)?;
        for (step, rows) in steps.iter().zip(&changed) {
            if let Some((expected, or_else)) = step.expect
                && expected != *rows
            {
                transaction.rollback().await.map_err(TryError::of)?;
                return Err(TryError::Final(StoreError::Precondition(or_else)));
            }
        }
        transaction.commit().await.map_err(TryError::of)?;
        Ok(Committed { changed })
    }

    pub async fn client(&self) -> Result<Object, StoreError> {
        self.pool.get().await.map_err(|e| match e {
            PoolError::Backend(e) => error(e),
            PoolError::Timeout(_) => StoreError::Unavailable("it does not answer".into()),
            other => StoreError::Unavailable(other.to_string().into()),
        })
    }
}

/// A statement ready to be sent, more than once if need be.
struct Step {
    sql: String,
    params: Vec<Param>,
    expect: Option<(u64, &'static str)>,
}

enum Param {
    One(Value),
    /// A column of a bulk insert.
    Many(Vec<Value>),
}

impl Param {
    fn as_sql(&self) -> &(dyn ToSql + Sync) {
        match self {
            Self::One(value) => value,
            Self::Many(values) => values,
        }
    }
}

impl Step {
    fn of(op: Op) -> Self {
        let expect = op.expect.map(|expect| (expect.rows, expect.or_else));
        match op.action {
            Action::Statement { sql, params } => {
                Self { sql, params: params.into_iter().map(Param::One).collect(), expect }
            }
            Action::Insert(insert) => {
                let sql = insert.postgres_sql();
                let mut columns: Vec<Vec<Value>> =
                    insert.columns.iter().map(|_| Vec::with_capacity(insert.rows.len())).collect();
                for row in insert.rows {
                    for (column, value) in columns.iter_mut().zip(row) {
                        column.push(value);
                    }
                }
                Self { sql, params: columns.into_iter().map(Param::Many).collect(), expect }
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
        let again = matches!(e.code(), Some(&SqlState::T_R_DEADLOCK_DETECTED | &SqlState::T_R_SERIALIZATION_FAILURE));
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
        "53100" => StoreError::Full("the PostgreSQL database".into()),
        "25006" => StoreError::Refused("the PostgreSQL server is read-only; point database.url at the primary".into()),
        // Class 08: connection; 57P: shutting down or starting; 53300: too many connections.
        code if code.starts_with("08") || code.starts_with("57P") || code == "53300" => StoreError::Unavailable(text),
        _ => StoreError::Other(text),
    }
}
