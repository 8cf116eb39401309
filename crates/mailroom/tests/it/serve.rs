//! `mailroom serve` when one of its parts panics: it logs that, finishes what it can, and exits to be started again.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use store::failpoint::VARIABLE;

use crate::installation::{PROGRAM, TestInstallation, on_each_database};
use crate::processes::{RunningProcess, wait_until};
use crate::servers::closed_port;

fn serve(mailroom: &TestInstallation, address: SocketAddr, failpoints: &str) -> Command {
    let mut command = mailroom.command(PROGRAM, &["serve"]);
    command.env("MAILROOM_SERVER__LISTEN", address.to_string()).env(VARIABLE, failpoints).env("RUST_BACKTRACE", "0");
    // Its log is a pipe that is not read while it runs, and a line per request would fill it.
    command.env("MAILROOM_LOG__LEVEL", "warn");
    command
}

fn address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], closed_port()))
}

/// Returns status code and body; `None` without a response.
fn get(address: SocketAddr, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(30))).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some((answer.split(' ').nth(1)?.parse().ok()?, answer))
}

fn is_running(mailroom: &TestInstallation) -> bool {
    !mailroom.select("select kind from jobs where kind = 'probe' and state = 'running'").is_empty()
}

#[test]
fn scheduler_panic_drains_the_process() {
    on_each_database(|mailroom| {
        mailroom.ok(&["migrate"]);
        // Another process leads for now, so that the scheduler asks twice, some seconds apart.
        mailroom.sql("insert into leases (name, holder, token, until) values ('scheduler', 'another', 1, '2999-01-01T00:00:00Z')");
        mailroom.ok(&["jobs", "enqueue", "--kind", "probe", "--tenant", "system", "--payload", r#"{"sleep_ms":9000}"#]);
        let address = address();
        let mut server = RunningProcess::start(&mut serve(mailroom, address, "before:take_lease=panic@2"));
        wait_until("the job runs", || is_running(mailroom));

        wait_until("it is not ready any more", || {
            server.has_ended() || get(address, "/readyz").is_some_and(|a| a.0 == 503)
        });

        assert!(!server.has_ended(), "it first finishes what runs");
        assert_eq!(get(address, "/healthz").unwrap().0, 200);
        let (code, told) = server.finish_by_panic();
        assert_eq!(code, Some(1), "{told}");
        assert!(told.contains("error: the scheduler failed: "), "{told}");
        assert!(told.contains("stopping: a service task ended"), "it is in the log as well: {told}");
        assert_eq!(mailroom.select("select state from finished_jobs where kind = 'probe'"), ["done"]);
    });
}

#[test]
fn worker_panic_ends_the_process() {
    on_each_database(|mailroom| {
        mailroom.ok(&["migrate"]);
        mailroom.ok(&["jobs", "enqueue", "--kind", "probe", "--tenant", "system", "--payload", "{}"]);

        let mut command = serve(mailroom, address(), "after:claim_jobs=panic");
        let (code, told) = RunningProcess::start(command.env("MAILROOM_JOBS__LEASE", "1s")).finish_by_panic();

        assert_eq!(code, Some(1), "{told}");
        assert!(told.contains("error: the worker failed: "), "{told}");
        let address = address();
        let mut command = serve(mailroom, address, "");
        let again = RunningProcess::start(command.env("MAILROOM_JOBS__LEASE", "1s"));
        wait_until("the job is done", || {
            !mailroom.select("select state from finished_jobs where kind = 'probe' and state = 'done'").is_empty()
        });
        assert_eq!(get(address, "/readyz").unwrap().0, 200);
        again.terminate();
        assert_eq!(again.finish().code, Some(0));
    });
}
