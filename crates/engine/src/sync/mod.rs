//! Syncs mailboxes with their providers.
//!
//! A listing comes in pages. Each page is one commit: the ledger, the placements, the jobs that fetch messages, and the
//! cursor. A job lists a mailbox under a lease, whose fence token every one of these commits checks.

pub mod completeness;
mod fetch;
mod lease;
mod list;
pub mod mailbox_listeners;
mod missing;
mod placements;
mod poll;
pub mod push;
pub mod redis_gate;
mod requests;
pub mod schedule;
mod scope;
mod statement_batchers;
mod states;
pub mod target;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use domain::connector::{ConnectorAccount, NoApiAccess};
use domain::{Connector, ConnectorError, MailboxId, Provider, TenantId};
use jobs::{LeaseGate, OpenLeaseGate};
use store::sql::mailboxes::Mailbox;
use store::sql::sync::OpenMailbox;
use store::{TenantStore, TenantUnit};

pub use fetch::FetchEmails;
pub use missing::explain_hold;
pub use poll::{MAX_MAILBOXES_PER_POLL, PollMailboxes};
pub use requests::{
    FetchFailed, FetchForgotten, ListHistory, ListMailbox, RemoveMissing, StopWatch, SyncMailbox, WatchMailbox,
};
pub use scope::FolderScope;
pub use statement_batchers::StatementBatchers;

use crate::Engine;
use crate::credentials::access::MailboxAccess;
use crate::credentials::tokens::{TokenRequest, TokenSettings, Tokens};
use crate::retry_policies::UNAVAILABLE_RETRY;
use crate::sync::target::target_of;
use outbound::fetch_limiter::FetchLimiter;
use outbound::limits::{Limit, PollLimits};
use outbound::memory_budget::MemoryBudget;
use outbound::permits::{Permit, PermitTable};
use outbound::poll_limiter::PollLimiter;
use outbound::{Gateway, Target};

/// The shortest pause that is recorded for people to see: a shorter one is over before anybody has looked.
const MIN_RECORDED_PAUSE: Duration = Duration::from_secs(10);

/// When a job is tried again whose mailbox is being listed by another holder, which takes seconds.
const LEASE_RETRY_DELAY: Duration = Duration::from_millis(500);

/// When folders are tried again that could not be opened.
const FOLDER_RETRY_DELAY: Duration = Duration::from_secs(300);

/// When a call is tried again whose error only an operator can fix.
const OPERATOR_RETRY_DELAY: Duration = Duration::from_secs(300);

/// How soon a job may be claimed again whose tenant is switched off.
const TENANT_OFF_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Directories that are discovered at once, unless it is configured.
const DEFAULT_CONCURRENT_DISCOVERIES: usize = 100;

#[derive(Debug, Clone)]
pub struct SyncSettings {
    /// The name of the lease holder, for people.
    pub holder: String,
    pub lease: Duration,
    /// Whether the same bytes under two ids are one email, at providers whose ids do not tell.
    pub duplicate_check: bool,
    /// The time after which a second listing confirms that a folder is missing.
    pub second_look: Duration,
}

/// Connectors, limiters and settings of the sync. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Syncer {
    pub engine: Engine,
    pub settings: Arc<SyncSettings>,
    pub connectors: Arc<HashMap<Provider, Arc<dyn Connector>>>,
    pub gateway: Gateway,
    pub tokens: Tokens,
    /// Asked before the database whether this process may try for a lease.
    gate: Arc<dyn LeaseGate>,
    memory_budget: MemoryBudget,
    fetch_limiter: FetchLimiter,
    statement_batchers: StatementBatchers,
    discovery_permits: PermitTable<()>,
    max_discoveries: usize,
    poll_limiter: PollLimiter,
}

/// An open mailbox, as a listing or a fetch needs it: its account with the secret, its connector and its folder scope.
#[derive(Debug)]
pub(crate) struct MailboxSession {
    pub mailbox: Arc<Mailbox>,
    /// The target of its calls.
    pub target: Target,
    pub account: ConnectorAccount,
    pub connector: Arc<dyn Connector>,
    pub scope: FolderScope,
}

impl Syncer {
    pub fn new(
        engine: Engine,
        settings: SyncSettings,
        connectors: HashMap<Provider, Arc<dyn Connector>>,
        gateway: Gateway,
    ) -> Self {
        let gate = Arc::new(OpenLeaseGate);
        let statement_batchers = StatementBatchers::new(engine.store.clone());
        let tokens = Tokens::new(engine.clone(), &settings.holder, TokenSettings::for_lease(settings.lease));
        Self {
            engine,
            settings: Arc::new(settings),
            connectors: Arc::new(connectors),
            gateway,
            tokens,
            gate,
            memory_budget: MemoryBudget::default(),
            fetch_limiter: FetchLimiter::default(),
            statement_batchers,
            discovery_permits: PermitTable::new(Limit::Discoveries),
            max_discoveries: DEFAULT_CONCURRENT_DISCOVERIES,
            poll_limiter: PollLimiter::default(),
        }
    }

    pub fn with_tokens(self, settings: TokenSettings) -> Self {
        let tokens = Tokens::new(self.engine.clone(), &self.settings.holder, settings);
        Self { tokens, ..self }
    }

    pub fn with_discovery_workers(self, at_once: usize) -> Self {
        Self { max_discoveries: at_once, ..self }
    }

    /// Takes a permit to discover a directory. Returns `None` if as many are discovered as may be at once.
    pub(crate) fn acquire_discovery_permit(&self) -> Option<Permit<()>> {
        self.discovery_permits.acquire(&[((), self.max_discoveries)])
    }

