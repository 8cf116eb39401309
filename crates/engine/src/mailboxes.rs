//! Mailboxes that live somewhere else are connected, paused, resumed and let go.

use std::time::Duration;

use anyhow::Context;
use domain::{Lane, MailboxId, MailboxState, Provider, Secret, SecretId, SecretKind, TenantId};
use jiff::Timestamp;
use jobs::new_job;
use serde::{Deserialize, Serialize};
use store::sql::jobs::NewJob;
use store::sql::mailboxes::{MAILBOX_CHANGED, MAILBOX_EXISTS, Mailbox, NewMailbox};
use store::sql::secrets::SealedSecret;
use store::{StoreError, TenantUnit};

use crate::Engine;
use crate::jobs::{FetchFailed, FetchForgotten, StopWatch};
use crate::push::watch_soon;
use crate::sync::{FetchEmails, SyncMailbox, only_one};

/// How much of what is there already is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Backfill {
    All,
    None,
    Last(Duration),
}

impl Backfill {
    /// What arrived before this is left out.
    pub fn since(self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::All => None,
            Self::None => Some(now),
            // So long ago that there is no such time: all of it.
            Self::Last(duration) => now.checked_sub(duration).ok(),
        }
    }
}

/// A mailbox to be connected.
#[derive(Debug)]
pub struct Connect {
    pub provider: Provider,
    /// In canonical case.
    pub address: String,
    /// For its connector, and which folders are wanted; see [`crate::sync::Scope`].
    pub settings: serde_json::Value,
    pub secret: Option<Secret<String>>,
    pub backfill: Backfill,
}

/// Whether somebody else changed the mailbox at the same moment; it is worth another try.
pub fn is_changed(e: &anyhow::Error) -> bool {
    matches!(e.downcast_ref(), Some(StoreError::Precondition(MAILBOX_CHANGED)))
}

/// What a mailbox is once it has another secret; `None`: what it was. Where the secret says itself whose mailbox it opens,
/// that is looked at before anything is stored.
pub fn state_with_new_secret(mailbox: &Mailbox) -> Option<MailboxState> {
    let is_refused = matches!(mailbox.state, MailboxState::NeedsReauth | MailboxState::Error);
    match mailbox.provider.secret_kind() {
        SecretKind::RefreshToken if is_refused || mailbox.state == MailboxState::Active => {
            Some(MailboxState::Connecting)
        }
        SecretKind::RefreshToken => None,
        _ => is_refused.then_some(MailboxState::Active),
    }
}

/// The same for one that goes on.
pub fn state_when_resumed(mailbox: &Mailbox) -> MailboxState {
    match (mailbox.state, mailbox.provider.secret_kind()) {
        (MailboxState::Connecting, _) | (_, SecretKind::RefreshToken) => MailboxState::Connecting,
        _ => MailboxState::Active,
    }
}

/// Failed messages that are asked for again in one commit.
const BATCH: u64 = 1000;

impl Engine {
    /// The mailbox, its secret and the first look at it are one commit. `None`: there is one of that address.
    pub async fn connect(&self, tenant: TenantId, connect: Connect) -> anyhow::Result<Option<MailboxId>> {
        let there = self.store.tenant(tenant).find_mailbox(&connect.address).await?;
        // One that was disconnected, or that took files so far, becomes this one.
        let id = there.map_or_else(|| MailboxId::new(self.store.clock()), |mailbox| mailbox.id);
        Ok(self.connect_as(tenant, id, connect).await?.then_some(id))
    }

    /// `false`: there is one of that address, and it is another or at work.
    pub async fn connect_as(&self, tenant: TenantId, id: MailboxId, connect: Connect) -> anyhow::Result<bool> {
        let now = self.store.system().now().await?;
        let since = connect.backfill.since(now);
        let store = self.store.tenant(tenant);
        let mut unit = store.write();
        let mut secret_ref = None;
        if let Some(secret) = connect.secret {
            let secret_id = SecretId::new(self.store.clock());
            let bytes = Secret::new(secret.expose().as_bytes().to_vec());
            let sealed = self.vault.seal(tenant, secret_id, connect.provider.secret_kind(), &bytes).await?;
            unit.put_secret(&sealed);
            secret_ref = Some(secret_id.to_string());
        }
        // Of whatever it was before.
        unit.delete_secret(SecretId::of_access_token(id));
        unit.add_mailbox(NewMailbox {
            id,
            provider: connect.provider,
            address: connect.address,
            settings: connect.settings,
            secret_ref,
            since,
        });
        unit.enqueue(vec![self.look_at(id, Lane::High)?]);
        watch_soon(&mut unit, self, id, connect.provider)?;
        match unit.commit().await {
            Ok(_) => Ok(true),
            Err(StoreError::Precondition(MAILBOX_EXISTS)) => Ok(false),
            Err(e) => Err(e).context("storing the mailbox"),
        }
    }

