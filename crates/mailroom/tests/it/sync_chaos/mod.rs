//! Storms over synced mailboxes (P1 and P4): whatever is killed, stopped, restarted or away, and whatever the provider does
//! wrong, in the end exactly what the provider has is stored, once, and the events lead to it. docs/chaos.md has the details.

mod cluster;
mod compare;
mod event_replay;
mod gmail;
mod imap;
mod imap_simulator;
mod jmap;
mod oauth_provider;
mod outlook;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::crash::setting;
use crate::installation::TestInstallation;
use crate::jobs_killed::number;

/// Mailboxes of each tenant at IMAP servers.
const MAILBOXES_PER_TENANT: usize = 3;

/// How long a storm lasts; with `make chaos` much longer.
const STORM_SECONDS: u64 = 10;

/// The tenant of the n-th mailbox at an IMAP server.
fn tenant_name(number: usize) -> String {
    format!("tenant {}", (number - 1) / MAILBOXES_PER_TENANT)
}

/// Lists the mailboxes whose credentials were refused, by address, with their tenants.
fn refused_mailboxes(mailroom: &TestInstallation) -> Vec<(String, String)> {
    let refused = "select m.address || '|' || t.name from mailboxes m join tenants t on t.id = m.tenant_id
                   where m.state = 'needs_reauth'";
    let rows = mailroom.select(refused).into_iter();
    rows.map(|row| row.split_once('|').map(|(address, tenant)| (address.to_owned(), tenant.to_owned())).unwrap())
        .collect()
}

/// The owners of mailboxes whose credentials were refused say that they are good.
fn resume_refused(mailroom: &TestInstallation) {
    for (address, tenant) in refused_mailboxes(mailroom) {
        // The server may refuse them once more.
        mailroom.run(&["mailbox", "resume", &address, "--tenant", &tenant, "--no-check"]);
    }
}

fn storm_duration() -> Duration {
    Duration::from_secs(setting("MAILROOM_TEST_STORM_SECONDS", STORM_SECONDS))
}

/// Reads every byte back. Messages that came while blob storage was away and were deleted before they could be fetched once
/// more have no bytes, and exactly those are reported. Returns how many.
fn assert_readable(mailroom: &TestInstallation) -> u64 {
    let mut reported = BTreeMap::new();
    for report in mailroom.objects_of(&["verify", "--deep"]) {
        if !report["mailbox"].is_null() {
            assert_ne!(report["ok"], false, "{report}");
            continue;
        }
        for difference in report["differences"].as_array().unwrap() {
            let what = difference["what"].as_str().unwrap().to_owned();
            *reported.entry(what).or_insert(0) += difference["count"].as_u64().unwrap();
        }
    }
    let gone = "join ledger l on l.tenant_id = e.tenant_id and l.email_id = e.id and l.state = 'gone'
                where e.deleted_at is not null";
    let lost = number(mailroom, &format!("select count(*) from emails e {gone} and e.raw_blob_sha256 is null"));
    let parts = format!(
        "select count(*) from attachments a join emails e on e.tenant_id = a.tenant_id and e.id = a.email_id {gone}
         and a.status = 'pending'"
    );
    let lost_parts = number(mailroom, &parts);
    let mut expected = BTreeMap::from([
        ("emails are stored without their raw bytes".to_owned(), lost),
        ("attachments are not stored yet".to_owned(), lost_parts),
    ]);
    expected.retain(|_, count| *count > 0);
    assert_eq!(reported, expected);
    lost
}

#[expect(clippy::print_stdout, reason = "for the person who runs it")]
fn print_summary(text: &str) {
    println!("{text}");
}
