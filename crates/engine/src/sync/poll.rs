//! A look at several mailboxes of a tenant, as one job: most of the time nothing is new, and then a mailbox costs one call
//! and its part of a write. Nobody needs the right to list a mailbox for that; whoever finds something takes it and goes on
//! with what was found. A mailbox that needs more than a look gets a job of its own.

use std::time::Duration;

use domain::connector::Page;
use domain::{ConnectorError, MailboxId, Provider};
use futures_util::{StreamExt, stream};
use jobs::{Dice, Held, Job, JobError, Kind, Pool, Verdict};
use serde::{Deserialize, Serialize};
use store::failpoint::{self, Effect};
use store::sql::jobs::{NewJob, When};
use store::sql::sync::{Phase, Standing, SyncEnd};
use tokio::time::Instant;

use super::list::{PATIENT, add_rescoped, is_quiet};
use super::{Opened, SyncMailbox, Syncer, only_one, states};

/// Some mailboxes of one tenant at one provider.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PollMailboxes {
    pub provider: Provider,
    pub mailboxes: Vec<MailboxId>,
}

impl Job for PollMailboxes {
    const KIND: &'static str = "poll_mailboxes";
}

/// Mailboxes of one job: enough that the job costs little beside them, few enough that tenants take turns often.
pub const AT_MOST: usize = 25;

/// Mailboxes of one job that are looked at at the same time.
const AT_ONCE: usize = 4;

/// Who is told to wait for less waits here, without a place. A breaker that is open says more than that.
const SHORT: Duration = Duration::from_secs(12);

/// Who has waited for so long is looked at when it is due the next time.
const PATIENCE: Duration = Duration::from_secs(240);

/// Of a job, for budgets under which a few mailboxes take minutes.
const DEADLINE: Duration = Duration::from_secs(3600);
const NO_PROGRESS: Duration = Duration::from_secs(600);

/// When a job comes back whose provider has as many as may be.
const CROWDED: Duration = Duration::from_secs(3);

/// So many looks in a row must fail before the mailbox is said to be in trouble.
const TROUBLED: u64 = 3;

/// What a look came to that is not over with it.
enum Looked {
    Done,
    /// Its provider does not work, or not for now. It is looked at again when it is due.
    Failed { token: u64, errors: u64, reason: String },
    /// Somebody has to do more than to look, now or later.
    Needs(When),
}

impl Syncer {
    pub fn poll_kind(&self) -> Kind {
        let sync = self.clone();
        let kind = Kind::new(move |held: Held, job: PollMailboxes| {
            let sync = sync.clone();
            async move { sync.poll(&held, job).await }
        });
        kind.on(Pool::Remote).retried(PATIENT).within(DEADLINE, NO_PROGRESS)
    }

    async fn poll(&self, held: &Held, job: PollMailboxes) -> Result<Verdict, JobError> {
        let Some(_place) = self.crowd.enter(job.provider) else {
            return Err(JobError::Throttled(CROWDED.mul_f64(1.0 + jobs::SystemDice.fraction())));
        };
        let look = |mailbox| async move { (mailbox, self.look(held, job.provider, mailbox).await) };
        let looks = stream::iter(job.mailboxes).map(look);
        let mut looks = std::pin::pin!(looks.buffer_unordered(AT_ONCE));
        let mut unit = held.write();
        let mut is_empty = true;
        while let Some((mailbox, looked)) = looks.next().await {
            held.progress();
            match looked? {
                Looked::Done => continue,
                Looked::Failed { token, errors, reason } => {
                    unit.end_sync(mailbox, token, SyncEnd::Failed(&reason));
                    if errors + 1 >= TROUBLED {
                        states::fails(&mut unit, mailbox, &reason);
                    }
                }
                Looked::Needs(when) => {
                    let own = held.follow_up(&SyncMailbox { mailbox }).map_err(anyhow::Error::from)?;
                    unit.enqueue(vec![only_one(NewJob { when, ..own }, mailbox)]);
                }
            }
            is_empty = false;
        }
        Ok(if is_empty { Verdict::Done } else { Verdict::Commit(unit) })
    }

    async fn look(&self, held: &Held, provider: Provider, mailbox: MailboxId) -> Result<Looked, JobError> {
        let begun = Instant::now();
        loop {
            // Before anything is read, so that what waits takes no memory.
            let place = self.crowd.look(provider).await;
            let started = Instant::now();
            let key = (held.tenant(), mailbox);
            let Some(opened) = self.open(key.0, key.1).await? else { return Ok(Looked::Done) };
            let Some(standing) = self.desk.standing(key).await? else { return Ok(Looked::Done) };
            // Who lists it sees more than we do. And since it was to be looked at, somebody may have done so.
            if standing.is_held || standing.state.last_sync_at > Some(held.job.created_at) {
                return Ok(Looked::Done);
            }
            let is_settled = standing.state.is_history_done && !standing.state.is_listing;
            if standing.cursors.is_empty() || !is_settled {
                return Ok(Looked::Needs(When::Now));
            }
            let call = opened.connector.changes(&opened.account, &standing.cursors);
            let page = match self.calls.make(&opened.mailbox, call).await {
                Ok(page) => page,
                Err(ConnectorError::NotYet(wait)) if wait <= SHORT && begun.elapsed() < PATIENCE => {
                    drop(place);
                    held.progress();
                    tokio::time::sleep(wait).await;
                    continue;
                }
                Err(e) => return Ok(refused(&e, &standing)),
            };
            let looked = self.looked(held, opened, standing, page).await;
            metrics::histogram!("mailroom_look_duration_seconds").record(started.elapsed().as_secs_f64());
            return looked;
        }
    }

    async fn looked(
        &self,
        held: &Held,
        opened: Opened,
        standing: Standing,
        mut page: Page,
    ) -> Result<Looked, JobError> {
        let (key, provider) = ((held.tenant(), opened.mailbox.id), opened.mailbox.provider.as_str());
        add_rescoped(&mut page, &opened);
        let is_quiet = is_quiet(&page, &standing.cursors, &standing.state, &opened);
        let found = if is_quiet { "nothing" } else { "something" };
        metrics::counter!("mailroom_looks_total", "provider" => provider, "found" => found).increment(1);
        if is_quiet {
            self.desk.end_look(key, standing.token).await?;
            return Ok(Looked::Done);
        }
        match self.list(held, key.1, Phase::Changes, Some((standing.token, page))).await {
            Ok(Verdict::Done) => Ok(Looked::Done),
            Ok(Verdict::Commit(unit)) => {
                failpoint::before(Effect::RecordPage);
                let committed = unit.commit().await;
                failpoint::after(Effect::RecordPage);
                // Whatever went wrong, nothing of it is recorded.
                Ok(if committed.is_ok() { Looked::Done } else { Looked::Needs(When::Now) })
            }
            Err(JobError::Throttled(wait)) => Ok(Looked::Needs(When::In(wait))),
            Err(_) => Ok(Looked::Needs(When::Now)),
        }
    }
}

fn refused(e: &ConnectorError, standing: &Standing) -> Looked {
    match e {
        // It is due again before long, and those who waited are not to come back all at once.
        ConnectorError::NotYet(_) => Looked::Done,
        ConnectorError::Throttled { retry_after: Some(wait) } => Looked::Needs(When::In(*wait)),
        ConnectorError::Throttled { retry_after: None }
        | ConnectorError::Unavailable(_)
        | ConnectorError::Operator(_) => {
            Looked::Failed { token: standing.token, errors: standing.state.error_count, reason: e.to_string() }
        }
        _ => Looked::Needs(When::Now),
    }
}
