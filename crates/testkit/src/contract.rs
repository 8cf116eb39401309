//! The promises that every connector keeps, as one suite. [`check`] runs it against an account at a (simulated) provider;
//! what is particular to the provider is in a small adapter, a [`ConnectorUnderTest`].

pub mod directory;
mod gmail;
mod imap;
mod jmap;
mod outlook;
pub mod replica;
mod world;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use domain::connector::{
    ApiAccess, ConnectorAccount, ConnectorFuture, Cursors, FetchRequest, ListedFolder, ListingPage, Placement,
};
use domain::{Connector, ConnectorError, MailboxId, Secret, SystemClock, TenantId};
use store::testing::wait_until;

pub use gmail::GmailUnderTest;
pub use imap::ImapUnderTest;
pub use jmap::{JmapUnderTest, jmap_flags};
pub use outlook::OutlookUnderTest;
pub use replica::{FetchedMessages, MailboxReplica};
pub use world::WorldUnderTest;

/// The wait that a throttled provider asks for.
pub const THROTTLE_WAIT: Duration = Duration::from_secs(7);

/// What goes wrong at the provider until [`ConnectorUnderTest::clear_faults`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContractFault {
    /// Every call is throttled, for [`THROTTLE_WAIT`] if the protocol can say so.
    Throttled,
    /// Now and then calls fail, connections end and answers are cut, garbled or too short, or have a value of another type.
    Flaky,
    /// Answers have what no document names, and listings have pages without items before the last.
    Unfamiliar,
}

/// What becomes of cursors that the provider has forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CursorExpiry {
    /// The connector answers [`ConnectorError::CursorExpired`], and everything has to be compared.
    Reported,
    /// The connector lists the affected folders anew by itself.
    Healed,
    /// The provider never forgets them.
    Never,
}

/// An account at a provider, and what a test can do to it.
pub trait ConnectorUnderTest: Sync {
    fn name(&self) -> &str;

    /// A connector with nothing in memory, as another process has it.
    fn connector(&self) -> Arc<dyn Connector>;

    fn account(&self) -> ConnectorAccount;

    /// The same account with credentials that the provider refuses.
    fn refused_account(&self) -> ConnectorAccount;

    /// Texts that no error may contain: address, tokens, passwords, hosts.
    fn confidential(&self) -> Vec<String>;

    /// Lets mail come, move, change and go, so many times.
    fn step(&self, changes: usize);

    /// A line for each placement, made by [`placement_line`].
    fn truth(&self) -> Vec<String>;

    /// What truth calls a folder.
    fn folder_key(&self, folder: &ListedFolder) -> String {
        folder.id.clone()
    }

    /// What truth calls the folders that the connector lists; `None`: it may list others as well.
    fn folder_keys(&self) -> Option<BTreeSet<String>> {
        None
    }

    /// Whether the size of every message is listed, and exact.
    fn lists_sizes(&self) -> bool {
        false
    }

    /// Whether the protocol can say how long to wait.
    fn says_retry_after(&self) -> bool {
        true
    }

    /// A replica of the account, with nothing in it.
    fn replica(&self) -> MailboxReplica {
        MailboxReplica::new(self.connector(), self.account())
    }

    /// Removes the message for good. `folder`: what truth calls the folder of its first placement.
    fn delete(&self, message: &FetchRequest, folder: &str);

    /// Makes the provider forget the cursors of changes, and says what the connector makes of that.
    fn expire_cursors(&self) -> CursorExpiry;

    fn inject(&self, fault: ContractFault);

    fn clear_faults(&self);

