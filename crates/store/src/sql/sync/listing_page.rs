//! Records one page of a listing: folders, the ledger, placements, cursors, and events.

use std::collections::{BTreeMap, BTreeSet};

use domain::connector::{Cursors, FolderSnapshot, ListedFolder, Placement, SeenMessage};
use domain::{EventType, FolderId, MailboxId};

use super::super::events::{EVENT_STEP, IMAGE_STEP, INTO_DRAFTS, image};
use crate::sql::ledger::{PURGED, UNFINISHED};
use crate::sql::{any, truncate_chars};
use crate::unit::{Insert, InsertBatching};
use crate::value::ColumnType;
use crate::{Dialect, TenantUnit, Value, params};

/// The listing that a page belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListingPhase {
    /// Changes since the last sync.
    Changes,
    /// Mail that was there before the first sync.
    History,
    /// A full comparison of the mailbox with what is stored.
    FullComparison,
}

impl ListingPhase {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Changes => "changes",
            Self::History => "history",
            Self::FullComparison => "list",
        }
    }
}

/// A page to be recorded, without messages out of scope.
#[derive(Debug, Clone)]
pub struct PageRows {
    pub phase: ListingPhase,
    /// With whether their mail is synced.
    pub folders: Vec<(ListedFolder, bool)>,
    /// Folders that this listing is the first to lack.
    pub missing_folders: Vec<String>,
    /// Folders that a second listing lacks.
    pub confirmed_missing_folders: Vec<String>,
    pub messages: Vec<SeenMessage>,
    /// Messages all of whose placements are among `messages`.
    pub fully_placed: Vec<String>,
    /// Messages whose placements this page changes: placements that were read before are outdated.
    pub outdated_placements: Vec<String>,
    /// Messages that are unchanged, for the comparison in progress.
    pub unchanged: Vec<String>,
    pub removed_placements: Vec<Placement>,
    /// A message that was removed may be seen again under another id, so its email is kept until that is known.
    pub binds_by_content: bool,
    pub snapshots: Vec<FolderSnapshot>,
    pub cursors: Cursors,
    /// The number of the full comparison in progress; messages of the page are marked with it.
    pub listing: Option<u64>,
    /// The comparison ends with this page: placements that it has not marked are missing.
    pub is_comparison_done: bool,
    pub is_history_done: bool,
    /// How many of its messages are new.
    pub new_messages: u64,
    /// Its messages were there before the mailbox was connected.
    pub is_backfill: bool,
    /// Folders that are not synced any more.
    pub excluded_folders: Vec<String>,
}

/// A condition on `placements p` that are to become dead, with its parameters from `$3` on.
pub(super) type VanishCondition = (String, Vec<Value>);

impl TenantUnit {
    /// Records a page. The caller guards the unit: see [`TenantUnit::guard_sync`].
    pub fn record_page(&mut self, mailbox: MailboxId, page: PageRows) {
        let removals = self.removals(&page);
        let absences = self.absences(&page);
        // Before placements that were not seen are missing.
        if let (Some(listing), false) = (page.listing, page.unchanged.is_empty()) {
            let these = any(self.store.dialect(), "provider_message_id", 3);
            self.unit.op(
                format!(
                    "update placements set listing = $4, missing_since = null
                     where tenant_id = $1 and mailbox_id = $2 and {these} and is_live and listing < $4"
                ),
                params![self.tenant, mailbox, page.unchanged.clone(), listing],
            );
        }
        self.find_folders(mailbox, &page.folders);
        self.record_folders(mailbox, &page.folders);
        if !page.messages.is_empty() {
            self.draft_seen_images(mailbox, &page.messages);
        }
        for (condition, values) in removals.iter().chain(&absences) {
            self.draft_vanishing_images(mailbox, condition, values);
        }
        if !page.messages.is_empty() {
            self.record_seen(mailbox, &page);
            self.vanish_elsewhere(mailbox, page.messages.iter().map(|seen| seen.message.clone()).collect());
        }
        for (condition, values) in &removals {
            self.vanish(mailbox, condition, values);
        }
        self.record_absences(mailbox, &absences);
        self.record_missing_folders(mailbox, page.missing_folders, page.confirmed_missing_folders);
        if !page.messages.is_empty() || !removals.is_empty() || !absences.is_empty() {
            self.draft_changes();
        }
        if !page.outdated_placements.is_empty() {
            let these = any(self.store.dialect(), "provider_message_id", 3);
            self.unit.op(
                format!("update ledger set told = told + 1 where tenant_id = $1 and mailbox_id = $2 and {these}"),
                params![self.tenant, mailbox, page.outdated_placements.clone()],
            );
        }
        if page.phase == ListingPhase::FullComparison {
            self.count_new_messages(mailbox, page.new_messages, page.is_comparison_done);
        }
        self.record_cursors(mailbox, page.phase, page.cursors);
        self.record_progress(mailbox, page.is_history_done, page.is_comparison_done);
    }

