//! SQLite: one file, one writer thread, a pool of readers.

mod compact;
mod reader;
mod scrub;
mod snapshot;
mod sql_query;
mod statement_journal;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use domain::{Clock, Sha256};
use rusqlite::config::DbConfig;
use rusqlite::functions::FunctionFlags;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OpenFlags, ToSql, ffi};

use crate::snapshot::{ProgressCallback, Snapshot};
use crate::value::{Row, Value, time_text};
use crate::{CommitOutcome, Precondition, ReadQuery, StoreError, Unit};
use reader::ReaderPool;
use writer::Writer;

/// How long to wait for another process to release the file; a unit takes milliseconds, so this one is stuck.
const BUSY_TIMEOUT_SECONDS: u64 = 60;

/// A sixth of the memory that an import may take; the pages that a batch touches stay in it.
const WRITER_CACHE_KIB: i64 = 24 << 10;

/// Pages after which the log is folded into the database file: the larger, the fewer times a hot page is written, and
/// the more disk the log takes (32 MB).
const CHECKPOINT_PAGES: i64 = 4000;

/// Deleted rows are overwritten in pages that are written anyway. Otherwise a copy of a row would stay wherever the row was
/// before it grew or its page was split, and nothing could find those copies when the row is erased.
const OVERWRITE_IN_PAGES: &str = "fast";

/// Pages that become free are overwritten, too, which is one more write for each.
const OVERWRITE_PAGES: &str = "on";

/// How often to check whether another process has changed the file: soon enough that people do not notice, and seldom
/// enough that an idle process needs less than a hundredth of a core for it.
const CHANGE_POLL_INTERVAL: Duration = Duration::from_millis(40);

#[derive(Debug)]
pub(crate) struct Sqlite {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    writer: Writer,
    readers: ReaderPool,
}

