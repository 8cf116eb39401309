//! Mailboxes that live somewhere else, kept equal to what their providers show.
//!
//! A listing comes in pages. Each page is one commit: the ledger, where messages are, the jobs that fetch them, and the
//! cursor. Whoever lists a mailbox holds its token, which every one of these commits checks.

mod crowd;
mod desk;
mod fetch;
mod hold;
mod list;
mod place;
mod poll;
mod room;
mod scope;
mod states;
mod turns;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use domain::connector::{Access, Account, NoAccess};
use domain::{Connector, ConnectorError, MailboxId, Provider, TenantId};
use jobs::{Gate, NoGate};
use store::sql::mailboxes::Mailbox;
use store::sql::sync::OpenMailbox;
use store::{TenantStore, TenantUnit};
use tokio::sync::Semaphore;

pub use desk::Desk;
pub use fetch::FetchEmails;
pub use list::{ListHistory, ListMailbox, SyncMailbox, only_one};
pub use poll::{AT_MOST, PollMailboxes};
pub use scope::Scope;

use crate::Engine;
use crate::access::Granted;
use crate::calls::Calls;
use crate::tokens::{Asker, TokenSettings, Tokens};
use crowd::Crowd;
use room::Memory;
use turns::Turns;

/// After 1, 2, 4, 8 and 16 seconds with full jitter, and every five minutes at last.
const AWAY: jobs::Retry =
    jobs::Retry { retries: u32::MAX, first: Duration::from_secs(1), longest: Duration::from_secs(300) };

/// Who has to wait for less says nothing of it: it is over before anybody has looked.
const WORTH_TELLING: Duration = Duration::from_secs(60);

/// When to try folders again that could not be opened.
const SHUT: Duration = Duration::from_secs(300);

/// When to try again what only an operator can mend.
const FOR_THE_OPERATOR: Duration = Duration::from_secs(300);

/// How soon a job may be taken again whose tenant is switched off.
const TENANT_OFF: Duration = Duration::from_secs(1);

/// Directories that are looked at at once, unless it is said.
const DISCOVERIES: usize = 100;

#[derive(Debug, Clone)]
pub struct SyncSettings {
    /// Who holds a mailbox, for people.
    pub holder: String,
    pub lease: Duration,
    /// Whether the same bytes under two ids are one email, where ids do not say.
    pub duplicate_check: bool,
}

/// Everything that syncing needs. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Syncer {
    pub engine: Engine,
    pub settings: Arc<SyncSettings>,
    pub connectors: Arc<HashMap<Provider, Arc<dyn Connector>>>,
    pub calls: Calls,
    pub tokens: Tokens,
    /// Asked before the database who may list a mailbox.
    gate: Arc<dyn Gate>,
    memory: Memory,
    turns: Turns,
    desk: Desk,
    /// Directories that are looked at at once.
    pub(crate) discoveries: Arc<Semaphore>,
    crowd: Crowd,
}

/// A mailbox as a listing or a fetch needs it.
#[derive(Debug)]
pub(crate) struct Opened {
    pub mailbox: Arc<Mailbox>,
    pub account: Account,
    pub connector: Arc<dyn Connector>,
    pub scope: Scope,
}

impl Syncer {
    pub fn new(
        engine: Engine,
        settings: SyncSettings,
        connectors: HashMap<Provider, Arc<dyn Connector>>,
        calls: Calls,
    ) -> Self {
        let gate = Arc::new(NoGate);
        let desk = Desk::new(engine.store.clone());
        let tokens = Tokens::new(engine.clone(), &settings.holder, TokenSettings::following(settings.lease));
        Self {
            engine,
            settings: Arc::new(settings),
            connectors: Arc::new(connectors),
            calls,
            tokens,
            gate,
            memory: Memory::default(),
            turns: Turns::default(),
            desk,
            discoveries: Arc::new(Semaphore::new(DISCOVERIES)),
            crowd: Crowd::default(),
        }
    }

    pub fn with_tokens(self, settings: TokenSettings) -> Self {
        let tokens = Tokens::new(self.engine.clone(), &self.settings.holder, settings);
        Self { tokens, ..self }
    }

    pub fn with_discovery_workers(self, at_once: usize) -> Self {
        Self { discoveries: Arc::new(Semaphore::new(at_once)), ..self }
    }

    /// For a process that works on so many mailboxes at the same time.
    pub fn with_workers(self, workers: usize) -> Self {
        Self { crowd: Crowd::of(workers), ..self }
    }

    pub fn with_gate(self, gate: Arc<dyn Gate>) -> Self {
        Self { gate, ..self }
    }

    /// `None`: there is nothing to do for it now, because it or its tenant is switched off, it waits for somebody, or is no
    /// such mailbox.
    pub(crate) async fn open(&self, tenant: TenantId, mailbox: MailboxId) -> anyhow::Result<Option<Opened>> {
        match self.desk.open((tenant, mailbox)).await? {
            Some(open) => self.ready(open).await,
            None => Ok(None),
        }
    }

