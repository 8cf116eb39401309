//! The contract for the IMAP connector, against a simulated server with the capabilities that a test chooses.

use std::collections::BTreeSet;
use std::sync::Arc;

use domain::connector::{ConnectorAccount, FetchRequest, ListedFolder, NoApiAccess};
use domain::{Clock, Connector, SystemClock};
use providers::imap::{Connection, Imap, Tls};
use sim::imap::{AccountSpec, ImapFault, ImapFaultKind, ImapOperation, ImapServer, ImapWorld, PASSWORD};

use super::{ConnectorUnderTest, ContractFault, CursorExpiry, account, placement_line};

const REFUSED_PASSWORD: &str = "refused-password";

/// An account at a simulated IMAP server.
#[derive(Debug)]
pub struct ImapUnderTest {
    pub world: Arc<ImapWorld>,
    server: ImapServer,
    name: String,
}

impl ImapUnderTest {
    /// The account's address.
    pub const ADDRESS: &str = "ann@imap.example";

    /// `capabilities`: as the server announces them, such as `IMAP4rev1 CONDSTORE`.
    pub async fn new(messages: usize, seed: u64, capabilities: &str) -> Self {
        let world = Arc::new(ImapWorld::new(seed, 20, Arc::new(|| SystemClock.now())));
        world.set_capabilities(capabilities);
        assert!(world.create(&AccountSpec { address: Self::ADDRESS.to_owned(), messages, seed: Some(seed) }));
        let server = ImapServer::start_here(&world).await.unwrap();
        Self { world, server, name: format!("imap with {capabilities}") }
    }

    pub fn apply(&self, operation: ImapOperation) {
        self.world.apply(Self::ADDRESS, operation).unwrap();
    }

    fn account_with(&self, password: &str) -> ConnectorAccount {
        let connection = Connection {
            host: "127.0.0.1".to_owned(),
            port: self.server.imap().port(),
            tls: Tls::None,
            user: Self::ADDRESS.to_owned(),
            auth: providers::imap::Auth::Password,
            authority: None,
            compress: None,
        };
        let settings = serde_json::to_string(&connection).unwrap();
        account(Self::ADDRESS, settings, Some(password), Arc::new(NoApiAccess))
    }
}

impl ConnectorUnderTest for ImapUnderTest {
    fn name(&self) -> &str {
        &self.name
    }

    fn connector(&self) -> Arc<dyn Connector> {
        Arc::new(Imap::default())
    }

    fn account(&self) -> ConnectorAccount {
        self.account_with(PASSWORD)
    }

    fn refused_account(&self) -> ConnectorAccount {
        self.account_with(REFUSED_PASSWORD)
    }

    fn confidential(&self) -> Vec<String> {
        vec![Self::ADDRESS.to_owned(), PASSWORD.to_owned(), REFUSED_PASSWORD.to_owned()]
    }

    fn step(&self, changes: usize) {
        self.world.step(Self::ADDRESS, changes);
    }

    fn folder_key(&self, folder: &ListedFolder) -> String {
        folder.name.clone()
    }

    fn truth(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (name, folder) in self.world.truth(Self::ADDRESS).unwrap().folders {
            for (uid, message) in &folder.messages {
                let uid = format!("{}.{uid}", folder.uid_validity);
                let flags: Vec<String> =
                    message.flags.iter().map(|flag| flag.trim_start_matches('\\').to_lowercase()).collect();
                lines.push(placement_line(&name, &uid, &flags, &message.sha256));
            }
        }
        lines
    }

    fn folder_keys(&self) -> Option<BTreeSet<String>> {
        Some(self.world.truth(Self::ADDRESS).unwrap().folders.into_keys().collect())
    }

    fn lists_sizes(&self) -> bool {
        true
    }

    fn delete(&self, message: &FetchRequest, folder: &str) {
        // A UID carries the UIDVALIDITY of its folder before it.
        let uid = message.placements[0].uid.rsplit('.').next().unwrap().parse().unwrap();
        self.apply(ImapOperation::Expunge { folder: folder.to_owned(), uid });
    }

    /// UIDs do not expire; a folder that is another one under its name is a change like any other.
    fn expire_cursors(&self) -> CursorExpiry {
        CursorExpiry::Never
    }

    fn says_retry_after(&self) -> bool {
        false
    }

    fn inject(&self, fault: ContractFault) {
        match fault {
            ContractFault::Throttled => {
                let kind = ImapFaultKind::No { code: Some("LIMIT".to_owned()), text: "Too many requests.".to_owned() };
                self.world.add_fault(ImapFault::always(kind));
            }
            ContractFault::Flaky => {
                let unavailable = ImapFaultKind::No { code: Some("UNAVAILABLE".to_owned()), text: "Later.".to_owned() };
                let bye = ImapFaultKind::Bye { text: "Restarting.".to_owned() };
                for kind in [
                    unavailable,
                    bye,
                    ImapFaultKind::Cut,
                    ImapFaultKind::Reset,
                    ImapFaultKind::CutBody,
                    ImapFaultKind::Garbage,
                ] {
                    self.world.add_fault(ImapFault::sometimes(kind, 0.01));
                }
                self.world.add_fault(ImapFault::sometimes(ImapFaultKind::Slow { bytes: 512, ms: 1 }, 0.02));
            }
            ContractFault::Unfamiliar => {
                self.world.add_fault(ImapFault::sometimes(ImapFaultKind::UnknownResponses, 0.7));
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
