//! Copies the whole database at one moment into a file of its own, while others read and write.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OpenFlags};

use super::error;
use crate::StoreError;
use crate::snapshot::{LivePack, ProgressCallback, Snapshot};

/// Steps of SQLite between two reports of progress: some 10 ms.
const STEPS_PER_REPORT: i32 = 200_000;

/// Copies the database to `to`, which must be empty. It becomes a plain file without a log beside it, and not yet durable.
///
/// Rows are copied, not pages: those have gaps, and between them are free ones, with remnants of what was erased.
pub(super) fn take(from: &mut Connection, to: &Path, watch: Arc<ProgressCallback>) -> Result<Snapshot, StoreError> {
    let path = to.to_owned();
    let total = total_bytes(from).map_err(error)?;
    let report = watch.clone();
    let written = move || std::fs::metadata(&path).map_or(0, |meta| meta.len()).min(total);
    from.progress_handler(
        STEPS_PER_REPORT,
        Some(move || {
            report(written(), total);
            false
        }),
    )
    .map_err(error)?;
    // The file is used only once it is complete, so there is nothing to roll back to.
    from.pragma_update(None, "synchronous", "off").map_err(error)?;
    let name = ToSqlOutput::Borrowed(ValueRef::Text(to.as_os_str().as_bytes()));
    // Within one read transaction.
    from.execute("vacuum into ?1", [name]).map_err(error)?;
    watch(total, total);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let copy = Connection::open_with_flags(to, flags).map_err(error)?;
    describe(&copy).map_err(error)
}

/// Returns the size of the copy: free pages are not copied.
fn total_bytes(from: &Connection) -> rusqlite::Result<u64> {
    let pages = "select (page_count - freelist_count) * page_size
                 from pragma_page_count, pragma_freelist_count, pragma_page_size";
    from.query_row(pages, [], |row| row.get::<_, i64>(0)).map(|bytes| u64::try_from(bytes).unwrap_or(0))
}

fn describe(copy: &Connection) -> rusqlite::Result<Snapshot> {
    let schema_version = copy.query_row("select max(version) from schema_migrations", [], |row| row.get(0))?;
    let origin = copy.query_row("select applied_at from schema_migrations where version = 1", [], |row| row.get(0))?;
    let mut statement =
        copy.prepare("select object_key, coalesce(size_bytes, 0) from packs where state = 'live' order by id")?;
    let packs = statement
        .query_map([], |row: &rusqlite::Row<'_>| {
            let size_bytes = u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0);
            Ok(LivePack { object_key: row.get(0)?, size_bytes })
        })?
        .collect::<rusqlite::Result<_>>()?;
    Ok(Snapshot { schema_version, origin, packs })
}
