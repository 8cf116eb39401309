//! What a listing of the provider lacks. A placement that is missing stays as it was, and so does its email, until
//! [`TenantUnit::remove_missing`]: an answer that is too short must not delete mail.

use std::time::Duration;

use domain::MailboxId;
use domain::connector::ListedFolder;
use jiff::Timestamp;
use serde::Serialize;

use super::listing_page::{FROM_PROVIDER, VanishCondition, in_folders};
use super::millis;
use crate::sql::any;
use crate::sql::jobs::later;
use crate::{Precondition, Row, StoreError, TenantStore, TenantUnit, params};

/// Removals that are held back, because so much is missing that it is doubted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HeldRemovals {
    pub since: Timestamp,
    /// How many messages are missing, counted in each folder.
    pub messages: u64,
    /// How many comparisons have agreed since.
    pub looks: u64,
    /// When the next comparison is due.
    pub next_look_at: Option<Timestamp>,
    #[serde(skip)]
    pub is_look_due: bool,
}

pub(super) fn held_removals(row: &Row, column: usize) -> Result<Option<HeldRemovals>, StoreError> {
    let Some(since) = row.get(column)? else { return Ok(None) };
    Ok(Some(HeldRemovals {
        since,
        messages: row.get(column + 1)?,
        looks: row.get(column + 2)?,
        next_look_at: row.get(column + 3)?,
        is_look_due: row.get::<Option<bool>>(column + 4)?.unwrap_or(false),
    }))
}

/// What listings of a mailbox lack.
#[derive(Debug, Clone)]
pub struct MissingMail {
    /// The database's time.
    pub now: Timestamp,
    /// A sync is running, which may find some of it.
    pub is_syncing: bool,
    /// A person has said that it is gone.
    pub is_approved: bool,
    pub held: Option<HeldRemovals>,
    /// Placements that are missing.
    pub placements: u64,
    /// All live placements, missing ones among them.
    pub live_placements: u64,
    /// Since when the first of them is missing.
    pub missing_since: Option<Timestamp>,
    /// New messages are to be fetched, which may turn out to be what is missing.
    pub is_fetching: bool,
    /// Since when the newest of the folders is missing that only one listing lacks.
    pub unconfirmed_since: Option<Timestamp>,
}

impl TenantStore {
    /// Returns what listings of a mailbox lack, or `None` if it is not synced.
    pub async fn find_missing_mail(&self, mailbox: MailboxId) -> Result<Option<MissingMail>, StoreError> {
        let sql = format!(
            "select mailroom_now(), s.held_until > mailroom_now(), s.removals_approved,
                    (select count(*) from placements p where {FROM_PROVIDER} and p.missing_since is not null and p.is_live),
                    (select max(f.missing_since) from folders f
                     where f.tenant_id = $1 and f.mailbox_id = $2 and f.missing_looks = 1),
                    s.removals_held_since, s.removals_held, s.removals_looks, s.removals_look_at,
                    s.removals_look_at <= mailroom_now(),
                    (select min(p.missing_since) from placements p
                     where {FROM_PROVIDER} and p.missing_since is not null and p.is_live),
                    exists (select 1 from ledger l where l.tenant_id = $1 and l.mailbox_id = $2
                            and l.state in ('queued', 'processing') and l.email_id is null and not l.is_backfill)
             from sync_states s where s.tenant_id = $1 and s.mailbox_id = $2"
        );
        let Some(row) = self.query_one(sql, params![self.id, mailbox]).await? else { return Ok(None) };
        let placements: u64 = row.get(3)?;
        Ok(Some(MissingMail {
            now: row.get(0)?,
            is_syncing: row.get::<Option<bool>>(1)?.unwrap_or(false),
            is_approved: row.get(2)?,
            held: held_removals(&row, 5)?,
            placements,
            // Every row is read for it, so only if there is something to compare with.
            live_placements: if placements > 0 { self.count_live_placements(mailbox).await? } else { 0 },
            missing_since: row.get(10)?,
            is_fetching: row.get(11)?,
            unconfirmed_since: row.get(4)?,
        }))
    }

    async fn count_live_placements(&self, mailbox: MailboxId) -> Result<u64, StoreError> {
        let sql = format!("select count(*) from placements p where {FROM_PROVIDER} and p.is_live");
        self.query_one(sql, params![self.id, mailbox]).await?.map_or(Ok(0), |row| row.get(0))
    }
}

impl TenantUnit {
    /// Refuses the unit if a sync of the mailbox is running, or more is missing by now than these placements. Locks out syncs
    /// and fetches until the commit.
    pub fn expect_missing(&mut self, mailbox: MailboxId, placements: u64) {
        self.lock_sync(mailbox);
        // A statement of its own, which sees what was committed before the lock.
        self.unit.op_returning_exactly(
            1,
            Precondition::PlacementsChanged,
            format!(
                "select 1 from sync_states s where s.tenant_id = $1 and s.mailbox_id = $2
                   and (s.held_until is null or s.held_until <= mailroom_now())
                   and (select count(*) from placements p
                        where {FROM_PROVIDER} and p.missing_since is not null and p.is_live) <= $3"
            ),
            params![self.tenant, mailbox, placements],
        );
    }

