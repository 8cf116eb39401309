//! The promises that every connector with a directory keeps: what it lists of an organisation's people and groups is what
//! is there. [`check_directory`] runs them against an organisation at a simulated provider.

mod google;
mod microsoft;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use domain::connector::{ConnectorAccount, Cursors, NoApiAccess};
use domain::{Connector, ConnectorError, DirectoryPerson};
use serde_json::Value;
use sim::people::{NewPerson, OrganisationTruth, PeopleOperation, PersonChange, PersonState, PersonTruth};

pub use google::GoogleDirectoryUnderTest;
pub use microsoft::MicrosoftDirectoryUnderTest;

use super::{FixedToken, account};

/// An organisation at a provider, with people `user1`, `user2` and so on.
pub trait DirectoryUnderTest: Sync {
    fn name(&self) -> &'static str;

    /// The domain of its addresses.
    fn domain(&self) -> &'static str;

    fn connector(&self) -> &dyn Connector;

    /// Address and settings of an account that may read people and groups.
    fn reader(&self) -> (String, Value);

    fn truth(&self) -> OrganisationTruth;

    /// Applies the operation. Returns the id of the person whom it concerns, if there is one.
    fn apply(&self, operation: PeopleOperation) -> Option<String>;

    /// Whether the provider shows the person as suspended.
    fn is_suspended(&self, person: &PersonTruth) -> bool {
        person.is_suspended
    }

    /// Lets the next page of people be empty, although others follow.
    fn send_empty_page(&self);

    /// Makes cursors of a listing unusable.
    fn expire(&self, cursors: Cursors) -> Cursors;

    /// Calls that did not agree with the provider's documents.
    fn violations(&self) -> Vec<String>;
}

/// Runs the whole suite on the same organisation, which has at least three pages of people.
pub async fn check_directory(under_test: &dyn DirectoryUnderTest) {
    let account = open_directory(under_test).await.unwrap();
    let connector = under_test.connector();
    everybody_is_listed(under_test, &account).await;
    empty_page_is_not_the_last(under_test, &account).await;
    nested_members_are_listed(under_test, &account).await;
    unknown_group_is_gone(under_test, &account).await;
    changes_lead_to_the_truth(under_test, &account).await;
    let cursors = under_test.expire(list_users(connector, &account, Cursors::new()).await.unwrap().cursors);
    assert_eq!(list_users(connector, &account, cursors).await.unwrap_err(), ConnectorError::CursorExpired);
    assert_eq!(under_test.violations(), Vec::<String>::new(), "{}", under_test.name());
}

/// Returns the reader's account with a token for the directory.
pub async fn open_directory(under_test: &dyn DirectoryUnderTest) -> Result<ConnectorAccount, ConnectorError> {
    let (address, settings) = under_test.reader();
    open_directory_as(under_test.connector(), &address, &settings).await
}

/// Returns an app-only account with a token for the directory.
pub async fn open_directory_as(
    connector: &dyn Connector,
    address: &str,
    settings: &Value,
) -> Result<ConnectorAccount, ConnectorError> {
    let account = account(address, settings.to_string(), None, Arc::new(NoApiAccess));
    let grant = connector.obtain_directory_token(&account).unwrap().await?;
    Ok(ConnectorAccount { access: Arc::new(FixedToken(grant.token.expose().clone())), ..account })
}

/// All pages of a listing of people.
#[derive(Debug, Default)]
pub struct PeopleListing {
    /// By id.
    pub people: BTreeMap<String, DirectoryPerson>,
    pub removed: BTreeSet<String>,
    pub pages: usize,
    /// Of the last page.
    pub cursors: Cursors,
}

/// Lists people from the cursors to the last page.
pub async fn list_users(
    connector: &dyn Connector,
    account: &ConnectorAccount,
    cursors: Cursors,
) -> Result<PeopleListing, ConnectorError> {
    let mut listing = PeopleListing { cursors, ..PeopleListing::default() };
    loop {
        let page = connector.list_users(account, &listing.cursors).unwrap().await?;
        listing.pages += 1;
        listing.removed.extend(page.removed);
        listing.people.extend(page.people.into_iter().map(|person| (person.id.clone(), person)));
        listing.cursors = page.cursors;
        if page.is_last {
            return Ok(listing);
        }
    }
}

/// Lists the ids of a group's members to the last page.
pub async fn list_members(
    connector: &dyn Connector,
    account: &ConnectorAccount,
    group: &str,
) -> Result<BTreeSet<String>, ConnectorError> {
    let (mut members, mut cursors) = (BTreeSet::new(), Cursors::new());
    loop {
        let page = connector.list_members(account, group, &cursors).unwrap().await?;
        members.extend(page.members);
        cursors = page.cursors;
        if page.is_last {
            return Ok(members);
        }
    }
}

