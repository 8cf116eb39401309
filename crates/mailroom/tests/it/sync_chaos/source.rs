//! The provider of a storm: mailboxes that change all the while, and everything that providers do wrong.

use std::collections::BTreeMap;
use std::sync::Arc;

use domain::{Clock, SystemClock};
use sim::scripted::{Fault, Kind, NewAccount, Server, Truth, World};
use tokio::runtime::Runtime;

use crate::sim::get;

/// Different letters that its mail is made of; few, so that a run begins at once.
const LETTERS: usize = 60;

/// In each mailbox when it is connected: some pages of what was there before.
const MESSAGES: usize = 30;

/// Faults that need somebody to help afterwards, each on a mailbox of its own, so that all others must do without help.
pub const REFUSED: usize = 2;
pub const DENIED: usize = 6;
pub const FAILING: usize = 9;

pub struct Source {
    pub world: Arc<World>,
    server: Server,
    _runtime: Runtime,
}

pub fn address(number: usize) -> String {
    format!("box{number}@scripted.example")
}

impl Source {
    pub fn start(seed: u64, accounts: usize) -> Self {
        let world = Arc::new(World::new(seed, LETTERS, Arc::new(|| SystemClock.now())));
        for number in 1..=accounts {
            let (address, token) = (address(number), format!("token-{number}"));
            assert!(world.create(&NewAccount { address, token, messages: MESSAGES, seed: None }));
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let server = runtime.block_on(Server::start_here(world.clone())).unwrap();
        Self { world, server, _runtime: runtime }
    }

    pub fn url(&self) -> String {
        self.server.url()
    }

    /// From here on it changes and fails.
    pub fn begin(&self, changes_per_second: f64, latency_ms: u64) {
        // So that whoever is stopped is mostly stopped in the middle of a call.
        self.world.set_latency_ms(latency_ms);
        for fault in faults() {
            self.world.add_fault(fault);
        }
        self.world.set_rate(changes_per_second);
    }

    /// Nothing changes any more, and nothing fails; how often each fault came.
    pub fn heal(&self) -> BTreeMap<String, u64> {
        self.world.set_rate(0.0);
        let mut met: BTreeMap<String, u64> = BTreeMap::new();
        for fault in get(&self.server.address().to_string(), "/control/faults")["items"].as_array().unwrap() {
            *met.entry(fault["kind"].as_str().unwrap().to_owned()).or_default() += fault["fired"].as_u64().unwrap();
        }
        self.world.clear_faults();
        self.world.set_latency_ms(0);
        // It denied what it had: only a look at everything finds that out.
        self.expire_cursors(DENIED, false);
        met
    }

    pub fn expire_cursors(&self, number: usize, with_listings: bool) {
        self.world.with(&address(number), |account, _| account.expire_cursors(with_listings)).unwrap();
    }

    pub fn truth(&self, number: usize) -> Truth {
        self.world.truth(&address(number)).unwrap()
    }
}

/// All that it can do wrong.
fn faults() -> Vec<Fault> {
    let on = |number, fault| Fault { account: Some(address(number)), ..fault };
    let mut faults: Vec<Fault> = [
        (Kind::Throttled { retry_after: Some(1) }, 0.02),
        (Kind::Unavailable, 0.03),
        (Kind::Hang { ms: 1500 }, 0.02),
        (Kind::Cut, 0.02),
        (Kind::CutBody, 0.03),
        (Kind::Garbage, 0.02),
        (Kind::TruncatedJson, 0.03),
        (Kind::RepeatPage, 0.1),
        (Kind::ShortMessage { goes_on: false }, 0.03),
        (Kind::ShortMessage { goes_on: true }, 0.03),
        (Kind::Slow { bytes: 4000, ms: 20 }, 0.05),
    ]
    .map(|(kind, probability)| Fault::sometimes(kind, probability))
    .into();
    let message = sim::scripted::MessageId(MESSAGES as u64 / 2);
    faults.push(on(REFUSED, Fault::sometimes(Kind::Unauthorized, 0.1)));
    faults.push(on(DENIED, Fault::sometimes(Kind::Gone, 0.2)));
    faults.push(on(FAILING, Fault::always(Kind::FailingMessage { message, status: 500 })));
    faults
}
