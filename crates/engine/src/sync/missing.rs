//! What listings of a mailbox lack, and when it is removed. One answer that is too short must not delete mail.
//!
//! Where messages have no lasting ids, one that was moved, or whose folder was made anew, is missing here and new there. So
//! nothing is removed before all new messages are fetched, and bound by their bytes to the emails that they are.
//!
//! A folder is missing once two listings lack it, some time apart. What is missing is removed at once if it is little. If
//! it is much of the mailbox, that is doubted: nothing is removed until two comparisons of everything have agreed and a day
//! has passed, or a person says that it is true.

use std::time::Duration;

use domain::connector::{ConnectorAccount, ListingPage};
use domain::{ConnectorError, FolderRole, MailboxId};
use jiff::{SignedDuration, Timestamp};
use jobs::{Completion, JobContext, JobError};
use store::sql::sync::{HeldRemovals, MissingMail};
use store::{Precondition, StoreError};

use super::{LEASE_RETRY_DELAY, SyncMailbox, Syncer};

/// Fewer missing messages are never doubted: a person may well delete them at once.
const MIN_DOUBTED_MESSAGES: u64 = 10;

/// One in so many messages of a mailbox may be missing without a doubt.
const DOUBTED_FRACTION: u64 = 3;

/// How long a removal that is doubted is held back, at least.
const HOLD_TIME: SignedDuration = SignedDuration::from_hours(24);

/// Comparisons that must agree meanwhile.
const AGREEING_LOOKS: u64 = 2;

/// Time between them.
const LOOK_INTERVAL: Duration = Duration::from_secs(12 * 3600);

/// How long what is missing waits for new messages to be fetched. One that cannot be fetched must not keep it for ever.
const MAX_FETCH_WAIT: SignedDuration = SignedDuration::from_hours(24);

/// The shortest and the longest time between two checks whether they are fetched.
const FETCH_CHECK_DELAYS: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(30)];

/// The folders that a page reports as missing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct MissingFolders {
    /// No listing before lacked them, or only one a moment ago.
    pub unconfirmed: Vec<String>,
    pub confirmed: Vec<String>,
}

impl MissingFolders {
    /// Sorts the missing folders of a page. Fails if the inbox is one of them: every mailbox has one, so the listing is not
    /// whole.
    pub fn of(
        page: &ListingPage,
        account: &ConnectorAccount,
        now: Timestamp,
        second_look: Duration,
    ) -> Result<Self, ConnectorError> {
        let mut missing = Self::default();
        let has_inbox = page.folders.iter().any(|folder| folder.role == Some(FolderRole::Inbox));
        for id in &page.missing_folders {
            let known = account.folders.iter().find(|known| known.id == *id);
            if known.is_some_and(|known| known.role == Some(FolderRole::Inbox)) && !has_inbox {
                return Err(ConnectorError::Unavailable("the list of folders has no inbox".to_owned()));
            }
            match known.and_then(|known| known.missing_since) {
                Some(since) if is_past(since, second_look, now) => missing.confirmed.push(id.clone()),
                _ => missing.unconfirmed.push(id.clone()),
            }
        }
        Ok(missing)
    }

    pub fn is_empty(&self) -> bool {
        self.unconfirmed.is_empty() && self.confirmed.is_empty()
    }
}

fn is_past(since: Timestamp, time: Duration, now: Timestamp) -> bool {
    now.duration_since(since) >= SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX)
}

/// What becomes of missing mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RemovalDecision {
    Remove,
    /// Nothing is missing any more.
    Release,
    Hold,
}

fn decide(missing: &MissingMail) -> RemovalDecision {
    let is_doubted = is_doubted(missing.placements, missing.live_placements);
    match &missing.held {
        _ if missing.is_approved => RemovalDecision::Remove,
        None if is_doubted => RemovalDecision::Hold,
        None => RemovalDecision::Remove,
        Some(_) if missing.placements == 0 => RemovalDecision::Release,
        // Some of it is back: what is left is gone if a comparison has agreed since.
        Some(held) if !is_doubted && held.looks > 0 => RemovalDecision::Remove,
        Some(held) if held.looks >= AGREEING_LOOKS && missing.now.duration_since(held.since) >= HOLD_TIME => {
            RemovalDecision::Remove
        }
        Some(_) => RemovalDecision::Hold,
    }
}

