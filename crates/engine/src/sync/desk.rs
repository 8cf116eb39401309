//! What a sync needs from the database. Hundreds run at once, so it is asked for together.

use std::time::Duration;

use store::sql::sync::{Begun, Key, OpenMailbox};
use store::{Store, StoreError};

use crate::together::Together;

/// Cheap to clone.
#[derive(Debug, Clone)]
pub struct Desk {
    store: Store,
    opening: Together<Key, Option<OpenMailbox>>,
    beginning: Together<Key, Option<Begun>>,
    ending: Together<(Key, u64), ()>,
}

impl Desk {
    pub fn new(store: Store) -> Self {
        let (opening, beginning, ending) = (Together::default(), Together::default(), Together::default());
        Self { store, opening, beginning, ending }
    }

    /// A mailbox with what opens it.
    pub async fn open(&self, key: Key) -> Result<Option<OpenMailbox>, StoreError> {
        let answer = |keys: Vec<Key>| {
            let system = self.store.system();
            async move {
                let found = system.open_mailboxes(&keys).await?;
                // Several jobs of one mailbox may ask at once.
                Ok(keys.iter().map(|key| found.get(key).cloned()).collect())
            }
        };
        self.opening.ask(key, answer).await
    }

    /// The right to list it; `None`: somebody else has it.
    pub async fn begin(&self, key: Key, holder: &str, lease: Duration) -> Result<Option<Begun>, StoreError> {
        let answer = |keys: Vec<Key>| {
            let (system, holder) = (self.store.system(), holder.to_owned());
            async move {
                let mut begun = system.begin_syncs(&keys, &holder, lease).await?;
                // Of two who want to list a mailbox, one may.
                Ok(keys.iter().map(|key| begun.remove(key)).collect())
            }
        };
        self.beginning.ask(key, answer).await
    }

    /// It is up to date, and nothing was new.
    pub async fn end_quietly(&self, key: Key, token: u64) -> Result<(), StoreError> {
        let answer = |held: Vec<(Key, u64)>| {
            let system = self.store.system();
            async move { system.end_quiet_syncs(&held).await.map(|()| vec![(); held.len()]) }
        };
        self.ending.ask((key, token), answer).await
    }
}

#[cfg(test)]
mod tests {
    use domain::{MailboxId, PlanTier, Provider, SystemClock};
    use store::sql::mailboxes::NewMailbox;
    use store::testing::on_each_database;

    use super::*;

    #[tokio::test]
    async fn who_asks_for_the_same_mailbox_at_once_gets_it_but_only_one_may_list_it() {
        on_each_database(|db| async move {
            let tenant = db.store.system().create_tenant("acme", PlanTier::Standard).await.unwrap().unwrap();
            let id = MailboxId::new(&SystemClock);
            let mut unit = db.store.tenant(tenant.id).write();
            unit.add_mailbox(NewMailbox {
                id,
                provider: Provider::Imap,
                address: "me@acme.test".into(),
                settings: serde_json::json!({}),
                secret_ref: None,
                since: None,
            });
            unit.commit().await.unwrap();
            let (desk, key) = (Desk::new(db.store.clone()), (tenant.id, id));

            let opened = futures_util::future::join_all((0..10).map(|_| desk.open(key))).await;
            assert!(opened.into_iter().all(|opened| opened.unwrap().is_some()));
            let begin = || desk.begin(key, "me", Duration::from_secs(60));
            let begun = futures_util::future::join_all((0..10).map(|_| begin())).await;
            assert_eq!(begun.into_iter().filter(|begun| begun.as_ref().unwrap().is_some()).count(), 1);
        })
        .await;
    }
}
