//! Mailboxes whose time has come.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use domain::{Lane, Provider, TenantId};
use futures_util::{StreamExt, TryStreamExt, stream};
use jobs::{Dice, new_job};
use store::sql::jobs::{BacklogLimits, MayAdd, NewJob};
use store::sql::sync::{Due, NOT_DUE};
use store::{Store, StoreError, TenantUnit};

use crate::sync::{self, PollMailboxes, SyncMailbox, only_one};

/// Read at once: so many that mailboxes of one tenant come together, also where there are many tenants.
const BATCH: u64 = 10_000;

/// The same when much waits already: a second goes by before the next ones.
const SLOW_BATCH: u64 = 50;

/// Commits at the same time, a tenant each: the database makes few of them.
const AT_ONCE: usize = 64;

/// When work piles up, mailboxes are looked at less often, and then not at all for a while.
pub const BACKLOG: BacklogLimits = BacklogLimits {
    slow_waiting: 20_000,
    stop_waiting: 100_000,
    slow_age: Duration::from_secs(120),
    stop_age: Duration::from_secs(900),
};

/// While looks of a tenant at a provider have not ended for so long, no more of them are asked for: there are more than their
/// budget allows, or nobody answers. Its other mailboxes, and other tenants, have nothing to do with it.
const BEHIND: Duration = BACKLOG.slow_age;

/// A mailbox is looked at about so many times in the time in which nothing has happened in it.
const LOOKS: u32 = 12;

/// One that fails is looked at half as often each time, down to this.
const FAILING: Duration = Duration::from_secs(3600);

/// How often mailboxes are looked at.
#[derive(Debug, Clone, Copy)]
pub struct Rhythm {
    pub usual: Duration,
    /// Those whose provider tells us what happens, and those in which nothing does.
    pub seldom: Duration,
}

impl Rhythm {
    /// All alike.
    pub fn even(usual: Duration) -> Self {
        Self { usual, seldom: usual }
    }

    fn pause(&self, due: &Due) -> Duration {
        let seldom = self.seldom.max(self.usual);
        match due.every {
            Some(every) => every,
            None if due.errors > 0 => {
                let factor = 1 << due.errors.min(10);
                self.usual.saturating_mul(factor).min(FAILING.max(self.usual))
            }
            None if due.is_pushed => seldom,
            None => (due.quiet_for / LOOKS).clamp(self.usual, seldom),
        }
    }
}

/// What a look at the calendar came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ticked {
    /// So many mailboxes are to be looked at; whether more are due, which need not wait.
    Asked { mailboxes: u64, is_more: bool },
    /// So many, and the others wait, for much waits already, and why.
    Slowed { mailboxes: u64, why: String },
    /// Too much waits already, and why.
    HeldBack(String),
}

/// Asks for a look at each mailbox that is due, and says when it is due again.
pub async fn tick(store: &Store, rhythm: &Rhythm, dice: &dyn Dice) -> anyhow::Result<Ticked> {
    let system = store.system();
    let (batch, slowed) = match system.may_add_more(Lane::Normal, &BACKLOG).await? {
        MayAdd::Go => (BATCH, None),
        MayAdd::Slow { why } => (SLOW_BATCH, Some(why)),
        MayAdd::Stop { why } => return Ok(Ticked::HeldBack(why)),
    };
    let due = system.list_due_mailboxes(batch).await?;
    let mailboxes = due.len() as u64;
    let mut behind = if due.is_empty() { HashMap::new() } else { system.list_oldest_polls().await? };
    behind.retain(|_, age| *age > BEHIND);
    let mut by_tenant: BTreeMap<TenantId, Vec<Due>> = BTreeMap::new();
    for due in due {
        by_tenant.entry(due.tenant).or_default().push(due);
    }
    let mut units: Vec<TenantUnit> = Vec::with_capacity(by_tenant.len());
    for (tenant, due) in by_tenant {
        // A tenth earlier or later, so that those that were connected together drift apart.
        let pause = |due: &Due| (due.mailbox, rhythm.pause(due).mul_f64(0.9 + dice.fraction() / 5.0));
        let pauses: Vec<_> = due.iter().map(pause).collect();
        let mut unit = system.write_for(tenant);
        // In the order in which a sync that ends takes them, so that neither waits for the other.
        unit.sync_again_in(&pauses);
        unit.enqueue(jobs(store, &due, |provider| behind.contains_key(&(tenant, provider.as_str().to_owned())))?);
        units.push(unit);
    }
    let commits = stream::iter(units).map(|unit| async move {
        match unit.commit().await {
            // Another scheduler was first. What is left of it is due the next time.
            Ok(_) | Err(StoreError::Precondition(NOT_DUE)) => Ok(()),
            Err(e) => Err(e),
        }
    });
    commits.buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    Ok(match slowed {
        Some(why) => Ticked::Slowed { mailboxes, why },
        None => Ticked::Asked { mailboxes, is_more: mailboxes == batch },
    })
}

/// One for some mailboxes together, where a look is all that is to be done; else one for each.
fn jobs(store: &Store, due: &[Due], is_behind: impl Fn(Provider) -> bool) -> anyhow::Result<Vec<NewJob>> {
    let mut jobs = Vec::new();
    let mut by_provider: BTreeMap<&str, (Provider, Vec<_>)> = BTreeMap::new();
    for due in due {
        if due.is_settled && due.provider.looks_by_a_call() {
            let provider = due.provider;
            by_provider.entry(provider.as_str()).or_insert((provider, Vec::new())).1.push(due.mailbox);
        } else {
            let job = new_job(&SyncMailbox { mailbox: due.mailbox }, store.clock(), None)?;
            jobs.push(only_one(job, due.mailbox));
        }
    }
    for (provider, mailboxes) in by_provider.into_values().filter(|(provider, _)| !is_behind(*provider)) {
        for some in mailboxes.chunks(sync::AT_MOST) {
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

    #[test]
    fn what_is_pushed_or_quiet_is_looked_at_seldom_what_is_busy_often_and_what_fails_less_each_time() {
        let rhythm = Rhythm { usual: 5 * MINUTE, seldom: 15 * MINUTE };
        let due = Due {
            tenant: TenantId::new(&SystemClock),
            mailbox: MailboxId::new(&SystemClock),
            provider: Provider::Gmail,
            every: None,
            is_settled: true,
            is_pushed: false,
            errors: 0,
            quiet_for: MINUTE,
        };
        let pause = |due: Due| rhythm.pause(&due).as_secs() / 60;

        assert_eq!(pause(due), 5, "something has just happened");
        assert_eq!(pause(Due { quiet_for: 120 * MINUTE, ..due }), 10);
        assert_eq!(pause(Due { quiet_for: 60 * 24 * 30 * MINUTE, ..due }), 15);
        assert_eq!(pause(Due { is_pushed: true, ..due }), 15);
        assert_eq!(pause(Due { every: Some(2 * MINUTE), is_pushed: true, errors: 3, ..due }), 2, "as it says itself");
        assert_eq!(pause(Due { errors: 1, is_pushed: true, ..due }), 10);
        assert_eq!(pause(Due { errors: 99, ..due }), 60);
        assert_eq!(Rhythm::even(2 * FAILING).pause(&Due { errors: 99, ..due }), 2 * FAILING);
    }
}
