//! A TCP proxy between Mailroom and its mail server that cuts, delays and swallows connections.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{sleep, spawn};
use std::time::Duration;

use crate::crash::SeededRandom;

/// How long a swallowed connection is silent before it is closed.
const SWALLOWED_SILENCE: Duration = Duration::from_secs(3);

pub struct FaultyProxy {
    pub port: u16,
    state: Arc<ProxyState>,
}

struct ProxyState {
    server: u16,
    is_stormy: AtomicBool,
    random: Mutex<SeededRandom>,
    open: Mutex<Vec<TcpStream>>,
    cut: AtomicU32,
    slow: AtomicU32,
    swallowed: AtomicU32,
}

/// What happens to a connection.
#[derive(Clone, Copy)]
enum ConnectionFate {
    Works,
    /// It ends after so many bytes of the server.
    Cut(u64),
    /// Each chunk is delayed.
    Slow(Duration),
    /// After so many bytes of the server nothing arrives any more, without an error.
    Swallowed(u64),
}

impl FaultyProxy {
    pub fn start(server: u16, random: SeededRandom) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(ProxyState {
            server,
            is_stormy: AtomicBool::new(false),
            random: Mutex::new(random),
            open: Mutex::default(),
            cut: AtomicU32::new(0),
            slow: AtomicU32::new(0),
            swallowed: AtomicU32::new(0),
        });
        let here = state.clone();
        spawn(move || {
            for near in listener.incoming().flatten() {
                let here = here.clone();
                spawn(move || here.relay(&near));
            }
        });
        Self { port, state }
    }

    pub fn begin(&self) {
        self.state.is_stormy.store(true, Ordering::SeqCst);
    }

    /// Ends all faults, and closes the open connections, some of which are doomed. Returns what happened.
    pub fn clear_faults(&self) -> String {
        self.state.is_stormy.store(false, Ordering::SeqCst);
        for stream in self.state.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        let [cut, slow, swallowed] =
            [&self.state.cut, &self.state.slow, &self.state.swallowed].map(|count| count.load(Ordering::SeqCst));
        format!("connections: {cut} cut, {slow} slow, {swallowed} swallowed")
    }
}

impl ProxyState {
    fn fate(&self) -> ConnectionFate {
        if !self.is_stormy.load(Ordering::SeqCst) {
            return ConnectionFate::Works;
        }
        let mut random = self.random.lock().unwrap();
        let (random, bytes) = (random.below(10), random.below(60_000));
        match random {
            0..=3 => {
                self.cut.fetch_add(1, Ordering::SeqCst);
                ConnectionFate::Cut(bytes)
            }
            4 => {
                self.slow.fetch_add(1, Ordering::SeqCst);
                ConnectionFate::Slow(Duration::from_millis(5 + bytes / 1500))
            }
            5 => {
                self.swallowed.fetch_add(1, Ordering::SeqCst);
                ConnectionFate::Swallowed(bytes)
            }
            _ => ConnectionFate::Works,
        }
    }

    fn relay(&self, near: &TcpStream) {
        // A server that is just being restarted refuses: so do we.
        let Ok(far) = TcpStream::connect(("127.0.0.1", self.server)) else { return };
        self.open.lock().unwrap().push(near.try_clone().unwrap());
        let (from, to) = (near.try_clone().unwrap(), far.try_clone().unwrap());
        let asking = spawn(move || copy(from, to, ConnectionFate::Works));
        copy(far, near.try_clone().unwrap(), self.fate());
        let _ = near.shutdown(Shutdown::Both);
        asking.join().unwrap();
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, fate: ConnectionFate) {
    let mut piece = [0; 4096];
    let mut passed = 0;
    while let Ok(read @ 1..) = from.read(&mut piece) {
        let mut allowed = read;
        if let ConnectionFate::Cut(after) | ConnectionFate::Swallowed(after) = fate {
            allowed = usize::try_from(after - passed).unwrap_or(read).min(read);
        }
        if let ConnectionFate::Slow(pause) = fate {
            sleep(pause);
        }
        if to.write_all(&piece[..allowed]).is_err() {
            break;
        }
        passed += allowed as u64;
        if allowed < read {
            if let ConnectionFate::Swallowed(_) = fate {
                sleep(SWALLOWED_SILENCE);
            }
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
