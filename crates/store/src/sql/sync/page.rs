//! One page of a listing becomes rows: folders, the ledger, places, cursors, and what is told of it.

use std::collections::{BTreeMap, BTreeSet};

use domain::connector::{Cursors, Place, Present, Seen, SeenFolder};
use domain::{FolderId, MailboxId};

use super::super::events::{DRAFTS, IMAGE, SAID, image};
use crate::sql::ledger::{PURGED, UNFINISHED};
use crate::sql::{any, cut};
use crate::unit::{By, Insert};
use crate::value::Kind;
use crate::{Dialect, TenantUnit, Value, params};

/// Which listing a page belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// What happens now.
    Changes,
    /// What was there before the first sync.
    History,
    /// Everything, to be compared with what we have.
    List,
}

impl Phase {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Changes => "changes",
            Self::History => "history",
            Self::List => "list",
        }
    }
}

/// A page as it is recorded: what is out of scope is left out already.
#[derive(Debug, Clone)]
pub struct PageRows {
    pub phase: Phase,
    /// With whether mail is taken in from them.
    pub folders: Vec<(SeenFolder, bool)>,
    pub gone_folders: Vec<String>,
    pub messages: Vec<Seen>,
    /// Of these messages everything is among `messages`.
    pub whole: Vec<String>,
    /// Who has read where one of these is before this page knows less than it, or not what it makes anew.
    pub told: Vec<String>,
    /// These are as they were, for the comparison under way.
    pub there: Vec<String>,
    pub vanished: Vec<Place>,
    pub present: Vec<Present>,
    pub cursors: Cursors,
    /// The full comparison under way: what the page shows is there.
    pub listing: Option<u64>,
    /// The comparison ends with this page: whatever it has not seen is no more.
    pub is_listed: bool,
    pub is_history_done: bool,
    /// How many of its messages we did not have.
    pub found: u64,
    /// Its messages were there before the mailbox was connected.
    pub is_backfill: bool,
    /// Mail is not taken in any more from these folders.
    pub left_folders: Vec<String>,
}

/// What is about to be no more: a condition on `placements p`, with what it needs from `$3` on.
type Vanishing = (String, Vec<Value>);

impl TenantUnit {
    /// Guarded by the caller: see [`TenantUnit::guard_sync`].
    pub fn record_page(&mut self, mailbox: MailboxId, page: PageRows) {
        let vanishing = self.vanishing(&page);
        // Before what was not seen is no more.
        if let (Some(listing), false) = (page.listing, page.there.is_empty()) {
            let these = any(self.store.dialect(), "provider_message_id", 3);
            self.unit.op(
                format!(
                    "update placements set listing = $4
                     where tenant_id = $1 and mailbox_id = $2 and {these} and is_live and listing < $4"
                ),
                params![self.tenant, mailbox, page.there.clone(), listing],
            );
        }
        self.record_folders(mailbox, &page.folders);
        if !page.messages.is_empty() {
            self.draw_seen(mailbox, &page.messages);
        }
        for (condition, values) in &vanishing {
            self.draw_vanishing(mailbox, condition, values);
        }
        if !page.messages.is_empty() {
            self.record_seen(mailbox, &page);
        }
        for (condition, values) in &vanishing {
            self.vanish(mailbox, condition, values);
        }
        if !page.gone_folders.is_empty() {
            let these = any(self.store.dialect(), "provider_folder_id", 3);
            self.unit.op(
                format!(
                    "update folders set gone_at = mailroom_now() where tenant_id = $1 and mailbox_id = $2 and {these}"
                ),
                params![self.tenant, mailbox, page.gone_folders.clone()],
            );
            // Were it to come back, nothing of it would be told by where a listing of the old one stood.
            let these = any(self.store.dialect(), "scope", 3);
            self.unit.op(
                format!("delete from sync_cursors where tenant_id = $1 and mailbox_id = $2 and {these}"),
                params![self.tenant, mailbox, page.gone_folders.clone()],
            );
        }
        if !page.messages.is_empty() || !vanishing.is_empty() {
            self.tell_changes();
        }
        if !page.told.is_empty() {
            let these = any(self.store.dialect(), "provider_message_id", 3);
            self.unit.op(
                format!("update ledger set told = told + 1 where tenant_id = $1 and mailbox_id = $2 and {these}"),
                params![self.tenant, mailbox, page.told.clone()],
            );
        }
        if page.phase == Phase::List {
            self.count_found(mailbox, page.found, page.is_listed);
        }
        self.record_cursors(mailbox, page.phase, page.cursors);
        self.record_progress(mailbox, page.is_history_done, page.is_listed);
    }

