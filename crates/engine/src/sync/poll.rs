//! A look at several mailboxes of a tenant, as one job: most of the time nothing is new, and then a mailbox costs one call
//! and its part of a read and a write. Nobody needs the right to list a mailbox for that. One in which something is new, or
//! that needs more than a look for another reason, gets a job of its own, which asks once more and holds nobody up.

use std::time::Duration;

use domain::connector::Page;
use domain::{ConnectorError, MailboxId, Provider};
use futures_util::{StreamExt, stream};
use jiff::Timestamp;
use jobs::{Dice, Held, Job, JobError, Kind, Pool, Verdict};
use serde::{Deserialize, Serialize};
use store::sql::jobs::{NewJob, When};
use store::sql::mailboxes::Mailbox;
use store::sql::sync::{Key, OpenMailbox, Standing};
use store::{StoreError, SystemStore, TenantUnit};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::list::{STUBBORN, add_rescoped, is_quiet};
use super::{Opened, SyncMailbox, Syncer, nothing_to_do, only_one, states};

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

/// Who is told to wait for less waits here. A breaker that is open says more than that.
const SHORT: Duration = Duration::from_secs(12);

/// What was read of a mailbox so long ago is read again; and a mailbox that takes longer to look at gets a job of its own.
/// Longer than connectors wait for a server that is silent.
const PATIENCE: Duration = Duration::from_secs(60);

/// For so long what is known of some waits for what is not known of others.
const SOON: Duration = Duration::from_secs(1);

/// Of a job, for budgets under which its turn comes late.
const DEADLINE: Duration = Duration::from_secs(3600);

/// When a job comes back whose provider has as many as may be.
const CROWDED: Duration = Duration::from_secs(3);

/// What a look came to.
enum Looked {
    /// There is nothing to write, or it is written.
    Done,
    /// Nothing was new.
    Quiet { token: u64 },
    /// Its provider does not work, or it was given up. It is looked at again when it is due.
    Failed { token: u64, errors: u64, reason: String },
    /// Something is wrong with it here. A job of its own is given up with the reason.
    Broken { token: u64, errors: u64, reason: String },
    /// It had no turn.
    Again,
    /// Somebody has to do more than to look, now or later.
    Needs(When),
}

/// What is to be written.
#[derive(Default)]
struct Outcome {
    quiet: Vec<(Key, u64)>,
    again: Vec<MailboxId>,
    rest: Vec<(MailboxId, Looked)>,
}

impl Syncer {
    pub fn poll_kind(&self) -> Kind {
        let sync = self.clone();
        let kind = Kind::new(move |held: Held, job: PollMailboxes| {
            let sync = sync.clone();
            async move { sync.poll(&held, job).await }
        });
        kind.on(Pool::Remote).retried(STUBBORN).within(DEADLINE, DEADLINE)
    }

    async fn poll(&self, held: &Held, job: PollMailboxes) -> Result<Verdict, JobError> {
        let Some(_place) = self.crowd.enter(held.tenant(), job.provider) else {
            return Err(JobError::Throttled(CROWDED.mul_f64(1.0 + jobs::SystemDice.fraction())));
        };
        // Before anything is read, so that what waits takes no memory.
        let (whose, most) = ((held.tenant(), job.provider), job.mailboxes.len());
        let Some(mut places) = self.crowd.looks(whose, most, held.job.cost).await else { return Ok(Verdict::Done) };
        held.progress();
        if held.job.is_suspect && most > 1 {
            // Somebody dies whenever it runs: each alone, and it shows whose matter that is.
            let rest = job.mailboxes.into_iter().map(|mailbox| (mailbox, Looked::Needs(When::Now)));
            return Outcome { rest: rest.collect(), ..Outcome::default() }.finish(held, job.provider);
        }
        let found = self.read(held, &job.mailboxes).await?;
        if found.is_empty() {
            return nothing_to_do(&self.engine.store.tenant(held.tenant())).await;
        }
        let mut left = found.len();
        let look = |(open, standing): (OpenMailbox, Standing)| async move {
            (open.mailbox.id, self.look_alone(held, open, standing).await)
        };
        let mut looks = std::pin::pin!(stream::iter(found).map(look).buffer_unordered(places.count));
        let mut outcome = Outcome::default();
        loop {
            match timeout(SOON, looks.next()).await {
                Ok(None) => break,
                Ok(Some((mailbox, looked))) => {
                    held.progress();
                    outcome.add((held.tenant(), mailbox), looked);
                    left -= 1;
                    places.keep(left);
                }
                // One that takes its time must not keep what is known of the others.
                Err(_) => self.write(held, &mut outcome).await?,
            }
        }
        outcome.write_quiet(&self.engine.store.system()).await?;
        outcome.finish(held, job.provider)
    }

