//! Every fault at every call: how often it is asked, how long it waits, and what becomes of the mailbox and its data.
//!
//! All of them happen at once, to an account each, of a tenant each: what goes wrong for one must not show at another.

use std::collections::BTreeSet;
use std::fmt::Debug;

use domain::MailboxState;
use sim::Entry;
use sim::faults::{Failing, Fault};
use store::Dialect;
use store::testing::TestDatabase;

use crate::scene::{Owner, Scene, Simulated};

pub const MESSAGES: usize = 6;

/// Seconds that the provider asks to wait.
pub const WAIT: u64 = 2;

/// What is to become of a mailbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
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
pub struct Row<K: Failing> {
    pub route: K::Route,
    /// After the first sync, when something has happened.
    pub is_later: bool,
    pub kind: K,
    pub times: u64,
    pub end: End,
}

/// What a provider's table says beside its rows.
pub trait Tabled: Simulated {
    /// Calls that are made for one account at the same time, beside what is fetched.
    const AT_ONCE: usize;

    fn rows() -> Vec<Row<Self::Kind>>;

    /// Something happens, of which whoever follows has to ask everything that there is to ask.
    fn change(&self, address: &str);

    /// Of a call that is a part of another: how many of them there are at most.
    fn parts(route: RouteOf<Self>) -> Option<u64>;

    fn is_batch(route: RouteOf<Self>) -> bool;

    /// A token that is refused is followed by another.
    fn is_about_the_token(kind: &Self::Kind) -> bool;
}

type RouteOf<W> = <<W as Simulated>::Kind as Failing>::Route;

impl<K: Failing + Debug> Row<K> {
    fn strike<W: Tabled<Kind = K>>(&self, scene: &Scene<W>, address: &str) {
        let count = (self.times > 0).then_some(self.times);
        let (account, route) = (Some(address.to_owned()), Some(self.route));
        scene.world.add_fault(Fault { account, route, count, ..Fault::always(self.kind.clone()) });
    }

    fn said(&self) -> String {
        let when = if self.is_later { "later" } else { "first" };
        format!("{:?} at {:?} ({when}), {} times", self.kind, self.route, self.times)
    }

    async fn check<W: Tabled<Kind = K>>(&self, scene: &Scene<W>, owner: &Owner) -> Result<(), String> {
        let (state, sync) = (scene.state(owner).await, scene.sync_state(owner).await);
        let told = format!("{}: {state:?}, {:?}, {:?}", self.said(), sync.last_error, sync.paused);
        let is = |is: bool, what: &str| if is { Ok(()) } else { Err(format!("{told}: {what}")) };
        let met = self.met(scene, owner);
        is(self.is_asked_enough::<W>(met), &format!("it was met {met} times"))?;
        let (stored, truth) = (scene.stored(owner).await, scene.truth(owner));
        match self.end {
            End::Whole | End::WholeAfterWait | End::OneFewer => {
                is(state == MailboxState::Active, "it should work")?;
                if self.end == End::OneFewer {
                    is(messages(&stored) + 1 == messages(&truth), "one should be gone")?;
                } else {
                    let other = truth.symmetric_difference(&stored).next();
                    is(stored == truth, &format!("not all is there: {other:?}"))?;
                }
                if self.end == End::WholeAfterWait {
                    self.check_wait(scene, owner)?;
                }
            }
            End::NeedsReauth => is(state == MailboxState::NeedsReauth, "it should wait for its owner")?,
            End::Operator => {
                is(matches!(state, MailboxState::Connecting | MailboxState::Active), "its owner can do nothing")?;
                is(stored != truth, "nothing can have come")?;
            }
            End::Paused => is(sync.paused.is_some(), "it should say that it waits")?,
        }
        Ok(())
    }

    fn met<W: Tabled<Kind = K>>(&self, scene: &Scene<W>, owner: &Owner) -> u64 {
        let is_it = |fault: &Fault<K>| fault.account.as_deref() == Some(&*owner.address);
        scene.world.faults().into_iter().filter(is_it).map(|fault| fault.fired).sum()
    }

