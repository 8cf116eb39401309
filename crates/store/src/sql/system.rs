//! Facts about the database itself, and its maintenance.

use jiff::Timestamp;

use crate::{Database, Dialect, Store, StoreError, SystemStore, postgres};

impl Store {
    /// Returns the kind and version of the database, for people. Queried as the login itself, because there may be no roles yet.
    pub async fn describe(&self) -> Result<String, StoreError> {
        let (name, rows) = match &*self.database {
            Database::Sqlite(db) => ("SQLite", db.query("select sqlite_version()".into(), vec![]).await?),
            Database::Postgres(db) => {
                ("PostgreSQL", db.query_schema("select current_setting('server_version')").await?)
            }
        };
        let row = rows.first().ok_or_else(|| StoreError::other("the database does not return its version"))?;
        Ok(format!("{name} {}", row.get::<String>(0)?))
    }
}

impl SystemStore {
    /// Returns the time of the database's clock.
    pub async fn now(&self) -> Result<Timestamp, StoreError> {
        let row = self.query_one("select mailroom_now()", vec![]).await?;
        row.ok_or_else(|| StoreError::other("the database does not return its time"))?.get(0)
    }

    /// Runs the database's maintenance: partitions for the mail that came and that will come.
    pub async fn upkeep(&self) -> Result<(), StoreError> {
        match &*self.store.database {
            Database::Sqlite(_) => Ok(()),
            Database::Postgres(db) => postgres::partitions::upkeep(db).await,
        }
    }

    /// Returns the problems of tenant isolation in a PostgreSQL, a sentence each.
    pub async fn isolation_problems(&self) -> Result<Vec<String>, StoreError> {
        match &*self.store.database {
            Database::Sqlite(_) => Ok(Vec::new()),
            Database::Postgres(db) => postgres::isolation_check::find_problems(&*db.client().await?).await,
        }
    }

    /// Refreshes the planner's statistics after many rows have come in.
    pub async fn refresh_statistics(&self) -> Result<(), StoreError> {
        let mut unit = crate::Unit::default();
        unit.op("analyze", vec![]);
        if self.store.dialect() == Dialect::Sqlite {
            // A small table would be planned as one to scan for ever; an empty one gets the statistics of the migration again.
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

    /// Overwrites what erased mail left in the file of an SQLite, and returns when nothing is left of what was erased before.
    /// PostgreSQL does so by itself, in time.
    pub async fn scrub(&self, report_progress: &(dyn Fn() + Sync)) -> Result<(), StoreError> {
        match &*self.store.database {
            Database::Sqlite(db) => db.scrub(report_progress).await,
            Database::Postgres(_) => Ok(()),
        }
    }

    /// Releases the disk space of deleted rows when it is worth it, and returns how many bytes. PostgreSQL reuses it by itself.
    pub async fn compact(&self) -> Result<u64, StoreError> {
        match &*self.store.database {
            crate::Database::Sqlite(db) => db.compact().await,
            crate::Database::Postgres(_) => Ok(0),
        }
    }
}
