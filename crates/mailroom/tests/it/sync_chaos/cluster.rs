//! The processes of a storm, and what happens to them and to what they rely on.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use domain::{JobState, PlanTier, TenantId};
use store::Store;
use store::sql::jobs::{JobFilter, Replay};

use super::{compare, story};
use crate::crash::{Random, setting};
use crate::jobs_killed::open;
use crate::place::{PROGRAM, Place, block_on};
use crate::processes::Running;
use crate::servers::{Postgres, Redis};

const LEASE: Duration = Duration::from_secs(1);

/// How long nothing at all may get better while everything becomes quiet. A busy machine takes its time, but it gets on.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often each came.
#[derive(Debug, Default)]
pub struct Troubles {
    pub kills: u32,
    pub pauses: u32,
    pub restarts: u32,
    pub redis_away: u32,
    pub blobs_away: u32,
}

/// So many before a storm may end, however slow everything is.
pub const FEWEST: u32 = 4;

/// Servers of one Mailroom.
pub struct Cluster<'a> {
    pub place: &'a Place,
    pub store: Store,
    tenants: Vec<TenantId>,
    server: Option<&'a Postgres>,
    running: Vec<Running>,
    /// Where each of them listens.
    addresses: Vec<SocketAddr>,
    started: usize,
    redis: Option<Redis>,
    pub troubles: Troubles,
}

impl<'a> Cluster<'a> {
    /// With tenants `tenant 0`, `tenant 1`, …
    pub fn new(place: &'a Place, tenants: usize, server: Option<&'a Postgres>) -> Self {
        let store = open(place);
        let tenants = block_on(async {
            store.migrate().await.unwrap();
            let mut made = Vec::new();
            for n in 0..tenants {
                let tenant = store.system().create_tenant(&format!("tenant {n}"), PlanTier::Standard).await;
                made.push(tenant.unwrap().unwrap().id);
            }
            made
        });
        // One server alone has nobody to ask for its turn.
        let redis = server.map(|_| Redis::start());
        let (running, troubles) = (Vec::new(), Troubles::default());
        let addresses = Vec::new();
        Self { place, store, tenants, server, running, addresses, started: 0, redis, troubles }
    }

    /// Of one that runs.
    pub fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    pub fn start(&mut self) {
        let address = free_address();
        let mut command = self.serve(address);
        let log = File::create(self.place.path(&format!("serve-{}.log", self.started))).unwrap();
        self.started += 1;
        self.running.push(Running::spawn(command.stdout(Stdio::null()).stderr(log)));
        self.addresses.push(address);
    }

    fn serve(&self, address: SocketAddr) -> Command {
        let lease = format!("{}s", LEASE.as_secs());
        // Every other seed lets all of them look at the calendar: that they agree must not be what it rests on.
        let elects = setting("MAILROOM_TEST_SEED", 1).is_multiple_of(2).to_string();
        let mut command = self.place.command(PROGRAM, &["serve"]);
        command
            .env("MAILROOM_SERVER__LISTEN", address.to_string())
            .env("MAILROOM_JOBS__LEASE", &lease)
            .env("MAILROOM_SYNC__LEASE", &lease)
            .env("MAILROOM_SYNC__LEADER_ELECTION", elects)
            .envs(self.redis.iter().map(|redis| ("MAILROOM_CACHE__URL", redis.url())));
        command
    }

    pub fn make_trouble(&mut self, random: &mut Random) {
        let n = usize::try_from(random.below(self.running.len() as u64)).unwrap();
        match (random.below(10), self.server) {
            (0, Some(server)) => {
                server.restart();
                self.troubles.restarts += 1;
            }
            (1 | 8, _) if self.redis.is_some() && random.below(2) == 0 => {
                self.take_redis_away(Duration::from_millis(200 + random.below(2000)));
                self.troubles.redis_away += 1;
            }
            (1, _) => {
                self.take_blobs_away(Duration::from_millis(200 + random.below(800)));
                self.troubles.blobs_away += 1;
            }
            (2..=4, _) => {
                assert!(self.running[n].pause(), "a server ended by itself");
                // Long enough for the others to take it for dead.
                sleep(LEASE.mul_f64(1.2 + random.below(10) as f64 / 10.0));
                self.running[n].resume();
                self.troubles.pauses += 1;
            }
            _ => {
                assert!(!self.running[n].has_ended(), "a server ended by itself");
                self.running.remove(n).kill();
                self.addresses.remove(n);
                self.start();
                self.troubles.kills += 1;
            }
        }
    }

