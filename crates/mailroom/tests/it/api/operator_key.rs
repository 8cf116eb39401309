//! The operator's key, which the first server writes into a file.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use domain::Sha256;

use crate::http::serve;
use crate::installation::{CommandOutput, PROGRAM, TestInstallation};
use crate::processes::{RunningProcess, wait_until};
use crate::servers::closed_port;

#[test]
fn operator_key_is_created_once_for_its_owner_only() {
    let place = TestInstallation::postgres();
    place.ok(&["tenant", "create", "acme"]);
    let servers = [serve(&place), serve(&place), serve(&place)];
    let file = place.data_dir().join("admin.key");
    let key = fs::read_to_string(&file).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let hash = Sha256::of(key.trim().as_bytes()).hex();
    assert_eq!(place.select("select fingerprint from key_fingerprints where name = 'operator'"), [hash]);
    drop(servers);

    fs::remove_file(&file).unwrap();
    let (_server, _) = serve(&place);
    assert!(!file.exists(), "it is kept elsewhere");
}

/// Starts a server, stops it once it answers, and returns what it printed.
fn start_and_stop(place: &TestInstallation) -> CommandOutput {
    let mut command = place.command(PROGRAM, &["serve"]);
    let port = closed_port();
    command.env("MAILROOM_SERVER__LISTEN", format!("127.0.0.1:{port}")).stdout(Stdio::piped()).stderr(Stdio::piped());
    let server = RunningProcess::spawn(&mut command);
    wait_until("it answers", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    server.terminate();
    server.finish()
}

#[test]
fn key_file_of_another_database_is_not_announced() {
    let place = TestInstallation::sqlite();
    start_and_stop(&place).assert_tells("The operator's key is in");
    fs::write(place.data_dir().join("admin.key"), "mr_operator_another\n").unwrap();
    let other = start_and_stop(&place);
    other.assert_tells("is not the operator's key of this database");
    assert!(!other.stderr.contains("curl"), "{other}");
}
