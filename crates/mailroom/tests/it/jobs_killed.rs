//! P4 and P5 with real processes: whatever is killed, stopped or restarted, every effect of every job is there once.

use std::collections::HashMap;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use domain::{PlanTier, SystemClock, TenantId};
use jobs::new_job;
use jobs::probe::Probe;
use store::failpoint::VARIABLE;
use store::sql::jobs::{JobFilter, ReplayOptions};
use store::{Location, Store};

use crate::crash::{SeededRandom, random, setting};
use crate::installation::{PROGRAM, TestInstallation, block_on};
use crate::processes::{RunningProcess, wait_until};
use crate::servers::Postgres;

/// Probes that are enqueued before each trouble, with a child each: enough that it happens in the middle of them.
const PROBES: u64 = 99;

const TENANTS: u64 = 3;

const LEASE: Duration = Duration::from_secs(1);

/// With `make chaos` there are many more, and so thousands of probes.
const TROUBLES: u64 = 6;

pub fn open(mailroom: &TestInstallation) -> Store {
    let location = match mailroom.url() {
        None => Location::Sqlite { path: mailroom.data_dir().join("mailroom.db"), connections: 2 },
        Some(url) => Location::Postgres { url: url.to_owned(), connections: 2 },
    };
    Store::open(&location, Arc::new(SystemClock)).unwrap()
}

pub fn worker(mailroom: &TestInstallation, failpoints: &str) -> Command {
    let mut command = mailroom.command(PROGRAM, &["serve", "--roles", "worker"]);
    command
        .env("MAILROOM_SERVER__LISTEN", "127.0.0.1:0")
        .env("MAILROOM_JOBS__LEASE", format!("{}s", LEASE.as_secs()))
        .env("MAILROOM_JOBS__POLL", "1s")
        .env("MAILROOM_JOBS__CONCURRENCY", "8")
        .env("MAILROOM_LOG__LEVEL", "off")
        .env(VARIABLE, failpoints);
    command
}

pub async fn enqueue(store: &Store, tenant: TenantId, probes: impl IntoIterator<Item = Probe>) {
    let mut unit = store.tenant(tenant).write();
    unit.enqueue(probes.into_iter().map(|probe| new_job(&probe, &SystemClock, None).unwrap()).collect());
    unit.commit().await.unwrap();
    store.notify_other_processes().await.unwrap();
}

/// The highest token of each job that was seen; a token must never fall.
#[derive(Default)]
struct HighestTokens(HashMap<String, i64>);

impl HighestTokens {
    fn look(&mut self, mailroom: &TestInstallation) {
        let sql = "select cast(id as text) || ' ' || cast(token as text) from jobs
                   union all select cast(id as text) || ' ' || cast(token as text) from finished_jobs";
        for line in mailroom.select(sql) {
            let (id, token) = line.split_once(' ').unwrap();
            let token: i64 = token.parse().unwrap();
            let seen = self.0.entry(id.to_owned()).or_default();
            assert!(*seen <= token, "the token of {id} fell from {seen} to {token}");
            *seen = token;
        }
    }
}

pub fn number(mailroom: &TestInstallation, sql: &str) -> u64 {
    mailroom.select(&format!("select cast(({sql}) as text)"))[0].parse().unwrap()
}

pub fn effects(mailroom: &TestInstallation) -> u64 {
    number(mailroom, "select count(*) from probe_effects")
}

fn live(mailroom: &TestInstallation) -> u64 {
    number(mailroom, "select count(*) from jobs")
}

/// Returns probes of which some fail once; all take a moment and have a child.
fn probes(random: &mut SeededRandom, count: u64) -> Vec<Probe> {
    (0..count)
        .map(|_| Probe {
            children: 1,
            fail: u32::from(random.below(20) == 0),
            sleep_ms: u32::try_from(random.below(60)).unwrap(),
            then: None,
        })
        .collect()
}

