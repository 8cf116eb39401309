//! A server that is killed while it is told to change things: what it said is so, and nothing happened twice.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::http::{GENEROUS, create_key, serve, try_send_json};
use crate::installation::{PROGRAM, TestInstallation, on_each_database};
use crate::processes::{RunningProcess, wait_until};

const REQUESTS: usize = 1000;
const CLIENTS: usize = 4;
const KILLS: usize = 5;

fn serve_at(place: &TestInstallation, address: SocketAddr) -> RunningProcess {
    let mut command = place.command(PROGRAM, &["serve", "--roles", "web"]);
    command
        .env("MAILROOM_SERVER__LISTEN", address.to_string())
        .envs(GENEROUS)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    RunningProcess::spawn(&mut command)
}

#[test]
fn confirmed_changes_survive_kills_exactly_once() {
    on_each_database(|place| {
        place.ok(&["tenant", "create", "acme"]);
        let key = create_key(place, "acme", "read,write");
        let (server, address) = serve(place);
        let mut server = Some(server);
        let confirmed = AtomicUsize::new(0);
        let answered: BTreeMap<String, String> = thread::scope(|all| {
            let (key, confirmed) = (&key, &confirmed);
            let clients: Vec<_> =
                (0..CLIENTS).map(|n| all.spawn(move || create_mailboxes(n, address, key, confirmed))).collect();
            for kill in 1..=KILLS {
                wait_until("some are made", || confirmed.load(Ordering::Relaxed) >= kill * REQUESTS / (KILLS + 1));
                server.take().unwrap().kill();
                server = Some(serve_at(place, address));
            }
            clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
        });
        assert_eq!(answered.len(), REQUESTS);
        let there = place.select("select address || ' ' || id from mailboxes where address like 'box-%'");
        let there: BTreeMap<String, String> =
            there.iter().map(|row| row.split_once(' ').unwrap()).map(|(a, id)| (a.to_owned(), id.to_owned())).collect();
        assert_eq!(there, answered, "each has the id that was answered");
        let made =
            place.select("select entry from audit").iter().filter(|entry| entry.contains("mailbox.create")).count();
        assert_eq!(made, REQUESTS);
        place.ok(&["audit", "verify"]);
    });
}

/// Creates the mailboxes of one client, and returns their addresses and ids.
fn create_mailboxes(client: usize, address: SocketAddr, key: &str, confirmed: &AtomicUsize) -> Vec<(String, String)> {
    let mut created = Vec::new();
    for n in (client..REQUESTS).step_by(CLIENTS) {
        let mailbox = format!("box-{n}@acme.test");
        created.push((mailbox.clone(), create_mailbox(address, key, &mailbox)));
        confirmed.fetch_add(1, Ordering::Relaxed);
    }
    created
}

/// As a careful client does it: the same request with the same key until it is answered. Returns the id.
fn create_mailbox(address: SocketAddr, key: &str, mailbox: &str) -> String {
    loop {
        let body = json!({"address": mailbox, "provider": "files"});
        let once = [("Idempotency-Key", mailbox)];
        match try_send_json(address, "POST", "/v1/mailboxes", key, &body, &once) {
            Ok(answer) if answer.status == 201 => return answer.json()["id"].as_str().unwrap().to_owned(),
            // Another try of it is being answered, or the database is not there yet.
            Ok(answer) => assert!([409, 503].contains(&answer.status) && !answer.body.is_empty(), "{answer:?}"),
            Err(_) => thread::sleep(Duration::from_millis(20)),
        }
    }
}
