//! Turns the reports of listeners into sync jobs. Reports that come at the same time are one commit per tenant.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use domain::{Lane, MailboxId, TenantId, redact_for_log};
use store::sql::jobs::NewJob;
use store::sql::sync::MailboxKey;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::Engine;
use crate::sync::SyncMailbox;

/// When requests are tried again that the database did not take.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Jobs per commit.
const MAX_JOBS_PER_COMMIT: usize = 500;

#[derive(Debug, Clone, Copy)]
pub struct SyncRequest {
    pub key: MailboxKey,
    pub lane: Lane,
}

/// Enqueues the requested syncs until all senders are gone.
pub async fn enqueue_requests(engine: Engine, mut requested: UnboundedReceiver<SyncRequest>) {
    let mut open: HashMap<MailboxKey, Lane> = HashMap::new();
    loop {
        if open.is_empty() {
            let Some(request) = requested.recv().await else { return };
            add(&mut open, request);
        }
        while let Ok(request) = requested.try_recv() {
            add(&mut open, request);
        }
        if let Err(e) = enqueue_open(&engine, &mut open).await {
            tracing::warn!(
                mailboxes = open.len(),
                error = redact_for_log(&format_args!("{e:#}")),
                "requested syncs not enqueued; retrying"
            );
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }
}

fn add(open: &mut HashMap<MailboxKey, Lane>, request: SyncRequest) {
    let lane = open.entry(request.key).or_insert(request.lane);
    if request.lane == Lane::High {
        *lane = Lane::High;
    }
}

/// Enqueues the syncs in `open`, and leaves there those that failed. A tenant whose commit fails does not delay the
/// others.
async fn enqueue_open(engine: &Engine, open: &mut HashMap<MailboxKey, Lane>) -> anyhow::Result<()> {
    let mut by_tenant: BTreeMap<TenantId, Vec<(MailboxId, Lane)>> = BTreeMap::new();
    for ((tenant, mailbox), lane) in &*open {
        by_tenant.entry(*tenant).or_default().push((*mailbox, *lane));
    }
    let mut failure = Ok(());
    for (tenant, mut mailboxes) in by_tenant {
        mailboxes.sort_unstable_by_key(|(mailbox, _)| *mailbox);
        for some in mailboxes.chunks(MAX_JOBS_PER_COMMIT) {
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
    engine.store.notify_other_processes().await?;
    failure
}

async fn enqueue(engine: &Engine, tenant: TenantId, mailboxes: &[(MailboxId, Lane)]) -> anyhow::Result<()> {
    let mut jobs = Vec::with_capacity(mailboxes.len());
    for (mailbox, lane) in mailboxes {
        let job = SyncMailbox::request(engine.store.clock(), *mailbox)?;
        jobs.push(NewJob { lane: *lane, ..job });
    }
    let mut unit = engine.store.tenant(tenant).write();
    unit.enqueue(jobs);
    unit.commit().await?;
    Ok(())
}
