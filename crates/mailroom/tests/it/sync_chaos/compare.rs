//! What is stored, compared with what the provider really has.

use std::collections::{BTreeMap, BTreeSet};

use domain::TenantId;

use crate::installation::TestInstallation;

/// The line that stands for a message at an IMAP server: where it is, its flags, and its bytes.
pub fn imap_line(address: &str, folder: &str, uid: &str, flags: &[String], sha256: &str) -> String {
    format!("{address} {folder}/{uid} {flags:?} {sha256}")
}

/// The lines of all live placements of IMAP mailboxes.
pub fn stored_imap_lines(mailroom: &TestInstallation) -> BTreeSet<String> {
    let hash = if mailroom.is_sqlite() { "e.raw_sha256" } else { "encode(e.raw_sha256, 'hex')" };
    let rows = mailroom.select(&format!(
        "select m.address || '|' || f.name || '|' || p.provider_uid || '|' || cast(p.flags as text) || '|'
                || coalesce({hash}, 'not stored') || case when e.processing_status = 'processed' then '' else ' in part' end
         from placements p
         join mailboxes m on m.tenant_id = p.tenant_id and m.id = p.mailbox_id
         join folders f on f.tenant_id = p.tenant_id and f.id = p.folder_id
         left join emails e on e.tenant_id = p.tenant_id and e.id = p.email_id
         where p.is_live"
    ));
    rows.iter().map(|row| parse_imap_row(row)).collect()
}

fn parse_imap_row(row: &str) -> String {
    let [address, folder, uid, flags, sha256] = row.split('|').collect::<Vec<_>>().try_into().unwrap();
    let mut flags: Vec<String> = serde_json::from_str(flags).unwrap();
    flags.sort();
    imap_line(address, folder, uid, &flags, sha256)
}

pub fn differences_between(truth: &BTreeSet<String>, stored: &BTreeSet<String>) -> Vec<String> {
    let mut differences: Vec<String> = truth.difference(stored).map(|line| format!("missing: {line}")).collect();
    differences.extend(stored.difference(truth).map(|line| format!("surplus: {line}")));
    differences
}

/// Rows that contradict each other.
pub fn inconsistencies(mailroom: &TestInstallation) -> Vec<String> {
    let live =
        "exists (select 1 from placements p where p.tenant_id = e.tenant_id and p.email_id = e.id and p.is_live)";
    let place_of = "exists (select 1 from placements p where p.tenant_id = l.tenant_id and p.mailbox_id = l.mailbox_id
                    and p.provider_message_id = l.provider_message_id and p.is_live)";
    let checks = [
        ("live without a placement", format!("select cast(id as text) from emails e where deleted_at is null and not {live}")),
        ("deleted, with a placement", format!("select cast(id as text) from emails e where deleted_at is not null and {live}")),
        (
            "twice an email",
            "select cast(mailbox_id as text) || ' ' || provider_message_id from emails
             group by mailbox_id, provider_message_id having count(*) > 1"
                .to_owned(),
        ),
        (
            "in the ledger neither stored nor gone",
            format!(
                "select provider_message_id || ' ' || state || ' ' || coalesce(reason, '') || ' in ' || cast(mailbox_id as text)
                 from ledger l where not (state = 'processed' and {place_of}) and not (state = 'gone' and not {place_of})"
            ),
        ),
        ("left from a unit", "select type from event_drafts".to_owned()),
        (
            "a mailbox that does not work",
            "select address || ' ' || state from mailboxes where state <> 'active'".to_owned(),
        ),
    ];
    let mut differences = Vec::new();
    for (what, sql) in checks {
        differences.extend(mailroom.select(&sql).into_iter().map(|which| format!("{what}: {which}")));
    }
    differences
}

/// Jobs that are left, except the next poll of each mailbox, and dead letters.
pub fn unfinished(mailroom: &TestInstallation) -> Vec<String> {
    mailroom.select(
        "select kind || ' ' || state || ', attempt ' || cast(attempt as text) || ' ' || cast(payload as text) from jobs
         where kind in ('fetch_emails', 'list_history', 'list_mailbox', 'retry_blobs') or (kind = 'sync_mailbox' and attempt > 0)
         union all
         select kind || ' dead: ' || coalesce(reason, '') || ' ' || cast(payload as text) from finished_jobs
         where state = 'dead'",
    )
}

