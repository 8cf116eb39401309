//! Every fault at every call: how often it is asked, how long it waits, and what becomes of the mailbox and its data.
//!
//! All of them happen at once, to an account each, of a tenant each: what goes wrong for one must not show at another.

use domain::MailboxState;
use sim::google::{Fault, Kind, Operation, Route};
use store::Dialect;
use store::testing::on_each_database;

use super::scene::Scene;
use crate::scene::Owner;

const MESSAGES: usize = 6;

/// Seconds that the provider asks to wait.
const WAIT: u64 = 2;

/// What is to become of a mailbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
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
struct Row {
    route: Route,
    /// After the first sync, when something has happened.
    is_later: bool,
    kind: Kind,
    times: u64,
    end: End,
}

fn calls() -> Vec<(Route, bool)> {
    let first =
        [Route::Token, Route::Profile, Route::LabelsList, Route::MessagesList, Route::Batch, Route::MessagesGet];
    let later = [Route::HistoryList, Route::LabelsList, Route::Batch, Route::MessagesGet];
    first.into_iter().map(|route| (route, false)).chain(later.into_iter().map(|route| (route, true))).collect()
}

/// What each fault leads to, wherever it comes.
fn faults() -> Vec<(Kind, u64, End)> {
    use End::{NeedsReauth, Operator, Paused, Whole, WholeAfterWait};
    vec![
        (Kind::Throttled { retry_after: Some(WAIT) }, 1, WholeAfterWait),
        (Kind::Throttled { retry_after: None }, 2, Whole),
        (Kind::UserRateLimited { retry_after: Some(WAIT) }, 1, WholeAfterWait),
        (Kind::RateLimited { retry_after: None }, 1, Whole),
        (Kind::Unavailable { retry_after: Some(WAIT) }, 1, WholeAfterWait),
        (Kind::Unavailable { retry_after: None }, 2, Whole),
        (Kind::Internal, 1, Whole),
        (Kind::Hang { ms: 700 }, 1, Whole),
        (Kind::Cut, 2, Whole),
        (Kind::Reset, 1, Whole),
        (Kind::CutBody, 1, Whole),
        (Kind::Slow { bytes: 500, ms: 2 }, 1, Whole),
        (Kind::Garbage, 1, Whole),
        (Kind::TruncatedJson, 1, Whole),
        (Kind::DailyLimit, 0, Paused),
        (Kind::DomainPolicy, 0, NeedsReauth),
        (Kind::InsufficientPermissions, 0, NeedsReauth),
        (Kind::AccessNotConfigured, 0, Operator),
        (Kind::FailedPrecondition, 1, Whole),
        (Kind::Unauthorized, 1, Whole),
        (Kind::Unauthorized, 0, NeedsReauth),
        (Kind::NotFound, 1, Whole),
        (Kind::HistoryExpired, 1, Whole),
        (Kind::EmptyPage, 2, Whole),
        (Kind::Padded, 3, Whole),
        (Kind::MissingPart, 1, Whole),
        (Kind::ShuffledParts, 1, Whole),
        (Kind::Oauth { error: "invalid_grant".into(), status: 400 }, 0, NeedsReauth),
        (Kind::Oauth { error: "admin_policy_enforced".into(), status: 400 }, 0, NeedsReauth),
        (Kind::Oauth { error: "internal_failure".into(), status: 503 }, 1, Whole),
    ]
}

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (route, is_later) in calls() {
        for (kind, times, end) in faults() {
            if !sim::google::can_happen(&kind, route) {
                continue;
            }
            let end = match (&kind, route) {
                (Kind::NotFound, Route::MessagesGet) => End::OneFewer,
                _ => end,
            };
            rows.push(Row { route, is_later, kind, times, end });
        }
    }
    rows
}

impl Row {
    fn name(&self, n: usize) -> String {
        format!("row{n}")
    }

    fn strike(&self, scene: &Scene, address: &str) {
        let count = (self.times > 0).then_some(self.times);
        let (account, route) = (Some(address.to_owned()), Some(self.route));
        scene.world.add_fault(Fault { account, route, count, ..Fault::always(self.kind.clone()) });
    }

    fn said(&self) -> String {
        let when = if self.is_later { "later" } else { "first" };
        format!("{:?} at {} ({when}), {} times", self.kind, self.route.as_str(), self.times)
    }

