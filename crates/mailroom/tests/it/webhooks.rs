//! Tenants are told of events by the program as it is run, also when it dies at any moment.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use content::spool::Spool;
use domain::{EventType, MessageLimits, SystemClock, TenantId, WebhookId};
use engine::credentials::secrets::KeySource;
use engine::delivery::webhooks::{WebhookRequest, draft};
use engine::{Cpu, Engine, StorageHealth, Vault};
use outbound::http::AddressPolicy;
use serde_json::{Value, json};
use store::blobs::Blobs;
use store::failpoint::{Effect, VARIABLE};
use store::sql::webhooks::WebhookLease;
use store::{Location, Store};

use crate::installation::{PROGRAM, TestInstallation, block_on, on_each_database};
use crate::processes::{RunningProcess, wait_until};

/// Somebody's server, that is content with everything, but perhaps for the first.
struct Receiver {
    address: SocketAddr,
    is_down: Arc<AtomicBool>,
    /// The id of each request, and the number of the event that it tells of.
    requests: Arc<Mutex<Vec<(String, u64)>>>,
}

impl Receiver {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests: Arc<Mutex<Vec<(String, u64)>>> = Arc::default();
        let is_down = Arc::<AtomicBool>::default();
        let (shared, down) = (requests.clone(), is_down.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (shared, down) = (shared.clone(), down.clone());
                std::thread::spawn(move || while answer(stream.as_ref().unwrap(), &shared, &down).is_some() {});
            }
        });
        Self { address, is_down, requests }
    }

    fn of(&self, seq: u64) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        requests.iter().filter(|request| request.1 == seq).map(|request| request.0.clone()).collect()
    }
}