    /// What opens it, if it needs anything.
    pub(crate) async fn open_secret(
        &self,
        mailbox: &Mailbox,
        sealed: Option<&SealedSecret>,
    ) -> anyhow::Result<Option<Secret<String>>> {
        if mailbox.secret_ref.is_none() {
            return Ok(None);
        }
        let sealed = sealed.context("the secret of the mailbox is not there any more")?;
        let bytes = self.vault.open_sealed(mailbox.tenant_id, mailbox.provider.secret_kind(), sealed).await?;
        let text = String::from_utf8(bytes.expose().clone()).context("the secret of the mailbox is not text")?;
        Ok(Some(Secret::new(text)))
    }

    /// Every email of a mailbox, for good; how many.
    pub async fn erase_mailbox(&self, mailbox: &Mailbox) -> anyhow::Result<u64> {
        let store = self.store.tenant(mailbox.tenant_id);
        let mut erased = 0;
        loop {
            let ids = store.list_email_ids(mailbox.id, BATCH).await?;
            let now = store.find_mailbox(&mailbox.id.to_string()).await?;
            // Connected again meanwhile: what comes in from now on is wanted.
            if ids.is_empty() || now.is_none_or(|now| now.version != mailbox.version) {
                return Ok(erased);
            }
            erased += self.purge(&store, &ids).await?;
        }
    }

    /// What was committed is so; whoever misses this finds the jobs by looking.
    pub async fn tell_workers(&self) {
        if let Err(e) = self.store.tell_of_jobs().await {
            tracing::debug!("workers are not told of new jobs: {e}");
        }
    }

    fn look_at(&self, mailbox: MailboxId, lane: Lane) -> anyhow::Result<NewJob> {
        let job = new_job(&SyncMailbox { mailbox }, self.store.clock(), None)?;
        Ok(only_one(NewJob { lane, ..job }, mailbox))
    }

    /// It is looked at soon, whenever it was to be.
    pub async fn request_sync(&self, mailbox: &Mailbox) -> anyhow::Result<()> {
        let mut unit = self.store.tenant(mailbox.tenant_id).write();
        unit.enqueue(vec![self.look_at(mailbox.id, Lane::High)?]);
        unit.commit().await?;
        self.tell_workers().await;
        Ok(())
    }