    fn vanishing(&self, page: &PageRows) -> Vec<Vanishing> {
        let dialect = self.store.dialect();
        let mut vanishing = Vec::new();
        for folders in [&page.gone_folders, &page.left_folders] {
            if !folders.is_empty() {
                vanishing.push((in_folders(dialect), params![folders.clone()]));
            }
        }
        vanishing.extend(self.vanished(&page.vanished));
        vanishing.extend(self.elsewhere(&page.whole, &page.messages));
        for Present { folder: id, uids } in &page.present {
            // On PostgreSQL an empty list goes over as null.
            let is_there = any(dialect, "p.provider_uid", 4);
            let condition = format!("{} and not coalesce({is_there}, false)", in_folders(dialect));
            vanishing.push((condition, params![vec![id.clone()], uids.clone()]));
        }
        if let (true, Some(listing)) = (page.is_listed, page.listing) {
            vanishing.push(("p.listing < $3".to_owned(), params![listing]));
        }
        vanishing
    }

    /// All places of these messages but those that are told of. Those that are in the same folders go together.
    fn elsewhere(&self, whole: &[String], messages: &[Seen]) -> Vec<Vanishing> {
        let mut folders: BTreeMap<&str, BTreeSet<&str>> = whole.iter().map(|id| (&**id, BTreeSet::new())).collect();
        for seen in messages {
            if let Some(folders) = folders.get_mut(&*seen.message) {
                folders.insert(&seen.place.folder);
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
        let except = |(folders, messages): (BTreeSet<&str>, Vec<String>)| {
            let folders: Vec<String> = folders.into_iter().map(str::to_owned).collect();
            (condition.clone(), params![messages, folders])
        };
        alike.into_iter().map(except).collect()
    }

    fn vanished<'a>(&self, places: impl IntoIterator<Item = &'a Place>) -> Vec<Vanishing> {
        let dialect = self.store.dialect();
        let mut by_folder: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for place in places {
            by_folder.entry(&place.folder).or_default().push(place.uid.clone());
        }
        let condition = format!("{} and {}", in_folders(dialect), any(dialect, "p.provider_uid", 4));
        let in_folder = |(id, uids): (&str, _)| (condition.clone(), params![vec![id.to_owned()], uids]);
        by_folder.into_iter().map(in_folder).collect()
    }

    fn record_folders(&mut self, mailbox: MailboxId, folders: &[(SeenFolder, bool)]) {
        if folders.is_empty() {
            return;
        }
        let row = |(folder, is_in_scope): &(SeenFolder, bool)| {
            let key = folder.name.to_lowercase();
            let last = folder.delimiter.as_deref().filter(|d| !d.is_empty()).and_then(|d| key.rsplit(d).next());
            let last = last.unwrap_or(&key).to_owned();
            let role = folder.role.map(domain::FolderRole::as_str);
            params![
                FolderId::new(self.store.clock()),
                self.tenant,
                mailbox,
                &folder.id,
                cut(&folder.name, 1000),
                cut(&key, 500),
                cut(&last, 500),
                role,
                folder.delimiter.clone(),
                folder.uid_validity,
                *is_in_scope
            ]
        };
        let key = match self.store.dialect() {
            Dialect::Postgres => "tenant_id, mailbox_id, provider_folder_id",
            Dialect::Sqlite => "mailbox_id, provider_folder_id",
        };
        self.unit.insert(Insert {
            into: "folders (id, tenant_id, mailbox_id, provider_folder_id, name, name_key, last_segment_key, role, delimiter,
                            uid_validity, is_in_scope, created_at)"
                .into(),
            columns: &[
                ("id", Kind::Uuid),
                ("tenant_id", Kind::Uuid),
                ("mailbox_id", Kind::Uuid),
                ("provider_folder_id", Kind::Text),
                ("name", Kind::Text),
                ("name_key", Kind::Text),
                ("last_segment_key", Kind::Text),
                ("role", Kind::Text),
                ("delimiter", Kind::Text),
                ("uid_validity", Kind::Int),
                ("is_in_scope", Kind::Bool),
            ],
            rows: folders.iter().map(row).collect(),
            select: "u.id, u.tenant_id, u.mailbox_id, u.provider_folder_id, u.name, u.name_key, u.last_segment_key, u.role,
                     u.delimiter, u.uid_validity, u.is_in_scope, mailroom_now()"
                .into(),
            join_where: "",
            on_conflict: format!(
                "on conflict ({key}) do update set name = excluded.name, name_key = excluded.name_key,
                    last_segment_key = excluded.last_segment_key, role = excluded.role, delimiter = excluded.delimiter,
                    uid_validity = excluded.uid_validity, is_in_scope = excluded.is_in_scope, gone_at = null"
            )
            .into(),
            by: By::Many,
        });
    }

