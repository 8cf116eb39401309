//! The sync scheduler: enqueues polls and syncs of mailboxes that are due.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use domain::{Lane, Provider, TenantId};
use futures_util::{StreamExt, TryStreamExt, stream};
use jobs::{RandomSource, new_job};
use store::sql::jobs::{BacklogLimits, BacklogVerdict, NewJob, TenantBacklog};
use store::sql::sync::DueMailbox;
use store::{Precondition, Store, StoreError, TenantUnit};

use crate::sync::{self, PollMailboxes, SyncMailbox};

/// Due mailboxes read per tick: so many that mailboxes of one tenant come together, even with many tenants.
const MAX_DUE_MAILBOXES: u64 = 10_000;

/// The same of all tenants together whose backlog is large; each has a turn.
const MAX_DUE_MAILBOXES_SLOWED: u64 = 50;

/// Commits at the same time, one per tenant; the database groups them.
const CONCURRENT_COMMITS: usize = 64;

/// The backlog of a tenant at which its mailboxes are polled less often, and at which they are not polled at all.
pub const BACKLOG_LIMITS: BacklogLimits = BacklogLimits {
    slow_waiting: 20_000,
    stop_waiting: 100_000,
    slow_age: Duration::from_secs(120),
    stop_age: Duration::from_secs(900),
};

/// While a tenant's oldest poll of a provider has waited for longer, no further ones are enqueued: they exceed the
/// budget, or the provider does not answer. Its mailboxes elsewhere, and other tenants, are not affected.
const MAX_POLL_AGE: Duration = BACKLOG_LIMITS.slow_age;

/// A mailbox that has been quiet for a time is polled about this often within such a time.
const POLLS_PER_QUIET_TIME: u32 = 12;

/// The longest interval of a failing mailbox, which doubles with each failure.
const MAX_FAILING_INTERVAL: Duration = Duration::from_secs(3600);

/// How often mailboxes are polled.
#[derive(Debug, Clone, Copy)]
pub struct PollIntervals {
    pub usual: Duration,
    /// The interval of mailboxes whose provider pushes, and of quiet ones.
    pub relaxed: Duration,
}

impl PollIntervals {
    /// Polls all mailboxes at the same interval.
    pub fn uniform(usual: Duration) -> Self {
        Self { usual, relaxed: usual }
    }

    /// Returns the interval until the next poll of a mailbox.
    fn interval(&self, due: &DueMailbox) -> Duration {
        let seldom = self.relaxed.max(self.usual);
        match due.every {
            Some(every) => every,
            None if due.errors > 0 => {
                let factor = 1 << due.errors.min(10);
                self.usual.saturating_mul(factor).min(MAX_FAILING_INTERVAL.max(self.usual))
            }
            None if due.is_pushed => seldom,
            None => (due.quiet_for / POLLS_PER_QUIET_TIME).clamp(self.usual, seldom),
        }
    }
}

/// The outcome of one [`tick`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TickOutcome {
    /// Mailboxes for which a poll or a sync was enqueued.
    pub mailboxes: u64,
    /// Others are due right now.
    pub is_more: bool,
    /// Tenants of whom fewer mailboxes than usual were enqueued, or none, because too many jobs of theirs wait.
    pub backlogs: Vec<TenantBacklog>,
}