impl Sqlite {
    pub fn open(path: &Path, readers: usize, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            crate::private_folder(folder)?;
        }
        let writer = open_connection(path, &clock, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?;
        retry_while_busy(|| prepare_for_writing(&writer)).map_err(error)?;
        Ok(Self {
            path: path.to_owned(),
            writer: Writer::start(writer)?,
            readers: ReaderPool::new(path.to_owned(), readers, clock.clone()),
            clock,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub async fn commit(&self, unit: Arc<Unit>) -> Result<CommitOutcome, StoreError> {
        self.writer.commit(unit).await
    }

    pub async fn query(&self, sql: String, params: Vec<Value>) -> Result<Vec<Row>, StoreError> {
        Ok(self.query_all(vec![(sql, params)]).await?.pop().unwrap_or_default())
    }

    pub async fn query_all(&self, reads: Vec<ReadQuery>) -> Result<Vec<Vec<Row>>, StoreError> {
        self.readers.query_all(reads).await
    }

    /// Calls `heard` whenever another process has changed the file, until the writer has stopped.
    pub async fn listen(&self, heard: impl Fn()) -> Result<(), StoreError> {
        let mut seen = self.writer.data_version().await?;
        loop {
            tokio::time::sleep(CHANGE_POLL_INTERVAL).await;
            let now = self.writer.data_version().await?;
            if now != seen {
                seen = now;
                heard();
            }
        }
    }

    /// Copies the database; see [`crate::Store::snapshot`].
    pub async fn snapshot(&self, to: &Path, watch: Arc<ProgressCallback>) -> Result<Snapshot, StoreError> {
        let mut from = open_connection(&self.path, &self.clock, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        let to = to.to_owned();
        let taken = tokio::task::spawn_blocking(move || snapshot::take(&mut from, &to, watch)).await;
        taken.map_err(|e| StoreError::other(e.to_string()))?
    }

    /// Opens a connection for schema changes, outside the writer thread.
    pub fn migration_connection(&self) -> Result<Connection, StoreError> {
        open_connection(&self.path, &self.clock, OpenFlags::SQLITE_OPEN_READ_WRITE)
    }
}

fn open_connection(path: &Path, clock: &Arc<dyn Clock>, flags: OpenFlags) -> Result<Connection, StoreError> {
    let mut connection =
        Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX).map_err(|e| open_error(path, e))?;
    connection.busy_handler(Some(wait_while_busy)).map_err(error)?;
    connection.set_prepared_statement_cache_capacity(256);
    // Otherwise a statement is planned anew for each value that it is given.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(error)?;
    let (clock, micros) = (clock.clone(), clock.clone());
    connection
        .create_scalar_function("mailroom_now", 0, FunctionFlags::SQLITE_UTF8, move |_| Ok(time_text(clock.now())))
        .map_err(error)?;
    let clock = micros;
    connection
        .create_scalar_function("mailroom_micros", 0, FunctionFlags::SQLITE_UTF8, move |_| {
            Ok(clock.now().as_microsecond())
        })
        .map_err(error)?;
    connection
        .create_scalar_function(
            "mailroom_sha256",
            1,
            FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC,
            |arguments| Ok(Sha256::of(arguments.get_raw(0).as_str()?.as_bytes()).hex()),
        )
        .map_err(error)?;
    connection.pragma_update(None, "foreign_keys", true).map_err(error)?;
    Ok(connection)
}

fn prepare_for_writing(connection: &Connection) -> rusqlite::Result<()> {
    // Only a new file takes these two; they cannot change later.
    connection.pragma_update(None, "page_size", 8192)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    connection.pragma_update(None, "journal_size_limit", 64 << 20)?;
    connection.pragma_update(None, "secure_delete", OVERWRITE_IN_PAGES)?;
    // What SQLite recommends so that `analyze` takes milliseconds, whatever the size of the tables.
    connection.pragma_update(None, "analysis_limit", 400)?;
    connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)
}

/// Waits for the lock, as SQLite's busy handler. Its own one backs off to 100 ms, in which a busy writer has long taken the
/// lock again; short and even delays let every process have it.
fn wait_while_busy(tries: i32) -> bool {
    const BUSY_RETRY_DELAY: Duration = Duration::from_millis(2);
    std::thread::sleep(BUSY_RETRY_DELAY);
    u64::try_from(tries).unwrap_or(0) * 2 < BUSY_TIMEOUT_SECONDS * 1000
}

/// Runs `work` again while the file is busy. Processes that start together on a new file all want to turn its log on. SQLite
/// then answers "busy" at once instead of asking the handler, since waiting with a read lock could be a deadlock; trying
/// again from the start is not.
fn retry_while_busy(mut work: impl FnMut() -> rusqlite::Result<()>) -> rusqlite::Result<()> {
    let mut tries = 0;
    loop {
        match work() {
            Err(e) if e.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy) && wait_while_busy(tries) => {
                tries += 1;
            }
            outcome => return outcome,
        }
    }
}

fn open_error(path: &Path, e: rusqlite::Error) -> StoreError {
    match e.sqlite_error_code() {
        Some(rusqlite::ErrorCode::CannotOpen) => StoreError::Refused(
            format!(
                "cannot open or make the database {}; check that the folder exists and can be written",
                path.display()
            )
            .into(),
        ),
        _ => error(e),
    }
}

pub(crate) fn error(e: rusqlite::Error) -> StoreError {
    use rusqlite::ErrorCode as Code;
    match e.sqlite_error_code() {
        Some(Code::ConstraintViolation) if extended(&e) == Some(ffi::SQLITE_CONSTRAINT_FOREIGNKEY) => {
            StoreError::Precondition(Precondition::ReferentGone)
        }
        Some(Code::DiskFull) => StoreError::Full("the database".into()),
        Some(Code::DatabaseBusy | Code::DatabaseLocked) => StoreError::Busy(BUSY_TIMEOUT_SECONDS),
        Some(Code::ReadOnly | Code::CannotOpen | Code::PermissionDenied) => StoreError::Refused(
            "the database file cannot be written; check the rights of the data folder and that its disk is not read-only"
                .into(),
        ),
        Some(Code::DatabaseCorrupt) => StoreError::corrupt("the database file does not read as SQLite expects"),
        Some(Code::NotADatabase) => StoreError::Refused(
            "the database file is not a SQLite database; check database.url and data_dir".into(),
        ),
        // The file that readers share could not be made larger.
        Some(Code::SystemIoFailure) if extended(&e) == Some(ffi::SQLITE_IOERR_SHMSIZE) => {
            StoreError::Full("the database".into())
        }
        Some(Code::SystemIoFailure) => StoreError::Refused(
            format!("the disk of the database fails ({e}); check it, then run the command again").into(),
        ),
        _ => StoreError::other(e.to_string()),
    }
}

fn extended(e: &rusqlite::Error) -> Option<i32> {
    match e {
        rusqlite::Error::SqliteFailure(failure, _) => Some(failure.extended_code),
        _ => None,
    }
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        match self {
            Self::Null => Ok(ToSqlOutput::Borrowed(ValueRef::Null)),
            Self::Bool(truth) => Ok(ToSqlOutput::from(i64::from(*truth))),
            Self::Int(number) => Ok(ToSqlOutput::from(*number)),
            Self::Text(value) | Self::Json(value) | Self::Tokens(value) => {
                Ok(ToSqlOutput::Borrowed(ValueRef::Text(value.as_bytes())))
            }
            Self::Bytes(bytes) => Ok(ToSqlOutput::Borrowed(ValueRef::Blob(bytes))),
            Self::Uuid(id) => Ok(id.to_string().into()),
            Self::Time(time) => Ok(time_text(*time).into()),
            Self::Hash(hash) => Ok(hash.hex().into()),
            Self::List(values) => Ok(serde_json::Value::Array(values.iter().map(json).collect()).to_string().into()),
        }
    }
}

/// Returns a list element as `json_each` gives it back.
fn json(value: &Value) -> serde_json::Value {
    match value {
        Value::Int(number) => (*number).into(),
        Value::Bool(truth) => i64::from(*truth).into(),
        Value::Text(text) | Value::Json(text) | Value::Tokens(text) => text.as_str().into(),
        Value::Uuid(id) => id.to_string().into(),
        Value::Time(time) => time_text(*time).into(),
        Value::Hash(hash) => hash.hex().into(),
        Value::List(values) => values.iter().map(json).collect(),
        Value::Null | Value::Bytes(_) => serde_json::Value::Null,
    }
}

fn value(column: ValueRef<'_>) -> Value {
    match column {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::Int(number),
        ValueRef::Real(number) => Value::Text(number.to_string()),
        ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => Value::Bytes(bytes.to_vec()),
    }
}
