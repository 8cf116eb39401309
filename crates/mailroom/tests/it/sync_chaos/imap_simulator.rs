//! A storm over mailboxes of several tenants at the simulated IMAP server, which change all the while and fail in every way
//! that servers fail.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use domain::{Clock, SystemClock};
use sim::faults::FaultKind;
use sim::imap::{
    AccountSpec, ImapFault, ImapFaultKind, ImapFolderTruth, ImapOperation, ImapRoute, ImapServer, ImapWorld, PASSWORD,
    SpecialUse,
};
use tokio::runtime::Runtime;

use super::cluster::Cluster;
use super::compare::{differences_between, imap_line, stored_imap_lines};
use super::{assert_readable, compare, print_summary, resume_refused, tenant_name};
use crate::crash::{SeededRandom, random, setting};
use crate::installation::TestInstallation;
use crate::servers::Postgres;

const TENANTS: usize = 4;
const MAILBOXES: usize = TENANTS * super::MAILBOXES_PER_TENANT;

/// Different letters that the mail is made of; few, so that a run begins at once.
const LETTERS: usize = 60;

/// In each mailbox when it is connected.
const MESSAGES: usize = 30;

/// Over all mailboxes, so that each changes about twice between two polls.
const CHANGES_PER_SECOND: f64 = 30.0;

/// The mailbox whose credentials are refused now and then, though they are good; its owner says so each time.
const REFUSED: usize = 2;

/// The folders of the first mailbox of each tenant, which takes in drafts.
const FOLDERS_WITH_DRAFTS: &str = "INBOX,Sent,Archive,Drafts";

fn has_drafts(number: usize) -> bool {
    number % super::MAILBOXES_PER_TENANT == 1
}

fn address(number: usize) -> String {
    format!("box{number}@imap.example")
}

/// The simulated server in a storm.
struct StormyImap {
    world: Arc<ImapWorld>,
    server: ImapServer,
    _runtime: Runtime,
}

