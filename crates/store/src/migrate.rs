//! Brings a database to the schema that this program knows. Forward only; safe when two processes try at once.

use std::collections::BTreeMap;

use domain::Sha256;

use crate::failpoint::{self, Effect};
use crate::postgres::{Postgres, partitions, roles};
use crate::sqlite::Sqlite;
use crate::{Dialect, StoreError, postgres, restored, sqlite, views};

struct Migration {
    version: u32,
    name: &'static str,
    sqlite: &'static str,
    postgres: &'static str,
}

const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        name: "foundation",
        sqlite: include_str!("../migrations/0001_foundation.sqlite.sql"),
        postgres: include_str!("../migrations/0001_foundation.postgres.sql"),
    },
    Migration {
        version: 2,
        name: "collector",
        sqlite: include_str!("../migrations/0002_collector.sqlite.sql"),
        postgres: include_str!("../migrations/0002_collector.postgres.sql"),
    },
    Migration {
        version: 3,
        name: "row_security",
        sqlite: include_str!("../migrations/0003_row_security.sqlite.sql"),
        postgres: include_str!("../migrations/0003_row_security.postgres.sql"),
    },
    Migration {
        version: 4,
        name: "jobs",
        sqlite: include_str!("../migrations/0004_jobs.sqlite.sql"),
        postgres: include_str!("../migrations/0004_jobs.postgres.sql"),
    },
    Migration {
        version: 5,
        name: "sync",
        sqlite: include_str!("../migrations/0005_sync.sqlite.sql"),
        postgres: include_str!("../migrations/0005_sync.postgres.sql"),
    },
    Migration {
        version: 6,
        name: "pauses",
        sqlite: include_str!("../migrations/0006_pauses.sqlite.sql"),
        postgres: include_str!("../migrations/0006_pauses.postgres.sql"),
    },
    Migration {
        version: 7,
        name: "service",
        sqlite: include_str!("../migrations/0007_service.sqlite.sql"),
        postgres: include_str!("../migrations/0007_service.postgres.sql"),
    },
    Migration {
        version: 8,
        name: "push",
        sqlite: include_str!("../migrations/0008_push.sqlite.sql"),
        postgres: include_str!("../migrations/0008_push.postgres.sql"),
    },
    Migration {
        version: 9,
        name: "subscriptions",
        sqlite: include_str!("../migrations/0009_subscriptions.sqlite.sql"),
        postgres: include_str!("../migrations/0009_subscriptions.postgres.sql"),
    },
    Migration {
        version: 10,
        name: "directories",
        sqlite: include_str!("../migrations/0010_directories.sqlite.sql"),
        postgres: include_str!("../migrations/0010_directories.postgres.sql"),
    },
    Migration {
        version: 11,
        name: "polls",
        sqlite: include_str!("../migrations/0011_polls.sqlite.sql"),
        postgres: include_str!("../migrations/0011_polls.postgres.sql"),
    },
    Migration {
        version: 12,
        name: "without_scripted",
        sqlite: include_str!("../migrations/0012_without_scripted.sqlite.sql"),
        postgres: include_str!("../migrations/0012_without_scripted.postgres.sql"),
    },
    Migration {
        version: 13,
        name: "providers",
        sqlite: include_str!("../migrations/0013_providers.sqlite.sql"),
        postgres: include_str!("../migrations/0013_providers.postgres.sql"),
    },
    Migration {
        version: 14,
        name: "last_message",
        sqlite: include_str!("../migrations/0014_last_message.sqlite.sql"),
        postgres: include_str!("../migrations/0014_last_message.postgres.sql"),
    },
    Migration {
        version: 15,
        name: "trust",
        sqlite: include_str!("../migrations/0015_trust.sqlite.sql"),
        postgres: include_str!("../migrations/0015_trust.postgres.sql"),
    },
];

/// The last migration that runs as the login itself; after it the tables belong to mailroom_system.
const OWNED_BY_SYSTEM_AFTER: u32 = 3;

/// The advisory lock of migrations: any number that no other program is likely to lock, the same in every Mailroom.
const MIGRATION_LOCK: i64 = 0x6d61_696c_726f_6f6d;

const LIST_SQLITE_VIEWS: &str = "select name, sql from sqlite_schema where type = 'view' and name glob 'mailroom_*'";

const CREATE_MIGRATIONS_TABLE: &str = "create table if not exists schema_migrations (
    version integer primary key, name text not null, checksum text not null, applied_at text not null)";

/// Returns the schema version of this program.
pub fn latest_version() -> u32 {
    MIGRATIONS.last().map_or(0, |migration| migration.version)
}

