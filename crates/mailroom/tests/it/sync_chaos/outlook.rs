//! The storm over Outlook: refresh tokens change with every use, changes are forgotten, subscriptions end, and notifications come up to
//! five times, in any order, or never.

use std::sync::Arc;

use domain::{Clock, SystemClock};
use sim::microsoft::{
    AccountSpec, CLIENT_ID, CLIENT_SECRET, LifecycleEvent, MicrosoftFault, MicrosoftFaultKind, MicrosoftRoute,
    MicrosoftServer, MicrosoftWorld, Notifications, OutlookOperation,
};
use tokio::runtime::Runtime;

use super::oauth_provider::{
    ACCOUNTS, DENIED, MESSAGES, REFUSED, REVOKED, StormProvider, address, on_postgresql, on_sqlite,
};
use crate::crash::SeededRandom;
use crate::installation::TestInstallation;

/// Well-known folders that are out of scope by default, with those below them.
const OUT_OF_SCOPE: [&str; 7] =
    ["deleteditems", "junkemail", "conversationhistory", "outbox", "conflicts", "localfailures", "serverfailures"];

/// A fault of one account.
fn fault_at(
    number: usize,
    route: Option<MicrosoftRoute>,
    kind: MicrosoftFaultKind,
    probability: f64,
) -> MicrosoftFault {
    MicrosoftFault { account: Some(address(number)), route, ..MicrosoftFault::sometimes(kind, probability) }
}

fn is_below(path: &str, above: &str) -> bool {
    path == above || path.starts_with(&format!("{above}/"))
}

impl StormProvider for MicrosoftWorld {
    type Kind = MicrosoftFaultKind;
    type Server = MicrosoftServer;

    const NAME: &'static str = "outlook";

    fn new_world(seed: u64) -> Self {
        MicrosoftWorld::new(seed, 60, Arc::new(|| SystemClock.now()))
    }

    fn serve(world: &Arc<Self>, runtime: &Runtime) -> MicrosoftServer {
        runtime.block_on(MicrosoftServer::start_here(world.clone())).unwrap()
    }

    fn settings(url: &str, hooks: &str) -> String {
        format!(
            r#"[providers.microsoft]
               authority_url = "{url}"
               graph_url = "{url}"
               client_id = "{CLIENT_ID}"
               client_secret = "{CLIENT_SECRET}"
               notification_url = "{hooks}/v1/hooks/graph"
               mailbox_requests_per_10_minutes = 0
            "#
        )
    }

    fn faults() -> Vec<MicrosoftFault> {
        let mut faults: Vec<MicrosoftFault> = [
            (MicrosoftFaultKind::Throttled { retry_after: Some(1) }, 0.01),
            (MicrosoftFaultKind::Throttled { retry_after: None }, 0.01),
            (MicrosoftFaultKind::Unavailable { retry_after: None }, 0.02),
            (MicrosoftFaultKind::Internal, 0.01),
            (MicrosoftFaultKind::BadGateway, 0.01),
            (MicrosoftFaultKind::GatewayTimeout, 0.01),
            (MicrosoftFaultKind::Locked, 0.01),
            (MicrosoftFaultKind::Hang { ms: 1500 }, 0.005),
            (MicrosoftFaultKind::Cut, 0.01),
            (MicrosoftFaultKind::Reset, 0.01),
            (MicrosoftFaultKind::CutBody, 0.02),
            (MicrosoftFaultKind::Slow { bytes: 4000, ms: 20 }, 0.02),
            (MicrosoftFaultKind::Garbage, 0.01),
            (MicrosoftFaultKind::TruncatedJson, 0.01),
            (MicrosoftFaultKind::EmptyPage, 0.1),
            (MicrosoftFaultKind::RepeatedItems, 0.1),
            (MicrosoftFaultKind::MissingPart, 0.05),
            (MicrosoftFaultKind::ShuffledParts, 0.2),
            (MicrosoftFaultKind::DeltaExpired, 0.01),
            (MicrosoftFaultKind::Resync { code: "resyncRequired".into() }, 0.005),
            (MicrosoftFaultKind::DeltaQuota, 0.005),
        ]
        .map(|(kind, probability)| MicrosoftFault::sometimes(kind, probability))
        .into();
        let refused = MicrosoftFaultKind::Oauth { error: "invalid_grant".into(), status: 400, code: Some(70_008) };
        faults.push(fault_at(REFUSED, Some(MicrosoftRoute::Token), refused, 0.3));
        faults.push(fault_at(REFUSED, None, MicrosoftFaultKind::Unauthorized, 0.02));
        faults.push(fault_at(DENIED, Some(MicrosoftRoute::MessagesValue), MicrosoftFaultKind::NotFound, 0.05));
        faults
    }

