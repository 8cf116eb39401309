//! Simulated providers in this process, each with an Ann and a Bob.

use std::net::SocketAddr;
use std::sync::Arc;

use ::sim::google::Consent;
use ::sim::{google, microsoft};
use domain::{Clock, SystemClock};
use tokio::runtime::Runtime;

/// Where people are asked.
pub trait Site {
    /// As it is called in `/v1/oauth/…`.
    const NAME: &'static str;
    /// And the other one.
    const OTHER: &'static str;
    const ANN: &'static str;
    const BOB: &'static str;
    /// Without it nothing can be done.
    const READ: &'static str;

    fn start() -> Self;

    /// What people do with the page that asks them.
    fn people(&self, consent: Consent);

    fn address(&self) -> SocketAddr;

    /// So that a Mailroom knows it.
    fn settings(&self) -> Vec<(String, String)>;

    fn assert_well_asked(&self);

    /// So many consents that came to nothing are not kept: they were revoked, or a person was told where to do it.
    fn assert_taken_back(&self, times: usize, told: &str);
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn settings<const N: usize>(name: &str, pairs: [(&str, String); N]) -> Vec<(String, String)> {
    pairs.map(|(key, value)| (format!("MAILROOM_PROVIDERS__{}__{key}", name.to_uppercase()), value)).into()
}

pub struct Google {
    pub world: Arc<google::World>,
    server: google::Server,
    _runtime: Runtime,
}

impl Google {
    pub fn revoked(&self) -> usize {
        self.asked(google::Route::Revoke)
    }

    pub fn exchanged(&self) -> usize {
        self.asked(google::Route::Token)
    }

    fn asked(&self, route: google::Route) -> usize {
        self.world.request_log().iter().filter(|entry| entry.route == route).count()
    }
}

impl Site for Google {
    const NAME: &'static str = "google";
    const OTHER: &'static str = "microsoft";
    const ANN: &'static str = "ann@gmail.test";
    const BOB: &'static str = "bob@gmail.test";
    const READ: &'static str = google::READONLY;

    fn start() -> Self {
        let world = Arc::new(google::World::new(7, 20, Arc::new(|| SystemClock.now())));
        for address in [Self::ANN, Self::BOB] {
            assert!(world.create(&google::NewAccount { address: address.into(), messages: 5, seed: None }));
        }
        let runtime = runtime();
        let server = runtime.block_on(google::Server::start_here(world.clone())).unwrap();
        let google = Self { world, server, _runtime: runtime };
        google.people(Consent { auto: true, ..Consent::default() });
        google
    }

    fn people(&self, consent: Consent) {
        self.world.set_consent(consent);
    }

    fn address(&self) -> SocketAddr {
        self.server.address()
    }

    fn settings(&self) -> Vec<(String, String)> {
        let url = self.server.url();
        let pairs = [
            ("CLIENT_ID", google::CLIENT_ID.to_owned()),
            ("CLIENT_SECRET", google::CLIENT_SECRET.to_owned()),
            ("AUTH_URL", format!("{url}/o/oauth2/v2/auth")),
            ("TOKEN_URL", format!("{url}/token")),
            ("API_URL", url.clone()),
            ("JWKS_URL", format!("{url}/oauth2/v3/certs")),
        ];
        settings(Self::NAME, pairs)
    }

    fn assert_well_asked(&self) {
        assert_eq!(self.world.violations(), []);
    }

    fn assert_taken_back(&self, times: usize, _: &str) {
        assert_eq!(self.revoked(), times);
    }
}

pub struct Microsoft {
    pub world: Arc<microsoft::World>,
    server: microsoft::Server,
    _runtime: Runtime,
}

impl Site for Microsoft {
    const NAME: &'static str = "microsoft";
    const OTHER: &'static str = "google";
    const ANN: &'static str = "ann@contoso.test";
    const BOB: &'static str = "bob@contoso.test";
    const READ: &'static str = "https://graph.microsoft.com/Mail.Read";

    fn start() -> Self {
        let world = Arc::new(microsoft::World::new(7, 20, Arc::new(|| SystemClock.now())));
        for address in [Self::ANN, Self::BOB, ZOE] {
            assert!(world.create(&microsoft::NewAccount { address: address.into(), messages: 5, seed: None }));
        }
        let runtime = runtime();
        let server = runtime.block_on(microsoft::Server::start_here(world.clone())).unwrap();
        let microsoft = Self { world, server, _runtime: runtime };
        microsoft.people(Consent { auto: true, ..Consent::default() });
        microsoft
    }

    fn people(&self, consent: Consent) {
        self.world.set_consent(consent);
    }

    fn address(&self) -> SocketAddr {
        self.server.address()
    }

    fn settings(&self) -> Vec<(String, String)> {
        let url = self.server.url();
        let pairs = [
            ("CLIENT_ID", microsoft::CLIENT_ID.to_owned()),
            ("CLIENT_SECRET", microsoft::CLIENT_SECRET.to_owned()),
            ("AUTHORITY_URL", url.clone()),
            ("GRAPH_URL", url),
        ];
        settings(Self::NAME, pairs)
    }

    fn assert_well_asked(&self) {
        assert_eq!(self.world.violations(), []);
    }

    fn assert_taken_back(&self, times: usize, told: &str) {
        assert_eq!(told.contains("taken back at https://"), times > 0, "{told}");
    }
}

/// She has an account of her own, in no directory.
pub const ZOE: &str = "zoe@outlook.com";
