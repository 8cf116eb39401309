//! A test issuer that counts how often its keys are fetched.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::Clock;
use futures_util::future::BoxFuture;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::json;

use super::*;

const ISSUER: &str = "https://login.example";

#[derive(Debug)]
struct TestIssuer {
    keys: Mutex<Vec<(String, EcdsaKeyPair)>>,
    asked: AtomicUsize,
}

#[derive(Debug, Clone)]
struct TestDocuments(Arc<TestIssuer>);

impl Documents for TestDocuments {
    fn get<'a>(&'a self, url: &'a str) -> BoxFuture<'a, anyhow::Result<Value>> {
        Box::pin(async move {
            if url.ends_with("/.well-known/openid-configuration") {
                self.0.asked.fetch_add(1, Ordering::SeqCst);
                return Ok(json!({"issuer": ISSUER, "jwks_uri": "https://login.example/keys"}));
            }
            let keys = self.0.keys.lock().unwrap();
            let jwk = |(id, key): &(String, EcdsaKeyPair)| {
                let point = key.public_key().as_ref();
                let coordinate = |range: std::ops::Range<usize>| URL_SAFE_NO_PAD.encode(&point[range]);
                json!({"kty": "EC", "crv": "P-256", "use": "sig", "kid": id, "x": coordinate(1..33), "y": coordinate(33..65)})
            };
            Ok(json!({"keys": keys.iter().map(jwk).collect::<Vec<_>>()}))
        })
    }
}

impl TestDocuments {
    fn new() -> (Self, Oidc, Store, tempfile::TempDir) {
        let issuer = TestIssuer { keys: Mutex::default(), asked: AtomicUsize::new(0) };
        let shared = Self(Arc::new(issuer));
        let settings = OidcSettings {
            issuer: ISSUER.to_owned(),
            audience: "mailroom".to_owned(),
            algorithm: Algorithm::Es256,
            tenant_claim: "tenant_id".to_owned(),
            scope_claim: "scope".to_owned(),
        };
        let folder = tempfile::tempdir().unwrap();
        let location = store::Location::Sqlite { path: folder.path().join("mailroom.db"), connections: 1 };
        let store = Store::open(&location, Arc::new(domain::SystemClock)).unwrap();
        (shared.clone(), Oidc::new(settings, Box::new(shared)), store, folder)
    }

    fn add_key(&self, id: &str) {
        let random = SystemRandom::new();
        let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, made.as_ref(), &random).unwrap();
        self.0.keys.lock().unwrap().push((id.to_owned(), key));
    }

    fn sign(&self, id: &str, claims: &Value) -> String {
        let head = json!({"alg": "ES256", "kid": id}).to_string();
        let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(head), URL_SAFE_NO_PAD.encode(claims.to_string()));
        let keys = self.0.keys.lock().unwrap();
        let (_, key) = keys.iter().find(|(known, _)| known == id).unwrap_or(&keys[0]);
        let signature = key.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    fn asked(&self) -> usize {
        self.0.asked.load(Ordering::SeqCst)
    }
}

fn claims(change: impl Fn(&mut Value)) -> Value {
    let now = domain::SystemClock.now().as_second();
    let mut claims = json!({"iss": ISSUER, "aud": ["other", "mailroom"], "exp": now + 300, "nbf": now - 10, "sub": "ann",
        "tenant_id": "acme", "scope": "openid read  write sudo"});
    change(&mut claims);
    claims
}

#[tokio::test]
async fn token_acts_for_its_tenant_with_its_scopes() {
    let (issuer, oidc, store, _folder) = TestDocuments::new();
    store.migrate().await.unwrap();
    let acme = store.system().create_tenant("acme", domain::PlanTier::Vip).await.unwrap().unwrap();
    issuer.add_key("one");
    let find = async |claims: &Value| oidc.find_principal(&store, &issuer.sign("one", claims)).await.unwrap();

    let TokenLookup::Holder(holder) = find(&claims(|_| {})).await else { panic!() };
    assert_eq!((holder.tenant, holder.plan, holder.is_tenant_active), (acme.id, domain::PlanTier::Vip, true));
    assert_eq!(
        (holder.actor.to_string().as_str(), holder.scopes),
        ("jwt:https://login.example ann", vec!["read".to_owned(), "write".to_owned()])
    );
    for (scope, given) in [(json!(["admin", 7]), 1), (json!(""), 0), (json!(null), 0), (json!({"read": true}), 0)] {
        let TokenLookup::Holder(holder) = find(&claims(|claims| claims["scope"] = scope.clone())).await else {
            panic!()
        };
        assert_eq!(holder.scopes.len(), given, "{scope}");
    }
    let by_id = claims(|claims| claims["tenant_id"] = acme.id.to_string().into());
    assert!(matches!(find(&by_id).await, TokenLookup::Holder(_)));
    for nobody in [json!("beta"), json!(TenantId::SYSTEM.to_string()), json!(null), json!(["acme"])] {
        assert_eq!(
            find(&claims(|claims| claims["tenant_id"] = nobody.clone())).await,
            TokenLookup::NoTenant,
            "{nobody}"
        );
    }
    let now = domain::SystemClock.now().as_second();
    for (claim, value, says) in [
        ("iss", json!("https://login.example/"), "another issuer"),
        ("aud", json!("mailroom2"), "another audience"),
        ("aud", json!(null), "another audience"),
        ("exp", json!(now - 60), "expired"),
        ("exp", json!("tomorrow"), "no expiry"),
        ("exp", json!(null), "no expiry"),
        ("nbf", json!(now + 60), "not valid yet"),
        ("nbf", json!("now"), "not valid yet"),
        ("sub", json!(""), "its subject"),
        ("sub", json!("a\nb"), "its subject"),
    ] {
        let found = find(&claims(|claims| claims[claim] = value.clone())).await;
        assert!(matches!(found, TokenLookup::Refused(reason) if reason.contains(says)), "{claim} {value}: {found:?}");
    }
    for near in [("exp", now - 10), ("nbf", now + 10)] {
        assert!(
            matches!(find(&claims(|claims| claims[near.0] = near.1.into())).await, TokenLookup::Holder(_)),
            "{near:?}"
        );
    }
    assert_eq!(issuer.asked(), 1);
}