    /// It comes back empty: whoever had a turn has none any more.
    fn take_redis_away(&self, how_long: Duration) {
        let Some(redis) = &self.redis else { return };
        redis.halt();
        sleep(how_long);
        redis.resume();
    }

    /// Where the folder of the blobs was there is nothing that anything can be written to.
    fn take_blobs_away(&self, how_long: Duration) {
        let blobs = self.place.data_dir().join("blobs");
        let away = self.place.data_dir().join("blobs-away");
        fs::rename(&blobs, &away).unwrap();
        fs::write(&blobs, "").unwrap();
        sleep(how_long);
        fs::remove_file(&blobs).unwrap();
        fs::rename(&away, &blobs).unwrap();
    }

    /// Until there is no difference and nothing is left to do. What waits for its time is done now; how many were parked
    /// and had to be replayed.
    pub fn become_quiet(&self, differences: impl Fn() -> Vec<String>) -> u64 {
        let (mut fewest, mut since) = (usize::MAX, Instant::now());
        let mut blamed = 0;
        loop {
            let mut differences = differences();
            differences.extend(compare::odd(self.place));
            differences.extend(compare::unfinished(self.place));
            if differences.is_empty() {
                return blamed;
            }
            let count = differences.len();
            if count < fewest {
                (fewest, since) = (count, Instant::now());
            }
            if since.elapsed() > PATIENCE {
                differences.truncate(40);
                differences.extend(compare::explain(self.place, &differences));
                differences.extend(compare::standing(self.place));
                panic!("{count} differences, and for {PATIENCE:?} it did not get better:\n{}", differences.join("\n"));
            }
            blamed += self.replay_the_blamed();
            self.hurry();
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    fn hurry(&self) {
        block_on(async {
            for state in [JobState::Scheduled, JobState::Retry] {
                let filter = JobFilter { state: Some(state), ..JobFilter::default() };
                for job in self.store.system().list_jobs(&filter, None, 1000).await.unwrap() {
                    self.store.system().retry_now(job.id).await.unwrap();
                }
            }
        });
    }

    /// Who is around whenever a process dies is taken for the cause: parked, not lost, and done when somebody wants it.
    fn replay_the_blamed(&self) -> u64 {
        let dead = self.place.select("select coalesce(error_class, '') from finished_jobs where state = 'dead'");
        assert!(dead.iter().all(|class| class == "poison"), "{dead:?}");
        block_on(self.store.system().replay_dead(&JobFilter::default(), &Replay::default())).unwrap()
    }

    pub fn stop(&mut self) {
        for running in self.running.drain(..) {
            running.terminate();
            let done = running.finish();
            assert_eq!(done.code, Some(0), "{done}");
        }
        for n in 0..self.started {
            let log = std::fs::read_to_string(self.place.path(&format!("serve-{n}.log"))).unwrap();
            assert!(!log.contains("panicked"), "{log}");
        }
    }

    /// What the events tell is what is there; how many there are.
    pub fn assert_story(&self) -> u64 {
        let mut events = 0;
        for tenant in &self.tenants {
            let story = story::read(&self.store, *tenant);
            let differences = story.differences(&compare::present(self.place, *tenant));
            assert!(differences.is_empty(), "of tenant {tenant}:\n{}", differences.join("\n"));
            events += story.events();
        }
        events
    }
}

/// Below those that the system hands out by itself, so that nobody else takes it before the server does.
fn free_address() -> SocketAddr {
    static LAST: AtomicU16 = AtomicU16::new(0);
    let first = 10_000 + u16::try_from(std::process::id() % 10_000).unwrap();
    let ports = std::iter::repeat_with(|| first + LAST.fetch_add(1, Ordering::SeqCst) % 10_000);
    let mut free = ports.filter_map(|port| TcpListener::bind(("127.0.0.1", port)).ok()?.local_addr().ok());
    free.next().unwrap()
}
