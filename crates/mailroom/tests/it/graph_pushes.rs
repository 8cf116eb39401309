//! Notifications of Microsoft Graph over HTTP: a server, and somebody who calls it as Graph does.

use std::collections::BTreeSet;
use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use domain::{Secret, Sha256};
use engine::Vault;
use engine::push::Passwords;
use engine::secrets::KeySource;
use serde_json::{Value, json};
use store::failpoint::{Effect, VARIABLE};

use crate::crash::{random, setting};
use crate::http::{Answer, ask, send, try_send};
use crate::place::{PROGRAM, Place, block_on, on_each_database};
use crate::processes::{Running, wait_until, watch_until};
use crate::servers::closed_port;

const HOOK: &str = "/v1/hooks/graph";
const LIFECYCLE: &str = "/v1/hooks/graph/lifecycle";

fn address_of(n: usize) -> String {
    format!("someone.special{n}@acme.test")
}

/// Of all servers here.
const MASTER_KEY: &str = "7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b";

/// What Graph was told to say for each mailbox.
static PASSWORDS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let place = Place::sqlite();
    place.ok(&["tenant", "create", "acme"]);
    block_on(async {
        let store = crate::jobs::store(&place);
        let vault = Vault::new(store, KeySource::Given(Secret::new(MASTER_KEY.to_owned())));
        let passwords = Passwords::new(vault);
        let mut made = Vec::new();
        for _ in 0..MAILBOXES {
            made.push(passwords.make().await.unwrap().expose().clone());
        }
        made
    })
});

fn password_of(n: usize) -> &'static str {
    &PASSWORDS[n]
}

/// Mailboxes that are at work and subscribed to; nobody works on their jobs.
fn fill(place: &Place, mailboxes: usize) {
    place.ok(&["tenant", "create", "acme"]);
    let then = "'2026-01-01T00:00:00.000Z'";
    for n in 0..mailboxes {
        let (id, address, hash) =
            (format!("018f0000-0000-7000-8000-{n:012}"), address_of(n), Sha256::of(password_of(n).as_bytes()).hex());
        let hash = if place.is_sqlite() { format!("'{hash}'") } else { format!("decode('{hash}', 'hex')") };
        place.sql(&format!(
            "insert into mailboxes (id, tenant_id, provider, address, state, state_since, created_at, updated_at)
             select '{id}', id, 'outlook', '{address}', 'active', {then}, {then}, {then} from tenants where name = 'acme'"
        ));
        place.sql(&format!(
            "insert into push_watches (tenant_id, mailbox_id, next_at) select tenant_id, id, {then} from mailboxes
             where address = '{address}'"
        ));
        place.sql(&format!(
            "insert into push_subscriptions (provider, address, password_sha256, name, claim, held_until)
             values ('outlook', '{address}', {hash}, 's{n}', '', {then})"
        ));
    }
}

const SET_UP: [(&str, &str); 4] = [
    ("MAILROOM_SECRETS__KEY", MASTER_KEY),
    ("MAILROOM_PROVIDERS__MICROSOFT__CLIENT_ID", "us"),
    ("MAILROOM_PROVIDERS__MICROSOFT__CLIENT_SECRET", "hush"),
    ("MAILROOM_PROVIDERS__MICROSOFT__NOTIFICATION_URL", "https://us.example/v1/hooks/graph"),
];

/// Takes pushes and works on nothing. What it says is in a file of the place.
fn serve(place: &Place, address: SocketAddr, settings: &[(&str, &str)]) -> Running {
    let mut command = place.command(PROGRAM, &["serve", "--roles", "web"]);
    command.env("MAILROOM_SERVER__LISTEN", address.to_string()).envs(SET_UP).envs(settings.iter().copied());
    let log = File::options().create(true).append(true).open(place.path("log")).unwrap();
    let server = Running::spawn(command.stdout(Stdio::null()).stderr(log));
    wait_until("it answers", || TcpStream::connect(address).is_ok());
    server
}

fn somewhere() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], closed_port()))
}

fn item(id: &str, mailbox: usize) -> Value {
    json!({"id": id, "subscriptionId": format!("s{mailbox}"), "clientState": password_of(mailbox),
        "changeType": "created", "tenantId": "t", "subscriptionExpirationDateTime": "2100-01-01T00:00:00Z",
        "resource": format!("Users/u/Messages/{id}"), "resourceData": {"@odata.etag": "W/\"1\"", "id": id}})
}

fn with(mut item: Value, field: &str, value: &str) -> Value {
    item[field] = json!(value);
    item
}

fn body(items: &[Value]) -> Vec<u8> {
    json!({"value": items}).to_string().into_bytes()
}

fn deliver(address: SocketAddr, path: &str, body: &[u8]) -> Answer {
    send(address, "POST", path, &[("Content-Type", "application/json")], body)
}

fn counted(place: &Place) -> (usize, usize) {
    let jobs = place.select("select kind from jobs where kind = 'sync_mailbox'").len();
    (jobs, place.select("select message_id from push_messages").len())
}

