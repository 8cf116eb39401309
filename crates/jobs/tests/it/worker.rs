//! A worker and what it makes of handlers that succeed, fail, panic, hang and compute.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::{JobId, JobState, PlanTier, SystemClock, TenantId};
use jobs::probe::{Noop, Probe, Trouble};
use jobs::{Job, JobError, Kind, Kinds, Pool, Retry, Settings, SystemDice, Verdict, Worker, new_job, probe};
use serde::{Deserialize, Serialize};
use store::Store;
use store::sql::jobs::{JobRow, NewJob};
use store::testing::on_each_database;

/// Only a hang gets there.
const DEADLINE: Duration = Duration::from_secs(60);

const SOON: Retry = Retry { retries: 2, first: Duration::from_millis(1), longest: Duration::from_millis(1) };

fn start(store: &Store, kinds: Kinds) -> Worker {
    let settings = Settings {
        name: "test".into(),
        lease: Duration::from_secs(10),
        poll: Duration::from_millis(200),
        io_slots: 4,
        cpu_slots: 1,
        grace: Duration::from_secs(10),
    };
    Worker::start(store.clone(), kinds, settings, Arc::new(SystemDice))
}

async fn tenant(store: &Store) -> TenantId {
    store.system().create_tenant("acme", PlanTier::Standard).await.unwrap().unwrap().id
}

async fn add(store: &Store, tenant: TenantId, job: NewJob) -> JobId {
    let id = job.id;
    let mut unit = store.tenant(tenant).write();
    unit.enqueue(vec![job]);
    unit.commit().await.unwrap();
    id
}

async fn add_probe(store: &Store, tenant: TenantId, probe: Probe) -> JobId {
    add(store, tenant, new_job(&probe, &SystemClock, None).unwrap()).await
}

