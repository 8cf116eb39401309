//! A storm over mailboxes of several tenants at the simulated JMAP server, which change all the while and fail in every way
//! that servers fail.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use domain::{Clock, SystemClock};
use sim::faults::FaultKind;
use sim::jmap::{
    AccountSpec, JMAP_PASSWORD, JmapFault, JmapFaultKind, JmapOperation, JmapRoute, JmapServer, JmapWorld,
};
use testkit::contract::jmap_flags;
use testkit::simulated::is_in_jmap_scope;
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

/// How many objects the server lists at once, so that there are many pages.
const MAX_OBJECTS: usize = 20;

/// Over all mailboxes, so that each changes about twice between two polls.
const CHANGES_PER_SECOND: f64 = 30.0;

/// The mailbox whose credentials are refused now and then, though they are good; its owner says so each time.
const REFUSED: usize = 2;

fn address(number: usize) -> String {
    format!("box{number}@jmap.example")
}

/// The simulated server in a storm.
struct StormyJmap {
    world: Arc<JmapWorld>,
    server: JmapServer,
    _runtime: Runtime,
}

impl StormyJmap {
    fn start() -> Self {
        let world = Arc::new(JmapWorld::new(setting("MAILROOM_TEST_SEED", 1), LETTERS, Arc::new(|| SystemClock.now())));
        world.set_max_objects(MAX_OBJECTS);
        for number in 1..=MAILBOXES {
            assert!(world.create(&AccountSpec { address: address(number), messages: MESSAGES, seed: None }));
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let server = runtime.block_on(JmapServer::start_here(Arc::clone(&world))).unwrap();
        Self { world, server, _runtime: runtime }
    }

    /// From here on it changes and fails.
    fn begin(&self) {
        // So that a server that is stopped is mostly stopped in the middle of a call.
        self.world.set_latency_ms(10);
        for kind in JmapFaultKind::transient() {
            self.world.add_fault(JmapFault::sometimes(kind, 0.01));
        }
        self.world.add_fault(JmapFault {
            account: Some(address(REFUSED)),
            route: Some(JmapRoute::Api),
            ..JmapFault::sometimes(JmapFaultKind::Unauthorized, 0.05)
        });
        self.world.set_rate(CHANGES_PER_SECOND);
    }

    /// Makes the server forget the changes of a mailbox.
    fn expire_states(&self, random: &mut SeededRandom) {
        let number = 1 + usize::try_from(random.below(MAILBOXES as u64)).unwrap();
        self.world.apply(&address(number), JmapOperation::ExpireStates).unwrap();
    }

    /// Nothing changes any more, and nothing fails. Returns how many faults came.
    fn clear_faults(&self) -> u64 {
        self.world.set_rate(0.0);
        self.world.clear_faults();
        self.world.set_latency_ms(0);
        self.world.faults_fired()
    }

    fn truth(&self) -> BTreeSet<String> {
        let mut lines = BTreeSet::new();
        for address in (1..=MAILBOXES).map(address) {
            let truth = self.world.truth(&address).unwrap();
            for (id, message) in &truth.messages {
                let mut flags = jmap_flags(message);
                flags.sort();
                let folders = message.folders.iter().filter(|folder| is_in_jmap_scope(&truth, folder));
                lines.extend(
                    folders.map(|folder| imap_line(&address, &truth.folders[folder].name, id, &flags, &message.sha256)),
                );
            }
        }
        lines
    }
}

fn connect(mailroom: &TestInstallation, jmap: &StormyJmap, number: usize) {
    let (password, url) = (mailroom.write("password", JMAP_PASSWORD), jmap.server.url());
    let (tenant, address) = (tenant_name(number), address(number));
    let mut args = vec!["mailbox", "add", "jmap", "--tenant", &tenant, "--address", &address];
    args.extend(["--url", &url, "--password-file", &password, "--backfill", "all", "--interval", "1s"]);
    mailroom.ok(&args);
}

fn storm(mailroom: &TestInstallation, servers: usize, server: Option<&Postgres>) {
    let (jmap, mut random) = (StormyJmap::start(), random());
    let mut cluster = Cluster::new(mailroom, TENANTS, server);
    (1..=MAILBOXES).for_each(|number| connect(mailroom, &jmap, number));
    jmap.begin();
    (0..servers).for_each(|_| cluster.start());
    let mut expired = 0;
    cluster.inject_faults(&mut random, |_, random| {
        if random.below(2) == 0 {
            jmap.expire_states(random);
            expired += 1;
        }
        if random.below(3) == 0 {
            resume_refused(mailroom);
        }
    });
    let met = jmap.clear_faults();

    let truth = jmap.truth();
    let healed = Instant::now();
    let replayed = cluster.become_quiet(|| {
        resume_refused(mailroom);
        differences_between(&truth, &stored_imap_lines(mailroom))
    });
    let quiet = healed.elapsed();
    cluster.stop();
    assert_eq!(differences_between(&truth, &stored_imap_lines(mailroom)), [""; 0], "it was quiet");
    assert_eq!(compare::inconsistencies(mailroom), [""; 0], "it was quiet");
    assert_eq!(jmap.world.violations(), []);
    let (events, lost) = (cluster.assert_events(), assert_readable(mailroom));
    print_summary(&format!(
        "simulated JMAP: {} messages, {events} events; {:?}; states expired {expired} times; faults met: {met}; replayed: {replayed}; without bytes: {lost}; quiet after {quiet:.1?}",
        truth.len(),
        cluster.troubles
    ));
}

#[test]
fn cluster_stores_all_of_simulated_jmap_on_postgresql() {
    let server = Postgres::start();
    storm(&TestInstallation::on_server(server.url()), 3, Some(&server));
}

#[test]
fn server_stores_all_of_simulated_jmap_on_sqlite() {
    storm(&TestInstallation::sqlite(), 1, None);
}
