//! Connects, changes, pauses, resumes and disconnects mailboxes.

use anyhow::Context;
use domain::{
    Backfill, Lane, MailboxEvent, MailboxId, MailboxSettings, MailboxState, Provider, Secret, SecretId, TenantId,
    redact_for_log,
};
use jiff::Timestamp;
use store::sql::jobs::NewJob;
use store::sql::mailboxes::{Mailbox, NewMailbox};
use store::sql::secrets::SealedSecret;
use store::{Precondition, StoreError, TenantUnit};

use crate::Engine;
use crate::sync::push::request_watch;
use crate::sync::{FetchEmails, FetchFailed, FetchForgotten, StopWatch, SyncMailbox};

/// A mailbox to be connected.
#[derive(Debug)]
pub struct ConnectRequest {
    pub provider: Provider,
    /// In canonical case.
    pub address: String,
    pub settings: MailboxSettings,
    pub secret: Option<Secret<String>>,
    pub backfill: Backfill,
}

/// Returns whether the mailbox was changed concurrently; a retry may succeed.
pub fn is_conflict(e: &anyhow::Error) -> bool {
    matches!(e.downcast_ref(), Some(StoreError::Precondition(Precondition::MailboxChanged)))
}

/// The reason of a state that a person asked for.
const PAUSED_REASON: &str = "paused on request";
const DISCONNECTED_REASON: &str = "disconnected on request";

/// Returns the event of another secret.
fn credentials_replaced(mailbox: &Mailbox) -> MailboxEvent {
    MailboxEvent::CredentialsReplaced { check_account: mailbox.provider.capabilities().checks_account() }
}

fn resumed(mailbox: &Mailbox) -> MailboxEvent {
    MailboxEvent::Resumed { check_account: mailbox.provider.capabilities().checks_account() }
}

/// The row that a change leaves behind, for the reply and the audit log. Each step bumps the version as the store does.
#[derive(Debug, Clone)]
pub struct NextMailbox {
    row: Mailbox,
    now: Timestamp,
}

impl NextMailbox {
    /// Returns the row as it is before the change.
    pub fn of(mailbox: &Mailbox, now: Timestamp) -> Self {
        Self { row: mailbox.clone(), now }
    }

    pub fn paused(self) -> Mailbox {
        self.after(MailboxEvent::Paused, Some(PAUSED_REASON)).row
    }

    pub fn disconnected(self) -> Mailbox {
        self.after(MailboxEvent::Disconnected, Some(DISCONNECTED_REASON)).row
    }

    /// Returns the row after it is resumed. `is_orphaned`: see [`Engine::is_orphaned`].
    pub fn resumed(self, is_orphaned: bool) -> Mailbox {
        let event = resumed(&self.row);
        self.switched_on(is_orphaned).after(event, None).row
    }

    /// Returns the row after its settings are changed, and its secret if `has_secret`.
    pub fn changed(mut self, settings: MailboxSettings, has_secret: bool, is_orphaned: bool) -> Mailbox {
        self.row = Mailbox { settings, version: self.row.version + 1, updated_at: self.now, ..self.row };
        if !has_secret {
            return self.row;
        }
        let event = credentials_replaced(&self.row);
        self.switched_on(is_orphaned).after(event, None).row
    }

    fn after(self, event: MailboxEvent, reason: Option<&str>) -> Self {
        let Self { row, now } = self;
        let Some(state) = row.state.after(event) else { return Self { row, now } };
        let row = Mailbox {
            state,
            state_reason: reason.map(str::to_owned),
            state_since: now,
            updated_at: now,
            version: row.version + 1,
            ..row
        };
        Self { row, now }
    }

    fn switched_on(self, is_orphaned: bool) -> Self {
        if !is_orphaned {
            return self;
        }
        let Self { row, now } = self;
        Self { row: Mailbox { is_active: true, version: row.version + 1, updated_at: now, ..row }, now }
    }
}