    async fn check(&self, scene: &Scene, owner: &Owner) -> Result<(), String> {
        let (state, sync) = (scene.state(owner).await, scene.sync_state(owner).await);
        let told = format!("{}: {state:?}, {:?}, {:?}", self.said(), sync.last_error, sync.paused);
        let is = |is: bool, what: &str| if is { Ok(()) } else { Err(format!("{told}: {what}")) };
        is(self.is_asked_enough(scene, owner), "it is not asked as often as it should")?;
        let (stored, truth) = (scene.stored(owner).await, scene.truth(owner));
        match self.end {
            End::Whole | End::WholeAfterWait | End::OneFewer => {
                is(state == MailboxState::Active, "it should work")?;
                if self.end == End::OneFewer {
                    let messages = |lines: &std::collections::BTreeSet<String>| {
                        lines
                            .iter()
                            .filter_map(|line| line.split(' ').next().map(str::to_owned))
                            .collect::<std::collections::BTreeSet<_>>()
                            .len()
                    };
                    is(messages(&stored) + 1 == messages(&truth), "one should be gone")?;
                } else {
                    is(
                        stored == truth,
                        &format!("not all is there: {:?}", truth.symmetric_difference(&stored).next()),
                    )?;
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

    /// A fault that passes was met until it had passed. One that does not is met once; a token that is refused is followed by
    /// another, and of a batch every part may be refused.
    fn is_asked_enough(&self, scene: &Scene, owner: &Owner) -> bool {
        let is_it = |fault: &Fault| fault.account.as_deref() == Some(&*owner.address);
        let met = scene.world.faults().into_iter().filter(is_it).map(|fault| fault.fired).sum::<u64>();
        let (most, parts) = match (&self.kind, self.route) {
            (Kind::Unauthorized, _) => (2, MESSAGES as u64 + 1),
            _ => (1, MESSAGES as u64 + 1),
        };
        match (self.times, self.route) {
            (0, Route::MessagesGet) => (1..=most * parts).contains(&met),
            (0, _) => met == most,
            (times, _) => met == times,
        }
    }

    /// Between the refusal and the next call for this account there is the time that was asked for.
    fn check_wait(&self, scene: &Scene, owner: &Owner) -> Result<(), String> {
        let log = scene.requests(owner);
        let refused = log.iter().position(|entry| entry.route == self.route && entry.status >= 403);
        let refused = refused.ok_or_else(|| format!("{}: it was never refused", self.said()))?;
        // Parts of the same batch are answered at once.
        let is_after = |entry: &&sim::google::Entry| !entry.in_batch && entry.route != Route::Batch;
        let next = log[refused + 1..].iter().find(is_after).map_or(u64::MAX, |entry| entry.at_ms);
        let batch = log[refused + 1..].iter().filter(|entry| entry.route == Route::Batch).map(|entry| entry.at_ms);
        // The batch itself is written down after its parts.
        let batch = batch.filter(|at| *at > log[refused].at_ms + 500).min().unwrap_or(u64::MAX);
        let waited = next.min(batch).saturating_sub(log[refused].at_ms);
        let asked = WAIT * 1000;
        // What others of the same mailbox have begun before is not called back.
        match waited >= asked - 50 {
            true => Ok(()),
            false => Err(format!("{}: called again after {waited} ms: {:?}", self.said(), &log[refused..])),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_fault_at_every_call_ends_as_it_should() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        let mut owners = Vec::new();
        // What is recorded does not depend on the database; that it works on both, some of them show.
        let every = if scene.db.store.dialect() == Dialect::Sqlite { 1 } else { 10 };
        for (n, row) in rows().into_iter().enumerate().step_by(every) {
            let address = format!("{}@sim.example", row.name(n));
            if !row.is_later {
                row.strike(&scene, &address);
            }
            let owner = scene.connect(&row.name(n), MESSAGES).await;
            owners.push((row, owner));
        }
        scene.settle().await;
        for (row, owner) in owners.iter().filter(|(row, _)| row.is_later) {
            assert_eq!(scene.stored(owner).await, scene.truth(owner), "{}", row.said());
            row.strike(&scene, &owner.address);
            scene.world.apply(&owner.address, Operation::deliver()).unwrap();
            let id = scene.world.truth(&owner.address).unwrap().messages.keys().next().unwrap().clone();
            let (add, remove) = (vec!["STARRED".into()], Vec::new());
            scene.world.apply(&owner.address, Operation::Label { message: id, add, remove }).unwrap();
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
            assert_eq!(scene.requests(owner), [], "{}", row.said());
        }
    })
    .await;
}
