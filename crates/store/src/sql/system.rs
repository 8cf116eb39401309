//! Facts about the database itself.

use jiff::Timestamp;

use crate::{Database, Dialect, Store, StoreError, SystemStore, postgres};

impl Store {
    /// For people: which database this is, in which version. Asked as the login itself, for there may be no roles yet.
    pub async fn describe(&self) -> Result<String, StoreError> {
        let (name, rows) = match &*self.database {
            Database::Sqlite(db) => ("SQLite", db.query("select sqlite_version()".into(), vec![]).await?),
            Database::Postgres(db) => {
                ("PostgreSQL", db.query_schema("select current_setting('server_version')").await?)
            }
        };
        let row = rows.first().ok_or_else(|| StoreError::other("the database does not tell its version"))?;
        Ok(format!("{name} {}", row.get::<String>(0)?))
    }
}

impl SystemStore {
    /// What the database's clock says.
    pub async fn now(&self) -> Result<Timestamp, StoreError> {
        let row = self.query_one("select mailroom_now()", vec![]).await?;
        row.ok_or_else(|| StoreError::other("the database does not tell the time"))?.get(0)
    }

    /// What the database needs from time to time: today, partitions for the mail that came and that will come.
    pub async fn upkeep(&self) -> Result<(), StoreError> {
        match &*self.store.database {
            Database::Sqlite(_) => Ok(()),
            Database::Postgres(db) => postgres::partitions::upkeep(db).await,
        }
    }

    /// What is not in place of that which keeps tenants apart in a PostgreSQL, a sentence each.
    pub async fn isolation_problems(&self) -> Result<Vec<String>, StoreError> {
        match &*self.store.database {
            Database::Sqlite(_) => Ok(Vec::new()),
            Database::Postgres(db) => postgres::walk::problems(&*db.client().await?).await,
        }
    }

    /// Refreshes what the planner knows after many rows have come in.
    pub async fn analyze(&self) -> Result<(), StoreError> {
        let mut unit = crate::Unit::default();
        unit.op("analyze", vec![]);
        if self.store.dialect() == Dialect::Sqlite {
            // A table that is small today is planned for ever as one to read from end to end; and one that is empty
            // is told of again as the migration does.
            unit.op("delete from sqlite_stat1 where cast(stat as integer) < 1000", vec![]);
            unit.op(
                "insert into sqlite_stat1 (tbl, idx, stat)
                 select * from (values ('placements', 'placements', '1000000 20000 1000 1'),
                                       ('placements', 'placements_email', '1000000 100000 2'),
                                       ('placements', 'placements_message', '1000000 100000 20000 2'))
                 where not exists (select 1 from sqlite_stat1 where tbl = 'placements')",
                vec![],
            );
            unit.op("analyze sqlite_schema", vec![]);
        }
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
