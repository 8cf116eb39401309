//! The same storm over accounts at a simulated provider that has tokens and pushes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use sim::Stage;
use sim::faults::{Failing, Fault};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

use super::cluster::{Cluster, FEWEST};
use super::compare::between;
use super::{assert_readable, compare, storm_duration, tell};
use crate::crash::{Random, random, setting};
use crate::place::Place;
use crate::servers::Postgres;

const TENANTS: usize = 3;
pub const ACCOUNTS: usize = 8;

/// In each mailbox when it is connected.
pub const MESSAGES: usize = 40;

const CHANGES_PER_SECOND: f64 = 20.0;

/// Its credentials are refused now and then, though they are good; its owner says so each time.
pub const REFUSED: usize = 2;
/// It denies messages that it has.
pub const DENIED: usize = 3;
/// Its consent is taken back in the middle, and given anew in the end.
pub const REVOKED: usize = 4;

/// A provider in a storm.
pub trait Stormy: Deref<Target = Stage<Self::Kind>> + Send + Sync + Sized + 'static {
    type Kind: Failing + Debug;
    type Server;

    /// As `mailroom mailbox add` calls it.
    const NAME: &'static str;

    fn begin(seed: u64) -> Self;

    fn serve(world: &Arc<Self>, runtime: &Runtime) -> Self::Server;

    /// For every command and server that runs beside it.
    fn settings(url: &str, hooks: &str) -> String;

    /// All that it can do wrong.
    fn faults() -> Vec<Fault<Self::Kind>>;

    fn create(&self, address: &str) -> bool;

    /// A refresh token, as if its owner had consented.
    fn consent(&self, address: &str) -> String;

    /// Where a message is that is wanted, how it is marked, and its bytes.
    fn truth_of(&self, address: &str) -> Vec<String>;

    /// Something else than its faults goes wrong.
    fn shake(&self, random: &mut Random, address: &str, may_revoke: bool);

    /// It denied what it had: only a look at everything finds that out.
    fn admit(&self);

    /// What our people do once the storm is over.
    fn afterwards(_place: &Place) {}

    /// What it says again and again while everything becomes quiet.
    fn remind(&self) {}

    /// Where we are reached, by whom it tells everything up to five times, in any order, or never.
    fn push_to(&self, url: &str);

    /// What became of pushes, for people.
    fn pushes(&self) -> String;
}

/// Where we are reached, whoever of us runs.
struct Front {
    address: SocketAddr,
    behind: Arc<Mutex<Option<SocketAddr>>>,
}

impl Front {
    fn open(runtime: &Runtime) -> Self {
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let behind: Arc<Mutex<Option<SocketAddr>>> = Arc::default();
        let aimed = behind.clone();
        runtime.spawn(async move {
            while let Ok((mut visitor, _)) = listener.accept().await {
                let behind = *aimed.lock().unwrap();
                tokio::spawn(async move {
                    // Whoever does not get through sees the connection end, as it would without us.
                    if let Some(behind) = behind
                        && let Ok(mut server) = TcpStream::connect(behind).await
                    {
                        let _ = copy_bidirectional(&mut visitor, &mut server).await;
                    }
                });
            }
        });
        Self { address, behind }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn aim(&self, cluster: &Cluster<'_>) {
        *self.behind.lock().unwrap() = Some(cluster.address());
    }
}

pub fn address(number: usize) -> String {
    format!("storm{number}@sim.example")
}

/// The first account is everybody's, each other one is somebody's.
fn owners(number: usize) -> Vec<String> {
    match number {
        1 => (0..TENANTS).map(|tenant| format!("tenant {tenant}")).collect(),
        _ => vec![format!("tenant {}", number % TENANTS)],
    }
}

/// Nothing changes any more, and nothing fails; how often each fault came.
fn heal<W: Stormy>(world: &W) -> BTreeMap<String, u64> {
    world.set_rate(0.0);
    let mut met: BTreeMap<String, u64> = BTreeMap::new();
    for fault in world.faults() {
        let name = format!("{:?}", fault.kind);
        *met.entry(name.split([' ', '{']).next().unwrap_or_default().to_owned()).or_default() += fault.fired;
    }
    world.clear_faults();
    world.set_latency_ms(0);
    world.admit();
    met
}

/// And how far it has come: comparable as text.
fn truth<W: Stormy>(world: &W) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for number in 1..=ACCOUNTS {
        let address = address(number);
        for line in world.truth_of(&address) {
            let of = |tenant: String| format!("{address} of {tenant}: {line} processed live");
            lines.extend(owners(number).into_iter().map(of));
        }
    }
    lines
}