/// Identifies the PostgreSQL schema that this program makes in the given month.
#[cfg(feature = "testing")]
pub(crate) fn postgres_fingerprint(month: &str) -> Sha256 {
    let mut texts = vec![month.to_owned(), CREATE_MIGRATIONS_TABLE.to_owned()];
    texts.extend(MIGRATIONS.iter().map(|migration| migration.postgres.to_owned()));
    texts.extend(roles::texts());
    Sha256::of(texts.join("\0").as_bytes())
}

/// The migrations of a database: version and checksum, oldest first.
type AppliedMigrations = Vec<(u32, String)>;

/// Returns the migrations still to run, or why this database must not be touched.
fn missing<'a>(
    applied: &AppliedMigrations,
    text: impl Fn(&Migration) -> &'a str,
) -> Result<&'static [Migration], StoreError> {
    let found = applied.last().map_or(0, |(version, _)| *version);
    if found > latest_version() {
        return Err(StoreError::Newer { found, known: latest_version() });
    }
    for (version, checksum) in applied {
        let migration = MIGRATIONS.iter().find(|migration| migration.version == *version);
        if migration.is_none_or(|migration| Sha256::of(text(migration).as_bytes()).hex() != *checksum) {
            return Err(StoreError::Refused(
                format!("migration {version} of this database is not the one of this program; restore the right program or database")
                    .into(),
            ));
        }
    }
    let next = MIGRATIONS.iter().position(|migration| migration.version > found).unwrap_or(MIGRATIONS.len());
    Ok(&MIGRATIONS[next..])
}

/// Returns the schema version of the database; 0 when it has none.
pub(crate) async fn sqlite_version(db: &Sqlite) -> Result<u32, StoreError> {
    let table = "select 1 from sqlite_master where name = 'schema_migrations'";
    if db.query(table.into(), vec![]).await?.is_empty() {
        return Ok(0);
    }
    let rows = db.query("select coalesce(max(version), 0) from schema_migrations".into(), vec![]).await?;
    version(&rows)
}

pub(crate) async fn postgres_version(db: &Postgres) -> Result<u32, StoreError> {
    readable_version(db).await?.ok_or_else(|| {
        StoreError::Refused(
            "this login cannot read the schema version of the database, as after an interrupted restore; finish that with `mailroom migrate`"
                .into(),
        )
    })
}

/// Returns `None` when only mailroom_system may read it: a restored list of migrations has no grants yet.
async fn readable_version(db: &Postgres) -> Result<Option<u32>, StoreError> {
    let readable = "select has_table_privilege(to_regclass('schema_migrations'), 'select')";
    let rows = db.query_schema(readable).await?;
    match rows.first().map(|row| row.get::<Option<bool>>(0)).transpose()?.flatten() {
        None => Ok(Some(0)),
        Some(false) => Ok(None),
        Some(true) => {
            let rows = db.query_schema("select coalesce(max(version), 0) from schema_migrations").await?;
            version(&rows).map(Some)
        }
    }
}

fn version(rows: &[crate::value::Row]) -> Result<u32, StoreError> {
    let version: i64 = rows.first().map_or(Ok(0), |row| row.get(0))?;
    u32::try_from(version).map_err(|_| StoreError::corrupt("the schema version is not a number"))
}

/// Returns whether the file has the views of this program, and no others under our names.
async fn has_sqlite_views(db: &Sqlite) -> Result<bool, StoreError> {
    let rows = db.query(LIST_SQLITE_VIEWS.into(), vec![]).await?;
    let found = rows.iter().map(|row| Ok((row.get(0)?, row.get(1)?)));
    let found = found.collect::<Result<BTreeMap<String, String>, StoreError>>()?;
    let wanted = views::sqlite_definitions().into_iter().map(|(name, text)| (name.to_owned(), text));
    Ok(found == wanted.collect())
}

/// Makes the views of this program. They are no part of the numbered migrations, and away while those run: SQLite refuses some
/// changes of a table that a view shows.
fn state_sqlite_views(connection: &rusqlite::Connection) -> Result<(), StoreError> {
    views::sqlite_definitions().iter().try_for_each(|(_, text)| run(connection, text))
}

fn drop_sqlite_views(connection: &rusqlite::Connection) -> Result<(), StoreError> {
    let names = connection.prepare(LIST_SQLITE_VIEWS).and_then(|mut statement| {
        statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>()
    });
    names.map_err(sqlite::error)?.iter().try_for_each(|name| run(connection, &format!("drop view \"{name}\"")))
}

