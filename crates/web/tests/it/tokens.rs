//! Tokens of an OpenID Connect issuer in place of keys, and when keys were used.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use engine::credentials::oidc::{Oidc, OidcSettings};
use futures_util::future::BoxFuture;
use jwt::{Algorithm, Documents};
use serde_json::{Value, json};
use testkit::http::HttpOptions;
use testkit::signed_tokens::TokenIssuer;
use testkit::{AppOptions, HttpReply, TestApp, on_each_app, on_each_app_with, wait_until};

use crate::two_tenants::select;

const ISSUER: &str = "https://issuer.test";

/// The documents in which an issuer publishes its keys.
#[derive(Debug, Clone)]
struct IssuerDocuments {
    issuer: Arc<TokenIssuer>,
    reads: Arc<AtomicUsize>,
}

impl Documents for IssuerDocuments {
    fn get<'a>(&'a self, url: &'a str) -> BoxFuture<'a, anyhow::Result<Value>> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { Ok(self.issuer.document(url)) })
    }
}

fn issuer() -> (Arc<TokenIssuer>, IssuerDocuments) {
    let issuer = Arc::new(TokenIssuer::new(ISSUER));
    (issuer.clone(), IssuerDocuments { issuer, reads: Arc::default() })
}

fn options(documents: &IssuerDocuments) -> AppOptions {
    let documents = documents.clone();
    AppOptions::default().http(HttpOptions::default().setup(move |web| {
        let settings = OidcSettings {
            issuer: ISSUER.to_owned(),
            audience: "mailroom".to_owned(),
            algorithm: Algorithm::Es256,
            tenant_claim: "tenant_id".to_owned(),
            scope_claim: "scope".to_owned(),
        };
        web.issuer = Some(Oidc::new(settings, Box::new(documents.clone())));
    }))
}

async fn emails(app: &TestApp, token: &str) -> HttpReply {
    app.get("/v1/emails", token).await
}

#[tokio::test(flavor = "multi_thread")]
async fn token_opens_the_tenant_that_it_names() {
    let (issuer, documents) = issuer();
    on_each_app_with(
        || options(&documents),
        async |app| {
            for tenant in ["acme", "beta", "idle"] {
                app.create_tenant(tenant).await;
            }
            app.db.run("update tenants set is_active = false where name = 'idle'").await;

            let good = issuer.good_token();
            emails(app, &good).await.expect(200);
            app.get("/v1/tenants", &good).await.assert_problem(403, "operator");
            for (claim, value, status, says) in [
                ("scope", json!(""), 403, "cannot read"),
                ("tenant_id", json!("gamma"), 403, "no tenant"),
                ("tenant_id", json!("idle"), 403, "deactivated"),
                ("aud", json!("other"), 401, "aud"),
                ("iss", json!("https://evil.example"), 401, "another issuer"),
                ("exp", json!(1), 401, "expired"),
            ] {
                emails(app, &issuer.token_with(claim, value)).await.assert_problem(status, says);
            }
            let (signed, _) = good.rsplit_once('.').unwrap();
            emails(app, &format!("{signed}.AAAA")).await.assert_problem(401, "signature");
            for alg in ["none", "HS256"] {
                let token = issuer.sign(&json!({"alg": alg, "kid": "one"}), &issuer.claims());
                emails(app, &token).await.assert_problem(401, "not signed with the configured algorithm");
            }
            emails(app, "nonsense").await.assert_problem(401, "it is malformed");
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn issuer_is_not_asked_for_every_unknown_key() {
    let (issuer, documents) = issuer();
    on_each_app_with(
        || options(&documents),
        async |app| {
            app.create_tenant("acme").await;
            emails(app, &issuer.good_token()).await.expect(200);
            let before = documents.reads.load(Ordering::SeqCst);
            for number in 0..50 {
                let head = json!({"alg": "ES256", "kid": format!("nobody's {number}")});
                emails(app, &issuer.sign(&head, &issuer.claims())).await.assert_problem(401, "does not publish");
            }
            assert!(documents.reads.load(Ordering::SeqCst) - before <= 4);
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn last_use_of_a_key_is_recorded() {
    on_each_app(async |app| {
        let acme = app.create_tenant("acme").await;
        let scopes = ["read".to_owned()];
        let (_, used) = engine::credentials::api_keys::create(&acme, "used", &scopes, None).await.unwrap();
        engine::credentials::api_keys::create(&acme, "unused", &scopes, None).await.unwrap();
        emails(app, used.expose()).await.expect(200);

        let used = "select name from api_keys where last_used_at is not null";
        wait_until("the use is recorded", async || !select(app, used).await.is_empty()).await;
        assert_eq!(select(app, used).await, ["used"]);
    })
    .await;
}
