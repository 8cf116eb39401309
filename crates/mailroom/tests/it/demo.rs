//! The demo, as whoever tries Mailroom meets it, and its soak.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::place::{Done, PROGRAM, Place};
use crate::processes::{Running, wait_until};

/// One that runs until somebody ends it.
struct Live {
    demo: Running,
    said: String,
    url: String,
}

impl Live {
    fn start(place: &Place, args: &[&str]) -> Self {
        let (said, told) = (place.path("said"), place.path("told"));
        let mut command = place.command(PROGRAM, &[&["demo", "--emails", "300"], args].concat());
        let into = |path| fs::File::create(path).unwrap();
        let mut demo = Running::spawn(command.stdout(into(&said)).stderr(into(&told)));
        let read = |path| fs::read_to_string(path).unwrap();
        wait_until("it says what to try", || {
            assert!(!demo.has_ended(), "{}", read(&told));
            read(&told).contains("Ctrl-C ends it.")
        });
        let said = read(&said);
        let url = said.split_whitespace().find_map(|word| word.strip_prefix("http://")).unwrap();
        let url = url.trim_end_matches(',').to_owned();
        Self { demo, said, url }
    }

    /// The commands below each number.
    fn things(&self) -> Vec<Vec<&str>> {
        let mut things: Vec<Vec<&str>> = Vec::new();
        for line in self.said.lines() {
            match line.strip_prefix("     ") {
                Some(command) => things.last_mut().unwrap().push(command),
                None if line.starts_with(|c: char| c.is_ascii_digit()) => things.push(Vec::new()),
                None => {}
            }
        }
        things
    }

    fn is_there(&self) -> bool {
        TcpStream::connect(self.url.parse::<SocketAddr>().unwrap()).is_ok()
    }
}

/// In a shell whose environment has other plans.
fn paste(place: &Place, command: &str) -> Done {
    let mut bash = place.command("bash", &["-c", command]);
    Done::of(bash.env("MAILROOM_DATABASE__URL", "postgres://nobody@127.0.0.1:1/elsewhere"))
}

#[test]
fn a_demo_mends_what_is_wrong_and_ends_up_with_what_the_providers_have() {
    let place = Place::sqlite();

    let summary = place.object(&["demo", "--once", "--emails", "150"]);

    assert_eq!(summary["complete"], true, "{summary}");
    assert_eq!((&summary["stuck_jobs"], &summary["dead_letters"]), (&Value::from(0), &Value::from(0)));
    assert_eq!(summary["mailboxes"], 23);
    assert_eq!(summary["there"], summary["here"]);
    assert!(summary["emails"].as_u64().unwrap() > 100, "{summary}");
    assert!(!place.data_dir().exists(), "the demo has a folder of its own");
}

#[test]
fn a_kept_demo_can_be_looked_at_and_is_not_written_over() {
    let place = Place::sqlite();
    let kept = place.path("kept demo").into_os_string().into_string().unwrap();
    let args = ["demo", "--once", "--emails", "60", "--seed", "2", "--data-dir", &kept];

    let done = place.ok(&args);

    assert!(done.text().contains("everything is here once"), "{done}");
    done.assert_tells("is kept in");
    let list = paste(&place, &format!("'{kept}/mailroom' tenant list --json"));
    let names: Vec<Value> = list.objects().iter().map(|tenant| tenant["name"].clone()).collect();
    assert_eq!(names, ["harbour", "orchard", "workshop"], "{list}");
    let found = paste(&place, &format!("'{kept}/mailroom' search '' --tenant workshop --json"));
    assert!(!found.objects().is_empty(), "{found}");
    place.run(&args).assert_refused(2, &["is not empty", "--data-dir"]);
}

#[test]
fn the_five_things_to_try_work_as_they_are_pasted() {
    let place = Place::sqlite();
    let mut live = Live::start(&place, &[]);

    let things = live.things();
    assert_eq!(things.len(), 5, "{}", live.said);
    let said: Vec<String> = things
        .iter()
        .map(|commands| {
            let run = |command: &&str| {
                let done = paste(&place, command);
                assert_eq!(done.code, Some(0), "{command}: {done}");
                done.text()
            };
            commands.iter().map(run).collect()
        })
        .collect();

    for part in ["needs_reauth", "paused until", "archive@harbour.example", "office@workshop.example"] {
        assert!(said[0].contains(part), "{part} is not in {}", said[0]);
    }
    assert!(said[2].contains("event: "), "{}", said[2]);
    assert!(said[3].contains("1 new") && said[3].contains("new@harbour.example is up to date"), "{}", said[3]);
    assert!(said[4].contains("is active now") && said[4].contains("1 dead letter replayed"), "{}", said[4]);
    let program = things[0][0].split(' ').next().unwrap().to_owned();
    wait_until("the dead letter is done", || {
        paste(&place, &format!("{program} dead-letters list --json")).objects().is_empty()
    });
    let folder = fs::canonicalize(&program).unwrap().parent().unwrap().to_owned();
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    let sent = Command::new("sh").args(["-c", &format!("kill -INT {}", live.demo.id())]).status().unwrap();
    assert!(sent.success());
    wait_until("it has stopped", || live.demo.has_ended());
    assert!(!live.is_there() && !folder.exists(), "nothing is left");
    assert_eq!(live.demo.finish().code, Some(0));
}

