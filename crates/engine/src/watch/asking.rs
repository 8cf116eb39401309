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
        match request(&engine, &open).await {
            Ok(()) => open.clear(),
            Err(e) => {
                tracing::warn!("news of {} mailboxes wait for the database: {e:#}", open.len());
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

fn note(open: &mut HashMap<Key, Lane>, ask: Ask) {
    let lane = open.entry(ask.key).or_insert(ask.lane);
    if ask.lane == Lane::High {
        *lane = Lane::High;
    }
}

async fn request(engine: &Engine, open: &HashMap<Key, Lane>) -> anyhow::Result<()> {
    let mut by_tenant: BTreeMap<TenantId, Vec<(MailboxId, Lane)>> = BTreeMap::new();
    for ((tenant, mailbox), lane) in open {
        by_tenant.entry(*tenant).or_default().push((*mailbox, *lane));
    }
    for (tenant, mut mailboxes) in by_tenant {
        mailboxes.sort_unstable_by_key(|(mailbox, _)| *mailbox);
        for some in mailboxes.chunks(BATCH) {
            let mut jobs = Vec::with_capacity(some.len());
            for (mailbox, lane) in some {
                let job = new_job(&SyncMailbox { mailbox: *mailbox }, engine.store.clock(), None)?;
                jobs.push(only_one(NewJob { lane: *lane, ..job }, *mailbox));
            }
            let mut unit = engine.store.tenant(tenant).write();
            unit.enqueue(jobs);
            unit.commit().await?;
        }
    }
    engine.store.tell_of_jobs().await?;
    Ok(())
}
