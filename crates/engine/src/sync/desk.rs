//! What a sync needs from the database. Hundreds run at once, so it is asked for together.

use std::collections::HashMap;
use std::time::Duration;

use store::sql::mailboxes::Mailbox;
use store::sql::secrets::SealedSecret;
use store::sql::sync::{Begun, Key};
use store::{Store, StoreError};

use crate::together::Together;

/// Cheap to clone.
#[derive(Debug, Clone)]
pub struct Desk {
    store: Store,
    opening: Together<Key, Option<(Mailbox, Option<SealedSecret>)>>,
    beginning: Together<Key, Option<Begun>>,
    ending: Together<(Key, u64), ()>,
}

impl Desk {
    pub fn new(store: Store) -> Self {
        let (opening, beginning, ending) = (Together::default(), Together::default(), Together::default());
        Self { store, opening, beginning, ending }
    }

    /// A mailbox with what opens it.
    pub async fn open(&self, key: Key) -> Result<Option<(Mailbox, Option<SealedSecret>)>, StoreError> {
        let answer = |keys: Vec<Key>| {
            let system = self.store.system();
            async move { system.open_mailboxes(&keys).await.map(|found| in_order(&keys, found)) }
        };
        self.opening.ask(key, answer).await
    }

    /// The right to list it; `None`: somebody else has it.
    pub async fn begin(&self, key: Key, holder: &str, lease: Duration) -> Result<Option<Begun>, StoreError> {
        let answer = |keys: Vec<Key>| {
            let (system, holder) = (self.store.system(), holder.to_owned());
            async move { system.begin_syncs(&keys, &holder, lease).await.map(|begun| in_order(&keys, begun)) }
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

/// Asked for twice, it is given to one: of two who want to list a mailbox, one may.
fn in_order<V>(keys: &[Key], mut found: HashMap<Key, V>) -> Vec<Option<V>> {
    keys.iter().map(|key| found.remove(key)).collect()
}
