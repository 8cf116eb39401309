//! Providers that are simulated, each with an application that has a tenant for each of its accounts.

mod google;
mod jmap;
mod microsoft;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use domain::{Backfill, Connector, MailboxSettings, MailboxState, Secret};
use engine::operations::mailboxes::ConnectRequest;
use providers::http::{HttpClient, HttpTimeouts};
use serde_json::Value;
use sim::faults::FaultKind;
use sim::{ProviderCore, RequestLogEntry};
use store::TenantStore;
use store::sql::mailboxes::Mailbox;
use store::sql::sync::SyncState;
use store::testing::TestDatabase;

pub use google::google_settings;
pub use jmap::is_in_jmap_scope;
pub use microsoft::microsoft_settings;

use crate::app::{AppOptions, TestApp};
use crate::mailbox_operations::MailboxOperations;

/// The seed of every simulated provider that is not given one.
const SEED: u64 = 1;

/// Different letters that the mail of a simulated provider is made of.
const LETTERS: usize = 10;

/// A retry that is due within this is waited for.
const RETRY_HORIZON: Duration = Duration::from_secs(40);

/// A provider that is simulated.
pub trait SimulatedProvider: Deref<Target = ProviderCore<Self::Fault>> + Send + Sync + Sized + 'static {
    /// What goes wrong there.
    type Fault: FaultKind + Debug;
    /// Serves as long as it is kept.
    type Server: Send + Sync + 'static;

    fn begin() -> Self;

    fn serve(world: &Arc<Self>) -> impl Future<Output = Self::Server>;

    /// A connector that calls the server.
    fn connect_to(server: &Self::Server, http: HttpClient) -> Arc<dyn Connector>;

    fn create(&self, address: &str, messages: usize) -> bool;

    /// The connection of an account there.
    fn connection(_server: &Self::Server, _address: &str) -> Value {
        Value::Null
    }

    /// A secret, as if the account's owner had consented.
    fn consent(&self, address: &str) -> Option<String>;

    /// Each message that is in scope by default, in the lines of [`crate::app::message_line`].
    fn truth_of(&self, address: &str) -> BTreeSet<String>;
}

/// An application whose mailboxes are accounts of a simulated provider.
pub struct SimulatedApp<W: SimulatedProvider> {
    pub app: TestApp,
    pub world: Arc<W>,
    connector: Arc<dyn Connector>,
    pub server: W::Server,
}

impl<W: SimulatedProvider> Debug for SimulatedApp<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimulatedApp").field("app", &self.app).finish_non_exhaustive()
    }
}

/// So that a test asks the application itself without a detour.
impl<W: SimulatedProvider> Deref for SimulatedApp<W> {
    type Target = TestApp;

    fn deref(&self) -> &TestApp {
        &self.app
    }
}

/// An account, and the tenant that has it.
#[derive(Debug, Clone)]
pub struct AccountOwner {
    pub address: String,
    pub store: TenantStore,
    pub mailbox: Mailbox,
}

impl<W: SimulatedProvider> SimulatedApp<W> {
    pub async fn new(db: TestDatabase) -> Self {
        let world = Arc::new(W::begin());
        let server = W::serve(&world).await;
        let connector = W::connect_to(&server, HttpClient::new(HttpTimeouts::default()).unwrap());
        let options = AppOptions::default().connector(connector.clone()).remote_slots(32).retry_horizon(RETRY_HORIZON);
        Self { app: TestApp::new(db, options), world, connector, server }
    }

    /// Creates an account with so much mail, and connects it for a tenant of the same name.
    pub async fn connect(&self, name: &str, messages: usize) -> AccountOwner {
        let address = format!("{name}@sim.example");
        assert!(self.world.create(&address, messages));
        self.connect_again(name, &address).await
    }

    /// Connects an account for one more tenant.
    pub async fn connect_again(&self, tenant: &str, address: &str) -> AccountOwner {
        let store = self.app.create_tenant(tenant).await;
        self.reconnect(&store, address, Backfill::All).await;
        let mailbox = store.find_mailbox(address).await.unwrap().unwrap();
        AccountOwner { address: address.to_owned(), store, mailbox }
    }

    /// Connects an account with a fresh consent of its owner.
    pub async fn reconnect(&self, store: &TenantStore, address: &str, backfill: Backfill) {
        let connect = ConnectRequest {
            provider: self.connector.provider(),
            address: address.to_owned(),
            settings: MailboxSettings::of_connection(W::connection(&self.server, address)),
            secret: self.world.consent(address).map(Secret::new),
            backfill,
        };
        self.app.engine.connect(store.id, connect).await.unwrap().unwrap();
    }

    /// Syncs the mailbox and works until nothing is left to do.
    pub async fn sync(&self, owner: &AccountOwner) {
        self.app.engine.request_sync(&owner.mailbox).await.unwrap();
        self.app.run_jobs_until_idle().await;
    }

    pub async fn stored(&self, owner: &AccountOwner) -> BTreeSet<String> {
        self.app.stored_messages(&owner.store).await
    }

    pub fn truth(&self, owner: &AccountOwner) -> BTreeSet<String> {
        self.world.truth_of(&owner.address)
    }

    /// Fails the test unless everything is stored as it is at the provider.
    pub async fn assert_equal(&self, owner: &AccountOwner) {
        let (stored, truth) = (self.stored(owner).await, self.truth(owner));
        let missing: Vec<_> = truth.difference(&stored).collect();
        let surplus: Vec<_> = stored.difference(&truth).collect();
        assert!(missing.is_empty() && surplus.is_empty(), "missing {missing:#?}\nsurplus {surplus:#?}");
    }

    pub async fn state(&self, owner: &AccountOwner) -> MailboxState {
        self.app.mailbox_state(&owner.store, owner.mailbox.id).await
    }

    pub async fn sync_state(&self, owner: &AccountOwner) -> SyncState {
        self.app.sync_state(&owner.store, owner.mailbox.id).await
    }

    /// Requests that were made for the account, oldest first.
    pub fn requests(&self, owner: &AccountOwner) -> Vec<RequestLogEntry<<W::Fault as FaultKind>::Route>> {
        self.world.request_log().into_iter().filter(|entry| entry.account == owner.address).collect()
    }
}