    /// The same for one that was read already.
    async fn ready(&self, open: OpenMailbox) -> anyhow::Result<Option<Opened>> {
        let OpenMailbox { mailbox, secret: sealed, folders, sweep_since } = open;
        if !mailbox.is_active || !mailbox.state.is_synced() {
            return Ok(None);
        }
        let Some(connector) = self.connectors.get(&mailbox.provider).cloned() else { return Ok(None) };
        let secret = self.engine.open_secret(&mailbox, sealed.as_ref()).await?;
        let mailbox = Arc::new(mailbox);
        let mut account = Account {
            tenant: mailbox.tenant_id,
            mailbox: mailbox.id,
            address: mailbox.address.clone(),
            settings: connection(&mailbox.settings),
            secret,
            folders,
            sweep_since,
            access: Arc::new(NoAccess),
        };
        account.access = self.access(&mailbox, &account, &connector);
        let scope = Scope::of(&mailbox.settings);
        Ok(Some(Opened { mailbox, account, connector, scope }))
    }

    /// Tokens and quotas, for providers that have them.
    pub fn access(&self, mailbox: &Arc<Mailbox>, account: &Account, connector: &Arc<dyn Connector>) -> Arc<dyn Access> {
        if connector.grant(account).is_none() {
            return Arc::new(NoAccess);
        }
        let asker = Asker { connector: connector.clone(), account: account.clone() };
        let (tokens, calls, mailbox) = (self.tokens.clone(), self.calls.clone(), mailbox.clone());
        Arc::new(Granted { tokens, calls, mailbox, asker })
    }

    /// A mailbox that was refused for long shows until when, and why.
    fn tell_pause(&self, unit: &mut TenantUnit, mailbox: &Mailbox, e: &ConnectorError) {
        if let ConnectorError::Throttled { retry_after: Some(wait) } | ConnectorError::NotYet(wait) = e
            && *wait >= WORTH_TELLING
        {
            unit.pause_sync(mailbox.id, *wait, self.calls.why(mailbox));
        }
    }
}

/// There is nothing to do for a mailbox now. If that is because its tenant was switched off as the job began, the job stays
/// for when it is back: until then nobody takes it.
async fn nothing_to_do(store: &TenantStore) -> Result<jobs::Verdict, jobs::JobError> {
    if store.is_active().await? { Ok(jobs::Verdict::Done) } else { Err(jobs::JobError::Throttled(TENANT_OFF)) }
}

/// The part of a mailbox's settings that its connector reads.
pub fn connection(settings: &serde_json::Value) -> String {
    settings.get("connection").map_or_else(|| "{}".to_owned(), ToString::to_string)
}

/// What a provider's refusal means for a job.
pub(crate) fn job_error(e: &ConnectorError, held: &jobs::Held) -> jobs::JobError {
    match e {
        // Whoever says for how long is obeyed to the letter.
        ConnectorError::Throttled { retry_after: Some(wait) } | ConnectorError::NotYet(wait) => {
            jobs::JobError::Throttled(*wait)
        }
        // That says nothing of the work, so no attempt is spent; it waits longer each time.
        ConnectorError::Throttled { retry_after: None } | ConnectorError::Unavailable(_) => {
            let tries = held.job.token.saturating_sub(1);
            jobs::JobError::Throttled(AWAY.delay(tries.min(500), &jobs::SystemDice).unwrap_or(AWAY.longest))
        }
        ConnectorError::Unauthorized(_) => jobs::JobError::Fatal { class: "unauthorized", message: e.to_string() },
        ConnectorError::Operator(_) => jobs::JobError::Throttled(FOR_THE_OPERATOR),
        ConnectorError::CursorExpired => jobs::JobError::Failed { class: "cursor", message: e.to_string() },
        ConnectorError::Shut(_) => jobs::JobError::Throttled(SHUT),
        ConnectorError::Gone => jobs::JobError::Failed { class: "gone", message: e.to_string() },
        ConnectorError::Protocol(_) => jobs::JobError::Failed { class: "protocol", message: e.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use domain::PlanTier;
    use jobs::{JobError, Verdict};
    use store::testing::on_each_database;

    use super::*;

    #[tokio::test]
    async fn a_job_that_finds_nothing_to_do_ends_but_not_if_its_tenant_was_switched_off_as_it_began() {
        on_each_database(|db| async move {
            let system = db.store.system();
            let tenant = system.create_tenant("acme", PlanTier::Standard).await.unwrap().unwrap();
            let store = db.store.tenant(tenant.id);
            assert!(matches!(nothing_to_do(&store).await, Ok(Verdict::Done)));

            system.set_tenant_active(tenant.id, false).await.unwrap();

            assert!(matches!(nothing_to_do(&store).await, Err(JobError::Throttled(_))));
        })
        .await;
    }
}
