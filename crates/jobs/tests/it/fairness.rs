//! Fairness: a tenant's flood starves no other tenant, even while others are paused or at their limit.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use domain::{JobId, Lane, PlanTier, SystemClock, TenantId, WorkerId};
use jobs::fair;
use store::sql::jobs::{AfterFailure, AttemptFailure, AttemptOutcome, ClaimedJob, LimitChange, NewJob, StartTime};
use store::testing::{TestDatabase, on_each_database};
use store::{Dialect, Store};

/// `make chaos` uses a larger size, which takes minutes in a debug build.
const FLOOD: u64 = 20_000;

const SMALL_TENANTS: usize = 100;
const JOBS_EACH: usize = 10;

/// As many as an idle process claims at once.
const SLOTS: u64 = 50;

#[expect(clippy::disallowed_methods, reason = "set by `make chaos`")]
fn flood() -> u64 {
    std::env::var("MAILROOM_TEST_FLOOD").map_or(FLOOD, |text| text.parse().unwrap())
}

/// Inserts many jobs at once.
async fn insert_jobs(db: &TestDatabase, tenant: TenantId, jobs: u64) {
    pour_kind(db, tenant, "a", jobs).await;
}

async fn pour_kind(db: &TestDatabase, tenant: TenantId, kind: &str, jobs: u64) {
    let columns = "insert into jobs (id, tenant_id, kind, lane, state, position, run_at, payload, created_at)";
    let sql = match db.store.dialect() {
        Dialect::Postgres => format!(
            "{columns} select gen_random_uuid(), '{tenant}', '{kind}', 2, 'ready', mailroom_micros() + n, mailroom_now(), '{{}}',
             mailroom_now() from generate_series(1, {jobs}) n"
        ),
        Dialect::Sqlite => format!(
            "{columns} with recursive n(n) as (select 1 union all select n + 1 from n where n < {jobs})
             select lower(printf('%s-%s-7%s-8%s-%s', hex(randomblob(4)), hex(randomblob(2)), substr(hex(randomblob(2)), 2),
                                 substr(hex(randomblob(2)), 2), hex(randomblob(6)))),
             '{tenant}', '{kind}', 2, 'ready', mailroom_micros() + n, mailroom_now(), '{{}}', mailroom_now() from n"
        ),
    };
    db.run(&sql).await;
}

fn job(when: StartTime) -> NewJob {
    NewJob {
        id: JobId::new(&SystemClock),
        kind: "a".into(),
        lane: Lane::Normal,
        payload: serde_json::json!({}),
        when,
        unique: None,
        order_key: None,
        after: Vec::new(),
        traceparent: None,
    }
}

/// Opens stores; on PostgreSQL each has connections of its own.
fn stores<const N: usize>(db: &TestDatabase) -> [Store; N] {
    std::array::from_fn(|_| match db.store.dialect() {
        Dialect::Postgres => db.second_store(),
        Dialect::Sqlite => db.store.clone(),
    })
}

async fn register(store: &Store) -> WorkerId {
    store.system().register_worker("test", &[], Duration::from_secs(3600)).await.unwrap()
}

/// Claims as a worker does.
async fn claim(store: &Store, worker: WorkerId, slots: u64) -> Vec<ClaimedJob> {
    claim_kinds(store, worker, &["a".to_owned()], slots).await
}

async fn claim_kinds(store: &Store, worker: WorkerId, kinds: &[String], slots: u64) -> Vec<ClaimedJob> {
    let system = store.system();
    system.count_arrivals().await.unwrap();
    let candidates = system.list_queue_candidates(kinds).await.unwrap();
    let shares = fair::plan_shares(&candidates, slots);
    if shares.is_empty() { Vec::new() } else { system.claim_jobs(worker, &shares).await.unwrap() }
}

