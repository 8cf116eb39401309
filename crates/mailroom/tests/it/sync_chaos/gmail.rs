//! The same storm over Gmail accounts at the simulator: tokens die, histories expire, quotas end, and every change is
//! pushed up to five times, in any order, or never.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use domain::{Clock, SystemClock};
use sim::google::{CLIENT_ID, CLIENT_SECRET, Endpoint, Fault, Kind, NewAccount, Operation, Route, Server, World};
use tokio::runtime::Runtime;

use super::cluster::{Cluster, FEWEST};
use super::compare::between;
use super::{assert_readable, compare, storm_duration, tell};
use crate::crash::{Random, random, setting};
use crate::place::Place;
use crate::servers::Postgres;

const TENANTS: usize = 3;
const ACCOUNTS: usize = 8;

/// In each mailbox when it is connected.
const MESSAGES: usize = 40;

const CHANGES_PER_SECOND: f64 = 20.0;

/// Its credentials are refused now and then, though they are good; its owner says so each time.
const REFUSED: usize = 2;
/// It denies messages that it has.
const DENIED: usize = 3;
/// Its consent is taken back in the middle, and given anew in the end.
const REVOKED: usize = 4;

const AUDIENCE: &str = "mailroom-storm";
const PUSHER: &str = "push@storm.iam.gserviceaccount.com";

fn address(number: usize) -> String {
    format!("storm{number}@sim.example")
}

/// The first account is everybody's, each other one is somebody's.
fn owners(number: usize) -> Vec<String> {
    match number {
        1 => (0..TENANTS).map(|tenant| format!("tenant {tenant}")).collect(),
        _ => vec![format!("tenant {}", number % TENANTS)],
    }
}

struct Google {
    world: Arc<World>,
    server: Server,
    _runtime: Runtime,
}

