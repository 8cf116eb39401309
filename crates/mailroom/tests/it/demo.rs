//! `mailroom demo`, as a new user runs it, and its soak.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::installation::{CommandOutput, PROGRAM, TestInstallation};
use crate::processes::{RunningProcess, wait_until};

/// A demo that runs until it is stopped.
struct RunningDemo {
    demo: RunningProcess,
    said: String,
    url: String,
}

impl RunningDemo {
    fn start(mailroom: &TestInstallation, args: &[&str]) -> Self {
        let (said, told) = (mailroom.path("said"), mailroom.path("told"));
        let mut command = mailroom.command(PROGRAM, &[&["demo", "--emails", "300"], args].concat());
        let (stdout, stderr) = (fs::File::create(&said).unwrap(), fs::File::create(&told).unwrap());
        let mut demo = RunningProcess::spawn(command.stdout(stdout).stderr(stderr));
        wait_until("it says what to try", || {
            let told = fs::read_to_string(&told).unwrap();
            assert!(!demo.has_ended(), "{told}");
            told.contains("Ctrl-C ends it.")
        });
        let said = fs::read_to_string(&said).unwrap();
        let url = said.split_whitespace().find_map(|word| word.strip_prefix("http://")).unwrap();
        let url = url.trim_end_matches(',').to_owned();
        Self { demo, said, url }
    }

