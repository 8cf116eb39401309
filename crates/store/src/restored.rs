//! A database that was brought back to an earlier moment. Numbers of events that it gave out since then are known outside, and
//! must not be given out again, so the counters are moved beyond them all; and every tenant is told by an event.
//!
//! A mark says that this has still to be done, from before the database appears until it is done. It is no part of the database,
//! because that is as it was in the backup: beside a SQLite file it is another file, in a PostgreSQL a table of its own.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use domain::EventType;
use tokio_postgres::Transaction;

use crate::postgres::{self, Postgres, roles};
use crate::{Dialect, Location, StoreError};

/// Marks the database as restored from the backup of this name: the next `migrate` moves its counters.
pub async fn mark(location: &Location, backup: &str) -> Result<(), StoreError> {
    match location {
        Location::Sqlite { path, .. } => mark_file(path, backup),
        Location::Postgres { url, .. } => {
            let client = Postgres::open(url, 1)?.client().await?;
            roles::make_roles(&client).await?;
            let table =
                format!("create table if not exists {MARK_TABLE} (marked_at timestamptz not null default now())");
            client.batch_execute(&table).await.map_err(postgres::error)
        }
    }
}

/// Returns the name of the backup from which this SQLite file is marked as restored, if it is.
pub fn marked_backup(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(mark_path(path)) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        backup => backup.map(Some),
    }
}

/// In the schema of Mailroom's tables, where the login may create tables anyway.
const MARK_TABLE: &str = "restore_pending";

fn mark_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".restored");
    name.into()
}

fn mark_file(path: &Path, backup: &str) -> Result<(), StoreError> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        crate::private_folder(folder)?;
    }
    write_mark(path, backup).map_err(|e| StoreError::other(e.to_string()))
}

fn write_mark(path: &Path, backup: &str) -> io::Result<()> {
    let mut file = File::create(mark_path(path))?;
    file.write_all(backup.as_bytes())?;
    file.sync_all()?;
    sync_folder_of(path)
}

/// Removes the mark of a SQLite file whose counters are moved.
pub(crate) fn unmark_file(path: &Path) -> Result<(), StoreError> {
    let removed = fs::remove_file(mark_path(path)).and_then(|()| sync_folder_of(path));
    removed.map_err(|e| StoreError::other(e.to_string()))
}

fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// Returns whether the counters of this PostgreSQL have still to be moved.
pub(crate) async fn is_marked(db: &Postgres) -> Result<bool, StoreError> {
    let rows = db.query_schema(&format!("select to_regclass('{MARK_TABLE}') is not null")).await?;
    rows.first().map_or(Ok(false), |row| row.get(0))
}

/// Moves the counters if the database is marked, and removes the mark.
pub(crate) async fn finish_postgres(transaction: &Transaction<'_>) -> Result<(), StoreError> {
    let marked = format!("select to_regclass('{MARK_TABLE}') is not null");
    let rows = transaction.query_typed(&marked, &[]).await.map_err(postgres::error)?;
    if !rows.first().is_some_and(|row| row.get(0)) {
        return Ok(());
    }
    roles::run_as_system(transaction).await?;
    transaction.batch_execute(&renumbering(Dialect::Postgres)).await.map_err(postgres::error)?;
    transaction.batch_execute(&format!("reset role; drop table {MARK_TABLE}")).await.map_err(postgres::error)
}

/// Returns the statements that move the counters of all tenants beyond every number that was given out, and tell it by an event
/// with the first new number. That is the time in microseconds: no tenant has had more events since its backup, whatever was
/// restored meanwhile.
pub(crate) fn renumbering(dialect: Dialect) -> String {
    let (larger, object) = match dialect {
        Dialect::Postgres => ("greatest", "jsonb_build_object"),
        Dialect::Sqlite => ("max", "json_object"),
    };
    let last_gap = "event_gaps g where g.tenant_id = tenant_counters.tenant_id";
    format!(
        "insert into tenant_counters (tenant_id, event_seq) select id, 0 from tenants where true on conflict do nothing;
         insert into event_gaps (tenant_id, after_seq, next_seq, restored_at)
             select tenant_id, event_seq, {larger}(event_seq + 1, mailroom_micros()), mailroom_now() from tenant_counters;
         update tenant_counters set event_seq = (select max(g.next_seq) from {last_gap});
         insert into events (tenant_id, seq, type, mailbox_id, email_id, is_backfill, data, at)
             select tenant_id, event_seq, '{restored}', null, null, false,
                    {object}('after', (select max(g.after_seq) from {last_gap})), mailroom_now()
             from tenant_counters;",
        restored = EventType::InstallationRestored,
    )
}
