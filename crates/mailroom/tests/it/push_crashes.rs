//! Gmail's pushes to a server that is killed while it takes them, signed as Google signs them.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;

use store::failpoint::{Effect, VARIABLE};
use testkit::signed_tokens::GmailPusher;

use crate::http::{send, try_send};
use crate::installation::{PROGRAM, TestInstallation, on_each_database};
use crate::processes::{RunningProcess, wait_until};
use crate::servers::closed_port;

const HOOK: &str = "/v1/hooks/gmail";
const ADDRESS: &str = "someone.special@acme.test";

/// Serves the public key until the test process ends. Returns the URL.
fn serve_keys() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/certs", listener.local_addr().unwrap());
    let keys = GmailPusher::default().public_keys().to_string();
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

/// A mailbox that is at work; nobody works on its jobs.
fn fill(place: &TestInstallation) {
    place.ok(&["tenant", "create", "acme"]);
    let then = "'2026-01-01T00:00:00.000Z'";
    place.sql(&format!(
        "insert into mailboxes (id, tenant_id, provider, address, state, state_since, created_at, updated_at)
         select '018f0000-0000-7000-8000-000000000001', id, 'gmail', '{ADDRESS}', 'active', {then}, {then}, {then}
         from tenants where name = 'acme'"
    ));
}

/// Takes pushes and works on nothing.
fn serve(place: &TestInstallation, settings: &[(&str, &str)]) -> (RunningProcess, SocketAddr) {
    let address = SocketAddr::from(([127, 0, 0, 1], closed_port()));
    let mut command = place.command(PROGRAM, &["serve", "--roles", "web"]);
    command.env("MAILROOM_SERVER__LISTEN", address.to_string()).envs(settings.iter().copied());
    let server = RunningProcess::spawn(command.stdout(Stdio::null()).stderr(Stdio::null()));
    wait_until("it answers", || TcpStream::connect(address).is_ok());
    (server, address)
}

fn settings(jwks_url: &str) -> [(&str, &str); 3] {
    [
        ("MAILROOM_PROVIDERS__GOOGLE__JWKS_URL", jwks_url),
        ("MAILROOM_PROVIDERS__GOOGLE__PUSH_AUDIENCE", GmailPusher::AUDIENCE),
        ("MAILROOM_PROVIDERS__GOOGLE__PUSH_SERVICE_ACCOUNT", GmailPusher::ACCOUNT),
    ]
}

fn counted(place: &TestInstallation) -> (usize, usize) {
    let jobs = place.select("select kind from jobs where kind = 'sync_mailbox'").len();
    (jobs, place.select("select message_id from push_messages").len())
}

#[test]
fn dying_process_records_a_gmail_push_whole_or_not_at_all() {
    let keys = serve_keys();
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
                let authorization = format!("Bearer {}", GmailPusher::default().good_token());
                let headers = [("Authorization", authorization.as_str())];
                let body = GmailPusher::push(&number.to_string(), ADDRESS);
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
