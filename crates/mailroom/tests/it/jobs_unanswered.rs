//! P4 on a bad network: a claim that was committed and never answered, so that only the database knows of it.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use domain::PlanTier;
use jobs::probe::Probe;

use crate::installation::{TestInstallation, block_on};
use crate::jobs_killed::{effects, enqueue, number, open, worker};
use crate::processes::{RunningProcess, wait_until};

const PROBES: u64 = 20;

/// Part of the statement that claims jobs.
const CLAIM_FUNCTION: &str = "mailroom_claim_jobs(";

/// The message of a commit on the wire, which is in a packet of its own because it follows a response.
const COMMIT_MESSAGE: &[u8] = b"Q\0\0\0\x0bcommit\0";

/// A proxy between a worker and its PostgreSQL that closes the connection once: after a claim is committed, before the
/// response.
struct CuttingProxy {
    address: String,
    has_cut: Arc<AtomicBool>,
}

impl CuttingProxy {
    fn before(upstream: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let has_cut = Arc::new(AtomicBool::new(false));
        let (upstream, cut) = (upstream.to_owned(), has_cut.clone());
        // It runs until the tests end, and costs nothing without connections.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(&upstream) else { continue };
                let cut = cut.clone();
                thread::spawn(move || serve(&client, &server, &cut));
            }
        });
        Self { address, has_cut }
    }
}

/// Relays a connection; when one end closes, the other is closed too.
fn serve(client: &TcpStream, server: &TcpStream, has_cut: &AtomicBool) {
    let is_silent = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            pass_on(client, server, |asked| {
                let is_commit = asked.ends_with(COMMIT_MESSAGE);
                let claims = is_commit && String::from_utf8_lossy(asked).contains(CLAIM_FUNCTION);
                if claims && !has_cut.swap(true, Ordering::SeqCst) {
                    is_silent.store(true, Ordering::SeqCst);
                }
                if is_commit {
                    asked.clear();
                }
                true
            });
        });
        // The response says that it is committed, and does not arrive.
        scope.spawn(|| pass_on(server, client, |_| !is_silent.load(Ordering::SeqCst)));
    });
}

/// Copies bytes until one end closes, or `may_pass` refuses them; it gets all bytes since it last removed them.
fn pass_on(mut from: &TcpStream, mut to: &TcpStream, mut may_pass: impl FnMut(&mut Vec<u8>) -> bool) {
    let (mut bytes, mut seen) = ([0; 65_536], Vec::new());
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        seen.extend_from_slice(&bytes[..count]);
        if !may_pass(&mut seen) || to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    for stream in [from, to] {
        let _ = stream.shutdown(Shutdown::Both); // the other one may have done it
    }
}

#[test]
fn unanswered_claim_is_returned_before_its_lease_ends() {
    let mailroom = TestInstallation::postgres();
    let store = open(&mailroom);
    let tenant = block_on(store.system().create_tenant("acme", PlanTier::Standard)).unwrap().unwrap();
    block_on(enqueue(&store, tenant.id, (0..PROBES).map(|_| Probe::default())));
    let url = mailroom.url().unwrap();
    let upstream = url.rsplit('@').next().unwrap().split('/').next().unwrap();
    let proxy = CuttingProxy::before(upstream);

    let mut command = worker(&mailroom, "");
    command.env("MAILROOM_DATABASE__URL", url.replace(upstream, &proxy.address)).env("MAILROOM_JOBS__LEASE", "600s");
    let mut running = RunningProcess::start(&mut command);

    wait_until("a claim is not answered", || running.has_ended() || proxy.has_cut.load(Ordering::SeqCst));
    assert!(!running.has_ended(), "{}", running.finish());
    wait_until("all is done", || effects(&mailroom) == PROBES);
    // By the same worker, which was never taken for dead, and without an attempt spent.
    assert_eq!(number(&mailroom, "select count(*) from job_workers where gone_at is null"), 1);
    assert_eq!(number(&mailroom, "select count(*) from job_workers"), 1);
    let claimed_twice = number(&mailroom, "select count(*) from finished_jobs where token = 2");
    assert!(claimed_twice > 0, "the claim that was not answered took nothing");
    assert_eq!(number(&mailroom, "select count(*) from finished_jobs where attempt + abandoned > 0"), 0);
    assert_eq!(number(&mailroom, "select count(*) from finished_jobs"), PROBES);
}