    /// Returns the conditions for what is known to be removed: the provider says so of these very messages, or we do not
    /// want their folder.
    fn removals(&self, page: &PageRows) -> Vec<VanishCondition> {
        let mut removals = Vec::new();
        if !page.excluded_folders.is_empty() {
            removals.push((in_folders(self.store.dialect()), params![page.excluded_folders.clone()]));
        }
        if !page.binds_by_content {
            removals.extend(self.removal_conditions(&page.removed_placements));
        }
        removals.extend(self.moved_away(&page.fully_placed, &page.messages));
        removals
    }

    /// Returns the conditions for what a listing lacks, or what may be elsewhere.
    fn absences(&self, page: &PageRows) -> Vec<VanishCondition> {
        let dialect = self.store.dialect();
        let mut absences = Vec::new();
        if !page.confirmed_missing_folders.is_empty() {
            absences.push((in_folders(dialect), params![page.confirmed_missing_folders.clone()]));
        }
        if page.binds_by_content {
            absences.extend(self.removal_conditions(&page.removed_placements));
        }
        for FolderSnapshot { folder: id, uids } in &page.snapshots {
            // On PostgreSQL an empty list goes over as null.
            let is_there = any(dialect, "p.provider_uid", 4);
            let condition = format!("{} and not coalesce({is_there}, false)", in_folders(dialect));
            absences.push((condition, params![vec![id.clone()], uids.clone()]));
        }
        if let (true, Some(listing)) = (page.is_comparison_done, page.listing) {
            // A folder that only one listing lacks was not compared.
            let condition = "p.listing < $3 and p.folder_id not in (
                select id from folders where tenant_id = $1 and mailbox_id = $2 and missing_looks = 1)";
            absences.push((condition.to_owned(), params![listing]));
        }
        absences
    }

    /// Returns conditions for all placements of these messages but those of the page, one for each set of folders.
    fn moved_away(&self, whole: &[String], messages: &[SeenMessage]) -> Vec<VanishCondition> {
        let mut folders: BTreeMap<&str, BTreeSet<&str>> = whole.iter().map(|id| (&**id, BTreeSet::new())).collect();
        for seen in messages {
            if let Some(folders) = folders.get_mut(&*seen.message) {
                folders.insert(&seen.placement.folder);
            }
        }
        let mut alike: BTreeMap<BTreeSet<&str>, Vec<String>> = BTreeMap::new();
        for (message, folders) in folders {
            alike.entry(folders).or_default().push(message.to_owned());
        }
        let dialect = self.store.dialect();
        let (these, inside) = (any(dialect, "p.provider_message_id", 3), any(dialect, "f.provider_folder_id", 4));
        // On PostgreSQL an empty list goes over as null.
        let condition = format!(
            "{these} and not exists (select 1 from folders f where f.tenant_id = p.tenant_id and f.id = p.folder_id
                                     and coalesce({inside}, false))"
        );
        alike
            .into_iter()
            .map(|(folders, messages): (BTreeSet<&str>, Vec<String>)| {
                let folders: Vec<String> = folders.into_iter().map(str::to_owned).collect();
                (condition.clone(), params![messages, folders])
            })
            .collect()
    }

    fn removal_conditions<'a>(&self, places: impl IntoIterator<Item = &'a Placement>) -> Vec<VanishCondition> {
        let dialect = self.store.dialect();
        let mut by_folder: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for place in places {
            by_folder.entry(&place.folder).or_default().push(place.uid.clone());
        }
        let condition = format!("{} and {}", in_folders(dialect), any(dialect, "p.provider_uid", 4));
        by_folder
            .into_iter()
            .map(|(id, uids): (&str, _)| (condition.clone(), params![vec![id.to_owned()], uids]))
            .collect()
    }

    fn record_folders(&mut self, mailbox: MailboxId, folders: &[(ListedFolder, bool)]) {
        if folders.is_empty() {
            return;
        }
        let key = match self.store.dialect() {
            Dialect::Postgres => "tenant_id, mailbox_id, provider_folder_id",
            Dialect::Sqlite => "mailbox_id, provider_folder_id",
        };
        self.unit.insert(Insert {
            into: "folders (id, tenant_id, mailbox_id, provider_folder_id, name, name_key, last_segment_key, role, delimiter,
                            uid_validity, is_in_scope, created_at)"
                .into(),
            columns: &[
                ("id", ColumnType::Uuid),
                ("tenant_id", ColumnType::Uuid),
                ("mailbox_id", ColumnType::Uuid),
                ("provider_folder_id", ColumnType::Text),
                ("name", ColumnType::Text),
                ("name_key", ColumnType::Text),
                ("last_segment_key", ColumnType::Text),
                ("role", ColumnType::Text),
                ("delimiter", ColumnType::Text),
                ("uid_validity", ColumnType::Int),
                ("is_in_scope", ColumnType::Bool),
            ],
            rows: folders.iter().map(|(folder, is_in_scope): &(ListedFolder, bool)| {
            let key = folder.name.to_lowercase();
            let last = folder.delimiter.as_deref().filter(|d| !d.is_empty()).and_then(|d| key.rsplit(d).next());
            let last = last.unwrap_or(&key).to_owned();
            let role = folder.role.map(domain::FolderRole::as_str);
            params![
                FolderId::new(self.store.clock()),
                self.tenant,
                mailbox,
                &folder.id,
                truncate_chars(&folder.name, 1000),
                truncate_chars(&key, 500),
                truncate_chars(&last, 500),
                role,
                folder.delimiter.clone(),
                folder.uid_validity,
                *is_in_scope
            ]
        }).collect(),
            select: "u.id, u.tenant_id, u.mailbox_id, u.provider_folder_id, u.name, u.name_key, u.last_segment_key, u.role,
                     u.delimiter, u.uid_validity, u.is_in_scope, mailroom_now()"
                .into(),
            join_where: "",
            on_conflict: format!(
                "on conflict ({key}) do update set name = excluded.name, name_key = excluded.name_key,
                    last_segment_key = excluded.last_segment_key, role = excluded.role, delimiter = excluded.delimiter,
                    uid_validity = excluded.uid_validity, is_in_scope = excluded.is_in_scope, gone_at = null,
                    missing_since = null, missing_looks = 0, is_imported = false"
            )
            .into(),
            batching: InsertBatching::Many,
        });
    }

    /// Drafts images of the emails of these messages before the page changes them.
    fn draft_seen_images(&mut self, mailbox: MailboxId, messages: &[SeenMessage]) {
        let unit = self.draft_id();
        let dialect = self.store.dialect();
        let mut ids: Vec<String> = messages.iter().map(|seen| seen.message.clone()).collect();
        ids.sort();
        ids.dedup();
        self.unit.op(
            format!(
                "insert into {INTO_DRAFTS} select e.tenant_id, $3, {IMAGE_STEP}, 'image', $2, e.email_id, false, {}
                 from (select distinct tenant_id, email_id from ledger
                       where tenant_id = $1 and mailbox_id = $2 and email_id is not null and {}) e",
                image(dialect, "e"),
                any(dialect, "provider_message_id", 4)
            ),
            params![self.tenant, mailbox, unit, ids],
        );
    }

    pub(super) fn draft_vanishing_images(&mut self, mailbox: MailboxId, condition: &str, values: &[Value]) {
        let unit = self.draft_id();
        let n = 3 + values.len();
        let mut given = params![self.tenant, mailbox];
        given.extend_from_slice(values);
        given.extend(params![unit]);
        self.unit.op(
            format!(
                "insert into {INTO_DRAFTS} select e.tenant_id, ${n}, {IMAGE_STEP}, 'image', $2, e.email_id, false, {}
                 from (select distinct p.tenant_id, p.email_id from placements p
                       where {FROM_PROVIDER} and p.is_live and p.email_id is not null and {condition}) e",
                image(self.store.dialect(), "e")
            ),
            given,
        );
    }

    /// Queues messages that are new, are back, or have another revision, and records their placements.
    fn record_seen(&mut self, mailbox: MailboxId, page: &PageRows) {
        let (tenant, is_backfill) = (self.tenant, page.is_backfill);
        let mut rows: Vec<Vec<Value>> = Vec::with_capacity(page.messages.len());
        let mut met = std::collections::HashSet::new();
        // The last occurrence is the current one.
        for seen in page.messages.iter().rev() {
            if met.insert(&seen.message) {
                rows.push(params![
                    mailbox,
                    tenant,
                    &seen.message,
                    seen.revision.clone(),
                    seen.size_bytes,
                    seen.received_at,
                    &seen.placement.folder,
                    is_backfill
                ]);
            }
        }
        rows.sort_by(|a, b| format!("{:?}", a[2]).cmp(&format!("{:?}", b[2])));
        let key = match self.store.dialect() {
            Dialect::Postgres => "tenant_id, mailbox_id, provider_message_id",
            Dialect::Sqlite => "mailbox_id, provider_message_id",
        };
        let has_changed = "excluded.revision is not null and ledger.revision is distinct from excluded.revision";
        self.unit.insert(Insert {
            into: "ledger (mailbox_id, tenant_id, provider_message_id, state, revision, size_bytes, received_at, is_backfill,
                           first_seen_at)"
                .into(),
            columns: LEDGER_COLUMNS,
            rows,
            select: "u.mailbox_id, u.tenant_id, u.provider_message_id, 'queued', u.revision, u.size_bytes, u.received_at,
                     u.is_backfill, mailroom_now()"
                .into(),
            join_where: IN_SCOPE,
            on_conflict: format!(
                "on conflict ({key}) do update set revision = coalesce(excluded.revision, ledger.revision), reason = null,
                    state = case when {has_changed} or ledger.email_id is null or ledger.reason = '{UNFINISHED}'
                                      or ledger.state = 'skipped' then 'queued'
                                 when ledger.state = 'gone' then 'processed' else ledger.state end
                 where (ledger.state = 'gone' and ledger.reason is distinct from '{PURGED}')
                    or (ledger.state <> 'gone' and {has_changed})
                    -- Its mailbox was disconnected, and is back.
                    or ledger.state = 'skipped'"
            )
            .into(),
            batching: InsertBatching::Many,
        });
        self.record_listed_placements(mailbox, page);
    }

    fn record_listed_placements(&mut self, mailbox: MailboxId, page: &PageRows) {
        let tenant = self.tenant;
        let mut places: Vec<&SeenMessage> = page.messages.iter().collect();
        // Stable, so that of two entries for one placement the later stays the later.
        places.sort_by(|a, b| a.placement.cmp(&b.placement));
        places.reverse();
        places.dedup_by(|a, b| a.placement == b.placement);
        let key = match self.store.dialect() {
            Dialect::Postgres => "tenant_id, mailbox_id, folder_id, provider_uid",
            Dialect::Sqlite => "mailbox_id, folder_id, provider_uid",
        };
        self.unit.insert(Insert {
            into: "placements (mailbox_id, folder_id, provider_uid, tenant_id, provider_message_id, email_id, flags, is_live,
                               listing, created_at, updated_at)"
                .into(),
            columns: &[
                ("mailbox_id", ColumnType::Uuid),
                ("tenant_id", ColumnType::Uuid),
                ("folder", ColumnType::Text),
                ("provider_uid", ColumnType::Text),
                ("provider_message_id", ColumnType::Text),
                ("flags", ColumnType::Json),
                ("listing", ColumnType::Int),
            ],
            rows: places.into_iter().map(|seen: &SeenMessage| {
            params![
                mailbox,
                tenant,
                &seen.placement.folder,
                &seen.placement.uid,
                &seen.message,
                serde_json::json!(seen.flags.names()),
                page.listing
            ]
        }).collect(),
            select: "u.mailbox_id, f.id, u.provider_uid, u.tenant_id, u.provider_message_id, l.email_id, u.flags, true,
                     coalesce(u.listing, 0), mailroom_now(), mailroom_now()"
                .into(),
            join_where: "join folders f on f.tenant_id = u.tenant_id and f.mailbox_id = u.mailbox_id
                             and f.provider_folder_id = u.folder and f.is_in_scope and f.gone_at is null
                         join ledger l on l.tenant_id = u.tenant_id and l.mailbox_id = u.mailbox_id
                             and l.provider_message_id = u.provider_message_id and l.state <> 'gone'",
            on_conflict: format!(
                "on conflict ({key}) do update set flags = excluded.flags, is_live = true, missing_since = null,
                    provider_message_id = excluded.provider_message_id, email_id = excluded.email_id,
                    listing = case when excluded.listing > placements.listing then excluded.listing else placements.listing end,
                    updated_at = excluded.updated_at
                 where placements.flags is distinct from excluded.flags or not placements.is_live
                    or placements.missing_since is not null or placements.provider_message_id <> excluded.provider_message_id
                    or placements.email_id is distinct from excluded.email_id or excluded.listing > placements.listing"
            )
            .into(),
            batching: InsertBatching::Many,
        });
    }

    /// Marks placements as dead; a message without a live placement is gone.
    pub(super) fn vanish(&mut self, mailbox: MailboxId, condition: &str, values: &[Value]) {
        let mut given = params![self.tenant, mailbox];
        given.extend_from_slice(values);
        let these = format!("{FROM_PROVIDER} and {condition}");
        self.unit.op(
            format!(
                "update placements as p set is_live = false, updated_at = mailroom_now() where {these} and p.is_live"
            ),
            given.clone(),
        );
        self.unit.op(
            format!(
                "update ledger set reason = case when state = 'processed' then null else '{UNFINISHED}' end, state = 'gone',
                    told = told + 1
                 where tenant_id = $1 and mailbox_id = $2 and state <> 'gone'
                   and provider_message_id in (select p.provider_message_id from placements p where {these})
                   and not exists (
                       select 1 from placements o where o.tenant_id = ledger.tenant_id and o.mailbox_id = ledger.mailbox_id
                       and o.provider_message_id = ledger.provider_message_id and o.is_live)"
            ),
            given,
        );
        self.unit.op(
            "update placements set missing_since = null
             where tenant_id = $1 and mailbox_id = $2 and missing_since is not null and not is_live",
            params![self.tenant, mailbox],
        );
    }

    /// Counts new messages of a comparison; its end drafts an event with the result.
    fn count_new_messages(&mut self, mailbox: MailboxId, found: u64, is_listed: bool) {
        self.unit.op(
            "update sync_states set found = found + $3 where tenant_id = $1 and mailbox_id = $2",
            params![self.tenant, mailbox, found],
        );
        if !is_listed {
            return;
        }
        let unit = self.draft_id();
        let object = match self.store.dialect() {
            Dialect::Postgres => "jsonb_build_object",
            Dialect::Sqlite => "json_object",
        };
        self.unit.op(
            format!(
                "insert into {INTO_DRAFTS} select tenant_id, $3, {EVENT_STEP}, '{kind}', mailbox_id, null, false,
                    {object}('found', found, 'gone', (
                        select count(*) from event_drafts where tenant_id = $1 and unit = $3 and type = '{deleted}'))
                 from sync_states where tenant_id = $1 and mailbox_id = $2",
                kind = EventType::MailboxGapHealed,
                deleted = EventType::EmailDeleted,
            ),
            params![self.tenant, mailbox, unit],
        );
    }

    /// Records that the provider does not have the messages of these placements any more. A message that came back since then
    /// has another placement.
    pub fn record_missing<'a>(&mut self, mailbox: MailboxId, places: impl IntoIterator<Item = &'a Placement>) {
        let vanish_conditions = self.removal_conditions(places);
        for (condition, values) in &vanish_conditions {
            self.draft_vanishing_images(mailbox, condition, values);
        }
        for (condition, values) in &vanish_conditions {
            self.vanish(mailbox, condition, values);
        }
        if !vanish_conditions.is_empty() {
            self.draft_changes();
        }
    }

    fn record_cursors(&mut self, mailbox: MailboxId, phase: ListingPhase, cursors: Cursors) {
        for (scope, cursor) in cursors {
            if cursor.is_empty() {
                self.unit.op(
                    "delete from sync_cursors where tenant_id = $1 and mailbox_id = $2 and phase = $3 and scope = $4",
                    params![self.tenant, mailbox, phase.as_str(), scope],
                );
                continue;
            }
            self.unit.op(
                "insert into sync_cursors (tenant_id, mailbox_id, phase, scope, cursor) values ($1, $2, $3, $4, $5)
                 on conflict (tenant_id, mailbox_id, phase, scope) do update set cursor = excluded.cursor",
                params![self.tenant, mailbox, phase.as_str(), scope, cursor],
            );
        }
    }

    fn record_progress(&mut self, mailbox: MailboxId, is_history_done: bool, is_listed: bool) {
        let is_compared = "is_listing = false, removals_looks = removals_looks + 1, removals_look_at = null";
        for (is_so, set) in [(is_history_done, "is_history_done = true"), (is_listed, is_compared)] {
            if is_so {
                self.unit.op(
                    format!("update sync_states set {set} where tenant_id = $1 and mailbox_id = $2"),
                    params![self.tenant, mailbox],
                );
            }
        }
    }

    /// Drops the cursors of a listing. Without those of the changes a full comparison begins, which has a new number.
    pub fn start_listing_phase(&mut self, mailbox: MailboxId, phase: ListingPhase) {
        if phase != ListingPhase::History {
            self.unit.op(
                "update sync_states set listing = listing + 1, is_listing = true, found = 0
                 where tenant_id = $1 and mailbox_id = $2",
                params![self.tenant, mailbox],
            );
        }
        let phases: &[ListingPhase] = match phase {
            ListingPhase::Changes => &[ListingPhase::Changes, ListingPhase::FullComparison],
            ListingPhase::History => &[ListingPhase::History],
            ListingPhase::FullComparison => &[ListingPhase::FullComparison],
        };
        for phase in phases {
            self.unit.op(
                "delete from sync_cursors where tenant_id = $1 and mailbox_id = $2 and phase = $3",
                params![self.tenant, mailbox, phase.as_str()],
            );
        }
    }
}

