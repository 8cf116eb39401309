//! `jobs`, `recurring` and `dead-letters`, as people and scripts use them.

use std::sync::Arc;
use std::time::Duration;

use domain::{JobId, Lane, SystemClock, TenantId, WorkerId};
use serde_json::{Value, json};
use store::sql::jobs::{AfterFailure, Claimed, Failure, Outcome, Share};
use store::sql::schedules::{Missed, NewSchedule, Overlap};
use store::{Location, Store, scratch};

use crate::mail::names;
use crate::place::{PROGRAM, Place, block_on, on_each_database};
use crate::processes::{Running, wait_until};

/// The same database from inside, to do what a worker does.
pub fn store(place: &Place) -> Store {
    let location = match place.url() {
        Some(url) => scratch::location(url.to_owned()),
        None => Location::Sqlite { path: place.data_dir().join("mailroom.db"), connections: 2 },
    };
    Store::open(&location, Arc::new(SystemClock)).unwrap()
}

async fn claim(store: &Store, worker: WorkerId) -> Vec<Claimed> {
    let system = store.system();
    system.count_arrivals().await.unwrap();
    let candidates = system.list_candidates(&["noop".to_owned(), "probe".to_owned()]).await.unwrap();
    let shares: Vec<Share> = candidates
        .into_iter()
        .map(|queue| Share {
            tenant: queue.tenant,
            lane: queue.lane,
            kind: queue.kind,
            take: 100,
            cost: 1_000_000,
            vtime: queue.vtime,
            is_limited: false,
        })
        .collect();
    system.claim(worker, &shares).await.unwrap()
}