    fn create(&self, address: &str) -> bool {
        MicrosoftWorld::create(self, &AccountSpec { address: address.to_owned(), messages: MESSAGES, seed: None })
    }

    fn consent(&self, address: &str) -> String {
        self.grant(address).unwrap().refresh_token.unwrap()
    }

    fn truth_of(&self, address: &str) -> Vec<String> {
        let truth = self.truth(address).unwrap();
        let excluded = truth.folders.values().filter(|folder| {
            let well_known = folder.well_known.as_deref();
            folder.is_hidden || folder.is_search || well_known.is_some_and(|name| OUT_OF_SCOPE.contains(&name))
        });
        let excluded: Vec<&str> = excluded.map(|folder| &*folder.path).collect();
        let mut lines = Vec::new();
        for (id, message) in &truth.messages {
            let is_draft = truth.folders[&message.folder_id].well_known.as_deref() == Some("drafts");
            if is_draft || excluded.iter().any(|path| is_below(&message.folder, path)) {
                continue;
            }
            let marks = [(message.is_draft, "draft"), (message.is_flagged, "flagged"), (message.is_read, "seen")];
            let flags: Vec<&str> = marks.iter().filter(|(is_set, _)| *is_set).map(|(_, name)| *name).collect();
            lines.push(format!("{id} in {} {flags:?} {}", message.folder_id, message.sha256));
        }
        lines
    }

    fn inject_random_fault(&self, random: &mut SeededRandom, account: &str, may_revoke: bool) {
        let subscriptions = self.subscriptions();
        let which = subscriptions.get(usize::try_from(random.below(ACCOUNTS as u64)).unwrap());
        match random.below(8) {
            0 => drop(self.apply(account, OutlookOperation::ExpireDelta { folder: None }).unwrap()),
            1 => self.expire_access_tokens(Some(account)),
            2 => self.expire_access_tokens(None),
            3 => drop(self.rotate_keys(random.below(2) == 0)),
            4 if may_revoke => self.revoke_tokens(&address(REVOKED)),
            5 => drop(which.map(|which| self.remove_subscription(&which.id, random.below(2) == 0))),
            6 => drop(which.map(|which| self.send_lifecycle(&which.id, LifecycleEvent::ReauthorizationRequired))),
            7 => drop(which.map(|which| self.send_lifecycle(&which.id, LifecycleEvent::Missed))),
            _ => {}
        }
    }

    /// Lists everything anew, what was denied too.
    fn force_comparison(&self) {
        self.set_notifications(Notifications::default());
        for number in 1..=ACCOUNTS {
            self.apply(&address(number), OutlookOperation::ExpireDelta { folder: None }).unwrap();
        }
    }

    /// Pauses and resumes each mailbox: a subscription that ended silently is otherwise missed after a day only.
    fn after_storm(mailroom: &TestInstallation) {
        let active = "select m.address || '|' || t.name from mailboxes m join tenants t on t.id = m.tenant_id
                      where m.state = 'active'";
        for row in mailroom.select(active) {
            let (address, tenant) = row.split_once('|').unwrap();
            for what in ["pause", "resume"] {
                // Its credentials may be refused at this very moment; then new ones have the same effect.
                mailroom.run(&["mailbox", what, address, "--tenant", tenant]);
            }
        }
    }

    /// Says that notifications were missed; otherwise deletions show a day later only.
    fn send_reminders(&self) {
        for subscription in self.subscriptions() {
            self.send_lifecycle(&subscription.id, LifecycleEvent::Missed);
        }
    }

    fn push_to(&self, _url: &str) {
        self.set_notifications(Notifications { chaos: true, ..Notifications::default() });
    }

    fn push_summary(&self) -> String {
        format!("{:?}", self.notification_counts())
    }
}

#[test]
fn cluster_stores_all_of_outlook_on_postgresql() {
    on_postgresql::<MicrosoftWorld>();
}

#[test]
fn server_stores_all_of_outlook_on_sqlite() {
    on_sqlite::<MicrosoftWorld>();
}