#[test]
fn graph_is_told_that_it_may_call_by_exactly_what_it_gave() {
    let place = Place::sqlite();
    fill(&place, 0);
    let address = somewhere();
    let _server = serve(&place, address, &[]);
    let text = [("Content-Type", "text/plain; charset=utf-8")];

    for hook in [HOOK, LIFECYCLE] {
        let shake = |token: &str| send(address, "POST", &format!("{hook}?validationToken={token}"), &text, b"");
        for (token, wanted) in [
            (
                "Validation%3a+Testing+client+application+reachability+%26+more",
                "Validation: Testing client application reachability & more",
            ),
            ("a%2Bb%20c%C3%A9%22%3E%25", "a+b c\u{e9}\">%"),
            (&"x".repeat(2048), &"x".repeat(2048)),
        ] {
            let answer = shake(token);
            assert_eq!((answer.status, String::from_utf8(answer.body).unwrap()), (200, wanted.to_owned()));
            assert_eq!(answer.headers["content-type"], "text/plain");
            assert_eq!(answer.headers["x-content-type-options"], "nosniff");
        }
        for markup in ["%3Cscript%3Ealert(1)%3C/script%3E", "a%3Cb", "a%00b", "a%0d%0ab", "", &"x".repeat(2049)] {
            shake(markup).assert_problem(400, "validationToken");
        }
        ask(address, "GET", &format!("{hook}?validationToken=x"), &[]).assert_problem(405, "method");
    }
}

#[test]
fn where_graph_was_not_told_to_call_there_is_nothing() {
    let place = Place::sqlite();
    fill(&place, 1);
    let address = somewhere();
    // Graph calls nobody without encryption, so it was never told to.
    let off = [("MAILROOM_PROVIDERS__MICROSOFT__NOTIFICATION_URL", "http://127.0.0.1:8080/v1/hooks/graph")];
    let _server = serve(&place, address, &off);

    for hook in [HOOK, LIFECYCLE] {
        deliver(address, hook, &body(&[item("1", 0)])).assert_problem(404, "not set up");
        deliver(address, &format!("{hook}?validationToken=x"), b"").assert_problem(404, "not set up");
    }
    assert_eq!(counted(&place), (0, 0));
    let log = std::fs::read_to_string(place.path("log")).unwrap();
    assert!(log.contains("Graph calls only addresses that begin with https://"), "{log}");
}

#[test]
fn what_graph_tells_is_recorded_and_everything_else_changes_nothing() {
    on_each_database(|place| {
        fill(place, 2);
        let address = somewhere();
        let _server = serve(place, address, &[]);

        for nothing in [&b""[..], b"{", b"[]", b"{}", b"{\"value\":null}", b"{\"value\":{}}", b"\xff\xfe"] {
            deliver(address, HOOK, nothing).assert_problem(400, "not what Microsoft Graph sends");
        }
        let large = [body(&[item("1", 0)]), vec![b' '; 1 << 20]].concat();
        assert_eq!(deliver(address, HOOK, &large).status, 413);
        let many = body(&vec![json!({}); 5001]);
        deliver(address, HOOK, &many).assert_problem(400, "not what Microsoft Graph sends");
        let forged = with(item("1", 0), "clientState", password_of(1));
        for _ in 0..20 {
            let answer = deliver(address, HOOK, &body(&[forged.clone(), with(item("1", 0), "subscriptionId", "s7")]));
            assert_eq!((answer.status, answer.body.len()), (202, 0), "who guesses learns nothing");
        }
        assert_eq!(deliver(address, LIFECYCLE, &body(&[with(forged.clone(), "lifecycleEvent", "missed")])).status, 202);
        assert_eq!(counted(place), (0, 0), "nothing has happened");

        let mixed = [json!(7), forged, item("1", 0), json!({"clientState": []}), item("2", 0), item("1", 0)];
        for _ in 0..2 {
            assert_eq!(deliver(address, HOOK, &body(&mixed)).status, 202);
            assert_eq!(counted(place), (1, 2));
        }
        assert_eq!(deliver(address, LIFECYCLE, &body(&[with(item("3", 1), "lifecycleEvent", "missed")])).status, 202);
        assert_eq!(counted(place), (2, 2));
        let swept = place.select("select mailbox_id || '' from push_watches where sweep_since is not null");
        assert_eq!(swept, ["018f0000-0000-7000-8000-000000000001"]);
        let metrics = String::from_utf8(ask(address, "GET", "/metrics", &[]).body).unwrap();
        for counted in ["accepted\"} 3", "repeated\"} 4", "unknown\"} 20", "forbidden\"} 23", "malformed\"} 12"] {
            let line = format!("mailroom_pushes_total{{provider=\"outlook\",outcome=\"{counted}");
            assert!(metrics.contains(&line), "{line}: {metrics}");
        }
        let log = std::fs::read_to_string(place.path("log")).unwrap();
        assert_eq!(log.matches("what was agreed upon").count(), 1, "it is told once: {log}");
        for secret in [&*address_of(0), password_of(0), password_of(1)] {
            assert!(!log.contains(secret), "{secret}: {log}");
        }
    });
}

