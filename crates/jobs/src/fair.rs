//! Who gets how much of the next claim.
//!
//! Every tenant has a clock in each lane that its jobs move on, by less the more weight it has; the tenant whose clock is
//! furthest behind is served first. That is start-time fair queueing over tenants: a tenant with a hundred thousand jobs
//! and one with ten get the same share while both have work, and nobody waits longer than one round.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use domain::{Lane, TenantId};
use store::sql::jobs::{Candidate, Claimed, FULL_COST, Share};

/// What a job costs a tenant of weight 1, in the units of `vtime`.
pub const UNIT: i64 = FULL_COST;

/// Of every ten places that critical work leaves, at least so many go to each lane, if it has work for them.
const LANE_SHARES: [(Lane, u64); 3] = [(Lane::High, 6), (Lane::Normal, 3), (Lane::Low, 1)];

/// How many of which queue to claim, `slots` in all. Queues of a tenant that gets something are listed even when they
/// give nothing, so that all of its clocks move together.
pub fn plan(candidates: &[Candidate], slots: u64) -> Vec<Share> {
    let mut rooms = Rooms::of(candidates);
    let mut lanes: BTreeMap<Lane, LaneQueues> = BTreeMap::new();
    for candidate in candidates {
        lanes.entry(candidate.lane).or_default().add(candidate);
    }
    let mut left = slots;
    if let Some(critical) = lanes.get_mut(&Lane::Critical) {
        left -= critical.take(left, &mut rooms);
    }
    let shared = left;
    for (lane, share) in LANE_SHARES {
        if let Some(queues) = lanes.get_mut(&lane) {
            left -= queues.take((shared * share).div_ceil(10).min(left), &mut rooms);
        }
    }
    // What a lane does not need goes to the next one.
    for (lane, _) in LANE_SHARES {
        if let Some(queues) = lanes.get_mut(&lane) {
            left -= queues.take(left, &mut rooms);
        }
    }
    lanes.into_values().flat_map(LaneQueues::into_shares).collect()
}

/// Those that were claimed, in the order in which the plan took them: of each lane, tenants in turns by weight, and of each
/// tenant what came first.
pub fn in_turns(jobs: Vec<Claimed>) -> Vec<Claimed> {
    let mut clocks: HashMap<(Lane, TenantId), i64> = HashMap::new();
    let turn = |job: Claimed| {
        let clock = clocks.entry((job.lane, job.tenant)).or_default();
        *clock += job.cost;
        (*clock, job)
    };
    let mut jobs: Vec<(i64, Claimed)> = jobs.into_iter().map(turn).collect();
    jobs.sort_by_key(|(clock, job)| (job.lane, *clock, job.position));
    jobs.into_iter().map(|(_, job)| job).collect()
}

/// How many more may run, where that is limited: of a tenant and of a kind, in all lanes together.
struct Rooms<'a> {
    tenants: HashMap<TenantId, u64>,
    kinds: HashMap<&'a str, u64>,
}

impl<'a> Rooms<'a> {
    fn of(candidates: &'a [Candidate]) -> Self {
        let tenants = candidates.iter().filter_map(|c| Some((c.tenant, c.tenant_room?))).collect();
        let kinds = candidates.iter().filter_map(|c| Some((c.kind.as_str(), c.kind_room?))).collect();
        Self { tenants, kinds }
    }

    /// Whether one more fits; if so, it is counted.
    fn enter(&mut self, tenant: TenantId, kind: &str) -> bool {
        let is_full = |room: Option<&u64>| room == Some(&0);
        if is_full(self.tenants.get(&tenant)) || is_full(self.kinds.get(kind)) {
            return false;
        }
        if let Some(room) = self.tenants.get_mut(&tenant) {
            *room -= 1;
        }
        if let Some(room) = self.kinds.get_mut(kind) {
            *room -= 1;
        }
        true
    }
}

/// The queues of one lane, by tenant.
#[derive(Default)]
struct LaneQueues<'a> {
    tenants: Vec<TenantQueues<'a>>,
    places: HashMap<TenantId, usize>,
    /// Tenants that may have something, by their clocks.
    order: BinaryHeap<Reverse<(i64, TenantId)>>,
}

struct TenantQueues<'a> {
    start: i64,
    clock: i64,
    cost: i64,
    queues: Vec<(&'a Candidate, u64)>,
    /// Which kind is next: they take turns.
    turn: usize,
}