    /// A fault that passes was met until it had passed. One that does not is met once; a token that is refused is followed by
    /// another, and of a batch every part may be refused.
    fn is_asked_enough<W: Tabled<Kind = K>>(&self, met: u64) -> bool {
        let most = if W::is_about_the_token(&self.kind) { 2 } else { 1 };
        match (self.times, W::parts(self.route)) {
            (0, Some(parts)) => (1..=most * parts).contains(&met),
            (0, None) => met == most,
            (times, _) => met == times,
        }
    }

    /// Between the refusal and the next call for this account there is the time that was asked for.
    fn check_wait<W: Tabled<Kind = K>>(&self, scene: &Scene<W>, owner: &Owner) -> Result<(), String> {
        let log = scene.requests(owner);
        let refused = log.iter().position(|entry| entry.route == self.route && entry.status >= 403);
        let refused = refused.ok_or_else(|| format!("{}: it was never refused", self.said()))?;
        // Parts of the same batch are answered at once, and the batch itself is written down after them.
        let is_call = |entry: &&Entry<K::Route>| !entry.in_batch && !W::is_batch(entry.route);
        let is_soon = |entry: &Entry<K::Route>| entry.at_ms <= log[refused].at_ms + 500;
        // What has begun before is not called back.
        let under_way = log[refused + 1..].iter().filter(is_call).filter(|entry| is_soon(entry)).count();
        if under_way > W::AT_ONCE - 1 {
            return Err(format!("{}: called again {under_way} times at once", self.said()));
        }
        let next = log[refused + 1..].iter().filter(|entry| !entry.in_batch && !is_soon(entry));
        let waited = next.map(|entry| entry.at_ms).min().unwrap_or(u64::MAX).saturating_sub(log[refused].at_ms);
        match waited >= WAIT * 1000 - 50 {
            true => Ok(()),
            false => Err(format!("{}: called again after {waited} ms", self.said())),
        }
    }
}

fn messages(lines: &BTreeSet<String>) -> usize {
    lines.iter().filter_map(|line| line.split(' ').next()).collect::<BTreeSet<_>>().len()
}

pub async fn walk<W: Tabled>(db: TestDatabase) {
    let scene = Scene::<W>::new(db).await;
    let mut owners = Vec::new();
    // What is recorded does not depend on the database; that it works on both, some of them show. `make chaos` takes all.
    #[expect(clippy::disallowed_methods, reason = "`make chaos` says how much is asked for")]
    let is_all = std::env::var_os("MAILROOM_TEST_CHAOS_ROUNDS").is_some();
    let (first, every) = match scene.db.store.dialect() {
        Dialect::Sqlite => (0, if is_all { 1 } else { 2 }),
        Dialect::Postgres => (1, 10),
    };
    for (n, row) in W::rows().into_iter().enumerate().skip(first).step_by(every) {
        let name = format!("row{n}");
        if !row.is_later {
            row.strike(&scene, &format!("{name}@sim.example"));
        }
        let owner = scene.connect(&name, MESSAGES).await;
        owners.push((row, owner));
    }
    scene.settle().await;
    for (row, owner) in owners.iter().filter(|(row, _)| row.is_later) {
        assert_eq!(scene.stored(owner).await, scene.truth(owner), "{}", row.said());
        row.strike(&scene, &owner.address);
        scene.world.change(&owner.address);
        scene.db.run("update push_watches set sweep_since = mailroom_now()").await;
        scene.engine.request_sync(&owner.mailbox).await.unwrap();
    }
    scene.settle().await;
    let mut wrong = Vec::new();
    for (row, owner) in &owners {
        wrong.extend(row.check(&scene, owner).await.err());
    }
    assert!(wrong.is_empty(), "{} of {} rows:\n{}", wrong.len(), owners.len(), wrong.join("\n"));
    assert_eq!(scene.world.violations(), []);

    // Nobody calls for those who wait for their owners, whoever asks.
    scene.world.forget_requests();
    let waiting: Vec<_> = owners.iter().filter(|(row, _)| row.end == End::NeedsReauth).collect();
    assert!(!waiting.is_empty());
    for (_, owner) in &waiting {
        scene.engine.request_sync(&owner.mailbox).await.unwrap();
    }
    scene.settle().await;
    for (row, owner) in waiting {
        assert_eq!(scene.requests(owner).len(), 0, "{}", row.said());
    }
}
