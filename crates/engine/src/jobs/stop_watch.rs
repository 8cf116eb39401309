//! The last that is asked of the provider of a mailbox that was let go: to tell us of it no more.

use std::time::Duration;

use domain::{ConnectorError, MailboxId, SecretId};
use jiff::SignedDuration;
use jobs::{Held, Job, JobError, Kind, Pool, Verdict, new_job};
use serde::{Deserialize, Serialize};
use store::sql::jobs::NewJob;

use super::RevokeGrant;
use super::watch_mailbox::order;
use crate::Engine;
use crate::push::Unstopped;
use crate::sync::Syncer;

/// Stops the watch of an account unless somebody else has it. Then the consent is taken back, for which there is a job of
/// its own: without it nobody could be asked to stop.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StopWatch {
    mailbox: MailboxId,
    /// What opened the mailbox when it was let go.
    secret: Option<SecretId>,
}

impl Job for StopWatch {
    const KIND: &'static str = "stop_watch";
}

/// A provider that cannot be asked for so long is not asked: what it would tell ends by itself after a week, and the
/// consent is to be taken back.
const PATIENCE: SignedDuration = SignedDuration::from_hours(1);
const TRIES: u64 = 5;

/// When it asks to wait and does not say for how long.
const LATER: Duration = Duration::from_secs(30);

impl StopWatch {
    pub fn now(engine: &Engine, mailbox: MailboxId, secret: Option<SecretId>) -> anyhow::Result<NewJob> {
        let job = new_job(&Self { mailbox, secret }, engine.store.clock(), None)?;
        Ok(NewJob { order_key: Some(order(mailbox)), ..job })
    }
}

pub(super) fn kind(syncer: Syncer) -> Kind {
    let mut kind = Kind::new(move |held, job: StopWatch| {
        let syncer = syncer.clone();
        async move { run(&syncer, &held, &job).await }
    });
    kind.pool = Pool::Remote;
    kind
}

async fn run(syncer: &Syncer, held: &Held, job: &StopWatch) -> Result<Verdict, JobError> {
    let store = syncer.engine.store.tenant(held.tenant());
    let Some(mailbox) = store.find_mailbox(&job.mailbox.to_string()).await? else { return Ok(Verdict::Done) };
    let now = syncer.engine.store.system().now().await?;
    let is_patient = held.job.attempt < TRIES && now.duration_since(held.job.created_at) < PATIENCE;
    match syncer.stop_watch(mailbox.clone(), job.secret).await {
        Ok(()) => {}
        Err(Unstopped::Provider(ConnectorError::Throttled { retry_after })) if is_patient => {
            return Err(JobError::Throttled(retry_after.unwrap_or(LATER)));
        }
        Err(Unstopped::Provider(ConnectorError::NotYet(wait))) if is_patient => return Err(JobError::Throttled(wait)),
        Err(Unstopped::Provider(e @ ConnectorError::Unavailable(_))) if is_patient => {
            return Err(JobError::Failed { class: "unavailable", message: e.to_string() });
        }
        Err(Unstopped::Other(e)) if is_patient => return Err(e.into()),
        Err(Unstopped::Provider(e)) => {
            tracing::info!(mailbox.id = %job.mailbox, "a provider was not told to stop telling us of a mailbox, which ends by itself: {e}");
        }
        Err(Unstopped::Other(e)) => {
            tracing::warn!(mailbox.id = %job.mailbox, "a provider was not told to stop telling us of a mailbox: {e:#}");
        }
    }
    let mut unit = held.write();
    unit.forget_watch(job.mailbox);
    if let Some(secret) = job.secret {
        unit.enqueue(vec![RevokeGrant::now(&syncer.engine, &mailbox, secret)?]);
    }
    Ok(Verdict::Commit(unit))
}