impl<'a> LaneQueues<'a> {
    fn add(&mut self, candidate: &'a Candidate) {
        let place = *self.places.entry(candidate.tenant).or_insert_with(|| {
            let cost = UNIT / i64::try_from(candidate.weight.max(1)).unwrap_or(UNIT);
            let clock = candidate.vtime;
            self.tenants.push(TenantQueues { start: clock, clock, cost, queues: Vec::new(), turn: 0 });
            self.tenants.len() - 1
        });
        let tenant = &mut self.tenants[place];
        tenant.start = tenant.start.max(candidate.vtime);
        tenant.clock = tenant.start;
        tenant.queues.push((candidate, 0));
    }

    /// Takes up to so many, one at a time from whoever is furthest behind; how many there were.
    fn take(&mut self, most: u64, rooms: &mut Rooms<'_>) -> u64 {
        let behind = |(tenant, place): (&TenantId, &usize)| Reverse((self.tenants[*place].clock, *tenant));
        self.order = self.places.iter().map(behind).collect();
        let mut taken = 0;
        while taken < most
            && let Some(Reverse((_, tenant))) = self.order.pop()
        {
            let queues = &mut self.tenants[self.places[&tenant]];
            if queues.take_one(tenant, rooms) {
                taken += 1;
                self.order.push(Reverse((queues.clock, tenant)));
            }
        }
        taken
    }

    fn into_shares(self) -> Vec<Share> {
        let served = self.tenants.into_iter().filter(|tenant| tenant.clock > tenant.start);
        served
            .flat_map(|tenant| {
                tenant.queues.into_iter().map(move |(candidate, take)| Share {
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

impl TenantQueues<'_> {
    fn take_one(&mut self, tenant: TenantId, rooms: &mut Rooms<'_>) -> bool {
        for offset in 0..self.queues.len() {
            let n = (self.turn + offset) % self.queues.len();
            let (candidate, taken) = &mut self.queues[n];
            if *taken < candidate.waiting && rooms.enter(tenant, &candidate.kind) {
                *taken += 1;
                self.turn = n + 1;
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

    fn queue(tenant: u128, kind: &str, waiting: u64) -> Candidate {
        Candidate {
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

    fn taken(shares: &[Share], tenant: u128) -> u64 {
        shares.iter().filter(|share| share.tenant.0.as_u128() == tenant).map(|share| share.take).sum()
    }

    #[test]
    fn tenants_share_by_weight_whatever_they_have_waiting_and_however_many_kinds() {
        let vip = Candidate { weight: 4, ..queue(3, "a", 1000) };

        let shares = plan(&[queue(1, "a", 100_000), queue(2, "a", 500), queue(2, "b", 500), vip], 600);

        assert_eq!((taken(&shares, 1), taken(&shares, 2), taken(&shares, 3)), (100, 100, 400));
    }

    #[test]
    fn what_one_does_not_need_goes_to_others() {
        let shares = plan(&[queue(1, "a", 100_000), queue(2, "a", 3)], 100);

        assert_eq!((taken(&shares, 1), taken(&shares, 2)), (97, 3));
    }

    #[test]
    fn what_was_claimed_begins_in_turns_and_not_with_all_of_who_came_first() {
        let job = |(position, tenant): (i64, u128)| Claimed {
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
            cost: if tenant == 3 { UNIT / 2 } else { UNIT },
        };
        let came = [1, 1, 1, 1, 1, 1, 2, 2, 3, 3, 3, 3];
        let claimed = came.into_iter().enumerate().map(|(n, tenant)| job((n as i64, tenant))).collect();

        let begins: Vec<u128> = in_turns(claimed).iter().map(|job| job.tenant.0.as_u128()).collect();

        assert_eq!(begins, [3, 1, 2, 3, 3, 1, 2, 3, 1, 1, 1, 1]);
    }

    #[test]
    fn limits_hold_over_lanes_and_kinds() {
        let limited = |lane| Candidate { lane, tenant_room: Some(5), ..queue(1, "a", 100) };
        let rare = |tenant| Candidate { kind_room: Some(2), ..queue(tenant, "rare", 100) };

        let shares = plan(&[limited(Lane::High), limited(Lane::Low), rare(2), rare(3)], 100);

        assert_eq!((taken(&shares, 1), taken(&shares, 2) + taken(&shares, 3)), (5, 2));
    }

    #[test]
    fn critical_work_goes_first_and_low_work_goes_on() {
        let of = |lane, tenant, waiting| Candidate { lane, ..queue(tenant, "a", waiting) };

        let shares = plan(&[of(Lane::Critical, 1, 50), of(Lane::High, 2, 1000), of(Lane::Low, 3, 1000)], 100);

        assert_eq!((taken(&shares, 1), taken(&shares, 2), taken(&shares, 3)), (50, 45, 5));
    }
}
