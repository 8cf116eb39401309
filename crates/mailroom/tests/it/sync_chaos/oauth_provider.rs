//! A storm over accounts at a simulated provider with OAuth tokens and pushes: Gmail or Outlook.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use sim::ProviderCore;
use sim::faults::{FaultKind, FaultRule};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

use super::cluster::Cluster;
use super::compare::differences_between;
use super::{assert_readable, compare, print_summary, refused_mailboxes};
use crate::crash::{SeededRandom, random, setting};
use crate::installation::TestInstallation;
use crate::servers::Postgres;

const TENANTS: usize = 3;
pub const ACCOUNTS: usize = 8;

/// In each mailbox when it is connected.
pub const MESSAGES: usize = 40;

const CHANGES_PER_SECOND: f64 = 20.0;

/// The account whose credentials are refused now and then, though they are good; its owner gives new ones each time.
pub const REFUSED: usize = 2;
/// The account of which the provider denies messages that it has.
pub const DENIED: usize = 3;
/// The account whose consent is revoked in the middle, and given anew in the end.
pub const REVOKED: usize = 4;

/// A simulated provider in a storm.
pub trait StormProvider: Deref<Target = ProviderCore<Self::Kind>> + Send + Sync + Sized + 'static {
    type Kind: FaultKind + Debug;
    type Server;

    /// The name in `mailroom mailbox add`.
    const NAME: &'static str;

    fn new_world(seed: u64) -> Self;

    fn serve(world: &Arc<Self>, runtime: &Runtime) -> Self::Server;

    /// Returns the settings of every command and server.
    fn settings(url: &str, hooks: &str) -> String;

    /// Returns the faults of the storm.
    fn faults() -> Vec<FaultRule<Self::Kind>>;

    fn create(&self, address: &str) -> bool;

    /// Returns a refresh token, as if the owner had consented.
    fn consent(&self, address: &str) -> String;

    /// Returns a line for each placement in scope: message, folder, flags and hash of its bytes.
    fn truth_of(&self, address: &str) -> Vec<String>;

    /// Makes something go wrong beside the faults.
    fn inject_random_fault(&self, random: &mut SeededRandom, address: &str, may_revoke: bool);

    /// Makes Mailroom compare everything: denied messages show in no other way.
    fn force_comparison(&self);

    /// What an operator does once the storm is over.
    fn after_storm(_place: &TestInstallation) {}

    /// What the provider sends again and again while everything becomes quiet.
    fn send_reminders(&self) {}

    /// Starts to push every change to this URL up to five times, in any order, or never.
    fn push_to(&self, url: &str);

    /// Describes what became of pushes.
    fn push_summary(&self) -> String;
}

/// A public address that forwards to one of the running servers.
struct PublicAddress {
    address: SocketAddr,
    target: Arc<Mutex<Option<SocketAddr>>>,
}

impl PublicAddress {
    fn open(runtime: &Runtime) -> Self {
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let target: Arc<Mutex<Option<SocketAddr>>> = Arc::default();
        let current = target.clone();
        runtime.spawn(async move {
            while let Ok((mut visitor, _)) = listener.accept().await {
                let target = *current.lock().unwrap();
                tokio::spawn(async move {
                    // Without a server the connection ends, as it would without this proxy.
                    if let Some(target) = target
                        && let Ok(mut server) = TcpStream::connect(target).await
                    {
                        let _ = copy_bidirectional(&mut visitor, &mut server).await;
                    }
                });
            }
        });
        Self { address, target }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn forward_to(&self, cluster: &Cluster<'_>) {
        *self.target.lock().unwrap() = Some(cluster.address());
    }
}

pub fn address(number: usize) -> String {
    format!("storm{number}@sim.example")
}

/// Returns the tenants of an account: all of them have the first one, each other account has one.
fn tenants_of(number: usize) -> Vec<String> {
    if number == 1 {
        return (0..TENANTS).map(|tenant| format!("tenant {tenant}")).collect();
    }
    vec![format!("tenant {}", number % TENANTS)]
}

/// Ends changes and faults. Returns how often each fault came.
fn clear_faults<W: StormProvider>(world: &W) -> BTreeMap<String, u64> {
    world.set_rate(0.0);
    let mut met: BTreeMap<String, u64> = BTreeMap::new();
    for fault in world.faults() {
        let name = format!("{:?}", fault.kind);
        *met.entry(name.split([' ', '{']).next().unwrap_or_default().to_owned()).or_default() += fault.fired;
    }
    world.clear_faults();
    world.set_latency_ms(0);
    world.force_comparison();
    met
}

/// Returns the lines of all accounts, as [`stored`] returns them once all is stored.
fn truth<W: StormProvider>(world: &W) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for number in 1..=ACCOUNTS {
        let address = address(number);
        for line in world.truth_of(&address) {
            let tenants = tenants_of(number).into_iter();
            lines.extend(tenants.map(|tenant| format!("{address} of {tenant}: {line} processed live")));
        }
    }
    lines
}