#[test]
fn a_process_that_dies_between_notifications_and_its_answer_has_recorded_all_of_them_or_none() {
    on_each_database(|place| {
        fill(place, 2);
        let mut number = 0;
        for effect in Effect::PUSHES {
            for moment in ["before", "after"] {
                place.sql("delete from jobs");
                let failpoint = format!("{moment}:{}=crash", effect.name());
                let (address, headers) = (somewhere(), [("Content-Type", "application/json")]);
                let server = serve(place, address, &[(VARIABLE, &failpoint)]);
                let items = body(&[item(&format!("{number}"), 0), item(&format!("{}", number + 1), 1)]);
                number += 2;
                assert!(try_send(address, "POST", HOOK, &headers, &items).is_err(), "{failpoint} was never reached");
                server.kill();
                let is_recorded = moment == "after";
                assert_eq!(counted(place).0, if is_recorded { 2 } else { 0 }, "{failpoint}");

                let address = somewhere();
                let _server = serve(place, address, &[]);
                assert_eq!(send(address, "POST", HOOK, &headers, &items).status, 202);
                assert_eq!(counted(place), (2, number), "{failpoint}");
            }
        }
    });
}

const MAILBOXES: usize = 50;
const ITEMS: usize = 10;
const CALLS_PER_SECOND: usize = 100;

/// Graph, which calls again until it gets an answer that it likes.
struct Storm {
    address: SocketAddr,
    begin: Instant,
    next: AtomicUsize,
    calls: usize,
    answered: AtomicUsize,
    took: Mutex<Vec<Duration>>,
    is_over: AtomicBool,
}

impl Storm {
    fn items(call: usize) -> Vec<Value> {
        (0..ITEMS).map(|n| item(&format!("{call}-{n}"), (call * ITEMS + n) * 7919 % MAILBOXES)).collect()
    }

    fn rage(&self) {
        loop {
            let call = self.next.fetch_add(1, Ordering::SeqCst);
            if call >= self.calls {
                return;
            }
            let due = Duration::from_secs_f64(call as f64 / CALLS_PER_SECOND as f64);
            std::thread::sleep(due.saturating_sub(self.begin.elapsed()));
            let body = body(&Self::items(call));
            loop {
                let sent = Instant::now();
                let answer = try_send(self.address, "POST", HOOK, &[("Content-Type", "application/json")], &body);
                match answer.map(|answer| answer.status) {
                    Ok(202) => {
                        self.took.lock().unwrap().push(sent.elapsed());
                        break;
                    }
                    Ok(503) | Err(_) => std::thread::sleep(Duration::from_millis(20)),
                    Ok(status) => panic!("{status}"),
                }
                assert!(!self.is_over.load(Ordering::SeqCst), "nobody answers any more");
            }
            self.answered.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// With `MAILROOM_TEST_PUSH_SECONDS=60`, for as long.
#[test]
fn none_of_a_thousand_a_second_is_lost_when_the_server_is_killed_among_them() {
    let seconds = setting("MAILROOM_TEST_PUSH_SECONDS", 2) as usize;
    on_each_database(|place| {
        fill(place, MAILBOXES);
        let (address, mut random) = (somewhere(), random());
        let mut server = Some(serve(place, address, &[]));
        let calls = CALLS_PER_SECOND * seconds;
        let storm = Storm {
            address,
            begin: Instant::now(),
            next: AtomicUsize::new(0),
            calls,
            answered: AtomicUsize::new(0),
            took: Mutex::default(),
            is_over: AtomicBool::new(false),
        };
        let (early, late) = (calls as u64 / 4, calls as u64 / 2);
        let moment = (early + random.below(late)) as usize;
        std::thread::scope(|scope| {
            let callers: Vec<_> = (0..16).map(|_| scope.spawn(|| storm.rage())).collect();
            watch_until("some are answered", || {
                storm.answered.load(Ordering::SeqCst) >= moment
                    || callers.iter().any(std::thread::ScopedJoinHandle::is_finished)
            });
            server.take().unwrap().kill();
            assert!(storm.answered.load(Ordering::SeqCst) < calls, "it was killed in the middle");
            server = Some(serve(place, address, &[]));
            wait_until("all are answered", || callers.iter().all(std::thread::ScopedJoinHandle::is_finished));
            storm.is_over.store(true, Ordering::SeqCst);
        });
        let mut took = storm.took.into_inner().unwrap();
        assert_eq!(took.len(), calls);
        took.sort_unstable();
        let at = |part: f64| took[((took.len() - 1) as f64 * part) as usize];
        println!("{calls} calls with {ITEMS} items each: p50 {:?}, p99 {:?}, longest {:?}", at(0.5), at(0.99), at(1.0));

        assert_eq!(counted(place).1, calls * ITEMS, "each is known, and once");
        let told: BTreeSet<String> =
            (0..calls * ITEMS).map(|n| format!("018f0000-0000-7000-8000-{:012}", n * 7919 % MAILBOXES)).collect();
        let looked_at: BTreeSet<String> =
            place.select("select unique_key from jobs where kind = 'sync_mailbox'").into_iter().collect();
        assert_eq!(looked_at, told, "every mailbox of which something was told is looked at");
    });
}