    /// Removes what is missing: from now on it is gone.
    pub fn remove_missing(&mut self, mailbox: MailboxId) {
        let is_missing = "p.missing_since is not null";
        self.draft_vanishing_images(mailbox, is_missing, &[]);
        self.vanish(mailbox, is_missing, &[]);
        self.draft_changes();
        let ops = [
            "update folders set gone_at = mailroom_now(), missing_since = null, missing_looks = 0
             where tenant_id = $1 and mailbox_id = $2 and missing_looks > 1 and gone_at is null",
            // If the folder comes back, the cursor of the old one would list nothing of it.
            "delete from sync_cursors where tenant_id = $1 and mailbox_id = $2 and phase = 'changes' and scope in (
                 select provider_folder_id from folders
                 where tenant_id = $1 and mailbox_id = $2 and gone_at is not null)",
        ];
        for sql in ops {
            self.unit.op(sql, params![self.tenant, mailbox]);
        }
        self.release_removals(mailbox);
    }

    /// Holds back the removal of what is missing, from now on or still. Another comparison is due after this time.
    pub fn hold_removals(&mut self, mailbox: MailboxId, placements: u64, next_look: Duration) {
        let dialect = self.store.dialect();
        self.unit.op(
            format!(
                "update sync_states set removals_held = $3,
                     removals_looks = case when removals_held_since is null then 0 else removals_looks end,
                     removals_held_since = coalesce(removals_held_since, mailroom_now()),
                     removals_look_at = coalesce(removals_look_at, {})
                 where tenant_id = $1 and mailbox_id = $2",
                later(dialect, "$4")
            ),
            params![self.tenant, mailbox, placements, millis(next_look)],
        );
    }

    /// Ends the hold: nothing is missing any more, or it was removed.
    pub fn release_removals(&mut self, mailbox: MailboxId) {
        self.unit.op(
            // An approval for another account lasts until all of that is compared.
            "update sync_states set removals_held_since = null, removals_held = 0, removals_look_at = null,
                 removals_approved = removals_approved and is_listing
             where tenant_id = $1 and mailbox_id = $2",
            params![self.tenant, mailbox],
        );
    }

    /// Records that what is missing is gone, however much it is.
    pub fn approve_removals(&mut self, mailbox: MailboxId) {
        self.unit.op(
            "update sync_states set removals_approved = true where tenant_id = $1 and mailbox_id = $2",
            params![self.tenant, mailbox],
        );
    }

    /// Marks the placements that listings lack. Those of emails that are elsewhere as well are removed at once: no email is
    /// lost with them.
    pub(super) fn record_absences(&mut self, mailbox: MailboxId, absences: &[VanishCondition]) {
        for (condition, values) in absences {
            let mut given = params![self.tenant, mailbox];
            given.extend_from_slice(values);
            self.unit.op(
                format!(
                    "update placements as p set missing_since = mailroom_now()
                     where {FROM_PROVIDER} and {condition} and p.is_live and p.missing_since is null"
                ),
                given,
            );
        }
        for (condition, values) in absences {
            self.vanish(mailbox, &format!("{condition} and {IS_DISPENSABLE}"), values);
        }
    }

    /// Removes missing placements of emails that these messages have, which were seen elsewhere.
    pub(super) fn vanish_elsewhere(&mut self, mailbox: MailboxId, messages: Vec<String>) {
        let condition = format!(
            "p.missing_since is not null and {IS_DISPENSABLE} and p.email_id in (
                 select l.email_id from ledger l where l.tenant_id = $1 and l.mailbox_id = $2 and {})",
            any(self.store.dialect(), "l.provider_message_id", 3)
        );
        let values = params![messages];
        self.vanish(mailbox, &condition, &values);
    }

    /// Records that folders are listed: what is in those that were missing is there again.
    pub(super) fn find_folders(&mut self, mailbox: MailboxId, folders: &[(ListedFolder, bool)]) {
        if folders.is_empty() {
            return;
        }
        let ids: Vec<String> = folders.iter().map(|(folder, _)| folder.id.clone()).collect();
        let inside = in_folders(self.store.dialect());
        self.unit.op(
            format!(
                "update placements as p set missing_since = null
                 where {FROM_PROVIDER} and p.missing_since is not null and {inside} and p.folder_id in (
                     select id from folders where tenant_id = $1 and mailbox_id = $2 and missing_looks > 0)"
            ),
            params![self.tenant, mailbox, ids],
        );
    }

    pub(super) fn record_missing_folders(&mut self, mailbox: MailboxId, first: Vec<String>, confirmed: Vec<String>) {
        let these = any(self.store.dialect(), "provider_folder_id", 3);
        for (folders, looks) in [(first, 1), (confirmed, 2)] {
            if folders.is_empty() {
                continue;
            }
            self.unit.op(
                format!(
                    "update folders set missing_since = coalesce(missing_since, mailroom_now()), missing_looks = {looks}
                     where tenant_id = $1 and mailbox_id = $2 and {these} and gone_at is null and missing_looks < {looks}"
                ),
                params![self.tenant, mailbox, folders],
            );
        }
    }
}

/// Whether no email is lost with a placement: there is none yet, or it is in another placement as well.
const IS_DISPENSABLE: &str = "(p.email_id is null or exists (
    select 1 from placements o where o.tenant_id = p.tenant_id and o.email_id = p.email_id and o.is_live
    and o.missing_since is null))";