/// Enqueues work and makes trouble by turns, until both are over.
fn storm(mailroom: &TestInstallation, workers: usize, server: Option<&Postgres>) {
    let mut random = random();
    let store = open(mailroom);
    let tenants = block_on(async {
        store.migrate().await.unwrap();
        let mut tenants = Vec::new();
        for n in 0..TENANTS {
            let made = store.system().create_tenant(&format!("tenant {n}"), PlanTier::Standard).await;
            tenants.push(made.unwrap().unwrap().id);
        }
        tenants
    });
    let mut running: Vec<RunningProcess> =
        (0..workers).map(|_| RunningProcess::start(&mut worker(mailroom, ""))).collect();
    let (mut tokens, mut expected, mut interrupted) = (HighestTokens::default(), 0, 0);
    let troubles = setting("MAILROOM_TEST_CHAOS_ROUNDS", TROUBLES);
    for _ in 0..troubles {
        for tenant in &tenants {
            block_on(enqueue(&store, *tenant, probes(&mut random, PROBES / TENANTS)));
        }
        // Somewhere among these, when those before are done.
        let next = expected + random.below(2 * PROBES);
        expected += 2 * PROBES;
        // One that is parked by mistake has no effect yet, and no child.
        wait_until("work goes on", || effects(mailroom) >= next || live(mailroom) == 0);
        tokens.look(mailroom);
        interrupted += u64::from(effects(mailroom) < expected);
        inject_random_fault(&mut random, mailroom, &mut running, server);
    }
    wait_until("everything is done", || live(mailroom) == 0);
    assert_no_doubles(mailroom);
    replay_the_blamed(mailroom, &store, troubles);
    tokens.look(mailroom);
    let again = number(mailroom, "select count(*) from finished_jobs where token > attempt + 1");
    print_line(&format!(
        "{expected} jobs; {interrupted} of {troubles} troubles came in the middle; {again} were begun again"
    ));
    assert_exactly_once(mailroom, &store, expected);
    assert!(again > 0, "nothing was interrupted");
}

fn inject_random_fault(
    random: &mut SeededRandom,
    mailroom: &TestInstallation,
    running: &mut Vec<RunningProcess>,
    server: Option<&Postgres>,
) {
    let n = usize::try_from(random.below(running.len() as u64)).unwrap();
    match (random.below(3), server) {
        (0, Some(server)) => server.restart(),
        (1, _) if running.len() > 1 => {
            running[n].pause();
            // Long enough for the others to take it for dead.
            let paused = Instant::now();
            wait_until("the lease runs out", || paused.elapsed() > LEASE.mul_f32(1.5));
            running[n].resume();
        }
        _ => {
            running.remove(n).kill();
            running.push(RunningProcess::start(&mut worker(mailroom, "")));
        }
    }
}

/// Replays parked jobs: a job that runs at several crashes is taken for their cause. Among so many troubles that happens
/// to one or another; it is parked, not lost.
fn replay_the_blamed(mailroom: &TestInstallation, store: &Store, troubles: u64) {
    let parked = mailroom.select(
        "select coalesce(error_class, state) || ' after ' || cast(abandoned as text) || ' deaths' from finished_jobs
         where state <> 'done'",
    );
    assert!(parked.iter().all(|why| why.starts_with("poison after")), "{parked:?}");
    assert!(parked.len() as u64 * 10 <= troubles.max(10), "{troubles} troubles parked {parked:?}");
    if !parked.is_empty() {
        print_line(&format!("replayed: {parked:?}"));
        let replayed = block_on(store.system().replay_dead(&JobFilter::default(), &ReplayOptions::default())).unwrap();
        assert_eq!(replayed, parked.len() as u64);
        wait_until("they are done as well", || live(mailroom) == 0);
    }
}

#[expect(clippy::print_stdout, reason = "for who runs it")]
fn print_line(text: &str) {
    println!("{text}");
}

fn assert_no_doubles(mailroom: &TestInstallation) {
    let doubles = "select cast(job_id as text) from probe_effects group by job_id having count(*) > 1";
    assert_eq!(mailroom.select(doubles), [""; 0], "an effect is there twice");
}

fn assert_exactly_once(mailroom: &TestInstallation, store: &Store, expected: u64) {
    assert_no_doubles(mailroom);
    assert_eq!(
        mailroom.select("select state || ' ' || cast(id as text) from finished_jobs where state <> 'done'"),
        [""; 0]
    );
    assert_eq!(number(mailroom, "select count(*) from finished_jobs"), expected);
    assert_eq!(effects(mailroom), expected);
    // The effect was written by the worker that completed the job.
    let by_another = "select cast(e.job_id as text) from probe_effects e join finished_jobs f on f.id = e.job_id
                      where f.token <> e.token";
    assert_eq!(mailroom.select(by_another), [""; 0]);
    assert_eq!(block_on(store.system().count_strays()).unwrap().total(), 0);
}

