//! `jobs`, `recurring` and `dead-letters`, as people and scripts use them.

use std::sync::Arc;
use std::time::Duration;

use domain::{JobId, Lane, SystemClock, TenantId, WorkerId};
use serde_json::{Value, json};
use store::sql::jobs::{AfterFailure, AttemptFailure, AttemptOutcome, ClaimShare, ClaimedJob};
use store::sql::schedules::{MissedPolicy, NewSchedule, OverlapPolicy};
use store::{Location, Store, scratch};

use crate::installation::{PROGRAM, TestInstallation, block_on, on_each_database};
use crate::mail::names;
use crate::processes::{RunningProcess, wait_until};

/// Opens the same database, to do what a worker does.
pub fn store(mailroom: &TestInstallation) -> Store {
    let location = match mailroom.url() {
        Some(url) => scratch::location(url.to_owned()),
        None => Location::Sqlite { path: mailroom.data_dir().join("mailroom.db"), connections: 2 },
    };
    Store::open(&location, Arc::new(SystemClock)).unwrap()
}

async fn claim(store: &Store, worker: WorkerId) -> Vec<ClaimedJob> {
    let system = store.system();
    system.count_arrivals().await.unwrap();
    let candidates = system.list_queue_candidates(&["noop".to_owned(), "probe".to_owned()]).await.unwrap();
    let shares: Vec<ClaimShare> = candidates
        .into_iter()
        .map(|queue| ClaimShare {
            tenant: queue.tenant,
            lane: queue.lane,
            kind: queue.kind,
            take: 100,
            cost: 1_000_000,
            vtime: queue.vtime,
            is_limited: false,
        })
        .collect();
    system.claim_jobs(worker, &shares).await.unwrap()
}

/// Fails every job that can be claimed for good.
fn kill_all(mailroom: &TestInstallation, message: &str, fingerprint: &str) {
    let store = store(mailroom);
    block_on(async {
        let kinds = ["noop".to_owned(), "probe".to_owned()];
        let worker = store.system().register_worker("w1", &kinds, Duration::from_secs(600)).await.unwrap();
        let failure = AttemptFailure {
            outcome: AttemptOutcome::Failed,
            error_class: "io".into(),
            message: message.into(),
            fingerprint: fingerprint.into(),
        };
        for job in claim(&store, worker).await {
            let successor = JobId::new(&SystemClock);
            assert!(store.system().fail_job(&job, &failure, AfterFailure::Dead, successor).await.unwrap());
        }
    });
}

fn add(mailroom: &TestInstallation, args: &[&str]) -> String {
    let added = mailroom.object(&[&["jobs", "enqueue", "--tenant", "acme"], args].concat());
    added["id"].as_str().unwrap().to_owned()
}

fn wait_reasons(mailroom: &TestInstallation, id: &str) -> Vec<Value> {
    let told = mailroom.object(&["jobs", "why", id]);
    let reasons = told["reasons"].as_array().unwrap();
    reasons.iter().map(|reason| reason["why"].clone()).collect()
}

