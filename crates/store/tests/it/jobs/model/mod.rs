//! Random operations on the queue, each also done to a model in memory; after every one of them both must say the same.
//!
//! On PostgreSQL the operations go through two pools in turn.

mod ops;
mod state;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use domain::{JobId, Lane, TenantId, WorkerId};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use store::sql::jobs::{
    AfterFailure, AttemptFailure, AttemptOutcome, CancelOutcome, ClaimedJob, JobEnd, JobFilter, JobRetention, NewJob,
    ReplayOptions, RetryOutcome,
};
use store::testing::{TestDatabase, on_each_database};
use store::{Store, StoreError, SystemStore};

use self::ops::{KINDS, LANES, ModelOp, NewModelJob, new_id};
use self::state::{Model, ModelEnd, ModelJob, ModelState, QueueKey};
use super::invariants::assert_invariants;
use super::transitions::claim;
use crate::samples::tenant;

/// The average case has half of it.
const MAX_CASE_OPS: usize = 100;

/// Operations over all cases, on each database.
const MIN_TOTAL_OPS: usize = 5_000;

#[expect(clippy::disallowed_methods, reason = "a failure is repeated with its seed")]
fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn queue_behaves_like_the_model() {
    let seed = setting("MAILROOM_TEST_SEED", 1);
    let cases = 110 * setting("MAILROOM_TEST_CHAOS_ROUNDS", 10).div_ceil(10);
    println!("MAILROOM_TEST_SEED={seed}");
    on_each_database(|db| async move {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let config = Config {
            cases: u32::try_from(cases).unwrap(),
            failure_persistence: None,
            max_shrink_iters: 3000,
            ..Config::default()
        };
        let stores = [db.store.clone(), second(&db)];
        let tenants = [tenant(&db.store, "one").await.id, tenant(&db.store, "two").await.id, TenantId::SYSTEM];
        let runtime = tokio::runtime::Handle::current();
        let done = AtomicUsize::new(0);
        let outcome = tokio::task::block_in_place(|| {
            TestRunner::new_with_rng(config, rng).run(&ops::some(MAX_CASE_OPS), |ops| {
                runtime.block_on(case(&db, &stores, tenants, &ops));
                done.fetch_add(ops.len(), Ordering::Relaxed);
                Ok::<_, TestCaseError>(())
            })
        });
        if let Err(TestError::Fail(reason, ops)) = outcome {
            panic!("{:?}: {reason}; the shortest operations that show it: {ops:?}", db.store.dialect());
        }
        let done = done.into_inner();
        println!("{:?}: {done} operations in {cases} cases", db.store.dialect());
        assert!(done >= MIN_TOTAL_OPS);
    })
    .await;
}

/// SQLite has one writer, so that a second store adds nothing.
fn second(db: &TestDatabase) -> Store {
    match db.store.dialect() {
        store::Dialect::Postgres => db.second_store(),
        store::Dialect::Sqlite => db.store.clone(),
    }
}

async fn case(db: &TestDatabase, stores: &[Store; 2], tenants: [TenantId; 3], ops: &[ModelOp]) {
    let mut tables =
        vec!["jobs", "finished_jobs", "job_edges", "job_keys", "job_attempts", "job_queues", "job_tenants"];
    tables.extend(["job_kinds", "job_workers"]);
    if db.store.dialect() == store::Dialect::Postgres {
        tables.push("job_arrivals");
    }
    let delete: Vec<String> = tables.iter().map(|table| format!("delete from {table}")).collect();
    let mut clear: Vec<&str> = delete.iter().map(String::as_str).collect();
    clear.push("update job_lanes set is_paused = false");
    db.run_all(&clear).await;
    let mut world = ModelRun::new(db, stores, tenants).await;
    for op in ops {
        world.model.now += 1;
        world.apply(op).await;
        world.compare(op).await;
    }
    assert_invariants(db, "after all operations").await;
    world.end_all().await;
    assert_invariants(db, "after everything ended").await;
}