/// Adds a paused tenant and one at its limit, both with a flood that arrived first.
async fn idle_floods(db: &TestDatabase, worker: WorkerId) {
    let [paused, saturated] = [(); 2].map(|()| TenantId::new(&SystemClock));
    insert_jobs(db, saturated, flood()).await;
    db.run(&format!("insert into job_tenants (tenant_id, most_running) values ('{saturated}', 1)")).await;
    assert_eq!(claim(&db.store, worker, 10).await.len(), 1);
    insert_jobs(db, paused, flood()).await;
    db.run(&format!("insert into job_tenants (tenant_id, is_paused) values ('{paused}', true)")).await;
}

/// Adds small tenants with ten jobs each, two of them delayed.
async fn small_tenants(db: &TestDatabase) -> Vec<TenantId> {
    let tenants: Vec<TenantId> = (0..SMALL_TENANTS).map(|_| TenantId::new(&SystemClock)).collect();
    for tenant in &tenants {
        let mut unit = db.store.system().write_for(*tenant);
        let delayed = (0..2).map(|_| job(StartTime::In(Duration::from_millis(1))));
        unit.enqueue(delayed.chain((2..JOBS_EACH).map(|_| job(StartTime::Now))).collect());
        unit.commit().await.unwrap();
    }
    tenants
}

#[tokio::test(flavor = "multi_thread")]
async fn small_tenants_finish_soon_despite_floods() {
    on_each_database(|db| async move {
        let big = TenantId::new(&SystemClock);
        idle_floods(&db, register(&db.store).await).await;
        insert_jobs(&db, big, flood()).await;
        let small = small_tenants(&db).await;
        // Every job once, and one of each tenant again; and the big one's share of that.
        let of_small = (SMALL_TENANTS * (JOBS_EACH + 1)) as u64;
        let ideal = of_small + (JOBS_EACH as u64 + 1);
        let (claims, left) = (AtomicU64::new(0), AtomicU64::new((SMALL_TENANTS * JOBS_EACH) as u64));
        let finished_at: Mutex<HashMap<TenantId, (usize, u64)>> = Mutex::default();
        let failed: Mutex<Vec<TenantId>> = Mutex::default();

        let claimer = async |store: Store| {
            let worker = register(&store).await;
            while left.load(Ordering::Relaxed) > 0 {
                store.system().promote_due_jobs().await.unwrap();
                let claimed = claim(&store, worker, SLOTS).await;
                let so_far = claims.fetch_add(claimed.len() as u64, Ordering::Relaxed) + claimed.len() as u64;
                assert!(so_far < 10 * ideal, "small tenants starve");
                let mut done = Vec::new();
                for job in claimed {
                    let fails = small.contains(&job.tenant) && {
                        let mut failed = failed.lock().unwrap();
                        let is_first = !failed.contains(&job.tenant);
                        failed.extend(is_first.then_some(job.tenant));
                        is_first
                    };
                    if fails {
                        fail(&store, &job).await;
                    } else {
                        done.push(job);
                    }
                }
                store.system().finish_done(&done, || JobId::new(&SystemClock)).await.unwrap();
                for job in done.iter().filter(|job| small.contains(&job.tenant)) {
                    let mut finished_at = finished_at.lock().unwrap();
                    let (jobs, at) = finished_at.entry(job.tenant).or_default();
                    (*jobs, *at) = (*jobs + 1, so_far);
                    left.fetch_sub(1, Ordering::Relaxed);
                }
            }
        };
        let [one, two, three] = stores(&db);
        tokio::join!(claimer(one), claimer(two), claimer(three));

        let finished_at = finished_at.into_inner().unwrap();
        let latest = finished_at.values().map(|(_, at)| *at).max().unwrap();
        println!("{:?}: the last small tenant was done after {latest} claims, ideally {ideal}", db.store.dialect());
        assert!(small.iter().all(|tenant| finished_at[tenant].0 == JOBS_EACH));
        assert!(latest * 2 <= ideal * 3, "the last small tenant was done after {latest} claims, ideally {ideal}");
    })
    .await;
}

