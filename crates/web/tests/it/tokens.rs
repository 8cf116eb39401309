//! Tokens of an OpenID Connect issuer in place of keys, and when keys were used.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::{Clock, SystemClock};
use engine::oidc::{Algorithm, Documents, Oidc, OidcSettings};
use futures_util::future::BoxFuture;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};
use testkit::http::HttpOptions;
use testkit::{AppOptions, HttpReply, TestApp, on_each_app, on_each_app_with, wait_until};

use crate::two_tenants::select;

const ISSUER: &str = "https://issuer.test";

/// Signs with a key of its own.
struct TokenIssuer(EcdsaKeyPair);

/// The documents in which an issuer publishes its keys.
#[derive(Debug, Clone)]
struct IssuerDocuments {
    public_keys: Value,
    reads: Arc<AtomicUsize>,
}

impl Documents for IssuerDocuments {
    fn get<'a>(&'a self, url: &'a str) -> BoxFuture<'a, anyhow::Result<Value>> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        let about = json!({"issuer": ISSUER, "jwks_uri": format!("{ISSUER}/keys")});
        let document = if url.ends_with("/keys") { self.public_keys.clone() } else { about };
        Box::pin(async { Ok(document) })
    }
}

impl TokenIssuer {
    fn new() -> Self {
        let random = SystemRandom::new();
        let generated = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        Self(EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, generated.as_ref(), &random).unwrap())
    }

    fn documents(&self) -> IssuerDocuments {
        let point = self.0.public_key().as_ref();
        let (x, y) = (URL_SAFE_NO_PAD.encode(&point[1..33]), URL_SAFE_NO_PAD.encode(&point[33..65]));
        let public_keys = json!({"keys": [{"kty": "EC", "crv": "P-256", "kid": "one", "use": "sig", "x": x, "y": y}]});
        IssuerDocuments { public_keys, reads: Arc::default() }
    }

    fn sign(&self, head: &Value, claims: &Value) -> String {
        let signed = [head, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string())).join(".");
        let signature = self.0.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// A good token, but for this claim.
    fn with_claim(&self, claim: &str, value: Value) -> String {
        let mut claims = claims();
        claims[claim] = value;
        self.sign(&json!({"alg": "ES256", "kid": "one", "typ": "at+jwt"}), &claims)
    }
}

fn claims() -> Value {
    let now = SystemClock.now().as_second();
    json!({"iss": ISSUER, "aud": "mailroom", "sub": "ann", "exp": now + 600, "tenant_id": "acme", "scope": "read"})
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
    let issuer = TokenIssuer::new();
    let documents = issuer.documents();
    on_each_app_with(
        || options(&documents),
        async |app| {
            for tenant in ["acme", "beta", "idle"] {
                app.create_tenant(tenant).await;
            }
            app.db.run("update tenants set is_active = false where name = 'idle'").await;

            let good = issuer.with_claim("sub", json!("ann"));
            emails(app, &good).await.expect(200);
            app.get("/v1/tenants", &good).await.assert_problem(403, "operator");
            for (claim, value, status, says) in [
                ("scope", json!(""), 403, "no scope"),
                ("tenant_id", json!("gamma"), 403, "no tenant"),
                ("tenant_id", json!("idle"), 403, "deactivated"),
                ("aud", json!("other"), 401, "aud"),
                ("iss", json!("https://evil.example"), 401, "another issuer"),
                ("exp", json!(1), 401, "expired"),
            ] {
                emails(app, &issuer.with_claim(claim, value)).await.assert_problem(status, says);
            }
            let (signed, _) = good.rsplit_once('.').unwrap();
            emails(app, &format!("{signed}.AAAA")).await.assert_problem(401, "signature");
            for alg in ["none", "HS256"] {
                let token = issuer.sign(&json!({"alg": alg, "kid": "one"}), &claims());
                emails(app, &token).await.assert_problem(401, "not signed with the configured algorithm");
            }
            emails(app, "nonsense").await.assert_problem(401, "it is malformed");
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn issuer_is_not_asked_for_every_unknown_key() {
    let issuer = TokenIssuer::new();
    let documents = issuer.documents();
    on_each_app_with(
        || options(&documents),
        async |app| {
            app.create_tenant("acme").await;
            emails(app, &issuer.with_claim("sub", json!("ann"))).await.expect(200);
            let before = documents.reads.load(Ordering::SeqCst);
            for number in 0..50 {
                let head = json!({"alg": "ES256", "kid": format!("nobody's {number}")});
                emails(app, &issuer.sign(&head, &claims())).await.assert_problem(401, "does not publish");
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
        let (_, used) = engine::api_keys::create(&acme, "used", &scopes, None).await.unwrap();
        engine::api_keys::create(&acme, "unused", &scopes, None).await.unwrap();
        emails(app, used.expose()).await.expect(200);

        let used = "select name from api_keys where last_used_at is not null";
        wait_until("the use is recorded", async || !select(app, used).await.is_empty()).await;
        assert_eq!(select(app, used).await, ["used"]);
    })
    .await;
}
