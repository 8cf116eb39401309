//! Facts about the database itself.

use jiff::Timestamp;

use crate::{Dialect, StoreError, SystemStore};

impl SystemStore {
    /// What the database's clock says.
    pub async fn now(&self) -> Result<Timestamp, StoreError> {
        let row = self.query_one("select mailroom_now()", vec![]).await?;
        row.ok_or_else(|| StoreError::other("the database does not tell the time"))?.get(0)
    }

    /// For people: which database this is, in which version.
    pub async fn describe(&self) -> Result<String, StoreError> {
        let (sql, name) = match self.store.dialect() {
            Dialect::Sqlite => ("select sqlite_version()", "SQLite"),
            Dialect::Postgres => ("select current_setting('server_version')", "PostgreSQL"),
        };
        let row = self.query_one(sql, vec![]).await?;
        let version: String = row.ok_or_else(|| StoreError::other("the database does not tell its version"))?.get(0)?;
        Ok(format!("{name} {version}"))
    }

    /// Refreshes what the planner knows after many rows have come in.
    pub async fn analyze(&self) -> Result<(), StoreError> {
        let mut unit = crate::Unit::default();
        unit.op("analyze", vec![]);
        self.commit(unit).await.map(drop)
    }

    /// Gives back disk that deleted rows took, when it is worth the while; how many bytes. PostgreSQL reuses it by
    /// itself.
    pub async fn compact(&self) -> Result<u64, StoreError> {
        match &*self.store.database {
            crate::Database::Sqlite(db) => db.compact().await,
            crate::Database::Postgres(_) => Ok(0),
        }
    }
}
