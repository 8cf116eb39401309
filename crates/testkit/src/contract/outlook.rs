//! The contract for Outlook's connector, against a simulated Microsoft that checks every call and answer by Microsoft's
//! own description.

use std::sync::Arc;

use domain::connector::{ConnectorAccount, FetchRequest};
use domain::{Clock, Connector, SystemClock};
use providers::http::{HttpClient, HttpTimeouts};
use providers::outlook::{MicrosoftSettings, Outlook};
use sim::microsoft::{
    AccountSpec, MicrosoftFault, MicrosoftFaultKind, MicrosoftServer, MicrosoftWorld, OutlookFolderTruth,
    OutlookOperation, OutlookOperationOutcome, OutlookTruth,
};

use super::{ConnectorUnderTest, ContractFault, CursorExpiry, FixedToken, THROTTLE_WAIT, account, placement_line};

/// Folders that hold no mail of anybody.
const NO_MAIL: [&str; 6] = ["outbox", "syncissues", "conflicts", "localfailures", "serverfailures", "scheduled"];

/// An account at a simulated Microsoft.
#[derive(Debug)]
pub struct OutlookUnderTest {
    pub world: Arc<MicrosoftWorld>,
    server: MicrosoftServer,
    token: String,
    name: String,
}

impl OutlookUnderTest {
    /// The account's address.
    pub const ADDRESS: &str = "ann@sim.example";

    pub async fn new(messages: usize, seed: u64) -> Self {
        let world = Arc::new(MicrosoftWorld::new(seed, 20, Arc::new(|| SystemClock.now())));
        assert!(world.create(&AccountSpec { address: Self::ADDRESS.to_owned(), messages, seed: Some(seed) }));
        let server = MicrosoftServer::start_here(Arc::clone(&world)).await.unwrap();
        let token = world.grant(Self::ADDRESS).unwrap().access_token;
        Self { world, server, token, name: format!("outlook with seed {seed}") }
    }

    pub fn apply(&self, operation: OutlookOperation) -> OutlookOperationOutcome {
        self.world.apply(Self::ADDRESS, operation).unwrap()
    }

    /// What is in the mailbox.
    pub fn mailbox(&self) -> OutlookTruth {
        self.world.truth(Self::ADDRESS).unwrap()
    }
}

/// Returns the paths of folders that hold no mail of anybody, in the language of the mailbox's owner.
fn paths_without_mail(truth: &OutlookTruth) -> Vec<&str> {
    let is_special =
        |folder: &&OutlookFolderTruth| folder.well_known.as_deref().is_some_and(|of| NO_MAIL.contains(&of));
    truth.folders.values().filter(is_special).map(|folder| &*folder.path).collect()
}

fn holds_mail(folder: &OutlookFolderTruth, paths_without_mail: &[&str]) -> bool {
    let is_below_one = paths_without_mail.iter().any(|path| is_below(&folder.path, path));
    !folder.is_hidden && !folder.is_search && !is_below_one
}

fn is_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl ConnectorUnderTest for OutlookUnderTest {
    fn name(&self) -> &str {
        &self.name
    }

    fn connector(&self) -> Arc<dyn Connector> {
        let settings = MicrosoftSettings { graph_url: self.server.url(), ..MicrosoftSettings::default() };
        Arc::new(Outlook::new(HttpClient::new(HttpTimeouts::default()).unwrap(), &settings).unwrap())
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

    fn truth(&self) -> Vec<String> {
        let truth = self.mailbox();
        let without_mail = paths_without_mail(&truth);
        let mut lines = Vec::new();
        for (id, message) in &truth.messages {
            if holds_mail(&truth.folders[&message.folder_id], &without_mail) {
                let mut flags = Vec::new();
                flags.extend(message.is_draft.then_some("draft"));
                flags.extend(message.is_flagged.then_some("flagged"));
                flags.extend(message.is_read.then_some("seen"));
                lines.push(placement_line(&message.folder_id, id, &flags, &message.sha256));
            }
        }
        lines
    }

    fn delete(&self, message: &FetchRequest, _folder: &str) {
        self.apply(OutlookOperation::Purge { message: message.message.clone() });
    }

    fn expire_cursors(&self) -> CursorExpiry {
        self.apply(OutlookOperation::ExpireDelta { folder: None });
        CursorExpiry::Healed
    }

    fn inject(&self, fault: ContractFault) {
        match fault {
            ContractFault::Throttled => {
                let retry_after = Some(THROTTLE_WAIT.as_secs());
                self.world.add_fault(MicrosoftFault {
                    route: None,
                    ..MicrosoftFault::always(MicrosoftFaultKind::Throttled { retry_after })
                });
            }
            ContractFault::Flaky => {
                for kind in [
                    MicrosoftFaultKind::Unavailable { retry_after: None },
                    MicrosoftFaultKind::Throttled { retry_after: Some(0) },
                    MicrosoftFaultKind::GatewayTimeout,
                    MicrosoftFaultKind::Cut,
                    MicrosoftFaultKind::CutBody,
                    MicrosoftFaultKind::TruncatedJson,
                    MicrosoftFaultKind::ChangedType,
                    MicrosoftFaultKind::MissingPart,
                    MicrosoftFaultKind::ShuffledParts,
                    MicrosoftFaultKind::EmptyPage,
                    MicrosoftFaultKind::RepeatedItems,
                    MicrosoftFaultKind::Garbage,
                ] {
                    self.world.add_fault(MicrosoftFault::sometimes(kind, 0.01));
                }
            }
            ContractFault::Unfamiliar => {
                self.world.add_fault(MicrosoftFault::sometimes(MicrosoftFaultKind::UnknownFields, 0.7));
                self.world.add_fault(MicrosoftFault::sometimes(MicrosoftFaultKind::EmptyPage, 0.3));
                self.world.add_fault(MicrosoftFault::sometimes(MicrosoftFaultKind::RepeatedItems, 0.3));
            }
        }
    }

    fn clear_faults(&self) {
        self.world.clear_faults();
    }

    fn violations(&self) -> Vec<String> {
        let violations = self.world.violations().into_iter().map(|violation| format!("{violation:?}"));
        let counts = self.world.without_immutable_ids().into_iter();
        violations.chain(counts.map(|(of, count)| format!("{count} calls for {of} without immutable ids"))).collect()
    }
}