    /// Sets the number of mailboxes that this process works on at the same time.
    pub fn with_workers(self, workers: usize) -> Self {
        Self { poll_limiter: PollLimiter::new(PollLimits::for_workers(workers)), ..self }
    }

    pub fn with_gate(self, gate: Arc<dyn LeaseGate>) -> Self {
        Self { gate, ..self }
    }

    /// Opens a mailbox. Returns `None` if there is nothing to do for it now: it or its tenant is switched off, it waits
    /// for a person, or it does not exist.
    pub(crate) async fn open(&self, tenant: TenantId, mailbox: MailboxId) -> anyhow::Result<Option<MailboxSession>> {
        match self.statement_batchers.find_open((tenant, mailbox)).await? {
            Some(open) => self.open_session(open).await,
            None => Ok(None),
        }
    }

    /// Opens a mailbox that was read already.
    async fn open_session(&self, open: OpenMailbox) -> anyhow::Result<Option<MailboxSession>> {
        let OpenMailbox { mailbox, secret: sealed, folders, sweep_since } = open;
        if !mailbox.is_active || !mailbox.state.is_synced() {
            return Ok(None);
        }
        let Some(connector) = self.connectors.get(&mailbox.provider).cloned() else { return Ok(None) };
        let secret = self.engine.open_secret(&mailbox, sealed.as_ref()).await?;
        let mailbox = Arc::new(mailbox);
        let mut account = ConnectorAccount {
            tenant: mailbox.tenant_id,
            mailbox: mailbox.id,
            address: mailbox.address.clone(),
            settings: mailbox.settings.connection_json(),
            secret,
            folders,
            sweep_since,
            access: Arc::new(NoApiAccess),
        };
        let scope = FolderScope::of(mailbox.settings_in_force());
        let target = target_of(&mailbox, self.gateway.settings());
        if connector.obtain_token(&account).is_some() {
            let token_request = TokenRequest { connector: connector.clone(), account: account.clone() };
            let (tokens, gateway) = (self.tokens.clone(), self.gateway.clone());
            account.access = Arc::new(MailboxAccess { tokens, gateway, target: target.clone(), token_request });
        }
        Ok(Some(MailboxSession { mailbox, target, account, connector, scope }))
    }

    /// Returns whether messages with the same bytes are one email, because the provider's ids do not tell.
    fn binds_by_content(&self, session: &MailboxSession) -> bool {
        self.settings.duplicate_check && session.mailbox.provider.capabilities().identifies_messages_by_content
    }

    /// Records until when and why a mailbox is throttled, if it is for long.
    fn record_pause(&self, unit: &mut TenantUnit, mailbox: &Mailbox, e: &ConnectorError) {
        if let ConnectorError::Throttled { retry_after: Some(wait) } | ConnectorError::RateLimited(wait) = e
            && *wait >= MIN_RECORDED_PAUSE
        {
            let reason = self.gateway.wait_reason(&target_of(mailbox, self.gateway.settings()));
            let now = self.engine.store.clock().now();
            unit.record_pause(mailbox.id, *wait, &reason.sentence(now));
        }
    }
}

/// Ends a job that has nothing to do. If that is because its tenant was switched off as the job began, the job stays
/// and is not claimed until the tenant is back.
async fn end_without_work(store: &TenantStore) -> Result<jobs::Completion, jobs::JobError> {
    if store.is_active().await? {
        Ok(jobs::Completion::Done)
    } else {
        Err(jobs::JobError::Deferred(TENANT_OFF_RETRY_DELAY))
    }
}

/// Returns the job error that follows from an error of the provider.
pub(crate) fn job_error(e: &ConnectorError, ctx: &jobs::JobContext) -> jobs::JobError {
    match e {
        // A provider that says how long to wait is obeyed to the letter.
        ConnectorError::Throttled { retry_after: Some(wait) } | ConnectorError::RateLimited(wait) => {
            jobs::JobError::Deferred(*wait)
        }
        // This says nothing about the job, so no attempt is spent; it waits longer each time.
        ConnectorError::Throttled { retry_after: None } | ConnectorError::Unavailable(_) => {
            let tries = ctx.job.token.saturating_sub(1);
            jobs::JobError::Deferred(
                UNAVAILABLE_RETRY.delay(tries.min(500), &domain::SystemRandom).unwrap_or(UNAVAILABLE_RETRY.max_delay),
            )
        }
        ConnectorError::Unauthorized(_) => jobs::JobError::Fatal { class: "unauthorized", message: e.to_string() },
        ConnectorError::AppRejected(_) => jobs::JobError::Deferred(OPERATOR_RETRY_DELAY),
        ConnectorError::CursorExpired => jobs::JobError::Failed { class: "cursor", message: e.to_string() },
        ConnectorError::FolderUnavailable(_) => jobs::JobError::Deferred(FOLDER_RETRY_DELAY),
        ConnectorError::Gone => jobs::JobError::Failed { class: "gone", message: e.to_string() },
        ConnectorError::Protocol(_) => jobs::JobError::Failed { class: "protocol", message: e.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use domain::PlanTier;
    use jobs::{Completion, JobError};
    use store::testing::on_each_database;

    use super::*;

    #[tokio::test]
    async fn job_of_an_inactive_tenant_is_kept() {
        on_each_database(|db| async move {
            let system = db.store.system();
            let tenant = system.create_tenant("acme", PlanTier::Standard).await.unwrap().unwrap();
            let store = db.store.tenant(tenant.id);
            assert!(matches!(end_without_work(&store).await, Ok(Completion::Done)));

            system.set_tenant_active(tenant.id, false).await.unwrap();

            assert!(matches!(end_without_work(&store).await, Err(JobError::Deferred(_))));
        })
        .await;
    }
}
