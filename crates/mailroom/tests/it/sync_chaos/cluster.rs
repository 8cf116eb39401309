//! The processes of a storm, and what happens to them and to what they rely on.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use domain::{JobState, PlanTier, TenantId};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use store::Store;
use store::sql::jobs::{JobFilter, ReplayOptions};

use super::{compare, event_replay, storm_duration};
use crate::crash::{SeededRandom, setting};
use crate::installation::{PROGRAM, TestInstallation, block_on};
use crate::jobs_killed::open;
use crate::processes::RunningProcess;
use crate::servers::{Postgres, Redis};

const LEASE: Duration = Duration::from_secs(1);

/// The longest time without progress while everything becomes quiet. A busy machine is slow, but it gets on.
const MAX_STALL: Duration = Duration::from_secs(120);

/// FaultCounts that were made, by kind.
#[derive(Debug, Default)]
pub struct FaultCounts {
    pub kills: u32,
    pub pauses: u32,
    pub restarts: u32,
    pub redis_away: u32,
    pub blobs_away: u32,
}

/// FaultCounts before a storm may end, however slow everything is.
const MIN_TROUBLES: u32 = 4;

/// The servers of one installation.
pub struct Cluster<'a> {
    pub mailroom: &'a TestInstallation,
    pub store: Store,
    tenants: Vec<TenantId>,
    server: Option<&'a Postgres>,
    running: Vec<RunningProcess>,
    /// Where each of them listens.
    addresses: Vec<SocketAddr>,
    started: usize,
    redis: Option<Redis>,
    pub troubles: FaultCounts,
}

impl<'a> Cluster<'a> {
    /// With tenants `tenant 0`, `tenant 1`, …
    pub fn new(mailroom: &'a TestInstallation, tenants: usize, server: Option<&'a Postgres>) -> Self {
        let store = open(mailroom);
        let tenants = block_on(async {
            store.migrate().await.unwrap();
            let mut made = Vec::new();
            for n in 0..tenants {
                let tenant = store.system().create_tenant(&format!("tenant {n}"), PlanTier::Standard).await;
                made.push(tenant.unwrap().unwrap().id);
            }
            made
        });
        // A single server needs no shared permits.
        let redis = server.map(|_| Redis::start());
        let (running, troubles) = (Vec::new(), FaultCounts::default());
        let addresses = Vec::new();
        Self { mailroom, store, tenants, server, running, addresses, started: 0, redis, troubles }
    }

    /// Returns the address of a running server.
    pub fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    pub fn start(&mut self) {
        let address = free_address();
        let mut command = self.serve(address);
        let log = File::create(self.mailroom.path(&format!("serve-{}.log", self.started))).unwrap();
        self.started += 1;
        self.running.push(RunningProcess::spawn(command.stdout(Stdio::null()).stderr(log)));
        self.addresses.push(address);
    }

    fn serve(&self, address: SocketAddr) -> Command {
        let lease = format!("{}s", LEASE.as_secs());
        // With every other seed all servers schedule: correctness must not depend on the leader.
        let elects = setting("MAILROOM_TEST_SEED", 1).is_multiple_of(2).to_string();
        let mut command = self.mailroom.command(PROGRAM, &["serve"]);
        command
            .env("MAILROOM_SERVER__LISTEN", address.to_string())
            .env("MAILROOM_JOBS__LEASE", &lease)
            .env("MAILROOM_SYNC__LEASE", &lease)
            .env("MAILROOM_SYNC__SECOND_LOOK", "1s")
            .env("MAILROOM_SYNC__LEADER_ELECTION", elects)
            .envs(self.redis.iter().map(|redis| ("MAILROOM_CACHE__URL", redis.url())));
        command
    }

    /// Commits faults for as long as a storm lasts, with what `also` does after each. Returns how many there were.
    pub fn inject_faults(
        &mut self,
        random: &mut SeededRandom,
        mut also: impl FnMut(&mut Self, &mut SeededRandom),
    ) -> u32 {
        let begun = Instant::now();
        let mut troubles = 0;
        while begun.elapsed() < storm_duration() || troubles < MIN_TROUBLES {
            sleep(Duration::from_millis(200 + random.below(1200)));
            self.inject_random_fault(random);
            also(self, random);
            troubles += 1;
        }
        troubles
    }

