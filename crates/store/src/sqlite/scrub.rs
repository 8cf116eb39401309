//! Overwrites what erased mail leaves in the file. The writer overwrites rows within their pages; what is left are its words
//! in the text index, which only a merge of the index drops, pages that are free, and the log.
//!
//! Every step is a unit of its own, so that other writers wait for none of them. A scrub that dies is begun again: `scrubs`
//! counts what was asked for and what was done.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;

use super::{Sqlite, error};
use crate::{CommitOutcome, OpId, StoreError, Unit, Value, params};

/// Pages of the text index, of 4 KB, that a step writes: some 30 ms.
const MERGE_STEP_PAGES: i64 = 250;

/// Free pages that a step overwrites: 2 MB.
const FILL_STEP_PAGES: i64 = 256;

/// Tombstones of the text index have numbers from here on: `FTS5_TOMBSTONE_ROWID` in its source. They are the emails that
/// were deleted from segments which still have their words.
const FIRST_TOMBSTONE: i64 = 1 << 53;

/// How often the log is tried to be emptied, and how long a try waits for readers; writers wait for it.
const LOG_TRIES: u32 = 600;
const LOG_TRY_NAPS: i32 = 20;
const LOG_NAP: Duration = Duration::from_millis(2);
const LOG_RETRY_DELAY: Duration = Duration::from_millis(100);

impl Sqlite {
    /// Overwrites what was erased before, if anything was. When it returns, that is in no row, index, free page or log.
    pub async fn scrub(&self, report_progress: &(dyn Fn() + Sync)) -> Result<(), StoreError> {
        let rows = self.query("select wanted from scrubs where done < wanted".into(), vec![]).await?;
        let Some(wanted) = rows.first().map(|row| row.get::<i64>(0)).transpose()? else { return Ok(()) };
        self.drop_erased_words(report_progress).await?;
        self.fill_free_pages(report_progress).await?;
        self.empty_log().await?;
        let mut unit = Unit::default();
        unit.op("update scrubs set done = $1 where done < $1", params![wanted]);
        self.commit(Arc::new(unit)).await.map(drop)
    }

    /// Merges the segments of the text index until none has words of deleted emails.
    async fn drop_erased_words(&self, report_progress: &(dyn Fn() + Sync)) -> Result<(), StoreError> {
        let tombstones = "select 1 from email_search_data where id >= $1 limit 1";
        while !self.query(tombstones.into(), params![FIRST_TOMBSTONE]).await?.is_empty() {
            // Puts all segments into one merge; the following steps go on with it.
            self.merge_step(-MERGE_STEP_PAGES).await?;
            while self.merge_step(MERGE_STEP_PAGES).await? {
                report_progress();
            }
        }
        Ok(())
    }

    /// Returns whether there was anything to merge. A step that finds nothing changes one row, the others more.
    async fn merge_step(&self, pages: i64) -> Result<bool, StoreError> {
        let mut unit = Unit { is_erasing: true, ..Unit::default() };
        let before = unit.op_returning("select total_changes()", vec![]);
        unit.op("insert into email_search (email_search, rank) values ('merge', $1)", params![pages]);
        let after = unit.op_returning("select total_changes()", vec![]);
        let merged = self.commit(Arc::new(unit)).await?;
        Ok(number(&merged, after)? - number(&merged, before)? >= 2)
    }

    /// Puts zeros into all free pages: they were in use before the writer overwrote anything, or were freed by a merge.
    async fn fill_free_pages(&self, report_progress: &(dyn Fn() + Sync)) -> Result<(), StoreError> {
        // So many bytes that the last page is full, too: what follows the end in a page stays as it was.
        let fill = "insert into scrub_filler (bytes)
                    select zeroblob(min(freelist_count, $1) * (page_size - 4) + 1500)
                    from pragma_freelist_count, pragma_page_size where freelist_count > 0";
        while self.change(fill, params![FILL_STEP_PAGES]).await? > 0 {
            report_progress();
        }
        let free = "delete from scrub_filler where rowid in (select rowid from scrub_filler limit 1)";
        while self.change(free, vec![]).await? > 0 {
            report_progress();
        }
        Ok(())
    }

    async fn change(&self, sql: &str, params: Vec<Value>) -> Result<u64, StoreError> {
        let mut unit = Unit::default();
        let op = unit.op(sql, params);
        Ok(self.commit(Arc::new(unit)).await?.changed(op))
    }

    /// Folds the log into the file and cuts it off. Fails if somebody has been reading all the time.
    async fn empty_log(&self) -> Result<(), StoreError> {
        let connection = self.migration_connection()?;
        tokio::task::spawn_blocking(move || empty_log(connection))
            .await
            .map_err(|e| StoreError::other(e.to_string()))?
    }
}

fn number(committed: &CommitOutcome, op: OpId) -> Result<i64, StoreError> {
    committed.returned(op).first().map_or(Ok(0), |row| row.get(0))
}

fn empty_log(mut connection: Connection) -> Result<(), StoreError> {
    connection.busy_handler(Some(wait_briefly)).map_err(error)?;
    for _ in 0..LOG_TRIES {
        let is_busy: bool =
            connection.query_row("pragma wal_checkpoint(truncate)", [], |row| row.get(0)).map_err(error)?;
        if !is_busy {
            return Ok(());
        }
        std::thread::sleep(LOG_RETRY_DELAY);
    }
    Err(StoreError::Busy(LOG_TRIES as u64 * LOG_RETRY_DELAY.as_millis() as u64 / 1000))
}

fn wait_briefly(tries: i32) -> bool {
    std::thread::sleep(LOG_NAP);
    tries < LOG_TRY_NAPS
}
