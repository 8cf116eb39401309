//! Redis decides who may try, and nothing else: whatever becomes of it, the database's token decides.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use domain::{Provider, TenantId};
use engine::sync::redis_gate::RedisGate;
use jobs::SystemRandom;
use jobs::leader::{Election, Leadership, lead};
use outbound::Redis;
use outbound::budget::{Budget, BudgetOwner, BudgetWait, Charge, Measure};
use outbound::{Allowance, CallBudgets, CallSettings, Gateway};
use store::Dialect;
use store::testing::{TestDatabase, WAIT_DEADLINE, on_each_database, wait_until};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::calls::target;

/// Long enough for a machine that stops to think for a while.
const LEASE: Duration = Duration::from_secs(4);

const MINUTE: Duration = Duration::from_secs(60);

fn url() -> String {
    let variable = "MAILROOM_TEST_REDIS_URL";
    #[expect(clippy::disallowed_methods, reason = "tests are told where their servers are by `make test`")]
    std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set: run the tests with `make test`"))
}

/// With time to answer on a busy machine: an answer that does not come in time is a yes.
fn connect(url: &str, prefix: &str) -> Redis {
    Redis::connect(url, prefix).unwrap().with_timeout(WAIT_DEADLINE)
}

/// A prefix that no other test has.
fn fresh() -> String {
    format!("test-{}", TenantId::new(&domain::SystemClock))
}

/// A Redis that the test may kill.
struct Server {
    folder: tempfile::TempDir,
    url: String,
}

impl Server {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = Self::script(&["start", folder.path().join("redis").to_str().unwrap()]);
        Self { folder, url }
    }

    /// At the same address, with nothing in it.
    fn start_again(&self) {
        let port = self.url.rsplit(':').next().unwrap();
        Self::script(&["start", self.path().to_str().unwrap(), port]);
    }

    fn signal(&self, signal: &str) {
        let pid = std::fs::read_to_string(self.path().join("pid")).unwrap();
        assert!(Command::new("kill").args([signal, pid.trim()]).status().unwrap().success());
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("redis")
    }

    fn script(args: &[&str]) -> String {
        let script = Path::new("../../scripts/services/redis.sh");
        let output = Command::new(script).args(args).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        Self::script(&["stop", self.path().to_str().unwrap()]);
    }
}

async fn flush(url: &str) {
    let client = redis::Client::open(url).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    redis::cmd("flushall").query_async::<()>(&mut connection).await.unwrap();
}

/// While it counts as away, it is asked only now and then.
async fn connected(redis: &Redis) {
    wait_until("Redis answers", async || redis.take(&[], Duration::ZERO).await.is_some()).await;
}

#[tokio::test]
async fn released_gate_admits_another() {
    let redis = connect(&url(), &fresh());
    assert!(redis.reserve_lease("a", "first", MINUTE).await);
    assert!(redis.reserve_lease("a", "first", MINUTE).await);
    assert!(!redis.reserve_lease("a", "second", MINUTE).await);
    assert!(redis.reserve_lease("b", "second", MINUTE).await);
    assert!(connect(&url(), &fresh()).reserve_lease("a", "second", MINUTE).await);

    redis.release_lease("a", "second").await; // not its own
    assert!(!redis.reserve_lease("a", "second", MINUTE).await);
    redis.release_lease("a", "first").await;
    assert!(redis.reserve_lease("a", "second", Duration::from_millis(100)).await);

    wait_until("a turn runs out", async || redis.reserve_lease("a", "first", MINUTE).await).await;
}

#[tokio::test]
async fn gate_is_open_while_redis_is_away() {
    let server = Server::start();
    let redis = connect(&server.url, "mailroom");
    assert!(redis.reserve_lease("a", "first", MINUTE).await);
    assert!(!redis.reserve_lease("a", "second", MINUTE).await);

    server.signal("-STOP");
    assert!(redis.clone().with_timeout(Duration::from_millis(50)).reserve_lease("a", "second", MINUTE).await);
    server.signal("-CONT");
    connected(&redis).await;
    assert!(!redis.reserve_lease("a", "third", MINUTE).await);

    server.signal("-KILL");
    assert!(redis.reserve_lease("a", "fourth", MINUTE).await);
    assert!(redis.reserve_lease("a", "fifth", MINUTE).await);
    server.start_again();
    connected(&redis).await;
    assert!(redis.reserve_lease("a", "fourth", MINUTE).await);
    assert!(!redis.reserve_lease("a", "fifth", MINUTE).await);
}

