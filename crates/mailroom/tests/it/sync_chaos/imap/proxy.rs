//! Between Mailroom and its mail server: a network on which everything can happen.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{sleep, spawn};
use std::time::Duration;

use crate::crash::Random;

/// Whoever hears nothing for so long in a black hole is cut off in the end.
const BLACK_HOLE: Duration = Duration::from_secs(3);

pub struct Proxy {
    pub port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    server: u16,
    is_stormy: AtomicBool,
    random: Mutex<Random>,
    open: Mutex<Vec<TcpStream>>,
    cut: AtomicU32,
    slow: AtomicU32,
    swallowed: AtomicU32,
}

/// What becomes of a connection.
#[derive(Clone, Copy)]
enum Fate {
    Works,
    /// After so many bytes of the server, wherever that is.
    Cut(u64),
    /// Each piece waits.
    Slow(Duration),
    /// After so many bytes of the server nothing comes any more, and nobody says so.
    Swallowed(u64),
}

impl Proxy {
    pub fn start(server: u16, random: Random) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            server,
            is_stormy: AtomicBool::new(false),
            random: Mutex::new(random),
            open: Mutex::default(),
            cut: AtomicU32::new(0),
            slow: AtomicU32::new(0),
            swallowed: AtomicU32::new(0),
        });
        let here = shared.clone();
        spawn(move || {
            for near in listener.incoming().flatten() {
                let here = here.clone();
                spawn(move || here.relay(&near));
            }
        });
        Self { port, shared }
    }

    pub fn begin(&self) {
        self.shared.is_stormy.store(true, Ordering::SeqCst);
    }

    /// From here on everything works; what was open is closed, for some of it is doomed.
    pub fn heal(&self) -> String {
        self.shared.is_stormy.store(false, Ordering::SeqCst);
        for stream in self.shared.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        let count = |number: &AtomicU32| number.load(Ordering::SeqCst);
        let Shared { cut, slow, swallowed, .. } = &*self.shared;
        format!("connections: {} cut, {} slow, {} swallowed", count(cut), count(slow), count(swallowed))
    }
}

impl Shared {
    fn fate(&self) -> Fate {
        if !self.is_stormy.load(Ordering::SeqCst) {
            return Fate::Works;
        }
        let mut random = self.random.lock().unwrap();
        let (dice, bytes) = (random.below(10), random.below(60_000));
        let count = |number: &AtomicU32| number.fetch_add(1, Ordering::SeqCst);
        match dice {
            0..=3 => {
                count(&self.cut);
                Fate::Cut(bytes)
            }
            4 => {
                count(&self.slow);
                Fate::Slow(Duration::from_millis(5 + bytes / 1500))
            }
            5 => {
                count(&self.swallowed);
                Fate::Swallowed(bytes)
            }
            _ => Fate::Works,
        }
    }

    fn relay(&self, near: &TcpStream) {
        // A server that is just being restarted refuses: so do we.
        let Ok(far) = TcpStream::connect(("127.0.0.1", self.server)) else { return };
        self.open.lock().unwrap().push(near.try_clone().unwrap());
        let (from, to) = (near.try_clone().unwrap(), far.try_clone().unwrap());
        let asking = spawn(move || copy(from, to, Fate::Works));
        copy(far, near.try_clone().unwrap(), self.fate());
        let _ = near.shutdown(Shutdown::Both);
        asking.join().unwrap();
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, fate: Fate) {
    let mut piece = [0; 4096];
    let mut passed = 0;
    while let Ok(read @ 1..) = from.read(&mut piece) {
        let mut allowed = read;
        if let Fate::Cut(after) | Fate::Swallowed(after) = fate {
            allowed = usize::try_from(after - passed).unwrap_or(read).min(read);
        }
        if let Fate::Slow(pause) = fate {
            sleep(pause);
        }
        if to.write_all(&piece[..allowed]).is_err() {
            break;
        }
        passed += allowed as u64;
        if allowed < read {
            if let Fate::Swallowed(_) = fate {
                sleep(BLACK_HOLE);
            }
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