impl Google {
    fn start(seed: u64) -> Self {
        let world = Arc::new(World::new(seed, 60, Arc::new(|| SystemClock.now())));
        for number in 1..=ACCOUNTS {
            assert!(world.create(&NewAccount { address: address(number), messages: MESSAGES, seed: None }));
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let server = runtime.block_on(Server::start_here(world.clone())).unwrap();
        Self { world, server, _runtime: runtime }
    }

    /// For every command and server that runs beside it.
    fn settings(&self) -> String {
        let url = self.server.url();
        format!(
            r#"[providers.google]
               auth_url = "{url}/o/oauth2/v2/auth"
               token_url = "{url}/token"
               api_url = "{url}"
               jwks_url = "{url}/oauth2/v3/certs"
               client_id = "{CLIENT_ID}"
               client_secret = "{CLIENT_SECRET}"
               pubsub_topic = "projects/storm/topics/mail"
               push_audience = "{AUDIENCE}"
               push_service_account = "{PUSHER}"
               user_units_per_minute = 0
            "#
        )
    }

    fn push_to(&self, url: &str) {
        let url = format!("{url}/v1/hooks/gmail");
        let (audience, service_account_email) = (Some(AUDIENCE.to_owned()), PUSHER.to_owned());
        let endpoint =
            Endpoint { audience, service_account_email, rate_limit: false, chaos: true, ..Endpoint::new(&url) };
        self.world.set_push(Some(endpoint));
    }

    fn begin(&self) {
        self.world.set_latency_ms(10);
        faults().into_iter().for_each(|fault| self.world.add_fault(fault));
        self.world.set_rate(CHANGES_PER_SECOND);
    }

    /// Nothing changes any more, and nothing fails; how often each fault came.
    fn heal(&self) -> BTreeMap<String, u64> {
        self.world.set_rate(0.0);
        let mut met: BTreeMap<String, u64> = BTreeMap::new();
        for fault in self.world.faults() {
            let name = format!("{:?}", fault.kind);
            *met.entry(name.split([' ', '{']).next().unwrap_or_default().to_owned()).or_default() += fault.fired;
        }
        self.world.clear_faults();
        self.world.set_latency_ms(0);
        // It denied what it had: only a look at everything finds that out.
        self.world.apply(&address(DENIED), Operation::ExpireHistory).unwrap();
        met
    }
}

/// All that it can do wrong.
fn faults() -> Vec<Fault> {
    let on = |number, route, fault| Fault { account: Some(address(number)), route, ..fault };
    let mut faults: Vec<Fault> = [
        (Kind::Throttled { retry_after: Some(1) }, 0.01),
        (Kind::UserRateLimited { retry_after: None }, 0.01),
        (Kind::RateLimited { retry_after: Some(1) }, 0.01),
        (Kind::Unavailable { retry_after: None }, 0.02),
        (Kind::Internal, 0.01),
        (Kind::Hang { ms: 1500 }, 0.005),
        (Kind::Cut, 0.01),
        (Kind::Reset, 0.01),
        (Kind::CutBody, 0.02),
        (Kind::Slow { bytes: 4000, ms: 20 }, 0.02),
        (Kind::Garbage, 0.01),
        (Kind::TruncatedJson, 0.01),
        (Kind::EmptyPage, 0.1),
        (Kind::Padded, 0.2),
        (Kind::MissingPart, 0.05),
        (Kind::ShuffledParts, 0.2),
        (Kind::HistoryExpired, 0.005),
    ]
    .map(|(kind, probability)| Fault::sometimes(kind, probability))
    .into();
    let refused = Kind::Oauth { error: "invalid_grant".into(), status: 400 };
    faults.push(on(REFUSED, Some(Route::Token), Fault::sometimes(refused, 0.3)));
    faults.push(on(REFUSED, None, Fault::sometimes(Kind::Unauthorized, 0.02)));
    faults.push(on(DENIED, Some(Route::MessagesGet), Fault::sometimes(Kind::NotFound, 0.05)));
    faults
}

/// Where a message is, how it is marked, its bytes, and how far it has come: comparable as text.
fn truth(google: &Google) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for number in 1..=ACCOUNTS {
        let address = address(number);
        for (id, message) in google.world.truth(&address).unwrap().messages {
            for (place, flags) in connectors::gmail::places(&id, &message.label_ids) {
                if ["TRASH", "SPAM", "DRAFT", "CHAT"].contains(&&*place.folder) {
                    continue;
                }
                for tenant in owners(number) {
                    let (folder, flags, hash) = (&place.folder, flags.names(), &message.sha256);
                    lines.insert(format!("{address} of {tenant}: {id} in {folder} {flags:?} {hash} processed live"));
                }
            }
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

fn connect(place: &Place, google: &Google, number: usize) {
    for tenant in owners(number) {
        let granted = google.world.grant(&address(number)).unwrap();
        let token = place.write("token", granted.refresh_token.unwrap());
        let address = address(number);
        let mut args = vec!["mailbox", "add", "gmail", "--tenant", &tenant, "--address", &address];
        args.extend(["--refresh-token-file", &token, "--backfill", "all", "--interval", "3s"]);
        place.ok(&args);
    }
}

/// Those whose credentials were refused go on with new ones.
fn help(place: &Place, google: &Google) {
    let waiting = "select m.address || '|' || t.name from mailboxes m join tenants t on t.id = m.tenant_id
                   where m.state = 'needs_reauth'";
    for row in place.select(waiting) {
        let (address, tenant) = row.split_once('|').unwrap();
        let granted = google.world.grant(address).unwrap();
        let token = place.write("token", granted.refresh_token.unwrap());
        let args = ["mailbox", "resume", address, "--tenant", tenant, "--refresh-token-file", &token, "--no-check"];
        place.ok(&args);
    }
}

fn rage(cluster: &mut Cluster<'_>, google: &Google, random: &mut Random) -> u32 {
    let begun = Instant::now();
    let (mut made, mut expired) = (0, 0);
    while begun.elapsed() < storm_duration() || made < FEWEST {
        sleep(Duration::from_millis(200 + random.below(1200)));
        let number = 1 + usize::try_from(random.below(ACCOUNTS as u64)).unwrap();
        match random.below(6) {
            0 => drop(google.world.apply(&address(number), Operation::ExpireHistory).unwrap()),
            1 => google.world.expire_access_tokens(Some(&address(number))),
            2 => google.world.expire_access_tokens(None),
            3 => drop(google.world.rotate_keys(random.below(2) == 0)),
            4 if made > 2 => google.world.revoke_tokens(&address(REVOKED)),
            _ => {}
        }
        expired += 1;
        cluster.make_trouble(random);
        google.push_to(&cluster.url());
        made += 1;
        if random.below(3) == 0 {
            help(cluster.place, google);
        }
    }
    expired
}

fn storm(place: &Place, servers: usize, server: Option<&Postgres>) {
    let mut random = random();
    let google = Google::start(setting("MAILROOM_TEST_SEED", 1));
    place.write("mailroom.toml", google.settings());
    let mut cluster = Cluster::new(place, TENANTS, server);
    (1..=ACCOUNTS).for_each(|number| connect(place, &google, number));
    google.begin();
    (0..servers).for_each(|_| cluster.start());
    google.push_to(&cluster.url());
    let shaken = rage(&mut cluster, &google, &mut random);
    let met = google.heal();
    help(place, &google);

    let healed = Instant::now();
    let blamed = cluster.become_quiet(|| {
        help(place, &google);
        between(&truth(&google), &stored(place))
    });
    let quiet = healed.elapsed();
    cluster.stop();
    let truth = truth(&google);
    assert_eq!(between(&truth, &stored(place)), [""; 0], "it was quiet");
    assert_eq!(compare::odd(place), [""; 0], "it was quiet");
    assert_eq!(google.world.violations(), []);
    let (events, lost, pushes) = (cluster.assert_story(), assert_readable(place), google.world.push_counts());
    tell(&format!(
        "Gmail: {} places, {events} events; {:?}; shaken {shaken} times; faults met: {met:?}; {pushes:?}; replayed: {blamed}; without bytes: {lost}; quiet after {quiet:.1?}",
        truth.len(),
        cluster.troubles
    ));
}

#[test]
fn three_servers_in_a_storm_end_up_with_what_gmail_has_on_postgresql() {
    let server = Postgres::start();
    storm(&Place::on_server(server.url()), 3, Some(&server));
}

#[test]
fn a_server_in_a_storm_ends_up_with_what_gmail_has_on_sqlite() {
    storm(&Place::sqlite(), 1, None);
}