    /// Calls that did not agree with the provider's documents.
    fn violations(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The line that stands for a message in a folder. `uid`: its [`Placement::uid`].
pub fn placement_line(folder: &str, uid: &str, flags: &[impl AsRef<str>], sha256: &str) -> String {
    let flags: BTreeSet<&str> = flags.iter().map(AsRef::as_ref).collect();
    format!("{folder} {uid} {flags:?} {sha256}")
}

/// Fails unless the replica has every message, in its folders, with its flags and bytes, and no other; and if a call did
/// not agree with the provider's documents.
#[track_caller]
pub fn assert_replicated(under_test: &dyn ConnectorUnderTest, replica: &MailboxReplica) {
    let name = under_test.name();
    let copied: BTreeSet<String> = replica.lines(|folder| under_test.folder_key(folder)).into_iter().collect();
    let truth: BTreeSet<String> = under_test.truth().into_iter().collect();
    let (missing, surplus): (Vec<_>, Vec<_>) =
        (truth.difference(&copied).collect(), copied.difference(&truth).collect());
    assert!(missing.is_empty() && surplus.is_empty(), "{name}: missing {missing:#?}\nsurplus {surplus:#?}");
    if let Some(folders) = under_test.folder_keys() {
        let listed: BTreeSet<String> = replica.folders().values().map(|folder| under_test.folder_key(folder)).collect();
        assert_eq!(listed, folders, "{name}");
    }
    if under_test.lists_sizes() {
        assert_eq!(replica.misstated_sizes(), Vec::<&str>::new(), "{name}");
    }
    assert_eq!(under_test.violations(), Vec::<String>::new(), "{name}");
}

/// An account whose calls have this access.
pub fn account(address: &str, settings: String, secret: Option<&str>, access: Arc<dyn ApiAccess>) -> ConnectorAccount {
    ConnectorAccount {
        tenant: TenantId::new(&SystemClock),
        mailbox: MailboxId::new(&SystemClock),
        address: address.to_owned(),
        settings,
        secret: secret.map(|secret| Secret::new(secret.to_owned())),
        folders: Vec::new(),
        sweep_since: None,
        access,
    }
}

/// Access with a token that is always the same, and no quota.
#[derive(Debug)]
pub struct FixedToken(pub String);

impl ApiAccess for FixedToken {
    fn token<'a>(&'a self, refused: Option<&'a Secret<String>>) -> ConnectorFuture<'a, Secret<String>> {
        Box::pin(async move {
            if refused.is_some() {
                return Err(ConnectorError::Unauthorized("there is no other token".to_owned()));
            }
            Ok(Secret::new(self.0.clone()))
        })
    }
}

/// Runs the whole suite, one promise after the other, on the same account.
pub async fn check(under_test: &dyn ConnectorUnderTest) {
    let mut replica = under_test.replica();
    good_credentials_are_accepted(under_test).await;
    history_lists_every_message_once(under_test, &mut replica).await;
    history_resumes_from_any_cursor(under_test).await;
    listing_shows_every_placement(under_test, &replica).await;
    quiet_mailbox_lists_nothing(under_test, &mut replica).await;
    replica_follows_changes(under_test, &mut replica).await;
    listing_shows_every_placement(under_test, &replica).await;
    unfamiliar_answers_change_nothing(under_test, &mut replica).await;
    replica_survives_faults(under_test, &mut replica).await;
    removed_message_is_gone(under_test, &mut replica).await;
    throttled_call_says_when_to_retry(under_test).await;
    refused_credentials_are_unauthorized(under_test).await;
    expired_cursor_leads_to_a_comparison(under_test, &mut replica).await;
}

/// Fails if an error, as it goes into rows and logs, tells something confidential.
fn assert_confidential(under_test: &dyn ConnectorUnderTest, error: &ConnectorError) {
    let text = format!("{error} {error:?}");
    for confidential in under_test.confidential() {
        assert!(!text.contains(&confidential), "{}: {confidential:?} is in {text:?}", under_test.name());
    }
}

fn listed(page: &ListingPage) -> impl Iterator<Item = (String, String, String)> {
    let all = page.seen.iter().chain(&page.relisted).chain(&page.id_only);
    all.map(|seen| (seen.message.clone(), seen.placement.folder.clone(), seen.placement.uid.clone()))
}

async fn good_credentials_are_accepted(under_test: &dyn ConnectorUnderTest) {
    assert_eq!(under_test.connector().check(&under_test.account()).await, Ok(()), "{}", under_test.name());
}

async fn history_lists_every_message_once(under_test: &dyn ConnectorUnderTest, replica: &mut MailboxReplica) {
    replica.follow().await.unwrap();
    let mut placements = BTreeSet::new();
    let mut cursors = Cursors::new();
    loop {
        let page = replica.history(&mut cursors).await.unwrap();
        for placement in listed(&page) {
            assert!(placements.insert(placement.clone()), "{}: {placement:?} is listed twice", under_test.name());
        }
        if page.is_last {
            break;
        }
    }
    assert!(!placements.is_empty());
    replica.fetch().await.unwrap();
    // Messages that arrived while the first changes were listed may be left to the next ones.
    replica.sweep().await.unwrap();
    assert_replicated(under_test, replica);
}

/// Each page is listed once more from its cursor, by a connector that has seen nothing else.
async fn history_resumes_from_any_cursor(under_test: &dyn ConnectorUnderTest) {
    let mut replica = under_test.replica();
    replica.follow().await.unwrap();
    let (account, changes) = (&replica.account, &replica.changes);
    let mut cursors = Cursors::new();
    loop {
        let first = under_test.connector().history(account, &cursors, changes, None).await.unwrap();
        let again = under_test.connector().history(account, &cursors, changes, None).await.unwrap();
        let (first_listed, again_listed): (BTreeSet<_>, BTreeSet<_>) =
            (listed(&first).collect(), listed(&again).collect());
        assert_eq!(first_listed, again_listed, "{}: a page from the same cursor", under_test.name());
        first.move_cursors(&mut cursors);
        if first.is_last {
            return;
        }
    }
}

async fn listing_shows_every_placement(under_test: &dyn ConnectorUnderTest, replica: &MailboxReplica) {
    let (listed, placements) = (replica.listed().await.unwrap(), replica.placements());
    let differing: Vec<&Placement> = listed.symmetric_difference(&placements).collect();
    assert!(differing.is_empty(), "{}: {differing:#?}", under_test.name());
}

async fn quiet_mailbox_lists_nothing(under_test: &dyn ConnectorUnderTest, replica: &mut MailboxReplica) {
    assert_eq!(replica.follow().await, Ok(0), "{}: pages that list something", under_test.name());
}

async fn replica_follows_changes(under_test: &dyn ConnectorUnderTest, replica: &mut MailboxReplica) {
    for round in 0..40 {
        under_test.step(12);
        follow_round(replica, round).await.unwrap();
    }
    replica.sweep().await.unwrap();
    assert_replicated(under_test, replica);
}

/// Follows the changes, in every fifth round with a sweep.
async fn follow_round(replica: &mut MailboxReplica, round: usize) -> Result<usize, ConnectorError> {
    if round.is_multiple_of(5) { replica.sweep().await } else { replica.follow().await }
}

/// Providers add fields and responses without notice, and end pages where they like: no call fails for it.
async fn unfamiliar_answers_change_nothing(under_test: &dyn ConnectorUnderTest, replica: &mut MailboxReplica) {
    under_test.inject(ContractFault::Unfamiliar);
    assert_eq!(under_test.connector().check(&under_test.account()).await, Ok(()), "{}", under_test.name());
    for round in 0..10 {
        under_test.step(12);
        follow_round(replica, round).await.unwrap();
    }
    listing_shows_every_placement(under_test, replica).await;
    replica.sweep().await.unwrap();
    under_test.clear_faults();
    assert_replicated(under_test, replica);
}

/// Calls that fail are made again, as a sync does; content that came was whole.
async fn replica_survives_faults(under_test: &dyn ConnectorUnderTest, replica: &mut MailboxReplica) {
    under_test.inject(ContractFault::Flaky);
    let mut failed = 0;
    for round in 0..60 {
        under_test.step(12);
        // A connector that was asked to wait fails without a call until then, so only the time says that it hangs.
        wait_until("a round passes", async || {
            let Err(error) = follow_round(replica, round).await else { return true };
            assert_confidential(under_test, &error);
            let is_unexpected =
                matches!(error, ConnectorError::CursorExpired | ConnectorError::Gone | ConnectorError::Unauthorized(_));
            assert!(!is_unexpected, "{}: {error}", under_test.name());
            failed += 1;
            false
        })
        .await;
    }
    under_test.clear_faults();
    replica.sweep().await.unwrap();
    assert!(failed > 10, "{}: only {failed} calls failed", under_test.name());
    assert_replicated(under_test, replica);
}

async fn removed_message_is_gone(under_test: &dyn ConnectorUnderTest, replica: &mut MailboxReplica) {
    let (request, folder) = replica.any_message();
    under_test.delete(&request, &under_test.folder_key(folder));
    let mut fetched = FetchedMessages::default();
    let fetch = replica.connector.fetch(&replica.account, std::slice::from_ref(&request), &mut fetched).await;
    assert_eq!(fetch, Ok(()), "{}", under_test.name());
    assert_eq!(fetched.failed.get(&request.message), Some(&ConnectorError::Gone), "{}", under_test.name());
    assert!(fetched.whole.is_empty());
    drop(fetched);
    replica.sweep().await.unwrap();
    assert_replicated(under_test, replica);
}

async fn throttled_call_says_when_to_retry(under_test: &dyn ConnectorUnderTest) {
    under_test.inject(ContractFault::Throttled);
    let error = under_test.connector().changes(&under_test.account(), &Cursors::new()).await.unwrap_err();
    under_test.clear_faults();
    assert_confidential(under_test, &error);
    let retry_after = under_test.says_retry_after().then_some(THROTTLE_WAIT);
    assert_eq!(error, ConnectorError::Throttled { retry_after }, "{}", under_test.name());
}

async fn refused_credentials_are_unauthorized(under_test: &dyn ConnectorUnderTest) {
    let account = under_test.refused_account();
    let connector = under_test.connector();
    let error = connector.changes(&account, &Cursors::new()).await.unwrap_err();
    assert!(matches!(error, ConnectorError::Unauthorized(_)), "{}: {error:?}", under_test.name());
    assert_confidential(under_test, &error);
    let error = connector.check(&account).await.unwrap_err();
    assert!(matches!(error, ConnectorError::Unauthorized(_)), "{}: {error:?}", under_test.name());
    assert_confidential(under_test, &error);
}

async fn expired_cursor_leads_to_a_comparison(under_test: &dyn ConnectorUnderTest, replica: &mut MailboxReplica) {
    under_test.step(40);
    let expiry = under_test.expire_cursors();
    under_test.step(10);
    let followed = replica.sweep().await;
    if expiry == CursorExpiry::Reported {
        assert_eq!(followed, Err(ConnectorError::CursorExpired), "{}", under_test.name());
        replica.begin_again().await.unwrap();
    } else {
        followed.unwrap();
        assert_replicated(under_test, replica);
    }
    under_test.step(20);
    replica.compare().await.unwrap();
    replica.sweep().await.unwrap();
    assert_replicated(under_test, replica);
}