impl StormyImap {
    fn start() -> Self {
        let world = Arc::new(ImapWorld::new(setting("MAILROOM_TEST_SEED", 1), LETTERS, Arc::new(|| SystemClock.now())));
        for number in 1..=MAILBOXES {
            assert!(world.create(&AccountSpec { address: address(number), messages: MESSAGES, seed: None }));
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let server = runtime.block_on(ImapServer::start_here(&world)).unwrap();
        Self { world, server, _runtime: runtime }
    }

    /// From here on it changes and fails.
    fn begin(&self) {
        // So that a server that is stopped is mostly stopped in the middle of a call.
        self.world.set_latency_ms(10);
        for kind in ImapFaultKind::transient() {
            self.world.add_fault(ImapFault::sometimes(kind, 0.01));
        }
        let refused = ImapFaultKind::No { code: Some("AUTHENTICATIONFAILED".to_owned()), text: "No.".to_owned() };
        self.world.add_fault(ImapFault {
            account: Some(address(REFUSED)),
            route: Some(ImapRoute::Login),
            ..ImapFault::sometimes(refused, 0.3)
        });
        self.world.set_rate(CHANGES_PER_SECOND);
    }

    /// Gives the messages of a folder other UIDs.
    fn renumber(&self, random: &mut SeededRandom) {
        let number = 1 + usize::try_from(random.below(MAILBOXES as u64)).unwrap();
        let folder = ["INBOX", "Sent", "Archive"][usize::try_from(random.below(3)).unwrap()].to_owned();
        self.world.apply(&address(number), ImapOperation::Renumber { folder }).unwrap();
    }

    /// Nothing changes any more, and nothing fails. Returns how often each fault came.
    fn clear_faults(&self) -> BTreeMap<String, u64> {
        self.world.set_rate(0.0);
        let mut met: BTreeMap<String, u64> = BTreeMap::new();
        for fault in self.world.faults() {
            let name = format!("{:?}", fault.kind);
            *met.entry(name.split([' ', '{']).next().unwrap_or_default().to_owned()).or_default() += fault.fired;
        }
        self.world.clear_faults();
        self.world.set_latency_ms(0);
        met
    }

    fn truth(&self) -> BTreeSet<String> {
        let mut lines = BTreeSet::new();
        for number in 1..=MAILBOXES {
            let address = address(number);
            for (name, folder) in self.world.truth(&address).unwrap().folders {
                if !is_in_scope(number, &name, &folder) {
                    continue;
                }
                for (uid, message) in &folder.messages {
                    let uid = format!("{}.{uid}", folder.uid_validity);
                    let mut flags: Vec<String> =
                        message.flags.iter().map(|flag| flag.trim_start_matches('\\').to_lowercase()).collect();
                    flags.sort();
                    lines.insert(imap_line(&address, &name, &uid, &flags, &message.sha256));
                }
            }
        }
        lines
    }
}

fn is_in_scope(number: usize, name: &str, folder: &ImapFolderTruth) -> bool {
    if has_drafts(number) {
        return FOLDERS_WITH_DRAFTS.split(',').any(|wanted| wanted == name);
    }
    !matches!(folder.role, Some(SpecialUse::Drafts | SpecialUse::Junk | SpecialUse::Trash))
}

fn connect(mailroom: &TestInstallation, imap: &StormyImap, number: usize) {
    let (password, port) = (mailroom.write("password", PASSWORD), imap.server.imap().port().to_string());
    let (tenant, address) = (tenant_name(number), address(number));
    let mut args = vec!["mailbox", "add", "imap", "--tenant", &tenant, "--address", &address];
    args.extend(["--host", "127.0.0.1", "--port", &port, "--tls", "none", "--password-file", &password]);
    args.extend(["--backfill", "all", "--interval", "1s"]);
    if has_drafts(number) {
        args.extend(["--folders", FOLDERS_WITH_DRAFTS]);
    }
    mailroom.ok(&args);
}

fn storm(mailroom: &TestInstallation, servers: usize, server: Option<&Postgres>) {
    let (imap, mut random) = (StormyImap::start(), random());
    let mut cluster = Cluster::new(mailroom, TENANTS, server);
    (1..=MAILBOXES).for_each(|number| connect(mailroom, &imap, number));
    imap.begin();
    (0..servers).for_each(|_| cluster.start());
    let mut renumbered = 0;
    cluster.inject_faults(&mut random, |_, random| {
        if random.below(2) == 0 {
            imap.renumber(random);
            renumbered += 1;
        }
        if random.below(3) == 0 {
            resume_refused(mailroom);
        }
    });
    let met = imap.clear_faults();

    let truth = imap.truth();
    let healed = Instant::now();
    let replayed = cluster.become_quiet(|| {
        resume_refused(mailroom);
        differences_between(&truth, &stored_imap_lines(mailroom))
    });
    let quiet = healed.elapsed();
    cluster.stop();
    assert_eq!(differences_between(&truth, &stored_imap_lines(mailroom)), [""; 0], "it was quiet");
    assert_eq!(compare::inconsistencies(mailroom), [""; 0], "it was quiet");
    assert_eq!(imap.world.violations(), []);
    let (events, lost) = (cluster.assert_events(), assert_readable(mailroom));
    print_summary(&format!(
        "simulated IMAP: {} messages, {events} events; {:?}; {renumbered} folders renumbered; faults met: {met:?}; replayed: {replayed}; without bytes: {lost}; quiet after {quiet:.1?}",
        truth.len(),
        cluster.troubles
    ));
}

#[test]
fn cluster_stores_all_of_simulated_imap_on_postgresql() {
    let server = Postgres::start();
    storm(&TestInstallation::on_server(server.url()), 3, Some(&server));
}

#[test]
fn server_stores_all_of_simulated_imap_on_sqlite() {
    storm(&TestInstallation::sqlite(), 1, None);
}