    /// How it is reached and what is wanted of it is this from now on, and it is looked at soon.
    pub async fn change_mailbox(
        &self,
        mailbox: &Mailbox,
        settings: serde_json::Value,
        secret: Option<Secret<String>>,
    ) -> anyhow::Result<()> {
        let is_left_behind = self.is_left_behind(mailbox).await?;
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
            let kind = mailbox.provider.secret_kind();
            unit.put_secret(&self.vault.seal(mailbox.tenant_id, id, kind, &bytes).await?);
            // It was given for another.
            unit.delete_secret(SecretId::of_access_token(mailbox.id));
            secret_ref = Some(id.to_string());
            watch_soon(&mut unit, self, mailbox.id, mailbox.provider)?;
            if let Some(to) = state_with_new_secret(mailbox) {
                unit.move_mailbox(mailbox.id, &[mailbox.state], to, None);
            }
        }
        unit.change_mailbox(mailbox.id, settings, secret_ref.as_deref());
        if mailbox.state.is_synced() || mailbox.state == MailboxState::NeedsReauth {
            unit.enqueue(vec![self.look_at(mailbox.id, Lane::High)?]);
        }
        unit.commit().await?;
        self.tell_workers().await;
        Ok(())
    }

    /// Whether it was switched off by a directory that has been removed since: nobody but us would switch it on again.
    pub async fn is_left_behind(&self, mailbox: &Mailbox) -> Result<bool, StoreError> {
        Ok(!mailbox.is_active && !self.store.tenant(mailbox.tenant_id).has_owner(mailbox.id).await?)
    }

    fn switch_on(&self, unit: &mut TenantUnit, mailbox: MailboxId) -> anyhow::Result<()> {
        unit.switch_mailboxes(&[(mailbox, None)], true);
        unit.enqueue(vec![FetchForgotten::now(self.store.clock())?]);
        Ok(())
    }

    /// Its provider is not called until it is resumed. `false`: it was not at work.
    pub async fn pause_mailbox(&self, mailbox: &Mailbox) -> anyhow::Result<bool> {
        let from = [MailboxState::Connecting, MailboxState::Active, MailboxState::Error, MailboxState::NeedsReauth];
        let mut unit = self.store.tenant(mailbox.tenant_id).write();
        unit.expect_mailbox(mailbox.id, mailbox.version);
        unit.move_mailbox(mailbox.id, &from, MailboxState::Paused, Some("paused by somebody"));
        unit.commit().await?;
        Ok(from.contains(&mailbox.state))
    }

    /// It is looked at again, with this secret if one is given, and what was given up is fetched once more. `false`: it is
    /// disconnected.
    pub async fn resume_mailbox(&self, mailbox: &Mailbox, secret: Option<Secret<String>>) -> anyhow::Result<bool> {
        let from = [MailboxState::Paused, MailboxState::NeedsReauth, MailboxState::Error];
        if mailbox.state == MailboxState::Disconnected {
            return Ok(false);
        }
        let is_left_behind = self.is_left_behind(mailbox).await?;
        let store = self.store.tenant(mailbox.tenant_id);
        let mut unit = store.write();
        unit.expect_mailbox(mailbox.id, mailbox.version);
        if is_left_behind {
            self.switch_on(&mut unit, mailbox.id)?;
        }
        if let (Some(secret), Some(id)) = (secret, &mailbox.secret_ref) {
            let bytes = Secret::new(secret.expose().as_bytes().to_vec());
            let kind = mailbox.provider.secret_kind();
            unit.put_secret(&self.vault.seal(mailbox.tenant_id, id.parse()?, kind, &bytes).await?);
            unit.delete_secret(SecretId::of_access_token(mailbox.id));
        }
        unit.move_mailbox(mailbox.id, &from, state_when_resumed(mailbox), None);
        unit.enqueue(vec![self.look_at(mailbox.id, Lane::High)?, FetchFailed::now(self, mailbox.id)?]);
        watch_soon(&mut unit, self, mailbox.id, mailbox.provider)?;
        unit.commit().await?;
        self.tell_workers().await;
        Ok(true)
    }

    /// What was given up is fetched once more.
    pub(crate) async fn fetch_failed(&self, tenant: TenantId, mailbox: MailboxId) -> anyhow::Result<()> {
        let store = self.store.tenant(tenant);
        let mut after = String::new();
        loop {
            let failed = store.list_failed(mailbox, &after, BATCH).await?;
            let Some(last) = failed.last().cloned() else { return Ok(()) };
            after = last;
            let mut unit = store.write();
            unit.enqueue(FetchEmails::of_any_size(mailbox, &failed, self.store.clock())?);
            unit.commit().await?;
        }
    }

    /// Its provider is not called for it any more, but to tell it so and to take the consent back; what is stored stays,
    /// until the job that may follow.
    pub async fn disconnect(&self, mailbox: &Mailbox, then: Option<NewJob>) -> anyhow::Result<()> {
        let mut unit = self.store.tenant(mailbox.tenant_id).write();
        unit.expect_mailbox(mailbox.id, mailbox.version);
        let from: Vec<MailboxState> =
            MailboxState::ALL.into_iter().filter(|state| *state != MailboxState::Disconnected).collect();
        unit.move_mailbox(mailbox.id, &from, MailboxState::Disconnected, Some("disconnected by somebody"));
        unit.stop_syncing(mailbox.id);
        unit.delete_secret(SecretId::of_access_token(mailbox.id));
        let secret: Option<SecretId> = mailbox.secret_ref.as_ref().map(|id| id.parse()).transpose()?;
        match secret {
            // Once: the job needs the secret, and hands it on to who takes the consent back.
            _ if mailbox.provider.pushes() && mailbox.state == MailboxState::Disconnected => {}
            secret if mailbox.provider.pushes() => {
                unit.enqueue(vec![StopWatch::now(self, mailbox.id, secret)?]);
            }
            Some(secret) => unit.delete_secret(secret),
            None => {}
        }
        unit.enqueue(then.into_iter().collect());
        unit.commit().await?;
        Ok(())
    }
}