struct ModelRun<'a> {
    db: &'a TestDatabase,
    stores: &'a [Store; 2],
    model: Model,
    tenants: [TenantId; 3],
    workers: [WorkerId; 2],
    /// All jobs that were claimed, also those that were reclaimed since.
    claimed: Vec<ClaimedJob>,
}

impl<'a> ModelRun<'a> {
    async fn new(db: &'a TestDatabase, stores: &'a [Store; 2], tenants: [TenantId; 3]) -> Self {
        let workers = [register(&stores[0]).await, register(&stores[1]).await];
        Self { db, stores, model: Model::default(), tenants, workers, claimed: Vec::new() }
    }

    /// They take turns.
    fn system(&self) -> SystemStore {
        self.stores[(self.model.now % 2) as usize].system()
    }

    fn store(&self) -> &Store {
        &self.stores[(self.model.now % 2) as usize]
    }

    async fn apply(&mut self, op: &ModelOp) {
        match op {
            ModelOp::Enqueue(tenant, jobs) => self.enqueue(*tenant, jobs).await,
            ModelOp::Count => self.system().count_arrivals().await.unwrap(),
            ModelOp::Claim(worker, most) => self.claim(*worker, u64::from(*most)).await,
            ModelOp::FinishMany(which) => self.finish_many(which).await,
            ModelOp::Finish(which, ending) => self.finish(*which, *ending).await,
            ModelOp::Retry(which, is_due) => self.put_back(*which, *is_due, 1).await,
            ModelOp::Throttle(which, is_due) => self.put_back(*which, *is_due, 0).await,
            ModelOp::Fail(which) => self.fail(*which).await,
            ModelOp::GiveBack(worker, which) => self.give_back(*worker, which).await,
            ModelOp::Mark(which) => self.mark(*which).await,
            ModelOp::Expire(worker) => self.expire(*worker).await,
            ModelOp::TimePasses => self.time_passes().await,
            ModelOp::ReadyDue => {
                self.system().promote_due_jobs().await.unwrap();
                self.model.ready_due();
            }
            ModelOp::Cancel(which) => self.cancel(*which).await,
            ModelOp::CancelDoomed => self.cancel_doomed().await,
            ModelOp::Replay(which) => self.replay(*which).await,
            ModelOp::ReplayDead => self.replay_dead().await,
            ModelOp::Discard(which) => self.discard(*which).await,
            ModelOp::Prune => self.prune().await,
            ModelOp::Move(which, lane) => self.move_to(*which, *lane).await,
            ModelOp::RetryNow(which) => self.retry_now(*which).await,
            ModelOp::PauseTenant(tenant, is_paused) => self.pause_tenant(*tenant, *is_paused).await,
            ModelOp::PauseKind(kind, is_paused) => self.pause_kind(*kind, *is_paused).await,
            ModelOp::PauseLane(lane, is_paused) => self.pause_lane(*lane, *is_paused).await,
        }
    }

    async fn enqueue(&mut self, tenant: u8, jobs: &[NewModelJob]) {
        let tenant = self.tenants[usize::from(tenant) % 3];
        let ids: Vec<JobId> =
            self.model.jobs.iter().filter(|(_, job)| job.tenant == tenant).map(|(id, _)| *id).collect();
        let jobs: Vec<NewJob> = jobs.iter().map(|job| job.resolve(&ids)).collect();
        let mut unit = self.system().write_for(tenant);
        unit.enqueue(jobs.clone());
        unit.commit().await.unwrap();
        self.model.enqueue(tenant, &jobs);
    }

    async fn claim(&mut self, worker: u8, most: u64) {
        let worker = self.workers[usize::from(worker) % 2];
        let before = self.model.claimable();
        let (tenant_rooms, kind_rooms) = self.rooms();
        let claimed = claim(self.store(), worker, most).await;

        let mut taken: BTreeMap<QueueKey, BTreeSet<JobId>> = BTreeMap::new();
        for job in &claimed {
            let is_new = taken.entry((job.tenant, job.lane, job.kind.clone())).or_default().insert(job.id);
            assert!(is_new, "{} was claimed twice at once", job.id);
            let there = self.model.jobs.get_mut(&job.id).expect("only what was enqueued is claimed");
            assert_eq!(there.state, ModelState::Ready, "{} is claimed", job.id);
            (there.state, there.worker, there.rerun) = (ModelState::Running, Some(worker), false);
            there.token += 1;
            assert_eq!((job.token, job.attempt, &job.payload), (there.token, there.attempt, &there.payload));
            assert_eq!(job.is_suspect, there.suspected > 0);
        }
        self.check_amounts(&before, &taken, most, &tenant_rooms, &kind_rooms);
        self.claimed.extend(claimed);
    }

