//! What providers tell us of ends after some days, so they are asked again before.

use std::collections::BTreeMap;
use std::time::Duration;

use domain::{MailboxId, TenantId};
use jobs::{Held, Job, JobError, Kind, Verdict};
use serde::{Deserialize, Serialize};

use super::WatchMailbox;
use crate::Engine;

/// Asks for the watches that are due.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RenewWatches {}

impl Job for RenewWatches {
    const KIND: &'static str = "renew_watches";
}

/// As many each minute; with one renewal a day that is enough for 700,000 mailboxes, and when all are due at once they
/// do not get in the way of others.
const BATCH: u64 = 500;

/// The job that asks for one says when it is due again; if it never ran, after this.
const UNLESS_ASKED: Duration = Duration::from_secs(3600);

pub(super) fn kind(engine: Engine) -> Kind {
    Kind::new(move |held, _: RenewWatches| {
        let engine = engine.clone();
        async move { run(&engine, &held).await }
    })
}

async fn run(engine: &Engine, held: &Held) -> Result<Verdict, JobError> {
    let system = held.store.system();
    let mut by_tenant: BTreeMap<TenantId, Vec<MailboxId>> = BTreeMap::new();
    for (tenant, mailbox) in system.list_due_watches(BATCH).await? {
        by_tenant.entry(tenant).or_default().push(mailbox);
    }
    for (tenant, mut mailboxes) in by_tenant {
        mailboxes.sort_unstable();
        let mut unit = system.write_for(tenant);
        unit.put_off_watches(&mailboxes, UNLESS_ASKED);
        for mailbox in mailboxes {
            unit.enqueue(vec![WatchMailbox::now(engine.store.clock(), mailbox)?]);
        }
        unit.commit().await?;
        held.progress();
    }
    Ok(Verdict::Done)
}
