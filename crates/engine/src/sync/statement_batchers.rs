//! The database reads and lease operations of a sync. Hundreds of syncs run at once, so they are batched.

use std::time::Duration;

use store::sql::sync::{MailboxKey, OpenMailbox, SyncClaim};
use store::{Store, StoreError};

use crate::batcher::Batcher;

/// Opens mailboxes and begins and ends syncs in batches. Cheap to clone.
#[derive(Debug, Clone)]
pub struct StatementBatchers {
    store: Store,
    open_batcher: Batcher<MailboxKey, Option<OpenMailbox>>,
    begin_batcher: Batcher<MailboxKey, Option<SyncClaim>>,
    end_batcher: Batcher<(MailboxKey, u64), ()>,
}

impl StatementBatchers {
    pub fn new(store: Store) -> Self {
        let (open_batcher, begin_batcher, end_batcher) = (Batcher::default(), Batcher::default(), Batcher::default());
        Self { store, open_batcher, begin_batcher, end_batcher }
    }

    /// Finds a mailbox with its sealed secret and folders.
    pub async fn find_open(&self, key: MailboxKey) -> Result<Option<OpenMailbox>, StoreError> {
        let answer = self.open_batcher.get(key, |keys: Vec<MailboxKey>| {
            let system = self.store.system();
            async move {
                let found = system.open_mailboxes(&keys).await?;
                // Several jobs of one mailbox may be in one batch.
                Ok(keys.iter().map(|key| found.get(key).cloned()).collect())
            }
        });
        answer.await
    }

    /// Takes the lease that allows listing a mailbox. Returns `None` if another holder has it.
    pub async fn begin_sync(
        &self,
        key: MailboxKey,
        holder: &str,
        lease: Duration,
    ) -> Result<Option<SyncClaim>, StoreError> {
        let answer = self.begin_batcher.get(key, |keys: Vec<MailboxKey>| {
            let (system, holder) = (self.store.system(), holder.to_owned());
            async move {
                let mut begun = system.begin_syncs(&keys, &holder, lease).await?;
                // Of two requests for one mailbox, one gets the lease.
                Ok(keys.iter().map(|key| begun.remove(key)).collect())
            }
        });
        answer.await
    }

    /// Ends a sync that found nothing, and releases its lease.
    pub async fn end_unchanged(&self, key: MailboxKey, token: u64) -> Result<(), StoreError> {
        let answer = self.end_batcher.get((key, token), |held: Vec<(MailboxKey, u64)>| {
            let system = self.store.system();
            async move { system.end_unchanged_syncs(&held).await.map(|()| vec![(); held.len()]) }
        });
        answer.await
    }
}

#[cfg(test)]
mod tests {
    use domain::{MailboxId, PlanTier, Provider, SystemClock};
    use store::sql::mailboxes::NewMailbox;
    use store::testing::on_each_database;

    use super::*;

    #[tokio::test]
    async fn only_one_concurrent_caller_gets_the_lease() {
        on_each_database(|db| async move {
            let tenant = db.store.system().create_tenant("acme", PlanTier::Standard).await.unwrap().unwrap();
            let id = MailboxId::new(&SystemClock);
            let mut unit = db.store.tenant(tenant.id).write();
            unit.add_mailbox(NewMailbox {
                id,
                provider: Provider::Imap,
                address: "me@acme.test".into(),
                settings: domain::MailboxSettings::default(),
                secret_ref: None,
                since: None,
            });
            unit.commit().await.unwrap();
            let (statement_batchers, key) = (StatementBatchers::new(db.store.clone()), (tenant.id, id));

            let opened = futures_util::future::join_all((0..10).map(|_| statement_batchers.find_open(key))).await;
            assert!(opened.into_iter().all(|opened| opened.unwrap().is_some()));
            let begun = (0..10).map(|_| statement_batchers.begin_sync(key, "me", Duration::from_secs(60)));
            let begun = futures_util::future::join_all(begun).await;
            assert_eq!(begun.into_iter().filter(|begun| begun.as_ref().unwrap().is_some()).count(), 1);
        })
        .await;
    }
}
