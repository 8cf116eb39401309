//! Releases the disk space of deleted rows.

use rusqlite::Connection;

use super::{Sqlite, error};
use crate::StoreError;

/// Below a twentieth of the file, free pages are left to be filled again: compacting writes the whole file anew.
const MIN_FREE_PAGES_DIVISOR: i64 = 20;

impl Sqlite {
    /// Compacts the file if it is worth it, or if something was erased since the last time, and returns the bytes that it is
    /// smaller by. Readers go on meanwhile, writers wait.
    pub async fn compact(&self) -> Result<u64, StoreError> {
        let connection = self.migration_connection()?;
        tokio::task::spawn_blocking(move || compact(&connection).map_err(error))
            .await
            .map_err(|e| StoreError::other(e.to_string()))?
    }
}

fn compact(connection: &Connection) -> rusqlite::Result<u64> {
    let (before, free) = (pragma(connection, "page_count")?, pragma(connection, "freelist_count")?);
    let (erasures, seen): (i64, i64) =
        connection.query_row("select wanted, compacted from scrubs", [], |row| Ok((row.get(0)?, row.get(1)?)))?;
    if free * MIN_FREE_PAGES_DIVISOR < before && erasures == seen {
        return Ok(0);
    }
    // Deleted entries stay in the text index until it is merged.
    connection.execute_batch("insert into email_search (email_search) values ('optimize')")?;
    connection.execute_batch("vacuum; pragma wal_checkpoint(truncate)")?;
    connection.execute("update scrubs set compacted = ?1 where compacted < ?1", [erasures])?;
    let freed = (before - pragma(connection, "page_count")?) * pragma(connection, "page_size")?;
    Ok(u64::try_from(freed).unwrap_or(0))
}

fn pragma(connection: &Connection, name: &str) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, name, |row| row.get(0))
}
