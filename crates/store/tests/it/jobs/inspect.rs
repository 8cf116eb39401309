//! Looking at jobs, and how much waits.

use std::collections::BTreeSet;
use std::time::Duration;

use domain::{JobId, JobState, Lane, PlanTier, SystemClock, TenantId};
use store::sql::jobs::{BacklogLimits, BacklogVerdict, JobFilter, JobScope, NewJob, StartTime, UnrunnableJobCounts};
use store::testing::{on_each_database, run_sql};
use store::{Location, Store};

use super::diagnosis::{fail, kill, worker};
use super::transitions::{claim, enqueue, job, keyed};

pub async fn tenant(store: &Store, name: &str) -> TenantId {
    store.system().create_tenant(name, PlanTier::Standard).await.unwrap().unwrap().id
}

pub async fn enqueue_for(store: &Store, tenant: TenantId, jobs: Vec<NewJob>) {
    let mut unit = store.system().write_for(tenant);
    unit.enqueue(jobs);
    unit.commit().await.unwrap();
}

#[tokio::test]
async fn live_or_finished_job_is_found_by_id() {
    on_each_database(|db| async move {
        let (system, tenant) = (db.store.system(), tenant(&db.store, "acme").await);
        let worker = worker(&db.store, &["a"]).await;
        let (one, two) = (NewJob { traceparent: Some("00-1-2-01".into()), ..job("a") }, job("b"));
        enqueue_for(&db.store, tenant, vec![one.clone()]).await;
        enqueue(&db.store, vec![two.clone()]).await;

        let found = system.find_job(one.id).await.unwrap().unwrap();
        assert_eq!((found.tenant_id, found.state, found.lane), (tenant, JobState::Ready, Lane::Normal));
        assert_eq!((found.payload, found.traceparent.as_deref()), (one.payload.clone(), Some("00-1-2-01")));
        assert_eq!(system.find_job(two.id).await.unwrap().unwrap().tenant_id, TenantId::SYSTEM);
        assert!(system.find_job(JobId::new(&SystemClock)).await.unwrap().is_none());

        let claimed = claim(&db.store, worker, 1).await;
        let running = system.find_job(one.id).await.unwrap().unwrap();
        assert_eq!((running.state, running.worker.as_deref()), (JobState::Running, Some("test")));
        fail(&db.store, &claimed.into_iter().find(|job| job.id == one.id).unwrap()).await;
        let again = system.find_job(one.id).await.unwrap().unwrap();
        assert_eq!((again.state, again.attempt), (JobState::Retry, 1));
        kill(&db.store, worker, one.id).await;
        let dead = system.find_job(one.id).await.unwrap().unwrap();
        assert_eq!((dead.state, dead.attempt, dead.is_live()), (JobState::Dead, 2, false));
        assert_eq!((dead.reason.as_deref(), dead.fingerprint.as_deref()), (Some("no"), Some("f")));
        let attempts = system.list_attempts(tenant, one.id).await.unwrap();
        assert_eq!(attempts.iter().map(|attempt| attempt.token).collect::<Vec<_>>(), [1, 2]);
        assert_eq!((attempts[0].message.as_str(), attempts[0].worker.as_deref()), ("no", Some("test")));
        assert!(system.list_attempts(TenantId::SYSTEM, one.id).await.unwrap().is_empty());
    })
    .await;
}

