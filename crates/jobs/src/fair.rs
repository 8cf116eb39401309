//! Fair queueing: divides the next claim among lanes and tenants.
//!
//! It is start-time fair queueing over tenants. Every tenant has a virtual clock in each lane, which each of its jobs
//! advances, by less the more weight the tenant has; the tenant whose clock is furthest behind is served first. A tenant
//! with a hundred thousand jobs and one with ten get the same share while both have work, and none waits longer than one
//! round.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use domain::{Lane, TenantId};
use store::sql::jobs::{ClaimShare, ClaimedJob, FULL_COST, QueueCandidate};

/// The cost of a job for a tenant of weight 1, in the units of `vtime`.
pub const UNIT_JOB_COST: i64 = FULL_COST;

/// Guaranteed shares, in tenths, of the slots that critical jobs leave free.
const LANE_SHARES: [(Lane, u64); 3] = [(Lane::High, 6), (Lane::Normal, 3), (Lane::Low, 1)];

/// Plans how many jobs of which queue to claim, at most `slots` in all. All queues of a served tenant are listed, even
/// those from which nothing is claimed, so that all of its clocks advance together.
pub fn plan_shares(candidates: &[QueueCandidate], slots: u64) -> Vec<ClaimShare> {
    let mut capacity = RemainingCapacity::of(candidates);
    let mut lanes: BTreeMap<Lane, LaneQueues> = BTreeMap::new();
    for candidate in candidates {
        lanes.entry(candidate.lane).or_default().add(candidate);
    }
    let mut left = slots;
    if let Some(critical) = lanes.get_mut(&Lane::Critical) {
        left -= critical.take(left, &mut capacity);
    }
    let shared = left;
    for (lane, share) in LANE_SHARES {
        if let Some(queues) = lanes.get_mut(&lane) {
            left -= queues.take((shared * share).div_ceil(10).min(left), &mut capacity);
        }
    }
    // Slots that a lane does not need go to the next one.
    for (lane, _) in LANE_SHARES {
        if let Some(queues) = lanes.get_mut(&lane) {
            left -= queues.take(left, &mut capacity);
        }
    }
    lanes.into_values().flat_map(LaneQueues::into_shares).collect()
}

/// Orders claimed jobs as the plan chose them: within a lane tenants alternate by weight, and within a tenant the oldest
/// job goes first.
pub fn interleave_tenants(jobs: Vec<ClaimedJob>) -> Vec<ClaimedJob> {
    let mut clocks: HashMap<(Lane, TenantId), i64> = HashMap::new();
    let mut jobs: Vec<(i64, ClaimedJob)> = jobs
        .into_iter()
        .map(|job| {
            let clock = clocks.entry((job.lane, job.tenant)).or_default();
            *clock += job.cost;
            (*clock, job)
        })
        .collect();
    jobs.sort_by_key(|(clock, job)| (job.lane, *clock, job.position));
    jobs.into_iter().map(|(_, job)| job).collect()
}

/// How many more jobs may run of each limited tenant and kind, over all lanes.
struct RemainingCapacity<'a> {
    tenants: HashMap<TenantId, u64>,
    kinds: HashMap<&'a str, u64>,
}

impl<'a> RemainingCapacity<'a> {
    fn of(candidates: &'a [QueueCandidate]) -> Self {
        let tenants = candidates.iter().filter_map(|c| Some((c.tenant, c.tenant_room?))).collect();
        let kinds = candidates.iter().filter_map(|c| Some((c.kind.as_str(), c.kind_room?))).collect();
        Self { tenants, kinds }
    }

    /// Reserves capacity for one job; returns whether there was any.
    fn reserve(&mut self, tenant: TenantId, kind: &str) -> bool {
        if self.tenants.get(&tenant) == Some(&0) || self.kinds.get(kind) == Some(&0) {
            return false;
        }
        if let Some(left) = self.tenants.get_mut(&tenant) {
            *left -= 1;
        }
        if let Some(left) = self.kinds.get_mut(kind) {
            *left -= 1;
        }
        true
    }
}

