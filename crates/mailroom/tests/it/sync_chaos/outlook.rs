//! Over Outlook: refresh tokens change with every use, changes are forgotten, subscriptions end, and notifications come up to
//! five times, in any order, or never.

use std::sync::Arc;

use domain::{Clock, SystemClock};
use sim::microsoft::{
    CLIENT_ID, CLIENT_SECRET, Fault, Kind, LifecycleEvent, NewAccount, Notifications, Operation, Route, Server, World,
};
use tokio::runtime::Runtime;

use super::simulated::{ACCOUNTS, DENIED, MESSAGES, REFUSED, REVOKED, Stormy, address, on_postgresql, on_sqlite};
use crate::crash::Random;
use crate::place::Place;

/// Folders whose mail nobody wants unless it is said, and what lies below them.
const UNWANTED: [&str; 7] =
    ["deleteditems", "junkemail", "conversationhistory", "outbox", "conflicts", "localfailures", "serverfailures"];

impl Stormy for World {
    type Kind = Kind;
    type Server = Server;

    const NAME: &'static str = "outlook";

    fn begin(seed: u64) -> Self {
        World::new(seed, 60, Arc::new(|| SystemClock.now()))
    }

    fn serve(world: &Arc<Self>, runtime: &Runtime) -> Server {
        runtime.block_on(Server::start_here(world.clone())).unwrap()
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

    fn faults() -> Vec<Fault> {
        let on = |number, route, fault| Fault { account: Some(address(number)), route, ..fault };
        let mut faults: Vec<Fault> = [
            (Kind::Throttled { retry_after: Some(1) }, 0.01),
            (Kind::Throttled { retry_after: None }, 0.01),
            (Kind::Unavailable { retry_after: None }, 0.02),
            (Kind::Internal, 0.01),
            (Kind::BadGateway, 0.01),
            (Kind::GatewayTimeout, 0.01),
            (Kind::Locked, 0.01),
            (Kind::Hang { ms: 1500 }, 0.005),
            (Kind::Cut, 0.01),
            (Kind::Reset, 0.01),
            (Kind::CutBody, 0.02),
            (Kind::Slow { bytes: 4000, ms: 20 }, 0.02),
            (Kind::Garbage, 0.01),
            (Kind::TruncatedJson, 0.01),
            (Kind::EmptyPage, 0.1),
            (Kind::RepeatedItems, 0.1),
            (Kind::MissingPart, 0.05),
            (Kind::ShuffledParts, 0.2),
            (Kind::DeltaExpired, 0.01),
            (Kind::Resync { code: "resyncRequired".into() }, 0.005),
            (Kind::DeltaQuota, 0.005),
        ]
        .map(|(kind, probability)| Fault::sometimes(kind, probability))
        .into();
        let refused = Kind::Oauth { error: "invalid_grant".into(), status: 400, code: Some(70_008) };
        faults.push(on(REFUSED, Some(Route::Token), Fault::sometimes(refused, 0.3)));
        faults.push(on(REFUSED, None, Fault::sometimes(Kind::Unauthorized, 0.02)));
        faults.push(on(DENIED, Some(Route::MessagesValue), Fault::sometimes(Kind::NotFound, 0.05)));
        faults
    }

    fn create(&self, address: &str) -> bool {
        World::create(self, &NewAccount { address: address.to_owned(), messages: MESSAGES, seed: None })
    }

    fn consent(&self, address: &str) -> String {
        self.grant(address).unwrap().refresh_token.unwrap()
    }

    fn truth_of(&self, address: &str) -> Vec<String> {
        let truth = self.truth(address).unwrap();
        let is_below = |path: &str, above: &str| path == above || path.starts_with(&format!("{above}/"));
        let is_drafts = |id: &String| truth.folders[id].well_known.as_deref() == Some("drafts");
        let is_unwanted = |name: &str| UNWANTED.contains(&name);
        let unwanted = truth.folders.values().filter(|folder| {
            folder.is_hidden || folder.is_search || folder.well_known.as_deref().is_some_and(is_unwanted)
        });
        let unwanted: Vec<&str> = unwanted.map(|folder| &*folder.path).collect();
        let mut lines = Vec::new();
        for (id, message) in &truth.messages {
            if is_drafts(&message.folder_id) || unwanted.iter().any(|path| is_below(&message.folder, path)) {
                continue;
            }
            let marks = [(message.is_draft, "draft"), (message.is_flagged, "flagged"), (message.is_read, "seen")];
            let flags: Vec<&str> = marks.iter().filter(|(is_set, _)| *is_set).map(|(_, name)| *name).collect();
            lines.push(format!("{id} in {} {flags:?} {}", message.folder_id, message.sha256));
        }
        lines
    }

    fn shake(&self, random: &mut Random, account: &str, may_revoke: bool) {
        let subscriptions = self.subscriptions();
        let which = subscriptions.get(usize::try_from(random.below(ACCOUNTS as u64)).unwrap());
        match random.below(8) {
            0 => drop(self.apply(account, Operation::ExpireDelta { folder: None }).unwrap()),
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

    /// Everything is told anew, of whatever was denied too.
    fn admit(&self) {
        self.set_notifications(Notifications::default());
        for number in 1..=ACCOUNTS {
            self.apply(&address(number), Operation::ExpireDelta { folder: None }).unwrap();
        }
    }

    /// A subscription that ended without a word is missed by nobody for a day, unless somebody looks after the mailbox.
    fn afterwards(place: &Place) {
        let active = "select m.address || '|' || t.name from mailboxes m join tenants t on t.id = m.tenant_id
                      where m.state = 'active'";
        for row in place.select(active) {
            let (address, tenant) = row.split_once('|').unwrap();
            for what in ["pause", "resume"] {
                // Its credentials may be refused at this very moment; whoever helps then does the same.
                place.run(&["mailbox", what, address, "--tenant", tenant]);
            }
        }
    }

    /// What went for good shows once somebody says that something was missed, or a day later.
    fn remind(&self) {
        for subscription in self.subscriptions() {
            self.send_lifecycle(&subscription.id, LifecycleEvent::Missed);
        }
    }

    fn push_to(&self, _url: &str) {
        self.set_notifications(Notifications { chaos: true, ..Notifications::default() });
    }

    fn pushes(&self) -> String {
        format!("{:?}", self.notification_counts())
    }
}

#[test]
fn three_servers_in_a_storm_end_up_with_what_outlook_has_on_postgresql() {
    on_postgresql::<World>();
}

#[test]
fn a_server_in_a_storm_ends_up_with_what_outlook_has_on_sqlite() {
    on_sqlite::<World>();
}
