//! What can be done to the queue. Numbers stand for tenants, jobs and so on; what they mean is decided when it happens.

use std::time::Duration;

use domain::{JobId, Lane, SystemClock};
use proptest::prelude::*;
use store::sql::jobs::{NewJob, OnConflict, Unique, When};

use super::state::Ending;

pub const KINDS: [&str; 2] = ["a", "b"];
pub const LANES: [Lane; 2] = [Lane::High, Lane::Normal];

#[derive(Debug, Clone)]
pub enum Op {
    Enqueue(u8, Vec<NewOne>),
    Count,
    Claim(u8, u8),
    FinishMany(Vec<u8>),
    Finish(u8, Ending),
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
pub struct NewOne {
    pub kind: u8,
    pub lane: u8,
    pub payload: u8,
    pub is_delayed: bool,
    pub unique: Option<(u8, u8)>,
    pub order: Option<u8>,
    pub parents: Vec<u8>,
}

pub fn some(most: usize) -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(one(), 1..=most)
}

fn one() -> impl Strategy<Value = Op> {
    let small = || prop::collection::vec(any::<u8>(), 1..5);
    let ending = prop_oneof![Just(Ending::Done), Just(Ending::Dead), Just(Ending::Cancelled)];
    let limit = || prop_oneof![3 => Just(None), 1 => Just(Some(0)), 2 => (1u8..4).prop_map(Some)];
    prop_oneof![
        12 => (any::<u8>(), prop::collection::vec(new_one(), 1..4)).prop_map(|(tenant, jobs)| Op::Enqueue(tenant, jobs)),
        1 => Just(Op::Count),
        12 => (any::<u8>(), 1u8..5).prop_map(|(worker, most)| Op::Claim(worker, most)),
        5 => small().prop_map(Op::FinishMany),
        5 => (any::<u8>(), ending).prop_map(|(which, ending)| Op::Finish(which, ending)),
        3 => (any::<u8>(), any::<bool>()).prop_map(|(which, is_due)| Op::Retry(which, is_due)),
        2 => (any::<u8>(), any::<bool>()).prop_map(|(which, is_due)| Op::Throttle(which, is_due)),
        2 => any::<u8>().prop_map(Op::Fail),
        2 => (any::<u8>(), small()).prop_map(|(worker, which)| Op::GiveBack(worker, which)),
        2 => any::<u8>().prop_map(Op::Mark),
        2 => any::<u8>().prop_map(Op::Expire),
        1 => Just(Op::TimePasses),
        4 => Just(Op::ReadyDue),
        3 => any::<u8>().prop_map(Op::Cancel),
        3 => Just(Op::CancelDoomed),
        2 => any::<u8>().prop_map(Op::Replay),
        1 => Just(Op::ReplayDead),
        1 => any::<u8>().prop_map(Op::Discard),
        1 => Just(Op::Prune),
        2 => (any::<u8>(), any::<u8>()).prop_map(|(which, lane)| Op::Move(which, lane)),
        2 => any::<u8>().prop_map(Op::RetryNow),
        1 => (any::<u8>(), limit()).prop_map(|(tenant, limit)| Op::PauseTenant(tenant, limit)),
        1 => (any::<u8>(), limit()).prop_map(|(kind, limit)| Op::PauseKind(kind, limit)),
        1 => (any::<u8>(), any::<bool>()).prop_map(|(lane, is_paused)| Op::PauseLane(lane, is_paused)),
    ]
}

fn new_one() -> impl Strategy<Value = NewOne> {
    let unique = prop::option::weighted(0.35, (any::<u8>(), any::<u8>()));
    let order = prop::option::weighted(0.35, any::<u8>());
    let parents = prop_oneof![3 => Just(Vec::new()), 2 => prop::collection::vec(any::<u8>(), 1..3)];
    let is_delayed = prop::bool::weighted(0.2);
    (any::<u8>(), any::<u8>(), any::<u8>(), is_delayed, unique, order, parents).prop_map(
        |(kind, lane, payload, is_delayed, unique, order, parents)| NewOne {
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

impl NewOne {
    /// As it is for the store, when these are the tenant's jobs.
    pub fn resolve(&self, ids: &[JobId]) -> NewJob {
        let policies = [OnConflict::Keep, OnConflict::Replace, OnConflict::Merge];
        let unique = self.unique.map(|(key, policy)| Unique {
            key: format!("unique-{}", key % 2),
            policy: policies[usize::from(policy) % 3],
        });
        let parent = |which: &u8| match usize::from(*which) {
            // One that nobody knows: pruned, perhaps.
            255 => Some(new_id()),
            which => ids.get(ids.len().saturating_sub(1 + which % 10)).copied(),
        };
        NewJob {
            id: new_id(),
            kind: KINDS[usize::from(self.kind) % 2].to_owned(),
            lane: LANES[usize::from(self.lane) % 2],
            payload: serde_json::json!({"n": self.payload}),
            when: if self.is_delayed { When::In(Duration::from_secs(3600)) } else { When::Now },
            unique,
            order_key: self.order.map(|key| format!("order-{}", key % 2)),
            after: self.parents.iter().filter_map(parent).collect(),
            traceparent: None,
        }
    }
}

pub fn new_id() -> JobId {
    JobId::new(&SystemClock)
}