/// The folders and flags of each live email, as people see them.
pub type LiveEmails = BTreeMap<String, (BTreeSet<String>, BTreeSet<String>)>;

pub fn live_emails(mailroom: &TestInstallation, tenant: TenantId) -> LiveEmails {
    let mut live = LiveEmails::new();
    let rows = mailroom.select(&format!(
        "select cast(email_id as text) || '|' || cast(folder_id as text) || '|' || cast(flags as text) from placements
         where is_live and email_id is not null and tenant_id = '{tenant}'"
    ));
    for row in rows {
        let [email, folder, flags] = row.split('|').collect::<Vec<_>>().try_into().unwrap();
        let (folders, marks) = live.entry(email.to_owned()).or_default();
        folders.insert(folder.to_owned());
        marks.extend(serde_json::from_str::<Vec<String>>(flags).unwrap());
    }
    live
}

/// What is stored of the messages and folders that the differences name.
pub fn explain(mailroom: &TestInstallation, differences: &[String]) -> Vec<String> {
    let folder_columns =
        ["m.address", "t.name", "f.provider_folder_id", "f.name", "f.role", "f.is_in_scope", "f.gone_at"];
    let placement_columns =
        ["p.provider_message_id", "p.is_live", "p.listing", "p.updated_at", "l.state", "l.told", "s.listing"];
    let cursor_columns = ["m.address", "t.name", "c.phase", "c.scope", "c.cursor", "w.sweep_since"];
    let mut explained = Vec::new();
    for difference in differences.iter().take(6) {
        let words: Vec<&str> = difference.split_whitespace().collect();
        let Some([message, _, folder]) = words.windows(3).find(|words| words[1] == "in") else { continue };
        let address = words[1];
        explained.push(difference.clone());
        explained.extend(mailroom.select(&format!(
            "select {} from folders f {} where m.address = '{address}' and f.provider_folder_id = '{folder}'",
            concatenated(&folder_columns),
            join_mailbox("f")
        )));
        explained.extend(mailroom.select(&format!(
            "select {} from placements p {}
             join folders f on f.tenant_id = p.tenant_id and f.id = p.folder_id
             join ledger l on l.tenant_id = p.tenant_id and l.mailbox_id = p.mailbox_id
                  and l.provider_message_id = p.provider_message_id
             join sync_states s on s.tenant_id = p.tenant_id and s.mailbox_id = p.mailbox_id
             where m.address = '{address}' and p.provider_message_id = '{message}'",
            concatenated(&[&["m.address", "t.name", "f.provider_folder_id"], &placement_columns[..]].concat()),
            join_mailbox("p")
        )));
        explained.extend(mailroom.select(&format!(
            "select {} from sync_cursors c {}
             left join push_watches w on w.tenant_id = c.tenant_id and w.mailbox_id = c.mailbox_id
             where m.address = '{address}' and c.scope in ('', '{folder}')",
            concatenated(&cursor_columns),
            join_mailbox("c")
        )));
    }
    explained
}

/// SQL of the mailbox and tenant of a row of this table.
fn join_mailbox(table: &str) -> String {
    format!(
        "join mailboxes m on m.tenant_id = {table}.tenant_id and m.id = {table}.mailbox_id
         join tenants t on t.id = m.tenant_id"
    )
}

/// SQL of one text with these columns.
fn concatenated(columns: &[&str]) -> String {
    let texts: Vec<String> = columns.iter().map(|column| format!("coalesce(cast({column} as text), '-')")).collect();
    texts.join(" || ' ' || ")
}

/// The state of each mailbox and each job, to see why nothing happens.
pub fn states(mailroom: &TestInstallation) -> Vec<String> {
    let mailboxes = ["m.address", "m.id", "m.state", "status", "next_sync_at", "last_sync_at", "holder", "held_until"];
    let jobs = ["id", "kind", "state", "run_at", "worker", "attempt", "suspected", "rerun", "unique_key"];
    let mut states = mailroom.select(&format!(
        "select {} from sync_states s join mailboxes m on m.tenant_id = s.tenant_id and m.id = s.mailbox_id order by 1",
        concatenated(&mailboxes)
    ));
    states.extend(mailroom.select(&format!("select {} from jobs order by 1", concatenated(&jobs))));
    states
}