fn stored(mailroom: &TestInstallation) -> BTreeSet<String> {
    let hash = if mailroom.is_sqlite() { "e.raw_sha256" } else { "encode(e.raw_sha256, 'hex')" };
    let rows = mailroom.select(&format!(
        "select m.address || ' of ' || t.name || ': ' || p.provider_message_id || ' in ' || f.provider_folder_id || '|'
                || cast(p.flags as text) || '|' || coalesce({hash}, 'not stored') || ' ' || l.state || ' '
                || case when e.deleted_at is null and f.gone_at is null then 'live' else 'deleted' end
         from placements p
         join tenants t on t.id = p.tenant_id
         join mailboxes m on m.tenant_id = p.tenant_id and m.id = p.mailbox_id
         join folders f on f.tenant_id = p.tenant_id and f.id = p.folder_id
         join ledger l on l.tenant_id = p.tenant_id and l.mailbox_id = p.mailbox_id
              and l.provider_message_id = p.provider_message_id
         left join emails e on e.tenant_id = p.tenant_id and e.id = p.email_id
         where p.is_live"
    ));
    rows.iter().map(|row| parse_row(row)).collect()
}

fn parse_row(row: &str) -> String {
    let [placement, flags, rest] = row.split('|').collect::<Vec<_>>().try_into().unwrap();
    let flags: Vec<String> = serde_json::from_str(flags).unwrap();
    format!("{placement} {flags:?} {rest}")
}

fn connect<W: StormProvider>(mailroom: &TestInstallation, world: &W, number: usize) {
    for tenant in tenants_of(number) {
        let token = mailroom.write("token", world.consent(&address(number)));
        let address = address(number);
        let mut args = vec!["mailbox", "add", W::NAME, "--tenant", &tenant, "--address", &address];
        args.extend(["--refresh-token-file", &token, "--backfill", "all", "--interval", "3s"]);
        mailroom.ok(&args);
    }
}

/// Gives new credentials to mailboxes whose credentials were refused.
fn renew_credentials<W: StormProvider>(mailroom: &TestInstallation, world: &W) {
    for (address, tenant) in refused_mailboxes(mailroom) {
        let token = mailroom.write("token", world.consent(&address));
        let args = ["mailbox", "resume", &address, "--tenant", &tenant, "--refresh-token-file", &token, "--no-check"];
        mailroom.ok(&args);
    }
}

fn storm<W: StormProvider>(mailroom: &TestInstallation, servers: usize, server: Option<&Postgres>) {
    let mut random = random();
    let world = Arc::new(W::new_world(setting("MAILROOM_TEST_SEED", 1)));
    assert!((1..=ACCOUNTS).all(|number| world.create(&address(number))));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let _server = W::serve(&world, &runtime);
    let mut cluster = Cluster::new(mailroom, TENANTS, server);
    let public = PublicAddress::open(&runtime);
    mailroom.write("mailroom.toml", W::settings(&world.url(), &public.url()));
    (1..=ACCOUNTS).for_each(|number| connect(mailroom, &*world, number));
    world.set_latency_ms(10);
    W::faults().into_iter().for_each(|fault| world.add_fault(fault));
    world.set_rate(CHANGES_PER_SECOND);
    (0..servers).for_each(|_| cluster.start());
    public.forward_to(&cluster);
    world.push_to(&public.url());
    let mut disturbed = 0;
    cluster.inject_faults(&mut random, |cluster, random| {
        public.forward_to(cluster);
        let number = 1 + usize::try_from(random.below(ACCOUNTS as u64)).unwrap();
        world.inject_random_fault(random, &address(number), disturbed > 2);
        disturbed += 1;
        if random.below(3) == 0 {
            renew_credentials(mailroom, &*world);
        }
    });
    let met = clear_faults(&*world);
    renew_credentials(mailroom, &*world);
    W::after_storm(mailroom);

    let healed = Instant::now();
    let comparisons = AtomicU64::new(0);
    let replayed = cluster.become_quiet(|| {
        renew_credentials(mailroom, &*world);
        // Not so often that no comparison gets to its end.
        if comparisons.fetch_add(1, Ordering::Relaxed).is_multiple_of(20) {
            world.send_reminders();
        }
        differences_between(&truth(&*world), &stored(mailroom))
    });
    let quiet = healed.elapsed();
    cluster.stop();
    let truth = truth(&*world);
    assert_eq!(differences_between(&truth, &stored(mailroom)), [""; 0], "it was quiet");
    assert_eq!(compare::inconsistencies(mailroom), [""; 0], "it was quiet");
    assert_eq!(world.violations(), []);
    let (events, lost, pushes) = (cluster.assert_events(), assert_readable(mailroom), world.push_summary());
    print_summary(&format!(
        "{}: {} places, {events} events; {:?}; disturbed {disturbed} times; faults met: {met:?}; {pushes}; replayed: {replayed}; without bytes: {lost}; quiet after {quiet:.1?}",
        W::NAME,
        truth.len(),
        cluster.troubles
    ));
}

pub fn on_postgresql<W: StormProvider>() {
    let server = Postgres::start();
    storm::<W>(&TestInstallation::on_server(server.url()), 3, Some(&server));
}

pub fn on_sqlite<W: StormProvider>() {
    storm::<W>(&TestInstallation::sqlite(), 1, None);
}
