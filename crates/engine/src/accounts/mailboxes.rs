//! What operations and jobs need to know of a mailbox, and do to its mail.

use anyhow::Context;
use domain::{Lane, MailboxId, Secret, TenantId, redact_for_log};
use store::StoreError;
use store::sql::jobs::NewJob;
use store::sql::mailboxes::Mailbox;
use store::sql::secrets::SealedSecret;
use store::sql::sync::FailedMessages;

use crate::Engine;
use crate::sync::{FetchEmails, SyncMailbox};

/// Messages per commit when failed ones are requested again. Many, because each time the jobs of the mailbox are looked
/// through.
const BATCH_MESSAGES: u64 = 5000;

impl Engine {
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

    /// Enqueues a sync that somebody waits for.
    pub async fn request_sync(&self, mailbox: &Mailbox) -> anyhow::Result<()> {
        let job = SyncMailbox::request(self.store.clock(), mailbox.id)?;
        let mut unit = self.store.tenant(mailbox.tenant_id).write();
        unit.enqueue(vec![NewJob { lane: Lane::High, ..job }]);
        unit.commit().await?;
        self.notify_workers().await;
        Ok(())
    }

    /// Returns whether a directory switched the mailbox off and was removed since: nothing else would switch it on
    /// again.
    pub async fn is_orphaned(&self, mailbox: &Mailbox) -> Result<bool, StoreError> {
        Ok(!mailbox.is_active && !self.store.tenant(mailbox.tenant_id).has_owner(mailbox.id).await?)
    }

    /// Enqueues fetches of failed messages of a mailbox, but for those that a live job is to fetch.
    pub(crate) async fn fetch_failed(
        &self,
        tenant: TenantId,
        mailbox: MailboxId,
        which: FailedMessages,
    ) -> anyhow::Result<()> {
        let store = self.store.tenant(tenant);
        let mut after = String::new();
        loop {
            let failed = store.list_failed_messages(mailbox, which, &after, BATCH_MESSAGES).await?;
            let Some(last) = failed.last().cloned() else { return Ok(()) };
            after = last;
            let mut unit = store.write();
            unit.enqueue(FetchEmails::unsized_jobs(mailbox, &failed, self.store.clock())?);
            unit.commit().await?;
        }
    }
}