/// Fails unless everybody is listed who is present, and as they are.
pub fn assert_people(under_test: &dyn DirectoryUnderTest, people: &BTreeMap<String, DirectoryPerson>) {
    let mut truth = under_test.truth().people;
    truth.retain(|_, person| person.state == PersonState::Present);
    assert_eq!(people.keys().collect::<Vec<_>>(), truth.keys().collect::<Vec<_>>(), "{}", under_test.name());
    for (id, person) in &truth {
        let listed = &people[id];
        assert_eq!(listed.address.as_deref(), Some(person.address.as_str()));
        let mut aliases = listed.aliases.clone().unwrap_or_default();
        // A guest signs in with a name that is no address of theirs.
        aliases.retain(|alias| !alias.contains("#ext#"));
        assert_eq!(aliases.iter().collect::<BTreeSet<_>>(), person.aliases.iter().collect());
        assert_eq!(listed.name.as_deref(), Some(person.name.as_str()));
        assert_eq!(listed.is_suspended, Some(under_test.is_suspended(person)), "{person:?}");
        assert_eq!((listed.is_guest, listed.is_licensed), (Some(person.is_guest), Some(person.has_mailbox)));
    }
}

/// Fails if an error, as it goes into rows and logs, tells something confidential.
pub fn assert_directory_error_is_confidential(under_test: &dyn DirectoryUnderTest, error: &ConnectorError) {
    let text = format!("{error} {error:?}");
    for confidential in ["user1", "127.0.0.1", "http:", under_test.domain().split_once('.').unwrap().0] {
        assert!(!text.contains(confidential), "{text}");
    }
}

async fn everybody_is_listed(under_test: &dyn DirectoryUnderTest, account: &ConnectorAccount) {
    let listing = list_users(under_test.connector(), account, Cursors::new()).await.unwrap();
    assert_people(under_test, &listing.people);
    assert!((3..=6).contains(&listing.pages) && listing.removed.is_empty(), "{} pages", listing.pages);
}

async fn empty_page_is_not_the_last(under_test: &dyn DirectoryUnderTest, account: &ConnectorAccount) {
    under_test.send_empty_page();
    let listing = list_users(under_test.connector(), account, Cursors::new()).await.unwrap();
    assert_people(under_test, &listing.people);
}

async fn nested_members_are_listed(under_test: &dyn DirectoryUnderTest, account: &ConnectorAccount) {
    let groups = under_test.truth().groups;
    assert!(!groups.is_empty());
    for (id, group) in groups {
        let expected: BTreeSet<String> = group.all_people.into_iter().collect();
        for name in [&group.address, &id] {
            let members = list_members(under_test.connector(), account, name).await.unwrap();
            assert_eq!(members, expected, "{} {name}", under_test.name());
        }
    }
}

async fn unknown_group_is_gone(under_test: &dyn DirectoryUnderTest, account: &ConnectorAccount) {
    let group = format!("nobody@{}", under_test.domain());
    let members = list_members(under_test.connector(), account, &group).await;
    assert_eq!(members, Err(ConnectorError::Gone), "{}", under_test.name());
}

/// What was listed, merged with what is listed from its cursors. Without cursors everybody is listed anew.
async fn follow(
    under_test: &dyn DirectoryUnderTest,
    account: &ConnectorAccount,
    before: PeopleListing,
) -> PeopleListing {
    let is_anew = before.cursors.is_empty();
    let mut listing = list_users(under_test.connector(), account, before.cursors).await.unwrap();
    if !is_anew {
        let changed = std::mem::replace(&mut listing.people, before.people);
        for (id, person) in changed {
            let known = listing.people.remove(&id).unwrap_or_default();
            listing.people.insert(id, person.merged_over(known));
        }
        listing.people.retain(|id, _| !listing.removed.contains(id));
    }
    listing
}

async fn changes_lead_to_the_truth(under_test: &dyn DirectoryUnderTest, account: &ConnectorAccount) {
    let first = list_users(under_test.connector(), account, Cursors::new()).await.unwrap();
    let quiet = follow(under_test, account, first).await;
    assert_people(under_test, &quiet.people);

    let [ann, zoe, renamed, suspended, deleted, purged] =
        ["Ann", "zoe", "user2", "user3", "user5", "user6"].map(|name| format!("{name}@{}", under_test.domain()));
    under_test.apply(PeopleOperation::Join(NewPerson { address: ann, ..NewPerson::default() }));
    under_test.apply(PeopleOperation::Set(PersonChange { address: Some(zoe), ..change_of(renamed) }));
    under_test.apply(PeopleOperation::Set(PersonChange { suspended: Some(true), ..change_of(suspended) }));
    let deleted = under_test.apply(PeopleOperation::Delete { person: deleted }).unwrap();
    under_test.apply(PeopleOperation::Purge { person: purged });
    let changed = follow(under_test, account, quiet).await;
    assert_people(under_test, &changed.people);

    under_test.apply(PeopleOperation::Restore { person: deleted });
    let restored = follow(under_test, account, changed).await;
    assert_people(under_test, &restored.people);
}

fn change_of(person: String) -> PersonChange {
    PersonChange { person, ..PersonChange::default() }
}