#[test]
fn job_is_added_listed_and_counted() {
    on_each_database(|mailroom| {
        mailroom.ok(&["tenant", "create", "acme"]);
        assert!(mailroom.ok(&["jobs", "list"]).text().contains("No jobs match"));

        let id = add(mailroom, &["--kind", "noop", "--payload", r#"{"n":7}"#, "--lane", "high"]);
        assert_eq!(
            mailroom.object(&["jobs", "enqueue", "--tenant", "acme", "--kind", "probe", "--count", "2500"])["added"],
            2500
        );
        add(mailroom, &["--kind", "noop", "--in", "10m"]);
        mailroom.ok(&["jobs", "enqueue", "--tenant", "system", "--kind", "noop"]);

        let shown = mailroom.object(&["jobs", "show", &id]);
        assert_eq!(names(&shown), ["job", "attempts"].into_iter().collect());
        assert_eq!((&shown["job"]["payload"], &shown["job"]["lane"]), (&json!({"n": 7}), &json!("high")));
        assert!(
            mailroom
                .ok(&["jobs", "show", &id])
                .text()
                .starts_with(&format!("Job {id} (noop of acme, lane high): ready"))
        );
        assert_eq!(mailroom.objects(&["jobs", "list", "--kind", "noop"]).len(), 3);
        assert_eq!(
            mailroom.objects(&["jobs", "list", "--kind", "noop", "--tenant", "acme", "--state", "waiting"]).len(),
            1
        );
        assert_eq!(mailroom.objects(&["jobs", "list", "--tenant", "system"]).len(), 1);
        let page = mailroom.objects(&["jobs", "list", "--limit", "2000"]);
        let rest =
            mailroom.objects(&["jobs", "list", "--limit", "2000", "--after", page[1999]["id"].as_str().unwrap()]);
        assert_eq!((page.len(), rest.len()), (2000, 503));
        let table = mailroom.ok(&["jobs", "list", "--limit", "3"]).text();
        assert!(table.starts_with("id") && table.contains("More: --after "), "{table}");

        let stats = mailroom.object(&["jobs", "stats"]);
        let waiting: Vec<&Value> = stats["lanes"].as_array().unwrap().iter().map(|lane| &lane["waiting"]).collect();
        assert_eq!(waiting, [&json!(0), &json!(1), &json!(2501), &json!(0)]);
        assert_eq!((&stats["dead_letters"], &stats["strays"]["blocked"]), (&json!(0), &json!(0)));
        let table = mailroom.ok(&["jobs", "stats"]).text();
        assert!(table.contains("2,500") && table.contains("No worker is running"), "{table}");
    });
}

#[test]
fn job_says_why_it_is_not_running() {
    on_each_database(|mailroom| {
        mailroom.ok(&["tenant", "create", "acme"]);
        let (first, second) = (add(mailroom, &["--kind", "noop"]), add(mailroom, &["--kind", "noop"]));
        let later = add(mailroom, &["--kind", "noop", "--in", "10m"]);

        assert_eq!(wait_reasons(mailroom, &second), ["no_worker"]);
        assert_eq!(wait_reasons(mailroom, &later)[0], "not_due");
        let told = mailroom.ok(&["jobs", "why", &second]).text();
        assert!(told.contains("No running worker handles jobs of kind noop"), "{told}");
        for (args, why) in [
            (["--tenant", "acme"], "tenant_paused"),
            (["--kind", "noop"], "kind_paused"),
            (["--lane", "normal"], "lane_paused"),
        ] {
            assert_eq!(mailroom.object(&[&["jobs", "pause"], &args[..]].concat())["changed"], true);
            assert_eq!(wait_reasons(mailroom, &first)[0], why);
            assert!(mailroom.ok(&[&["jobs", "pause"], &args[..]].concat()).text().contains("already paused"));
            assert_eq!(mailroom.object(&[&["jobs", "resume"], &args[..]].concat())["changed"], true);
        }
        mailroom.ok(&["tenant", "deactivate", "acme"]);
        assert_eq!(wait_reasons(mailroom, &first)[0], "tenant_inactive");
    });
}

#[test]
fn job_is_moved_retried_and_cancelled() {
    on_each_database(|mailroom| {
        mailroom.ok(&["tenant", "create", "acme"]);
        let id = add(mailroom, &["--kind", "noop", "--in", "10m"]);

        assert_eq!(mailroom.object(&["jobs", "move", &id, "--lane", "low"])["changed"], true);
        assert!(mailroom.ok(&["jobs", "move", &id, "--lane", "low"]).text().contains("already in lane low"));
        assert_eq!(mailroom.object(&["jobs", "retry", &id])["outcome"], "due");
        mailroom
            .run(&["jobs", "retry", &id])
            .assert_refused(1, &["is ready and cannot be retried; `mailroom jobs why"]);
        assert_eq!(mailroom.object(&["jobs", "cancel", &id, "--reason", "a mistake"])["outcome"], "cancelled");
        mailroom.run(&["jobs", "cancel", &id]).assert_refused(1, &["has already ended"]);
        mailroom.run(&["jobs", "move", &id, "--lane", "high"]).assert_refused(1, &["has ended"]);
        assert!(mailroom.ok(&["jobs", "why", &id]).text().contains("It is cancelled, since"));
        assert_eq!(mailroom.object(&["jobs", "show", &id])["job"]["reason"], "a mistake");
        assert!(mailroom.ok(&["jobs", "retry", &id]).text().contains("starts again"));
        assert_eq!(mailroom.object(&["jobs", "show", &id])["job"]["state"], "ready");
    });
}

#[test]
fn limits_and_weights_are_set() {
    on_each_database(|mailroom| {
        mailroom.ok(&["tenant", "create", "acme"]);

        let set = mailroom.object(&["jobs", "limit", "--tenant", "acme", "--running", "3", "--waiting", "2"]);
        assert_eq!((&set["most_running"], &set["most_waiting"]), (&json!(3), &json!(2)));
        add(mailroom, &["--kind", "noop"]);
        add(mailroom, &["--kind", "noop"]);
        let refused = mailroom.run(&["jobs", "enqueue", "--tenant", "acme", "--kind", "noop"]);
        refused.assert_refused(1, &["limit of waiting jobs", "mailroom jobs limit"]);
        let told = mailroom.ok(&["jobs", "limit", "--tenant", "acme", "--waiting", "none"]).text();
        assert_eq!(told, "Of acme, any number of jobs wait.\n");
        add(mailroom, &["--kind", "noop"]);
        assert_eq!(mailroom.object(&["jobs", "limit", "--kind", "noop", "--running", "1"])["kind"], "noop");
        assert_eq!(mailroom.select("select cast(most_running as text) from job_tenants"), ["3"]);
        assert_eq!(mailroom.object(&["jobs", "weight", "vip", "8"])["weight"], 8);
        assert_eq!(mailroom.select("select cast(weight as text) from job_weights where plan_tier = 'vip'"), ["8"]);
    });
}

#[test]
fn dead_letters_are_replayed_and_discarded() {
    on_each_database(|mailroom| {
        mailroom.ok(&["tenant", "create", "acme"]);
        mailroom
            .run(&["dead-letters", "replay", "--all"])
            .assert_refused(1, &["no dead letter was", "dead-letters list"]);
        let id = add(mailroom, &["--kind", "probe"]);
        kill_all(mailroom, "the disk \u{1b}[31mis full", "disk");
        mailroom.ok(&["jobs", "enqueue", "--tenant", "acme", "--kind", "noop", "--count", "5"]);
        kill_all(mailroom, "no route", "net");

        let groups = mailroom.objects(&["dead-letters", "list", "--groups"]);
        let counts: Vec<(&Value, &Value)> =
            groups.iter().map(|group| (&group["fingerprint"], &group["count"])).collect();
        assert_eq!(counts, [(&json!("net"), &json!(5)), (&json!("disk"), &json!(1))]);
        assert_eq!(mailroom.objects(&["dead-letters", "list"]).len(), 6);
        assert_eq!(mailroom.objects(&["dead-letters", "list", "--fingerprint", "disk"])[0]["id"], json!(id));
        let shown = mailroom.ok(&["dead-letters", "show", &id]).text();
        assert!(shown.contains("the disk  [31mis full") && shown.contains("w1"), "{shown}");
        let table = mailroom.ok(&["dead-letters", "list", "--groups"]).text();
        assert!(table.starts_with("jobs") && table.contains("no route"), "{table}");

        let edited = mailroom.object(&["dead-letters", "replay", &id, "--payload", r#"{"again":true}"#]);
        assert_eq!(edited["replayed"], 1);
        mailroom.run(&["dead-letters", "replay", &id]).assert_refused(1, &["is ready, not dead"]);
        let job = mailroom.object(&["jobs", "show", &id]);
        assert_eq!((&job["job"]["payload"], &job["job"]["attempt"]), (&json!({"again": true}), &json!(0)));
        assert_eq!(job["attempts"].as_array().unwrap().len(), 1);
        mailroom
            .run(&["dead-letters", "replay", "--all", "--kind", "nothing"])
            .assert_refused(1, &["no dead letter was"]);
        let spread =
            mailroom.ok(&["dead-letters", "replay", "--all", "--fingerprint", "net", "--rate", "0.1/s"]).text();
        assert_eq!(spread, "5 dead letters replayed.\n");
        assert_eq!(mailroom.objects(&["jobs", "list", "--state", "scheduled"]).len(), 4);

        kill_all(mailroom, "no", "f");
        assert_eq!(mailroom.object(&["dead-letters", "discard", &id])["discarded"], 1);
        mailroom.run(&["jobs", "show", &id]).assert_refused(1, &["there is no job"]);
        assert_eq!(mailroom.object(&["dead-letters", "discard", "--all", "--tenant", "acme"])["discarded"], 1);
        let audit = mailroom.select("select cast(entry as text) from audit").join("\n");
        assert!(audit.contains("dead_letters.replay") && audit.contains("dead_letters.discard"), "{audit}");
        assert!(mailroom.objects(&["dead-letters", "list"]).is_empty());
    });
}

#[test]
fn recurring_job_is_listed_run_and_paused() {
    on_each_database(|mailroom| {
        mailroom.ok(&["tenant", "list"]);
        assert!(mailroom.ok(&["recurring", "list"]).text().starts_with("No recurring jobs yet"));
        let nightly = NewSchedule {
            name: "nightly".into(),
            tenant: TenantId::SYSTEM,
            kind: "noop".into(),
            lane: Lane::Low,
            payload: json!({}),
            cron: "30 2 * * *".into(),
            zone: "Europe/Berlin".into(),
            missed: MissedPolicy::Skip,
            overlap: OverlapPolicy::Skip,
        };
        let newer = NewSchedule { name: "newer".into(), cron: "every night".into(), ..nightly.clone() };
        block_on(async {
            let store = store(mailroom);
            ::jobs::recurring::define(&store, &SystemClock, &nightly).await.unwrap();
            store.system().put_schedule(&newer, "2030-01-01T00:00:00Z".parse().unwrap()).await.unwrap();
        });

        let listed = mailroom.objects(&["recurring", "list"]);
        assert_eq!(listed[0]["problem"].as_str().map(|problem| problem.contains("column 1")), Some(true), "{listed:?}");
        assert_eq!((&listed[1]["name"], listed[1]["next_times"].as_array().unwrap().len()), (&json!("nightly"), 5));
        assert_eq!(listed[1]["next_times"][0], listed[1]["next_at"]);
        assert!(mailroom.ok(&["recurring", "list"]).text().starts_with("name"));
        let ran = mailroom.object(&["recurring", "run", "nightly"]);
        assert_eq!(
            mailroom.object(&["jobs", "show", ran["id"].as_str().unwrap()])["job"]["unique_key"],
            "recurring:nightly"
        );
        mailroom.run(&["recurring", "run", "nightly"]).assert_refused(1, &["must not overlap"]);
        assert_eq!(mailroom.object(&["recurring", "pause", "nightly"])["changed"], true);
        assert_eq!(mailroom.ok(&["recurring", "pause", "nightly"]).text(), "nightly is already paused.\n");
        let audit = mailroom.select("select cast(entry as text) from audit").join("\n");
        assert!(audit.contains("recurring.run") && audit.contains("recurring.pause"), "{audit}");
        assert_eq!(mailroom.object(&["recurring", "resume", "nightly"])["is_paused"], false);
        mailroom.run(&["recurring", "run", "daily"]).assert_refused(1, &["\"daily\"", "mailroom recurring list"]);
    });
}

fn scheduler(mailroom: &TestInstallation, name: &str) -> RunningProcess {
    let mut command = mailroom.command(PROGRAM, &["serve", "--roles", "scheduler"]);
    command.env("MAILROOM_SERVER__LISTEN", "127.0.0.1:0").env("MAILROOM_INSTANCE__ID", name);
    RunningProcess::start(command.env("MAILROOM_LOG__LEVEL", "off"))
}

/// The process that leads, and its token.
fn leader(mailroom: &TestInstallation) -> Vec<String> {
    mailroom.select("select holder || ' ' || token::text from leases where name = 'scheduler' and until > now()")
}

#[test]
fn lost_scheduler_is_replaced() {
    let mailroom = TestInstallation::postgres();
    let first = scheduler(&mailroom, "first");
    wait_until("the first leads", || leader(&mailroom) == ["first 1"]);
    let second = scheduler(&mailroom, "second");

    first.kill();
    wait_until("the second leads", || leader(&mailroom) == ["second 2"]);
    let third = scheduler(&mailroom, "third");
    second.terminate();
    assert_eq!(second.finish().code, Some(0));
    wait_until("the third leads", || leader(&mailroom) == ["third 3"]);

    let due = mailroom.objects(&["recurring", "list"]);
    assert!(!due.is_empty() && due.iter().all(|schedule| schedule["problem"].is_null()), "{due:?}");
    third.kill();
}

#[test]
fn wrong_queue_usage_ends_with_exit_code_2() {
    let mailroom = TestInstallation::sqlite();
    for args in [
        &["jobs", "show", "not-an-id"][..],
        &["jobs", "list", "--state", "asleep"],
        &["jobs", "pause"],
        &["jobs", "pause", "--lane", "low", "--kind", "noop"],
        &["jobs", "limit", "--tenant", "a"],
        &["jobs", "limit", "--kind", "a", "--waiting", "3"],
        &["jobs", "limit", "--kind", "a", "--running", "0"],
        &["jobs", "weight", "vip", "0"],
        &["jobs", "enqueue", "--kind", "noop", "--tenant", "a", "--payload", "{"],
        &["jobs", "enqueue", "--kind", "noop", "--tenant", "system", "--in", "soon"],
        &["dead-letters", "replay"],
        &["dead-letters", "replay", "--kind", "noop"],
        &["dead-letters", "replay", "--all", "--rate", "0/s"],
        &["dead-letters", "replay", "--all", "--payload", "{}"],
        &["dead-letters", "discard"],
    ] {
        let done = mailroom.run(args);
        assert_eq!(done.code, Some(2), "{args:?}: {done}");
        assert!(done.stderr.starts_with("error: "), "{args:?}: {done}");
    }
}
