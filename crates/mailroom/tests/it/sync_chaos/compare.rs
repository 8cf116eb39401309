//! What is stored, compared with what the provider really has.

use std::collections::{BTreeMap, BTreeSet};

use domain::TenantId;
use sim::scripted::Role;

use super::source::{Source, address};
use super::{MAILBOXES, WITH_DRAFTS, has_drafts};
use crate::place::Place;

/// Where a message is, how it is marked, its bytes, and how far it has come: comparable as text.
fn line(of: &str, folder: &str, uid: &str, message: &str, flags: &[String], sha256: &str, state: &str) -> String {
    format!("{of} {message} is {folder}/{uid} {flags:?} {sha256} {state}")
}

fn truth(source: &Source) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for number in 1..=MAILBOXES {
        for (id, folder) in source.truth(number).folders {
            let is_in_scope = match has_drafts(number) {
                true => WITH_DRAFTS.split(',').any(|name| name == folder.name),
                false => !matches!(folder.role, Some(Role::Drafts | Role::Spam | Role::Trash)),
            };
            if !is_in_scope {
                continue;
            }
            for place in folder.places {
                let (uid, message) = (&place.uid, &place.message);
                let state = "processed processed live one";
                lines.insert(line(&address(number), &id, uid, message, &place.flags, &place.sha256, state));
            }
        }
    }
    lines
}

fn stored(place: &Place) -> BTreeSet<String> {
    let hash = if place.is_sqlite() { "e.raw_sha256" } else { "encode(e.raw_sha256, 'hex')" };
    let rows = place.select(&format!(
        "select m.address || '|' || f.provider_folder_id || '|' || p.provider_uid || '|' || p.provider_message_id || '|'
                || cast(p.flags as text) || '|' || coalesce({hash}, 'not stored') || '|' || l.state || ' '
                || coalesce(e.processing_status, 'not stored') || ' '
                || case when e.deleted_at is null and f.gone_at is null then 'live' else 'deleted' end || ' '
                || case when l.email_id = p.email_id and e.provider_message_id = p.provider_message_id then 'one'
                        else 'another' end
         from placements p
         join mailboxes m on m.tenant_id = p.tenant_id and m.id = p.mailbox_id
         join folders f on f.tenant_id = p.tenant_id and f.id = p.folder_id
         join ledger l on l.tenant_id = p.tenant_id and l.mailbox_id = p.mailbox_id
              and l.provider_message_id = p.provider_message_id
         left join emails e on e.tenant_id = p.tenant_id and e.id = p.email_id
         where p.is_live"
    ));
    let read = |row: &String| {
        let [of, folder, uid, message, flags, sha256, state] = row.split('|').collect::<Vec<_>>().try_into().unwrap();
        let mut flags: Vec<String> = serde_json::from_str(flags).unwrap();
        flags.sort();
        line(of, folder, uid, message, &flags, sha256, state)
    };
    rows.iter().map(read).collect()
}

/// Everything in which what is stored differs from what the provider has.
pub fn differences(place: &Place, source: &Source) -> Vec<String> {
    between(&truth(source), &stored(place))
}

pub fn between(truth: &BTreeSet<String>, stored: &BTreeSet<String>) -> Vec<String> {
    let mut differences: Vec<String> = truth.difference(stored).map(|line| format!("missing: {line}")).collect();
    differences.extend(stored.difference(truth).map(|line| format!("surplus: {line}")));
    differences
}

/// Everything that is at odds with itself.
pub fn odd(place: &Place) -> Vec<String> {
    let live =
        "exists (select 1 from placements p where p.tenant_id = e.tenant_id and p.email_id = e.id and p.is_live)";
    let place_of = "exists (select 1 from placements p where p.tenant_id = l.tenant_id and p.mailbox_id = l.mailbox_id
                    and p.provider_message_id = l.provider_message_id and p.is_live)";
    let odd = [
        ("live without a place", format!("select cast(id as text) from emails e where deleted_at is null and not {live}")),
        ("deleted, with a place", format!("select cast(id as text) from emails e where deleted_at is not null and {live}")),
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
    for (what, sql) in odd {
        differences.extend(place.select(&sql).into_iter().map(|which| format!("{what}: {which}")));
    }
    differences
}