fn answer(mut stream: &TcpStream, requests: &Mutex<Vec<(String, u64)>>, is_down: &AtomicBool) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let (mut id, mut length, mut line) = (String::new(), 0, String::new());
    loop {
        line.clear();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end().split_once(": ") {
            Some(("webhook-id", value)) => value.clone_into(&mut id),
            Some(("content-length", value)) => length = value.parse().unwrap(),
            Some(_) => {}
            None if line.trim_end().is_empty() => break,
            None => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let body: Value = serde_json::from_slice(&body).unwrap();
    requests.lock().unwrap().push((id, body["data"]["seq"].as_u64().unwrap()));
    let status = if is_down.swap(false, Ordering::SeqCst) { 500 } else { 200 };
    stream.write_all(format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n").as_bytes()).ok()
}

/// The same database and key, without the program.
fn engine(place: &TestInstallation) -> Engine {
    let location = match place.url() {
        None => Location::Sqlite { path: place.data_dir().join("mailroom.db"), connections: 2 },
        Some(url) => Location::Postgres { url: url.to_owned(), connections: 2 },
    };
    let store = Store::open(&location, Arc::new(SystemClock)).unwrap();
    Engine {
        vault: Vault::new(store.clone(), KeySource::File(place.data_dir().join("master.key"))),
        store,
        blobs: Blobs::local(&place.data_dir().join("blobs")).unwrap(),
        limits: MessageLimits::default(),
        spool: Spool::new(&place.data_dir().join("spool")),
        cpu: Cpu::all_cores(),
        storage: StorageHealth::default(),
        max_database_wait: std::time::Duration::ZERO,
    }
}

fn add(place: &TestInstallation, tenant: TenantId, receiver: &Receiver) -> WebhookId {
    block_on(async {
        let engine = engine(place);
        let wanted = WebhookRequest { url: format!("http://{}/", receiver.address), ..WebhookRequest::default() };
        let policy = AddressPolicy::new(["127.0.0.0/8".parse().unwrap()]);
        let drafted = draft(&engine, &policy, tenant, wanted, engine.store.clock().now()).await.unwrap();
        let mut unit = engine.store.tenant(tenant).write();
        drafted.add_to(&mut unit);
        unit.commit().await.unwrap();
        drafted.webhook.id
    })
}

fn emit_events(place: &TestInstallation, tenant: TenantId) {
    block_on(async {
        let mut unit = engine(place).store.tenant(tenant).write();
        unit.emit_event(EventType::EmailReceived, None, json!({}));
        unit.commit().await.unwrap();
    });
}

/// As if the time was over for which somebody who is dead held it.
fn release(place: &TestInstallation, tenant: TenantId, id: WebhookId) {
    let token = place.select("select cast(token as text) from webhooks")[0].parse().unwrap();
    let held = WebhookLease { tenant, id, token };
    block_on(async { engine(place).store.system().release_webhooks(&[held]).await.unwrap() });
}

fn serve(place: &TestInstallation, failpoints: &str) -> RunningProcess {
    serve_keeping(place, "30d", failpoints)
}

fn serve_keeping(place: &TestInstallation, keep: &str, failpoints: &str) -> RunningProcess {
    let mut command = place.command(PROGRAM, &["serve"]);
    command.env("MAILROOM_SERVER__LISTEN", "127.0.0.1:0").env("MAILROOM_JOBS__LEASE", "1s").env("RUST_BACKTRACE", "0");
    command.env("MAILROOM_WEBHOOKS__ALLOW_NETWORKS", "127.0.0.1/32").env("MAILROOM_WEBHOOKS__KEEP_DELIVERIES", keep);
    RunningProcess::spawn(command.env(VARIABLE, failpoints).stdout(Stdio::null()).stderr(Stdio::null()))
}

#[test]
fn next_server_delivers_what_a_dying_one_left() {
    on_each_database(|place| {
        place.ok(&["tenant", "create", "acme"]);
        let tenant: TenantId = place.tenants()[0]["id"].as_str().unwrap().parse().unwrap();
        let receiver = Receiver::new();
        let webhook = add(place, tenant, &receiver);
        let mut seq = 0;
        for effect in [Effect::ClaimWebhooks, Effect::RecordDeliveries] {
            for moment in ["before", "after"] {
                let failpoint = format!("{moment}:{}=crash", effect.name());
                emit_events(place, tenant);
                seq += 1;
                let mut dying = serve(place, &failpoint);
                wait_until("it dies", || dying.has_ended());
                release(place, tenant, webhook);
                let following = serve(place, "");
                let cursor = || place.select("select cast(cursor as text) from webhooks")[0].clone();
                wait_until("all is delivered", || cursor() == seq.to_string());
                following.kill();

                let ids = receiver.of(seq);
                let times = if failpoint == "before:record_deliveries=crash" { 2 } else { 1 };
                assert_eq!(ids.len(), times, "{failpoint}");
                assert!(ids.iter().all(|id| *id == ids[0]), "{failpoint}: {ids:?}");
            }
        }
        assert_eq!(place.select("select state from webhook_deliveries where state = 'delivered'").len(), 4);
        for moment in ["before", "after"] {
            let failpoint = format!("{moment}:{}=crash", Effect::PruneDeliveries.name());
            let mut dying = serve_keeping(place, "1s", &failpoint);
            let is_known = || !place.select("select name from job_schedules where name = 'prune_webhooks'").is_empty();
            wait_until("the schedule is there", is_known);
            // The second time it is the job of the first that comes back.
            if moment == "before" {
                place.ok(&["recurring", "run", "prune_webhooks"]);
            }
            wait_until("it dies", || dying.has_ended());
        }
        let following = serve_keeping(place, "1s", "");
        let is_done = || place.select("select kind from jobs where kind = 'prune_webhooks'").is_empty();
        wait_until("the log has its end", || {
            place.select("select type from webhook_deliveries").is_empty() && is_done()
        });
        following.kill();
    });
}

/// A server is refused something, and is stopped right before it records that. Another tells it again, and succeeds; then the
/// first goes on as if nothing had happened.
fn record_late<T>(guards: &str, then: impl Fn(&TestInstallation, &Receiver) -> T) -> T {
    let place = TestInstallation::postgres();
    place.ok(&["tenant", "create", "acme"]);
    let tenant: TenantId = place.tenants()[0]["id"].as_str().unwrap().parse().unwrap();
    let receiver = Receiver::new();
    let webhook = add(&place, tenant, &receiver);
    receiver.is_down.store(true, Ordering::SeqCst);
    emit_events(&place, tenant);
    let trace = place.path("trace");
    let late = serve(&place, &format!("before:record_deliveries=stop trace={} {guards}", trace.display()));
    wait_until("it is about to record", || late.is_stopped());
    release(&place, tenant, webhook);
    let _other = serve(&place, "");
    let is_delivered = || place.select("select state from webhook_deliveries") == ["delivered"];
    wait_until("another has told it", is_delivered);

    late.resume();
    let has_recorded = || std::fs::read_to_string(&trace).unwrap_or_default().contains("after:record_deliveries");
    wait_until("it has tried to record", has_recorded);
    then(&place, &receiver)
}

/// How often a late server is tried until it writes.
const LATE_TRIES: usize = 10;

#[test]
fn late_server_records_no_deliveries() {
    record_late("", |place, receiver| {
        assert_eq!(place.select("select state from webhook_deliveries"), ["delivered"]);
        assert_eq!(receiver.of(1).len(), 2);
    });
}

/// Returns whether a late server has undone a delivery. PostgreSQL may have closed its connection while it stood still:
/// then it wrote nothing.
fn undoes_delivery_without_token() -> bool {
    record_late("off=webhook_token", |place, receiver| {
        place.select("select state from webhook_deliveries") != ["delivered"] || receiver.of(1).len() >= 3
    })
}

#[test]
fn without_the_token_a_late_server_undoes_deliveries() {
    assert!((0..LATE_TRIES).any(|_| undoes_delivery_without_token()));
}