fn is_doubted(missing: u64, live: u64) -> bool {
    missing >= MIN_DOUBTED_MESSAGES && missing.saturating_mul(DOUBTED_FRACTION) > live
}

/// Returns how long to wait for new messages that may be what is missing, or `None` if that is known. The longer it takes,
/// the longer it may take still.
fn wait_for_fetches(missing: &MissingMail) -> Option<Duration> {
    let waited = missing.now.duration_since(missing.missing_since?);
    let [shortest, longest] = FETCH_CHECK_DELAYS;
    let delay = Duration::try_from(waited / 10).unwrap_or_default().clamp(shortest, longest);
    (missing.is_fetching && waited < MAX_FETCH_WAIT).then_some(delay)
}

/// Returns why removals are held back, and what follows, as a sentence without its full stop.
pub fn explain_hold(held: &HeldRemovals) -> String {
    let until = held.since.checked_add(HOLD_TIME).unwrap_or(held.since).strftime("%Y-%m-%d %H:%M UTC");
    format!(
        "{} messages are missing at the provider since {}, which is much of the mailbox; they are kept until {until} and \
         until {AGREEING_LOOKS} comparisons have agreed ({} so far)",
        held.messages,
        held.since.strftime("%Y-%m-%d %H:%M UTC"),
        held.looks
    )
}

impl Syncer {
    /// Removes what listings of the mailbox lack, holds it back, or requests the listing that confirms it.
    pub(crate) async fn remove_missing(&self, ctx: &JobContext, mailbox: MailboxId) -> Result<Completion, JobError> {
        let store = self.engine.store.tenant(ctx.tenant());
        let Some(missing) = store.find_missing_mail(mailbox).await? else { return Ok(Completion::Done) };
        if missing.is_syncing {
            return Err(JobError::Deferred(LEASE_RETRY_DELAY));
        }
        if let Some(delay) = wait_for_fetches(&missing) {
            return Err(JobError::Deferred(delay));
        }
        let decision = decide(&missing);
        let mut unit = ctx.write();
        unit.expect_missing(mailbox, missing.placements);
        unit.guard_job(&ctx.job);
        match decision {
            RemovalDecision::Remove => unit.remove_missing(mailbox),
            RemovalDecision::Release => unit.release_removals(mailbox),
            RemovalDecision::Hold => unit.hold_removals(mailbox, missing.placements, LOOK_INTERVAL),
        }
        match unit.commit().await {
            // A sync has begun, or has found more to be missing.
            Err(StoreError::Precondition(Precondition::PlacementsChanged)) => {
                return Err(JobError::Deferred(LEASE_RETRY_DELAY));
            }
            committed => drop(committed?),
        }
        log_decision(ctx, mailbox, decision, &missing);
        self.request_second_look(ctx, mailbox, &missing)
    }

    /// Completes the job with a sync that confirms which folders are missing, once the time has come.
    fn request_second_look(
        &self,
        ctx: &JobContext,
        mailbox: MailboxId,
        missing: &MissingMail,
    ) -> Result<Completion, JobError> {
        let Some(since) = missing.unconfirmed_since else { return Ok(Completion::Done) };
        let age = Duration::try_from(missing.now.duration_since(since)).unwrap_or_default();
        match self.settings.second_look.checked_sub(age) {
            Some(wait) if !wait.is_zero() => Err(JobError::Deferred(wait)),
            _ => {
                let mut unit = ctx.write();
                unit.enqueue(vec![SyncMailbox::request_in(ctx, mailbox).map_err(anyhow::Error::from)?]);
                Ok(Completion::Commit(unit))
            }
        }
    }
}

