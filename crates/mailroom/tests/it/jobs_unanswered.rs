//! P4 on a bad network: a claim that was committed and never answered. Nobody knows of it but the database.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use domain::PlanTier;
use jobs::probe::Probe;

use crate::jobs_killed::{effects, enqueue, number, open, worker};
use crate::place::{Place, block_on};
use crate::processes::{Running, wait_until};

const PROBES: u64 = 20;

/// A piece of the statement that claims.
const CLAIM: &str = "mailroom_claim_jobs(";

/// As the wire has it: one message, in a packet of its own because it follows an answer.
const COMMIT: &[u8] = b"Q\0\0\0\x0bcommit\0";

/// Stands between a worker and its server and hangs up once: when a claim is committed, and before the answer.
struct Proxy {
    address: String,
    has_cut: Arc<AtomicBool>,
}

impl Proxy {
    fn before(upstream: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let has_cut = Arc::new(AtomicBool::new(false));
        let (upstream, cut) = (upstream.to_owned(), has_cut.clone());
        // Until the tests end; it costs nothing while nobody calls.
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

/// Whoever hangs up, both ends hear of it.
fn serve(client: &TcpStream, server: &TcpStream, has_cut: &AtomicBool) {
    let is_silent = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            pass_on(client, server, |asked| {
                let is_commit = asked.ends_with(COMMIT);
                let claims = is_commit && String::from_utf8_lossy(asked).contains(CLAIM);
                if claims && !has_cut.swap(true, Ordering::SeqCst) {
                    is_silent.store(true, Ordering::SeqCst);
                }
                if is_commit {
                    asked.clear();
                }
                true
            });
        });
        // The answer tells that it is committed; nobody else hears of it.
        scope.spawn(|| pass_on(server, client, |_| !is_silent.load(Ordering::SeqCst)));
    });
}

/// Until one of them hangs up, or `may_pass` refuses something. That is shown all that came since it last took it away.
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
fn what_a_worker_claimed_without_hearing_of_it_comes_back_long_before_the_lease_ends() {
    let place = Place::postgres();
    let store = open(&place);
    let tenant = block_on(store.system().create_tenant("acme", PlanTier::Standard)).unwrap().unwrap();
    block_on(enqueue(&store, tenant.id, (0..PROBES).map(|_| Probe::default())));
    let url = place.url().unwrap();
    let upstream = url.rsplit('@').next().unwrap().split('/').next().unwrap();
    let proxy = Proxy::before(upstream);

    let mut command = worker(&place, "");
    command.env("MAILROOM_DATABASE__URL", url.replace(upstream, &proxy.address)).env("MAILROOM_JOBS__LEASE", "600s");
    let mut running = Running::start(&mut command);

    wait_until("a claim is not answered", || running.has_ended() || proxy.has_cut.load(Ordering::SeqCst));
    assert!(!running.has_ended(), "{}", running.finish());
    wait_until("all is done", || effects(&place) == PROBES);
    // By the same worker, which never was taken for dead, and at nobody's expense.
    assert_eq!(number(&place, "select count(*) from job_workers where gone_at is null"), 1);
    assert_eq!(number(&place, "select count(*) from job_workers"), 1);
    let claimed_twice = number(&place, "select count(*) from finished_jobs where token = 2");
    assert!(claimed_twice > 0, "the claim that was not answered took nothing");
    assert_eq!(number(&place, "select count(*) from finished_jobs where attempt + abandoned > 0"), 0);
    assert_eq!(number(&place, "select count(*) from finished_jobs"), PROBES);
}
