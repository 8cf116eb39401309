//! `mailroom serve` when one of its parts ends: it says so, finishes what it can, and ends for somebody to start it again.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use store::failpoint::VARIABLE;

use crate::place::{PROGRAM, Place, on_each_database};
use crate::processes::{Running, wait_until};
use crate::servers::closed_port;

fn serve(place: &Place, address: SocketAddr, failpoints: &str) -> Command {
    let mut command = place.command(PROGRAM, &["serve"]);
    command.env("MAILROOM_SERVER__LISTEN", address.to_string()).env(VARIABLE, failpoints).env("RUST_BACKTRACE", "0");
    command
}

fn address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], closed_port()))
}

/// The status code and the rest; nothing when nobody answers.
fn get(address: SocketAddr, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(30))).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some((answer.split(' ').nth(1)?.parse().ok()?, answer))
}

fn is_running(place: &Place) -> bool {
    !place.select("select kind from jobs where kind = 'probe' and state = 'running'").is_empty()
}

#[test]
fn when_the_scheduler_panics_no_more_is_sent_here_and_what_runs_is_finished() {
    on_each_database(|place| {
        place.ok(&["migrate"]);
        // Somebody else leads for now, so that the scheduler asks twice, some seconds apart.
        place.sql("insert into leases (name, holder, token, until) values ('scheduler', 'another', 1, '2999-01-01T00:00:00Z')");
        place.ok(&["jobs", "enqueue", "--kind", "probe", "--tenant", "system", "--payload", r#"{"sleep_ms":9000}"#]);
        let address = address();
        let mut server = Running::start(&mut serve(place, address, "before:take_lease=panic@2"));
        wait_until("the job runs", || is_running(place));

        wait_until("it is not ready any more", || {
            server.has_ended() || get(address, "/readyz").is_some_and(|a| a.0 == 503)
        });

        assert!(!server.has_ended(), "it first finishes what runs");
        assert_eq!(get(address, "/healthz").unwrap().0, 200);
        let (code, told) = server.finish_by_panic();
        assert_eq!(code, Some(1), "{told}");
        assert!(told.contains("error: the scheduler failed: "), "{told}");
        assert!(told.contains("the process ends, so that it is started anew"), "it is in the log as well: {told}");
        assert_eq!(place.select("select state from finished_jobs where kind = 'probe'"), ["done"]);
    });
}

#[test]
fn a_worker_that_panics_takes_the_process_with_it_and_its_jobs_come_back() {
    on_each_database(|place| {
        place.ok(&["migrate"]);
        place.ok(&["jobs", "enqueue", "--kind", "probe", "--tenant", "system", "--payload", "{}"]);

        let mut command = serve(place, address(), "after:claim_jobs=panic");
        let (code, told) = Running::start(command.env("MAILROOM_JOBS__LEASE", "1s")).finish_by_panic();

        assert_eq!(code, Some(1), "{told}");
        assert!(told.contains("error: the worker failed: "), "{told}");
        let address = address();
        let mut command = serve(place, address, "");
        let again = Running::start(command.env("MAILROOM_JOBS__LEASE", "1s"));
        wait_until("the job is done", || {
            !place.select("select state from finished_jobs where kind = 'probe' and state = 'done'").is_empty()
        });
        assert_eq!(get(address, "/readyz").unwrap().0, 200);
        again.terminate();
        assert_eq!(again.finish().code, Some(0));
    });
}
