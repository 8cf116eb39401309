//! A query that a person wrote, over the SQL views: what is asked, and what comes back.
//!
//! Nobody of ours has read it. The databases hold it to reading the views, of one tenant or of all, for a limited time:
//! see [`crate::sqlite`] and [`crate::postgres`], a file each.

use std::time::Duration;

use domain::TenantId;
use serde_json::Value;

use crate::{Database, Store, StoreError};

/// The most that a result may take: it is held in memory, here and by the server.
pub const MAX_RESULT_BYTES: usize = 64 << 20;

#[derive(Debug, Clone)]
pub struct SqlQuery {
    pub text: String,
    /// Whose rows it sees; `None`: those of all tenants.
    pub tenant: Option<TenantId>,
    pub max_rows: usize,
    pub timeout: Duration,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SqlResult {
    pub columns: Vec<String>,
    /// The first rows, at most as many as were asked for. Numbers, truths and JSON as such, all else as text.
    pub rows: Vec<Vec<Value>>,
    /// There are more rows.
    pub is_cut: bool,
}

/// Why a query has no result.
#[derive(Debug, thiserror::Error)]
pub enum SqlQueryError {
    /// What the database says of it.
    #[error("{0}")]
    Refused(String),
    #[error("the query was stopped after {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    #[error("the result is larger than {} MiB; select fewer rows or columns", MAX_RESULT_BYTES >> 20)]
    TooLarge,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl SqlQueryError {
    /// It is no query: it would show nothing.
    pub(crate) fn no_query() -> Self {
        Self::Refused("only a query that returns rows can be run".to_owned())
    }
}

impl Store {
    /// Runs a query over the SQL views. It can neither change anything nor read anything else.
    pub async fn run_sql_query(&self, query: SqlQuery) -> Result<SqlResult, SqlQueryError> {
        match &*self.database {
            Database::Sqlite(db) => db.run_sql_query(query).await,
            Database::Postgres(db) => db.run_sql_query(&query).await,
        }
    }
}