async fn fail(store: &Store, job: &ClaimedJob) {
    let failure = AttemptFailure {
        outcome: AttemptOutcome::Failed,
        error_class: "x".into(),
        message: "x".into(),
        fingerprint: "x".into(),
    };
    let then = AfterFailure::RetryIn(Duration::ZERO);
    assert!(store.system().fail_job(job, &failure, then, JobId::new(&SystemClock)).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn vip_gets_four_times_a_standard_share() {
    on_each_database(|db| async move {
        let system = db.store.system();
        let vip = system.create_tenant("vip", PlanTier::Vip).await.unwrap().unwrap().id;
        let standard = system.create_tenant("standard", PlanTier::Standard).await.unwrap().unwrap().id;
        insert_jobs(&db, standard, flood()).await;
        insert_jobs(&db, vip, flood()).await;
        let taken: Mutex<HashMap<TenantId, u64>> = Mutex::default();

        let claimer = async |store: Store| {
            let worker = register(&store).await;
            while taken.lock().unwrap().values().sum::<u64>() < flood() / 4 {
                let claimed = claim(&store, worker, SLOTS).await;
                for job in &claimed {
                    *taken.lock().unwrap().entry(job.tenant).or_default() += 1;
                }
                store.system().finish_done(&claimed, || JobId::new(&SystemClock)).await.unwrap();
            }
        };
        let [one, two, three] = stores(&db);
        tokio::join!(claimer(one), claimer(two), claimer(three));

        let taken = taken.into_inner().unwrap();
        println!("{:?}: vip {}, standard {}", db.store.dialect(), taken[&vip], taken[&standard]);
        let (vip, standard) = (taken[&vip] * 10, taken[&standard] * 4);
        assert!((standard * 9..=standard * 11).contains(&vip), "{taken:?}");
    })
    .await;
}

/// Waiting jobs that may not run do not make the claims of others smaller.
#[tokio::test(flavor = "multi_thread")]
async fn claims_stay_full_beside_paused_and_limited_tenants() {
    on_each_database(|db| async move {
        let worker = register(&db.store).await;
        idle_floods(&db, worker).await;
        for _ in 0..20 {
            insert_jobs(&db, TenantId::new(&SystemClock), 200).await;
        }

        for _ in 0..40 {
            let claimed = claim(&db.store, worker, SLOTS).await;
            assert_eq!(claimed.len() as u64, SLOTS);
            db.store.system().finish_done(&claimed, || JobId::new(&SystemClock)).await.unwrap();
        }
    })
    .await;
}

fn share(taken: &HashMap<(TenantId, String), u64>, tenant: TenantId, kind: Option<&str>) -> u64 {
    let of_tenant = taken.iter().filter(|(key, _)| key.0 == tenant);
    of_tenant.filter(|(key, _)| kind.is_none_or(|kind| key.1 == kind)).map(|(_, jobs)| jobs).sum()
}

/// Returns whether two numbers are within a tenth of each other.
fn are_alike(one: u64, other: u64) -> bool {
    one * 10 >= other * 9 && other * 10 >= one * 9
}

/// Runs three claimers until `jobs` were claimed. Jobs of kind `b` run until their claimer has claimed twice more.
async fn take(db: &TestDatabase, kinds: &[String], jobs: u64) -> HashMap<(TenantId, String), u64> {
    let taken: Mutex<HashMap<(TenantId, String), u64>> = Mutex::default();
    let claimer = async |store: Store| {
        let worker = register(&store).await;
        let mut slow: VecDeque<Vec<ClaimedJob>> = VecDeque::new();
        while taken.lock().unwrap().values().sum::<u64>() < jobs {
            let claimed = claim_kinds(&store, worker, kinds, SLOTS).await;
            for job in &claimed {
                *taken.lock().unwrap().entry((job.tenant, job.kind.clone())).or_default() += 1;
            }
            let (later, now) = claimed.into_iter().partition(|job| job.kind == "b");
            slow.push_back(later);
            let ended = if slow.len() > 2 { slow.pop_front().unwrap_or_default() } else { Vec::new() };
            let ended: Vec<ClaimedJob> = ended.into_iter().chain(now).collect();
            store.system().finish_done(&ended, || JobId::new(&SystemClock)).await.unwrap();
        }
        for jobs in slow {
            store.system().finish_done(&jobs, || JobId::new(&SystemClock)).await.unwrap();
        }
    };
    let [one, two, three] = stores(db);
    tokio::join!(claimer(one), claimer(two), claimer(three));
    taken.into_inner().unwrap()
}

/// A limited kind uses its whole limit despite a flood of another kind; and that other kind goes on meanwhile, for the
/// tenant with the limited jobs as for those without.
#[tokio::test(flavor = "multi_thread")]
async fn limited_kind_neither_starves_nor_blocks() {
    const MOST: u64 = 4;
    on_each_database(|db| async move {
        let [both, only_a, only_b] = [(); 3].map(|()| TenantId::new(&SystemClock));
        db.store.system().limit_kind("b", LimitChange::AtMost(MOST)).await.unwrap();
        for (tenant, kind) in [(both, "b"), (only_b, "b"), (both, "a"), (only_a, "a")] {
            pour_kind(&db, tenant, kind, flood() / 2).await;
        }
        let kinds = ["a", "b"].map(str::to_owned);
        let over = AtomicBool::new(false);
        let watch = async {
            let mut most = 0;
            while !over.load(Ordering::Relaxed) {
                let rows = db.rows("select count(*) from jobs where state = 'running' and kind = 'b'").await;
                most = most.max(rows[0].get::<u64>(0).unwrap());
            }
            most
        };
        let work = async {
            let taken = take(&db, &kinds, flood() / 4).await;
            over.store(true, Ordering::Relaxed);
            taken
        };
        let (most, taken) = tokio::join!(watch, work);

        println!("{:?}: {taken:?}, at most {most} at once", db.store.dialect());
        assert_eq!(most, MOST, "as many at once as may be, and no more");
        // A claimer holds jobs for three of its claims, while the two others claim as often. Half of the possible
        // throughput suffices: the claimers are not in step.
        let limited = share(&taken, both, Some("b")) + share(&taken, only_b, None);
        assert!(limited * 9 * SLOTS >= flood() / 4 * MOST / 2, "the limited kind starves: {taken:?}");
        assert!(
            share(&taken, only_b, None) * 2 >= limited * 9 / 10,
            "the tenant with only limited jobs starves: {taken:?}"
        );
        assert!(are_alike(share(&taken, both, None), share(&taken, only_a, None)), "held up: {taken:?}");
    })
    .await;
}

/// Jobs of many kinds do not earn a larger share.
#[tokio::test(flavor = "multi_thread")]
async fn many_kinds_do_not_enlarge_a_share() {
    const KINDS: u64 = 20;
    on_each_database(|db| async move {
        let [hoarder, modest] = [(); 2].map(|()| TenantId::new(&SystemClock));
        let kinds: Vec<String> = (0..KINDS).map(|n| format!("k{n}")).chain(["a".to_owned()]).collect();
        for kind in &kinds {
            pour_kind(&db, hoarder, kind, flood() / KINDS).await;
        }
        insert_jobs(&db, modest, flood()).await;

        let taken = take(&db, &kinds, flood() / 4).await;

        let (of_hoarder, of_modest) = (share(&taken, hoarder, None), share(&taken, modest, None));
        println!("{:?}: hoarder {of_hoarder}, modest {of_modest}", db.store.dialect());
        assert!(are_alike(of_hoarder, of_modest), "{of_hoarder} and {of_modest}");
        // And none of its kinds is forgotten.
        let by_kind: Vec<u64> = kinds.iter().map(|kind| share(&taken, hoarder, Some(kind))).collect();
        let (least, most) = (by_kind.iter().min().unwrap(), by_kind.iter().max().unwrap());
        assert!(least * 2 >= *most, "{least} to {most} of a kind");
    })
    .await;
}
