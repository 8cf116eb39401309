//! Runs a query that a person wrote, on a connection of its own that can read the SQL views and nothing else.
//!
//! Tables are out of reach because the query has no name for them. The database is attached, read-only, under a name that
//! nobody can guess; temporary views with the names that people know read it from there, with the rows of one tenant or of
//! all; and since a bare name would be looked for in all databases, an empty temporary table stands before each table:
//!
//! ```text
//! mailroom_emails ──► <random>.emails [where tenant_id = …]
//! emails          ──► nothing
//! ```
//!
//! SQLite's authorizer stands behind that, for functions, pragmas and whatever is no query. It alone would not do: it is not
//! asked about the columns of `join … using (…)`, and a name that `with` gave passes for a view.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use domain::Clock;
use rusqlite::config::DbConfig;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use serde_json::Value;

use super::{Sqlite, error, open_connection};
use crate::StoreError;
use crate::sql_query::{MAX_RESULT_BYTES, SqlQuery, SqlQueryError, SqlResult};
use crate::views::VIEWS;

/// How often the time is looked at: within a millisecond, for a hundredth of the work.
const STEPS_BETWEEN_LOOKS: i32 = 10_000;

/// Longer than any query that somebody writes.
const MAX_STATEMENT_BYTES: i32 = 1 << 20;

impl Sqlite {
    pub async fn run_sql_query(&self, query: SqlQuery) -> Result<SqlResult, SqlQueryError> {
        let (path, clock) = (self.path.clone(), self.clock.clone());
        let run = tokio::task::spawn_blocking(move || run(&path, &clock, &query)).await;
        run.map_err(|e| StoreError::other(e.to_string()))?
    }
}

fn run(path: &Path, clock: &Arc<dyn Clock>, query: &SqlQuery) -> Result<SqlResult, SqlQueryError> {
    let connection = open(path, clock, query)?;
    let mut statement = connection.prepare(&query.text).map_err(|e| failure(e, query))?;
    let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
    if columns.is_empty() || !statement.readonly() {
        return Err(SqlQueryError::no_query());
    }
    let mut found = SqlResult { columns, rows: Vec::new(), is_cut: false };
    let mut bytes = 0;
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next().map_err(|e| failure(e, query))? {
        if found.rows.len() == query.max_rows {
            found.is_cut = true;
            break;
        }
        let cells = (0..found.columns.len()).map(|column| Ok(cell(row.get_ref(column)?)));
        let cells: Vec<Value> = cells.collect::<rusqlite::Result<_>>().map_err(|e| failure(e, query))?;
        bytes += cells.iter().map(size).sum::<usize>();
        if bytes > MAX_RESULT_BYTES {
            return Err(SqlQueryError::TooLarge);
        }
        found.rows.push(cells);
    }
    Ok(found)
}