/// Messages per commit when failed ones are requested again.
const BATCH_MESSAGES: u64 = 1000;

impl Engine {
    /// Connects a mailbox: it, its secret and its first sync are one commit. Returns `None` if the address exists.
    pub async fn connect(&self, tenant: TenantId, connect: ConnectRequest) -> anyhow::Result<Option<MailboxId>> {
        let there = self.store.tenant(tenant).find_mailbox(&connect.address).await?;
        // A disconnected or import mailbox of that address is reused.
        let id = there.map_or_else(|| MailboxId::new(self.store.clock()), |mailbox| mailbox.id);
        Ok(self.connect_as(tenant, id, connect).await?.then_some(id))
    }

    /// Connects a mailbox under a given id. Returns `false` if the address exists and belongs to another or connected
    /// mailbox.
    pub async fn connect_as(&self, tenant: TenantId, id: MailboxId, connect: ConnectRequest) -> anyhow::Result<bool> {
        let now = self.store.system().now().await?;
        let since = connect.backfill.since(now);
        let store = self.store.tenant(tenant);
        let mut unit = store.write();
        let mut secret_ref = None;
        if let Some(secret) = connect.secret {
            let secret_id = SecretId::new(self.store.clock());
            let bytes = Secret::new(secret.expose().as_bytes().to_vec());
            let sealed =
                self.vault.seal(tenant, secret_id, connect.provider.capabilities().secret_kind, &bytes).await?;
            unit.put_secret(&sealed);
            secret_ref = Some(secret_id.to_string());
        }
        // The token of whatever it was before.
        unit.delete_secret(SecretId::of_access_token(id));
        unit.add_mailbox(NewMailbox {
            id,
            provider: connect.provider,
            address: connect.address,
            settings: connect.settings,
            secret_ref,
            since,
        });
        unit.enqueue(vec![self.sync_job(id, Lane::High)?]);
        request_watch(&mut unit, self, id, connect.provider)?;
        match unit.commit().await {
            Ok(_) => {
                log_change(tenant, id, connect.provider, "mailbox connected");
                Ok(true)
            }
            Err(StoreError::Precondition(Precondition::MailboxExists)) => Ok(false),
            Err(e) => Err(e).context("storing the mailbox"),
        }
    }

    /// Opens the secret of a mailbox, if it has one.
    pub(crate) async fn open_secret(
        &self,
        mailbox: &Mailbox,
        sealed: Option<&SealedSecret>,
    ) -> anyhow::Result<Option<Secret<String>>> {
        if mailbox.secret_ref.is_none() {
            return Ok(None);
        }
        let sealed = sealed.context("the secret of the mailbox is not there any more")?;
        let bytes =
            self.vault.open_sealed(mailbox.tenant_id, mailbox.provider.capabilities().secret_kind, sealed).await?;
        let text = String::from_utf8(bytes.expose().clone()).context("the secret of the mailbox is not text")?;
        Ok(Some(Secret::new(text)))
    }

    /// Erases every email of a mailbox, and returns how many.
    pub async fn erase_mailbox(&self, mailbox: &Mailbox) -> anyhow::Result<u64> {
        let store = self.store.tenant(mailbox.tenant_id);
        let mut erased = 0;
        loop {
            let ids = store.list_email_ids(mailbox.id, BATCH_MESSAGES).await?;
            let now = store.find_mailbox(&mailbox.id.to_string()).await?;
            // Connected again meanwhile: new mail is to be kept.
            if ids.is_empty() || now.is_none_or(|now| now.version != mailbox.version) {
                return Ok(erased);
            }
            erased += self.purge(&store, &ids).await?;
        }
    }

    /// Wakes the workers for new jobs. A worker that misses it finds them by polling.
    pub async fn notify_workers(&self) {
        if let Err(e) = self.store.notify_other_processes().await {
            tracing::debug!(error = redact_for_log(&e), "workers not notified of new jobs; they poll");
        }
    }

