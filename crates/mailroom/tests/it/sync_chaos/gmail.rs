//! Over Gmail: tokens die, histories expire, quotas end, and every change is pushed up to five times, in any order, or never.

use std::sync::Arc;

use domain::{Clock, SystemClock};
use sim::google::{CLIENT_ID, CLIENT_SECRET, Endpoint, Fault, Kind, NewAccount, Operation, Route, Server, World};
use tokio::runtime::Runtime;

use super::simulated::{DENIED, MESSAGES, REFUSED, REVOKED, Stormy, address, on_postgresql, on_sqlite};
use crate::crash::Random;

const AUDIENCE: &str = "mailroom-storm";
const PUSHER: &str = "push@storm.iam.gserviceaccount.com";

impl Stormy for World {
    type Kind = Kind;
    type Server = Server;

    const NAME: &'static str = "gmail";

    fn begin(seed: u64) -> Self {
        World::new(seed, 60, Arc::new(|| SystemClock.now()))
    }

    fn serve(world: &Arc<Self>, runtime: &Runtime) -> Server {
        runtime.block_on(Server::start_here(world.clone())).unwrap()
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
               push_service_account = "{PUSHER}"
               user_units_per_minute = 0
            "#
        )
    }

    fn faults() -> Vec<Fault> {
        let on = |number, route, fault| Fault { account: Some(address(number)), route, ..fault };
        let mut faults: Vec<Fault> = [
            (Kind::Throttled { retry_after: Some(1) }, 0.01),
            (Kind::UserRateLimited { retry_after: None }, 0.01),
            (Kind::RateLimited { retry_after: Some(1) }, 0.01),
            (Kind::Unavailable { retry_after: None }, 0.02),
            (Kind::Internal, 0.01),
            (Kind::Hang { ms: 1500 }, 0.005),
            (Kind::Cut, 0.01),
            (Kind::Reset, 0.01),
            (Kind::CutBody, 0.02),
            (Kind::Slow { bytes: 4000, ms: 20 }, 0.02),
            (Kind::Garbage, 0.01),
            (Kind::TruncatedJson, 0.01),
            (Kind::EmptyPage, 0.1),
            (Kind::Padded, 0.2),
            (Kind::MissingPart, 0.05),
            (Kind::ShuffledParts, 0.2),
            (Kind::HistoryExpired, 0.005),
        ]
        .map(|(kind, probability)| Fault::sometimes(kind, probability))
        .into();
        let refused = Kind::Oauth { error: "invalid_grant".into(), status: 400 };
        faults.push(on(REFUSED, Some(Route::Token), Fault::sometimes(refused, 0.3)));
        faults.push(on(REFUSED, None, Fault::sometimes(Kind::Unauthorized, 0.02)));
        faults.push(on(DENIED, Some(Route::MessagesGet), Fault::sometimes(Kind::NotFound, 0.05)));
        faults
    }

    fn create(&self, address: &str) -> bool {
        World::create(self, &NewAccount { address: address.to_owned(), messages: MESSAGES, seed: None })
    }

    fn consent(&self, address: &str) -> String {
        self.grant(address).unwrap().refresh_token.unwrap()
    }

    fn truth_of(&self, address: &str) -> Vec<String> {
        let mut lines = Vec::new();
        for (id, message) in self.truth(address).unwrap().messages {
            for (place, flags) in connectors::gmail::places(&id, &message.label_ids) {
                if !["TRASH", "SPAM", "DRAFT", "CHAT"].contains(&&*place.folder) {
                    lines.push(format!("{id} in {} {:?} {}", place.folder, flags.names(), message.sha256));
                }
            }
        }
        lines
    }

    fn shake(&self, random: &mut Random, account: &str, may_revoke: bool) {
        match random.below(6) {
            0 => drop(self.apply(account, Operation::ExpireHistory).unwrap()),
            1 => self.expire_access_tokens(Some(account)),
            2 => self.expire_access_tokens(None),
            3 => drop(self.rotate_keys(random.below(2) == 0)),
            4 if may_revoke => self.revoke_tokens(&address(REVOKED)),
            _ => {}
        }
    }

    fn admit(&self) {
        self.apply(&address(DENIED), Operation::ExpireHistory).unwrap();
    }

    fn push_to(&self, url: &str) {
        let url = format!("{url}/v1/hooks/gmail");
        let (audience, service_account_email) = (Some(AUDIENCE.to_owned()), PUSHER.to_owned());
        let endpoint =
            Endpoint { audience, service_account_email, rate_limit: false, chaos: true, ..Endpoint::new(&url) };
        self.set_push(Some(endpoint));
    }

    fn pushes(&self) -> String {
        format!("{:?}", self.push_counts())
    }
}

#[test]
fn three_servers_in_a_storm_end_up_with_what_gmail_has_on_postgresql() {
    on_postgresql::<World>();
}

#[test]
fn a_server_in_a_storm_ends_up_with_what_gmail_has_on_sqlite() {
    on_sqlite::<World>();
}
