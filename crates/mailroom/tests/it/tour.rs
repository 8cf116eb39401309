//! The tour in the README does what it says, command by command.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::installation::{PROGRAM, TestInstallation};
use crate::processes::{RunningProcess, wait_until};
use crate::servers::closed_port;

/// Returns the commands under this heading.
fn commands() -> String {
    let readme = fs::read_to_string("../../README.md").unwrap();
    let section = readme.split("### Five minutes over HTTP").nth(1).unwrap();
    section.split("```sh\n").nth(1).unwrap().split("```").next().unwrap().to_owned()
}

/// What `serve` prints on an empty folder works as it is pasted.
#[test]
fn first_start_prints_a_working_command() {
    let mailroom = TestInstallation::sqlite();
    let address = format!("127.0.0.1:{}", closed_port());
    let said = mailroom.path("said");
    let mut command = mailroom.command(PROGRAM, &["serve"]);
    command.env("MAILROOM_SERVER__LISTEN", &address).env("MAILROOM_LOG__LEVEL", "warn");
    command.stdout(Stdio::null()).stderr(fs::File::create(&said).unwrap());
    let _server = RunningProcess::spawn(&mut command);
    let mut told = String::new();
    wait_until("it says how to begin", || {
        told = fs::read_to_string(&said).unwrap();
        told.contains("acme") && told.ends_with('\n')
    });
    let curl = &told[told.find("  curl").unwrap()..];

    let done = Command::new("bash").args(["-c", &curl.replace("curl ", "curl -sS ")]).output().unwrap();
    let answer = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && answer.contains("\"name\":\"acme\""), "{curl}: {answer}");
    assert_eq!(curl.lines().count(), 3, "{curl}");
}

#[test]
fn readme_http_tour_works_as_pasted() {
    let mailroom = TestInstallation::sqlite();
    let folder = mailroom.path("tour");
    fs::create_dir(&folder).unwrap();
    let address = format!("127.0.0.1:{}", closed_port());
    let script = format!(
        "set -euo pipefail\ntrap 'kill %1; wait' EXIT\n{}",
        commands()
            .replace("localhost:8025", &address)
            .replace("sleep 2", &format!("until command curl -s {address}/healthz >/dev/null; do sleep 0.1; done"))
    );
    let programs = Path::new(PROGRAM).parent().unwrap().display().to_string();
    #[expect(clippy::disallowed_methods, reason = "bash and curl are where we find them")]
    let path = std::env::var_os("PATH").unwrap().into_string().unwrap();
    let done = Command::new("bash")
        .args(["-c", &script])
        .current_dir(&folder)
        .env("PATH", format!("{programs}:{path}"))
        .env("MAILROOM_SERVER__LISTEN", &address)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{said}\n{}", String::from_utf8_lossy(&done.stderr));
    for part in [
        "\"subject\":\"Invoice 7\"",
        "Please pay.",
        "whsec_",
        "\"type\":\"email.received\"",
        "\"action\":\"email.delete\"",
        "acme: 6 entries are intact",
    ] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
}