/// What is still to be done, but for the next look at each mailbox, and what was given up.
pub fn unfinished(place: &Place) -> Vec<String> {
    place.select(
        "select kind || ' ' || state || ', attempt ' || cast(attempt as text) || ' ' || cast(payload as text) from jobs
         where kind in ('fetch_emails', 'list_history', 'list_mailbox') or (kind = 'sync_mailbox' and attempt > 0)
         union all
         select kind || ' dead: ' || coalesce(reason, '') || ' ' || cast(payload as text) from finished_jobs
         where state = 'dead'",
    )
}

/// The folders and flags of each live email, as people see them.
pub type Present = BTreeMap<String, (BTreeSet<String>, BTreeSet<String>)>;

pub fn present(place: &Place, tenant: TenantId) -> Present {
    let mut present = Present::new();
    let rows = place.select(&format!(
        "select cast(email_id as text) || '|' || cast(folder_id as text) || '|' || cast(flags as text) from placements
         where is_live and email_id is not null and tenant_id = '{tenant}'"
    ));
    for row in rows {
        let [email, folder, flags] = row.split('|').collect::<Vec<_>>().try_into().unwrap();
        let (folders, marks) = present.entry(email.to_owned()).or_default();
        folders.insert(folder.to_owned());
        marks.extend(serde_json::from_str::<Vec<String>>(flags).unwrap());
    }
    present
}

/// Where each mailbox and each job stands, for who wants to know why nothing happens.
/// What is known of the messages and folders that differences name.
pub fn explain(place: &Place, differences: &[String]) -> Vec<String> {
    let text = |column: &str| format!("coalesce(cast({column} as text), '-')");
    let row = |columns: &[&str]| columns.iter().map(|column| text(column)).collect::<Vec<_>>().join(" || ' ' || ");
    let told = ["m.address", "t.name", "f.provider_folder_id", "f.name", "f.role", "f.is_in_scope", "f.gone_at"];
    let placed = ["p.provider_message_id", "p.is_live", "p.listing", "p.updated_at", "l.state", "l.told", "s.listing"];
    let stood = ["m.address", "t.name", "c.phase", "c.scope", "c.cursor", "w.sweep_since"];
    let of = |table: &str| {
        format!(
            "join mailboxes m on m.tenant_id = {table}.tenant_id and m.id = {table}.mailbox_id
             join tenants t on t.id = m.tenant_id"
        )
    };
    let mut explained = Vec::new();
    for difference in differences.iter().take(6) {
        let words: Vec<&str> = difference.split_whitespace().collect();
        let Some(at) = words.iter().position(|word| *word == "in") else { continue };
        let (message, folder, address) = (words[at - 1], words[at + 1], words[1]);
        explained.push(difference.clone());
        explained.extend(place.select(&format!(
            "select {} from folders f {} where m.address = '{address}' and f.provider_folder_id = '{folder}'",
            row(&told),
            of("f")
        )));
        explained.extend(place.select(&format!(
            "select {} from placements p {}
             join folders f on f.tenant_id = p.tenant_id and f.id = p.folder_id
             join ledger l on l.tenant_id = p.tenant_id and l.mailbox_id = p.mailbox_id
                  and l.provider_message_id = p.provider_message_id
             join sync_states s on s.tenant_id = p.tenant_id and s.mailbox_id = p.mailbox_id
             where m.address = '{address}' and p.provider_message_id = '{message}'",
            row(&[&["m.address", "t.name", "f.provider_folder_id"], &placed[..]].concat()),
            of("p")
        )));
        explained.extend(place.select(&format!(
            "select {} from sync_cursors c {}
             left join push_watches w on w.tenant_id = c.tenant_id and w.mailbox_id = c.mailbox_id
             where m.address = '{address}' and c.scope in ('', '{folder}')",
            row(&stood),
            of("c")
        )));
    }
    explained
}

pub fn standing(place: &Place) -> Vec<String> {
    let text = |column: &str| format!("coalesce(cast({column} as text), '-')");
    let row = |columns: &[&str]| columns.iter().map(|column| text(column)).collect::<Vec<_>>().join(" || ' ' || ");
    let mailboxes = ["m.address", "m.id", "m.state", "status", "next_sync_at", "last_sync_at", "holder", "held_until"];
    let jobs = ["id", "kind", "state", "run_at", "worker", "attempt", "suspected", "rerun", "unique_key"];
    let mut standing = place.select(&format!(
        "select {} from sync_states s join mailboxes m on m.tenant_id = s.tenant_id and m.id = s.mailbox_id order by 1",
        row(&mailboxes)
    ));
    standing.extend(place.select(&format!("select {} from jobs order by 1", row(&jobs))));
    standing
}