/// The job once this holds for it.
async fn until(store: &Store, id: JobId, holds: impl Fn(&JobRow) -> bool) -> JobRow {
    let wait = async {
        loop {
            if let Some(job) = store.system().find_job(id).await.unwrap()
                && holds(&job)
            {
                return job;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, wait).await.expect("waited too long for a job")
}

async fn until_ended(store: &Store, id: JobId) -> JobRow {
    until(store, id, |job| !job.is_live()).await
}

async fn outcomes(store: &Store, job: &JobRow) -> Vec<(String, String)> {
    let attempts = store.system().list_attempts(job.tenant_id, job.id).await.unwrap();
    attempts.into_iter().map(|attempt| (attempt.outcome, attempt.message)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_and_panics_are_tried_again_and_then_kept_as_dead_letters() {
    on_each_database(|db| async move {
        let tenant = tenant(&db.store).await;
        let recovers = add_probe(&db.store, tenant, Probe { fail: 2, ..Probe::default() }).await;
        let fails = add_probe(&db.store, tenant, Probe { fail: 9, ..Probe::default() }).await;
        let panics = add_probe(&db.store, tenant, Probe { then: Some(Trouble::Panic), ..Probe::default() }).await;
        let worker = start(&db.store, Kinds::default().with(probe::probe(SOON)));

        let recovers = until_ended(&db.store, recovers).await;
        assert_eq!((recovers.state, outcomes(&db.store, &recovers).await.len()), (JobState::Done, 2));
        let fails = until_ended(&db.store, fails).await;
        assert_eq!((fails.state, fails.attempt), (JobState::Dead, 3));
        assert_eq!(fails.reason.as_deref(), Some("the probe was told to fail 9 times"));
        let panics = until_ended(&db.store, panics).await;
        assert_eq!(panics.state, JobState::Dead);
        let told = ("panicked".to_owned(), "the probe was told to panic".to_owned());
        assert_eq!(outcomes(&db.store, &panics).await, vec![told; 3]);
        assert_ne!(fails.fingerprint, panics.fingerprint);
        worker.shut_down().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_job_runs_out_of_time_and_one_that_shows_progress_does_not() {
    on_each_database(|db| async move {
        let tenant = tenant(&db.store).await;
        #[derive(Serialize, Deserialize)]
        struct Slow {}
        impl Job for Slow {
            const KIND: &'static str = "slow";
        }
        let slow = Kind::new(|held: jobs::Held, _: Slow| async move {
            for _ in 0..20 {
                tokio::time::sleep(Duration::from_millis(100)).await;
                held.progress();
            }
            Ok(Verdict::Done)
        });
        let hang = probe::probe(Retry::NEVER).within(DEADLINE, Duration::from_millis(300));
        let kinds = Kinds::default().with(hang).with(slow.within(DEADLINE, Duration::from_millis(1500)));
        let hangs = add_probe(&db.store, tenant, Probe { then: Some(Trouble::Hang), ..Probe::default() }).await;
        let goes_on = add(&db.store, tenant, new_job(&Slow {}, &SystemClock, None).unwrap()).await;
        let worker = start(&db.store, kinds);

        let hangs = until_ended(&db.store, hangs).await;
        assert_eq!((hangs.state, hangs.error_class.as_deref()), (JobState::Dead, Some("timeout")));
        assert_eq!(outcomes(&db.store, &hangs).await[0].0, "timed_out");
        assert_eq!(until_ended(&db.store, goes_on).await.state, JobState::Done);
        worker.shut_down().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_job_is_cancelled() {
    on_each_database(|db| async move {
        let tenant = tenant(&db.store).await;
        let hangs = add_probe(&db.store, tenant, Probe { then: Some(Trouble::Hang), ..Probe::default() }).await;
        let worker = start(&db.store, Kinds::default().with(probe::probe(SOON)));
        until(&db.store, hangs, |job| job.state == JobState::Running).await;

        db.store.system().cancel_job(tenant, hangs, "nobody needs it").await.unwrap();

        let job = until_ended(&db.store, hangs).await;
        assert_eq!((job.state, job.reason.as_deref()), (JobState::Cancelled, Some("nobody needs it")));
        worker.shut_down().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn throttling_spends_no_attempt() {
    on_each_database(|db| async move {
        let tenant = tenant(&db.store).await;
        let tries = Arc::new(AtomicU64::new(0));
        let counter = tries.clone();
        let busy = Kind::new(move |_, _: Noop| {
            let before = counter.fetch_add(1, Ordering::Relaxed);
            async move { if before < 8 { Err(JobError::Throttled(Duration::ZERO)) } else { Ok(Verdict::Done) } }
        });
        let id = add(&db.store, tenant, new_job(&Noop {}, &SystemClock, None).unwrap()).await;
        let worker = start(&db.store, Kinds::default().with(busy.retried(Retry::NEVER)));

        let job = until_ended(&db.store, id).await;
        assert_eq!((job.state, job.attempt, tries.load(Ordering::Relaxed)), (JobState::Done, 0, 9));
        worker.shut_down().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_this_program_does_not_know_is_left_alone_and_what_it_cannot_read_is_a_dead_letter() {
    on_each_database(|db| async move {
        let tenant = tenant(&db.store).await;
        let newer = NewJob { kind: "from_the_future".into(), ..new_job(&Noop {}, &SystemClock, None).unwrap() };
        let newer = add(&db.store, tenant, newer).await;
        let unreadable = serde_json::json!({"children": "three"});
        let unreadable = NewJob { payload: unreadable, ..new_job(&Probe::default(), &SystemClock, None).unwrap() };
        let unreadable = add(&db.store, tenant, unreadable).await;
        let worker = start(&db.store, Kinds::default().with(probe::probe(SOON)));

        let job = until_ended(&db.store, unreadable).await;
        assert_eq!((job.state, job.error_class.as_deref()), (JobState::Dead, Some("payload")));
        assert!(job.reason.unwrap().contains("three"), "the parse error is told");
        assert_eq!(until(&db.store, newer, |_| true).await.state, JobState::Ready);
        let unknown = db.store.system().list_kinds_without_worker().await.unwrap();
        assert_eq!(unknown, [("from_the_future".to_owned(), 1)]);
        worker.shut_down().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_computes_keeps_no_other_from_running_and_a_trace_travels_along() {
    on_each_database(|db| async move {
        let tenant = tenant(&db.store).await;
        let (done, is_done) = std::sync::mpsc::channel();
        let is_done = Arc::new(Mutex::new(is_done));
        // Blocks its thread until the other job has run: on the runtime's own threads that could take for ever.
        let compute = Kind::new(move |_, _: Noop| {
            let is_done = is_done.clone();
            async move {
                is_done.lock().unwrap().recv().unwrap();
                Ok(Verdict::Done)
            }
        });
        let computes = add(&db.store, tenant, new_job(&Noop {}, &SystemClock, None).unwrap()).await;
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let parent = new_job(&Probe { children: 1, ..Probe::default() }, &SystemClock, Some(trace)).unwrap();
        let worker = start(&db.store, Kinds::default().with(compute.on(Pool::Cpu)).with(probe::probe(SOON)));
        until(&db.store, computes, |job| job.state == JobState::Running).await;

        let parent = add(&db.store, tenant, parent).await;
        until_ended(&db.store, parent).await;
        done.send(()).unwrap();
        assert_eq!(until_ended(&db.store, computes).await.state, JobState::Done);
        let all = db.store.system().list_jobs(&Default::default(), None, 10).await.unwrap();
        let traced = all.iter().filter(|job| job.traceparent.as_deref() == Some(trace)).count();
        assert_eq!(traced, 2, "the child is in its parent's trace");
        worker.shut_down().await;
    })
    .await;
}
