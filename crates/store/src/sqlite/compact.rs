//! Gives back the disk that deleted rows took.

use rusqlite::Connection;

use super::{Sqlite, error};
use crate::StoreError;

/// With less than a twentieth of the file, free pages are left to be filled again: compacting writes the whole file anew.
const WORTHWHILE: i64 = 20;

impl Sqlite {
    /// The bytes that the file is smaller by. Readers go on meanwhile, writers wait.
    pub async fn compact(&self) -> Result<u64, StoreError> {
        let connection = self.migration_connection()?;
        tokio::task::spawn_blocking(move || compact(&connection).map_err(error))
            .await
            .map_err(|e| StoreError::other(e.to_string()))?
    }
}

fn compact(connection: &Connection) -> rusqlite::Result<u64> {
    let number = |pragma: &str| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    let (before, free) = (number("page_count")?, number("freelist_count")?);
    if free * WORTHWHILE < before {
        return Ok(0);
    }
    // Deleted entries stay in the text index until it is merged.
    connection.execute_batch("insert into email_search (email_search) values ('optimize')")?;
    connection.execute_batch("vacuum; pragma wal_checkpoint(truncate)")?;
    let freed = (before - number("page_count")?) * number("page_size")?;
    Ok(u64::try_from(freed).unwrap_or(0))
}
