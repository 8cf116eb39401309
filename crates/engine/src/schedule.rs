//! Mailboxes whose time has come.

use std::collections::BTreeMap;
use std::time::Duration;

use domain::{Lane, TenantId};
use jobs::{Dice, new_job};
use store::Store;
use store::sql::jobs::{BacklogLimits, MayAdd};
use store::sql::sync::Due;

use crate::sync::{SyncMailbox, only_one};

/// Read at once; as many as fit into a few commits.
const BATCH: u64 = 500;

/// When work piles up, mailboxes are looked at less often, and then not at all for a while.
pub const BACKLOG: BacklogLimits = BacklogLimits {
    slow_waiting: 20_000,
    stop_waiting: 100_000,
    slow_age: Duration::from_secs(120),
    stop_age: Duration::from_secs(900),
};

/// What a look at the calendar came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ticked {
    /// So many mailboxes are to be looked at; whether more are due.
    Asked { mailboxes: u64, is_more: bool },
    /// Too much waits already, and why.
    HeldBack(String),
}

/// Asks for a look at each mailbox that is due, and says when it is due again.
pub async fn tick(store: &Store, interval: Duration, dice: &dyn Dice) -> anyhow::Result<Ticked> {
    let system = store.system();
    let batch = match system.may_add_more(Lane::Normal, &BACKLOG).await? {
        MayAdd::Go => BATCH,
        MayAdd::Slow { why } => {
            tracing::info!("mailboxes are looked at less often: {why}");
            BATCH / 10
        }
        MayAdd::Stop { why } => return Ok(Ticked::HeldBack(why)),
    };
    let due = system.list_due_mailboxes(batch).await?;
    let mailboxes = due.len() as u64;
    let mut by_tenant: BTreeMap<TenantId, Vec<Due>> = BTreeMap::new();
    for due in due {
        by_tenant.entry(due.tenant).or_default().push(due);
    }
    for (tenant, due) in by_tenant {
        let mut jobs = Vec::with_capacity(due.len());
        let mut pauses = Vec::with_capacity(due.len());
        for due in due {
            let job = new_job(&SyncMailbox { mailbox: due.mailbox }, store.clock(), None)?;
            jobs.push(only_one(job, due.mailbox));
            // A tenth earlier or later, so that those that were connected together drift apart.
            let every = due.every.unwrap_or(interval);
            pauses.push((due.mailbox, every.mul_f64(0.9 + dice.fraction() / 5.0)));
        }
        let mut unit = system.write_for(tenant);
        // In the order in which a sync that ends takes them, so that neither waits for the other.
        unit.sync_again_in(&pauses);
        unit.enqueue(jobs);
        unit.commit().await?;
    }
    Ok(Ticked::Asked { mailboxes, is_more: mailboxes == batch })
}
