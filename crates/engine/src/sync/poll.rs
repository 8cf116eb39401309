//! The job that polls several mailboxes of a tenant. Mostly nothing is new, and then a mailbox costs one call and its
//! part of a read and a write; that needs no lease. A mailbox in which something is new, or that needs more than a poll
//! for another reason, gets a sync job of its own, which repeats the call and holds up no other mailbox.

use std::time::Duration;

use domain::connector::ListingPage;
use domain::metrics as catalogue;
use domain::{ConnectorError, MailboxId, Provider};
use futures_util::{StreamExt, stream};
use jiff::Timestamp;
use jobs::{Completion, Job, JobContext, JobError, RandomSource, storage_fault};
use serde::{Deserialize, Serialize};
use store::sql::jobs::{NewJob, StartTime};
use store::sql::mailboxes::Mailbox;
use store::sql::sync::{MailboxKey, OpenMailbox, PollState};
use store::{StorageFault, StoreError, SystemStore, TenantUnit};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::list::{add_scope_changes, is_unchanged};
use super::states::{self, MailboxSnapshot};
use super::{MailboxSession, SyncMailbox, Syncer, end_without_work};

/// Polls some mailboxes of one tenant at one provider.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PollMailboxes {
    pub provider: Provider,
    pub mailboxes: Vec<MailboxId>,
}

impl Job for PollMailboxes {
    const KIND: &'static str = "poll_mailboxes";
}

/// Mailboxes per job: enough that the job itself costs little, few enough that tenants take turns often.
pub const MAX_MAILBOXES_PER_POLL: usize = 25;

/// The longest rate limit that is waited for within the job. An open circuit breaker asks for more.
const MAX_INLINE_WAIT: Duration = Duration::from_secs(12);

/// After this, what was read of a mailbox is read again, and a mailbox whose poll takes longer gets a job of its own.
/// Longer than connectors wait for a silent server.
const POLL_TIMEOUT: Duration = Duration::from_secs(60);

/// How long results of some mailboxes wait for those of others before they are written.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

/// When a job is tried again that the limiter did not admit.
const LIMITER_RETRY_DELAY: Duration = Duration::from_secs(3);

/// The outcome of polling one mailbox.
enum PollOutcome {
    /// Nothing is left to write.
    Done,
    /// Nothing has changed.
    Unchanged { token: u64 },
    /// The provider does not work, or the mailbox has a dead letter. It is polled again when it is due.
    Failed { token: u64, failure: PollFailure },
    /// An error of our own. A sync job of its own runs, and becomes a dead letter with the reason.
    Broken { token: u64, failure: PollFailure },
    /// The rate limit left no time for it.
    Retry,
    /// A sync is needed, now or later.
    NeedsSync(StartTime),
}

struct PollFailure {
    mailbox: MailboxSnapshot,
    /// Failures in a row before this one.
    errors: u64,
    reason: String,
}

/// Outcomes that are not written yet.
#[derive(Default)]
struct PollResults {
    unchanged: Vec<(MailboxKey, u64)>,
    retry: Vec<MailboxId>,
    others: Vec<(MailboxId, PollOutcome)>,
}

impl Syncer {
    /// Polls the mailboxes of a job, as far as the limits admit it.
    pub(crate) async fn poll(&self, ctx: &JobContext, job: PollMailboxes) -> Result<Completion, JobError> {
        let Some(_job_permit) = self.poll_limiter.admit(ctx.tenant(), job.provider) else {
            return Err(JobError::Deferred(LIMITER_RETRY_DELAY.mul_f64(1.0 + domain::SystemRandom.next_fraction())));
        };
        // Before anything is read, so that waiting jobs take no memory.
        let (owner, count) = ((ctx.tenant(), job.provider), job.mailboxes.len());
        let Some(mut permits) = self.poll_limiter.acquire(owner, count, ctx.job.cost).await else {
            return Ok(Completion::Done);
        };
        ctx.report_progress();
        if ctx.job.is_suspect && count > 1 {
            // It crashed a process before: each mailbox alone, which shows the one that does it.
            let others = job.mailboxes.into_iter().map(|mailbox| (mailbox, PollOutcome::NeedsSync(StartTime::Now)));
            return PollResults { others: others.collect(), ..PollResults::default() }.finish(ctx, job.provider);
        }
        let found = self.read(ctx, &job.mailboxes).await?;
        if found.is_empty() {
            return end_without_work(&self.engine.store.tenant(ctx.tenant())).await;
        }
        let mut left = found.len();
        let polls = stream::iter(found).map(|(open, poll_state)| async move {
            (open.mailbox.id, self.poll_isolated(ctx, open, poll_state).await)
        });
        let mut polls = std::pin::pin!(polls.buffer_unordered(permits.count()));
        let mut results = PollResults::default();
        loop {
            match timeout(FLUSH_INTERVAL, polls.next()).await {
                Ok(None) => break,
                Ok(Some((mailbox, outcome))) => {
                    ctx.report_progress();
                    results.add((ctx.tenant(), mailbox), outcome);
                    left -= 1;
                    permits.shrink_to(left);
                }
                // A slow mailbox must not hold back the results of the others.
                Err(_) => self.write(ctx, &mut results).await?,
            }
        }
        results.write_unchanged(&self.engine.store.system()).await?;
        results.finish(ctx, job.provider)
    }