#[tokio::test]
async fn redis_password_is_not_revealed() {
    let redis = Redis::connect("redis://:hunter2@127.0.0.1:1", "mailroom").unwrap();
    assert!(!format!("{redis:?}").contains("hunter2"));
    assert!(redis.reserve_lease("a", "first", MINUTE).await);
    assert!(Redis::connect("http://127.0.0.1:1", "mailroom").is_err());
}

fn charge(amount: f64, budget: Budget) -> Charge {
    Charge { owner: BudgetOwner::App(Provider::Outlook), measure: Measure::Calls, budget, amount }
}

#[tokio::test]
async fn budgets_are_shared() {
    let prefix = fresh();
    let (first, second) = (connect(&url(), &prefix), connect(&url(), &prefix));
    // One in a minute after the first five: what passes meanwhile changes nothing.
    let budget = Budget { per_second: 1.0 / 60.0, burst: 5.0, span: None };
    let mut given = 0;
    for _ in 0..10 {
        for redis in [&first, &second] {
            let tenant = charge(1.0, Budget::per_second(1e6));
            let other = Charge { owner: BudgetOwner::Tenant(TenantId(uuid::Uuid::nil()), Provider::Outlook), ..tenant };
            match redis.take(&[charge(1.0, budget), other], Duration::ZERO).await.unwrap() {
                BudgetWait::After(wait) => {
                    assert_eq!(wait, Duration::ZERO);
                    given += 1;
                }
                BudgetWait::TooLong(wait) => assert!(wait > Duration::ZERO && wait <= MINUTE, "{wait:?}"),
            }
        }
    }
    assert_eq!(given, 5);

    // A place in the future, and a debt.
    let BudgetWait::After(wait) = first.take(&[charge(1.0, budget)], MINUTE).await.unwrap() else { panic!("a place") };
    assert!(wait > MINUTE / 2 && wait <= MINUTE, "{wait:?}");
    first.take(&[charge(100.0, budget)], MINUTE * 60 * 24).await.unwrap();
    let BudgetWait::TooLong(wait) = second.take(&[charge(0.0, budget)], MINUTE).await.unwrap() else {
        panic!("a debt")
    };
    assert!(wait > MINUTE * 99 && wait <= MINUTE * 101, "{wait:?}");
}

#[tokio::test]
async fn sliding_window_is_shared() {
    let prefix = fresh();
    let (first, second) = (connect(&url(), &prefix), connect(&url(), &prefix));
    let budget = Budget::per_ten_minutes(100.0);
    let (mut given, mut small) = (0, 0);
    for _ in 0..10 {
        for redis in [&first, &second] {
            match redis.take(&[charge(10.0, budget)], Duration::ZERO).await.unwrap() {
                BudgetWait::After(_) => given += 1,
                BudgetWait::TooLong(wait) => assert!(wait > MINUTE * 9 && wait <= MINUTE * 11, "{wait:?}"),
            }
        }
    }
    assert_eq!(given, 9, "whoever wants much leaves some");
    for redis in [&first, &second].repeat(10) {
        small += usize::from(matches!(redis.take(&[charge(1.0, budget)], MINUTE).await.unwrap(), BudgetWait::After(_)));
    }
    assert_eq!(small, 10);
    // A place in the future is taken as well.
    assert!(matches!(first.take(&[charge(60.0, budget)], MINUTE * 12).await.unwrap(), BudgetWait::After(_)));
    assert!(matches!(second.take(&[charge(60.0, budget)], MINUTE * 12).await.unwrap(), BudgetWait::TooLong(_)));
}

fn calls(redis: Redis) -> Gateway {
    let budget = Budget { per_second: 1.0 / 600.0, burst: 6.0, span: None };
    let pace =
        CallBudgets { app: Allowance { calls: Some(budget), bytes: None, units: None }, ..CallBudgets::default() };
    let settings = CallSettings { default_budgets: pace, max_wait: Duration::ZERO, ..CallSettings::default() };
    let calls = Gateway::new(settings, Arc::new(SystemRandom), Some(redis));
    calls.set_instances(2);
    calls
}

/// How many of ten are made.
async fn make_ten(calls: &Gateway) -> usize {
    let mut made = 0;
    for _ in 0..10 {
        let call = calls.make(&target(), Box::pin(async { Ok(()) })).await;
        made += usize::from(call.is_ok());
    }
    made
}

#[tokio::test]
async fn processes_share_a_budget_through_redis() {
    let server = Server::start();
    let [first, second] = [(); 2].map(|()| calls(connect(&server.url, "mailroom")));
    assert_eq!(make_ten(&first).await, 6);
    assert_eq!(make_ten(&second).await, 0);

    server.signal("-KILL");
    assert_eq!(make_ten(&first).await, 3);
    assert_eq!(make_ten(&second).await, 3);
}

