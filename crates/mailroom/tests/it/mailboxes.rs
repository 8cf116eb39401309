//! Mailboxes at a provider, as people connect them and look after them: at the Gmail and the IMAP server of `mailroom sim`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use store::failpoint::VARIABLE;

use crate::installation::{PROGRAM, TestInstallation, on_each_database};
use crate::mail;
use crate::processes::{RunningProcess, wait_until};
use crate::servers::{Postgres, closed_port};
use crate::sim::SimProcess;

/// The address of the n-th account at Gmail.
fn gmail_address(n: u32) -> String {
    format!("user{n}@sim.example")
}

/// Starts the providers with these accounts, and sets where Google is.
fn start_sim(mailroom: &TestInstallation, accounts: u32, emails: u32) -> SimProcess {
    let sim = SimProcess::start(mailroom, &["--accounts", &accounts.to_string(), "--emails", &emails.to_string()]);
    let google = sim.settings["google"].as_object().unwrap();
    let lines = google.iter().map(|(name, value)| format!("{name} = {value}\n")).collect::<String>();
    // The simulated Google counts no units.
    mailroom.write("mailroom.toml", format!("[providers.google]\nuser_units_per_minute = 0\n{lines}"));
    sim
}

/// The arguments of `mailroom` that add the n-th account at Gmail.
fn add_gmail(mailroom: &TestInstallation, sim: &SimProcess, n: u32) -> Vec<String> {
    let granted = sim.control("POST", &format!("/google/accounts/{}/grant", gmail_address(n)), "{}");
    let token = mailroom.write(&format!("token-{n}"), granted["refresh_token"].as_str().unwrap());
    let address = gmail_address(n);
    let args = ["mailbox", "add", "gmail", "--tenant", "acme", "--address", &address, "--refresh-token-file", &token];
    let args = [&args[..], &["--backfill", "all", "--interval", "1s"]].concat();
    args.into_iter().map(str::to_owned).collect()
}

fn words(list: &[String]) -> Vec<&str> {
    list.iter().map(String::as_str).collect()
}

/// The arguments of a command about the first mailbox.
fn with<'a>(command: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["mailbox", command], &FIRST_MAILBOX[..], more].concat()
}

const FIRST_MAILBOX: [&str; 3] = ["user1@sim.example", "--tenant", "acme"];

