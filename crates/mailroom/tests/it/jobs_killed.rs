//! P4 and P5 with real processes: whatever is killed, stopped or restarted, every effect of every job is there once.

use std::collections::HashMap;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use domain::{PlanTier, SystemClock, TenantId};
use jobs::new_job;
use jobs::probe::Probe;
use store::failpoint::VARIABLE;
use store::sql::jobs::{JobFilter, Replay};
use store::{Location, Store};

use crate::crash::{Random, random, setting};
use crate::place::{PROGRAM, Place, block_on};
use crate::processes::{Running, wait_until};
use crate::servers::Postgres;

/// Before each trouble so many come, with a child each: enough to be in the middle of when it happens.
const PROBES: u64 = 99;

const TENANTS: u64 = 3;

const LEASE: Duration = Duration::from_secs(1);

/// With `make chaos` there are many more, and so thousands of probes.
const TROUBLES: u64 = 6;

pub fn open(place: &Place) -> Store {
    let location = match place.url() {
        None => Location::Sqlite { path: place.data_dir().join("mailroom.db"), connections: 2 },
        Some(url) => Location::Postgres { url: url.to_owned(), connections: 2 },
    };
    Store::open(&location, Arc::new(SystemClock)).unwrap()
}

pub fn worker(place: &Place, failpoints: &str) -> Command {
    let mut command = place.command(PROGRAM, &["serve", "--roles", "worker"]);
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
    store.tell_of_jobs().await.unwrap();
}

/// What is known of each job's token, which must never fall.
#[derive(Default)]
struct Tokens(HashMap<String, i64>);

impl Tokens {
    fn look(&mut self, place: &Place) {
        let sql = "select cast(id as text) || ' ' || cast(token as text) from jobs
                   union all select cast(id as text) || ' ' || cast(token as text) from finished_jobs";
        for line in place.select(sql) {
            let (id, token) = line.split_once(' ').unwrap();
            let token: i64 = token.parse().unwrap();
            let seen = self.0.entry(id.to_owned()).or_default();
            assert!(*seen <= token, "the token of {id} fell from {seen} to {token}");
            *seen = token;
        }
    }
}

pub fn number(place: &Place, sql: &str) -> u64 {
    place.select(&format!("select cast(({sql}) as text)"))[0].parse().unwrap()
}

pub fn effects(place: &Place) -> u64 {
    number(place, "select count(*) from probe_effects")
}

fn live(place: &Place) -> u64 {
    number(place, "select count(*) from jobs")
}

/// Some fail once, all take a moment and have a child.
fn probes(random: &mut Random, count: u64) -> Vec<Probe> {
    let mut probe = || Probe {
        children: 1,
        fail: u32::from(random.below(20) == 0),
        sleep_ms: u32::try_from(random.below(60)).unwrap(),
        then: None,
    };
    (0..count).map(|_| probe()).collect()
}

/// Work keeps coming, and so does trouble, until both are over.
fn storm(place: &Place, workers: usize, server: Option<&Postgres>) {
    let mut random = random();
    let store = open(place);
    let tenants = block_on(async {
        store.migrate().await.unwrap();
        let mut tenants = Vec::new();
        for n in 0..TENANTS {
            let made = store.system().create_tenant(&format!("tenant {n}"), PlanTier::Standard).await;
            tenants.push(made.unwrap().unwrap().id);
        }
        tenants
    });
    let mut running: Vec<Running> = (0..workers).map(|_| Running::start(&mut worker(place, ""))).collect();
    let (mut tokens, mut expected, mut interrupted) = (Tokens::default(), 0, 0);
    let troubles = setting("MAILROOM_TEST_CHAOS_ROUNDS", TROUBLES);
    for _ in 0..troubles {
        for tenant in &tenants {
            block_on(enqueue(&store, *tenant, probes(&mut random, PROBES / TENANTS)));
        }
        // Somewhere among these, when those before are done.
        let next = expected + random.below(2 * PROBES);
        expected += 2 * PROBES;
        // One that is parked by mistake has no effect yet, and no child.
        wait_until("work goes on", || effects(place) >= next || live(place) == 0);
        tokens.look(place);
        interrupted += u64::from(effects(place) < expected);
        make_trouble(&mut random, place, &mut running, server);
    }
    wait_until("everything is done", || live(place) == 0);
    assert_no_doubles(place);
    replay_the_blamed(place, &store, troubles);
    tokens.look(place);
    let again = number(place, "select count(*) from finished_jobs where token > attempt + 1");
    tell(&format!(
        "{expected} jobs; {interrupted} of {troubles} troubles came in the middle; {again} were begun again"
    ));
    assert_exactly_once(place, &store, expected);
    assert!(again > 0, "nothing was interrupted");
}

fn make_trouble(random: &mut Random, place: &Place, running: &mut Vec<Running>, server: Option<&Postgres>) {
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
            running.push(Running::start(&mut worker(place, "")));
        }
    }
}

/// Who is around whenever a process dies is taken for the cause. Among so many troubles that happens to one or another;
/// it is parked, not lost, and done when somebody wants it.
fn replay_the_blamed(place: &Place, store: &Store, troubles: u64) {
    let parked = place.select(
        "select coalesce(error_class, state) || ' after ' || cast(abandoned as text) || ' deaths' from finished_jobs
         where state <> 'done'",
    );
    assert!(parked.iter().all(|why| why.starts_with("poison after")), "{parked:?}");
    assert!(parked.len() as u64 * 10 <= troubles.max(10), "{troubles} troubles parked {parked:?}");
    if !parked.is_empty() {
        tell(&format!("replayed: {parked:?}"));
        let replayed = block_on(store.system().replay_dead(&JobFilter::default(), &Replay::default())).unwrap();
        assert_eq!(replayed, parked.len() as u64);
        wait_until("they are done as well", || live(place) == 0);
    }
}

