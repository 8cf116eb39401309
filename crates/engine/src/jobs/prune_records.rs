//! What was told and answered is not kept for ever.

use domain::Lane;
use jiff::SignedDuration;
use jobs::{Held, Job, JobError, Kind, Verdict};
use serde::{Deserialize, Serialize};

use crate::{grants, tokens};

/// Forgets events that are old enough, what was used of providers long ago, answers that nobody gets again, pushes that nobody delivers again, subscriptions of
/// nobody's accounts, and rights of mailboxes and accounts that nobody has asked for since.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PruneRecords {}

impl Job for PruneRecords {
    const KIND: &'static str = "prune_records";
    const LANE: Lane = Lane::Low;
}

/// Few enough that nobody waits for it.
const BATCH: u64 = 5000;

/// A push that is not answered is delivered again within minutes. Older ones may come, and cost a look at a mailbox.
const KEEP_PUSHES: SignedDuration = SignedDuration::from_hours(48);

/// A day is shown; the rest is for whoever wonders what happened last week.
const KEEP_USAGE: SignedDuration = SignedDuration::from_hours(24 * 8);

pub(super) fn kind(keep_events: SignedDuration) -> Kind {
    Kind::new(move |held: Held, _: PruneRecords| async move { run(&held, keep_events).await })
}

async fn run(held: &Held, keep_events: SignedDuration) -> Result<Verdict, JobError> {
    let system = held.store.system();
    while system.prune_answers(BATCH).await? {
        held.progress();
    }
    let now = system.now().await?;
    if let Ok(before) = now.checked_sub(KEEP_PUSHES) {
        while system.prune_pushes(before, BATCH).await? {
            held.progress();
        }
        while system.prune_subscriptions(before, BATCH).await? {
            held.progress();
        }
        for leases in [grants::LEASE, tokens::LEASE] {
            while system.prune_leases(leases, before, BATCH).await? {
                held.progress();
            }
        }
    }
    if let Ok(before) = now.checked_sub(KEEP_USAGE) {
        while system.prune_usage(before, BATCH).await? {
            held.progress();
        }
    }
    let Ok(before) = now.checked_sub(keep_events) else { return Ok(Verdict::Done) };
    for tenant in system.list_tenants().await? {
        while system.prune_events(tenant.id, before, BATCH).await? {
            held.progress();
        }
        held.progress();
    }
    Ok(Verdict::Done)
}