/// Everything that can be claimed fails for good.
fn kill_all(place: &Place, message: &str, fingerprint: &str) {
    let store = store(place);
    block_on(async {
        let kinds = ["noop".to_owned(), "probe".to_owned()];
        let worker = store.system().register_worker("w1", &kinds, Duration::from_secs(600)).await.unwrap();
        let failure = Failure {
            outcome: Outcome::Failed,
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

fn add(place: &Place, args: &[&str]) -> String {
    let added = place.object(&[&["jobs", "enqueue", "--tenant", "acme"], args].concat());
    added["id"].as_str().unwrap().to_owned()
}

fn whys(place: &Place, id: &str) -> Vec<Value> {
    let told = place.object(&["jobs", "why", id]);
    let reasons = told["reasons"].as_array().unwrap();
    reasons.iter().map(|reason| reason["why"].clone()).collect()
}

#[test]
fn jobs_are_added_listed_shown_and_counted() {
    on_each_database(|place| {
        place.ok(&["tenant", "create", "acme"]);
        assert!(place.ok(&["jobs", "list"]).text().contains("No jobs match"));

        let id = add(place, &["--kind", "noop", "--payload", r#"{"n":7}"#, "--lane", "high"]);
        assert_eq!(
            place.object(&["jobs", "enqueue", "--tenant", "acme", "--kind", "probe", "--count", "2500"])["added"],
            2500
        );
        add(place, &["--kind", "noop", "--in", "10m"]);
        place.ok(&["jobs", "enqueue", "--tenant", "system", "--kind", "noop"]);

        let shown = place.object(&["jobs", "show", &id]);
        assert_eq!(names(&shown), ["job", "attempts"].into_iter().collect());
        assert_eq!((&shown["job"]["payload"], &shown["job"]["lane"]), (&json!({"n": 7}), &json!("high")));
        assert!(
            place.ok(&["jobs", "show", &id]).text().starts_with(&format!("Job {id} (noop of acme, lane high): ready"))
        );
        assert_eq!(place.objects(&["jobs", "list", "--kind", "noop"]).len(), 3);
        assert_eq!(
            place.objects(&["jobs", "list", "--kind", "noop", "--tenant", "acme", "--state", "waiting"]).len(),
            1
        );
        assert_eq!(place.objects(&["jobs", "list", "--tenant", "system"]).len(), 1);
        let page = place.objects(&["jobs", "list", "--limit", "2000"]);
        let rest = place.objects(&["jobs", "list", "--limit", "2000", "--after", page[1999]["id"].as_str().unwrap()]);
        assert_eq!((page.len(), rest.len()), (2000, 503));
        let table = place.ok(&["jobs", "list", "--limit", "3"]).text();
        assert!(table.starts_with("id") && table.contains("More: --after "), "{table}");

        let stats = place.object(&["jobs", "stats"]);
        let waiting: Vec<&Value> = stats["lanes"].as_array().unwrap().iter().map(|lane| &lane["waiting"]).collect();
        assert_eq!(waiting, [&json!(0), &json!(1), &json!(2501), &json!(0)]);
        assert_eq!((&stats["dead_letters"], &stats["strays"]["blocked"]), (&json!(0), &json!(0)));
        let table = place.ok(&["jobs", "stats"]).text();
        assert!(table.contains("2,500") && table.contains("Nobody works"), "{table}");
    });
}

#[test]
fn a_job_says_why_it_is_not_running() {
    on_each_database(|place| {
        place.ok(&["tenant", "create", "acme"]);
        let (first, second) = (add(place, &["--kind", "noop"]), add(place, &["--kind", "noop"]));
        let later = add(place, &["--kind", "noop", "--in", "10m"]);

        assert_eq!(whys(place, &second), ["no_worker"]);
        assert_eq!(whys(place, &later)[0], "not_due");
        let told = place.ok(&["jobs", "why", &second]).text();
        assert!(told.contains("No process that is alive works on jobs of kind noop"), "{told}");
        for (args, why) in [
            (["--tenant", "acme"], "tenant_paused"),
            (["--kind", "noop"], "kind_paused"),
            (["--lane", "normal"], "lane_paused"),
        ] {
            assert_eq!(place.object(&[&["jobs", "pause"], &args[..]].concat())["changed"], true);
            assert_eq!(whys(place, &first)[0], why);
            assert!(place.ok(&[&["jobs", "pause"], &args[..]].concat()).text().contains("already paused"));
            assert_eq!(place.object(&[&["jobs", "resume"], &args[..]].concat())["changed"], true);
        }
        place.ok(&["tenant", "deactivate", "acme"]);
        assert_eq!(whys(place, &first)[0], "tenant_inactive");
    });
}

#[test]
fn a_job_is_moved_hurried_and_cancelled() {
    on_each_database(|place| {
        place.ok(&["tenant", "create", "acme"]);
        let id = add(place, &["--kind", "noop", "--in", "10m"]);

        assert_eq!(place.object(&["jobs", "move", &id, "--lane", "low"])["changed"], true);
        assert!(place.ok(&["jobs", "move", &id, "--lane", "low"]).text().contains("already in lane low"));
        assert_eq!(place.object(&["jobs", "retry", &id])["outcome"], "due");
        place.run(&["jobs", "retry", &id]).assert_refused(1, &["is ready; `mailroom jobs why"]);
        assert_eq!(place.object(&["jobs", "cancel", &id, "--reason", "a mistake"])["outcome"], "cancelled");
        place.run(&["jobs", "cancel", &id]).assert_refused(1, &["has ended before"]);
        place.run(&["jobs", "move", &id, "--lane", "high"]).assert_refused(1, &["has ended"]);
        assert!(place.ok(&["jobs", "why", &id]).text().contains("It is cancelled, since"));
        assert_eq!(place.object(&["jobs", "show", &id])["job"]["reason"], "a mistake");
        assert!(place.ok(&["jobs", "retry", &id]).text().contains("starts again"));
        assert_eq!(place.object(&["jobs", "show", &id])["job"]["state"], "ready");
    });
}

#[test]
fn limits_and_weights_are_set() {
    on_each_database(|place| {
        place.ok(&["tenant", "create", "acme"]);

        let set = place.object(&["jobs", "limit", "--tenant", "acme", "--running", "3", "--waiting", "2"]);
        assert_eq!((&set["most_running"], &set["most_waiting"]), (&json!(3), &json!(2)));
        add(place, &["--kind", "noop"]);
        add(place, &["--kind", "noop"]);
        let refused = place.run(&["jobs", "enqueue", "--tenant", "acme", "--kind", "noop"]);
        refused.assert_refused(1, &["as many waiting jobs as it may", "mailroom jobs limit"]);
        let told = place.ok(&["jobs", "limit", "--tenant", "acme", "--waiting", "none"]).text();
        assert_eq!(told, "Of acme, any number wait.\n");
        add(place, &["--kind", "noop"]);
        assert_eq!(place.object(&["jobs", "limit", "--kind", "noop", "--running", "1"])["kind"], "noop");
        assert_eq!(place.select("select cast(most_running as text) from job_tenants"), ["3"]);
        assert_eq!(place.object(&["jobs", "weight", "vip", "8"])["weight"], 8);
        assert_eq!(place.select("select cast(weight as text) from job_weights where plan_tier = 'vip'"), ["8"]);
    });
}

#[test]
fn dead_letters_are_grouped_shown_replayed_and_discarded() {
    on_each_database(|place| {
        place.ok(&["tenant", "create", "acme"]);
        place
            .run(&["dead-letters", "replay", "--all"])
            .assert_refused(1, &["no dead letter matches", "dead-letters list"]);
        let id = add(place, &["--kind", "probe"]);
        kill_all(place, "the disk \u{1b}[31mis full", "disk");
        place.ok(&["jobs", "enqueue", "--tenant", "acme", "--kind", "noop", "--count", "5"]);
        kill_all(place, "no route", "net");

        let groups = place.objects(&["dead-letters", "list", "--groups"]);
        let counts: Vec<(&Value, &Value)> =
            groups.iter().map(|group| (&group["fingerprint"], &group["count"])).collect();
        assert_eq!(counts, [(&json!("net"), &json!(5)), (&json!("disk"), &json!(1))]);
        assert_eq!(place.objects(&["dead-letters", "list"]).len(), 6);
        assert_eq!(place.objects(&["dead-letters", "list", "--fingerprint", "disk"])[0]["id"], json!(id));
        let shown = place.ok(&["dead-letters", "show", &id]).text();
        assert!(shown.contains("the disk  [31mis full") && shown.contains("w1"), "{shown}");
        let table = place.ok(&["dead-letters", "list", "--groups"]).text();
        assert!(table.starts_with("jobs") && table.contains("no route"), "{table}");

        let edited = place.object(&["dead-letters", "replay", &id, "--payload", r#"{"again":true}"#]);
        assert_eq!(edited["replayed"], 1);
        place.run(&["dead-letters", "replay", &id]).assert_refused(1, &["is ready, not dead"]);
        let job = place.object(&["jobs", "show", &id]);
        assert_eq!((&job["job"]["payload"], &job["job"]["attempt"]), (&json!({"again": true}), &json!(0)));
        assert_eq!(job["attempts"].as_array().unwrap().len(), 1);
        place
            .run(&["dead-letters", "replay", "--all", "--kind", "nothing"])
            .assert_refused(1, &["no dead letter matches"]);
        let spread = place.ok(&["dead-letters", "replay", "--all", "--fingerprint", "net", "--rate", "0.1/s"]).text();
        assert_eq!(spread, "5 dead letters replayed.\n");
        assert_eq!(place.objects(&["jobs", "list", "--state", "scheduled"]).len(), 4);

        kill_all(place, "no", "f");
        assert_eq!(place.object(&["dead-letters", "discard", &id])["discarded"], 1);
        place.run(&["jobs", "show", &id]).assert_refused(1, &["there is no job"]);
        assert_eq!(place.object(&["dead-letters", "discard", "--all", "--tenant", "acme"])["discarded"], 1);
        assert!(place.objects(&["dead-letters", "list"]).is_empty());
    });
}

#[test]
fn recurring_jobs_are_listed_with_their_times_run_and_paused() {
    on_each_database(|place| {
        place.ok(&["tenant", "list"]);
        assert!(place.ok(&["recurring", "list"]).text().starts_with("Nothing comes back"));
        let nightly = NewSchedule {
            name: "nightly".into(),
            tenant: TenantId::SYSTEM,
            kind: "noop".into(),
            lane: Lane::Low,
            payload: json!({}),
            cron: "30 2 * * *".into(),
            zone: "Europe/Berlin".into(),
            missed: Missed::Skip,
            overlap: Overlap::Skip,
        };
        let newer = NewSchedule { name: "newer".into(), cron: "every night".into(), ..nightly.clone() };
        block_on(async {
            let store = store(place);
            ::jobs::recurring::define(&store, &SystemClock, &nightly).await.unwrap();
            store.system().put_schedule(&newer, "2030-01-01T00:00:00Z".parse().unwrap()).await.unwrap();
        });

        let listed = place.objects(&["recurring", "list"]);
        assert_eq!(listed[0]["problem"].as_str().map(|problem| problem.contains("column 1")), Some(true), "{listed:?}");
        assert_eq!((&listed[1]["name"], listed[1]["next_times"].as_array().unwrap().len()), (&json!("nightly"), 5));
        assert_eq!(listed[1]["next_times"][0], listed[1]["next_at"]);
        assert!(place.ok(&["recurring", "list"]).text().starts_with("name"));
        let ran = place.object(&["recurring", "run", "nightly"]);
        assert_eq!(
            place.object(&["jobs", "show", ran["id"].as_str().unwrap()])["job"]["unique_key"],
            "recurring:nightly"
        );
        place.run(&["recurring", "run", "nightly"]).assert_refused(1, &["may not overlap"]);
        assert_eq!(place.object(&["recurring", "pause", "nightly"])["changed"], true);
        assert_eq!(place.ok(&["recurring", "pause", "nightly"]).text(), "nightly is already paused.\n");
        assert_eq!(place.object(&["recurring", "resume", "nightly"])["is_paused"], false);
        place.run(&["recurring", "run", "daily"]).assert_refused(1, &["\"daily\"", "mailroom recurring list"]);
    });
}

fn scheduler(place: &Place, name: &str) -> Running {
    let mut command = place.command(PROGRAM, &["serve", "--roles", "scheduler"]);
    command.env("MAILROOM_SERVER__LISTEN", "127.0.0.1:0").env("MAILROOM_INSTANCE__ID", name);
    Running::start(command.env("MAILROOM_LOG__LEVEL", "off"))
}

#[test]
fn a_scheduler_that_dies_or_leaves_is_replaced() {
    let place = Place::postgres();
    let holder =
        || place.select("select holder || ' ' || token::text from leases where name = 'scheduler' and until > now()");
    let first = scheduler(&place, "first");
    wait_until("the first leads", || holder() == ["first 1"]);
    let second = scheduler(&place, "second");

    first.kill();
    wait_until("the second leads", || holder() == ["second 2"]);
    let third = scheduler(&place, "third");
    second.terminate();
    assert_eq!(second.finish().code, Some(0));
    wait_until("the third leads", || holder() == ["third 3"]);

    let due = place.objects(&["recurring", "list"]);
    assert!(!due.is_empty() && due.iter().all(|schedule| schedule["problem"].is_null()), "{due:?}");
    third.kill();
}

#[test]
fn wrong_usage_of_the_queue_is_told_with_exit_code_2() {
    let place = Place::sqlite();
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
        let done = place.run(args);
        assert_eq!(done.code, Some(2), "{args:?}: {done}");
        assert!(done.stderr.starts_with("error: "), "{args:?}: {done}");
    }
}