#[expect(clippy::print_stdout, reason = "for who runs it")]
fn tell(text: &str) {
    println!("{text}");
}

fn assert_no_doubles(place: &Place) {
    let doubles = "select cast(job_id as text) from probe_effects group by job_id having count(*) > 1";
    assert_eq!(place.select(doubles), [""; 0], "an effect is there twice");
}

fn assert_exactly_once(place: &Place, store: &Store, expected: u64) {
    assert_no_doubles(place);
    assert_eq!(
        place.select("select state || ' ' || cast(id as text) from finished_jobs where state <> 'done'"),
        [""; 0]
    );
    assert_eq!(number(place, "select count(*) from finished_jobs"), expected);
    assert_eq!(effects(place), expected);
    // The effect was written by who completed the job.
    let by_another = "select cast(e.job_id as text) from probe_effects e join finished_jobs f on f.id = e.job_id
                      where f.token <> e.token";
    assert_eq!(place.select(by_another), [""; 0]);
    assert_eq!(block_on(store.system().count_strays()).unwrap().total(), 0);
}

#[test]
fn killed_stopped_and_restarted_workers_do_everything_once_on_postgresql() {
    let server = Postgres::start();
    storm(&Place::on_server(server.url()), 3, Some(&server));
}

#[test]
fn a_killed_worker_does_everything_once_on_sqlite() {
    storm(&Place::sqlite(), 1, None);
}

/// A worker is stopped right before it commits, loses its job to another one, and goes on as if nothing had happened.
/// `then` looks at what became of its effect once it has tried.
fn commit_late(guard: &str, then: impl Fn(&Place)) {
    let place = Place::postgres();
    let store = open(&place);
    let tenant = block_on(store.system().create_tenant("acme", PlanTier::Standard)).unwrap().unwrap();
    let trace = place.path("trace");
    let failpoints = format!("before:commit_job=stop off=own_stop trace={} {guard}", trace.display());
    let late = Running::start(&mut worker(&place, &failpoints));
    block_on(enqueue(&store, tenant.id, [Probe::default()]));
    wait_until("it is about to commit", || late.is_stopped());
    let _other = Running::start(&mut worker(&place, ""));
    wait_until("another has done it", || effects(&place) == 1);

    late.resume();
    let has_tried = || std::fs::read_to_string(&trace).unwrap_or_default().contains("after:commit_job");
    wait_until("it has tried to commit", has_tried);
    then(&place);
}

#[test]
fn a_worker_that_lost_its_job_changes_nothing() {
    commit_late("", |place| assert_eq!(effects(place), 1));
}

#[test]
fn without_the_token_a_late_worker_does_it_again() {
    // Its first try may meet a connection that the server closed meanwhile.
    commit_late("off=job_token", |place| wait_until("it is there twice", || effects(place) == 2));
}

#[test]
fn a_job_that_takes_its_process_down_three_times_is_parked_and_the_others_are_done() {
    let place = Place::postgres();
    let store = open(&place);
    let tenant = block_on(store.system().create_tenant("acme", PlanTier::Standard)).unwrap().unwrap();
    let poison = Probe { then: Some(jobs::probe::Trouble::Abort), sleep_ms: 30, ..Probe::default() };
    let mates = (0..20).map(|_| Probe { sleep_ms: 60, ..Probe::default() });
    block_on(enqueue(&store, tenant.id, std::iter::once(poison).chain(mates)));

    let mut deaths = 0;
    let is_parked = || number(&place, "select count(*) from finished_jobs where error_class = 'poison'") == 1;
    let mut running = Running::start(&mut worker(&place, ""));
    loop {
        wait_until("the process dies or the job is parked", || running.has_ended() || is_parked());
        if !running.has_ended() {
            break;
        }
        deaths += 1;
        running = Running::start(&mut worker(&place, ""));
    }

    assert_eq!(deaths, 3);
    // Whoever parked it goes on: to kill that one would be a death to blame somebody for.
    wait_until("its mates are done", || live(&place) == 0);
    assert_eq!(effects(&place), 20);
    assert_eq!(number(&place, "select count(*) from finished_jobs where state = 'done' and abandoned > 0"), 0);
}

#[test]
fn a_stopped_service_finishes_what_runs_and_gives_back_what_does_not() {
    let place = Place::postgres();
    let store = open(&place);
    let tenant = block_on(store.system().create_tenant("acme", PlanTier::Standard)).unwrap().unwrap();
    let slow = (0..40).map(|_| Probe { sleep_ms: 400, ..Probe::default() });
    block_on(enqueue(&store, tenant.id, slow));
    let running = Running::start(&mut worker(&place, ""));
    wait_until("some are done", || effects(&place) > 0);

    running.terminate();
    let done = running.finish();

    assert_eq!(done.code, Some(0), "{done}");
    assert_eq!(number(&place, "select count(*) from jobs where state <> 'ready'"), 0);
    assert_eq!(number(&place, "select count(*) from jobs where attempt + abandoned + suspected > 0"), 0);
    let (left, effects) = (number(&place, "select count(*) from jobs"), effects(&place));
    assert_eq!(left + effects, 40);
    assert!(left > 0, "there was nothing to give back");
}