    fn inject_random_fault(&mut self, random: &mut SeededRandom) {
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
                self.make_blobs_unavailable(Duration::from_millis(200 + random.below(800)));
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

    /// Redis comes back empty: permits that it had given are lost.
    fn take_redis_away(&self, how_long: Duration) {
        let Some(redis) = &self.redis else { return };
        redis.halt();
        sleep(how_long);
        redis.resume();
    }

    /// Puts a file in the place of the blob folder, to which nothing can be written. Both are exchanged at once: a server
    /// that found neither would make a folder of its own.
    fn make_blobs_unavailable(&self, how_long: Duration) {
        let blobs = self.mailroom.data_dir().join("blobs");
        let away = self.mailroom.data_dir().join("blobs-away");
        fs::write(&away, "").unwrap();
        exchange(&blobs, &away);
        sleep(how_long);
        exchange(&blobs, &away);
        fs::remove_file(&away).unwrap();
    }

    /// Waits until there is no difference and no job left; jobs that wait for their time run now. Returns how many jobs were
    /// parked as poison and had to be replayed.
    pub fn become_quiet(&self, differences: impl Fn() -> Vec<String>) -> u64 {
        let (mut fewest, mut since) = (usize::MAX, Instant::now());
        let mut replayed = 0;
        loop {
            let mut differences = differences();
            differences.extend(compare::inconsistencies(self.mailroom));
            differences.extend(compare::unfinished(self.mailroom));
            if differences.is_empty() {
                return replayed;
            }
            let count = differences.len();
            if count < fewest {
                (fewest, since) = (count, Instant::now());
            }
            if since.elapsed() > MAX_STALL {
                differences.truncate(40);
                differences.extend(compare::explain(self.mailroom, &differences));
                differences.extend(compare::states(self.mailroom));
                panic!("{count} differences, and for {MAX_STALL:?} it did not get better:\n{}", differences.join("\n"));
            }
            replayed += self.replay_poisoned();
            self.make_jobs_ready();
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    /// Makes jobs ready that wait for their time.
    fn make_jobs_ready(&self) {
        block_on(async {
            for state in [JobState::Scheduled, JobState::Retry] {
                let filter = JobFilter { state: Some(state), ..JobFilter::default() };
                for job in self.store.system().list_jobs(&filter, None, 1000).await.unwrap() {
                    self.store.system().retry_now(job.id).await.unwrap();
                }
            }
        });
    }

    /// Replays jobs that ran at several crashes: they are parked as their cause, not lost.
    fn replay_poisoned(&self) -> u64 {
        let dead = self.mailroom.select("select coalesce(error_class, '') from finished_jobs where state = 'dead'");
        assert!(dead.iter().all(|class| class == "poison"), "{dead:?}");
        block_on(self.store.system().replay_dead(&JobFilter::default(), &ReplayOptions::default())).unwrap()
    }

    pub fn stop(&mut self) {
        for running in self.running.drain(..) {
            running.terminate();
            let done = running.finish();
            assert_eq!(done.code, Some(0), "{done}");
        }
        for n in 0..self.started {
            let log = std::fs::read_to_string(self.mailroom.path(&format!("serve-{n}.log"))).unwrap();
            assert!(!log.contains("panicked"), "{log}");
        }
    }

    /// Fails unless the events lead to what is stored. Returns how many there are.
    pub fn assert_events(&self) -> u64 {
        let mut events = 0;
        for tenant in &self.tenants {
            let replay = event_replay::replay(&self.store, *tenant);
            let differences = replay.differences(&compare::live_emails(self.mailroom, *tenant));
            assert!(differences.is_empty(), "of tenant {tenant}:\n{}", differences.join("\n"));
            events += replay.events();
        }
        events
    }
}

/// Exchanges a folder and a file in one step.
fn exchange(one: &Path, other: &Path) {
    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
}

/// Returns a free address below the ports that the system hands out, so that no other process takes it before the server.
fn free_address() -> SocketAddr {
    static LAST: AtomicU16 = AtomicU16::new(0);
    let first = 10_000 + u16::try_from(std::process::id() % 10_000).unwrap();
    let ports = std::iter::repeat_with(|| first + LAST.fetch_add(1, Ordering::SeqCst) % 10_000);
    let mut free = ports.filter_map(|port| TcpListener::bind(("127.0.0.1", port)).ok()?.local_addr().ok());
    free.next().unwrap()
}