#[test]
fn a_server_does_not_outlive_its_demo() {
    let place = Place::sqlite();
    let live = Live::start(&place, &["--data-dir", "kept"]);
    assert!(live.is_there());

    let Live { demo, url, .. } = live;
    demo.kill();

    wait_until("the server ends", || TcpStream::connect(url.parse::<SocketAddr>().unwrap()).is_err());
}

#[test]
fn what_differs_in_the_end_is_told_and_ends_a_demo_with_one() {
    let place = Place::sqlite();
    let mut demo = timed(&place, &["--minutes", "0.4", "--emails", "200", "--data-dir", "kept", "--json"]);
    let program = place.path("kept").join("mailroom").display().to_string();
    let purge = format!("{program} email purge --tenant harbour --query has:attachment --yes --json");
    wait_until("there was something to purge", || {
        assert!(!demo.has_ended(), "{}", told(&place));
        let purged = paste(&place, &purge);
        assert_eq!(purged.code, Some(0), "{purged}");
        purged.objects()[0]["purged"].as_u64().unwrap() > 0
    });

    let done = demo.finish();

    let report = done.objects().pop().unwrap_or_default();
    assert_eq!((done.code, &report["complete"]), (Some(1), &Value::Bool(false)), "{done}");
    let reasons = report["reasons"].as_array().unwrap();
    assert!(reasons.iter().any(|reason| reason.as_str().unwrap().contains("missing: ")), "{report}");
}

/// One that ends by itself, once mail comes in.
fn timed(place: &Place, args: &[&str]) -> Running {
    let mut command = place.command(PROGRAM, &[&["demo"], args].concat());
    let mut demo = Running::spawn(command.stdout(Stdio::piped()).stderr(fs::File::create(place.path("told")).unwrap()));
    wait_until("mail comes in", || {
        assert!(!demo.has_ended(), "{}", told(place));
        told(place).contains("23 mailboxes")
    });
    demo
}

fn told(place: &Place) -> String {
    fs::read_to_string(place.path("told")).unwrap()
}

#[test]
fn what_is_stopped_before_anything_was_compared_is_no_success_and_leaves_nothing_behind() {
    let place = Place::sqlite();
    let demo = timed(&place, &["--minutes", "60", "--emails", "0", "--rate", "3"]);
    // As if the terminal had been closed.
    let sent = Command::new("sh").args(["-c", &format!("kill -HUP {}", demo.id())]).status().unwrap();
    assert!(sent.success());

    let done = demo.finish();

    let told = told(&place);
    assert_eq!(done.code, Some(1), "{told}");
    assert!(told.contains("stopped before anything was compared"), "{told}");
    let removed = told.split_whitespace().find(|word| word.contains("mailroom-demo-")).unwrap();
    assert!(told.contains("is removed") && !fs::exists(removed).unwrap(), "{told}");
}

#[test]
fn where_somebody_else_listens_no_demo_is_begun() {
    let place = Place::sqlite();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let args = ["demo", "--listen", &address, "--data-dir", "kept"];
    place.run(&args).assert_refused(1, &["cannot listen on", &address, "--listen"]);
    assert!(!place.path("kept").exists());
}

#[test]
fn arguments_that_cannot_be_meant_are_refused() {
    let place = Place::sqlite();
    fs::write(place.path("file"), "not a folder").unwrap();
    for args in [
        &["--emails", "10000000000"][..],
        &["--rate", "NaN"],
        &["--minutes", "-1"],
        &["--faults-per-second", "inf"],
        &["--once", "--minutes", "1"],
        &["--once", "--rate", "3"],
        &["--data-dir", "file"],
    ] {
        let done = place.run(&[&["demo"], args].concat());
        assert_eq!(done.code, Some(2), "{args:?}: {done}");
        assert_eq!(done.text(), "", "{args:?}: {done}");
    }
}

/// The short form of `make soak`: what ends is bounded by work, not by a clock.
#[test]
fn a_soak_with_a_fault_a_second_leaves_nothing_stuck_and_no_memory_behind() {
    let place = Place::sqlite();
    let args = [
        "demo",
        "--minutes",
        "0.6",
        "--rate",
        "20",
        "--faults-per-second",
        "1",
        "--emails",
        "400",
        "--seed",
        "1",
        "--json",
    ];

    let done = place.run(&args);

    let report = done.objects().pop().unwrap_or_default();
    assert_eq!((done.code, &report["complete"]), (Some(0), &Value::Bool(true)), "{done}");
    assert!(report["faults"].as_u64().unwrap() >= 30, "{report}");
    let happened = &report["happened"];
    assert!(happened["faults_met"].as_u64().unwrap() > 0, "{report}");
    for of in ["/changes/google", "/changes/microsoft", "/changes/imap", "/pushes/google", "/pushes/microsoft"] {
        assert!(happened.pointer(of).unwrap().as_u64().unwrap() > 0, "{of}: {report}");
    }
    assert_eq!(report["memory"]["is_flat"], true, "{report}");
    assert!(report["memory"]["most"].as_u64().unwrap() < 300 << 20, "{report}");
    assert_eq!(report["there"], report["here"], "{report}");
}
