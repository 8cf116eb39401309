//! An application that knows a simulated provider.

use std::ops::Deref;

use serde_json::Value;
use store::TenantStore;
use store::testing::{TestDatabase, on_each_database};
use testkit::http::HttpOptions;
use testkit::{AppOptions, HttpReply, TestApp};

use super::browser::Browser;
use super::provider_site::ProviderSite;
use crate::two_tenants::{select, text};

/// An application with two tenants, each with a key that may write. No worker runs unless a test starts one.
pub struct ConsentApp<S> {
    app: TestApp,
    pub site: S,
    pub acme: TenantStore,
    pub acme_key: String,
    pub beta: TenantStore,
    pub beta_key: String,
}

/// So that a test asks the application itself without a detour.
impl<S> Deref for ConsentApp<S> {
    type Target = TestApp;

    fn deref(&self) -> &TestApp {
        &self.app
    }
}

/// Runs the test on SQLite and on PostgreSQL, each time with a fresh application and provider.
pub async fn on_each_consent_app<S: ProviderSite>(test: impl AsyncFn(&ConsentApp<S>)) {
    let test = &test;
    on_each_database(|db| async move {
        let app = ConsentApp::<S>::new(db).await;
        test(&app).await;
        app.site.assert_no_violations();
        app.finish().await;
    })
    .await;
}

impl<S: ProviderSite> ConsentApp<S> {
    async fn new(db: TestDatabase) -> Self {
        let site = S::start().await;
        let flows = site.consent_flows();
        let http = HttpOptions::default().setup(move |web| web.consents = flows.clone());
        let app = TestApp::new(db, site.add_connector(AppOptions::default().http(http)));
        let (acme, beta) = (app.create_tenant("acme").await, app.create_tenant("beta").await);
        let acme_key = app.create_key(&acme, &["read", "write"]).await;
        let beta_key = app.create_key(&beta, &["read", "write"]).await;
        Self { app, site, acme, acme_key, beta, beta_key }
    }

    /// A link for a person, as a path on our server.
    pub async fn link(&self, key: &str, query: &str) -> String {
        let reply = self.get(&format!("/v1/oauth/{}/start{query}", S::NAME), key).await;
        assert_eq!(reply.expect(200).header("cache-control"), "no-store");
        local_path(&text(&reply.json()["url"]))
    }

    /// A person opens a link and does what people do; returns the page that they see in the end.
    pub async fn go_through(&self, key: &str, query: &str) -> HttpReply {
        let mut browser = Browser::default();
        let back = browser.consent(self, &self.link(key, query).await).await;
        browser.open(self, &back).await
    }

    pub async fn mailboxes(&self, key: &str) -> Vec<Value> {
        self.get("/v1/mailboxes", key).await.json()["items"].as_array().unwrap().clone()
    }

    /// The state of the mailbox, empty if there is none.
    pub async fn state(&self, address: &str) -> String {
        let found = select(self, &format!("select state from mailboxes where address = '{address}'")).await;
        found.into_iter().next().unwrap_or_default()
    }

    pub async fn secrets(&self, kind: &str) -> usize {
        self.count(&format!("secrets where kind = '{kind}'")).await
    }

    /// Syncs the mailbox of this address and works until nothing is left to do.
    pub async fn sync_address(&self, tenant: &TenantStore, address: &str) {
        let mailbox = self.mailbox(tenant, address).await;
        self.sync(tenant, mailbox.id).await;
    }

    /// Whatever may be changed by a person who comes back from the provider.
    pub async fn snapshot(&self) -> Vec<Vec<String>> {
        let mut all = Vec::new();
        for sql in [
            "select address || state || version || '' from mailboxes order by 1",
            "select kind from secrets where kind <> 'access_token' order by 1",
            "select cast(count(*) as text) from audit",
        ] {
            all.push(select(self, sql).await);
        }
        all
    }
}

/// The path of a URL of ours.
pub fn local_path(url: &str) -> String {
    let path = url.strip_prefix(&web::EdgeSettings::default().public_url);
    path.unwrap_or_else(|| panic!("{url} is not ours")).to_owned()
}