/// Leads until told to stop, and says so each time it begins, and whether somebody else did at the same time.
struct Candidate {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

#[derive(Debug, Clone)]
struct Stage {
    db: Arc<TestDatabase>,
    url: String,
    begun: mpsc::UnboundedSender<(usize, u64)>,
    is_led: Arc<AtomicBool>,
    were_two: Arc<AtomicBool>,
}

/// Its time as the leader, by its own clock.
struct Term(Stage);

impl Term {
    fn begin(stage: &Stage) -> Self {
        if stage.is_led.swap(true, Ordering::SeqCst) {
            stage.were_two.store(true, Ordering::SeqCst);
        }
        Self(stage.clone())
    }
}

impl Drop for Term {
    fn drop(&mut self) {
        self.0.is_led.store(false, Ordering::SeqCst);
    }
}

impl Candidate {
    fn start(n: usize, stage: &Stage) -> Self {
        let (stop, mut stopped) = watch::channel(false);
        let stage = stage.clone();
        let task = tokio::spawn(async move {
            let gate = Arc::new(RedisGate(Redis::connect(&stage.url, "mailroom").unwrap()));
            let election = Election { name: "scheduler".into(), holder: format!("holder-{n}"), lease: LEASE, gate };
            let stopped = async move { drop(stopped.wait_for(|stop| *stop).await) };
            let work = |leadership: Leadership| {
                let term = Term::begin(&stage);
                stage.begun.send((n, leadership.token)).unwrap();
                let db = stage.db.clone();
                async move {
                    let _term = term;
                    loop {
                        act(&db, leadership.token).await;
                        sleep(Duration::from_millis(20)).await;
                    }
                }
            };
            lead(&stage.db.store, &election, stopped, work).await;
        });
        Self { stop, task }
    }

    async fn stop(self) {
        self.stop.send_replace(true);
        self.task.await.unwrap();
    }
}

/// Leaves a trace if the token is still the one.
async fn act(db: &TestDatabase, token: u64) {
    let lock = match db.store.dialect() {
        Dialect::Postgres => "for share",
        Dialect::Sqlite => "",
    };
    let lease = format!("select token from leases where name = 'scheduler' and token = {token} {lock}");
    db.run(&format!("insert into acts (token) {lease}")).await;
}

async fn make_acts(db: &TestDatabase) {
    let counted = match db.store.dialect() {
        Dialect::Postgres => "bigint generated always as identity primary key",
        Dialect::Sqlite => "integer primary key autoincrement",
    };
    db.run(&format!("create table acts (n {counted}, token bigint not null)")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_leader_survives_the_loss_of_redis() {
    on_each_database(|db| async move {
        make_acts(&db).await;
        let db = Arc::new(db);
        let server = Server::start();
        let (begun, mut beginnings) = mpsc::unbounded_channel();
        let (is_led, were_two) = (Arc::default(), Arc::default());
        let stage = Stage { db: db.clone(), url: server.url.clone(), begun, is_led, were_two };
        let mut candidates: Vec<Option<Candidate>> = (0..3).map(|n| Some(Candidate::start(n, &stage))).collect();
        let mut tokens: Vec<u64> = Vec::new();
        for round in 0..6 {
            let (leader, token) = timeout(WAIT_DEADLINE, beginnings.recv()).await.expect("a leader is found").unwrap();
            assert!(tokens.iter().all(|earlier| *earlier < token), "tokens only rise");
            tokens.push(token);
            match round {
                1 => flush(&server.url).await,
                2 => server.signal("-KILL"),
                4 => server.start_again(),
                _ => {}
            }
            // Others come and ask meanwhile.
            sleep(LEASE / 2).await;
            let old = candidates[leader].take().unwrap();
            match round % 2 {
                0 => old.stop().await,
                _ => old.task.abort(), // dies: neither the lease nor the turn is given back
            }
            candidates[leader] = Some(Candidate::start(leader, &stage));
        }
        assert!(!stage.were_two.load(Ordering::SeqCst), "two led at once");
        for candidate in candidates.into_iter().flatten() {
            candidate.stop().await;
        }
        let acts = db.rows("select token from acts order by n").await;
        let mut acts: Vec<u64> = acts.iter().map(|row| row.get(0).unwrap()).collect();
        assert!(acts.is_sorted(), "somebody acted after its successor");
        acts.dedup();
        assert!(acts.starts_with(&tokens), "each leader could act: {acts:?}, {tokens:?}");
    })
    .await;
}
