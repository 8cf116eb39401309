//! Notifications of Microsoft Graph to a server that dies among them or is not set up for them.

use std::collections::BTreeSet;
use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use domain::{Secret, Sha256};
use engine::Vault;
use engine::credentials::secrets::KeySource;
use engine::sync::push::ClientStates;
use serde_json::{Value, json};
use store::failpoint::{Effect, VARIABLE};

use crate::crash::{random, setting};
use crate::http::{Answer, send, try_send};
use crate::installation::{PROGRAM, TestInstallation, block_on, on_each_database};
use crate::processes::{RunningProcess, wait_until, watch_until};
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
    let place = TestInstallation::sqlite();
    place.ok(&["tenant", "create", "acme"]);
    block_on(async {
        let store = crate::jobs::store(&place);
        let vault = Vault::new(store, KeySource::Given(Secret::new(MASTER_KEY.to_owned())));
        let passwords = ClientStates::new(vault);
        let mut made = Vec::new();
        for _ in 0..MAILBOXES {
            made.push(passwords.create().await.unwrap().expose().clone());
        }
        made
    })
});

fn password_of(n: usize) -> &'static str {
    &PASSWORDS[n]
}

/// Mailboxes that are at work and subscribed to; nobody works on their jobs.
fn fill(place: &TestInstallation, mailboxes: usize) {
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
fn serve(place: &TestInstallation, address: SocketAddr, settings: &[(&str, &str)]) -> RunningProcess {
    let mut command = place.command(PROGRAM, &["serve", "--roles", "web"]);
    command.env("MAILROOM_SERVER__LISTEN", address.to_string()).envs(SET_UP).envs(settings.iter().copied());
    let log = File::options().create(true).append(true).open(place.path("log")).unwrap();
    let server = RunningProcess::spawn(command.stdout(Stdio::null()).stderr(log));
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

fn body(items: &[Value]) -> Vec<u8> {
    json!({"value": items}).to_string().into_bytes()
}

fn deliver(address: SocketAddr, path: &str, body: &[u8]) -> Answer {
    send(address, "POST", path, &[("Content-Type", "application/json")], body)
}

fn counted(place: &TestInstallation) -> (usize, usize) {
    let jobs = place.select("select kind from jobs where kind = 'sync_mailbox'").len();
    (jobs, place.select("select message_id from push_messages").len())
}

#[test]
fn graph_pushes_are_off_without_an_https_url() {
    let place = TestInstallation::sqlite();
    fill(&place, 1);
    let address = somewhere();
    // Graph calls nobody without encryption, so it was never told to.
    let off = [("MAILROOM_PROVIDERS__MICROSOFT__NOTIFICATION_URL", "http://127.0.0.1:8080/v1/hooks/graph")];
    let _server = serve(&place, address, &off);

    for hook in [HOOK, LIFECYCLE] {
        deliver(address, hook, &body(&[item("1", 0)])).assert_problem(404, "not configured");
        deliver(address, &format!("{hook}?validationToken=x"), b"").assert_problem(404, "not configured");
    }
    assert_eq!(counted(&place), (0, 0));
    let log = std::fs::read_to_string(place.path("log")).unwrap();
    assert!(log.contains("Graph sends notifications to https:// URLs only"), "{log}");
}

#[test]
fn dying_process_records_all_notifications_or_none() {
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
struct NotificationStorm {
    address: SocketAddr,
    begin: Instant,
    next: AtomicUsize,
    calls: usize,
    answered: AtomicUsize,
    took: Mutex<Vec<Duration>>,
    is_over: AtomicBool,
}

impl NotificationStorm {
    fn items(call: usize) -> Vec<Value> {
        (0..ITEMS).map(|n| item(&format!("{call}-{n}"), (call * ITEMS + n) * 7919 % MAILBOXES)).collect()
    }

    fn inject_faults(&self) {
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
fn killed_server_loses_no_notification_of_a_storm() {
    let seconds = setting("MAILROOM_TEST_PUSH_SECONDS", 2) as usize;
    on_each_database(|place| {
        fill(place, MAILBOXES);
        let (address, mut random) = (somewhere(), random());
        let mut server = Some(serve(place, address, &[]));
        let calls = CALLS_PER_SECOND * seconds;
        let storm = NotificationStorm {
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
            let callers: Vec<_> = (0..16).map(|_| scope.spawn(|| storm.inject_faults())).collect();
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