    fn sync_job(&self, mailbox: MailboxId, lane: Lane) -> anyhow::Result<NewJob> {
        Ok(NewJob { lane, ..SyncMailbox::request(self.store.clock(), mailbox)? })
    }

    /// Enqueues a sync of a mailbox.
    pub async fn request_sync(&self, mailbox: &Mailbox) -> anyhow::Result<()> {
        let mut unit = self.store.tenant(mailbox.tenant_id).write();
        unit.enqueue(vec![self.sync_job(mailbox.id, Lane::High)?]);
        unit.commit().await?;
        self.notify_workers().await;
        Ok(())
    }

    /// Changes the settings and secret of a mailbox, and enqueues a sync.
    pub async fn change_mailbox(
        &self,
        mailbox: &Mailbox,
        settings: MailboxSettings,
        secret: Option<Secret<String>>,
    ) -> anyhow::Result<()> {
        let is_left_behind = self.is_orphaned(mailbox).await?;
        let mut unit = self.store.tenant(mailbox.tenant_id).write();
        unit.expect_mailbox(mailbox.id, mailbox.version);
        let mut secret_ref = mailbox.secret_ref.clone();
        if let Some(secret) = secret {
            if is_left_behind {
                self.switch_on(&mut unit, mailbox.id)?;
            }
            let id = match &secret_ref {
                Some(id) => id.parse()?,
                None => SecretId::new(self.store.clock()),
            };
            let bytes = Secret::new(secret.expose().as_bytes().to_vec());
            let kind = mailbox.provider.capabilities().secret_kind;
            unit.put_secret(&self.vault.seal(mailbox.tenant_id, id, kind, &bytes).await?);
            // The token of the former secret.
            unit.delete_secret(SecretId::of_access_token(mailbox.id));
            secret_ref = Some(id.to_string());
            request_watch(&mut unit, self, mailbox.id, mailbox.provider)?;
            unit.apply_mailbox_event(mailbox.id, credentials_replaced(mailbox), None);
        }
        unit.change_mailbox(mailbox.id, settings, secret_ref.as_deref());
        if mailbox.state.is_synced() || mailbox.state == MailboxState::NeedsReauth {
            unit.enqueue(vec![self.sync_job(mailbox.id, Lane::High)?]);
        }
        unit.commit().await?;
        log_change(mailbox.tenant_id, mailbox.id, mailbox.provider, "mailbox settings changed");
        self.notify_workers().await;
        Ok(())
    }

    /// Returns whether a directory switched the mailbox off and was removed since: nothing else would switch it on
    /// again.
    pub async fn is_orphaned(&self, mailbox: &Mailbox) -> Result<bool, StoreError> {
        Ok(!mailbox.is_active && !self.store.tenant(mailbox.tenant_id).has_owner(mailbox.id).await?)
    }

    fn switch_on(&self, unit: &mut TenantUnit, mailbox: MailboxId) -> anyhow::Result<()> {
        unit.set_mailboxes_active(&[(mailbox, None)], true);
        unit.enqueue(vec![FetchForgotten::request(self.store.clock())?]);
        Ok(())
    }

    /// Pauses a mailbox: its provider is not called until it is resumed. Returns `false` if it was not active.
    pub async fn pause_mailbox(&self, mailbox: &Mailbox) -> anyhow::Result<bool> {
        let mut unit = self.store.tenant(mailbox.tenant_id).write();
        unit.expect_mailbox(mailbox.id, mailbox.version);
        unit.apply_mailbox_event(mailbox.id, MailboxEvent::Paused, Some(PAUSED_REASON));
        unit.commit().await?;
        log_change(mailbox.tenant_id, mailbox.id, mailbox.provider, "mailbox paused");
        Ok(mailbox.state.after(MailboxEvent::Paused).is_some())
    }

