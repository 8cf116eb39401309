//! Gmail's pushes over HTTP: a server, and somebody who signs as Google does.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use domain::Clock;
use ring::rand::SystemRandom;
use ring::rsa::{KeyPair, PublicKeyComponents};
use serde_json::{Value, json};
use store::failpoint::{Effect, VARIABLE};

use crate::http::{Answer, ask, send, try_send};
use crate::place::{PROGRAM, Place, on_each_database};
use crate::processes::{Running, wait_until};
use crate::servers::closed_port;

const KEY: &[u8] = include_bytes!("../../../sim/src/keys/issuer-1.der");
const AUDIENCE: &str = "https://mail.example/v1/hooks/gmail";
const ACCOUNT: &str = "push@project.iam.gserviceaccount.com";
const HOOK: &str = "/v1/hooks/gmail";
const ADDRESS: &str = "someone.special@acme.test";

/// Tells its public key to whoever asks, until the test process ends. Where.
fn tell_keys() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/certs", listener.local_addr().unwrap());
    let public = PublicKeyComponents::<Vec<u8>>::from(KeyPair::from_pkcs8(KEY).unwrap().public());
    let (n, e) = (URL_SAFE_NO_PAD.encode(public.n), URL_SAFE_NO_PAD.encode(public.e));
    let keys =
        json!({"keys": [{"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "one", "n": n, "e": e}]}).to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            lines.take_while(|line| !line.is_empty()).for_each(drop);
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", keys.len());
            let _ = stream.write_all((head + &keys).as_bytes());
        }
    });
    url
}

