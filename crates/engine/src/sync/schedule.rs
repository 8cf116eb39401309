//! The sync scheduler: enqueues polls and syncs of mailboxes that are due.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use domain::{Lane, Provider, TenantId};
use futures_util::{StreamExt, TryStreamExt, stream};
use jobs::{RandomSource, new_job};
use store::sql::jobs::{BacklogLimits, BacklogVerdict, NewJob};
use store::sql::sync::DueMailbox;
use store::{Precondition, Store, StoreError, TenantUnit};

use crate::sync::{self, PollMailboxes, SyncMailbox};

/// Due mailboxes read per tick: so many that mailboxes of one tenant come together, even with many tenants.
const MAX_DUE_MAILBOXES: u64 = 10_000;

/// The same while the backlog is large: a second passes before the next tick.
const MAX_DUE_MAILBOXES_SLOWED: u64 = 50;

/// Commits at the same time, one per tenant; the database groups them.
const CONCURRENT_COMMITS: usize = 64;

/// The backlog at which mailboxes are polled less often, and at which they are not polled at all.
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TickOutcome {
    /// Polls or syncs were enqueued for so many mailboxes; `is_more`: others are due right now.
    Enqueued { mailboxes: u64, is_more: bool },
    /// Fewer than usual were enqueued, because the backlog is large, as `why` explains.
    Slowed { mailboxes: u64, why: String },
    /// Nothing was enqueued, because the backlog is too large, with the reason.
    HeldBack(String),
}

/// Enqueues a poll or a sync of each mailbox that is due, and records when it is due again.
pub async fn tick(store: &Store, intervals: &PollIntervals, random: &dyn RandomSource) -> anyhow::Result<TickOutcome> {
    let system = store.system();
    let (batch, slowed) = match system.check_backlog(Lane::Normal, &BACKLOG_LIMITS).await? {
        BacklogVerdict::Go => (MAX_DUE_MAILBOXES, None),
        BacklogVerdict::Slow { why } => (MAX_DUE_MAILBOXES_SLOWED, Some(why)),
        BacklogVerdict::Stop { why } => return Ok(TickOutcome::HeldBack(why)),
    };
    let due = system.list_due_mailboxes(batch).await?;
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
    Ok(match slowed {
        Some(why) => TickOutcome::Slowed { mailboxes, why },
        None => TickOutcome::Enqueued { mailboxes, is_more: mailboxes == batch },
    })
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