    /// Resumes a mailbox, with this secret if one is given, and requests its failed messages once more. Returns `false`
    /// if it is disconnected.
    pub async fn resume_mailbox(&self, mailbox: &Mailbox, secret: Option<Secret<String>>) -> anyhow::Result<bool> {
        if mailbox.state == MailboxState::Disconnected {
            return Ok(false);
        }
        let is_left_behind = self.is_orphaned(mailbox).await?;
        let store = self.store.tenant(mailbox.tenant_id);
        let mut unit = store.write();
        unit.expect_mailbox(mailbox.id, mailbox.version);
        if is_left_behind {
            self.switch_on(&mut unit, mailbox.id)?;
        }
        if let (Some(secret), Some(id)) = (secret, &mailbox.secret_ref) {
            let bytes = Secret::new(secret.expose().as_bytes().to_vec());
            let kind = mailbox.provider.capabilities().secret_kind;
            unit.put_secret(&self.vault.seal(mailbox.tenant_id, id.parse()?, kind, &bytes).await?);
            unit.delete_secret(SecretId::of_access_token(mailbox.id));
        }
        unit.apply_mailbox_event(mailbox.id, resumed(mailbox), None);
        unit.enqueue(vec![
            self.sync_job(mailbox.id, Lane::High)?,
            FetchFailed::request(self.store.clock(), mailbox.id)?,
        ]);
        request_watch(&mut unit, self, mailbox.id, mailbox.provider)?;
        unit.commit().await?;
        log_change(mailbox.tenant_id, mailbox.id, mailbox.provider, "mailbox resumed");
        self.notify_workers().await;
        Ok(true)
    }

    /// Enqueues fetches of the failed messages of a mailbox.
    pub(crate) async fn fetch_failed(&self, tenant: TenantId, mailbox: MailboxId) -> anyhow::Result<()> {
        let store = self.store.tenant(tenant);
        let mut after = String::new();
        loop {
            let failed = store.list_failed_messages(mailbox, &after, BATCH_MESSAGES).await?;
            let Some(last) = failed.last().cloned() else { return Ok(()) };
            after = last;
            let mut unit = store.write();
            unit.enqueue(FetchEmails::unsized_jobs(mailbox, &failed, self.store.clock())?);
            unit.commit().await?;
        }
    }

    /// Disconnects a mailbox: its provider is called only to end the watch and revoke the grant. Stored mail stays,
    /// unless the job `then` erases it.
    pub async fn disconnect(&self, mailbox: &Mailbox, then: Option<NewJob>) -> anyhow::Result<()> {
        let mut unit = self.store.tenant(mailbox.tenant_id).write();
        unit.expect_mailbox(mailbox.id, mailbox.version);
        unit.apply_mailbox_event(mailbox.id, MailboxEvent::Disconnected, Some(DISCONNECTED_REASON));
        unit.stop_syncing(mailbox.id);
        unit.delete_secret(SecretId::of_access_token(mailbox.id));
        let secret: Option<SecretId> = mailbox.secret_ref.as_ref().map(|id| id.parse()).transpose()?;
        match secret {
            // Only once: the job needs the secret, and hands it on to the one that revokes the grant.
            _ if mailbox.provider.capabilities().supports_push && mailbox.state == MailboxState::Disconnected => {}
            secret if mailbox.provider.capabilities().supports_push => {
                unit.enqueue(vec![StopWatch::request(self.store.clock(), mailbox.id, secret)?]);
            }
            Some(secret) => unit.delete_secret(secret),
            None => {}
        }
        unit.enqueue(then.into_iter().collect());
        unit.commit().await?;
        log_change(mailbox.tenant_id, mailbox.id, mailbox.provider, "mailbox disconnected");
        Ok(())
    }
}

/// Logs a change that a person made.
fn log_change(tenant: TenantId, mailbox: MailboxId, provider: Provider, change: &'static str) {
    tracing::info!(tenant.id = %tenant, mailbox.id = %mailbox, provider = provider.as_str(), "{change}");
}
