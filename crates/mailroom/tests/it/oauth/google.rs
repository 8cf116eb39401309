//! A simulated Google in this process, and a Mailroom that knows it.

use std::net::SocketAddr;
use std::sync::Arc;

use ::sim::google::{CLIENT_ID, CLIENT_SECRET, Consent, NewAccount, Server, World};
use domain::{Clock, SystemClock};
use serde_json::Value;
use tokio::runtime::Runtime;

use super::browser::Browser;
use crate::api::scene::try_tell;
use crate::http::{self, Answer, GENEROUS};
use crate::place::Place;
use crate::processes::Running;

pub const ANN: &str = "ann@gmail.test";
pub const BOB: &str = "bob@gmail.test";

pub struct Google {
    pub world: Arc<World>,
    server: Server,
    _runtime: Runtime,
}

impl Google {
    pub fn start() -> Self {
        let world = Arc::new(World::new(7, 20, Arc::new(|| SystemClock.now())));
        for address in [ANN, BOB] {
            assert!(world.create(&NewAccount { address: address.into(), messages: 5, seed: None }));
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let server = runtime.block_on(Server::start_here(world.clone())).unwrap();
        let google = Self { world, server, _runtime: runtime };
        google.people(Consent { auto: true, ..Consent::default() });
        google
    }

    /// What people do with the page that asks them.
    pub fn people(&self, consent: Consent) {
        self.world.set_consent(consent);
    }

    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    pub fn settings(&self) -> Vec<(String, String)> {
        let url = self.server.url();
        let pairs = [
            ("CLIENT_ID", CLIENT_ID.to_owned()),
            ("CLIENT_SECRET", CLIENT_SECRET.to_owned()),
            ("AUTH_URL", format!("{url}/o/oauth2/v2/auth")),
            ("TOKEN_URL", format!("{url}/token")),
            ("API_URL", url.clone()),
            ("JWKS_URL", format!("{url}/oauth2/v3/certs")),
        ];
        pairs.map(|(key, value)| (format!("MAILROOM_PROVIDERS__GOOGLE__{key}"), value)).into()
    }

    pub fn revoked(&self) -> usize {
        let is_revoke = |entry: &&::sim::google::Entry| entry.route == ::sim::google::Route::Revoke;
        self.world.request_log().iter().filter(is_revoke).count()
    }

    pub fn assert_well_asked(&self) {
        assert_eq!(self.world.violations(), []);
    }
}

/// A server with two tenants, each with a key that may write.
pub struct Scene<'a> {
    pub place: &'a Place,
    pub google: Google,
    pub address: SocketAddr,
    pub acme: String,
    pub beta: String,
    _server: Running,
}

impl<'a> Scene<'a> {
    pub fn start(place: &'a Place) -> Self {
        let google = Google::start();
        for tenant in ["acme", "beta"] {
            place.ok(&["tenant", "create", tenant]);
        }
        let key = |tenant: &str| {
            let made = place.object(&["key", "create", "--tenant", tenant, "--name", "test", "--scopes", "read,write"]);
            made["key"].as_str().unwrap().to_owned()
        };
        let (acme, beta) = (key("acme"), key("beta"));
        let settings = google.settings();
        let mut variables: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (&**name, &**value)).collect();
        variables.extend(GENEROUS);
        variables.extend([("MAILROOM_SYNC__INTERVAL", "1s"), ("MAILROOM_SYNC__BACKFILL", "all")]);
        let (server, address) = http::serve_with(place, &variables);
        Self { place, google, address, acme, beta, _server: server }
    }

    pub fn get(&self, path: &str, key: &str) -> Answer {
        http::ask(self.address, "GET", path, &[("Authorization", &format!("Bearer {key}"))])
    }

    pub fn tell(&self, method: &str, path: &str, key: &str, body: &Value) -> Answer {
        try_tell(self.address, method, path, key, body, &[]).unwrap()
    }

    /// A link for a person, as a path on our server.
    pub fn link(&self, key: &str, query: &str) -> String {
        let answer = self.get(&format!("/v1/oauth/google/start{query}"), key);
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.headers["cache-control"], "no-store");
        self.path(answer.json()["url"].as_str().unwrap())
    }

    pub fn path(&self, url: &str) -> String {
        let path = url.strip_prefix(&format!("http://{}", self.address));
        path.unwrap_or_else(|| panic!("{url} is not ours")).to_owned()
    }

    /// A person opens a link and does what people do; what they are told in the end.
    pub fn go_through(&self, key: &str, query: &str) -> Answer {
        let mut browser = Browser::default();
        let back = browser.consent(self, &self.link(key, query));
        browser.open(self.address, &back)
    }

    pub fn mailboxes(&self, tenant: &str) -> Vec<Value> {
        self.place.objects(&["mailbox", "list", "--tenant", tenant])
    }

    pub fn state(&self, address: &str) -> String {
        let found = self.place.select(&format!("select state from mailboxes where address = '{address}'"));
        found.into_iter().next().unwrap_or_default()
    }

    pub fn secrets(&self, kind: &str) -> usize {
        self.place.select(&format!("select kind from secrets where kind = '{kind}'")).len()
    }

    /// Whatever may be changed by somebody who comes back from Google.
    pub fn everything(&self) -> Vec<Vec<String>> {
        let all = [
            "select address || state || version || '' from mailboxes order by 1",
            "select kind from secrets where kind <> 'access_token' order by 1",
            "select action from (select count(*) || '' as action from audit) a",
        ];
        all.iter().map(|sql| self.place.select(sql)).collect()
    }
}
