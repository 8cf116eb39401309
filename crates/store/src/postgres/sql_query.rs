//! Runs a query that a person wrote, as a reader.
//!
//! Our login may become `mailroom_system`, and a query could say so: `set_config('role', …)` is a function like any other,
//! and so is `query_to_xml`, which runs another query. A setting of the session could name another tenant in the same
//! way. Therefore:
//!
//! - the query runs inside a `security definer` function that a reader role owns. In there, PostgreSQL refuses to change the
//!   role, whatever the login may;
//! - whose rows it sees is a row of `sql_readers` for our login, as for every reader. It is written by this transaction,
//!   which only we see, and which is never committed;
//! - the transaction reads only, and ends with the connection, so that no lock or setting is left to whoever would get
//!   that next, from our pool or PgBouncer's.

use deadpool_postgres::Object;
use postgres_types::{ToSql, Type};
use serde_json::Value;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::roles::{ALL_READER_ROLE, SYSTEM_ROLE, TENANT_READER_ROLE};
use super::{Postgres, error};
use crate::sql_query::{MAX_RESULT_BYTES, SqlQuery, SqlQueryError, SqlResult};

/// Each row as a JSON list of its values, because a function cannot return rows of any shape. `execute` for a loop takes one
/// statement that returns rows, and refuses every other.
const RUN: &str = "create function pg_temp.mailroom_run(statement text, max_rows bigint, max_bytes bigint)
returns setof text language plpgsql security definer as $run$
declare
    tuple record;
    line text;
    bytes bigint := 0;
begin
    for tuple in execute statement loop
        line := (select coalesce(json_agg(cell.value order by cell.ordinality), '[]')
                 from json_each(row_to_json(tuple)) with ordinality cell);
        bytes := bytes + octet_length(line);
        if bytes > max_bytes then
            raise exception 'the result is too large' using errcode = 'program_limit_exceeded';
        end if;
        return next line;
        max_rows := max_rows - 1;
        exit when max_rows <= 0;
    end loop;
end $run$";

impl Postgres {
    pub async fn run_sql_query(&self, query: &SqlQuery) -> Result<SqlResult, SqlQueryError> {
        // Taken out of the pool for good.
        let client = Object::take(self.client().await?);
        client.batch_execute(&begin(query)).await.map_err(error)?;
        let columns = columns(&client, query).await?;
        let rows = rows(&client, query).await?;
        let is_cut = rows.len() > query.max_rows;
        Ok(SqlResult { columns, rows: rows.into_iter().take(query.max_rows).collect(), is_cut })
    }
}

/// Returns the statements after which our login is a reader, of a tenant or of all, in a transaction that only reads.
fn begin(query: &SqlQuery) -> String {
    let (role, tenant) = match query.tenant {
        Some(tenant) => (TENANT_READER_ROLE, format!("'{tenant}'")),
        None => (ALL_READER_ROLE, "null".to_owned()),
    };
    format!(
        "begin; set local role {SYSTEM_ROLE};
         insert into sql_readers (login, tenant_id, transaction_id, created_at)
             values (session_user, {tenant}, pg_current_xact_id()::text::bigint, mailroom_now());
         set local role {role}; {RUN};
         set local transaction_read_only = on; set local statement_timeout = {}",
        query.timeout.as_millis()
    )
}

/// Returns the names of the columns, for which the server parses the query without running anything of it.
async fn columns(client: &Client, query: &SqlQuery) -> Result<Vec<String>, SqlQueryError> {
    let statement = client.prepare(&query.text).await.map_err(|e| failure(e, query))?;
    if statement.columns().is_empty() {
        return Err(SqlQueryError::no_query());
    }
    Ok(statement.columns().iter().map(|column| column.name().to_owned()).collect())
}

async fn rows(client: &Client, query: &SqlQuery) -> Result<Vec<Vec<Value>>, SqlQueryError> {
    // One more shows whether there are more.
    let max_rows = i64::try_from(query.max_rows).unwrap_or(i64::MAX).saturating_add(1);
    let max_bytes = MAX_RESULT_BYTES as i64;
    let run = "select * from pg_temp.mailroom_run($1, $2, $3)";
    let params: [(&(dyn ToSql + Sync), Type); 3] =
        [(&query.text, Type::TEXT), (&max_rows, Type::INT8), (&max_bytes, Type::INT8)];
    let lines = client.query_typed(run, &params).await.map_err(|e| failure(e, query))?;
    let parsed = lines.iter().map(|line| serde_json::from_str(line.get(0)));
    parsed.collect::<Result<_, _>>().map_err(|e| SqlQueryError::Store(crate::StoreError::other(e.to_string())))
}

fn failure(e: tokio_postgres::Error, query: &SqlQuery) -> SqlQueryError {
    let Some(refusal) = e.as_db_error() else { return SqlQueryError::Store(error(e)) };
    match refusal.code() {
        &SqlState::QUERY_CANCELED => SqlQueryError::TimedOut(query.timeout),
        &SqlState::PROGRAM_LIMIT_EXCEEDED => SqlQueryError::TooLarge,
        code if code.code().starts_with("08") || code.code().starts_with("57P") => SqlQueryError::Store(error(e)),
        _ => SqlQueryError::Refused(refusal.message().to_owned()),
    }
}
