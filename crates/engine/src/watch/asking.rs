//! News becomes looks at mailboxes. What many listeners hear at the same time is one commit a tenant.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use domain::{Lane, MailboxId, TenantId};
use jobs::new_job;
use store::sql::jobs::NewJob;
use store::sql::sync::Key;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::Engine;
use crate::sync::{SyncMailbox, only_one};

/// Until the database is tried again that did not take it.
const AGAIN: Duration = Duration::from_secs(1);

/// As many as are well in one commit.
const BATCH: usize = 500;

#[derive(Debug, Clone, Copy)]
pub struct Ask {
    pub key: Key,
    pub lane: Lane,
}

/// Ends with the last who asks.
pub async fn ask(engine: Engine, mut asked: UnboundedReceiver<Ask>) {
    let mut open: HashMap<Key, Lane> = HashMap::new();
    loop {
        if open.is_empty() {
            let Some(ask) = asked.recv().await else { return };
            note(&mut open, ask);
        }
        while let Ok(ask) = asked.try_recv() {
            note(&mut open, ask);
        }
        if let Err(e) = request(&engine, &mut open).await {
            tracing::warn!("news of {} mailboxes wait for the database: {e:#}", open.len());
            tokio::time::sleep(AGAIN).await;
        }
    }
}

fn note(open: &mut HashMap<Key, Lane>, ask: Ask) {
    let lane = open.entry(ask.key).or_insert(ask.lane);
    if ask.lane == Lane::High {
        *lane = Lane::High;
    }
}

/// Leaves in `open` what could not be asked for. A tenant whose jobs are not taken does not keep the others waiting.
async fn request(engine: &Engine, open: &mut HashMap<Key, Lane>) -> anyhow::Result<()> {
    let mut by_tenant: BTreeMap<TenantId, Vec<(MailboxId, Lane)>> = BTreeMap::new();
    for ((tenant, mailbox), lane) in &*open {
        by_tenant.entry(*tenant).or_default().push((*mailbox, *lane));
    }
    let mut failure = Ok(());
    for (tenant, mut mailboxes) in by_tenant {
        mailboxes.sort_unstable_by_key(|(mailbox, _)| *mailbox);
        for some in mailboxes.chunks(BATCH) {
            match enqueue(engine, tenant, some).await {
                Ok(()) => {
                    for (mailbox, _) in some {
                        open.remove(&(tenant, *mailbox));
                    }
                }
                Err(e) => failure = Err(e),
            }
        }
    }
    engine.store.tell_of_jobs().await?;
    failure
}

async fn enqueue(engine: &Engine, tenant: TenantId, mailboxes: &[(MailboxId, Lane)]) -> anyhow::Result<()> {
    let mut jobs = Vec::with_capacity(mailboxes.len());
    for (mailbox, lane) in mailboxes {
        let job = new_job(&SyncMailbox { mailbox: *mailbox }, engine.store.clock(), None)?;
        jobs.push(only_one(NewJob { lane: *lane, ..job }, *mailbox));
    }
    let mut unit = engine.store.tenant(tenant).write();
    unit.enqueue(jobs);
    unit.commit().await?;
    Ok(())
}