    /// Those that are there, with where they stand.
    async fn read(&self, held: &Held, mailboxes: &[MailboxId]) -> Result<Vec<(OpenMailbox, Standing)>, JobError> {
        let keys: Vec<Key> = mailboxes.iter().map(|mailbox| (held.tenant(), *mailbox)).collect();
        let system = self.engine.store.system();
        let mut open = system.open_mailboxes(&keys).await?;
        let mut standings = system.list_standings(&keys).await?;
        Ok(keys.iter().filter_map(|key| Some((open.remove(key)?, standings.remove(key)?))).collect())
    }

    /// What is known so far.
    async fn write(&self, held: &Held, outcome: &mut Outcome) -> Result<(), JobError> {
        outcome.write_quiet(&self.engine.store.system()).await?;
        if !outcome.rest.is_empty() {
            let mut unit = held.write();
            outcome.write_rest(held, &mut unit)?;
            unit.commit().await?;
        }
        Ok(())
    }

    /// Whatever is wrong with one mailbox is its own matter. As a task of its own, so that it goes on while the job writes:
    /// the job must not wait for a connection that a look of its own has.
    async fn look_alone(&self, held: &Held, open: OpenMailbox, standing: Standing) -> Looked {
        let (token, errors) = (standing.token, standing.state.error_count);
        let (sync, asked_at, mailbox) = (self.clone(), held.job.created_at, open.mailbox.id);
        let mut task = JoinSet::new(); // which ends with the job
        task.spawn(async move { sync.look(asked_at, open, standing).await });
        let reason = match task.join_next().await {
            Some(Ok(Ok(looked))) => return looked,
            Some(Ok(Err(e))) => format!("{e:#}"),
            Some(Err(_)) | None => "a look at it panicked".to_owned(),
        };
        let store = self.engine.store.tenant(held.tenant());
        let mut task = JoinSet::new();
        task.spawn(async move { store.is_given_up(mailbox).await });
        match task.join_next().await {
            Some(Ok(Ok(true))) => Looked::Failed { token, errors, reason },
            _ => Looked::Broken { token, errors, reason },
        }
    }

    async fn look(&self, asked_at: Timestamp, open: OpenMailbox, standing: Standing) -> anyhow::Result<Looked> {
        let begun = Instant::now();
        let Some(opened) = self.ready(open).await? else { return Ok(Looked::Done) };
        // Who lists it sees more than we do. And since it was to be looked at, somebody may have done so.
        if standing.is_held || standing.state.last_sync_at > Some(asked_at) {
            return Ok(Looked::Done);
        }
        let is_settled = standing.state.is_history_done && !standing.state.is_listing;
        if standing.cursors.is_empty() || !is_settled {
            return Ok(Looked::Needs(When::Now));
        }
        let page = loop {
            let call = opened.connector.changes(&opened.account, &standing.cursors);
            let Ok(answer) = timeout(PATIENCE, self.calls.make(&opened.mailbox, call)).await else {
                return Ok(Looked::Needs(When::Now));
            };
            match answer {
                Ok(page) => break page,
                Err(ConnectorError::NotYet(wait)) if wait <= SHORT => {
                    if begun.elapsed() > PATIENCE {
                        return Ok(Looked::Again);
                    }
                    tokio::time::sleep(wait).await;
                }
                Err(e) => return self.refused(&e, &opened.mailbox, &standing).await,
            }
        };
        let looked = looked(&opened, &standing, page);
        metrics::histogram!("mailroom_look_duration_seconds").record(begun.elapsed().as_secs_f64());
        Ok(looked)
    }