    /// How many more may run.
    fn rooms(&self) -> (BTreeMap<TenantId, u64>, BTreeMap<String, u64>) {
        let model = &self.model;
        let tenants = model.tenant_limits.iter();
        let kinds = model.kind_limits.iter();
        (
            tenants.map(|(id, limit)| (*id, limit.saturating_sub(model.running(|job| job.tenant == *id)))).collect(),
            kinds
                .map(|(kind, limit)| (kind.clone(), limit.saturating_sub(model.running(|job| job.kind == *kind))))
                .collect(),
        )
    }

    /// As much as there was and no limit forbids, oldest first, and nothing of what is paused.
    fn check_amounts(
        &self,
        before: &BTreeMap<QueueKey, Vec<(u64, JobId)>>,
        taken: &BTreeMap<QueueKey, BTreeSet<JobId>>,
        most: u64,
        tenant_rooms: &BTreeMap<TenantId, u64>,
        kind_rooms: &BTreeMap<String, u64>,
    ) {
        let empty = BTreeSet::new();
        for (queue, ids) in taken {
            assert!(before.contains_key(queue), "{queue:?} gave {ids:?}, though it is paused or has other jobs");
        }
        let (mut wanted_of, mut taken_of) = (HashMap::<String, u64>::new(), HashMap::<String, u64>::new());
        for (queue, ready) in before {
            let ids = taken.get(queue).unwrap_or(&empty);
            let (wanted, got) = (most.min(ready.len() as u64), ids.len() as u64);
            let names = [queue.0.to_string(), queue.2.clone()];
            for name in names {
                *wanted_of.entry(name.clone()).or_default() += wanted;
                *taken_of.entry(name).or_default() += got;
            }
            let is_limited = tenant_rooms.contains_key(&queue.0) || kind_rooms.contains_key(&queue.2);
            assert!(got == wanted || (is_limited && got < wanted), "{queue:?} gave {got} of {wanted}");
            let last_taken = ready.iter().filter(|(_, id)| ids.contains(id)).map(|(rank, _)| rank).max();
            let first_left = ready.iter().filter(|(_, id)| !ids.contains(id)).map(|(rank, _)| rank).min();
            if let (Some(last), Some(first)) = (last_taken, first_left) {
                assert!(last <= first, "{queue:?}: one of {last} was taken before one of {first}");
            }
        }
        let rooms = tenant_rooms.iter().map(|(id, room)| (id.to_string(), *room));
        let is_simple = tenant_rooms.is_empty() || kind_rooms.is_empty();
        for (name, room) in rooms.chain(kind_rooms.iter().map(|(kind, room)| (kind.clone(), *room))) {
            let taken = taken_of.get(&name).copied().unwrap_or(0);
            let wanted = wanted_of.get(&name).copied().unwrap_or(0);
            assert!(taken <= room, "{name} has room for {room} and got {}", taken);
            if is_simple {
                assert_eq!(taken, room.min(wanted), "{name} has room for {room}");
            }
        }
    }

    fn pick(&self, which: u8) -> Option<ClaimedJob> {
        (!self.claimed.is_empty()).then(|| {
            // Rather one of the last: most of the older ones have ended.
            let back = usize::from(which) % self.claimed.len().min(12);
            self.claimed[self.claimed.len() - 1 - back].clone()
        })
    }

