//! The tour in the README does what it says, command by command.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::place::{PROGRAM, Place};
use crate::processes::{Running, wait_until};
use crate::servers::closed_port;

/// The commands under that heading.
fn commands() -> String {
    let readme = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).unwrap();
    let section = readme.split("### Five minutes over HTTP").nth(1).unwrap();
    section.split("```sh\n").nth(1).unwrap().split("```").next().unwrap().to_owned()
}

/// What `serve` prints on an empty folder works as it is pasted.
#[test]
fn the_first_words_of_a_server_are_a_command_that_works() {
    let place = Place::sqlite();
    let address = format!("127.0.0.1:{}", closed_port());
    let said = place.path("said");
    let mut command = place.command(PROGRAM, &["serve"]);
    command.env("MAILROOM_SERVER__LISTEN", &address).stdout(Stdio::null()).stderr(fs::File::create(&said).unwrap());
    let _server = Running::spawn(&mut command);
    let told = || fs::read_to_string(&said).unwrap();
    wait_until("it says how to begin", || told().contains("acme") && told().ends_with('\n'));
    let told = told();
    let curl = &told[told.find("  curl").unwrap()..];

    let done = Command::new("bash").args(["-c", &curl.replace("curl ", "curl -sS ")]).output().unwrap();
    let answer = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && answer.contains("\"name\":\"acme\""), "{curl}: {answer}");
    assert_eq!(curl.lines().count(), 3, "{curl}");
}

#[test]
fn the_five_minutes_over_http_are_as_pasted() {
    let place = Place::sqlite();
    let folder = place.path("tour");
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
        "acme: 5 entries are whole",
    ] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
}