/// Opens a connection that reads the views and nothing else, until the time is over.
fn open(path: &Path, clock: &Arc<dyn Clock>, query: &SqlQuery) -> Result<Connection, SqlQueryError> {
    // What is attached is opened in the same way: read-only.
    let mut connection = open_connection(Path::new(":memory:"), clock, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let hidden: String =
        connection.query_row("select 'd' || lower(hex(randomblob(16)))", [], |row| row.get(0)).map_err(error)?;
    connection.execute(&format!("attach $1 as {hidden}"), [path.to_string_lossy()]).map_err(error)?;
    let names = show_views_only(&connection, &hidden, query).map_err(error)?;
    if !connection.is_readonly(hidden.as_str()).map_err(error)? || names.unhidden > 0 {
        return Err(SqlQueryError::Store(StoreError::other("the tables cannot be hidden from a query")));
    }
    confine(&mut connection, ReaderAuthorizer { hidden, tables: names.tables }, query).map_err(error)?;
    Ok(connection)
}

/// The names of the attached database.
struct TableNames {
    /// In lower case, with those of virtual tables that come with SQLite.
    tables: HashSet<String>,
    /// How many nothing stands before.
    unhidden: i64,
}

/// Makes the views, and puts something before each table. All in the transaction in which the query will run: what another
/// process adds to the schema meanwhile is not there.
fn show_views_only(connection: &Connection, hidden: &str, query: &SqlQuery) -> rusqlite::Result<TableNames> {
    connection.execute_batch("begin")?;
    let list = format!("select name from {hidden}.sqlite_schema where type in ('table', 'view')");
    let names: Vec<String> = connection.prepare(&list)?.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    for view in VIEWS {
        let rows = view.sqlite_query(hidden, query.tenant);
        connection.execute_batch(&format!("create temp view {} as {rows}", view.name))?;
    }
    for name in names.iter().filter(|name| !VIEWS.iter().any(|view| view.name == **name)) {
        // SQLite makes its own tables itself, below.
        if !name.starts_with("sqlite_") {
            connection.execute_batch(&format!("create temp table {} (hidden)", quoted(name)))?;
        }
    }
    connection.execute_batch("create temp table numbered (hidden integer primary key autoincrement); analyze temp")?;
    let unhidden =
        format!("select count(*) from ({list}) where lower(name) not in (select lower(name) from temp.sqlite_schema)");
    let unhidden = connection.query_row(&unhidden, [], |row| row.get(0))?;
    let modules = "select name from pragma_module_list";
    let modules: Vec<String> =
        connection.prepare(modules)?.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    Ok(TableNames { tables: names.iter().chain(&modules).map(|name| name.to_ascii_lowercase()).collect(), unhidden })
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn confine(connection: &mut Connection, authorizer: ReaderAuthorizer, query: &SqlQuery) -> rusqlite::Result<()> {
    connection.pragma_update(None, "query_only", true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, i32::try_from(MAX_RESULT_BYTES).unwrap_or(i32::MAX))?;
    connection.set_limit(Limit::SQLITE_LIMIT_SQL_LENGTH, MAX_STATEMENT_BYTES)?;
    let (begun, timeout) = (Instant::now(), query.timeout);
    connection.progress_handler(STEPS_BETWEEN_LOOKS, Some(move || begun.elapsed() >= timeout))?;
    connection.authorizer(Some(move |context: AuthContext<'_>| authorizer.decide(&context)))
}

/// Decides what a query may do.
struct ReaderAuthorizer {
    /// What the database is called, which only the views know.
    hidden: String,
    tables: HashSet<String>,
}

impl ReaderAuthorizer {
    fn decide(&self, context: &AuthContext<'_>) -> Authorization {
        let is_allowed = match context.action {
            AuthAction::Select | AuthAction::Recursive => true,
            AuthAction::Function { function_name } => !function_name.eq_ignore_ascii_case("load_extension"),
            AuthAction::Read { table_name, column_name } => {
                self.may_read(context.database_name, &table_name.to_ascii_lowercase(), column_name)
            }
            _ => false,
        };
        if is_allowed { Authorization::Allow } else { Authorization::Deny }
    }

    fn may_read(&self, database: Option<&str>, table: &str, column: &str) -> bool {
        let is_view = VIEWS.iter().any(|view| view.name == table);
        let is_of_json = ["json_each", "json_tree"].contains(&table);
        match database {
            Some("temp") => is_view,
            Some(name) => name == self.hidden || is_of_json,
            // Of something whose columns nobody reads, as in `count(*)`, SQLite gives the name as it was written. What is no
            // table is a name that `with` gave.
            None => column.is_empty() && (is_view || is_of_json || !self.is_table(table)),
        }
    }

    fn is_table(&self, name: &str) -> bool {
        self.tables.contains(name) || name.starts_with("sqlite_") || name.starts_with("pragma_")
    }
}

fn cell(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => number.into(),
        ValueRef::Real(number) => number.into(),
        ValueRef::Text(text) => String::from_utf8_lossy(text).into(),
        // As PostgreSQL writes bytes.
        ValueRef::Blob(bytes) => bytes.iter().fold("\\x".to_owned(), |hex, byte| format!("{hex}{byte:02x}")).into(),
    }
}

/// Returns about how much memory a value takes.
fn size(value: &Value) -> usize {
    size_of::<Value>() + value.as_str().map_or(0, str::len)
}

fn failure(e: rusqlite::Error, query: &SqlQuery) -> SqlQueryError {
    match e.sqlite_error_code() {
        Some(ErrorCode::OperationInterrupted) => SqlQueryError::TimedOut(query.timeout),
        Some(ErrorCode::TooBig) => SqlQueryError::TooLarge,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseCorrupt | ErrorCode::SystemIoFailure) => {
            SqlQueryError::Store(error(e))
        }
        _ => SqlQueryError::Refused(reason(&e)),
    }
}

/// Returns what SQLite says, without the statement that the driver repeats.
fn reason(e: &rusqlite::Error) -> String {
    match e {
        rusqlite::Error::SqliteFailure(_, Some(text)) => text.clone(),
        rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
        rusqlite::Error::MultipleStatement => "only one statement can be run".to_owned(),
        other => other.to_string(),
    }
}
