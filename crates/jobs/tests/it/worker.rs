//! A worker and what it makes of handlers that succeed, fail, panic, hang and compute.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::{JobId, JobState, PlanTier, SystemClock, TenantId};
use jobs::probe::{Noop, Probe, Trouble};
use jobs::{Job, JobError, Kind, Kinds, Pool, Retry, Settings, SystemDice, Verdict, Worker, new_job, probe};
use serde::{Deserialize, Serialize};
use store::Store;
use store::sql::jobs::{JobRow, Limit, NewJob};
use store::testing::{TestDatabase, on_each_database};
use tokio::sync::Semaphore;

/// Only a hang gets there.
const DEADLINE: Duration = Duration::from_secs(60);

const SOON: Retry = Retry { retries: 2, first: Duration::from_millis(1), longest: Duration::from_millis(1) };

fn start(store: &Store, kinds: Kinds) -> Worker {
    Worker::start(store.clone(), kinds, settings(), Arc::new(SystemDice))
}

fn settings() -> Settings {
    Settings {
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
async fn what_runs_for_a_tenant_that_is_switched_off_is_given_back_and_goes_on_when_it_is_on_again() {
    on_each_database(|db| async move {
        let system = db.store.system();
        let tenant = tenant(&db.store).await;
        let other = system.create_tenant("other", PlanTier::Standard).await.unwrap().unwrap().id;
        let (begun, end) = (Arc::new(AtomicU64::new(0)), Arc::new(Semaphore::new(0)));
        let (counter, ending) = (begun.clone(), end.clone());
        let waits = Kind::new(move |_, _: Noop| {
            counter.fetch_add(1, Ordering::Relaxed);
            let ending = ending.clone();
            async move {
                ending.acquire().await.unwrap().forget();
                Ok(Verdict::Done)
            }
        });
        let [id, others] = [tenant, other].map(|tenant| (tenant, new_job(&Noop {}, &SystemClock, None).unwrap()));
        let (id, others) = (add(&db.store, id.0, id.1).await, add(&db.store, others.0, others.1).await);
        let worker = start(&db.store, Kinds::default().with(waits.retried(Retry::NEVER)));
        for id in [id, others] {
            until(&db.store, id, |job| job.state == JobState::Running).await;
        }

        system.set_tenant_active(tenant, false).await.unwrap();
        let job = until(&db.store, id, |job| job.state == JobState::Ready).await;
        assert_eq!((job.attempt, outcomes(&db.store, &job).await.len()), (0, 0));
        end.add_permits(1);
        assert_eq!(until_ended(&db.store, others).await.state, JobState::Done, "whoever is on goes on");
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

/// Each waits until it may end, and tells how many have begun.
fn wait(begun: &Arc<AtomicU64>, may_end: &Arc<Semaphore>) -> Kind {
    let (begun, may_end) = (begun.clone(), may_end.clone());
    Kind::new(move |_, _: Wait| {
        begun.fetch_add(1, Ordering::Relaxed);
        let may_end = may_end.clone();
        async move {
            may_end.acquire().await.unwrap().forget();
            Ok(Verdict::Done)
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

/// As if all that is there had been around when a process died.
async fn suspect_all(db: &TestDatabase) {
    db.run("update jobs set suspected = 1").await;
}

async fn until_begun(begun: &AtomicU64, count: u64) {
    let wait = async {
        while begun.load(Ordering::Relaxed) < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, wait).await.expect("waited too long for jobs to begin");
}

async fn number(db: &TestDatabase, sql: &str) -> i64 {
    db.rows(sql).await[0].get(0).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn suspects_wait_for_their_turn_without_a_slot() {
    on_each_database(|db| async move {
        let tenant = tenant(&db.store).await;
        let (begun, may_end) = (Arc::new(AtomicU64::new(0)), Arc::new(Semaphore::new(0)));
        // More than there are slots.
        let suspects = add_many(&db.store, tenant, 12, &Wait {}).await;
        suspect_all(&db).await;
        let worker = start(&db.store, Kinds::default().with(wait(&begun, &may_end)).with(probe::noop()));
        until_begun(&begun, 1).await;

        let others = add_many(&db.store, tenant, 20, &Noop {}).await;

        for id in others {
            assert_eq!(until_ended(&db.store, id).await.state, JobState::Done);
        }
        // Longer than what was claimed ahead is kept: nothing goes to and fro.
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
async fn suspects_run_one_at_a_time_in_both_pools_beside_the_others() {
    on_each_database(|db| async move {
        // How many run now, and how many did at most.
        let counts = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
        async fn run(held: jobs::Held, counts: Arc<(AtomicU64, AtomicU64)>) -> Result<Verdict, JobError> {
            if held.job.is_suspect {
                let running = counts.0.fetch_add(1, Ordering::SeqCst) + 1;
                counts.1.fetch_max(running, Ordering::SeqCst);
            }
            tokio::time::sleep(Duration::from_millis(3)).await;
            if held.job.is_suspect {
                counts.0.fetch_sub(1, Ordering::SeqCst);
            }
            Ok(Verdict::Done)
        }
        let (for_io, for_cpu) = (counts.clone(), counts.clone());
        let io = Kind::new(move |held, _: Noop| run(held, for_io.clone()));
        let cpu = Kind::new(move |held, _: Compute| run(held, for_cpu.clone())).on(Pool::Cpu);
        let tenant = tenant(&db.store).await;
        let mut jobs = add_many(&db.store, tenant, 30, &Noop {}).await;
        jobs.extend(add_many(&db.store, tenant, 30, &Compute {}).await);
        suspect_all(&db).await;
        // A backlog of others must not keep them waiting either.
        jobs.extend(add_many(&db.store, tenant, 200, &Noop {}).await);

        let worker = start(&db.store, Kinds::default().with(io).with(cpu));

        for id in jobs {
            assert_eq!(until_ended(&db.store, id).await.state, JobState::Done);
        }
        assert_eq!(counts.1.load(Ordering::SeqCst), 1, "suspects at the same time");
        worker.shut_down().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_was_survived_is_no_suspect_any_more() {
    on_each_database(|db| async move {
        let tenant = tenant(&db.store).await;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let witness = seen.clone();
        let kind = Kind::new(move |held, _: Noop| {
            let mut seen = witness.lock().unwrap();
            seen.push(held.job.is_suspect);
            let first = match seen.len() {
                1 => Err(JobError::Failed { class: "test", message: "once".into() }),
                2 => Err(JobError::Throttled(Duration::ZERO)),
                _ => Ok(Verdict::Done),
            };
            async move { first }
        });
        let failed = add_many(&db.store, tenant, 1, &Noop {}).await[0];
        suspect_all(&db).await;

        let worker = start(&db.store, Kinds::default().with(kind.retried(SOON)));

        assert_eq!(until_ended(&db.store, failed).await.state, JobState::Done);
        assert_eq!(*seen.lock().unwrap(), [true, false, false]);
        worker.shut_down().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_shutdown_cannot_wait_for_is_given_back() {
    on_each_database(|db| async move {
        let tenant = tenant(&db.store).await;
        let (begun, may_end) = (Arc::new(AtomicU64::new(0)), Arc::new(Semaphore::new(0)));
        let (free, is_free) = std::sync::mpsc::channel::<()>();
        let (is_free, has_begun) = (Arc::new(Mutex::new(is_free)), begun.clone());
        // A thread that computes cannot be stopped.
        let compute = Kind::new(move |held: jobs::Held, _: Compute| {
            let is_free = is_free.clone();
            has_begun.fetch_add(1, Ordering::Relaxed);
            async move {
                let _ = is_free.lock().unwrap().recv();
                let mut unit = held.write();
                unit.record_probe(&held.job);
                Ok(Verdict::Commit(unit))
            }
        });
        let suspects = add_many(&db.store, tenant, 2, &Wait {}).await;
        suspect_all(&db).await;
        let mut jobs = add_many(&db.store, tenant, 2, &Wait {}).await;
        jobs.extend(add_many(&db.store, tenant, 1, &Compute {}).await);
        let kinds = Kinds::default().with(wait(&begun, &may_end)).with(compute.on(Pool::Cpu));
        let settings = Settings { grace: Duration::from_millis(100), ..settings() };
        let worker = Worker::start(db.store.clone(), kinds, settings, Arc::new(SystemDice));
        until_begun(&begun, 4).await;

        tokio::time::timeout(DEADLINE, worker.shut_down()).await.expect("a shutdown ends");

        for id in jobs.iter().chain(&suspects) {
            let job = until(&db.store, *id, |_| true).await;
            assert_eq!((job.state, job.attempt, job.abandoned), (JobState::Ready, 0, 0));
        }
        assert_eq!(number(&db, "select count(*) from job_workers where gone_at is null").await, 0);
        // One of them had its turn and did no harm; of the other nothing is known.
        assert_eq!(number(&db, "select sum(suspected) from jobs").await, 1);
        drop(free);
        // Whoever ends later changes nothing: not its job, and nothing beside it.
        let again = start(&db.store, Kinds::default().with(wait(&begun, &may_end)));
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
async fn a_limit_of_one_pool_is_not_forgotten_because_the_other_has_none() {
    on_each_database(|db| async move {
        let tenant = tenant(&db.store).await;
        db.store.system().limit_kind("noop", Limit::AtMost(1)).await.unwrap();
        let jobs = add_many(&db.store, tenant, 20, &Noop {}).await;
        // Only what it is told of is found in time.
        let settings = Settings { poll: Duration::from_secs(600), ..settings() };
        let compute = Kind::new(|_, _: Compute| async { Ok(Verdict::Done) }).on(Pool::Cpu);

        let kinds = Kinds::default().with(probe::noop()).with(compute);
        let worker = Worker::start(db.store.clone(), kinds, settings, Arc::new(SystemDice));

        for id in jobs {
            assert_eq!(until_ended(&db.store, id).await.state, JobState::Done);
        }
        worker.shut_down().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_process_adds_is_found_without_polling() {
    on_each_database(|db| async move {
        let tenant = tenant(&db.store).await;
        let settings = Settings { poll: Duration::from_secs(600), ..settings() };
        let kinds = Kinds::default().with(probe::noop());
        let worker = Worker::start(db.store.clone(), kinds, settings, Arc::new(SystemDice));
        let own = add_many(&db.store, tenant, 1, &Noop {}).await[0];
        until_ended(&db.store, own).await;
        let another = db.second_store();

        for _ in 0..3 {
            let id = add_many(&another, tenant, 1, &Noop {}).await[0];
            let told = async {
                loop {
                    // As a command does it; more than once, because the worker may just be about to listen.
                    another.tell_of_jobs().await.unwrap();
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            };
            let ended = tokio::select! {
                ended = until_ended(&db.store, id) => ended,
                () = told => unreachable!("it tells for ever"),
            };
            assert_eq!(ended.state, JobState::Done);
        }
        worker.shut_down().await;
    })
    .await;
}

/// As when the database's clock went back: what waits stands before the place where claims begin to look.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_stands_where_nobody_looks_is_found() {
    on_each_database(|db| async move {
        let tenant = tenant(&db.store).await;
        let hidden = add_probe(&db.store, tenant, Probe::default()).await;
        db.store.system().count_arrivals().await.unwrap();
        if db.store.dialect() == store::Dialect::Postgres {
            db.run("update job_queues set head = 9000000000000000000").await;
        }
        let worker = start(&db.store, Kinds::default().with(probe::probe(SOON)));

        assert_eq!(until_ended(&db.store, hidden).await.state, JobState::Done);
        worker.shut_down().await;
    })
    .await;
}