/// Placements at the provider: imported mail has none there, though it may be in a folder of the same name.
pub(super) const FROM_PROVIDER: &str =
    "p.tenant_id = $1 and p.mailbox_id = $2 and p.provider_message_id not like 'sha256:%'";

/// Returns the condition for placements in the folders that `$3` lists.
pub(super) fn in_folders(dialect: Dialect) -> String {
    format!(
        "p.folder_id in (select id from folders where tenant_id = $1 and mailbox_id = $2 and {})",
        any(dialect, "provider_folder_id", 3)
    )
}

const LEDGER_COLUMNS: &[(&str, ColumnType)] = &[
    ("mailbox_id", ColumnType::Uuid),
    ("tenant_id", ColumnType::Uuid),
    ("provider_message_id", ColumnType::Text),
    ("revision", ColumnType::Text),
    ("size_bytes", ColumnType::Int),
    ("received_at", ColumnType::Time),
    ("folder", ColumnType::Text),
    ("is_backfill", ColumnType::Bool),
];

/// Whether a message is in a synced folder. The folders of a page are recorded before its messages.
const IN_SCOPE: &str =
    "where exists (select 1 from folders f where f.tenant_id = u.tenant_id and f.mailbox_id = u.mailbox_id
     and f.provider_folder_id = u.folder and f.is_in_scope and f.gone_at is null)";