/// Applies the missing migrations and returns their names.
pub(crate) async fn sqlite(db: &Sqlite) -> Result<Vec<&'static str>, StoreError> {
    let is_restored = restored::marked_backup(db.path()).map_err(|e| StoreError::other(e.to_string()))?.is_some();
    // Nearly always so. Found out without the lock, so that a reader does not wait for a writer.
    if !is_restored && sqlite_version(db).await? == latest_version() {
        let rows = db.query("select version, checksum from schema_migrations order by version".into(), vec![]).await?;
        let applied = rows
            .iter()
            .map(|row: &crate::value::Row| Ok((u32::try_from(row.get::<i64>(0)?).unwrap_or(0), row.get(1)?)))
            .collect::<Result<AppliedMigrations, StoreError>>()?;
        missing(&applied, |migration| migration.sqlite)?;
        if has_sqlite_views(db).await? {
            return Ok(Vec::new());
        }
    }
    let (connection, path) = (db.migration_connection()?, db.path().to_owned());
    tokio::task::spawn_blocking(move || {
        // Taken at once, so that of two processes one waits and then finds nothing to do.
        run(&connection, "begin immediate")?;
        run(&connection, CREATE_MIGRATIONS_TABLE)?;
        let applied: AppliedMigrations = connection
            .prepare("select version, checksum from schema_migrations order by version")
            .and_then(|mut statement| {
                statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<rusqlite::Result<_>>()
            })
            .map_err(sqlite::error)?;
        let pending = missing(&applied, |migration| migration.sqlite)?;
        drop_sqlite_views(&connection)?;
        for migration in pending {
            run(&connection, migration.sqlite)?;
            connection
                .execute(
                    "insert into schema_migrations values (?1, ?2, ?3, mailroom_now())",
                    (migration.version, migration.name, Sha256::of(migration.sqlite.as_bytes()).hex()),
                )
                .map_err(sqlite::error)?;
        }
        state_sqlite_views(&connection)?;
        if is_restored {
            run(&connection, &restored::renumbering(Dialect::Sqlite))?;
        }
        failpoint::around_blocking(Effect::Migrate, || run(&connection, "commit"))?;
        if is_restored {
            restored::unmark_file(&path)?;
        }
        Ok(pending.iter().map(|migration| migration.name).collect())
    })
    .await
    .map_err(|e| StoreError::other(e.to_string()))?
}

fn run(connection: &rusqlite::Connection, sql: &str) -> Result<(), StoreError> {
    connection.execute_batch(sql).map_err(sqlite::error)
}

/// Makes the roles, applies the missing migrations, restates policies, grants and functions, and makes today's partitions.
pub(crate) async fn postgres(db: &Postgres) -> Result<Vec<&'static str>, StoreError> {
    if let Some(found) = readable_version(db).await?.filter(|found| *found > latest_version()) {
        return Err(StoreError::Newer { found, known: latest_version() });
    }
    let mut client = db.client().await?;
    roles::make_roles(&client).await?;
    let transaction = client.transaction().await.map_err(postgres::error)?;
    // Everything unnamed or without parameters: a prepared statement would outlive the transaction.
    let lock = format!("select pg_advisory_xact_lock({MIGRATION_LOCK})");
    transaction.batch_execute(&lock).await.map_err(postgres::error)?;
    transaction.batch_execute(CREATE_MIGRATIONS_TABLE).await.map_err(postgres::error)?;
    roles::own_history(&transaction).await?;
    let rows = transaction
        .query_typed("select version, checksum from schema_migrations order by version", &[])
        .await
        .map_err(postgres::error)?;
    let applied: AppliedMigrations =
        rows.iter().map(|row| (u32::try_from(row.get::<_, i32>(0)).unwrap_or(0), row.get(1))).collect();
    let pending = missing(&applied, |migration| migration.postgres)?;
    for migration in pending {
        if migration.version > OWNED_BY_SYSTEM_AFTER {
            roles::run_as_system(&transaction).await?;
        }
        let Migration { version, name, postgres: text, .. } = migration;
        transaction.batch_execute(text).await.map_err(postgres::error)?;
        let checksum = Sha256::of(text.as_bytes()).hex();
        let record = format!(
            "reset role; insert into schema_migrations values ({version}, '{name}', '{checksum}', clock_timestamp()::text)"
        );
        transaction.batch_execute(&record).await.map_err(postgres::error)?;
    }
    roles::reapply_policies(&transaction).await?;
    restored::finish_postgres(&transaction).await?;
    failpoint::around(Effect::Migrate, transaction.commit()).await.map_err(postgres::error)?;
    drop(client);
    partitions::upkeep(db).await?;
    Ok(pending.iter().map(|migration| migration.name).collect())
}
