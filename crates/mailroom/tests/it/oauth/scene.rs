//! A Mailroom that knows a simulated provider.

use std::net::SocketAddr;

use serde_json::Value;

use super::browser::Browser;
use super::site::Site;
use crate::api::scene::try_tell;
use crate::http::{self, Answer, GENEROUS};
use crate::place::Place;
use crate::processes::Running;

/// A server with two tenants, each with a key that may write.
pub struct Scene<'a, S> {
    pub place: &'a Place,
    pub site: S,
    pub address: SocketAddr,
    pub acme: String,
    pub beta: String,
    _server: Running,
}

impl<'a, S: Site> Scene<'a, S> {
    pub fn start(place: &'a Place) -> Self {
        Self::start_as(place, "web,worker,scheduler")
    }

    /// Nobody looks at mailboxes, so whatever changes was changed by who came back from the provider.
    pub fn start_web(place: &'a Place) -> Self {
        Self::start_as(place, "web")
    }

    fn start_as(place: &'a Place, roles: &str) -> Self {
        let site = S::start();
        for tenant in ["acme", "beta"] {
            place.ok(&["tenant", "create", tenant]);
        }
        let key = |tenant: &str| {
            let made = place.object(&["key", "create", "--tenant", tenant, "--name", "test", "--scopes", "read,write"]);
            made["key"].as_str().unwrap().to_owned()
        };
        let (acme, beta) = (key("acme"), key("beta"));
        let settings = site.settings();
        let mut variables: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (&**name, &**value)).collect();
        variables.extend(GENEROUS);
        variables.extend([("MAILROOM_SYNC__INTERVAL", "1s"), ("MAILROOM_SYNC__SELDOM_INTERVAL", "1s")]);
        variables.push(("MAILROOM_SYNC__BACKFILL", "all"));
        let (server, address) = http::serve_as(place, roles, &variables);
        Self { place, site, address, acme, beta, _server: server }
    }

    pub fn get(&self, path: &str, key: &str) -> Answer {
        http::ask(self.address, "GET", path, &[("Authorization", &format!("Bearer {key}"))])
    }

    pub fn tell(&self, method: &str, path: &str, key: &str, body: &Value) -> Answer {
        try_tell(self.address, method, path, key, body, &[]).unwrap()
    }

    /// A link for a person, as a path on our server.
    pub fn link(&self, key: &str, query: &str) -> String {
        let answer = self.get(&format!("/v1/oauth/{}/start{query}", S::NAME), key);
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

    /// Whatever may be changed by somebody who comes back from the provider.
    pub fn everything(&self) -> Vec<Vec<String>> {
        let all = [
            "select address || state || version || '' from mailboxes order by 1",
            "select kind from secrets where kind <> 'access_token' order by 1",
            "select action from (select count(*) || '' as action from audit) a",
        ];
        all.iter().map(|sql| self.place.select(sql)).collect()
    }
}
