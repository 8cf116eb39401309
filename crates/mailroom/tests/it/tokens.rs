//! Tokens of an issuer in the place of keys, against a server and an issuer that are processes and sockets.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::Clock;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};

use crate::http::{Answer, ask, serve_with};
use crate::place::on_each_database;
use crate::processes::wait_until;

/// Signs with a key of its own, and tells the public half to whoever asks.
struct Issuer {
    url: String,
    key: EcdsaKeyPair,
    asked: Arc<AtomicUsize>,
}

impl Issuer {
    fn start() -> Self {
        let random = SystemRandom::new();
        let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, made.as_ref(), &random).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let point = key.public_key().as_ref();
        let (x, y) = (URL_SAFE_NO_PAD.encode(&point[1..33]), URL_SAFE_NO_PAD.encode(&point[33..65]));
        let keys = json!({"keys": [{"kty": "EC", "crv": "P-256", "kid": "one", "use": "sig", "x": x, "y": y}]});
        let about = json!({"issuer": url, "jwks_uri": format!("{url}/keys")});
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        // Ends with the test process.
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
                let first = lines.next().unwrap_or_default();
                lines.take_while(|line| !line.is_empty()).for_each(drop);
                counted.fetch_add(1, Ordering::SeqCst);
                let body = if first.contains("/keys") { &keys } else { &about }.to_string();
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
                let _ = stream.write_all((head + &body).as_bytes());
            }
        });
        Self { url, key, asked }
    }

    fn claims(&self) -> Value {
        let now = domain::SystemClock.now().as_second();
        json!({"iss": self.url, "aud": "mailroom", "sub": "ann", "exp": now + 600, "tenant_id": "acme", "scope": "read"})
    }

    fn sign(&self, head: &Value, claims: &Value) -> String {
        let piece = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", piece(head), piece(claims));
        let signature = self.key.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

#[test]
fn a_token_of_the_issuer_opens_what_it_names_and_no_other_does() {
    let issuer = Issuer::start();
    on_each_database(|place| {
        for tenant in ["acme", "beta", "idle"] {
            place.ok(&["tenant", "create", tenant]);
        }
        place.ok(&["tenant", "deactivate", "idle"]);
        let settings = [
            ("MAILROOM_AUTH__OIDC__ISSUER", issuer.url.as_str()),
            ("MAILROOM_AUTH__OIDC__AUDIENCE", "mailroom"),
            ("MAILROOM_AUTH__OIDC__ALGORITHM", "ES256"),
            ("MAILROOM_LIMITS__FAILED_LOGINS", "100000"),
        ];
        let (_server, address) = serve_with(place, &settings);
        let get = |token: &str, path: &str| -> Answer {
            ask(address, "GET", path, &[("Authorization", &format!("Bearer {token}"))])
        };
        let head = json!({"alg": "ES256", "kid": "one", "typ": "at+jwt"});
        let with = |claim: &str, value: Value| {
            let mut claims = issuer.claims();
            claims[claim] = value;
            get(&issuer.sign(&head, &claims), "/v1/emails")
        };

        let good = issuer.sign(&head, &issuer.claims());
        assert_eq!(get(&good, "/v1/emails").status, 200);
        get(&good, "/v1/tenants").assert_problem(403, "operator");
        with("scope", json!("")).assert_problem(403, "no scope");
        with("tenant_id", json!("gamma")).assert_problem(403, "no tenant");
        with("tenant_id", json!("idle")).assert_problem(403, "not active");
        with("aud", json!("other")).assert_problem(401, "aud");
        with("iss", json!("https://evil.example")).assert_problem(401, "another issuer");
        with("exp", json!(1)).assert_problem(401, "expired");
        let (signed, _) = good.rsplit_once('.').unwrap();
        get(&format!("{signed}.AAAA"), "/v1/emails").assert_problem(401, "signature");
        for alg in ["none", "HS256"] {
            let token = issuer.sign(&json!({"alg": alg, "kid": "one"}), &issuer.claims());
            get(&token, "/v1/emails").assert_problem(401, "not signed in the way");
        }
        get("nonsense", "/v1/emails").assert_problem(401, "neither a key nor a token");

        let before = issuer.asked.load(Ordering::SeqCst);
        for number in 0..50 {
            let head = json!({"alg": "ES256", "kid": format!("nobody's {number}")});
            get(&issuer.sign(&head, &issuer.claims()), "/v1/emails").assert_problem(401, "does not have");
        }
        assert!(issuer.asked.load(Ordering::SeqCst) - before <= 4, "it is asked seldom, not for each of them");
    });
}

#[test]
fn when_a_key_was_last_used_is_told() {
    on_each_database(|place| {
        place.ok(&["tenant", "create", "acme"]);
        let key = place.object(&["key", "create", "--tenant", "acme", "--name", "used", "--scopes", "read"]);
        place.ok(&["key", "create", "--tenant", "acme", "--name", "unused", "--scopes", "read"]);
        let (_server, address) = serve_with(place, &[]);
        let bearer = format!("Bearer {}", key["key"].as_str().unwrap());
        assert_eq!(ask(address, "GET", "/v1/emails", &[("Authorization", &bearer)]).status, 200);

        let used = || place.select("select name from api_keys where last_used_at is not null");
        wait_until("it is written", || !used().is_empty());
        assert_eq!(used(), ["used"]);
    });
}
