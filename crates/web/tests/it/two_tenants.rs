//! Two tenants that have mail, with keys that may read and keys that may write.

use engine::Progress;
use engine::archive::search::SearchRequest;
use serde_json::{Value, json};
use sim::mail::{GeneratedMessage, Generator, Profile};
use store::TenantStore;
use testkit::{HttpReply, TestApp};

/// Emails of each tenant.
const EMAILS: usize = 30;

pub struct TwoTenants<'a> {
    pub app: &'a TestApp,
    pub operator: String,
    pub acme: TenantStore,
    pub beta: TenantStore,
    pub acme_reader: String,
    pub beta_reader: String,
    /// May read too.
    pub acme_writer: String,
    pub beta_writer: String,
}

pub fn generated(seed: u64, count: usize) -> Vec<GeneratedMessage> {
    Generator::new(seed, Profile::ordinary(seed, count)).collect()
}

/// Imports generated messages, each into its folder.
pub async fn import(app: &TestApp, tenant: &TenantStore, address: &str, messages: &[GeneratedMessage]) {
    for folder in ["INBOX", "Sent", "Archive"] {
        let of_folder = messages.iter().filter(|message| message.folder == folder);
        app.import(tenant, address, folder, of_folder.map(|message| message.raw.clone())).await;
    }
}

impl<'a> TwoTenants<'a> {
    /// With mail in `me@acme.test` and `me@beta.test`.
    pub async fn new(app: &'a TestApp) -> Self {
        let two = Self::without_mail(app).await;
        for (tenant, name, seed) in [(&two.acme, "acme", 1), (&two.beta, "beta", 2)] {
            import(app, tenant, &format!("me@{name}.test"), &generated(seed, EMAILS)).await;
        }
        two
    }

    pub async fn without_mail(app: &'a TestApp) -> Self {
        let operator = app.operator_key().await;
        let (acme, beta) = (app.create_tenant("acme").await, app.create_tenant("beta").await);
        let acme_reader = create_key(app, &operator, &acme, &["read"]).await;
        let acme_writer = create_key(app, &operator, &acme, &["read", "write"]).await;
        let beta_reader = create_key(app, &operator, &beta, &["read"]).await;
        let beta_writer = create_key(app, &operator, &beta, &["write"]).await;
        Self { app, operator, acme, beta, acme_reader, beta_reader, acme_writer, beta_writer }
    }

    pub async fn get(&self, path: &str, key: &str) -> HttpReply {
        self.app.get(path, key).await
    }

    /// Revokes the key `acme_reader`.
    pub async fn revoke_acme_reader(&self) {
        let keys = self.acme.list_api_keys().await.unwrap();
        let reader = keys.iter().find(|key| key.scopes == ["read"]).unwrap();
        assert!(self.acme.revoke_api_key(reader.id).await.unwrap());
    }

    /// Sends a body of JSON, if it is not null.
    pub async fn send(&self, method: &str, path: &str, key: &str, body: &Value) -> HttpReply {
        self.send_with(method, path, key, body, &[]).await
    }

    pub async fn send_with(
        &self,
        method: &str,
        path: &str,
        key: &str,
        body: &Value,
        headers: &[(&'static str, &str)],
    ) -> HttpReply {
        let body = Some(body).filter(|body| !body.is_null());
        self.app.request_with(method, path, Some(key), body, headers).await
    }

    /// Ids of the items of a page.
    pub async fn ids(&self, path: &str, key: &str) -> Vec<String> {
        let page = self.get(path, key).await;
        page.expect(200).json()["items"].as_array().unwrap().iter().map(|item| text(&item["id"])).collect()
    }

    /// Acme's emails that are not deleted, newest first, each as the API shows it.
    pub async fn acme_emails(&self) -> Vec<Value> {
        stored_emails(self.app, &self.acme).await
    }

    /// Reads every stored byte back, and the audit of everybody.
    pub async fn assert_intact(&self) {
        for tenant in self.app.store().system().list_tenants().await.unwrap() {
            let store = self.app.store().tenant(tenant.id);
            let report = self.app.engine.verify(&store, None, true, &Progress::default()).await.unwrap();
            assert!(report.differences.is_empty(), "{}: {report:?}", tenant.name);
        }
        assert_audit_intact(self.app).await;
    }
}

pub async fn assert_audit_intact(app: &TestApp) {
    let chains = app.engine.verify_audit(None).await.unwrap();
    assert!(chains.iter().all(|chain| chain.broken.is_none()), "{chains:?}");
}

async fn create_key(app: &TestApp, operator: &str, tenant: &TenantStore, scopes: &[&str]) -> String {
    let path = format!("/v1/tenants/{}/api-keys", tenant.id);
    let created = app.post(&path, operator, &json!({"name": "test", "scopes": scopes})).await;
    text(&created.expect(201).json()["key"])
}

/// All emails of the tenant that are not deleted, newest first.
pub async fn stored_emails(app: &TestApp, tenant: &TenantStore) -> Vec<Value> {
    let request = SearchRequest { limit: 500, marks: ("**", "**"), ..SearchRequest::default() };
    let hits = app.engine.search(tenant, "", &request).await.unwrap().hits;
    let ids: Vec<_> = hits.iter().map(|hit| hit.email.id).collect();
    let emails = tenant.get_emails(&ids).await.unwrap();
    emails.iter().map(|email| serde_json::to_value(email).unwrap()).collect()
}

/// A string of JSON.
#[track_caller]
pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is not a string")).to_owned()
}

/// The first column of each row, which must be text.
pub async fn select(app: &TestApp, sql: &str) -> Vec<String> {
    app.db.rows(sql).await.iter().map(|row| row.get(0).unwrap()).collect()
}
