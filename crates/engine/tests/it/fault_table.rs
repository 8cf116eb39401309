//! Every fault at every call: how often it is asked, how long it waits, and what becomes of the mailbox and its data.
//!
//! All of them happen at once, to an account each, of a tenant each: what goes wrong for one must not show at another.

use std::collections::BTreeSet;
use std::fmt::Debug;

use domain::MailboxState;
use sim::RequestLogEntry;
use sim::faults::{FaultKind, FaultRule};
use store::Dialect;
use store::testing::TestDatabase;
use testkit::simulated::{AccountOwner, SimulatedApp, SimulatedProvider};

pub const MESSAGES_PER_ACCOUNT: usize = 6;

/// Seconds that the provider asks to wait.
pub const RETRY_AFTER_SECONDS: u64 = 2;

/// How a mailbox ends after a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultOutcome {
    /// All is there, and it works.
    Whole,
    /// The same, and the provider was left alone for as long as it said.
    WholeAfterWait,
    /// The same, without the message that was said to be gone.
    OneFewer,
    /// Its owner has to do something, and nobody calls for it any more.
    NeedsReauth,
    /// It waits for an operator, as it is.
    Operator,
    /// It waits for a day's quota, and says so.
    Paused,
}

/// A fault, and how often it comes; 0: always.
pub struct FaultCase<K: FaultKind> {
    pub route: K::Route,
    /// After the first sync, when something has happened.
    pub is_later: bool,
    pub kind: K,
    pub times: u64,
    pub end: FaultOutcome,
}

/// A provider with its table of faults.
pub trait FaultTable: SimulatedProvider {
    /// Calls that are made for one account at the same time, beside what is fetched.
    const CONCURRENT_CALLS: usize;

    fn rows() -> Vec<FaultCase<Self::Fault>>;

    /// Something happens, of which whoever follows has to ask everything that there is to ask.
    fn change(&self, address: &str);

    /// Of a call that is a part of another: how many of them there are at most.
    fn parts(route: RouteOf<Self>) -> Option<u64>;

    fn is_batch(route: RouteOf<Self>) -> bool;

    /// A token that is refused is followed by another.
    fn is_about_the_token(kind: &Self::Fault) -> bool;
}

type RouteOf<W> = <<W as SimulatedProvider>::Fault as FaultKind>::Route;

impl<K: FaultKind + Debug> FaultCase<K> {
    fn inject<W: FaultTable<Fault = K>>(&self, app: &SimulatedApp<W>, address: &str) {
        let count = (self.times > 0).then_some(self.times);
        let (account, route) = (Some(address.to_owned()), Some(self.route));
        app.world.add_fault(FaultRule { account, route, count, ..FaultRule::always(self.kind.clone()) });
    }

    fn describe(&self) -> String {
        let when = if self.is_later { "later" } else { "first" };
        format!("{:?} at {:?} ({when}), {} times", self.kind, self.route, self.times)
    }

    async fn check<W: FaultTable<Fault = K>>(&self, app: &SimulatedApp<W>, owner: &AccountOwner) -> Result<(), String> {
        let (state, sync) = (app.state(owner).await, app.sync_state(owner).await);
        let case = format!("{}: {state:?}, {:?}, {:?}", self.describe(), sync.last_error, sync.paused);
        let met = self.met(app, owner);
        ensure(&case, self.is_asked_enough::<W>(met), &format!("it was met {met} times"))?;
        let (stored, truth) = (app.stored(owner).await, app.truth(owner));
        match self.end {
            FaultOutcome::Whole | FaultOutcome::WholeAfterWait | FaultOutcome::OneFewer => {
                ensure(&case, state == MailboxState::Active, "it should work")?;
                if self.end == FaultOutcome::OneFewer {
                    ensure(&case, messages(&stored) + 1 == messages(&truth), "one should be gone")?;
                } else {
                    let other = truth.symmetric_difference(&stored).next();
                    ensure(&case, stored == truth, &format!("not all is there: {other:?}"))?;
                }
                if self.end == FaultOutcome::WholeAfterWait {
                    self.check_wait(app, owner)?;
                }
            }
            FaultOutcome::NeedsReauth => {
                ensure(&case, state == MailboxState::NeedsReauth, "it should wait for its owner")?;
            }
            FaultOutcome::Operator => {
                ensure(
                    &case,
                    matches!(state, MailboxState::Connecting | MailboxState::Active),
                    "its owner can do nothing",
                )?;
                ensure(&case, stored != truth, "nothing can have come")?;
            }
            FaultOutcome::Paused => ensure(&case, sync.paused.is_some(), "it should say that it waits")?,
        }
        Ok(())
    }

    fn met<W: FaultTable<Fault = K>>(&self, app: &SimulatedApp<W>, owner: &AccountOwner) -> u64 {
        let faults = app.world.faults().into_iter();
        faults.filter(|fault| fault.account.as_deref() == Some(&*owner.address)).map(|fault| fault.fired).sum()
    }