/// The queues of one lane, by tenant.
#[derive(Default)]
struct LaneQueues<'a> {
    tenants: Vec<TenantQueues<'a>>,
    /// Indexes into `tenants`.
    indexes: HashMap<TenantId, usize>,
    /// Tenants that may have jobs, by their clocks.
    order: BinaryHeap<Reverse<(i64, TenantId)>>,
}

/// One tenant's queues in a lane, one per kind, with the number of jobs taken from each.
struct TenantQueues<'a> {
    start: i64,
    clock: i64,
    cost: i64,
    queues: Vec<(&'a QueueCandidate, u64)>,
    /// The queue to take from next: kinds are served round-robin.
    next: usize,
}

impl<'a> LaneQueues<'a> {
    fn add(&mut self, candidate: &'a QueueCandidate) {
        let index = *self.indexes.entry(candidate.tenant).or_insert_with(|| {
            let weight = i64::try_from(candidate.weight).map_or(UNIT_JOB_COST, |weight| weight.clamp(1, UNIT_JOB_COST));
            let cost = UNIT_JOB_COST / weight;
            let clock = candidate.vtime;
            self.tenants.push(TenantQueues { start: clock, clock, cost, queues: Vec::new(), next: 0 });
            self.tenants.len() - 1
        });
        let tenant = &mut self.tenants[index];
        tenant.start = tenant.start.max(candidate.vtime);
        tenant.clock = tenant.start;
        // Every job advances the clock by its cost. Where a claim has room for one job of a tenant, the kind that it begins
        // with differs from claim to claim; scrambled, for claims of other pools may advance the clock in step with ours.
        tenant.next = scramble(tenant.start / tenant.cost);
        let index = tenant.queues.partition_point(|(queue, _)| queue.kind < candidate.kind);
        tenant.queues.insert(index, (candidate, 0));
    }

    /// Takes up to `most` jobs, each from the tenant whose clock is furthest behind; returns how many there were.
    fn take(&mut self, most: u64, capacity: &mut RemainingCapacity<'_>) -> u64 {
        self.order =
            self.indexes.iter().map(|(tenant, index)| Reverse((self.tenants[*index].clock, *tenant))).collect();
        let mut taken = 0;
        while taken < most
            && let Some(Reverse((_, tenant))) = self.order.pop()
        {
            let queues = &mut self.tenants[self.indexes[&tenant]];
            if queues.take_one(tenant, capacity) {
                taken += 1;
                self.order.push(Reverse((queues.clock, tenant)));
            }
        }
        taken
    }

    fn into_shares(self) -> Vec<ClaimShare> {
        let served = self.tenants.into_iter().filter(|tenant| tenant.clock > tenant.start);
        served
            .flat_map(|tenant| {
                tenant.queues.into_iter().map(move |(candidate, take)| ClaimShare {
                    tenant: candidate.tenant,
                    lane: candidate.lane,
                    kind: candidate.kind.clone(),
                    take,
                    cost: tenant.cost,
                    vtime: tenant.start,
                    is_limited: candidate.tenant_room.is_some() || candidate.kind_room.is_some(),
                })
            })
            .collect()
    }
}