    async fn refused(&self, e: &ConnectorError, mailbox: &Mailbox, standing: &Standing) -> anyhow::Result<Looked> {
        let is_over = match e {
            // It is due again before long, and those who waited are not to come back all at once.
            ConnectorError::NotYet(_) => return Ok(Looked::Done),
            ConnectorError::Throttled { retry_after: Some(wait) } => return Ok(Looked::Needs(When::In(*wait))),
            ConnectorError::Throttled { retry_after: None }
            | ConnectorError::Unavailable(_)
            | ConnectorError::Operator(_) => true,
            ConnectorError::Protocol(_) | ConnectorError::Gone => {
                self.engine.store.tenant(mailbox.tenant_id).is_given_up(mailbox.id).await?
            }
            _ => false,
        };
        let (token, errors) = (standing.token, standing.state.error_count);
        Ok(match is_over {
            true => Looked::Failed { token, errors, reason: e.to_string() },
            false => Looked::Needs(When::Now),
        })
    }
}

fn looked(opened: &Opened, standing: &Standing, mut page: Page) -> Looked {
    add_rescoped(&mut page, opened);
    let is_quiet = is_quiet(&page, &standing.cursors, &standing.state, opened);
    let (provider, found) = (opened.mailbox.provider.as_str(), if is_quiet { "nothing" } else { "something" });
    metrics::counter!("mailroom_looks_total", "provider" => provider, "found" => found).increment(1);
    match is_quiet {
        true => Looked::Quiet { token: standing.token },
        false => Looked::Needs(When::Now),
    }
}

impl Outcome {
    fn add(&mut self, key: Key, looked: Looked) {
        match looked {
            Looked::Done => {}
            Looked::Quiet { token } => self.quiet.push((key, token)),
            Looked::Again => self.again.push(key.1),
            looked => self.rest.push((key.1, looked)),
        }
    }

    async fn write_quiet(&mut self, system: &SystemStore) -> Result<(), StoreError> {
        let quiet = std::mem::take(&mut self.quiet);
        if quiet.is_empty() { Ok(()) } else { system.end_looks(&quiet).await }
    }

    /// In the order in which everybody takes mailboxes.
    fn write_rest(&mut self, held: &Held, unit: &mut TenantUnit) -> Result<(), JobError> {
        self.rest.sort_by_key(|(mailbox, _)| *mailbox);
        self.rest.drain(..).try_for_each(|(mailbox, looked)| write(held, unit, mailbox, looked))
    }

    fn finish(mut self, held: &Held, provider: Provider) -> Result<Verdict, JobError> {
        if self.again.is_empty() && self.rest.is_empty() {
            return Ok(Verdict::Done);
        }
        let mut unit = held.write();
        if !self.again.is_empty() {
            let job = PollMailboxes { provider, mailboxes: std::mem::take(&mut self.again) };
            unit.enqueue(vec![held.follow_up(&job).map_err(anyhow::Error::from)?]);
        }
        self.write_rest(held, &mut unit)?;
        Ok(Verdict::Commit(unit))
    }
}

fn write(held: &Held, unit: &mut TenantUnit, mailbox: MailboxId, looked: Looked) -> Result<(), JobError> {
    match looked {
        Looked::Failed { token, errors, reason } => {
            unit.fail_look(mailbox, token, &reason);
            states::fails(unit, mailbox, errors, &reason);
        }
        Looked::Broken { token, errors, reason } => {
            write(held, unit, mailbox, Looked::Needs(When::Now))?;
            write(held, unit, mailbox, Looked::Failed { token, errors, reason })?;
        }
        Looked::Needs(when) => {
            let own = held.follow_up(&SyncMailbox { mailbox }).map_err(anyhow::Error::from)?;
            unit.enqueue(vec![only_one(NewJob { when, ..own }, mailbox)]);
        }
        Looked::Done | Looked::Quiet { .. } | Looked::Again => {}
    }
    Ok(())
}
