//! Tokens of an issuer in place of keys, which the server asks for its keys over HTTP.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::Clock;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};

use crate::http::{Answer, ask, serve_with};
use crate::installation::on_each_database;

/// Signs with a key of its own, and serves the public half.
struct TokenIssuer {
    url: String,
    key: EcdsaKeyPair,
}

impl TokenIssuer {
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
        // Ends with the test process.
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
                let first = lines.next().unwrap_or_default();
                lines.take_while(|line| !line.is_empty()).for_each(drop);
                let body = if first.contains("/keys") { &keys } else { &about }.to_string();
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
                let _ = stream.write_all((head + &body).as_bytes());
            }
        });
        Self { url, key }
    }

    fn claims(&self) -> Value {
        let now = domain::SystemClock.now().as_second();
        json!({"iss": self.url, "aud": "mailroom", "sub": "ann", "exp": now + 600, "tenant_id": "acme", "scope": "read"})
    }

    fn sign(&self, claims: &Value) -> String {
        let head = json!({"alg": "ES256", "kid": "one", "typ": "at+jwt"});
        let signed = [&head, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string())).join(".");
        let signature = self.key.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

#[test]
fn tokens_of_the_configured_issuer_are_accepted() {
    let issuer = TokenIssuer::start();
    on_each_database(|place| {
        place.ok(&["tenant", "create", "acme"]);
        let settings = [
            ("MAILROOM_AUTH__OIDC__ISSUER", issuer.url.as_str()),
            ("MAILROOM_AUTH__OIDC__AUDIENCE", "mailroom"),
            ("MAILROOM_AUTH__OIDC__ALGORITHM", "ES256"),
        ];
        let (_server, address) = serve_with(place, &settings);
        let good = issuer.sign(&issuer.claims());
        assert_eq!(get_emails(address, &good).status, 200);
        let (signed, _) = good.rsplit_once('.').unwrap();
        get_emails(address, &format!("{signed}.AAAA")).assert_problem(401, "signature");
    });
}

fn get_emails(address: SocketAddr, token: &str) -> Answer {
    ask(address, "GET", "/v1/emails", &[("Authorization", &format!("Bearer {token}"))])
}