    /// What the emails of these messages are like before anything of the page happens.
    fn draw_seen(&mut self, mailbox: MailboxId, messages: &[Seen]) {
        let unit = self.drafting();
        let dialect = self.store.dialect();
        let mut ids: Vec<String> = messages.iter().map(|seen| seen.message.clone()).collect();
        ids.sort();
        ids.dedup();
        self.unit.op(
            format!(
                "insert into {DRAFTS} select e.tenant_id, $3, {IMAGE}, 'image', $2, e.email_id, false, {}
                 from (select distinct tenant_id, email_id from ledger
                       where tenant_id = $1 and mailbox_id = $2 and email_id is not null and {}) e",
                image(dialect, "e"),
                any(dialect, "provider_message_id", 4)
            ),
            params![self.tenant, mailbox, unit, ids],
        );
    }

    fn draw_vanishing(&mut self, mailbox: MailboxId, condition: &str, values: &[Value]) {
        let unit = self.drafting();
        let n = 3 + values.len();
        let mut given = params![self.tenant, mailbox];
        given.extend_from_slice(values);
        given.extend(params![unit]);
        self.unit.op(
            format!(
                "insert into {DRAFTS} select e.tenant_id, ${n}, {IMAGE}, 'image', $2, e.email_id, false, {}
                 from (select distinct p.tenant_id, p.email_id from placements p
                       where {FROM_PROVIDER} and p.is_live and p.email_id is not null and {condition}) e",
                image(self.store.dialect(), "e")
            ),
            given,
        );
    }

    /// Messages that are new, are back, or have another text are to be fetched; and this is where they are.
    fn record_seen(&mut self, mailbox: MailboxId, page: &PageRows) {
        let (tenant, is_backfill) = (self.tenant, page.is_backfill);
        let mut rows: Vec<Vec<Value>> = Vec::with_capacity(page.messages.len());
        let mut met = std::collections::HashSet::new();
        // The last one tells how the message is now.
        for seen in page.messages.iter().rev() {
            if met.insert(&seen.message) {
                rows.push(params![
                    mailbox,
                    tenant,
                    &seen.message,
                    seen.revision.clone(),
                    seen.size_bytes,
                    seen.received_at,
                    &seen.place.folder,
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
            by: By::Many,
        });
        self.record_places(mailbox, page);
    }

    fn record_places(&mut self, mailbox: MailboxId, page: &PageRows) {
        let tenant = self.tenant;
        let mut places: Vec<&Seen> = page.messages.iter().collect();
        // Stable, so that of two that tell of one place the later stays the later.
        places.sort_by(|a, b| a.place.cmp(&b.place));
        places.reverse();
        places.dedup_by(|a, b| a.place == b.place);
        let row = |seen: &Seen| {
            params![
                mailbox,
                tenant,
                &seen.place.folder,
                &seen.place.uid,
                &seen.message,
                serde_json::json!(seen.flags.names()),
                page.listing
            ]
        };
        let key = match self.store.dialect() {
            Dialect::Postgres => "tenant_id, mailbox_id, folder_id, provider_uid",
            Dialect::Sqlite => "mailbox_id, folder_id, provider_uid",
        };
        self.unit.insert(Insert {
            into: "placements (mailbox_id, folder_id, provider_uid, tenant_id, provider_message_id, email_id, flags, is_live,
                               listing, created_at, updated_at)"
                .into(),
            columns: &[
                ("mailbox_id", Kind::Uuid),
                ("tenant_id", Kind::Uuid),
                ("folder", Kind::Text),
                ("provider_uid", Kind::Text),
                ("provider_message_id", Kind::Text),
                ("flags", Kind::Json),
                ("listing", Kind::Int),
            ],
            rows: places.into_iter().map(row).collect(),
            select: "u.mailbox_id, f.id, u.provider_uid, u.tenant_id, u.provider_message_id, l.email_id, u.flags, true,
                     coalesce(u.listing, 0), mailroom_now(), mailroom_now()"
                .into(),
            join_where: "join folders f on f.tenant_id = u.tenant_id and f.mailbox_id = u.mailbox_id
                             and f.provider_folder_id = u.folder and f.is_in_scope and f.gone_at is null
                         join ledger l on l.tenant_id = u.tenant_id and l.mailbox_id = u.mailbox_id
                             and l.provider_message_id = u.provider_message_id and l.state <> 'gone'",
            on_conflict: format!(
                "on conflict ({key}) do update set flags = excluded.flags, is_live = true,
                    provider_message_id = excluded.provider_message_id, email_id = excluded.email_id,
                    listing = case when excluded.listing > placements.listing then excluded.listing else placements.listing end,
                    updated_at = excluded.updated_at
                 where placements.flags is distinct from excluded.flags or not placements.is_live
                    or placements.provider_message_id <> excluded.provider_message_id
                    or placements.email_id is distinct from excluded.email_id or excluded.listing > placements.listing"
            )
            .into(),
            by: By::Many,
        });
    }

    /// Places where nothing is any more; a message without a place is gone.
    fn vanish(&mut self, mailbox: MailboxId, condition: &str, values: &[Value]) {
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
    }

    /// At the end of a comparison it is told what it found.
    fn count_found(&mut self, mailbox: MailboxId, found: u64, is_listed: bool) {
        self.unit.op(
            "update sync_states set found = found + $3 where tenant_id = $1 and mailbox_id = $2",
            params![self.tenant, mailbox, found],
        );
        if !is_listed {
            return;
        }
        let unit = self.drafting();
        let object = match self.store.dialect() {
            Dialect::Postgres => "jsonb_build_object",
            Dialect::Sqlite => "json_object",
        };
        self.unit.op(
            format!(
                "insert into {DRAFTS} select tenant_id, $3, {SAID}, 'mailbox.gap_healed', mailbox_id, null, false,
                    {object}('found', found, 'gone', (
                        select count(*) from event_drafts where tenant_id = $1 and unit = $3 and type = 'email.deleted'))
                 from sync_states where tenant_id = $1 and mailbox_id = $2"
            ),
            params![self.tenant, mailbox, unit],
        );
    }

    /// The provider does not have the messages any more that were in these places. Where they came back to since then is
    /// another place.
    pub fn lose_messages<'a>(&mut self, mailbox: MailboxId, places: impl IntoIterator<Item = &'a Place>) {
        let vanishing = self.vanished(places);
        for (condition, values) in &vanishing {
            self.draw_vanishing(mailbox, condition, values);
        }
        for (condition, values) in &vanishing {
            self.vanish(mailbox, condition, values);
        }
        if !vanishing.is_empty() {
            self.tell_changes();
        }
    }

