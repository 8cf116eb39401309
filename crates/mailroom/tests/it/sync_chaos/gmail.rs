//! The storm over Gmail: tokens die, histories expire, quotas end, and every change is pushed up to five times, in any
//! order, or never.

use std::sync::Arc;

use domain::{Clock, SystemClock};
use sim::google::{
    AccountSpec, CLIENT_ID, CLIENT_SECRET, GmailOperation, GoogleFault, GoogleFaultKind, GoogleRoute, GoogleServer,
    GoogleWorld, PushEndpoint,
};
use tokio::runtime::Runtime;

use super::oauth_provider::{DENIED, MESSAGES, REFUSED, REVOKED, StormProvider, address, on_postgresql, on_sqlite};
use crate::crash::SeededRandom;

const AUDIENCE: &str = "mailroom-storm";
const PUSH_SERVICE_ACCOUNT: &str = "push@storm.iam.gserviceaccount.com";

/// A fault of one account.
fn fault_at(number: usize, route: Option<GoogleRoute>, kind: GoogleFaultKind, probability: f64) -> GoogleFault {
    GoogleFault { account: Some(address(number)), route, ..GoogleFault::sometimes(kind, probability) }
}

impl StormProvider for GoogleWorld {
    type Kind = GoogleFaultKind;
    type Server = GoogleServer;

    const NAME: &'static str = "gmail";

    fn new_world(seed: u64) -> Self {
        GoogleWorld::new(seed, 60, Arc::new(|| SystemClock.now()))
    }

    fn serve(world: &Arc<Self>, runtime: &Runtime) -> GoogleServer {
        runtime.block_on(GoogleServer::start_here(world.clone())).unwrap()
    }

    fn settings(url: &str, _hooks: &str) -> String {
        format!(
            r#"[providers.google]
               auth_url = "{url}/o/oauth2/v2/auth"
               token_url = "{url}/token"
               api_url = "{url}"
               jwks_url = "{url}/oauth2/v3/certs"
               client_id = "{CLIENT_ID}"
               client_secret = "{CLIENT_SECRET}"
               pubsub_topic = "projects/storm/topics/mail"
               push_audience = "{AUDIENCE}"
               push_service_account = "{PUSH_SERVICE_ACCOUNT}"
               user_units_per_minute = 0
            "#
        )
    }

    fn faults() -> Vec<GoogleFault> {
        let mut faults: Vec<GoogleFault> = [
            (GoogleFaultKind::Throttled { retry_after: Some(1) }, 0.01),
            (GoogleFaultKind::UserRateLimited { retry_after: None }, 0.01),
            (GoogleFaultKind::RateLimited { retry_after: Some(1) }, 0.01),
            (GoogleFaultKind::Unavailable { retry_after: None }, 0.02),
            (GoogleFaultKind::Internal, 0.01),
            (GoogleFaultKind::Hang { ms: 1500 }, 0.005),
            (GoogleFaultKind::Cut, 0.01),
            (GoogleFaultKind::Reset, 0.01),
            (GoogleFaultKind::CutBody, 0.02),
            (GoogleFaultKind::Slow { bytes: 4000, ms: 20 }, 0.02),
            (GoogleFaultKind::Garbage, 0.01),
            (GoogleFaultKind::TruncatedJson, 0.01),
            (GoogleFaultKind::EmptyPage, 0.1),
            (GoogleFaultKind::Padded, 0.2),
            (GoogleFaultKind::MissingPart, 0.05),
            (GoogleFaultKind::ShuffledParts, 0.2),
            (GoogleFaultKind::HistoryExpired, 0.005),
        ]
        .map(|(kind, probability)| GoogleFault::sometimes(kind, probability))
        .into();
        let refused = GoogleFaultKind::Oauth { error: "invalid_grant".into(), status: 400 };
        faults.push(fault_at(REFUSED, Some(GoogleRoute::Token), refused, 0.3));
        faults.push(fault_at(REFUSED, None, GoogleFaultKind::Unauthorized, 0.02));
        faults.push(fault_at(DENIED, Some(GoogleRoute::MessagesGet), GoogleFaultKind::NotFound, 0.05));
        faults
    }

    fn create(&self, address: &str) -> bool {
        GoogleWorld::create(self, &AccountSpec { address: address.to_owned(), messages: MESSAGES, seed: None })
    }

    fn consent(&self, address: &str) -> String {
        self.grant(address).unwrap().refresh_token.unwrap()
    }

    fn truth_of(&self, address: &str) -> Vec<String> {
        let mut lines = Vec::new();
        for (id, message) in self.truth(address).unwrap().messages {
            for (place, flags) in providers::gmail::placements(&id, &message.label_ids) {
                if !["TRASH", "SPAM", "DRAFT", "CHAT"].contains(&&*place.folder) {
                    lines.push(format!("{id} in {} {:?} {}", place.folder, flags.names(), message.sha256));
                }
            }
        }
        lines
    }

    fn inject_random_fault(&self, random: &mut SeededRandom, account: &str, may_revoke: bool) {
        match random.below(6) {
            0 => drop(self.apply(account, GmailOperation::ExpireHistory).unwrap()),
            1 => self.expire_access_tokens(Some(account)),
            2 => self.expire_access_tokens(None),
            3 => drop(self.rotate_keys(random.below(2) == 0)),
            4 if may_revoke => self.revoke_tokens(&address(REVOKED)),
            _ => {}
        }
    }

    fn force_comparison(&self) {
        self.apply(&address(DENIED), GmailOperation::ExpireHistory).unwrap();
    }

    fn push_to(&self, url: &str) {
        let url = format!("{url}/v1/hooks/gmail");
        let (audience, service_account_email) = (Some(AUDIENCE.to_owned()), PUSH_SERVICE_ACCOUNT.to_owned());
        let endpoint =
            PushEndpoint { audience, service_account_email, rate_limit: false, chaos: true, ..PushEndpoint::new(&url) };
        self.set_push(Some(endpoint));
    }

    fn push_summary(&self) -> String {
        format!("{:?}", self.push_counts())
    }
}

#[test]
fn cluster_stores_all_of_gmail_on_postgresql() {
    on_postgresql::<GoogleWorld>();
}

#[test]
fn server_stores_all_of_gmail_on_sqlite() {
    on_sqlite::<GoogleWorld>();
}