fn token(claim: &str, value: Value) -> String {
    let now = domain::SystemClock.now().as_second();
    let mut claims = json!({"iss": "https://accounts.google.com", "aud": AUDIENCE, "email": ACCOUNT,
        "email_verified": true, "iat": now, "exp": now + 3600, "sub": "1"});
    claims[claim] = value;
    let piece = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", piece(&json!({"alg": "RS256", "kid": "one"})), piece(&claims));
    let key = KeyPair::from_pkcs8(KEY).unwrap();
    let mut signature = vec![0; key.public().modulus_len()];
    key.sign(&ring::signature::RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature).unwrap();
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

fn good_token() -> String {
    token("sub", json!("1"))
}

fn push(message: &str, address: &str) -> Vec<u8> {
    let data = STANDARD.encode(json!({"emailAddress": address, "historyId": "987"}).to_string());
    json!({"message": {"messageId": message, "data": data}, "subscription": "s"}).to_string().into_bytes()
}

/// A mailbox that is at work; nobody works on its jobs.
fn fill(place: &Place) {
    place.ok(&["tenant", "create", "acme"]);
    let then = "'2026-01-01T00:00:00.000Z'";
    place.sql(&format!(
        "insert into mailboxes (id, tenant_id, provider, address, state, state_since, created_at, updated_at)
         select '018f0000-0000-7000-8000-000000000001', id, 'gmail', '{ADDRESS}', 'active', {then}, {then}, {then}
         from tenants where name = 'acme'"
    ));
}

/// Takes pushes and works on nothing. What it says is in a file of the place.
fn serve(place: &Place, settings: &[(&str, &str)]) -> (Running, SocketAddr) {
    let address = SocketAddr::from(([127, 0, 0, 1], closed_port()));
    let mut command = place.command(PROGRAM, &["serve", "--roles", "web"]);
    command.env("MAILROOM_SERVER__LISTEN", address.to_string()).envs(settings.iter().copied());
    let log = File::create(place.path("log")).unwrap();
    let server = Running::spawn(command.stdout(Stdio::null()).stderr(log));
    wait_until("it answers", || TcpStream::connect(address).is_ok());
    (server, address)
}

fn settings(jwks_url: &str) -> [(&str, &str); 3] {
    [
        ("MAILROOM_PROVIDERS__GOOGLE__JWKS_URL", jwks_url),
        ("MAILROOM_PROVIDERS__GOOGLE__PUSH_AUDIENCE", AUDIENCE),
        ("MAILROOM_PROVIDERS__GOOGLE__PUSH_SERVICE_ACCOUNT", ACCOUNT),
    ]
}

fn deliver(address: SocketAddr, token: &str, body: &[u8]) -> Answer {
    send(address, "POST", HOOK, &[("Authorization", &format!("Bearer {token}"))], body)
}

fn counted(place: &Place) -> (usize, usize) {
    let jobs = place.select("select kind from jobs where kind = 'sync_mailbox'").len();
    (jobs, place.select("select message_id from push_messages").len())
}

#[test]
fn a_push_of_the_subscription_is_recorded_and_everything_else_is_refused_with_a_reason() {
    let keys = tell_keys();
    on_each_database(|place| {
        fill(place);
        let (_server, address) = serve(place, &settings(&keys));
        let body = push("1", ADDRESS);

        send(address, "POST", HOOK, &[], &body).assert_problem(401, "no token");
        send(address, "POST", HOOK, &[("Authorization", "Basic eDp5")], &body).assert_problem(401, "no token");
        let refused = deliver(address, "mr_tenant_whatever", &body);
        refused.assert_problem(401, "neither a key nor a token");
        assert_eq!(refused.headers["www-authenticate"], "Bearer");
        let good = good_token();
        let (signed, _) = good.rsplit_once('.').unwrap();
        deliver(address, &format!("{signed}.AAAA"), &body).assert_problem(401, "signature");
        deliver(address, &token("exp", json!(1)), &body).assert_problem(401, "expired");
        deliver(address, &token("iss", json!("https://evil.example")), &body).assert_problem(401, "issuer");
        deliver(address, &token("aud", json!("https://other.example")), &body).assert_problem(403, "aud");
        for _ in 0..20 {
            let another = token("email", json!("eve@project.iam.gserviceaccount.com"));
            deliver(address, &another, &body).assert_problem(403, "another service account");
        }
        let large = [push("2", ADDRESS), vec![b' '; 64 << 10]].concat();
        deliver(address, &good, &large).assert_problem(413, "larger than any push");
        ask(address, "GET", HOOK, &[]).assert_problem(405, "method");
        assert_eq!(counted(place), (0, 0), "nothing has happened");

        for (body, jobs) in [
            (push("3", "nobody@acme.test"), 0),
            (b"{\"message\": 7}".to_vec(), 0),
            (Vec::new(), 0),
            (body.clone(), 1),
            (body, 1),
            (push("4", ADDRESS), 1),
        ] {
            let answer = deliver(address, &good, &body);
            assert_eq!((answer.status, answer.body.len(), counted(place).0), (204, 0, jobs), "{answer:?}");
        }
        assert_eq!(counted(place), (1, 2));
        let metrics = String::from_utf8(ask(address, "GET", "/metrics", &[]).body).unwrap();
        for counted in ["accepted\"} 2", "repeated\"} 1", "unknown\"} 1", "malformed\"} 2", "forbidden\"} 21"] {
            assert!(metrics.contains(&format!("outcome=\"{counted}")), "{counted}: {metrics}");
        }
        let log = std::fs::read_to_string(place.path("log")).unwrap();
        assert_eq!(log.matches("another service account").count(), 1, "it is told once: {log}");
        for secret in [ADDRESS, "nobody@acme.test", "eve@", signed] {
            assert!(!log.contains(secret), "{secret}: {log}");
        }
    });
}

#[test]
fn where_nobody_has_said_whose_pushes_are_believed_none_are() {
    let place = Place::sqlite();
    fill(&place);
    let (_server, address) = serve(&place, &[]);
    deliver(address, &good_token(), &push("1", ADDRESS)).assert_problem(404, "push_service_account");
    assert_eq!(counted(&place), (0, 0));
}

#[test]
fn while_the_keys_cannot_be_had_pushes_come_again() {
    let place = Place::sqlite();
    fill(&place);
    let nowhere = format!("http://127.0.0.1:{}/certs", closed_port());
    let (_server, address) = serve(&place, &settings(&nowhere));
    deliver(address, &good_token(), &push("1", ADDRESS)).assert_problem(503, "keys");
    assert_eq!(counted(&place), (0, 0));
}

#[test]
fn a_process_that_dies_between_a_push_and_its_answer_has_recorded_all_of_it_or_nothing() {
    let keys = tell_keys();
    on_each_database(|place| {
        fill(place);
        let mut number = 0;
        for effect in Effect::PUSHES {
            for moment in ["before", "after"] {
                number += 1;
                place.sql("delete from jobs");
                let failpoint = format!("{moment}:{}=crash", effect.name());
                let dying = [&settings(&keys)[..], &[(VARIABLE, failpoint.as_str())]].concat();
                let (server, address) = serve(place, &dying);
                let authorization = format!("Bearer {}", good_token());
                let headers = [("Authorization", authorization.as_str())];
                let body = push(&number.to_string(), ADDRESS);
                assert!(try_send(address, "POST", HOOK, &headers, &body).is_err(), "{failpoint} was never reached");
                server.kill();
                assert_eq!(counted(place).0, usize::from(moment == "after"), "{failpoint}");

                let (_server, address) = serve(place, &settings(&keys));
                assert_eq!(send(address, "POST", HOOK, &headers, &body).status, 204);
                assert_eq!(counted(place), (1, number), "{failpoint}");
            }
        }
    });
}