#[tokio::test]
async fn job_pages_are_newest_first_and_filtered() {
    on_each_database(|db| async move {
        let (system, acme) = (db.store.system(), tenant(&db.store, "acme").await);
        let mut all = Vec::new();
        for n in 0..6 {
            let new = job(if n % 2 == 0 { "a" } else { "b" });
            all.push(new.id);
            if n < 3 {
                enqueue_for(&db.store, acme, vec![new]).await;
            } else {
                enqueue(&db.store, vec![new]).await;
            }
        }
        let worker = worker(&db.store, &["a"]).await;
        let claimed = claim(&db.store, worker, 1).await;
        system.finish_done(&claimed, || JobId::new(&SystemClock)).await.unwrap();
        all.sort();
        all.reverse();

        let everything = JobFilter::default();
        let first = system.list_jobs(&everything, None, 4).await.unwrap();
        let rest = system.list_jobs(&everything, Some(first[3].id), 4).await.unwrap();
        let ids: Vec<JobId> = first.iter().chain(&rest).map(|job| job.id).collect();
        assert_eq!(ids, all);

        let count = async |filter: JobFilter| system.list_jobs(&filter, None, 100).await.unwrap().len();
        assert_eq!(count(JobFilter { tenant: Some(acme), ..JobFilter::default() }).await, 3);
        assert_eq!(count(JobFilter { kind: Some("b".into()), ..JobFilter::default() }).await, 3);
        assert_eq!(count(JobFilter { state: Some(JobState::Done), ..JobFilter::default() }).await, claimed.len());
        assert_eq!(count(JobFilter { state: Some(JobState::Ready), ..JobFilter::default() }).await, 6 - claimed.len());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn job_ending_during_a_listing_is_listed_once() {
    on_each_database(|db| async move {
        const JOBS: usize = 100;
        let worker = worker(&db.store, &["a"]).await;
        enqueue(&db.store, (0..JOBS).map(|_| job("a")).collect()).await;
        let claimed = claim(&db.store, worker, JOBS as u64).await;
        assert_eq!(claimed.len(), JOBS);
        let store = db.store.clone();
        let ends = tokio::spawn(async move {
            for one in claimed.chunks(1) {
                store.system().finish_done(one, || JobId::new(&SystemClock)).await.unwrap();
            }
        });

        while !ends.is_finished() {
            let listed = db.store.system().list_jobs(&JobFilter::default(), None, 1000).await.unwrap();
            let ids: BTreeSet<JobId> = listed.iter().map(|job| job.id).collect();
            assert_eq!((ids.len(), listed.len()), (JOBS, JOBS));
        }
        ends.await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn stats_count_jobs_and_name_workers() {
    on_each_database(|db| async move {
        let system = db.store.system();
        let alive = worker(&db.store, &["a", "b"]).await;
        let gone = worker(&db.store, &["c"]).await;
        system.dismiss_worker(gone).await.unwrap();
        enqueue(&db.store, vec![job("a"), job("a"), NewJob { lane: Lane::High, ..job("b") }]).await;
        let claimed = claim(&db.store, alive, 1).await;
        system.finish_done(&claimed[..1], || JobId::new(&SystemClock)).await.unwrap();

        let stats = system.job_stats().await.unwrap();

        assert_eq!(stats.live.iter().map(|group| group.count).sum::<u64>(), 2);
        assert_eq!(
            stats.finished.iter().map(|group| (group.state, group.count)).collect::<Vec<_>>(),
            [(JobState::Done, 1)]
        );
        assert_eq!(stats.workers.len(), 1);
        assert_eq!((stats.workers[0].id, stats.workers[0].running), (alive, 1));
        assert_eq!(stats.workers[0].kinds, ["a", "b"]);
        assert_eq!(stats.strays, UnrunnableJobCounts::default());
    })
    .await;
}

#[tokio::test]
async fn depth_is_known_by_lane_and_tenant() {
    on_each_database(|db| async move {
        let (system, acme) = (db.store.system(), tenant(&db.store, "acme").await);
        let worker = worker(&db.store, &["a"]).await;
        enqueue_for(&db.store, acme, vec![job("a"), job("b"), NewJob { lane: Lane::Low, ..job("a") }]).await;
        let later = NewJob { when: StartTime::In(Duration::from_secs(600)), ..job("a") };
        enqueue(&db.store, vec![job("a"), later]).await;

        let lanes =
            async || -> Vec<u64> { system.lane_depths().await.unwrap().iter().map(|depth| depth.waiting).collect() };
        assert_eq!(lanes().await, [0, 0, 3, 1]);
        let normal = system.lane_depths().await.unwrap()[2];
        assert!(normal.oldest_micros < 600_000_000, "{normal:?}");
        let of_acme = system.tenant_depths().await.unwrap().into_iter().filter(|depth| depth.tenant_id == acme);
        assert_eq!(
            of_acme.map(|depth| (depth.lane, depth.waiting)).collect::<Vec<_>>(),
            [(Lane::Normal, 2), (Lane::Low, 1)]
        );

        assert_eq!(claim(&db.store, worker, 10).await.len(), 4);
        assert_eq!(lanes().await, [0, 0, 0, 0]);
        assert!(system.tenant_depths().await.unwrap().is_empty());
    })
    .await;
}

#[tokio::test]
async fn backlog_ignores_paused_tenants() {
    on_each_database(|db| async move {
        let (system, acme) = (db.store.system(), tenant(&db.store, "acme").await);
        worker(&db.store, &["a"]).await;
        let hour = Duration::from_secs(3600);
        let limits =
            |slow_waiting, stop_waiting| BacklogLimits { slow_waiting, stop_waiting, slow_age: hour, stop_age: hour };
        enqueue_for(&db.store, acme, vec![job("a"), job("a")]).await;
        let ask = async |limits: BacklogLimits| {
            let mut backlogs = system.list_backlogs(Lane::Normal, &limits).await.unwrap();
            assert!(backlogs.iter().all(|backlog| backlog.tenant == acme) && backlogs.len() < 2, "{backlogs:?}");
            backlogs.pop().map(|backlog| backlog.verdict)
        };

        assert_eq!(ask(limits(3, 4)).await, None);
        assert!(
            matches!(ask(limits(2, 4)).await, Some(BacklogVerdict::Slow { why }) if why.contains("2 jobs wait in lane normal"))
        );
        assert!(matches!(ask(limits(1, 2)).await, Some(BacklogVerdict::Stop { .. })));
        let old = BacklogLimits { slow_age: Duration::ZERO, ..limits(9, 9) };
        assert!(matches!(ask(old).await, Some(BacklogVerdict::Slow { why }) if why.contains("has waited")));
        assert_eq!(system.list_backlogs(Lane::High, &limits(1, 1)).await.unwrap(), []);
        for target in [JobScope::Tenant(acme), JobScope::Kind("a".into()), JobScope::Lane(Lane::Normal)] {
            system.pause_jobs(&target).await.unwrap();
            assert_eq!(ask(limits(1, 2)).await, None, "{target:?}");
            system.resume_jobs(&target).await.unwrap();
        }
        assert!(matches!(ask(limits(1, 2)).await, Some(BacklogVerdict::Stop { .. })));
    })
    .await;
}

#[tokio::test]
async fn backlog_counts_only_kinds_that_a_live_worker_knows() {
    on_each_database(|db| async move {
        let (system, acme) = (db.store.system(), tenant(&db.store, "acme").await);
        let (old, new) = (worker(&db.store, &["a"]).await, worker(&db.store, &["a", "new"]).await);
        enqueue_for(&db.store, acme, vec![job("new")]).await;
        enqueue_for(&db.store, tenant(&db.store, "other").await, vec![job("a")]).await;
        let at_once = BacklogLimits {
            slow_waiting: 9,
            stop_waiting: 9,
            slow_age: Duration::ZERO,
            stop_age: Duration::from_secs(3600),
        };
        let waiting = async || -> Vec<TenantId> {
            let backlogs = system.list_backlogs(Lane::Normal, &at_once).await.unwrap();
            backlogs.into_iter().map(|backlog| backlog.tenant).collect()
        };
        assert!(waiting().await.contains(&acme));

        system.dismiss_worker(new).await.unwrap();

        assert!(!waiting().await.contains(&acme), "nobody will run it");
        assert_eq!(waiting().await.len(), 1, "the other tenant's");
        system.dismiss_worker(old).await.unwrap();
        assert_eq!(waiting().await, []);
    })
    .await;
}

/// As if a bug or a hand had done it.
async fn spoil(location: &Location, sql: &str) {
    match location {
        Location::Postgres { url, .. } => run_sql(url, sql).await.unwrap(),
        Location::Sqlite { path, .. } => rusqlite::Connection::open(path).unwrap().execute_batch(sql).unwrap(),
    }
}

#[tokio::test]
async fn stray_jobs_are_counted() {
    on_each_database(|db| async move {
        let system = db.store.system();
        let worker = worker(&db.store, &["a"]).await;
        let parent = job("a");
        let child = NewJob { after: vec![parent.id], ..job("b") };
        enqueue(&db.store, vec![parent.clone(), child, keyed("a"), keyed("a"), job("c")]).await;
        claim(&db.store, worker, 10).await;
        assert_eq!(system.count_strays().await.unwrap(), UnrunnableJobCounts::default());

        spoil(&db.location, "delete from job_edges").await;
        assert_eq!(
            system.count_strays().await.unwrap(),
            UnrunnableJobCounts { blocked: 1, ..UnrunnableJobCounts::default() }
        );
        spoil(&db.location, "delete from jobs where order_key is not null and not is_behind").await;
        assert_eq!(system.count_strays().await.unwrap().blocked, 2);
        spoil(&db.location, "update job_queues set waiting = 0 where kind = 'c'").await;
        assert_eq!(system.count_strays().await.unwrap().uncounted, 1);
        spoil(&db.location, "update job_workers set gone_at = lease_until").await;
        assert_eq!(system.count_strays().await.unwrap().orphaned, 1);
        spoil(&db.location, "update jobs set state = 'doomed' where kind = 'b'").await;
        let strays = system.count_strays().await.unwrap();
        assert_eq!((strays.doomed, strays.total()), (1, 4));
    })
    .await;
}
