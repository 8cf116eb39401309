//! A worker with handlers that succeed, fail, panic, hang and compute.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::{JobId, JobState, PlanTier, SystemClock, TenantId};
use jobs::noop::{self, Noop};
use jobs::probe::{Probe, ProbeFault};
use jobs::{
    Completion, Job, JobError, JobKind, JobKinds, Pool, RetryPolicy, SystemRandom, Worker, WorkerSettings, new_job,
    probe,
};
use serde::{Deserialize, Serialize};
use store::sql::jobs::{JobRow, LimitChange, NewJob};
use store::testing::{TestDatabase, WAIT_DEADLINE, on_each_database, wait_until};
use store::{StorageFault, Store, StoreError};
use tokio::sync::Semaphore;

const SOON: RetryPolicy =
    RetryPolicy { max_retries: 2, first_delay: Duration::from_millis(1), max_delay: Duration::from_millis(1) };

fn start(store: &Store, kinds: JobKinds) -> Worker {
    Worker::start(store.clone(), kinds, settings(), Arc::new(SystemRandom))
}

fn settings() -> WorkerSettings {
    WorkerSettings {
        name: "test".into(),
        lease: Duration::from_secs(10),
        poll: Duration::from_millis(200),
        io_slots: 4,
        cpu_slots: 1,
        remote_slots: 1,
        grace: Duration::from_secs(10),
    }
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

/// Waits until a condition holds for a job, and returns it.
async fn until(store: &Store, id: JobId, holds: impl Fn(&JobRow) -> bool) -> JobRow {
    let mut found = None;
    wait_until("the job is in the awaited state", async || {
        found = store.system().find_job(id).await.unwrap().filter(&holds);
        found.is_some()
    })
    .await;
    found.unwrap()
}

async fn until_ended(store: &Store, id: JobId) -> JobRow {
    until(store, id, |job| !job.is_live()).await
}

async fn outcomes(store: &Store, job: &JobRow) -> Vec<(String, String)> {
    let attempts = store.system().list_attempts(job.tenant_id, job.id).await.unwrap();
    attempts.into_iter().map(|attempt| (attempt.outcome, attempt.message)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_and_panics_are_retried_then_dead_letters() {
    on_each_database(|db| async move {
        let tenant = tenant(&db.store).await;
        let recovers = add_probe(&db.store, tenant, Probe { fail: 2, ..Probe::default() }).await;
        let fails = add_probe(&db.store, tenant, Probe { fail: 9, ..Probe::default() }).await;
        let panics = add_probe(&db.store, tenant, Probe { then: Some(ProbeFault::Panic), ..Probe::default() }).await;
        let worker = start(&db.store, JobKinds::default().with(probe::probe(SOON)));

        let recovers = until_ended(&db.store, recovers).await;
        assert_eq!((recovers.state, outcomes(&db.store, &recovers).await.len()), (JobState::Done, 2));
        let fails = until_ended(&db.store, fails).await;
        assert_eq!((fails.state, fails.attempt), (JobState::Dead, 3));
        assert_eq!(fails.reason.as_deref(), Some("the probe was told to fail 9 times"));
        let panics = until_ended(&db.store, panics).await;
        assert_eq!(panics.state, JobState::Dead);
        let panicked = ("panicked".to_owned(), "the probe was told to panic".to_owned());
        assert_eq!(outcomes(&db.store, &panics).await, vec![panicked; 3]);
        assert_ne!(fails.fingerprint, panics.fingerprint);
        worker.shut_down().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn job_spends_no_attempt_while_the_database_is_full() {
    on_each_database(|db| async move {
        let tenant = tenant(&db.store).await;
        #[derive(Serialize, Deserialize)]
        struct Write {
            fault: bool,
        }
        impl Job for Write {
            const KIND: &'static str = "write";
        }
        let write = JobKind::new(|context: jobs::JobContext, job: Write| async move {
            let (fault, error) = if job.fault {
                (StorageFault::Certain, StoreError::Full("the database".into()))
            } else {
                (StorageFault::Possible, StoreError::BlobsUnavailable("it does not answer".into()))
            };
            assert_eq!(error.storage_fault(), Some(fault));
            let is_over = context.job.token > 3 && job.fault;
            if is_over { Ok(Completion::Done) } else { Err(anyhow::Error::from(error).context("storing").into()) }
        });
        let waits = add(&db.store, tenant, new_job(&Write { fault: true }, &SystemClock, None).unwrap()).await;
        let fails = add(&db.store, tenant, new_job(&Write { fault: false }, &SystemClock, None).unwrap()).await;
        let worker = start(&db.store, JobKinds::default().with(write.with_retry(SOON)));

        let fails = until_ended(&db.store, fails).await;
        let waiting = until(&db.store, waits, |job| job.wait_reason.is_some()).await;
        assert_eq!((fails.state, fails.attempt, fails.error_class.as_deref()), (JobState::Dead, 3, Some("storage")));
        assert_eq!((waiting.attempt, waiting.wait_reason.as_deref()), (0, Some("the database is away or full")));
        for _ in 0..3 {
            until(&db.store, waits, |job| job.state == JobState::Retry || !job.is_live()).await;
            db.store.system().retry_now(waits).await.unwrap();
        }
        let done = until(&db.store, waits, |job| job.state != JobState::Running).await;
        assert!(done.attempt == 0 && outcomes(&db.store, &done).await.is_empty());
        worker.shut_down().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn job_without_progress_times_out() {
    on_each_database(|db| async move {
        let tenant = tenant(&db.store).await;
        #[derive(Serialize, Deserialize)]
        struct Slow {}
        impl Job for Slow {
            const KIND: &'static str = "slow";
        }
        let slow = JobKind::new(|context: jobs::JobContext, _: Slow| async move {
            for _ in 0..20 {
                tokio::time::sleep(Duration::from_millis(100)).await;
                context.report_progress();
            }
            Ok(Completion::Done)
        });
        let hang = probe::probe(RetryPolicy::NEVER).with_timeouts(WAIT_DEADLINE, Duration::from_millis(300));
        let kinds = JobKinds::default().with(hang).with(slow.with_timeouts(WAIT_DEADLINE, Duration::from_millis(1500)));
        let hangs = add_probe(&db.store, tenant, Probe { then: Some(ProbeFault::Hang), ..Probe::default() }).await;
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
async fn running_job_is_cancelled() {
    on_each_database(|db| async move {
        let tenant = tenant(&db.store).await;
        let hangs = add_probe(&db.store, tenant, Probe { then: Some(ProbeFault::Hang), ..Probe::default() }).await;
        let worker = start(&db.store, JobKinds::default().with(probe::probe(SOON)));
        until(&db.store, hangs, |job| job.state == JobState::Running).await;

        db.store.system().cancel_job(tenant, hangs, "nobody needs it").await.unwrap();

        let job = until_ended(&db.store, hangs).await;
        assert_eq!((job.state, job.reason.as_deref()), (JobState::Cancelled, Some("nobody needs it")));
        worker.shut_down().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_of_an_inactive_tenant_wait_until_it_is_active() {
    on_each_database(|db| async move {
        let system = db.store.system();
        let tenant = tenant(&db.store).await;
        let other = system.create_tenant("other", PlanTier::Standard).await.unwrap().unwrap().id;
        let (begun, end) = (Arc::new(AtomicU64::new(0)), Arc::new(Semaphore::new(0)));
        let (counter, ending) = (begun.clone(), end.clone());
        let waits = JobKind::new(move |_, _: Noop| {
            counter.fetch_add(1, Ordering::Relaxed);
            let ending = ending.clone();
            async move {
                ending.acquire().await.unwrap().forget();
                Ok(Completion::Done)
            }
        });
        let [id, others] = [tenant, other].map(|tenant| (tenant, new_job(&Noop {}, &SystemClock, None).unwrap()));
        let (id, others) = (add(&db.store, id.0, id.1).await, add(&db.store, others.0, others.1).await);
        let worker = start(&db.store, JobKinds::default().with(waits.with_retry(RetryPolicy::NEVER)));
        for id in [id, others] {
            until(&db.store, id, |job| job.state == JobState::Running).await;
        }

        system.set_tenant_active(tenant, false).await.unwrap();
        let job = until(&db.store, id, |job| job.state == JobState::Ready).await;
        assert_eq!((job.attempt, outcomes(&db.store, &job).await.len()), (0, 0));
        end.add_permits(1);
        assert_eq!(until_ended(&db.store, others).await.state, JobState::Done, "jobs of active tenants go on");
        assert_eq!(begun.load(Ordering::Relaxed), 2);

        system.set_tenant_active(tenant, true).await.unwrap();
        end.add_permits(1);
        assert_eq!(until_ended(&db.store, id).await.state, JobState::Done);
        assert_eq!(begun.load(Ordering::Relaxed), 3);
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
        let busy = JobKind::new(move |_, _: Noop| {
            let before = counter.fetch_add(1, Ordering::Relaxed);
            async move { if before < 8 { Err(JobError::Deferred(Duration::ZERO)) } else { Ok(Completion::Done) } }
        });
        let id = add(&db.store, tenant, new_job(&Noop {}, &SystemClock, None).unwrap()).await;
        let worker = start(&db.store, JobKinds::default().with(busy.with_retry(RetryPolicy::NEVER)));

        let job = until_ended(&db.store, id).await;
        assert_eq!((job.state, job.attempt, tries.load(Ordering::Relaxed)), (JobState::Done, 0, 9));
        worker.shut_down().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_kind_waits_and_bad_payload_is_a_dead_letter() {
    on_each_database(|db| async move {
        let tenant = tenant(&db.store).await;
        let newer = NewJob { kind: "from_the_future".into(), ..new_job(&Noop {}, &SystemClock, None).unwrap() };
        let newer = add(&db.store, tenant, newer).await;
        let unreadable = serde_json::json!({"children": "three"});
        let unreadable = NewJob { payload: unreadable, ..new_job(&Probe::default(), &SystemClock, None).unwrap() };
        let unreadable = add(&db.store, tenant, unreadable).await;
        let worker = start(&db.store, JobKinds::default().with(probe::probe(SOON)));

        let job = until_ended(&db.store, unreadable).await;
        assert_eq!((job.state, job.error_class.as_deref()), (JobState::Dead, Some("payload")));
        assert!(job.reason.unwrap().contains("three"), "the reason holds the parse error");
        assert_eq!(until(&db.store, newer, |_| true).await.state, JobState::Ready);
        let unknown = db.store.system().list_kinds_without_worker().await.unwrap();
        assert_eq!(unknown, [("from_the_future".to_owned(), 1)]);
        worker.shut_down().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn computing_job_blocks_no_other() {
    on_each_database(|db| async move {
        let tenant = tenant(&db.store).await;
        let (done, is_done) = std::sync::mpsc::channel();
        let is_done = Arc::new(Mutex::new(is_done));
        // Blocks its thread until the other job has run: on the runtime's own threads that might never happen.
        let compute = JobKind::new(move |_, _: Noop| {
            let is_done = is_done.clone();
            async move {
                is_done.lock().unwrap().recv().unwrap();
                Ok(Completion::Done)
            }
        });
        let computes = add(&db.store, tenant, new_job(&Noop {}, &SystemClock, None).unwrap()).await;
        let worker = start(&db.store, JobKinds::default().with(compute.in_pool(Pool::Cpu)).with(probe::probe(SOON)));
        until(&db.store, computes, |job| job.state == JobState::Running).await;

        let other = add_probe(&db.store, tenant, Probe::default()).await;
        until_ended(&db.store, other).await;
        done.send(()).unwrap();
        assert_eq!(until_ended(&db.store, computes).await.state, JobState::Done);
        worker.shut_down().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn child_job_keeps_its_parents_trace() {
    on_each_database(|db| async move {
        let tenant = tenant(&db.store).await;
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let parent = new_job(&Probe { children: 1, ..Probe::default() }, &SystemClock, Some(trace)).unwrap();
        let parent = add(&db.store, tenant, parent).await;
        let worker = start(&db.store, JobKinds::default().with(probe::probe(SOON)));

        until_ended(&db.store, parent).await;

        let all = db.store.system().list_jobs(&Default::default(), None, 10).await.unwrap();
        let traced = all.iter().filter(|job| job.traceparent.as_deref() == Some(trace)).count();
        assert_eq!(traced, 2);
        worker.shut_down().await;
    })
    .await;
}

#[derive(Serialize, Deserialize)]
struct Wait {}

impl Job for Wait {
    const KIND: &'static str = "wait";
}

#[derive(Serialize, Deserialize)]
struct Compute {}

impl Job for Compute {
    const KIND: &'static str = "compute";
}

/// Makes a kind whose jobs wait until they may end, and which counts how many have begun.
fn wait(begun: &Arc<AtomicU64>, may_end: &Arc<Semaphore>) -> JobKind {
    let (begun, may_end) = (begun.clone(), may_end.clone());
    JobKind::new(move |_, _: Wait| {
        begun.fetch_add(1, Ordering::Relaxed);
        let may_end = may_end.clone();
        async move {
            may_end.acquire().await.unwrap().forget();
            Ok(Completion::Done)
        }
    })
}

async fn add_many<J: Job>(store: &Store, tenant: TenantId, count: usize, job: &J) -> Vec<JobId> {
    let jobs: Vec<NewJob> = (0..count).map(|_| new_job(job, &SystemClock, None).unwrap()).collect();
    let ids = jobs.iter().map(|job| job.id).collect();
    let mut unit = store.tenant(tenant).write();
    unit.enqueue(jobs);
    unit.commit().await.unwrap();
    ids
}

/// Marks all jobs as if they had been running when a process died.
async fn suspect_all(db: &TestDatabase) {
    db.run("update jobs set suspected = 1").await;
}

async fn until_begun(begun: &AtomicU64, count: u64) {
    wait_until("the jobs have begun", async || begun.load(Ordering::Relaxed) >= count).await;
}

async fn number(db: &TestDatabase, sql: &str) -> i64 {
    db.rows(sql).await[0].get(0).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_suspects_occupy_no_slot() {
    on_each_database(|db| async move {
        let tenant = tenant(&db.store).await;
        let (begun, may_end) = (Arc::new(AtomicU64::new(0)), Arc::new(Semaphore::new(0)));
        // More than there are slots.
        let suspects = add_many(&db.store, tenant, 12, &Wait {}).await;
        suspect_all(&db).await;
        let worker = start(&db.store, JobKinds::default().with(wait(&begun, &may_end)).with(noop::kind()));
        until_begun(&begun, 1).await;

        let others = add_many(&db.store, tenant, 20, &Noop {}).await;

        for id in others {
            assert_eq!(until_ended(&db.store, id).await.state, JobState::Done);
        }
        // Longer than prefetched jobs are kept: suspects are not given back and claimed again.
        tokio::time::sleep(Duration::from_millis(2500)).await;
        assert_eq!(number(&db, "select max(token) from jobs").await, 1, "claimed once and kept");
        may_end.add_permits(12);
        for id in suspects {
            assert_eq!(until_ended(&db.store, id).await.state, JobState::Done);
        }
        worker.shut_down().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn suspects_run_one_at_a_time_over_all_pools() {
    on_each_database(|db| async move {
        // How many run now, and the most that did.
        let counts = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
        async fn run(context: jobs::JobContext, counts: Arc<(AtomicU64, AtomicU64)>) -> Result<Completion, JobError> {
            if context.job.is_suspect {
                let running = counts.0.fetch_add(1, Ordering::SeqCst) + 1;
                counts.1.fetch_max(running, Ordering::SeqCst);
            }
            tokio::time::sleep(Duration::from_millis(3)).await;
            if context.job.is_suspect {
                counts.0.fetch_sub(1, Ordering::SeqCst);
            }
            Ok(Completion::Done)
        }
        let (for_io, for_cpu) = (counts.clone(), counts.clone());
        let io = JobKind::new(move |context, _: Noop| run(context, for_io.clone()));
        let cpu = JobKind::new(move |context, _: Compute| run(context, for_cpu.clone())).in_pool(Pool::Cpu);
        let tenant = tenant(&db.store).await;
        let mut jobs = add_many(&db.store, tenant, 30, &Noop {}).await;
        jobs.extend(add_many(&db.store, tenant, 30, &Compute {}).await);
        suspect_all(&db).await;
        // A backlog of other jobs must not delay them either.
        jobs.extend(add_many(&db.store, tenant, 200, &Noop {}).await);

        let worker = start(&db.store, JobKinds::default().with(io).with(cpu));

        for id in jobs {
            assert_eq!(until_ended(&db.store, id).await.state, JobState::Done);
        }
        assert_eq!(counts.1.load(Ordering::SeqCst), 1, "suspects at the same time");
        worker.shut_down().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn survived_suspect_is_cleared() {
    on_each_database(|db| async move {
        let tenant = tenant(&db.store).await;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let witness = seen.clone();
        let kind = JobKind::new(move |context, _: Noop| {
            let mut seen = witness.lock().unwrap();
            seen.push(context.job.is_suspect);
            let first = match seen.len() {
                1 => Err(JobError::Failed { class: "test", message: "once".into() }),
                2 => Err(JobError::Deferred(Duration::ZERO)),
                _ => Ok(Completion::Done),
            };
            async move { first }
        });
        let failed = add_many(&db.store, tenant, 1, &Noop {}).await[0];
        suspect_all(&db).await;

        let worker = start(&db.store, JobKinds::default().with(kind.with_retry(SOON)));

        assert_eq!(until_ended(&db.store, failed).await.state, JobState::Done);
        assert_eq!(*seen.lock().unwrap(), [true, false, false]);
        worker.shut_down().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_gives_back_jobs_that_run_too_long() {
    on_each_database(|db| async move {
        let tenant = tenant(&db.store).await;
        let (begun, may_end) = (Arc::new(AtomicU64::new(0)), Arc::new(Semaphore::new(0)));
        let (free, is_free) = std::sync::mpsc::channel::<()>();
        let (is_free, has_begun) = (Arc::new(Mutex::new(is_free)), begun.clone());
        // A thread that computes cannot be stopped.
        let compute = JobKind::new(move |context: jobs::JobContext, _: Compute| {
            let is_free = is_free.clone();
            has_begun.fetch_add(1, Ordering::Relaxed);
            async move {
                let _ = is_free.lock().unwrap().recv();
                let mut unit = context.write();
                unit.record_probe(&context.job);
                Ok(Completion::Commit(unit))
            }
        });
        let suspects = add_many(&db.store, tenant, 2, &Wait {}).await;
        suspect_all(&db).await;
        let mut jobs = add_many(&db.store, tenant, 2, &Wait {}).await;
        jobs.extend(add_many(&db.store, tenant, 1, &Compute {}).await);
        let kinds = JobKinds::default().with(wait(&begun, &may_end)).with(compute.in_pool(Pool::Cpu));
        let settings = WorkerSettings { grace: Duration::from_millis(100), ..settings() };
        let worker = Worker::start(db.store.clone(), kinds, settings, Arc::new(SystemRandom));
        until_begun(&begun, 4).await;

        tokio::time::timeout(WAIT_DEADLINE, worker.shut_down()).await.expect("a shutdown ends");

        for id in jobs.iter().chain(&suspects) {
            let job = until(&db.store, *id, |_| true).await;
            assert_eq!((job.state, job.attempt, job.abandoned), (JobState::Ready, 0, 0));
        }
        assert_eq!(number(&db, "select count(*) from job_workers where gone_at is null").await, 0);
        // One suspect was started and did no harm; nothing is known of the other.
        assert_eq!(number(&db, "select sum(suspected) from jobs").await, 1);
        drop(free);
        // A thread that ends later changes nothing: neither its job nor anything else.
        let again = start(&db.store, JobKinds::default().with(wait(&begun, &may_end)));
        may_end.add_permits(4);
        for id in jobs[..2].iter().chain(&suspects) {
            assert_eq!(until_ended(&db.store, *id).await.state, JobState::Done);
        }
        assert_eq!(until(&db.store, jobs[2], |_| true).await.state, JobState::Ready);
        assert_eq!(number(&db, "select count(*) from probe_effects").await, 0);
        again.shut_down().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limit_of_one_pool_survives_an_unlimited_pool() {
    on_each_database(|db| async move {
        let tenant = tenant(&db.store).await;
        db.store.system().limit_kind("noop", LimitChange::AtMost(1)).await.unwrap();
        let jobs = add_many(&db.store, tenant, 20, &Noop {}).await;
        // Only jobs of which the worker is notified are found in time.
        let settings = WorkerSettings { poll: Duration::from_secs(600), ..settings() };
        let compute = JobKind::new(|_, _: Compute| async { Ok(Completion::Done) }).in_pool(Pool::Cpu);

        let kinds = JobKinds::default().with(noop::kind()).with(compute);
        let worker = Worker::start(db.store.clone(), kinds, settings, Arc::new(SystemRandom));

        for id in jobs {
            assert_eq!(until_ended(&db.store, id).await.state, JobState::Done);
        }
        worker.shut_down().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_of_another_process_are_found_without_polling() {
    on_each_database(|db| async move {
        let tenant = tenant(&db.store).await;
        let settings = WorkerSettings { poll: Duration::from_secs(600), ..settings() };
        let kinds = JobKinds::default().with(noop::kind());
        let worker = Worker::start(db.store.clone(), kinds, settings, Arc::new(SystemRandom));
        let own = add_many(&db.store, tenant, 1, &Noop {}).await[0];
        until_ended(&db.store, own).await;
        let another = db.second_store();

        for _ in 0..3 {
            let id = add_many(&another, tenant, 1, &Noop {}).await[0];
            let notify = async {
                loop {
                    // As a command does it; repeatedly, because the worker may just be about to listen.
                    another.notify_other_processes().await.unwrap();
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            };
            let ended = tokio::select! {
                ended = until_ended(&db.store, id) => ended,
                () = notify => unreachable!("it never ends"),
            };
            assert_eq!(ended.state, JobState::Done);
        }
        worker.shut_down().await;
    })
    .await;
}

/// As when the database's clock went back: the job's position is before the one where claims begin to search.
#[tokio::test(flavor = "multi_thread")]
async fn job_before_the_queue_head_is_found() {
    on_each_database(|db| async move {
        let tenant = tenant(&db.store).await;
        let hidden = add_probe(&db.store, tenant, Probe::default()).await;
        db.store.system().count_arrivals().await.unwrap();
        if db.store.dialect() == store::Dialect::Postgres {
            db.run("update job_queues set head = 9000000000000000000").await;
        }
        let worker = start(&db.store, JobKinds::default().with(probe::probe(SOON)));

        assert_eq!(until_ended(&db.store, hidden).await.state, JobState::Done);
        worker.shut_down().await;
    })
    .await;
}