    fn record_cursors(&mut self, mailbox: MailboxId, phase: Phase, cursors: Cursors) {
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
        for (is_so, set) in [(is_history_done, "is_history_done = true"), (is_listed, "is_listing = false")] {
            if is_so {
                self.unit.op(
                    format!("update sync_states set {set} where tenant_id = $1 and mailbox_id = $2"),
                    params![self.tenant, mailbox],
                );
            }
        }
    }

    /// The cursors of a listing do not hold any more. Without those of the changes everything is compared, and a comparison
    /// that begins anew has another number.
    pub fn start_over(&mut self, mailbox: MailboxId, phase: Phase) {
        if phase != Phase::History {
            self.unit.op(
                "update sync_states set listing = listing + 1, is_listing = true, found = 0
                 where tenant_id = $1 and mailbox_id = $2",
                params![self.tenant, mailbox],
            );
        }
        let phases: &[Phase] = match phase {
            Phase::Changes => &[Phase::Changes, Phase::List],
            Phase::History => &[Phase::History],
            Phase::List => &[Phase::List],
        };
        for phase in phases {
            self.unit.op(
                "delete from sync_cursors where tenant_id = $1 and mailbox_id = $2 and phase = $3",
                params![self.tenant, mailbox, phase.as_str()],
            );
        }
    }
}

/// Imported mail has no place at the provider, though it may be in a folder of the same name.
const FROM_PROVIDER: &str = "p.tenant_id = $1 and p.mailbox_id = $2 and p.provider_message_id not like 'sha256:%'";

/// Places in the folders that `$3` lists.
fn in_folders(dialect: Dialect) -> String {
    format!(
        "p.folder_id in (select id from folders where tenant_id = $1 and mailbox_id = $2 and {})",
        any(dialect, "provider_folder_id", 3)
    )
}

const LEDGER_COLUMNS: &[(&str, Kind)] = &[
    ("mailbox_id", Kind::Uuid),
    ("tenant_id", Kind::Uuid),
    ("provider_message_id", Kind::Text),
    ("revision", Kind::Text),
    ("size_bytes", Kind::Int),
    ("received_at", Kind::Time),
    ("folder", Kind::Text),
    ("is_backfill", Kind::Bool),
];

/// A message in a folder that mail is taken in from. The folders of a page are recorded before its messages.
const IN_SCOPE: &str =
    "where exists (select 1 from folders f where f.tenant_id = u.tenant_id and f.mailbox_id = u.mailbox_id
     and f.provider_folder_id = u.folder and f.is_in_scope and f.gone_at is null)";