    /// Reads the mailboxes that exist, with their sync state.
    async fn read(&self, ctx: &JobContext, mailboxes: &[MailboxId]) -> Result<Vec<(OpenMailbox, PollState)>, JobError> {
        let keys: Vec<MailboxKey> = mailboxes.iter().map(|mailbox| (ctx.tenant(), *mailbox)).collect();
        let system = self.engine.store.system();
        let mut open = system.open_mailboxes(&keys).await?;
        let mut standings = system.list_poll_states(&keys).await?;
        Ok(keys.iter().filter_map(|key| Some((open.remove(key)?, standings.remove(key)?))).collect())
    }

    /// Writes the outcomes so far.
    async fn write(&self, ctx: &JobContext, results: &mut PollResults) -> Result<(), JobError> {
        results.write_unchanged(&self.engine.store.system()).await?;
        if !results.others.is_empty() {
            let mut unit = ctx.write();
            results.write_others(ctx, &mut unit)?;
            unit.commit().await?;
        }
        Ok(())
    }

    /// Polls a mailbox in a task of its own, so that an error or panic concerns it alone, and so that it continues
    /// while the job writes: the job must not wait for a connection that one of its polls holds.
    async fn poll_isolated(&self, ctx: &JobContext, open: OpenMailbox, poll_state: PollState) -> PollOutcome {
        let (token, errors) = (poll_state.token, poll_state.state.error_count);
        let (sync, enqueued_at, mailbox) = (self.clone(), ctx.job.created_at, open.mailbox.id);
        let snapshot = MailboxSnapshot::from(&open.mailbox);
        let mut task = JoinSet::new(); // aborted with the job
        task.spawn(async move { sync.poll_one(enqueued_at, open, poll_state).await });
        let reason = match task.join_next().await {
            Some(Ok(Ok(outcome))) => return outcome,
            // The database is away, which says nothing about the mailbox.
            Some(Ok(Err(e))) if storage_fault(&e) == Some(StorageFault::Certain) => return PollOutcome::Retry,
            Some(Ok(Err(e))) => format!("{e:#}"),
            Some(Err(_)) | None => "the poll panicked".to_owned(),
        };
        let failure = PollFailure { mailbox: snapshot, errors, reason };
        let store = self.engine.store.tenant(ctx.tenant());
        let mut task = JoinSet::new();
        task.spawn(async move { store.has_sync_dead_letter(mailbox).await });
        match task.join_next().await {
            Some(Ok(Ok(true))) => PollOutcome::Failed { token, failure },
            _ => PollOutcome::Broken { token, failure },
        }
    }

    async fn poll_one(
        &self,
        enqueued_at: Timestamp,
        open: OpenMailbox,
        poll_state: PollState,
    ) -> anyhow::Result<PollOutcome> {
        let started = Instant::now();
        let Some(session) = self.open_session(open).await? else { return Ok(PollOutcome::Done) };
        // A sync that is running sees more than a poll. And one may have run since this job was enqueued.
        if poll_state.is_held || poll_state.state.last_sync_at > Some(enqueued_at) {
            return Ok(PollOutcome::Done);
        }
        let PollState { state, .. } = &poll_state;
        let is_settled = state.is_history_done && !state.is_listing && !state.is_look_due();
        if poll_state.cursors.is_empty() || !is_settled {
            return Ok(PollOutcome::NeedsSync(StartTime::Now));
        }
        let page = loop {
            let call = session.connector.changes(&session.account, &poll_state.cursors);
            let Ok(answer) = timeout(POLL_TIMEOUT, self.gateway.make(&session.target, call)).await else {
                return Ok(PollOutcome::NeedsSync(StartTime::Now));
            };
            match answer {
                Ok(page) => break page,
                Err(ConnectorError::RateLimited(wait)) if wait <= MAX_INLINE_WAIT => {
                    if started.elapsed() > POLL_TIMEOUT {
                        return Ok(PollOutcome::Retry);
                    }
                    tokio::time::sleep(wait).await;
                }
                Err(e) => return self.outcome_of_error(&e, &session.mailbox, &poll_state).await,
            }
        };
        let outcome = outcome_of_page(&session, &poll_state, page);
        metrics::histogram!(catalogue::POLL_DURATION_SECONDS).record(started.elapsed().as_secs_f64());
        Ok(outcome)
    }

