//! The job that prunes old records.

use domain::Lane;
use jiff::SignedDuration;
use jobs::{Completion, Job, JobContext, JobError, RunnableJob};
use serde::{Deserialize, Serialize};

use crate::credentials::{grant_leases, tokens};

/// Deletes old events, usage counts, idempotent responses and pushes, subscriptions of accounts that no mailbox has, and
/// unused leases.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PruneRecords {}

impl Job for PruneRecords {
    const KIND: &'static str = "prune_records";
    const LANE: Lane = Lane::Low;
}

/// Rows per statement: few enough that no other writer waits for it.
const BATCH_ROWS: u64 = 5000;

/// A push that is not answered is delivered again within minutes. An older one may come, and costs a sync.
const PUSH_RETENTION: SignedDuration = SignedDuration::from_hours(48);

/// A day is shown; the rest is for people who wonder what happened last week.
const USAGE_RETENTION: SignedDuration = SignedDuration::from_hours(24 * 8);

impl RunnableJob for PruneRecords {
    type Services = SignedDuration;

    async fn run(self, ctx: JobContext, keep_events: Self::Services) -> Result<Completion, JobError> {
        let system = ctx.store.system();
        while system.prune_replies(BATCH_ROWS).await? {
            ctx.report_progress();
        }
        let now = system.now().await?;
        if let Ok(before) = now.checked_sub(PUSH_RETENTION) {
            while system.prune_pushes(before, BATCH_ROWS).await? {
                ctx.report_progress();
            }
            while system.prune_subscriptions(before, BATCH_ROWS).await? {
                ctx.report_progress();
            }
            for leases in [grant_leases::LEASE_PREFIX, tokens::LEASE_PREFIX] {
                while system.prune_leases(leases, before, BATCH_ROWS).await? {
                    ctx.report_progress();
                }
            }
        }
        if let Ok(before) = now.checked_sub(USAGE_RETENTION) {
            while system.prune_usage(before, BATCH_ROWS).await? {
                ctx.report_progress();
            }
        }
        let Ok(before) = now.checked_sub(keep_events) else { return Ok(Completion::Done) };
        for tenant in system.list_tenants().await? {
            while system.prune_events(tenant.id, before, BATCH_ROWS).await? {
                ctx.report_progress();
            }
            ctx.report_progress();
        }
        Ok(Completion::Done)
    }
}