    /// Returns the printed commands below each number.
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

/// Runs a command in a shell with other settings in its environment.
fn paste(mailroom: &TestInstallation, command: &str) -> CommandOutput {
    let mut bash = mailroom.command("bash", &["-c", command]);
    CommandOutput::of(bash.env("MAILROOM_DATABASE__URL", "postgres://nobody@127.0.0.1:1/elsewhere"))
}

#[test]
fn demo_ends_with_what_the_providers_have() {
    let mailroom = TestInstallation::sqlite();

    let summary = mailroom.object(&["demo", "--once", "--emails", "150"]);

    assert_eq!(summary["complete"], true, "{summary}");
    assert_eq!((&summary["stuck_jobs"], &summary["dead_letters"]), (&Value::from(0), &Value::from(0)));
    assert_eq!(summary["mailboxes"], 23);
    assert_eq!(summary["there"], summary["here"]);
    assert!(summary["emails"].as_u64().unwrap() > 100, "{summary}");
    assert!(!mailroom.data_dir().exists(), "the demo has a folder of its own");
}

#[test]
fn kept_demo_is_not_overwritten() {
    let mailroom = TestInstallation::sqlite();
    let kept = mailroom.path("kept demo").into_os_string().into_string().unwrap();
    let args = ["demo", "--once", "--emails", "60", "--seed", "2", "--data-dir", &kept];

    let done = mailroom.ok(&args);

    assert!(done.text().contains("everything is here once"), "{done}");
    done.assert_tells("is kept in");
    let list = paste(&mailroom, &format!("'{kept}/mailroom' tenant list --json"));
    let names: Vec<Value> = list.objects().iter().map(|tenant| tenant["name"].clone()).collect();
    assert_eq!(names, ["harbour", "orchard", "workshop"], "{list}");
    let found = paste(&mailroom, &format!("'{kept}/mailroom' search '' --tenant workshop --json"));
    assert!(!found.objects().is_empty(), "{found}");
    mailroom.run(&args).assert_refused(2, &["is not empty", "--data-dir"]);
}

/// Runs a command as it is pasted, which must succeed, and returns what it prints.
fn paste_ok(mailroom: &TestInstallation, command: &str) -> String {
    let done = paste(mailroom, command);
    assert_eq!(done.code, Some(0), "{command}: {done}");
    done.text()
}

#[test]
fn demo_examples_work_as_printed() {
    let mailroom = TestInstallation::sqlite();
    let mut live = RunningDemo::start(&mailroom, &[]);

    let things = live.things();
    assert_eq!(things.len(), 5, "{}", live.said);
    let said: Vec<String> =
        things.iter().map(|commands| commands.iter().map(|command| paste_ok(&mailroom, command)).collect()).collect();

    for part in ["needs_reauth", "paused until", "archive@harbour.example", "office@workshop.example"] {
        assert!(said[0].contains(part), "{part} is not in {}", said[0]);
    }
    assert!(said[2].contains("event: "), "{}", said[2]);
    assert!(said[3].contains("1 added") && said[3].contains("new@harbour.example is up to date"), "{}", said[3]);
    assert!(said[4].contains("is active now") && said[4].contains("1 dead letter replayed"), "{}", said[4]);
    let program = things[0][0].split(' ').next().unwrap().to_owned();
    wait_until("the dead letter is done", || {
        paste(&mailroom, &format!("{program} dead-letters list --json")).objects().is_empty()
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
fn server_does_not_outlive_its_demo() {
    let mailroom = TestInstallation::sqlite();
    let live = RunningDemo::start(&mailroom, &["--data-dir", "kept"]);
    assert!(live.is_there());

    let RunningDemo { demo, url, .. } = live;
    demo.kill();

    wait_until("the server ends", || TcpStream::connect(url.parse::<SocketAddr>().unwrap()).is_err());
}

#[test]
fn remaining_differences_fail_a_demo() {
    let mailroom = TestInstallation::sqlite();
    let mut demo = timed(&mailroom, &["--minutes", "0.4", "--emails", "200", "--data-dir", "kept", "--json"]);
    let program = mailroom.path("kept").join("mailroom").display().to_string();
    let purge = format!("{program} email purge --tenant harbour --query has:attachment --yes --json");
    wait_until("there was something to purge", || {
        assert!(!demo.has_ended(), "{}", told(&mailroom));
        let purged = paste(&mailroom, &purge);
        assert_eq!(purged.code, Some(0), "{purged}");
        purged.objects()[0]["purged"].as_u64().unwrap() > 0
    });

    let done = demo.finish();

    let report = done.objects().pop().unwrap_or_default();
    assert_eq!((done.code, &report["complete"]), (Some(1), &Value::Bool(false)), "{done}");
    let reasons = report["reasons"].as_array().unwrap();
    assert!(reasons.iter().any(|reason| reason.as_str().unwrap().contains("missing: ")), "{report}");
}

/// A demo that ends by itself, once mail comes in.
fn timed(mailroom: &TestInstallation, args: &[&str]) -> RunningProcess {
    let mut command = mailroom.command(PROGRAM, &[&["demo"], args].concat());
    let mut demo =
        RunningProcess::spawn(command.stdout(Stdio::piped()).stderr(fs::File::create(mailroom.path("told")).unwrap()));
    wait_until("mail comes in", || {
        assert!(!demo.has_ended(), "{}", told(mailroom));
        told(mailroom).contains("23 mailboxes")
    });
    demo
}

fn told(mailroom: &TestInstallation) -> String {
    fs::read_to_string(mailroom.path("told")).unwrap()
}

#[test]
fn demo_stopped_early_fails_and_cleans_up() {
    let mailroom = TestInstallation::sqlite();
    let demo = timed(&mailroom, &["--minutes", "60", "--emails", "0", "--rate", "3"]);
    // As if the terminal had been closed.
    let sent = Command::new("sh").args(["-c", &format!("kill -HUP {}", demo.id())]).status().unwrap();
    assert!(sent.success());

    let done = demo.finish();

    let told = told(&mailroom);
    assert_eq!(done.code, Some(1), "{told}");
    assert!(told.contains("stopped before anything was compared"), "{told}");
    let removed = told.split_whitespace().find(|word| word.contains("mailroom-demo-")).unwrap();
    assert!(told.contains("is removed") && !fs::exists(removed).unwrap(), "{told}");
}

#[test]
fn demo_needs_a_free_address() {
    let mailroom = TestInstallation::sqlite();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let args = ["demo", "--listen", &address, "--data-dir", "kept"];
    mailroom.run(&args).assert_refused(1, &["cannot listen on", &address, "--listen"]);
    assert!(!mailroom.path("kept").exists());
}

#[test]
fn contradictory_arguments_are_refused() {
    let mailroom = TestInstallation::sqlite();
    fs::write(mailroom.path("file"), "not a folder").unwrap();
    for args in [
        &["--emails", "10000000000"][..],
        &["--rate", "NaN"],
        &["--minutes", "-1"],
        &["--faults-per-second", "inf"],
        &["--once", "--minutes", "1"],
        &["--once", "--rate", "3"],
        &["--data-dir", "file"],
    ] {
        let done = mailroom.run(&[&["demo"], args].concat());
        assert_eq!(done.code, Some(2), "{args:?}: {done}");
        assert_eq!(done.text(), "", "{args:?}: {done}");
    }
}

/// The short form of `make soak`: what ends is bounded by work, not by a clock.
#[test]
fn soak_with_faults_leaks_nothing() {
    let mailroom = TestInstallation::sqlite();
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

    let done = mailroom.run(&args);

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
