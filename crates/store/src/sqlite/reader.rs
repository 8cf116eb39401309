//! The pool of connections for reads, used on blocking threads.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use domain::Clock;
use rusqlite::{Connection, OpenFlags};
use tokio::sync::Semaphore;

use super::{error, open_connection, value};
use crate::value::{Row, Value};
use crate::{ReadQuery, StoreError};

#[derive(Debug)]
pub(super) struct ReaderPool {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    permits: Arc<Semaphore>,
    idle: Arc<Mutex<Vec<Connection>>>,
}

impl ReaderPool {
    pub fn new(path: PathBuf, readers: usize, clock: Arc<dyn Clock>) -> Self {
        Self { path, clock, permits: Arc::new(Semaphore::new(readers)), idle: Arc::default() }
    }

    /// Runs queries one after the other on one thread: handing them to several takes longer than most of them.
    pub async fn query_all(&self, reads: Vec<ReadQuery>) -> Result<Vec<Vec<Row>>, StoreError> {
        let permit = self.permits.clone().acquire_owned().await.map_err(|e| StoreError::other(e.to_string()))?;
        let connection = match self.idle.lock().expect("no reader panics while it holds the list").pop() {
            Some(connection) => connection,
            None => self.open()?,
        };
        let idle = self.idle.clone();
        tokio::task::spawn_blocking(move || {
            let rows: Result<_, _> = reads.iter().map(|(sql, params)| run(&connection, sql, params)).collect();
            idle.lock().expect("no reader panics while it holds the list").push(connection);
            drop(permit);
            rows.map_err(error)
        })
        .await
        .map_err(|e| StoreError::other(e.to_string()))?
    }

    fn open(&self) -> Result<Connection, StoreError> {
        // Opened for writing because a read-only connection cannot recover the log of a crashed process; `query_only`
        // keeps it from changing anything.
        let connection = open_connection(&self.path, &self.clock, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        connection.pragma_update(None, "query_only", true).map_err(error)?;
        Ok(connection)
    }
}

pub(super) fn run(connection: &Connection, sql: &str, params: &[Value]) -> rusqlite::Result<Vec<Row>> {
    let mut statement = connection.prepare_cached(sql)?;
    bind(&mut statement, params)?;
    let width = statement.column_count();
    let mut rows = statement.raw_query();
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let columns = (0..width).map(|column| Ok(value(row.get_ref(column)?)));
        found.push(Row(columns.collect::<rusqlite::Result<_>>()?));
    }
    Ok(found)
}

/// Binds parameters by name: SQLite reads `$1` as a name, numbered by first appearance, so that the order in the text is
/// free.
pub(super) fn bind(statement: &mut rusqlite::Statement<'_>, params: &[Value]) -> rusqlite::Result<()> {
    for (n, param) in params.iter().enumerate() {
        if let Some(index) = statement.parameter_index(&format!("${}", n + 1))? {
            statement.raw_bind_parameter(index, param)?;
        }
    }
    Ok(())
}
