//! Between us and the server: leaves out what a server might not offer, counts, and holds the traffic up.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Notify, Semaphore};

/// What becomes of a line of the server; it stays as long as it was.
pub type Rewrite = fn(&mut [u8]);

#[derive(Debug)]
pub struct Proxy {
    pub port: u16,
    shared: Arc<ProxyState>,
}

#[derive(Debug)]
struct ProxyState {
    rewrites: Mutex<Vec<Rewrite>>,
    bodies: AtomicUsize,
    /// A folder that nobody gets into.
    shut: Mutex<Option<&'static [u8]>>,
    /// Whoever asks for this waits at the gate.
    held: Mutex<&'static [u8]>,
    gate: Semaphore,
    asked: Notify,
}

/// More than anybody asks for.
const OPEN: usize = 1_000_000;

impl Proxy {
    pub async fn start(server: u16, rewrites: Vec<Rewrite>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (rewrites, bodies) = (Mutex::new(rewrites), AtomicUsize::new(0));
        let (held, gate, asked) = (Mutex::new(&b"BODY.PEEK[]"[..]), Semaphore::new(OPEN), Notify::new());
        let shared = Arc::new(ProxyState { rewrites, bodies, shut: Mutex::default(), held, gate, asked });
        let here = shared.clone();
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let far = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
                tokio::spawn(relay(near, far, here.clone()));
            }
        });
        Self { port, shared }
    }

    /// Messages that were asked for since the last time.
    pub fn take_bodies(&self) -> usize {
        self.shared.bodies.swap(0, Ordering::SeqCst)
    }

    pub async fn rewrite(&self, rewrites: Vec<Rewrite>) {
        *self.shared.rewrites.lock().await = rewrites;
    }

    /// From here on nobody gets into the folder, or everybody into all.
    pub async fn shut(&self, folder: Option<&'static [u8]>) {
        *self.shared.shut.lock().await = folder;
    }

    /// From here on nobody gets the bytes of a message before [`Proxy::release`].
    pub async fn hold_bodies(&self) {
        self.hold(b"BODY.PEEK[]").await;
    }

    /// The same for whatever has this in its command.
    pub async fn hold(&self, what: &'static [u8]) {
        *self.shared.held.lock().await = what;
        self.shared.gate.acquire_many(u32::try_from(OPEN).unwrap()).await.unwrap().forget();
    }

    pub async fn until_asked(&self) {
        self.shared.asked.notified().await;
    }

    pub fn release(&self) {
        self.shared.gate.add_permits(OPEN);
    }
}

async fn relay(near: TcpStream, far: TcpStream, shared: Arc<ProxyState>) {
    let (near_in, mut near_out) = near.into_split();
    let (far_in, mut far_out) = far.into_split();
    let here = shared.clone();
    let ours = async move {
        let (mut lines, mut line) = (BufReader::new(near_in), Vec::new());
        while lines.read_until(b'\n', &mut line).await.is_ok_and(|read| read > 0) {
            let held = *here.held.lock().await;
            if find(&line, held).is_some() && here.gate.available_permits() == 0 {
                here.asked.notify_one();
                drop(here.gate.acquire().await.unwrap());
            }
            if let Some(folder) = *here.shut.lock().await
                && find(&line, b"EXAMINE").is_some()
                && let Some(at) = find(&line, folder)
            {
                line[at..at + folder.len()].fill(b'_'); // there is none of that name
            }
            if far_out.write_all(&line).await.is_err() {
                break;
            }
            line.clear();
        }
        let _ = far_out.shutdown().await;
    };
    let theirs = async move {
        let (mut lines, mut line) = (BufReader::new(far_in), Vec::new());
        while lines.read_until(b'\n', &mut line).await.is_ok_and(|read| read > 0) {
            shared.bodies.fetch_add(usize::from(find(&line, b"BODY[] {").is_some()), Ordering::SeqCst);
            for rewrite in shared.rewrites.lock().await.iter() {
                rewrite(&mut line);
            }
            if near_out.write_all(&line).await.is_err() {
                break;
            }
            line.clear();
        }
        let _ = near_out.shutdown().await;
    };
    tokio::join!(ours, theirs);
}

fn find(line: &[u8], what: &[u8]) -> Option<usize> {
    line.windows(what.len()).position(|part| part == what)
}

fn replace(line: &mut [u8], what: &[u8], with: &[u8]) {
    assert_eq!(what.len(), with.len());
    while let Some(at) = find(line, what) {
        line[at..at + what.len()].copy_from_slice(with);
    }
}

/// A server that does not say what has disappeared.
pub fn without_qresync(line: &mut [u8]) {
    replace(line, b"QRESYNC", b"XRESYNC");
}

/// A server without modification numbers.
pub fn without_modseq(line: &mut [u8]) {
    without_qresync(line);
    replace(line, b"CONDSTORE", b"XONDSTORE");
    replace(line, b"HIGHESTMODSEQ", b"XIGHESTMODSEQ");
}

pub fn without_uid_validity(line: &mut [u8]) {
    replace(line, b"UIDVALIDITY", b"XIDVALIDITY");
}

/// Of up to eight messages only the first five are found.
pub fn short_searches(line: &mut [u8]) {
    replace(line, b"ALL 1:8", b"ALL 1:5");
}

/// Whoever asks for the third message gets one that nobody asked for.
pub fn hides_uid_three(line: &mut [u8]) {
    replace(line, b"UID 3 BODY[]", b"UID 9 BODY[]");
}

/// What is not there is not for us.
pub fn no_permission(line: &mut [u8]) {
    replace(line, b"[NONEXISTENT]", b"[NOPERM]     ");
}

/// The folder Work is in no list.
pub fn hides_work(line: &mut [u8]) {
    if find(line, b"Work").is_some() {
        replace(line, b"* LIST", b"* XIST");
        replace(line, b"* STATUS", b"* XTATUS");
    }
}

/// Nor is any other folder.
pub fn hides_all_folders(line: &mut [u8]) {
    replace(line, b"* LIST", b"* XIST");
    replace(line, b"* STATUS", b"* XTATUS");
}

/// As after a restore from a backup.
pub fn modseq_goes_back(line: &mut [u8]) {
    if let Some(at) = find(line, b"HIGHESTMODSEQ ") {
        let digits = line[at + 14..].iter_mut().take_while(|byte| byte.is_ascii_digit());
        for (n, digit) in digits.enumerate() {
            *digit = if n == 0 { b'1' } else { *digit };
        }
        replace(line, b"HIGHESTMODSEQ 1", b"HIGHESTMODSEQ 0");
    }
}