#[test]
fn killed_workers_do_every_job_once_on_postgresql() {
    let server = Postgres::start();
    storm(&TestInstallation::on_server(server.url()), 3, Some(&server));
}

#[test]
fn killed_worker_does_every_job_once_on_sqlite() {
    storm(&TestInstallation::sqlite(), 1, None);
}

/// Stops a worker right before it commits, so that another one takes its job, and then lets it go on. `then` checks its
/// effect once it has tried.
fn commit_late(guard: &str, then: impl Fn(&TestInstallation)) {
    let mailroom = TestInstallation::postgres();
    let store = open(&mailroom);
    let tenant = block_on(store.system().create_tenant("acme", PlanTier::Standard)).unwrap().unwrap();
    let trace = mailroom.path("trace");
    let failpoints = format!("before:commit_job=stop off=own_stop trace={} {guard}", trace.display());
    let late = RunningProcess::start(&mut worker(&mailroom, &failpoints));
    block_on(enqueue(&store, tenant.id, [Probe::default()]));
    wait_until("it is about to commit", || late.is_stopped());
    let _other = RunningProcess::start(&mut worker(&mailroom, ""));
    wait_until("another has done it", || effects(&mailroom) == 1);

    late.resume();
    wait_until("it has tried to commit", || {
        std::fs::read_to_string(&trace).unwrap_or_default().contains("after:commit_job")
    });
    then(&mailroom);
}

#[test]
fn worker_that_lost_its_job_changes_nothing() {
    commit_late("", |mailroom| assert_eq!(effects(mailroom), 1));
}

#[test]
fn without_the_token_a_late_worker_repeats_a_job() {
    // Its first try may meet a connection that the server closed meanwhile.
    commit_late("off=job_token", |mailroom| wait_until("it is there twice", || effects(mailroom) == 2));
}

fn is_parked(mailroom: &TestInstallation) -> bool {
    number(mailroom, "select count(*) from finished_jobs where error_class = 'poison'") == 1
}

#[test]
fn job_that_crashes_three_processes_is_parked() {
    let mailroom = TestInstallation::postgres();
    let store = open(&mailroom);
    let tenant = block_on(store.system().create_tenant("acme", PlanTier::Standard)).unwrap().unwrap();
    let poison = Probe { then: Some(jobs::probe::ProbeFault::Abort), sleep_ms: 30, ..Probe::default() };
    let mates = (0..20).map(|_| Probe { sleep_ms: 60, ..Probe::default() });
    block_on(enqueue(&store, tenant.id, std::iter::once(poison).chain(mates)));

    let mut deaths = 0;
    let mut running = RunningProcess::start(&mut worker(&mailroom, ""));
    loop {
        wait_until("the process dies or the job is parked", || running.has_ended() || is_parked(&mailroom));
        if !running.has_ended() {
            break;
        }
        deaths += 1;
        running = RunningProcess::start(&mut worker(&mailroom, ""));
    }

    assert_eq!(deaths, 3);
    // The process that parked it goes on: to kill that one would be one more crash.
    wait_until("its mates are done", || live(&mailroom) == 0);
    assert_eq!(effects(&mailroom), 20);
    assert_eq!(number(&mailroom, "select count(*) from finished_jobs where state = 'done' and abandoned > 0"), 0);
}

#[test]
fn stopped_service_finishes_its_running_jobs() {
    let mailroom = TestInstallation::postgres();
    let store = open(&mailroom);
    let tenant = block_on(store.system().create_tenant("acme", PlanTier::Standard)).unwrap().unwrap();
    let slow = (0..40).map(|_| Probe { sleep_ms: 400, ..Probe::default() });
    block_on(enqueue(&store, tenant.id, slow));
    let running = RunningProcess::start(&mut worker(&mailroom, ""));
    wait_until("some are done", || effects(&mailroom) > 0);

    running.terminate();
    let done = running.finish();

    assert_eq!(done.code, Some(0), "{done}");
    assert_eq!(number(&mailroom, "select count(*) from jobs where state <> 'ready'"), 0);
    assert_eq!(number(&mailroom, "select count(*) from jobs where attempt + abandoned + suspected > 0"), 0);
    let (left, effects) = (number(&mailroom, "select count(*) from jobs"), effects(&mailroom));
    assert_eq!(left + effects, 40);
    assert!(left > 0, "there was nothing to give back");
}
