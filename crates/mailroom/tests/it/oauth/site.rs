//! Simulated providers in this process, each with an Ann and a Bob.

use std::sync::Arc;

use ::sim::{google, microsoft};
use domain::{Clock, SystemClock};
use tokio::runtime::Runtime;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn settings<const N: usize>(name: &str, pairs: [(&str, String); N]) -> Vec<(String, String)> {
    pairs.map(|(key, value)| (format!("MAILROOM_PROVIDERS__{name}__{key}"), value)).into()
}

pub struct GoogleSite {
    pub world: Arc<google::GoogleWorld>,
    server: google::GoogleServer,
    _runtime: Runtime,
}

impl GoogleSite {
    pub const ANN: &'static str = "ann@gmail.test";
    pub const BOB: &'static str = "bob@gmail.test";

    pub fn start() -> Self {
        let world = Arc::new(google::GoogleWorld::new(7, 20, Arc::new(|| SystemClock.now())));
        for address in [Self::ANN, Self::BOB] {
            assert!(world.create(&google::AccountSpec { address: address.into(), messages: 5, seed: None }));
        }
        let runtime = runtime();
        let server = runtime.block_on(google::GoogleServer::start_here(world.clone())).unwrap();
        Self { world, server, _runtime: runtime }
    }

    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Variables by which a Mailroom knows it.
    pub fn settings(&self) -> Vec<(String, String)> {
        let url = self.server.url();
        let pairs = [
            ("CLIENT_ID", google::CLIENT_ID.to_owned()),
            ("CLIENT_SECRET", google::CLIENT_SECRET.to_owned()),
            ("AUTH_URL", format!("{url}/o/oauth2/v2/auth")),
            ("TOKEN_URL", format!("{url}/token")),
            ("API_URL", url.clone()),
            ("JWKS_URL", format!("{url}/oauth2/v3/certs")),
        ];
        settings("GOOGLE", pairs)
    }

    pub fn assert_no_violations(&self) {
        assert_eq!(self.world.violations(), []);
    }
}

pub struct MicrosoftSite {
    pub world: Arc<microsoft::MicrosoftWorld>,
    server: microsoft::MicrosoftServer,
    _runtime: Runtime,
}

impl MicrosoftSite {
    pub const ANN: &'static str = "ann@contoso.test";
    pub const BOB: &'static str = "bob@contoso.test";

    pub fn start() -> Self {
        let world = Arc::new(microsoft::MicrosoftWorld::new(7, 20, Arc::new(|| SystemClock.now())));
        for address in [Self::ANN, Self::BOB] {
            assert!(world.create(&microsoft::AccountSpec { address: address.into(), messages: 5, seed: None }));
        }
        let runtime = runtime();
        let server = runtime.block_on(microsoft::MicrosoftServer::start_here(world.clone())).unwrap();
        Self { world, server, _runtime: runtime }
    }

    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Variables by which a Mailroom knows it.
    pub fn settings(&self) -> Vec<(String, String)> {
        let url = self.server.url();
        let pairs = [
            ("CLIENT_ID", microsoft::CLIENT_ID.to_owned()),
            ("CLIENT_SECRET", microsoft::CLIENT_SECRET.to_owned()),
            ("AUTHORITY_URL", url.clone()),
            ("GRAPH_URL", url),
        ];
        settings("MICROSOFT", pairs)
    }
}
