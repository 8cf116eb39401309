//! The same storm over mailboxes at a real IMAP server, behind a network that cuts, delays and swallows, and the server
//! itself is restarted.

mod owner;
mod proxy;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use super::cluster::Cluster;
use super::compare::{differences_between, stored_imap_lines};
use super::{assert_readable, compare, print_summary, tenant_name};
use crate::crash::{SeededRandom, random};
use crate::installation::TestInstallation;
use crate::servers::{Dovecot, Postgres};
use owner::MailboxOwner;
use proxy::FaultyProxy;

const TENANTS: usize = 2;
const MAILBOXES: usize = 6;

/// In each mailbox when it is connected.
const MESSAGES: usize = 40;

/// The pause between two changes, over all mailboxes.
const CHANGE_PAUSE: Duration = Duration::from_millis(20);

fn user(number: usize) -> String {
    format!("storm{number}")
}

fn truth(port: u16) -> BTreeSet<String> {
    (1..=MAILBOXES).flat_map(|number| MailboxOwner::log_in(&user(number), port).unwrap().truth()).collect()
}

/// Returns emails of a mailbox with the same bytes: these must be one email, in however many folders.
fn duplicates(mailroom: &TestInstallation) -> Vec<String> {
    mailroom.select(
        "select 'the same bytes twice: ' || cast(mailbox_id as text) || ' ' || count(*) from emails
         group by mailbox_id, raw_sha256 having count(*) > 1",
    )
}

fn connect(mailroom: &TestInstallation, proxy: &FaultyProxy, number: usize) {
    let (password, port) = (mailroom.write("password", "pw"), proxy.port.to_string());
    let (tenant, user) = (tenant_name(number), user(number));
    let address = format!("{user}@acme.test");
    let mut args = vec!["mailbox", "add", "imap", "--tenant", &tenant, "--address", &address, "--user", &user];
    args.extend(["--host", "127.0.0.1", "--port", &port, "--tls", "none", "--password-file", &password]);
    args.extend(["--backfill", "all", "--interval", "1s"]);
    mailroom.ok(&args);
}

/// Changes all mailboxes until `stop`, and counts the changes.
fn change_mailboxes(port: u16, stop: Arc<AtomicBool>, changes: Arc<AtomicU64>, mut random: SeededRandom) {
    let mut owners: Vec<Option<MailboxOwner>> = (0..MAILBOXES).map(|_| None).collect();
    while !stop.load(Ordering::SeqCst) {
        sleep(CHANGE_PAUSE);
        let number = usize::try_from(random.below(MAILBOXES as u64)).unwrap();
        let owner = &mut owners[number];
        // Once in a while with another connection, for the server may have been restarted.
        if owner.is_none() || random.below(20) == 0 {
            *owner = MailboxOwner::log_in(&user(number + 1), port);
        }
        if let Some(owner) = owner {
            owner.change_something(&mut random);
            changes.fetch_add(1, Ordering::SeqCst);
        }
    }
}

fn storm(mailroom: &TestInstallation, servers: usize, server: Option<&Postgres>) {
    let (dovecot, mut random) = (Dovecot::start(), random());
    let port = dovecot.port();
    for number in 1..=MAILBOXES {
        let mut owner = MailboxOwner::log_in(&user(number), port).unwrap();
        (0..MESSAGES).for_each(|_| owner.receive("INBOX", &mut random));
    }
    let proxy = FaultyProxy::start(port, random.fork());
    let mut cluster = Cluster::new(mailroom, TENANTS, server);
    (1..=MAILBOXES).for_each(|number| connect(mailroom, &proxy, number));

    let (stop, changes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let changing = {
        let (stop, changes, random) = (stop.clone(), changes.clone(), random.fork());
        thread::spawn(move || change_mailboxes(port, stop, changes, random))
    };
    proxy.begin();
    (0..servers).for_each(|_| cluster.start());
    let mut restarts = 0;
    cluster.inject_faults(&mut random, |_, random| {
        if random.below(6) == 0 {
            dovecot.restart();
            restarts += 1;
        }
    });
    stop.store(true, Ordering::SeqCst);
    changing.join().unwrap();
    let met = proxy.clear_faults();

    let truth = truth(port);
    let healed = Instant::now();
    let replayed = cluster.become_quiet(|| {
        let differences = differences_between(&truth, &stored_imap_lines(mailroom));
        differences.into_iter().chain(duplicates(mailroom)).collect()
    });
    let quiet = healed.elapsed();
    cluster.stop();
    assert_eq!(differences_between(&truth, &stored_imap_lines(mailroom)), [""; 0], "it was quiet");
    assert_eq!(compare::inconsistencies(mailroom), [""; 0], "it was quiet");
    let (events, lost) = (cluster.assert_events(), assert_readable(mailroom));
    print_summary(&format!(
        "IMAP: {} messages, {events} events, {} changes; {:?}; {met}; server restarts: {restarts}; replayed: {replayed}; without bytes: {lost}; quiet after {quiet:.1?}",
        truth.len(),
        changes.load(Ordering::SeqCst),
        cluster.troubles
    ));
}

#[test]
fn cluster_stores_all_of_dovecot_on_postgresql() {
    let server = Postgres::start();
    storm(&TestInstallation::on_server(server.url()), 3, Some(&server));
}

#[test]
fn server_stores_all_of_dovecot_on_sqlite() {
    storm(&TestInstallation::sqlite(), 1, None);
}