    async fn outcome_of_error(
        &self,
        e: &ConnectorError,
        mailbox: &Mailbox,
        poll_state: &PollState,
    ) -> anyhow::Result<PollOutcome> {
        let is_over = match e {
            // It is due again before long, and the mailboxes that waited must not all come back at once.
            ConnectorError::RateLimited(_) => return Ok(PollOutcome::Done),
            ConnectorError::Throttled { retry_after: Some(wait) } => {
                return Ok(PollOutcome::NeedsSync(StartTime::In(*wait)));
            }
            ConnectorError::Throttled { retry_after: None }
            | ConnectorError::Unavailable(_)
            | ConnectorError::AppRejected(_) => true,
            ConnectorError::Protocol(_) | ConnectorError::Gone => {
                self.engine.store.tenant(mailbox.tenant_id).has_sync_dead_letter(mailbox.id).await?
            }
            _ => false,
        };
        let (token, errors) = (poll_state.token, poll_state.state.error_count);
        Ok(if is_over {
            let failure = PollFailure { mailbox: mailbox.into(), errors, reason: e.to_string() };
            PollOutcome::Failed { token, failure }
        } else {
            PollOutcome::NeedsSync(StartTime::Now)
        })
    }
}

fn outcome_of_page(session: &MailboxSession, poll_state: &PollState, mut page: ListingPage) -> PollOutcome {
    add_scope_changes(&mut page, session);
    let is_unchanged = is_unchanged(&page, &poll_state.cursors, &poll_state.state, session);
    let (provider, found) = (session.mailbox.provider.as_str(), if is_unchanged { "nothing" } else { "something" });
    metrics::counter!(catalogue::POLLS, "provider" => provider, "found" => found).increment(1);
    if is_unchanged {
        PollOutcome::Unchanged { token: poll_state.token }
    } else {
        PollOutcome::NeedsSync(StartTime::Now)
    }
}

impl PollResults {
    fn add(&mut self, key: MailboxKey, outcome: PollOutcome) {
        match outcome {
            PollOutcome::Done => {}
            PollOutcome::Unchanged { token } => self.unchanged.push((key, token)),
            PollOutcome::Retry => self.retry.push(key.1),
            outcome => self.others.push((key.1, outcome)),
        }
    }

    async fn write_unchanged(&mut self, system: &SystemStore) -> Result<(), StoreError> {
        let unchanged = std::mem::take(&mut self.unchanged);
        if unchanged.is_empty() { Ok(()) } else { system.record_unchanged_polls(&unchanged).await }
    }

    /// Writes the other outcomes in the order in which all writers lock mailboxes.
    fn write_others(&mut self, ctx: &JobContext, unit: &mut TenantUnit) -> Result<(), JobError> {
        self.others.sort_by_key(|(mailbox, _)| *mailbox);
        self.others.drain(..).try_for_each(|(mailbox, outcome)| write(ctx, unit, mailbox, outcome))
    }

    /// Returns the unit that completes the job.
    fn finish(mut self, ctx: &JobContext, provider: Provider) -> Result<Completion, JobError> {
        if self.retry.is_empty() && self.others.is_empty() {
            return Ok(Completion::Done);
        }
        let mut unit = ctx.write();
        if !self.retry.is_empty() {
            let job = PollMailboxes { provider, mailboxes: std::mem::take(&mut self.retry) };
            unit.enqueue(vec![ctx.follow_up(&job).map_err(anyhow::Error::from)?]);
        }
        self.write_others(ctx, &mut unit)?;
        Ok(Completion::Commit(unit))
    }
}

fn write(ctx: &JobContext, unit: &mut TenantUnit, mailbox: MailboxId, outcome: PollOutcome) -> Result<(), JobError> {
    match outcome {
        PollOutcome::Failed { token, failure: PollFailure { mailbox: snapshot, errors, reason } } => {
            unit.record_failed_poll(mailbox, token, &reason);
            states::log(states::mark_failing(unit, snapshot, errors, &reason));
        }
        PollOutcome::Broken { token, failure } => {
            write(ctx, unit, mailbox, PollOutcome::NeedsSync(StartTime::Now))?;
            write(ctx, unit, mailbox, PollOutcome::Failed { token, failure })?;
        }
        PollOutcome::NeedsSync(when) => {
            let sync = SyncMailbox::request_in(ctx, mailbox)?;
            unit.enqueue(vec![NewJob { when, ..sync }]);
        }
        PollOutcome::Done | PollOutcome::Unchanged { .. } | PollOutcome::Retry => {}
    }
    Ok(())
}