    async fn finish_many(&mut self, which: &[u8]) {
        let mut jobs: Vec<ClaimedJob> = which.iter().filter_map(|which| self.pick(*which)).collect();
        jobs.sort_by_key(|job| (job.id, job.token));
        jobs.dedup_by_key(|job| (job.id, job.token));
        let made = RefCell::new(Vec::new());
        let finished = self.system().finish_done(&jobs, || make(&made)).await.unwrap();
        let held: BTreeSet<JobId> = jobs.iter().filter(|job| self.model.holds(job)).map(|job| job.id).collect();
        assert_eq!(finished.iter().copied().collect::<BTreeSet<_>>(), held);
        // Those without keys that were not enqueued again end at once; then the others, one by one.
        let (free, mut bound): (Vec<_>, Vec<_>) = jobs.iter().partition(|job| job.order_key.is_none());
        for job in free {
            if self.model.holds(job) && !self.model.jobs[&job.id].rerun {
                self.model.end(job.id, ModelEnd::Done, None);
            } else if job.is_unique {
                bound.push(job);
            }
        }
        let mut successors = made.into_inner().into_iter();
        for job in bound {
            if let (successor, true) = (successors.next(), self.model.holds(job)) {
                self.model.end(job.id, ModelEnd::Done, successor);
            }
        }
    }

    async fn finish(&mut self, which: u8, ending: ModelEnd) {
        let Some(job) = self.pick(which) else { return };
        let successor = new_id();
        let end = match ending {
            ModelEnd::Done => JobEnd::Done,
            ModelEnd::Dead => JobEnd::Dead { reason: "x", error_class: "x", fingerprint: "x" },
            ModelEnd::Cancelled => JobEnd::Cancelled { reason: "x" },
        };
        let mut unit = self.system().write_for(job.tenant);
        unit.finish(&job, end, successor);
        let outcome = unit.commit().await;
        let held = self.model.holds(&job);
        match outcome {
            Ok(_) => assert!(held, "{} is not held and was ended", job.id),
            Err(StoreError::Precondition(_)) => assert!(!held, "{} is held and was not ended", job.id),
            Err(e) => panic!("{e}"),
        }
        if held {
            self.model.end(job.id, ending, Some(successor));
        }
    }

    async fn fail(&mut self, which: u8) {
        let Some(job) = self.pick(which) else { return };
        let (held, successor) = (self.model.holds(&job), new_id());
        let failed = self.system().fail_job(&job, &failure(), AfterFailure::Dead, successor).await.unwrap();
        assert_eq!(failed, held);
        if held {
            self.model.jobs.get_mut(&job.id).unwrap().attempt += 1;
            self.model.end(job.id, ModelEnd::Dead, Some(successor));
        }
    }

    async fn put_back(&mut self, which: u8, is_due: bool, spent: u64) {
        let Some(job) = self.pick(which) else { return };
        let delay = if is_due { Duration::ZERO } else { Duration::from_secs(3600) };
        let held = self.model.holds(&job);
        let put = match spent {
            0 => self.system().defer_job(&job, delay, None).await,
            _ => self.system().fail_job(&job, &failure(), AfterFailure::RetryIn(delay), new_id()).await,
        };
        assert_eq!(put.unwrap(), held);
        if held {
            let there = self.model.jobs.get_mut(&job.id).unwrap();
            let state = there.unless_unwanted(ModelState::Retry);
            (there.state, there.is_due, there.worker, there.is_marked) = (state, is_due, None, false);
            there.attempt += spent;
            there.suspected = 0;
        }
    }

    async fn give_back(&mut self, worker: u8, which: &[u8]) {
        let worker = self.workers[usize::from(worker) % 2];
        let ids: BTreeSet<JobId> = which.iter().filter_map(|which| Some(self.pick(*which)?.id)).collect();
        let returned = self.system().return_jobs(worker, &ids.iter().copied().collect::<Vec<_>>()).await.unwrap();
        let mut expected = 0;
        for id in ids {
            if let Some(job) = self.model.jobs.get_mut(&id)
                && job.state == ModelState::Running
                && job.worker == Some(worker)
            {
                job.suspected = if job.is_marked { 0 } else { job.suspected };
                (job.state, job.worker, job.is_marked) = (job.unless_unwanted(ModelState::Ready), None, false);
                expected += 1;
            }
        }
        assert_eq!(returned, expected);
    }

