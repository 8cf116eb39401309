//! Progress of backfills: mail that was there before its mailbox was connected.

use std::collections::HashMap;

use domain::MailboxId;
use serde::Serialize;

use crate::sql::jobs::later;
use crate::{Dialect, Row, StoreError, TenantStore, params};

/// The progress of an unfinished backfill.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BackfillProgress {
    /// Whether the history is listed completely, so that the numbers below are final.
    pub is_listed: bool,
    pub stored: u64,
    pub to_fetch: u64,
    /// Messages a second in the last minutes, old or new.
    pub per_second: Option<f64>,
}

/// The window of the rate: long enough for slow servers, short enough to follow their changes.
const RATE_WINDOW_MILLIS: i64 = 120_000;

/// No message takes longer to process, so that the index on the start can be used.
const MAX_PROCESSING_MILLIS: i64 = 900_000;

impl TenantStore {
    /// Lists unfinished backfills: of one mailbox, or of all of the tenant.
    pub async fn list_backfills(
        &self,
        mailbox: Option<MailboxId>,
    ) -> Result<HashMap<MailboxId, BackfillProgress>, StoreError> {
        let dialect = self.store.dialect();
        let (lately, began) = (later(dialect, "$2"), later(dialect, "$3"));
        let these = "from ledger l where l.tenant_id = s.tenant_id and l.mailbox_id = s.mailbox_id";
        let ended = format!("{these} and l.state = 'processed' and l.processing_started_at > {began}");
        let ended = format!("{ended} and l.processing_completed_at > {lately}");
        let ago = match dialect {
            Dialect::Postgres => {
                "cast(extract(epoch from mailroom_now() - min(l.processing_completed_at)) * 1000 as bigint)"
            }
            Dialect::Sqlite => {
                "cast((julianday(mailroom_now()) - julianday(min(l.processing_completed_at))) * 86400000 as integer)"
            }
        };
        let only = if mailbox.is_some() { "and s.mailbox_id = $4" } else { "" };
        let sql = format!(
            "select s.mailbox_id, s.is_history_done,
                    (select count(*) {these} and l.state = 'processed' and l.is_backfill),
                    (select count(*) {these} and l.state in ('queued', 'processing') and l.is_backfill),
                    (select count(*) {ended}), (select {ago} {ended})
             from sync_states s
             where s.tenant_id = $1 {only} and s.next_sync_at is not null
               and (not s.is_history_done
                    or exists (select 1 {these} and l.state in ('queued', 'processing') and l.is_backfill))"
        );
        let mut values = params![self.id, -RATE_WINDOW_MILLIS, -MAX_PROCESSING_MILLIS];
        if let Some(mailbox) = mailbox {
            values.extend(params![mailbox]);
        }
        self.query(sql, values).await?.iter().map(progress).collect()
    }
}

fn progress(row: &Row) -> Result<(MailboxId, BackfillProgress), StoreError> {
    let (ended, ago): (u64, Option<i64>) = (row.get(4)?, row.get(5)?);
    // One message in less than a second gives no rate.
    let per_second = ago.filter(|ago| *ago >= 1000).map(|ago| ended as f64 * 1000.0 / ago as f64);
    let progress = BackfillProgress { is_listed: row.get(1)?, stored: row.get(2)?, to_fetch: row.get(3)?, per_second };
    Ok((row.get(0)?, progress))
}
