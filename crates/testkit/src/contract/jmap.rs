//! The contract for the JMAP connector, against a simulated server that refuses what the RFCs do not allow.

use std::collections::BTreeSet;
use std::sync::Arc;

use domain::connector::{ConnectorAccount, FetchRequest, ListedFolder, NoApiAccess};
use domain::{Clock, Connector, SystemClock};
use providers::http::{HttpClient, HttpTimeouts};
use providers::jmap::{Jmap, JmapConnection};
use sim::jmap::{
    AccountSpec, JMAP_PASSWORD, JmapFault, JmapFaultKind, JmapMessageTruth, JmapOperation, JmapOperationOutcome,
    JmapRoute, JmapServer, JmapWorld,
};

use super::{ConnectorUnderTest, ContractFault, CursorExpiry, THROTTLE_WAIT, account, placement_line};

const REFUSED_PASSWORD: &str = "refused-password";

/// An account at a simulated JMAP server.
#[derive(Debug)]
pub struct JmapUnderTest {
    pub world: Arc<JmapWorld>,
    pub server: JmapServer,
    name: String,
}

impl JmapUnderTest {
    /// The account's address.
    pub const ADDRESS: &str = "ann@jmap.example";

    /// `max_objects`: how many objects the server lists or takes at once.
    pub async fn new(messages: usize, seed: u64, max_objects: usize) -> Self {
        let world = Arc::new(JmapWorld::new(seed, 20, Arc::new(|| SystemClock.now())));
        world.set_max_objects(max_objects);
        assert!(world.create(&AccountSpec { address: Self::ADDRESS.to_owned(), messages, seed: Some(seed) }));
        let server = JmapServer::start_here(Arc::clone(&world)).await.unwrap();
        Self { world, server, name: format!("jmap with {max_objects} objects at once") }
    }

    pub fn apply(&self, operation: JmapOperation) -> JmapOperationOutcome {
        self.world.apply(Self::ADDRESS, operation).unwrap()
    }

    fn account_with(&self, password: &str) -> ConnectorAccount {
        let connection = JmapConnection::new(&self.server.url(), Self::ADDRESS).unwrap();
        let settings = serde_json::to_string(&connection).unwrap();
        account(Self::ADDRESS, settings, Some(password), Arc::new(NoApiAccess))
    }
}

/// Returns the flags of a message: keywords of JMAP itself have no sign before them elsewhere.
pub fn jmap_flags(message: &JmapMessageTruth) -> Vec<String> {
    let own = ["$seen", "$flagged", "$answered", "$draft"];
    let keywords = message.keywords.iter().map(|keyword| keyword.to_lowercase());
    keywords.map(|keyword| if own.contains(&&*keyword) { keyword[1..].to_owned() } else { keyword }).collect()
}

impl ConnectorUnderTest for JmapUnderTest {
    fn name(&self) -> &str {
        &self.name
    }

    fn connector(&self) -> Arc<dyn Connector> {
        Arc::new(Jmap::new(HttpClient::new(HttpTimeouts::default()).unwrap()).unwrap())
    }

    fn account(&self) -> ConnectorAccount {
        self.account_with(JMAP_PASSWORD)
    }

    fn refused_account(&self) -> ConnectorAccount {
        self.account_with(REFUSED_PASSWORD)
    }

    fn confidential(&self) -> Vec<String> {
        let texts = [Self::ADDRESS, JMAP_PASSWORD, REFUSED_PASSWORD, "127.0.0.1", "Scripted"];
        texts.map(str::to_owned).to_vec()
    }

    fn step(&self, changes: usize) {
        self.world.step(Self::ADDRESS, changes);
    }

    fn folder_key(&self, folder: &ListedFolder) -> String {
        format!("{} {}", folder.id, folder.name)
    }

    fn truth(&self) -> Vec<String> {
        let truth = self.world.truth(Self::ADDRESS).unwrap();
        let mut lines = Vec::new();
        for (id, message) in &truth.messages {
            for folder in &message.folders {
                let key = format!("{folder} {}", truth.folders[folder].name);
                lines.push(placement_line(&key, id, &jmap_flags(message), &message.sha256));
            }
        }
        lines
    }

    fn folder_keys(&self) -> Option<BTreeSet<String>> {
        let folders = self.world.truth(Self::ADDRESS).unwrap().folders;
        Some(folders.into_iter().map(|(id, folder)| format!("{id} {}", folder.name)).collect())
    }

    fn lists_sizes(&self) -> bool {
        true
    }

    fn delete(&self, message: &FetchRequest, _folder: &str) {
        self.apply(JmapOperation::Destroy { message: message.message.clone() });
    }

    fn expire_cursors(&self) -> CursorExpiry {
        self.apply(JmapOperation::ExpireStates);
        CursorExpiry::Reported
    }

    fn inject(&self, fault: ContractFault) {
        match fault {
            ContractFault::Throttled => {
                let retry_after = Some(THROTTLE_WAIT.as_secs());
                self.world.add_fault(JmapFault::always(JmapFaultKind::Throttled { retry_after }));
            }
            ContractFault::Flaky => {
                for kind in [
                    JmapFaultKind::Unavailable { retry_after: None },
                    JmapFaultKind::Throttled { retry_after: Some(0) },
                    JmapFaultKind::LimitReached { retry_after: None },
                    JmapFaultKind::MethodError { error: "serverUnavailable".to_owned() },
                    JmapFaultKind::Cut,
                    JmapFaultKind::CutBody,
                    JmapFaultKind::TruncatedJson,
                    JmapFaultKind::ChangedType,
                    JmapFaultKind::EmptyPage,
                    JmapFaultKind::Garbage,
                ] {
                    self.world.add_fault(JmapFault::sometimes(kind, 0.01));
                }
            }
            ContractFault::Unfamiliar => {
                let unknown = JmapFault::sometimes(JmapFaultKind::UnknownFields, 0.7);
                self.world.add_fault(JmapFault { route: Some(JmapRoute::Api), ..unknown.clone() });
                self.world.add_fault(JmapFault { route: Some(JmapRoute::Session), ..unknown });
                self.world.add_fault(JmapFault::sometimes(JmapFaultKind::EmptyPage, 0.3));
            }
        }
    }

    fn clear_faults(&self) {
        self.world.clear_faults();
    }

    fn violations(&self) -> Vec<String> {
        self.world.violations().iter().map(|violation| format!("{violation:?}")).collect()
    }
}
