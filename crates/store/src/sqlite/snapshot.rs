//! Copies the whole database at one moment into a file of its own, while others read and write.

use std::path::Path;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use super::error;
use crate::StoreError;
use crate::snapshot::{LivePack, ProgressCallback, Snapshot};

/// Pages between two reports of progress: 8 MB.
const PAGES_PER_STEP: i32 = 1024;

/// Copies the database to `to`, which must be empty. It becomes a plain file without a log beside it, and not yet durable.
pub(super) fn take(from: &Connection, to: &Path, watch: &ProgressCallback) -> Result<Snapshot, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut copy = Connection::open_with_flags(to, flags).map_err(error)?;
    // The file is used only once it is complete, so there is nothing to roll back to.
    copy.pragma_update(None, "journal_mode", "off").map_err(error)?;
    copy.pragma_update(None, "synchronous", "off").map_err(error)?;
    copy_pages(from, &mut copy, watch).map_err(error)?;
    // The copy says of itself that it has a log; as one file it can be moved and read without side effects.
    copy.pragma_update(None, "journal_mode", "delete").map_err(error)?;
    describe(&copy).map_err(error)
}

/// Copies within one read transaction: without it every write of another process would make the copy start again.
fn copy_pages(from: &Connection, to: &mut Connection, watch: &ProgressCallback) -> rusqlite::Result<()> {
    from.execute_batch("begin")?;
    let first_read = from.query_row("select page_size from pragma_page_size", [], |row| row.get::<_, u32>(0));
    let copied = first_read.and_then(|page_bytes| {
        let page_bytes = u64::from(page_bytes);
        let backup = Backup::new(from, to)?;
        loop {
            let step = backup.step(PAGES_PER_STEP)?;
            let pages = backup.progress();
            let total = u64::try_from(pages.pagecount).unwrap_or(0);
            let done = total - u64::try_from(pages.remaining).unwrap_or(0).min(total);
            watch(done * page_bytes, total * page_bytes);
            match step {
                StepResult::Done => return Ok(()),
                StepResult::More => {}
                _ => std::thread::yield_now(),
            }
        }
    });
    let ended = from.execute_batch("rollback");
    copied.and(ended)
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