    async fn mark(&mut self, which: u8) {
        let Some(job) = self.pick(which) else { return };
        let held = self.model.holds(&job);
        assert_eq!(self.system().mark_started(&job).await.unwrap(), held);
        if held {
            self.model.jobs.get_mut(&job.id).unwrap().is_marked = true;
        }
    }

    /// The process is dead, and another one takes its place.
    async fn expire(&mut self, worker: u8) {
        let n = usize::from(worker) % 2;
        let past = past(self.db);
        self.db.run(&format!("update job_workers set lease_until = {past} where id = '{}'", self.workers[n])).await;
        let made = RefCell::new(Vec::new());
        self.system().reclaim_abandoned_jobs(|| make(&made)).await.unwrap();
        self.model.take_back(self.workers[n], made.into_inner());
        self.workers[n] = register(self.store()).await;
    }

    async fn time_passes(&mut self) {
        self.db.run(&format!("update jobs set run_at = {}", past(self.db))).await;
        self.model.jobs.values_mut().for_each(|job| job.is_due = true);
    }

    /// One of the last, in whatever state.
    fn pick_any(&self, which: u8) -> Option<(JobId, TenantId, ModelState)> {
        let (id, job) = self.model.jobs.iter().rev().nth(usize::from(which) % self.model.jobs.len().clamp(1, 20))?;
        Some((*id, job.tenant, job.state))
    }

    async fn replay(&mut self, which: u8) {
        let Some((id, tenant, state)) = self.pick_any(which) else { return };
        let payload = serde_json::json!({"n": "edited"});
        let replay = ReplayOptions { payload: Some(payload.clone()), ..ReplayOptions::default() };
        let replayed = self.system().replay_one(tenant, id, &replay).await.unwrap();
        let expected = matches!(state, ModelState::Dead | ModelState::Cancelled) && self.model.replay(id);
        assert_eq!(replayed, expected);
        if replayed {
            self.model.jobs.get_mut(&id).unwrap().payload = payload;
        }
    }

    async fn replay_dead(&mut self) {
        // Those without keys first.
        let dead = |(id, job): (&JobId, &ModelJob)| {
            let has_keys = job.unique.is_some() || job.order.is_some();
            (job.state == ModelState::Dead).then_some((has_keys, job.tenant, *id))
        };
        let mut dead: Vec<_> = self.model.jobs.iter().filter_map(dead).collect();
        dead.sort_unstable();
        let replayed = self.system().replay_dead(&JobFilter::default(), &ReplayOptions::default()).await.unwrap();
        let expected = dead.into_iter().filter(|(_, _, id)| self.model.replay(*id)).count();
        assert_eq!(replayed, expected as u64);
    }

    async fn discard(&mut self, which: u8) {
        let Some((id, tenant, state)) = self.pick_any(which) else { return };
        assert_eq!(self.system().discard_one(tenant, id).await.unwrap(), state == ModelState::Dead);
        if state == ModelState::Dead {
            self.model.jobs.remove(&id);
        }
    }

    async fn prune(&mut self) {
        self.db.run(&format!("update finished_jobs set ended_at = {}", past(self.db))).await;
        let hour = Duration::from_secs(3600);
        self.system().prune_jobs(JobRetention { finished: hour, dead: hour }).await.unwrap();
        self.model.jobs.retain(|_, job| job.state.is_live());
    }

    async fn move_to(&mut self, which: u8, lane: u8) {
        let Some((id, tenant, state)) = self.pick_any(which) else { return };
        let lane = LANES[usize::from(lane) % 2];
        let moved = self.system().move_job(tenant, id, lane).await.unwrap();
        let job = self.model.jobs.get_mut(&id).unwrap();
        assert_eq!(moved, state.is_live() && job.lane != lane);
        if moved {
            job.lane = lane;
        }
    }

