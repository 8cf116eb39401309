//! The same storm over mailboxes at a real IMAP server, behind a network that cuts, delays and swallows, and the server
//! itself is restarted.

mod owner;
mod proxy;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use super::cluster::{Cluster, FEWEST};
use super::compare::between;
use super::{assert_readable, compare, storm_duration, tell, tenant_name};
use crate::crash::{Random, random};
use crate::place::Place;
use crate::servers::{Dovecot, Postgres};
use owner::Owner;
use proxy::Proxy;

const TENANTS: usize = 2;
const MAILBOXES: usize = 6;

/// In each mailbox when it is connected.
const MESSAGES: usize = 40;

/// Between two changes, over all mailboxes.
const PAUSE: Duration = Duration::from_millis(20);

fn user(number: usize) -> String {
    format!("storm{number}")
}

/// Where a message is, how it is marked, and its bytes: comparable as text.
fn line(user: &str, folder: &str, uid: &str, flags: &[String], sha256: &str) -> String {
    format!("{user} {folder}/{uid} {flags:?} {sha256}")
}

fn truth(port: u16) -> BTreeSet<String> {
    (1..=MAILBOXES).flat_map(|number| Owner::log_in(&user(number), port).unwrap().truth()).collect()
}

fn stored(place: &Place) -> BTreeSet<String> {
    let hash = if place.is_sqlite() { "e.raw_sha256" } else { "encode(e.raw_sha256, 'hex')" };
    let rows = place.select(&format!(
        "select m.address || '|' || f.name || '|' || p.provider_uid || '|' || cast(p.flags as text) || '|'
                || coalesce({hash}, 'not stored') || case when e.processing_status = 'processed' then '' else ' in part' end
         from placements p
         join mailboxes m on m.tenant_id = p.tenant_id and m.id = p.mailbox_id
         join folders f on f.tenant_id = p.tenant_id and f.id = p.folder_id
         left join emails e on e.tenant_id = p.tenant_id and e.id = p.email_id
         where p.is_live"
    ));
    let read = |row: &String| {
        let [address, folder, uid, flags, sha256] = row.split('|').collect::<Vec<_>>().try_into().unwrap();
        let mut flags: Vec<String> = serde_json::from_str(flags).unwrap();
        flags.sort();
        line(address.split('@').next().unwrap(), folder, uid, &flags, sha256)
    };
    rows.iter().map(read).collect()
}

/// The same bytes are one email of a mailbox, in however many places.
fn twice(place: &Place) -> Vec<String> {
    place.select(
        "select 'the same bytes twice: ' || cast(mailbox_id as text) || ' ' || count(*) from emails
         group by mailbox_id, raw_sha256 having count(*) > 1",
    )
}

fn connect(place: &Place, proxy: &Proxy, number: usize) {
    let (password, port) = (place.write("password", "pw"), proxy.port.to_string());
    let (tenant, user) = (tenant_name(number), user(number));
    let address = format!("{user}@acme.test");
    let mut args = vec!["mailbox", "add", "imap", "--tenant", &tenant, "--address", &address, "--user", &user];
    args.extend(["--host", "127.0.0.1", "--port", &port, "--tls", "none", "--password-file", &password]);
    args.extend(["--backfill", "all", "--interval", "1s"]);
    place.ok(&args);
}

/// Everybody's mail changes until it is told to stop; how often.
fn owners(port: u16, stop: Arc<AtomicBool>, changes: Arc<AtomicU64>, mut random: Random) {
    let mut owners: Vec<Option<Owner>> = (0..MAILBOXES).map(|_| None).collect();
    while !stop.load(Ordering::SeqCst) {
        sleep(PAUSE);
        let number = usize::try_from(random.below(MAILBOXES as u64)).unwrap();
        let owner = &mut owners[number];
        // Once in a while with another connection, for the server may have been restarted.
        if owner.is_none() || random.below(20) == 0 {
            *owner = Owner::log_in(&user(number + 1), port);
        }
        if let Some(owner) = owner {
            owner.do_something(&mut random);
            changes.fetch_add(1, Ordering::SeqCst);
        }
    }
}

fn storm(place: &Place, servers: usize, server: Option<&Postgres>) {
    let (dovecot, mut random) = (Dovecot::start(), random());
    let port = dovecot.port();
    for number in 1..=MAILBOXES {
        let mut owner = Owner::log_in(&user(number), port).unwrap();
        (0..MESSAGES).for_each(|_| owner.receive("INBOX", &mut random));
    }
    let proxy = Proxy::start(port, random.fork());
    let mut cluster = Cluster::new(place, TENANTS, server);
    (1..=MAILBOXES).for_each(|number| connect(place, &proxy, number));

    let (stop, changes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let changing = {
        let (stop, changes, random) = (stop.clone(), changes.clone(), random.fork());
        thread::spawn(move || owners(port, stop, changes, random))
    };
    proxy.begin();
    (0..servers).for_each(|_| cluster.start());
    let begun = Instant::now();
    let (mut made, mut restarts) = (0, 0);
    while begun.elapsed() < storm_duration() || made < FEWEST {
        sleep(Duration::from_millis(200 + random.below(1200)));
        if random.below(6) == 0 {
            dovecot.restart();
            restarts += 1;
        }
        cluster.make_trouble(&mut random);
        made += 1;
    }
    stop.store(true, Ordering::SeqCst);
    changing.join().unwrap();
    let met = proxy.heal();

    let truth = truth(port);
    let healed = Instant::now();
    let differences = || between(&truth, &stored(place)).into_iter().chain(twice(place)).collect();
    let blamed = cluster.become_quiet(differences);
    let quiet = healed.elapsed();
    cluster.stop();
    assert_eq!(between(&truth, &stored(place)), [""; 0], "it was quiet");
    assert_eq!(compare::odd(place), [""; 0], "it was quiet");
    let (events, lost) = (cluster.assert_story(), assert_readable(place));
    tell(&format!(
        "IMAP: {} messages, {events} events, {} changes; {:?}; {met}; server restarts: {restarts}; replayed: {blamed}; without bytes: {lost}; quiet after {quiet:.1?}",
        truth.len(),
        changes.load(Ordering::SeqCst),
        cluster.troubles
    ));
}

#[test]
fn three_servers_in_a_storm_end_up_with_what_the_mail_server_has_on_postgresql() {
    let server = Postgres::start();
    storm(&Place::on_server(server.url()), 3, Some(&server));
}

#[test]
fn a_server_in_a_storm_ends_up_with_what_the_mail_server_has_on_sqlite() {
    storm(&Place::sqlite(), 1, None);
}