    /// A fault that passes was met until it had passed. One that does not is met once; a token that is refused is followed by
    /// another, and of a batch every part may be refused.
    fn is_asked_enough<W: FaultTable<Fault = K>>(&self, met: u64) -> bool {
        let most = if W::is_about_the_token(&self.kind) { 2 } else { 1 };
        match (self.times, W::parts(self.route)) {
            (0, Some(parts)) => (1..=most * parts).contains(&met),
            (0, None) => met == most,
            (times, _) => met == times,
        }
    }

    /// Between the refusal and the next call for this account there is the time that was asked for.
    fn check_wait<W: FaultTable<Fault = K>>(&self, app: &SimulatedApp<W>, owner: &AccountOwner) -> Result<(), String> {
        let log = app.requests(owner);
        let refused = log.iter().position(|entry| entry.route == self.route && entry.status >= 403);
        let refused = refused.ok_or_else(|| format!("{}: it was never refused", self.describe()))?;
        // Parts of the same batch are answered at once, and the batch itself is written down after them.
        let is_call = |entry: &&RequestLogEntry<K::Route>| !entry.in_batch && !W::is_batch(entry.route);
        let is_soon = |entry: &RequestLogEntry<K::Route>| entry.at_ms <= log[refused].at_ms + 500;
        // What has begun before is not called back.
        let under_way = log[refused + 1..].iter().filter(is_call).filter(|entry| is_soon(entry)).count();
        if under_way > W::CONCURRENT_CALLS - 1 {
            return Err(format!("{}: called again {under_way} times at once", self.describe()));
        }
        let next = log[refused + 1..].iter().filter(|entry| !entry.in_batch && !is_soon(entry));
        let waited = next.map(|entry| entry.at_ms).min().unwrap_or(u64::MAX).saturating_sub(log[refused].at_ms);
        if waited < RETRY_AFTER_SECONDS * 1000 - 50 {
            return Err(format!("{}: called again after {waited} ms", self.describe()));
        }
        Ok(())
    }
}

fn ensure(case: &str, is_so: bool, what: &str) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(format!("{case}: {what}")) }
}

fn messages(lines: &BTreeSet<String>) -> usize {
    lines.iter().filter_map(|line| line.split(' ').next()).collect::<BTreeSet<_>>().len()
}

pub async fn run_fault_table<W: FaultTable>(db: TestDatabase) {
    let app = SimulatedApp::<W>::new(db).await;
    let mut owners = Vec::new();
    // What is recorded does not depend on the database; that it works on both, some of them show. `make chaos` takes all.
    #[expect(clippy::disallowed_methods, reason = "`make chaos` says how much is asked for")]
    let is_all = std::env::var_os("MAILROOM_TEST_CHAOS_ROUNDS").is_some();
    let (first, every) = match app.db.store.dialect() {
        Dialect::Sqlite => (0, if is_all { 1 } else { 2 }),
        Dialect::Postgres => (1, 10),
    };
    for (n, row) in W::rows().into_iter().enumerate().skip(first).step_by(every) {
        let name = format!("row{n}");
        if !row.is_later {
            row.inject(&app, &format!("{name}@sim.example"));
        }
        let owner = app.connect(&name, MESSAGES_PER_ACCOUNT).await;
        owners.push((row, owner));
    }
    app.run_jobs_until_idle().await;
    for (row, owner) in owners.iter().filter(|(row, _)| row.is_later) {
        assert_eq!(app.stored(owner).await, app.truth(owner), "{}", row.describe());
        row.inject(&app, &owner.address);
        app.world.change(&owner.address);
        app.db.run("update push_watches set sweep_since = mailroom_now()").await;
        app.engine.request_sync(&owner.mailbox).await.unwrap();
    }
    app.run_jobs_until_idle().await;
    let mut wrong = Vec::new();
    for (row, owner) in &owners {
        wrong.extend(row.check(&app, owner).await.err());
    }
    assert!(wrong.is_empty(), "{} of {} rows:\n{}", wrong.len(), owners.len(), wrong.join("\n"));
    assert_eq!(app.world.violations(), []);

    // Nobody calls for those who wait for their owners, whoever asks.
    app.world.clear_requests();
    let waiting: Vec<_> = owners.iter().filter(|(row, _)| row.end == FaultOutcome::NeedsReauth).collect();
    assert!(!waiting.is_empty());
    for (_, owner) in &waiting {
        app.engine.request_sync(&owner.mailbox).await.unwrap();
    }
    app.run_jobs_until_idle().await;
    for (row, owner) in waiting {
        assert_eq!(app.requests(owner).len(), 0, "{}", row.describe());
    }
    // Mailboxes that wait for an operator or a quota keep their jobs; of which kinds depends on the rows that were taken.
    app.may_leave_jobs(&["fetch_emails", "list_history", "list_mailbox", "sync_mailbox"]);
    app.finish().await;
}