fn stored(place: &Place) -> BTreeSet<String> {
    let hash = if place.is_sqlite() { "e.raw_sha256" } else { "encode(e.raw_sha256, 'hex')" };
    let rows = place.select(&format!(
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
    let read = |row: &String| {
        let [where_it_is, flags, rest] = row.split('|').collect::<Vec<_>>().try_into().unwrap();
        let flags: Vec<String> = serde_json::from_str(flags).unwrap();
        format!("{where_it_is} {flags:?} {rest}")
    };
    rows.iter().map(read).collect()
}

fn connect<W: Stormy>(place: &Place, world: &W, number: usize) {
    for tenant in owners(number) {
        let token = place.write("token", world.consent(&address(number)));
        let address = address(number);
        let mut args = vec!["mailbox", "add", W::NAME, "--tenant", &tenant, "--address", &address];
        args.extend(["--refresh-token-file", &token, "--backfill", "all", "--interval", "3s"]);
        place.ok(&args);
    }
}

/// Those whose credentials were refused go on with new ones.
fn help<W: Stormy>(place: &Place, world: &W) {
    let waiting = "select m.address || '|' || t.name from mailboxes m join tenants t on t.id = m.tenant_id
                   where m.state = 'needs_reauth'";
    for row in place.select(waiting) {
        let (address, tenant) = row.split_once('|').unwrap();
        let token = place.write("token", world.consent(address));
        let args = ["mailbox", "resume", address, "--tenant", tenant, "--refresh-token-file", &token, "--no-check"];
        place.ok(&args);
    }
}

fn rage<W: Stormy>(cluster: &mut Cluster<'_>, front: &Front, world: &W, random: &mut Random) -> u32 {
    let begun = Instant::now();
    let (mut made, mut shaken) = (0, 0);
    while begun.elapsed() < storm_duration() || made < FEWEST {
        sleep(Duration::from_millis(200 + random.below(1200)));
        let number = 1 + usize::try_from(random.below(ACCOUNTS as u64)).unwrap();
        world.shake(random, &address(number), made > 2);
        shaken += 1;
        cluster.make_trouble(random);
        front.aim(cluster);
        made += 1;
        if random.below(3) == 0 {
            help(cluster.place, world);
        }
    }
    shaken
}

fn storm<W: Stormy>(place: &Place, servers: usize, server: Option<&Postgres>) {
    let mut random = random();
    let world = Arc::new(W::begin(setting("MAILROOM_TEST_SEED", 1)));
    assert!((1..=ACCOUNTS).all(|number| world.create(&address(number))));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let _server = W::serve(&world, &runtime);
    let mut cluster = Cluster::new(place, TENANTS, server);
    let front = Front::open(&runtime);
    place.write("mailroom.toml", W::settings(&world.url(), &front.url()));
    (1..=ACCOUNTS).for_each(|number| connect(place, &*world, number));
    world.set_latency_ms(10);
    W::faults().into_iter().for_each(|fault| world.add_fault(fault));
    world.set_rate(CHANGES_PER_SECOND);
    (0..servers).for_each(|_| cluster.start());
    front.aim(&cluster);
    world.push_to(&front.url());
    let shaken = rage(&mut cluster, &front, &*world, &mut random);
    let met = heal(&*world);
    help(place, &*world);
    W::afterwards(place);

    let healed = Instant::now();
    let looks = AtomicU64::new(0);
    let blamed = cluster.become_quiet(|| {
        help(place, &*world);
        // Not so often that nobody gets to the end.
        if looks.fetch_add(1, Ordering::Relaxed).is_multiple_of(20) {
            world.remind();
        }
        between(&truth(&*world), &stored(place))
    });
    let quiet = healed.elapsed();
    cluster.stop();
    let truth = truth(&*world);
    assert_eq!(between(&truth, &stored(place)), [""; 0], "it was quiet");
    assert_eq!(compare::odd(place), [""; 0], "it was quiet");
    assert_eq!(world.violations(), []);
    let (events, lost, pushes) = (cluster.assert_story(), assert_readable(place), world.pushes());
    tell(&format!(
        "{}: {} places, {events} events; {:?}; shaken {shaken} times; faults met: {met:?}; {pushes}; replayed: {blamed}; without bytes: {lost}; quiet after {quiet:.1?}",
        W::NAME,
        truth.len(),
        cluster.troubles
    ));
}

pub fn on_postgresql<W: Stormy>() {
    let server = Postgres::start();
    storm::<W>(&Place::on_server(server.url()), 3, Some(&server));
}

pub fn on_sqlite<W: Stormy>() {
    storm::<W>(&Place::sqlite(), 1, None);
}