/// Enqueues a poll or a sync of each mailbox that is due, and records when it is due again.
pub async fn tick(store: &Store, intervals: &PollIntervals, random: &dyn RandomSource) -> anyhow::Result<TickOutcome> {
    let system = store.system();
    let backlogs = system.list_backlogs(Lane::Normal, &BACKLOG_LIMITS).await?;
    let (held_back, slowed) = (tenants_of(&backlogs, |_| true), tenants_of(&backlogs, BacklogVerdict::is_slow));
    let mut due = system.list_due_mailboxes(MAX_DUE_MAILBOXES, &held_back).await?;
    // While somebody is slowed, a second passes before the next tick.
    let is_more = due.len() as u64 == MAX_DUE_MAILBOXES && slowed.is_empty();
    if !slowed.is_empty() {
        let limit = MAX_DUE_MAILBOXES_SLOWED.max(slowed.len() as u64);
        due.extend(system.list_due_mailboxes_of(&slowed, limit).await?);
    }
    let mailboxes = due.len() as u64;
    let mut behind = if due.is_empty() { HashMap::new() } else { system.list_oldest_polls().await? };
    behind.retain(|_, age| *age > MAX_POLL_AGE);
    let mut by_tenant: BTreeMap<TenantId, Vec<DueMailbox>> = BTreeMap::new();
    for due in due {
        by_tenant.entry(due.tenant).or_default().push(due);
    }
    let mut units: Vec<TenantUnit> = Vec::with_capacity(by_tenant.len());
    for (tenant, due) in by_tenant {
        // Jitter of a tenth, so that mailboxes that were connected together drift apart.
        let pauses: Vec<_> = due
            .iter()
            .map(|due| (due.mailbox, intervals.interval(due).mul_f64(0.9 + random.next_fraction() / 5.0)))
            .collect();
        let mut unit = system.write_for(tenant);
        // In the order in which a sync that ends locks the rows, so that neither waits for the other.
        unit.reschedule_syncs(&pauses);
        unit.enqueue(jobs(store, &due, |provider| behind.contains_key(&(tenant, provider.as_str().to_owned())))?);
        units.push(unit);
    }
    let commits = stream::iter(units).map(|unit| async move {
        match unit.commit().await {
            // Another scheduler was first. What it left is due at the next tick.
            Ok(_) | Err(StoreError::Precondition(Precondition::SyncsAlreadyRequested)) => Ok(()),
            Err(e) => Err(e),
        }
    });
    commits.buffer_unordered(CONCURRENT_COMMITS).try_collect::<Vec<()>>().await?;
    Ok(TickOutcome { mailboxes, is_more, backlogs })
}

fn tenants_of(backlogs: &[TenantBacklog], is_meant: impl Fn(&BacklogVerdict) -> bool) -> Vec<TenantId> {
    backlogs.iter().filter(|backlog| is_meant(&backlog.verdict)).map(|backlog| backlog.tenant).collect()
}

/// Creates one poll job for several settled mailboxes of a provider, and a sync job for each other mailbox.
fn jobs(store: &Store, due: &[DueMailbox], is_behind: impl Fn(Provider) -> bool) -> anyhow::Result<Vec<NewJob>> {
    let mut jobs = Vec::new();
    let mut by_provider: BTreeMap<&str, (Provider, Vec<_>)> = BTreeMap::new();
    for due in due {
        if due.is_settled && due.provider.capabilities().polls_without_connection {
            let provider = due.provider;
            by_provider.entry(provider.as_str()).or_insert((provider, Vec::new())).1.push(due.mailbox);
        } else {
            jobs.push(SyncMailbox::request(store.clock(), due.mailbox)?);
        }
    }
    for (provider, mailboxes) in by_provider.into_values().filter(|(provider, _)| !is_behind(*provider)) {
        for some in mailboxes.chunks(sync::MAX_MAILBOXES_PER_POLL) {
            let job = PollMailboxes { provider, mailboxes: some.to_vec() };
            jobs.push(new_job(&job, store.clock(), None)?);
        }
    }
    Ok(jobs)
}

#[cfg(test)]
mod tests {
    use domain::{MailboxId, SystemClock};

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    const INTERVALS: PollIntervals =
        PollIntervals { usual: Duration::from_secs(300), relaxed: Duration::from_secs(900) };

    fn minutes(due: DueMailbox) -> u64 {
        INTERVALS.interval(&due).as_secs() / 60
    }

    #[test]
    fn poll_interval_follows_activity_and_errors() {
        let due = DueMailbox {
            tenant: TenantId::new(&SystemClock),
            mailbox: MailboxId::new(&SystemClock),
            provider: Provider::Gmail,
            every: None,
            is_settled: true,
            is_pushed: false,
            errors: 0,
            quiet_for: MINUTE,
        };

        assert_eq!(minutes(due), 5, "something has just happened");
        assert_eq!(minutes(DueMailbox { quiet_for: 120 * MINUTE, ..due }), 10);
        assert_eq!(minutes(DueMailbox { quiet_for: 60 * 24 * 30 * MINUTE, ..due }), 15);
        assert_eq!(minutes(DueMailbox { is_pushed: true, ..due }), 15);
        assert_eq!(
            minutes(DueMailbox { every: Some(2 * MINUTE), is_pushed: true, errors: 3, ..due }),
            2,
            "as it says itself"
        );
        assert_eq!(minutes(DueMailbox { errors: 1, is_pushed: true, ..due }), 10);
        assert_eq!(minutes(DueMailbox { errors: 99, ..due }), 60);
        assert_eq!(
            PollIntervals::uniform(2 * MAX_FAILING_INTERVAL).interval(&DueMailbox { errors: 99, ..due }),
            2 * MAX_FAILING_INTERVAL
        );
    }
}
