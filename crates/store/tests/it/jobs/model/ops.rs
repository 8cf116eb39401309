//! Operations on the queue. Numbers stand for tenants, jobs and so on; they are resolved when the operation is applied.

use std::time::Duration;

use domain::{JobId, Lane, SystemClock};
use proptest::prelude::*;
use store::sql::jobs::{NewJob, OnConflict, StartTime, UniqueKey};

use super::state::ModelEnd;

pub const KINDS: [&str; 2] = ["a", "b"];
pub const LANES: [Lane; 2] = [Lane::High, Lane::Normal];

#[derive(Debug, Clone)]
pub enum ModelOp {
    Enqueue(u8, Vec<NewModelJob>),
    Count,
    Claim(u8, u8),
    FinishMany(Vec<u8>),
    Finish(u8, ModelEnd),
    Retry(u8, bool),
    Throttle(u8, bool),
    Fail(u8),
    GiveBack(u8, Vec<u8>),
    Mark(u8),
    Expire(u8),
    TimePasses,
    ReadyDue,
    Cancel(u8),
    CancelDoomed,
    Replay(u8),
    ReplayDead,
    Discard(u8),
    Prune,
    Move(u8, u8),
    RetryNow(u8),
    /// Nothing: unlimited. Zero: paused.
    PauseTenant(u8, Option<u8>),
    PauseKind(u8, Option<u8>),
    PauseLane(u8, bool),
}

#[derive(Debug, Clone)]
pub struct NewModelJob {
    pub kind: u8,
    pub lane: u8,
    pub payload: u8,
    pub is_delayed: bool,
    pub unique: Option<(u8, u8)>,
    pub order: Option<u8>,
    pub parents: Vec<u8>,
}

pub fn some(most: usize) -> impl Strategy<Value = Vec<ModelOp>> {
    prop::collection::vec(one(), 1..=most)
}

fn one() -> impl Strategy<Value = ModelOp> {
    let ending = prop_oneof![Just(ModelEnd::Done), Just(ModelEnd::Dead), Just(ModelEnd::Cancelled)];
    prop_oneof![
        12 => (any::<u8>(), prop::collection::vec(new_one(), 1..4)).prop_map(|(tenant, jobs)| ModelOp::Enqueue(tenant, jobs)),
        1 => Just(ModelOp::Count),
        12 => (any::<u8>(), 1u8..5).prop_map(|(worker, most)| ModelOp::Claim(worker, most)),
        5 => few().prop_map(ModelOp::FinishMany),
        5 => (any::<u8>(), ending).prop_map(|(which, ending)| ModelOp::Finish(which, ending)),
        3 => (any::<u8>(), any::<bool>()).prop_map(|(which, is_due)| ModelOp::Retry(which, is_due)),
        2 => (any::<u8>(), any::<bool>()).prop_map(|(which, is_due)| ModelOp::Throttle(which, is_due)),
        2 => any::<u8>().prop_map(ModelOp::Fail),
        2 => (any::<u8>(), few()).prop_map(|(worker, which)| ModelOp::GiveBack(worker, which)),
        2 => any::<u8>().prop_map(ModelOp::Mark),
        2 => any::<u8>().prop_map(ModelOp::Expire),
        1 => Just(ModelOp::TimePasses),
        4 => Just(ModelOp::ReadyDue),
        3 => any::<u8>().prop_map(ModelOp::Cancel),
        3 => Just(ModelOp::CancelDoomed),
        2 => any::<u8>().prop_map(ModelOp::Replay),
        1 => Just(ModelOp::ReplayDead),
        1 => any::<u8>().prop_map(ModelOp::Discard),
        1 => Just(ModelOp::Prune),
        2 => (any::<u8>(), any::<u8>()).prop_map(|(which, lane)| ModelOp::Move(which, lane)),
        2 => any::<u8>().prop_map(ModelOp::RetryNow),
        1 => (any::<u8>(), limit()).prop_map(|(tenant, limit)| ModelOp::PauseTenant(tenant, limit)),
        1 => (any::<u8>(), limit()).prop_map(|(kind, limit)| ModelOp::PauseKind(kind, limit)),
        1 => (any::<u8>(), any::<bool>()).prop_map(|(lane, is_paused)| ModelOp::PauseLane(lane, is_paused)),
    ]
}

fn few() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 1..5)
}

fn limit() -> impl Strategy<Value = Option<u8>> {
    prop_oneof![3 => Just(None), 1 => Just(Some(0)), 2 => (1u8..4).prop_map(Some)]
}

fn new_one() -> impl Strategy<Value = NewModelJob> {
    let unique = prop::option::weighted(0.35, (any::<u8>(), any::<u8>()));
    let order = prop::option::weighted(0.35, any::<u8>());
    let parents = prop_oneof![3 => Just(Vec::new()), 2 => prop::collection::vec(any::<u8>(), 1..3)];
    let is_delayed = prop::bool::weighted(0.2);
    (any::<u8>(), any::<u8>(), any::<u8>(), is_delayed, unique, order, parents).prop_map(
        |(kind, lane, payload, is_delayed, unique, order, parents)| NewModelJob {
            kind,
            lane,
            payload,
            is_delayed,
            unique,
            order,
            parents,
        },
    )
}

impl NewModelJob {
    /// As it is for the store, when these are the tenant's jobs.
    pub fn resolve(&self, ids: &[JobId]) -> NewJob {
        let policies = [OnConflict::Keep, OnConflict::Replace, OnConflict::Merge];
        let unique = self.unique.map(|(key, policy)| UniqueKey {
            key: format!("unique-{}", key % 2),
            policy: policies[usize::from(policy) % 3],
        });
        NewJob {
            id: new_id(),
            kind: KINDS[usize::from(self.kind) % 2].to_owned(),
            lane: LANES[usize::from(self.lane) % 2],
            payload: serde_json::json!({"n": self.payload}),
            when: if self.is_delayed { StartTime::In(Duration::from_secs(3600)) } else { StartTime::Now },
            unique,
            order_key: self.order.map(|key| format!("order-{}", key % 2)),
            after: self
                .parents
                .iter()
                .filter_map(|which: &u8| match usize::from(*which) {
                    // One that does not exist: pruned, perhaps.
                    255 => Some(new_id()),
                    which => ids.get(ids.len().saturating_sub(1 + which % 10)).copied(),
                })
                .collect(),
            traceparent: None,
        }
    }
}

pub fn new_id() -> JobId {
    JobId::new(&SystemClock)
}
