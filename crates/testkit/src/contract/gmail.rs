//! The contract for Gmail's connector, against a simulated Google that checks every call and answer by Google's own
//! description.

use std::collections::BTreeSet;
use std::sync::Arc;

use domain::connector::{ConnectorAccount, FetchRequest};
use domain::{Clock, Connector, SystemClock};
use providers::gmail::{Gmail, GoogleSettings};
use providers::http::{HttpClient, HttpTimeouts};
use sim::google::{AccountSpec, GmailOperation, GoogleFault, GoogleFaultKind, GoogleServer, GoogleWorld};

use super::{ConnectorUnderTest, ContractFault, CursorExpiry, FixedToken, THROTTLE_WAIT, account, placement_line};

/// An account at a simulated Google.
#[derive(Debug)]
pub struct GmailUnderTest {
    pub world: Arc<GoogleWorld>,
    pub server: GoogleServer,
    pub token: String,
}

impl GmailUnderTest {
    /// The account's address.
    pub const ADDRESS: &str = "ann@sim.example";

    pub async fn new(messages: usize, seed: u64) -> Self {
        let world = Arc::new(GoogleWorld::new(seed, 20, Arc::new(|| SystemClock.now())));
        assert!(world.create(&AccountSpec { address: Self::ADDRESS.to_owned(), messages, seed: Some(seed) }));
        for name in ["Taxes/2026", "Häuser \u{1f3e0}"] {
            world.apply(Self::ADDRESS, GmailOperation::CreateLabel { name: name.to_owned() }).unwrap();
        }
        let server = GoogleServer::start_here(Arc::clone(&world)).await.unwrap();
        let token = world.grant(Self::ADDRESS).unwrap().access_token;
        Self { world, server, token }
    }

    pub fn apply(&self, operation: GmailOperation) {
        self.world.apply(Self::ADDRESS, operation).unwrap();
    }

    /// A connector with nothing in memory that gives up after these times.
    pub fn connector_with(&self, timeouts: HttpTimeouts) -> Gmail {
        let settings = GoogleSettings { api_url: self.server.url(), ..GoogleSettings::default() };
        Gmail::new(HttpClient::new(timeouts).unwrap(), &settings).unwrap()
    }
}

impl ConnectorUnderTest for GmailUnderTest {
    fn name(&self) -> &'static str {
        "gmail"
    }

    fn connector(&self) -> Arc<dyn Connector> {
        Arc::new(self.connector_with(HttpTimeouts::default()))
    }

    fn account(&self) -> ConnectorAccount {
        account(Self::ADDRESS, "{}".to_owned(), None, Arc::new(FixedToken(self.token.clone())))
    }

    fn refused_account(&self) -> ConnectorAccount {
        account(Self::ADDRESS, "{}".to_owned(), None, Arc::new(FixedToken("refused-token".to_owned())))
    }

    fn confidential(&self) -> Vec<String> {
        vec![Self::ADDRESS.to_owned(), self.token.clone(), "refused-token".to_owned(), "127.0.0.1".to_owned()]
    }

    fn step(&self, changes: usize) {
        self.world.step(Self::ADDRESS, changes);
    }

    /// By Gmail's documents, and not with the connector's own code: mail in the trash or in spam is nowhere else, neither
    /// are chats and drafts, and everything else is in all mail.
    fn truth(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (id, message) in &self.world.truth(Self::ADDRESS).unwrap().messages {
            let labels: BTreeSet<&str> = message.label_ids.iter().map(String::as_str).collect();
            let hidden: Vec<&str> = ["TRASH", "SPAM"].into_iter().filter(|label| labels.contains(label)).collect();
            let apart: Vec<&str> = ["CHAT", "DRAFT"].into_iter().filter(|label| labels.contains(label)).collect();
            let folders: Vec<&str> = if !hidden.is_empty() {
                hidden
            } else if !apart.is_empty() {
                apart
            } else {
                let shown = labels.iter().copied().filter(|label| *label != "UNREAD" && *label != "STARRED");
                shown.chain(["ALL_MAIL"]).collect()
            };
            let mut flags = Vec::new();
            flags.extend(labels.contains("DRAFT").then_some("draft"));
            flags.extend(labels.contains("STARRED").then_some("flagged"));
            flags.extend((!labels.contains("UNREAD")).then_some("seen"));
            lines.extend(folders.into_iter().map(|folder| placement_line(folder, id, &flags, &message.sha256)));
        }
        lines
    }

    fn delete(&self, message: &FetchRequest, _folder: &str) {
        self.apply(GmailOperation::Delete { message: message.message.clone() });
    }

    fn expire_cursors(&self) -> CursorExpiry {
        self.apply(GmailOperation::ExpireHistory);
        CursorExpiry::Reported
    }

    fn inject(&self, fault: ContractFault) {
        match fault {
            ContractFault::Throttled => {
                let retry_after = Some(THROTTLE_WAIT.as_secs());
                self.world.add_fault(GoogleFault {
                    route: None,
                    ..GoogleFault::always(GoogleFaultKind::Throttled { retry_after })
                });
            }
            ContractFault::Flaky => {
                for kind in [
                    GoogleFaultKind::Unavailable { retry_after: None },
                    GoogleFaultKind::Throttled { retry_after: Some(0) },
                    GoogleFaultKind::UserRateLimited { retry_after: None },
                    GoogleFaultKind::Cut,
                    GoogleFaultKind::CutBody,
                    GoogleFaultKind::TruncatedJson,
                    GoogleFaultKind::ChangedType,
                    GoogleFaultKind::MissingPart,
                    GoogleFaultKind::ShuffledParts,
                    GoogleFaultKind::Padded,
                    GoogleFaultKind::Garbage,
                ] {
                    self.world.add_fault(GoogleFault { route: None, ..GoogleFault::sometimes(kind, 0.01) });
                }
            }
            ContractFault::Unfamiliar => {
                self.world.add_fault(GoogleFault::sometimes(GoogleFaultKind::UnknownFields, 0.7));
                self.world.add_fault(GoogleFault::sometimes(GoogleFaultKind::EmptyPage, 0.3));
                self.world.add_fault(GoogleFault::sometimes(GoogleFaultKind::Padded, 0.3));
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
