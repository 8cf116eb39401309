//! Mailboxes at a provider, as people connect them and look after them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use store::failpoint::VARIABLE;

use crate::mail;
use crate::place::{PROGRAM, Place, on_each_database};
use crate::processes::{Running, wait_until};
use crate::servers::{Postgres, closed_port};

/// A provider that ends with the test.
struct Sim {
    process: Child,
    address: String,
}

impl Sim {
    fn start(place: &Place, accounts: u32, emails: u32) -> Self {
        let (accounts, emails) = (accounts.to_string(), emails.to_string());
        let args = ["sim", "--listen", "127.0.0.1:0", "--accounts", &accounts, "--emails", &emails, "--json"];
        let mut process = place.command(PROGRAM, &args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap();
        Self { process, address: said["listening"].as_str().unwrap().to_owned() }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn control(&self, method: &str, path: &str, body: &str) -> Value {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        write!(
            stream,
            "{method} /control{path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 2"), "{answer}");
        serde_json::from_str(body).unwrap_or_default()
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn add(place: &Place, sim: &Sim, n: u32) -> Vec<String> {
    let token = place.write(&format!("token-{n}"), format!("token-{n}\n"));
    let address = format!("box{n}@scripted.example");
    [
        "mailbox",
        "add",
        "scripted",
        "--tenant",
        "acme",
        "--address",
        &address,
        "--url",
        &sim.url(),
        "--token-file",
        &token,
    ]
    .into_iter()
    .map(str::to_owned)
    .chain(["--backfill", "all", "--interval", "1s"].map(str::to_owned))
    .collect()
}

fn words(list: &[String]) -> Vec<&str> {
    list.iter().map(String::as_str).collect()
}

fn with<'a>(command: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["mailbox", command], &BOX[..], more].concat()
}

const BOX: [&str; 3] = ["box1@scripted.example", "--tenant", "acme"];

#[test]
fn what_is_used_of_a_provider_and_what_is_left_is_told() {
    on_each_database(|place| {
        place.ok(&["migrate"]);
        place.ok(&["tenant", "create", "acme"]);
        assert!(place.ok(&["tenant", "usage", "acme"]).text().contains("no mailboxes at a provider"));
        let sim = Sim::start(place, 1, 40);
        place.ok(&words(&add(place, &sim, 1)));
        let before = place.object(&["tenant", "usage", "acme"])["providers"][0].clone();
        assert_eq!((&before["calls"]["last_day"], &before["mailboxes"]), (&0.into(), &1.into()), "{before}");
        assert_eq!(before["backfill"]["unknown"], "older mail is still being listed");

        place.ok(&with("sync", &["--wait"]));

        let usage = place.object(&["tenant", "usage", "acme"])["providers"][0].clone();
        let number = |value: &Value| value.as_u64().unwrap();
        assert_eq!((&usage["provider"], &usage["backlog"]), (&"scripted".into(), &0.into()));
        assert!(usage["backfill"].is_null(), "all of it is here: {usage}");
        assert!(number(&usage["calls"]["last_day"]) > 2 && number(&usage["bytes"]["last_day"]) > 1000, "{usage}");
        let limit = &usage["calls"]["limits"][0];
        assert_eq!(
            (&limit["of"], &limit["per"], &limit["allowed"]),
            (&"all_tenants".into(), &"hour".into(), &36_000_000.into())
        );
        // Less where the hour is over soon.
        let unused = 36_000_000 - number(&usage["calls"]["this_hour"]);
        assert!((1..=unused).contains(&number(&limit["left"])), "{usage}");
        assert_eq!(usage["bytes"]["limits"], serde_json::json!([]), "nobody has set one");
        let shown = place.object(&with("show", &[]));
        assert!(number(&shown["usage"]["bytes"]["last_day"]) > 1000, "{shown}");
        assert!(place.ok(&with("show", &[])).text().contains("calls of all the tenant's mailboxes at scripted: "));
    });
}

#[test]
fn when_a_backfill_ends_is_told_while_it_is_under_way() {
    on_each_database(|place| {
        place.ok(&["migrate"]);
        place.ok(&["tenant", "create", "acme"]);
        let sim = Sim::start(place, 1, 3000);
        place.ok(&words(&add(place, &sim, 1)));
        let key = place.object(&["key", "create", "--tenant", "acme", "--name", "test", "--scopes", "read"]);
        let key = key["key"].as_str().unwrap();
        let shown = place.object(&with("show", &[]));
        let slow = [("MAILROOM_PROVIDERS__SCRIPTED__CALLS_PER_SECOND", "4")];
        let (_server, address) = crate::http::serve_with(place, &slow);
        let operator = std::fs::read_to_string(place.data_dir().join("admin.key")).unwrap().trim().to_owned();
        let get = |path: &str, key: &str| {
            crate::http::ask(address, "GET", path, &[("Authorization", &format!("Bearer {key}"))]).json()
        };
        let tenant = place.select("select cast(id as text) from tenants where name = 'acme'").remove(0);
        let usage = || get(&format!("/v1/tenants/{tenant}/usage"), &operator);
        let health = format!("/v1/mailboxes/{}/health", shown["mailbox"]["id"].as_str().unwrap());

        wait_until("it is known", || get(&health, key)["backfill"]["ends_at"].is_string());

        let of_provider = usage()["providers"][0].clone();
        assert!(of_provider["backfill"]["ends_at"].is_string(), "{of_provider}");
        assert!(of_provider["backlog"].as_u64().unwrap() > 0, "{of_provider}");
        assert_eq!(of_provider["calls"]["limits"][0]["allowed"], 4 * 3600);
        let told = place.ok(&["tenant", "usage", "acme"]).text();
        assert!(told.contains("ends about 2"), "{told}");
        wait_until("calls are counted", || usage()["providers"][0]["calls"]["this_hour"].as_u64() > Some(0));
    });
}

#[test]
fn a_server_that_dies_in_the_middle_of_looks_is_followed_and_no_mailbox_is_left_out() {
    on_each_database(|place| {
        place.ok(&["migrate"]);
        place.ok(&["tenant", "create", "acme"]);
        let sim = Sim::start(place, 3, 2);
        (1..=3).for_each(|n| drop(place.ok(&words(&add(place, &sim, n)))));
        let serve = |failpoints: &str| {
            let mut command: Command = place.command(PROGRAM, &["serve", "--roles", "worker,scheduler"]);
            let address = SocketAddr::from(([127, 0, 0, 1], closed_port()));
            command.env("MAILROOM_SERVER__LISTEN", address.to_string()).env(VARIABLE, failpoints);
            command.env("MAILROOM_SYNC__INTERVAL", "1s").env("MAILROOM_SYNC__SELDOM_INTERVAL", "1s");
            command.env("MAILROOM_JOBS__LEASE", "5s").env("MAILROOM_SYNC__LEASE", "5s");
            Running::spawn(command.stdout(Stdio::null()).stderr(Stdio::null()))
        };
        for moment in ["before", "after"] {
            let mut server = serve(&format!("{moment}:end_looks=crash"));
            wait_until("it dies", || server.has_ended());
            for n in 1..=3 {
                let path = format!("/accounts/box{n}@scripted.example/apply");
                sim.control("POST", &path, r#"{"op":"deliver","folder":"inbox"}"#);
            }

            let server = serve("");
            wait_until("all are equal to the provider's", || is_equal(place));
            server.terminate();
            assert_eq!(server.finish().code, Some(0));
        }
    });
}

#[test]
fn who_waits_for_a_mailbox_that_nobody_looks_at_any_more_is_told_why() {
    on_each_database(|place| {
        place.ok(&["migrate"]);
        place.ok(&["tenant", "create", "acme"]);
        let sim = Sim::start(place, 1, 3);
        place.ok(&words(&add(place, &sim, 1)));
        let off = ["acme is deactivated", "`mailroom tenant activate acme`"];
        let left = ["is not looked at any more", "leave out whose it is"];
        place.ok(&["jobs", "pause", "--kind", "sync_mailbox"]);
        let waiting = || Running::start(&mut place.command(PROGRAM, &with("sync", &["--wait"])));
        let is_waiting = || place.select("select name from job_workers where gone_at is null") == ["command"];

        let waits = waiting();
        wait_until("it waits", is_waiting);
        place.ok(&["tenant", "deactivate", "acme"]);
        waits.finish().assert_refused(1, &off);
        for more in [&["--wait"][..], &[]] {
            place.run(&with("sync", more)).assert_refused(1, &off);
        }

        place.ok(&["tenant", "activate", "acme"]);
        let waits = waiting();
        wait_until("it waits again", is_waiting);
        place.sql("update mailboxes set is_active = false");
        waits.finish().assert_refused(1, &left);
    });
}

#[test]
fn a_mailbox_is_connected_synced_compared_paused_and_removed() {
    on_each_database(|place| {
        place.ok(&["migrate"]);
        place.ok(&["tenant", "create", "acme"]);
        let sim = Sim::start(place, 1, 40);
        place.ok(&words(&add(place, &sim, 1)));

        // Nobody serves, so it does the work itself.
        place.ok(&with("sync", &["--wait"]));
        let compared = place.objects(&["verify", "--tenant", "acme"]);
        let compared = compared.iter().find(|line| line["mailbox"] == BOX[0]).unwrap();
        assert_eq!(compared["ok"], true, "{compared}");
        let processed = compared["compared"]["processed"].as_u64().unwrap();
        assert!(processed > 0);

        sim.control("POST", "/steps", r#"{"count":60}"#);
        assert_eq!(place.run(&["verify", "--tenant", "acme"]).code, Some(1), "what is new there is missing here");
        place.ok(&with("sync", &["--wait"]));
        place.ok(&["verify", "--tenant", "acme", "--deep"]);

        place.ok(&with("pause", &[]));
        place.run(&with("pause", &[])).assert_refused(1, &["is paused", "nothing was changed"]);
        place.run(&with("sync", &[])).assert_refused(1, &["is paused", "mailbox resume"]);
        place.ok(&with("resume", &[]));
        assert_eq!(place.object(&with("show", &[]))["mailbox"]["state"], "active");

        place.run(&with("remove", &[])).assert_refused(2, &["--yes"]);
        place.ok(&with("remove", &["--yes"]));
        assert!(!place.emails("acme").is_empty(), "its mail is kept");
        assert!(place.select("select id from secrets").is_empty(), "its secret is forgotten");
        place.ok(&with("remove", &["--yes", "--erase"]));
        assert!(place.emails("acme").is_empty());
    });
}

#[test]
fn what_cannot_be_connected_is_told_in_a_sentence_and_leaves_nothing() {
    let place = Place::sqlite();
    place.ok(&["tenant", "create", "acme"]);
    let sim = Sim::start(&place, 1, 0);
    let wrong = place.write("wrong", "not the token");
    let good = add(&place, &sim, 1);
    let with = |key: &str, value: &str| {
        let mut args = good.clone();
        let at = args.iter().position(|arg| arg == key).unwrap();
        args[at + 1] = value.to_owned();
        args
    };
    let nowhere = format!("http://127.0.0.1:{}", closed_port());
    let refused: [(Vec<String>, i32, &[&str]); 7] = [
        (with("--tenant", "nobody"), 1, &["there is no tenant \"nobody\"", "tenant list"]),
        (with("--address", "nothing"), 2, &["is not an address"]),
        (with("--token-file", &wrong), 1, &["refuses the credentials", "--no-check"]),
        (with("--token-file", "/does/not/exist"), 1, &["cannot read the secret"]),
        (with("--url", &nowhere), 1, &["cannot be reached", "--no-check"]),
        (with("--backfill", "soon"), 2, &["--backfill wants all, none or a duration"]),
        (with("--interval", "often"), 2, &["--interval wants a duration"]),
    ];
    for (args, code, says) in refused {
        place.run(&words(&args)).assert_refused(code, says);
    }
    assert!(place.objects(&["mailbox", "list"]).is_empty());
    assert!(place.select("select id from secrets").is_empty());

    place.ok(&words(&good));
    place.run(&words(&good)).assert_refused(1, &["has a mailbox box1@scripted.example already"]);
}

fn serve(place: &Place, address: SocketAddr) -> Running {
    let log = std::fs::File::create(place.path("serve.log")).unwrap();
    let mut command: Command = place.command(PROGRAM, &["serve"]);
    command.env("MAILROOM_SERVER__LISTEN", address.to_string()).env("RUST_BACKTRACE", "0");
    Running::spawn(command.stdout(Stdio::null()).stderr(log))
}

fn status(address: SocketAddr, path: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(30))).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split(' ').nth(1)?.parse().ok()
}

fn is_equal(place: &Place) -> bool {
    place.run(&["verify", "--tenant", "acme"]).code == Some(0)
}

#[test]
fn an_import_beside_a_server_that_syncs_meets_no_lock_and_costs_no_lease() {
    let place = Place::sqlite();
    place.ok(&["tenant", "create", "acme"]);
    let sim = Sim::start(&place, 3, 200);
    for n in 1..=3 {
        place.ok(&words(&add(&place, &sim, n)));
    }
    sim.control("PUT", "/rate", r#"{"per_second":30}"#);
    let server = serve(&place, SocketAddr::from(([127, 0, 0, 1], closed_port())));
    let files = place.write("beside.mbox", mail::mbox(5, 2000));
    let imported = place.object(&["import", &files, "--tenant", "acme", "--mailbox", "files@acme.test"]);
    assert_eq!(imported["failed"], 0);
    sim.control("PUT", "/rate", r#"{"per_second":0}"#);

    wait_until("the mailboxes are equal to the provider's", || is_equal(&place));
    server.terminate();
    assert_eq!(server.finish().code, Some(0));
    let log = std::fs::read_to_string(place.path("serve.log")).unwrap();
    assert!(!log.contains("lease is lost") && !log.contains("busy"), "{log}");
}

#[test]
fn while_the_database_is_away_the_server_is_not_ready_and_then_goes_on() {
    let database = Postgres::start();
    let place = Place::on_server(database.url());
    place.ok(&["tenant", "create", "acme"]);
    let sim = Sim::start(&place, 1, 60);
    place.ok(&words(&add(&place, &sim, 1)));
    let address = SocketAddr::from(([127, 0, 0, 1], closed_port()));
    let mut server = serve(&place, address);
    wait_until("it is ready", || status(address, "/readyz") == Some(200));
    sim.control("PUT", "/rate", r#"{"per_second":20}"#);

    database.halt();
    wait_until("it is not ready", || status(address, "/readyz") == Some(503));
    assert_eq!(status(address, "/healthz"), Some(200));
    database.resume();
    wait_until("it is ready again", || status(address, "/readyz") == Some(200));
    sim.control("PUT", "/rate", r#"{"per_second":0}"#);

    wait_until("the mailbox is equal to the provider's", || is_equal(&place));
    assert!(!server.has_ended());
    server.terminate();
    assert_eq!(server.finish().code, Some(0));
}

/// A server is stopped right before it records a page of what was there before, a message of that page is deleted from a
/// folder, another server takes over, and then the first one goes on as if nothing had happened. `then` looks at what came
/// of it.
fn record_late(guards: &str, then: impl Fn(&Place, &Running)) {
    let place = Place::postgres();
    place.ok(&["tenant", "create", "acme"]);
    let sim = Sim::start(&place, 1, 0);
    let made = sim.control("POST", "/accounts/box1@scripted.example/apply", r#"{"op":"deliver","folder":"inbox"}"#);
    let truth = sim.control("GET", "/accounts/box1@scripted.example/truth", "");
    let places = truth["folders"].as_object().unwrap().values().flat_map(|folder| folder["places"].as_array().unwrap());
    let place_of = places.into_iter().find(|place| place["message"] == made["messages"][0]);
    let uid = place_of.unwrap_or_else(|| panic!("{truth}"))["uid"].as_str().unwrap().to_owned();
    // It stays in another folder, so that nobody asks for it and finds it gone.
    let copy = format!(r#"{{"op":"copy","folder":"inbox","uid":"{uid}","to":"archive"}}"#);
    sim.control("POST", "/accounts/box1@scripted.example/apply", &copy);
    place.ok(&words(&add(&place, &sim, 1)));
    let trace = place.path("trace");
    let serve = |roles: &str, failpoints: &str| {
        let mut command: Command = place.command(PROGRAM, &["serve", "--roles", roles]);
        let address = SocketAddr::from(([127, 0, 0, 1], closed_port()));
        command.env("MAILROOM_SERVER__LISTEN", address.to_string()).env("RUST_BACKTRACE", "0");
        // Short, but long enough that none is lost on a busy machine before the commit that is meant.
        command.env("MAILROOM_SYNC__LEASE", "5s").env("MAILROOM_JOBS__LEASE", "5s").env(VARIABLE, failpoints);
        Running::spawn(command.stdout(Stdio::null()).stderr(Stdio::null()))
    };
    let late = serve("worker", &format!("before:commit_job=stop@each off=own_stop trace={} {guards}", trace.display()));
    let records_history =
        || !place.select("select kind from jobs where kind = 'list_history' and state = 'running'").is_empty();
    wait_until("it is about to record the history", || {
        late.is_stopped()
            && (records_history() || {
                late.resume();
                false
            })
    });
    let delete = format!(r#"{{"op":"delete","folder":"inbox","uid":"{uid}"}}"#);
    sim.control("POST", "/accounts/box1@scripted.example/apply", &delete);
    let _other = serve("worker,scheduler", "");
    let is_listed = || place.select("select status from sync_states where is_history_done").len() == 1;
    wait_until("another has listed it", || is_listed() && is_equal(&place));

    let commits = || std::fs::read_to_string(&trace).unwrap_or_default().matches("after:commit_job").count();
    let before = commits();
    wait_until("it has tried to record", || {
        late.resume();
        commits() > before
    });
    then(&place, &late);
}

#[test]
fn a_server_that_slept_over_its_lease_records_nothing() {
    record_late("", |place, _| assert!(is_equal(place)));
}

#[test]
fn without_the_fence_a_server_that_slept_brings_back_what_was_deleted() {
    // Its first try may meet a connection that the server closed meanwhile.
    record_late("off=sync_token off=job_token", |place, late| {
        wait_until("what was deleted is back", || {
            late.resume();
            !is_equal(place)
        });
    });
}