fn log_decision(ctx: &JobContext, mailbox: MailboxId, decision: RemovalDecision, missing: &MissingMail) {
    if decision == RemovalDecision::Hold && missing.held.is_none() {
        tracing::warn!(
            tenant.id = %ctx.tenant(),
            mailbox.id = %mailbox,
            missing = missing.placements,
            of = missing.live_placements,
            "much of a mailbox is missing at its provider; nothing is removed before that is confirmed"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use domain::connector::{KnownFolder, ListedFolder, NoApiAccess};
    use domain::{SystemClock, TenantId};

    use super::*;

    fn at(hours: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_hours(hours)
    }

    fn known(id: &str, role: Option<FolderRole>, missing_since: Option<Timestamp>) -> KnownFolder {
        let (id, name) = (id.to_owned(), id.to_owned());
        KnownFolder { id, name, role, delimiter: None, uid_validity: None, is_in_scope: true, missing_since }
    }

    fn account(folders: Vec<KnownFolder>) -> ConnectorAccount {
        ConnectorAccount {
            tenant: TenantId::new(&SystemClock),
            mailbox: MailboxId::new(&SystemClock),
            address: String::new(),
            settings: String::new(),
            secret: None,
            folders,
            sweep_since: None,
            access: Arc::new(NoApiAccess),
        }
    }

    fn lacking(folders: &[&str]) -> ListingPage {
        let missing_folders = folders.iter().map(|id| (*id).to_owned()).collect();
        ListingPage { missing_folders, ..ListingPage::default() }
    }

    fn missing(placements: u64, held: Option<(u64, i64)>) -> MissingMail {
        let held = held.map(|(looks, hours)| HeldRemovals {
            since: at(100 - hours),
            messages: placements,
            looks,
            next_look_at: None,
            is_look_due: false,
        });
        MissingMail {
            now: at(100),
            is_syncing: false,
            is_approved: false,
            held,
            placements,
            live_placements: 60,
            missing_since: Some(at(99)),
            is_fetching: false,
            unconfirmed_since: None,
        }
    }

    #[test]
    fn second_look_confirms_only_after_its_time() {
        let account =
            account(vec![known("a", None, None), known("b", None, Some(at(1))), known("c", None, Some(at(2)))]);

        let sorted =
            MissingFolders::of(&lacking(&["a", "b", "c"]), &account, at(2), Duration::from_secs(3600)).unwrap();

        assert_eq!((sorted.unconfirmed, sorted.confirmed), (vec!["a".into(), "c".into()], vec!["b".into()]));
    }

    #[test]
    fn listing_without_the_inbox_is_refused() {
        let account = account(vec![known("old", Some(FolderRole::Inbox), Some(at(0)))]);
        let replaced = ListingPage {
            folders: vec![ListedFolder {
                id: "new".into(),
                name: "INBOX".into(),
                role: Some(FolderRole::Inbox),
                delimiter: None,
                uid_validity: None,
            }],
            ..lacking(&["old"])
        };

        let refused = MissingFolders::of(&lacking(&["old"]), &account, at(9), Duration::ZERO);
        assert!(matches!(refused, Err(ConnectorError::Unavailable(_))));
        assert!(MissingFolders::of(&replaced, &account, at(9), Duration::ZERO).is_ok());
    }

    #[test]
    fn much_missing_mail_waits_a_day_and_two_looks() {
        use RemovalDecision::{Hold, Release, Remove};
        for (placements, held, decision) in [
            (20, None, Remove),
            (21, None, Hold),
            (21, Some((2, 23)), Hold),
            (21, Some((1, 30)), Hold),
            (21, Some((2, 24)), Remove),
            (20, Some((0, 1)), Hold),
            (20, Some((1, 1)), Remove),
            (0, Some((0, 1)), Release),
        ] {
            assert_eq!(decide(&missing(placements, held)), decision, "{placements} {held:?}");
        }
        assert_eq!(decide(&MissingMail { is_approved: true, ..missing(60, Some((0, 0))) }), Remove);
    }

    fn fetching(hours: i64) -> MissingMail {
        MissingMail { is_fetching: true, missing_since: Some(at(100 - hours)), ..missing(1, None) }
    }

    #[test]
    fn missing_mail_waits_a_day_for_new_messages() {
        assert_eq!(wait_for_fetches(&missing(1, None)), None);
        assert_eq!(wait_for_fetches(&fetching(0)), Some(Duration::from_millis(200)));
        assert_eq!(wait_for_fetches(&fetching(23)), Some(Duration::from_secs(30)));
        assert_eq!(wait_for_fetches(&fetching(24)), None);
    }

    #[test]
    fn few_messages_are_not_doubted() {
        assert!(!is_doubted(9, 9) && is_doubted(10, 10) && !is_doubted(10, 30));
    }
}