    async fn retry_now(&mut self, which: u8) {
        let Some((id, _, state)) = self.pick_any(which) else { return };
        let answer = self.system().retry_now(id).await.unwrap().unwrap();
        let now = self.model.now;
        match state {
            ModelState::Scheduled | ModelState::Retry => {
                assert_eq!(answer, RetryOutcome::Due);
                let job = self.model.jobs.get_mut(&id).unwrap();
                (job.state, job.is_due, job.rank) = (ModelState::Ready, true, now);
            }
            ModelState::Dead | ModelState::Cancelled if self.model.replay(id) => {
                assert_eq!(answer, RetryOutcome::Replayed);
            }
            _ => assert!(matches!(answer, RetryOutcome::Not { .. }), "{answer:?}"),
        }
    }

    async fn cancel(&mut self, which: u8) {
        let Some((id, tenant, state)) = self.pick_any(which) else { return };
        let answer = self.system().cancel_job(tenant, id, "x").await.unwrap();
        let expected = match state {
            ModelState::Running => CancelOutcome::Requested,
            state if state.is_live() => CancelOutcome::Cancelled,
            _ => CancelOutcome::NotLive,
        };
        assert_eq!(answer, expected);
        match answer {
            CancelOutcome::Cancelled => self.model.end(id, ModelEnd::Cancelled, None),
            CancelOutcome::Requested => {
                let job = self.model.jobs.get_mut(&id).unwrap();
                (job.is_unwanted, job.rerun) = (true, false);
            }
            CancelOutcome::NotLive => {}
        }
    }

    async fn cancel_doomed(&mut self) {
        let doomed: Vec<JobId> =
            self.model.jobs.iter().filter(|(_, job)| job.state == ModelState::Doomed).map(|(id, _)| *id).collect();
        assert_eq!(self.system().cancel_doomed_jobs().await.unwrap(), doomed.len() as u64);
        for id in doomed {
            self.model.end(id, ModelEnd::Cancelled, None);
        }
    }

    /// With a limit or without, paused or not.
    async fn pause_tenant(&mut self, tenant: u8, limit: Option<u8>) {
        let id = self.tenants[usize::from(tenant) % 3];
        let (is_paused, limit) = (limit == Some(0), limit.map(u64::from).filter(|limit| *limit > 0));
        self.db.run(&format!("delete from job_tenants where tenant_id = '{id}'")).await;
        let sql = "insert into job_tenants (tenant_id, is_paused, most_running)";
        self.db.run(&format!("{sql} values ('{id}', {is_paused}, {})", null_or(limit))).await;
        set(&mut self.model.paused_tenants, id, is_paused);
        self.model.tenant_limits.remove(&id);
        self.model.tenant_limits.extend(limit.map(|limit| (id, limit)));
    }

    async fn pause_kind(&mut self, kind: u8, limit: Option<u8>) {
        let kind = KINDS[usize::from(kind) % 2].to_owned();
        let (is_paused, limit) = (limit == Some(0), limit.map(u64::from).filter(|limit| *limit > 0));
        self.db.run(&format!("delete from job_kinds where kind = '{kind}'")).await;
        let sql = "insert into job_kinds (kind, is_paused, most_running)";
        self.db.run(&format!("{sql} values ('{kind}', {is_paused}, {})", null_or(limit))).await;
        set(&mut self.model.paused_kinds, kind.clone(), is_paused);
        self.model.kind_limits.remove(&kind);
        self.model.kind_limits.extend(limit.map(|limit| (kind, limit)));
    }

    async fn pause_lane(&mut self, lane: u8, is_paused: bool) {
        let lane = LANES[usize::from(lane) % 2];
        self.db.run(&format!("update job_lanes set is_paused = {is_paused} where lane = {}", lane.number())).await;
        set(&mut self.model.paused_lanes, lane as u8, is_paused);
    }