/// Delivers a message to the n-th account at Gmail.
fn deliver(sim: &SimProcess, n: u32) {
    sim.control("POST", &format!("/google/accounts/{}/apply", gmail_address(n)), r#"{"op":"deliver"}"#);
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

#[test]
fn usage_shows_what_is_used_and_left() {
    on_each_database(|mailroom| {
        mailroom.ok(&["migrate"]);
        mailroom.ok(&["tenant", "create", "acme"]);
        assert!(mailroom.ok(&["tenant", "usage", "acme"]).text().contains("no mailboxes at a provider"));
        let sim = start_sim(mailroom, 1, 40);
        mailroom.ok(&words(&add_gmail(mailroom, &sim, 1)));
        let before = mailroom.object(&["tenant", "usage", "acme"])["providers"][0].clone();
        assert_eq!((&before["calls"]["last_day"], &before["mailboxes"]), (&0.into(), &1.into()), "{before}");
        assert_eq!(before["backfill"]["unknown"], "older mail is still being listed");

        mailroom.ok(&with("sync", &["--wait"]));

        let usage = mailroom.object(&["tenant", "usage", "acme"])["providers"][0].clone();
        assert_eq!((&usage["provider"], &usage["backlog"]), (&"gmail".into(), &0.into()));
        assert!(usage["backfill"].is_null(), "all of it is here: {usage}");
        assert!(number(&usage["calls"]["last_day"]) > 2 && number(&usage["bytes"]["last_day"]) > 1000, "{usage}");
        let limit = &usage["calls"]["limits"][0];
        assert_eq!(
            (&limit["of"], &limit["per"], &limit["allowed"]),
            (&"all_tenants".into(), &"hour".into(), &540_000.into())
        );
        // Less where the hour is over soon.
        let unused = 540_000 - number(&usage["calls"]["this_hour"]);
        assert!((1..=unused).contains(&number(&limit["left"])), "{usage}");
        assert_eq!(usage["bytes"]["limits"], serde_json::json!([]), "nobody has set one");
        let shown = mailroom.object(&with("show", &[]));
        assert!(number(&shown["usage"]["bytes"]["last_day"]) > 1000, "{shown}");
        assert!(mailroom.ok(&with("show", &[])).text().contains("calls of all the tenant's mailboxes at gmail: "));
    });
}

#[test]
fn death_during_polls_leaves_no_mailbox_out() {
    on_each_database(|mailroom| {
        mailroom.ok(&["migrate"]);
        mailroom.ok(&["tenant", "create", "acme"]);
        let sim = start_sim(mailroom, 3, 2);
        (1..=3).for_each(|n| drop(mailroom.ok(&words(&add_gmail(mailroom, &sim, n)))));
        for moment in ["before", "after"] {
            let mut server = start_worker(mailroom, "worker,scheduler", &format!("{moment}:end_looks=crash"));
            wait_until("it dies", || server.has_ended());
            (1..=3).for_each(|n| deliver(&sim, n));

            let server = start_worker(mailroom, "worker,scheduler", "");
            wait_until("all are equal to the provider's", || is_equal(mailroom));
            server.terminate();
            assert_eq!(server.finish().code, Some(0));
        }
    });
}

/// Starts `mailbox sync --wait`, and waits until it waits.
fn wait_for_sync(mailroom: &TestInstallation) -> RunningProcess {
    let running = RunningProcess::start(&mut mailroom.command(PROGRAM, &with("sync", &["--wait"])));
    wait_until("the command waits", || {
        mailroom.select("select name from job_workers where gone_at is null") == ["command"]
    });
    running
}

#[test]
fn waiting_sync_ends_when_its_mailbox_is_switched_off() {
    on_each_database(|mailroom| {
        mailroom.ok(&["migrate"]);
        mailroom.ok(&["tenant", "create", "acme"]);
        let sim = start_sim(mailroom, 1, 3);
        mailroom.ok(&words(&add_gmail(mailroom, &sim, 1)));
        let off = ["acme is deactivated", "`mailroom tenant activate acme`"];
        let left = ["is not synced any more", "exclude its owner"];
        mailroom.ok(&["jobs", "pause", "--kind", "sync_mailbox"]);

        let waits = wait_for_sync(mailroom);
        mailroom.ok(&["tenant", "deactivate", "acme"]);
        waits.finish().assert_refused(1, &off);
        for more in [&["--wait"][..], &[]] {
            mailroom.run(&with("sync", more)).assert_refused(1, &off);
        }

        mailroom.ok(&["tenant", "activate", "acme"]);
        let waits = wait_for_sync(mailroom);
        mailroom.sql("update mailboxes set is_active = false");
        waits.finish().assert_refused(1, &left);
    });
}

#[test]
fn mailbox_is_connected_synced_paused_and_removed() {
    on_each_database(|mailroom| {
        mailroom.ok(&["migrate"]);
        mailroom.ok(&["tenant", "create", "acme"]);
        let sim = start_sim(mailroom, 1, 40);
        mailroom.ok(&words(&add_gmail(mailroom, &sim, 1)));

        // No server runs, so the command does the work itself.
        mailroom.ok(&with("sync", &["--wait"]));
        let compared = mailroom.objects(&["verify", "--tenant", "acme"]);
        let compared = compared.iter().find(|line| line["mailbox"] == FIRST_MAILBOX[0]).unwrap();
        assert_eq!(compared["ok"], true, "{compared}");
        let processed = compared["compared"]["processed"].as_u64().unwrap();
        assert!(processed > 0);

        sim.control("POST", "/google/steps", r#"{"count":60}"#);
        assert_eq!(mailroom.run(&["verify", "--tenant", "acme"]).code, Some(1), "what is new there is missing here");
        mailroom.ok(&with("sync", &["--wait"]));
        mailroom.ok(&["verify", "--tenant", "acme", "--deep"]);

        mailroom.ok(&with("pause", &[]));
        mailroom.run(&with("pause", &[])).assert_refused(1, &["is paused", "nothing was changed"]);
        mailroom.run(&with("sync", &[])).assert_refused(1, &["is paused", "mailbox resume"]);
        mailroom.ok(&with("resume", &[]));
        // Whether its credentials are still good shows with the next sync.
        mailroom.ok(&with("sync", &["--wait"]));
        assert_eq!(mailroom.object(&with("show", &[]))["mailbox"]["state"], "active");

        mailroom.run(&with("remove", &[])).assert_refused(2, &["--yes"]);
        mailroom.ok(&with("remove", &["--yes"]));
        assert!(!mailroom.emails("acme").is_empty(), "its mail is kept");
        // Its secret is needed to end the watch and to revoke the consent, and then forgotten.
        // The resume has also requested what had failed; no sync waits for that job.
        let others = "select kind from jobs where state <> 'scheduled' and kind <> 'fetch_failed'";
        assert_eq!(mailroom.select(others), ["stop_watch"]);
        let server = start_worker(mailroom, "worker", "");
        wait_until("its secret is forgotten", || mailroom.select("select cast(id as text) from secrets").is_empty());
        server.terminate();
        assert_eq!(server.finish().code, Some(0));
        mailroom.ok(&with("remove", &["--yes", "--erase"]));
        assert!(mailroom.emails("acme").is_empty());
    });
}

#[test]
fn mailbox_that_cannot_be_connected_leaves_nothing() {
    let mailroom = TestInstallation::sqlite();
    mailroom.ok(&["tenant", "create", "acme"]);
    let sim = start_sim(&mailroom, 1, 0);
    let wrong = mailroom.write("wrong", "not the token");
    let good = add_gmail(&mailroom, &sim, 1);
    let nowhere = format!("http://127.0.0.1:{}", closed_port());
    let unreachable = ("MAILROOM_PROVIDERS__GOOGLE__API_URL", nowhere.as_str());
    #[expect(clippy::type_complexity, reason = "a table of cases")]
    let refused: [(&[(&str, &str)], &str, &str, i32, &[&str]); 7] = [
        (&[], "--tenant", "nobody", 1, &["there is no tenant \"nobody\"", "tenant list"]),
        (&[], "--address", "nothing", 2, &["must be an email address"]),
        (&[], "--refresh-token-file", &wrong, 1, &["--no-check"]),
        (&[], "--refresh-token-file", "/does/not/exist", 1, &["cannot read the secret"]),
        (&[unreachable], "--tenant", "acme", 1, &["connecting failed", "--no-check"]),
        (&[], "--backfill", "soon", 2, &["--backfill must be all, none or a duration"]),
        (&[], "--interval", "often", 2, &["--interval must be a duration"]),
    ];
    for (variables, option, value, code, says) in refused {
        let mut args = words(&good);
        let at = args.iter().position(|arg| *arg == option).unwrap();
        args[at + 1] = value;
        mailroom.run_with(variables, &args).assert_refused(code, says);
    }
    assert!(mailroom.objects(&["mailbox", "list"]).is_empty());
    assert!(mailroom.select("select cast(id as text) from secrets").is_empty());

    mailroom.ok(&words(&good));
    mailroom.run(&words(&good)).assert_refused(1, &["already has a mailbox user1@sim.example"]);
}

fn serve(mailroom: &TestInstallation, address: SocketAddr) -> RunningProcess {
    let log = std::fs::File::create(mailroom.path("serve.log")).unwrap();
    let mut command: Command = mailroom.command(PROGRAM, &["serve"]);
    command.env("MAILROOM_SERVER__LISTEN", address.to_string()).env("RUST_BACKTRACE", "0");
    RunningProcess::spawn(command.stdout(Stdio::null()).stderr(log))
}

fn status(address: SocketAddr, path: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(30))).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split(' ').nth(1)?.parse().ok()
}

fn is_equal(mailroom: &TestInstallation) -> bool {
    mailroom.run(&["verify", "--tenant", "acme"]).code == Some(0)
}

#[test]
fn import_beside_a_syncing_server_costs_no_lease() {
    let mailroom = TestInstallation::sqlite();
    mailroom.ok(&["tenant", "create", "acme"]);
    let sim = start_sim(&mailroom, 3, 200);
    for n in 1..=3 {
        mailroom.ok(&words(&add_gmail(&mailroom, &sim, n)));
    }
    sim.control("PUT", "/google/rate", r#"{"per_second":30}"#);
    let server = serve(&mailroom, SocketAddr::from(([127, 0, 0, 1], closed_port())));
    let files = mailroom.write("beside.mbox", mail::mbox(5, 2000));
    let imported = mailroom.object(&["import", &files, "--tenant", "acme", "--mailbox", "files@acme.test"]);
    assert_eq!(imported["failed"], 0);
    sim.control("PUT", "/google/rate", r#"{"per_second":0}"#);

    wait_until("the mailboxes are equal to the provider's", || is_equal(&mailroom));
    server.terminate();
    assert_eq!(server.finish().code, Some(0));
    let log = std::fs::read_to_string(mailroom.path("serve.log")).unwrap();
    assert!(!log.contains("lease is lost") && !log.contains("busy"), "{log}");
}

#[test]
fn server_is_not_ready_while_its_database_is_away() {
    let database = Postgres::start();
    let mailroom = TestInstallation::on_server(database.url());
    mailroom.ok(&["tenant", "create", "acme"]);
    let sim = start_sim(&mailroom, 1, 60);
    mailroom.ok(&words(&add_gmail(&mailroom, &sim, 1)));
    let address = SocketAddr::from(([127, 0, 0, 1], closed_port()));
    let mut server = serve(&mailroom, address);
    wait_until("it is ready", || status(address, "/readyz") == Some(200));
    sim.control("PUT", "/google/rate", r#"{"per_second":20}"#);

    database.halt();
    wait_until("it is not ready", || status(address, "/readyz") == Some(503));
    assert_eq!(status(address, "/healthz"), Some(200));
    database.resume();
    wait_until("it is ready again", || status(address, "/readyz") == Some(200));
    sim.control("PUT", "/google/rate", r#"{"per_second":0}"#);

    wait_until("the mailbox is equal to the provider's", || is_equal(&mailroom));
    assert!(!server.has_ended());
    server.terminate();
    assert_eq!(server.finish().code, Some(0));
}

/// Starts a worker with short leases and intervals.
fn start_worker(mailroom: &TestInstallation, roles: &str, failpoints: &str) -> RunningProcess {
    let mut command: Command = mailroom.command(PROGRAM, &["serve", "--roles", roles]);
    let address = SocketAddr::from(([127, 0, 0, 1], closed_port()));
    command.env("MAILROOM_SERVER__LISTEN", address.to_string()).env("RUST_BACKTRACE", "0");
    // Short, but long enough that none is lost on a busy machine before the commit that is meant.
    command.env("MAILROOM_SYNC__LEASE", "5s").env("MAILROOM_JOBS__LEASE", "5s").env(VARIABLE, failpoints);
    command.env("MAILROOM_SYNC__INTERVAL", "1s").env("MAILROOM_SYNC__SELDOM_INTERVAL", "1s");
    RunningProcess::spawn(command.stdout(Stdio::null()).stderr(Stdio::null()))
}

/// Connects a mailbox at the IMAP server with one message, which is in two folders, and returns its uid in the inbox.
fn connect_imap(mailroom: &TestInstallation, sim: &SimProcess) -> u64 {
    let apply = "/imap/accounts/user1@imap.example/apply";
    let uid = number(&sim.control("POST", apply, r#"{"op":"deliver"}"#)["uids"][0]);
    let copy = format!(r#"{{"op":"copy","folder":"INBOX","uid":{uid},"to":"Archive"}}"#);
    sim.control("POST", apply, &copy);
    let password = mailroom.write("password", "sim-password");
    let (host, port) = sim.settings["imap"].as_str().unwrap().split_once(':').unwrap();
    let args = ["mailbox", "add", "imap", "--tenant", "acme", "--address", "user1@imap.example", "--host", host];
    let args = [&args[..], &["--port", port, "--tls", "none", "--password-file", &password]].concat();
    mailroom.ok(&[&args[..], &["--backfill", "all", "--interval", "1s"]].concat());
    uid
}

/// Stops a server right before it records a page of the history, deletes a message of that page from a folder, lets another
/// server take over, and then lets the first one go on as if nothing had happened. `check` looks at what is stored then.
fn record_late(guards: &str, check: impl Fn(&TestInstallation, &RunningProcess)) {
    let mailroom = TestInstallation::postgres();
    mailroom.ok(&["tenant", "create", "acme"]);
    let sim = start_sim(&mailroom, 1, 0);
    let uid = connect_imap(&mailroom, &sim);
    let trace = mailroom.path("trace");
    let failpoints = format!("before:commit_job=stop@each off=own_stop trace={} {guards}", trace.display());
    let late = start_worker(&mailroom, "worker", &failpoints);
    wait_until("it is about to record the history", || {
        let running = "select kind from jobs where kind = 'list_history' and state = 'running'";
        let is_there = late.is_stopped() && !mailroom.select(running).is_empty();
        if late.is_stopped() && !is_there {
            late.resume();
        }
        is_there
    });
    let delete = format!(r#"{{"op":"expunge","folder":"INBOX","uid":{uid}}}"#);
    sim.control("POST", "/imap/accounts/user1@imap.example/apply", &delete);
    let _other = start_worker(&mailroom, "worker,scheduler", "");
    wait_until("another has listed it", || {
        mailroom.select("select status from sync_states where is_history_done").len() == 1 && is_equal(&mailroom)
    });
    // A fetch would find out that the message is gone, and the next sync would repair what the late page does, perhaps
    // before anybody has looked.
    for kind in ["fetch_emails", "sync_mailbox", "list_mailbox"] {
        mailroom.ok(&["jobs", "pause", "--kind", kind]);
    }

    let before = commits(&trace);
    wait_until("it has tried to record", || {
        late.resume();
        commits(&trace) > before
    });
    check(&mailroom, &late);
}

fn commits(trace: &Path) -> usize {
    std::fs::read_to_string(trace).unwrap_or_default().matches("after:commit_job").count()
}

#[test]
fn server_that_slept_over_its_lease_records_nothing() {
    record_late("", |mailroom, _| assert!(is_equal(mailroom)));
}

#[test]
fn without_the_fence_a_late_page_restores_deleted_mail() {
    // Its first try may meet a connection that the server closed meanwhile.
    record_late("off=sync_token off=job_token", |mailroom, late| {
        wait_until("what was deleted is back", || {
            late.resume();
            !is_equal(mailroom)
        });
    });
}