/// Returns a number that differs unpredictably from that of the next clock.
fn scramble(clock: i64) -> usize {
    // Fibonacci hashing; the high bits are the well-mixed ones.
    (clock.cast_unsigned().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as usize
}

impl TenantQueues<'_> {
    fn take_one(&mut self, tenant: TenantId, capacity: &mut RemainingCapacity<'_>) -> bool {
        for offset in 0..self.queues.len() {
            let n = (self.next + offset) % self.queues.len();
            let (candidate, taken) = &mut self.queues[n];
            if *taken < candidate.waiting && capacity.reserve(tenant, &candidate.kind) {
                *taken += 1;
                self.next = n + 1;
                self.clock += self.cost;
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn queue(tenant: u128, kind: &str, waiting: u64) -> QueueCandidate {
        QueueCandidate {
            tenant: TenantId(Uuid::from_u128(tenant)),
            lane: Lane::Normal,
            kind: kind.to_owned(),
            waiting,
            vtime: 0,
            weight: 1,
            tenant_room: None,
            kind_room: None,
        }
    }

    fn taken(shares: &[ClaimShare], tenant: u128) -> u64 {
        shares.iter().filter(|share| share.tenant.0.as_u128() == tenant).map(|share| share.take).sum()
    }

    #[test]
    fn tenants_share_by_weight_not_backlog_or_kinds() {
        let vip = QueueCandidate { weight: 4, ..queue(3, "a", 1000) };

        let shares = plan_shares(&[queue(1, "a", 100_000), queue(2, "a", 500), queue(2, "b", 500), vip], 600);

        assert_eq!((taken(&shares, 1), taken(&shares, 2), taken(&shares, 3)), (100, 100, 400));
    }

    /// Claims one job at a time, while other pools advance the clock as well.
    fn claim_one_by_one(jobs_of_others: i64) -> HashMap<String, u32> {
        let mut queues = ["a", "b", "c"].map(|kind| queue(1, kind, 1000));
        let mut claimed = HashMap::new();
        for _ in 0..300 {
            let shares = plan_shares(&queues, 1);
            let share = shares.iter().find(|share| share.take == 1).unwrap();
            *claimed.entry(share.kind.clone()).or_default() += 1;
            for queue in &mut queues {
                queue.vtime += share.cost * (1 + jobs_of_others);
            }
        }
        claimed
    }

    #[test]
    fn kinds_take_turns_from_claim_to_claim() {
        for jobs_of_others in 0..6 {
            let claimed = claim_one_by_one(jobs_of_others);
            assert!(["a", "b", "c"].iter().all(|kind| claimed[*kind] > 50), "{jobs_of_others}: {claimed:?}");
        }
    }

    #[test]
    fn unused_share_goes_to_other_tenants() {
        let shares = plan_shares(&[queue(1, "a", 100_000), queue(2, "a", 3)], 100);

        assert_eq!((taken(&shares, 1), taken(&shares, 2)), (97, 3));
    }

    #[test]
    fn claimed_jobs_of_tenants_are_interleaved() {
        let tenants = [1, 1, 1, 1, 1, 1, 2, 2, 3, 3, 3, 3];
        let claimed = (0..).zip(tenants).map(|(position, tenant)| ClaimedJob {
            tenant: TenantId(Uuid::from_u128(tenant)),
            id: domain::JobId(Uuid::from_u128(position as u128)),
            kind: "a".to_owned(),
            lane: Lane::Normal,
            payload: serde_json::Value::Null,
            worker: domain::WorkerId(Uuid::nil()),
            token: 1,
            attempt: 0,
            traceparent: None,
            is_suspect: false,
            order_key: None,
            is_unique: false,
            position,
            waited_micros: 0,
            created_at: jiff::Timestamp::UNIX_EPOCH,
            // The third has twice the weight.
            cost: if tenant == 3 { UNIT_JOB_COST / 2 } else { UNIT_JOB_COST },
        });

        let ordered: Vec<u128> =
            interleave_tenants(claimed.collect()).iter().map(|job| job.tenant.0.as_u128()).collect();

        assert_eq!(ordered, [3, 1, 2, 3, 3, 1, 2, 3, 1, 1, 1, 1]);
    }

    #[test]
    fn limits_hold_over_lanes_and_kinds() {
        let limited =
            [Lane::High, Lane::Low].map(|lane| QueueCandidate { lane, tenant_room: Some(5), ..queue(1, "a", 100) });
        let rare = [2, 3].map(|tenant| QueueCandidate { kind_room: Some(2), ..queue(tenant, "rare", 100) });

        let shares = plan_shares(&[limited, rare].concat(), 100);

        assert_eq!((taken(&shares, 1), taken(&shares, 2) + taken(&shares, 3)), (5, 2));
    }

    #[test]
    fn critical_goes_first_and_low_is_not_starved() {
        let candidates = [(Lane::Critical, 1, 50), (Lane::High, 2, 1000), (Lane::Low, 3, 1000)]
            .map(|(lane, tenant, waiting)| QueueCandidate { lane, ..queue(tenant, "a", waiting) });

        let shares = plan_shares(&candidates, 100);

        assert_eq!((taken(&shares, 1), taken(&shares, 2), taken(&shares, 3)), (50, 45, 5));
    }
}