    /// Every job is where the model has it, and nowhere else.
    async fn compare(&self, op: &ModelOp) {
        let sql = "select id, state, token, attempt, abandoned, lane, rerun, is_behind, suspected, is_marked from jobs
                   union all
                   select id, state, token, attempt, abandoned, lane, null, null, null, null from finished_jobs";
        let rows = self.db.rows(sql).await;
        assert_eq!(rows.len(), self.model.jobs.len(), "after {op:?}");
        for row in rows {
            let id: JobId = row.get(0).unwrap();
            let job = self.model.jobs.get(&id).unwrap_or_else(|| panic!("after {op:?}: {id} should not be"));
            let here: (String, u64, u64, u64, Lane) = (
                row.get(1).unwrap(),
                row.get(2).unwrap(),
                row.get(3).unwrap(),
                row.get(4).unwrap(),
                row.get(5).unwrap(),
            );
            let there = (job.state.text(), job.token, job.attempt, job.abandoned, job.lane);
            assert_eq!(here, there, "after {op:?}: {id}");
            if job.state.is_live() {
                let here: (bool, bool, u64, bool) =
                    (row.get(6).unwrap(), row.get(7).unwrap(), row.get(8).unwrap(), row.get(9).unwrap());
                let there = (job.rerun, job.is_behind, job.suspected, job.is_marked);
                assert_eq!(here, there, "after {op:?}: {id}: rerun, is_behind, suspected, is_marked");
            }
        }
    }

    /// Nothing is stuck: without limits, pauses and delays all of it ends, each key in its order.
    async fn end_all(&mut self) {
        self.db
            .run_all(&["delete from job_tenants", "delete from job_kinds", "update job_lanes set is_paused = false"])
            .await;
        self.time_passes().await;
        let system = self.system();
        let mut held = self.claimed.clone();
        let mut last: HashMap<(TenantId, String), u64> = HashMap::new();
        for _ in 0..1000 {
            held.retain(|job| self.model.holds(job));
            for job in held.drain(..) {
                if let Some((key, number)) = self.model.jobs[&job.id].order.clone() {
                    let before = last.insert((job.tenant, key), number);
                    assert!(before.is_none_or(|before| before <= number), "{} came before its turn", job.id);
                }
                let successor = new_id();
                assert_eq!(system.finish_done(std::slice::from_ref(&job), || successor).await.unwrap().len(), 1);
                self.model.end(job.id, ModelEnd::Done, Some(successor));
            }
            self.cancel_doomed().await;
            system.promote_due_jobs().await.unwrap();
            held = claim(&self.stores[0], self.workers[0], 100).await;
            for job in &held {
                let there = self.model.jobs.get_mut(&job.id).unwrap();
                (there.state, there.token, there.rerun) = (ModelState::Running, job.token, false);
            }
            if held.is_empty() && self.db.rows("select 1 from jobs where state = 'doomed'").await.is_empty() {
                break;
            }
        }
        let left = self.db.rows("select id, state, blockers, is_behind from jobs").await;
        assert!(left.is_empty(), "these never end: {left:?}");
        assert!(self.model.jobs.values().all(|job| !job.state.is_live()));
        assert!(self.db.rows("select 1 from job_edges").await.is_empty(), "edges are left");
    }
}

/// An id that is remembered.
fn make(made: &RefCell<Vec<JobId>>) -> JobId {
    let id = new_id();
    made.borrow_mut().push(id);
    id
}

fn set<T: Ord>(these: &mut BTreeSet<T>, one: T, is_in: bool) {
    if is_in {
        these.insert(one);
    } else {
        these.remove(&one);
    }
}

fn null_or(limit: Option<u64>) -> String {
    limit.map_or("null".to_owned(), |limit| limit.to_string())
}

fn past(db: &TestDatabase) -> &'static str {
    match db.store.dialect() {
        store::Dialect::Postgres => "'2020-01-01T00:00:00Z'::timestamptz",
        store::Dialect::Sqlite => "'2020-01-01T00:00:00.000Z'",
    }
}

async fn register(store: &Store) -> WorkerId {
    store.system().register_worker("test", &[], Duration::from_secs(3600)).await.unwrap()
}

fn failure() -> AttemptFailure {
    AttemptFailure {
        outcome: AttemptOutcome::Failed,
        error_class: "x".into(),
        message: "x".into(),
        fingerprint: "x".into(),
    }
}
