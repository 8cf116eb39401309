//! Directories and their people.

use std::collections::BTreeSet;
use std::time::Duration;

use domain::connector::Cursors;
use domain::{Clock, DirectoryPerson, ExclusionReason, MailboxId, MailboxSettings, Provider, SystemClock};
use serde_json::json;
use store::sql::directories::{DirectoryDefinition, DiscoveryResult, DiscoveryToken};
use store::sql::mailboxes::NewMailbox;
use store::sql::users::{User, UserDecision, UserFilter};
use store::testing::on_each_database;
use store::{Precondition, StoreError, TenantStore};

use crate::samples::tenant;

const GMAIL: Provider = Provider::Gmail;

fn directory_definition() -> DirectoryDefinition {
    DirectoryDefinition {
        provider: GMAIL,
        settings: json!({"administrator": "admin@acme.test"}),
        rules: json!({}),
        backfill_seconds: Some(3600),
        interval_seconds: 600,
        is_paused: false,
    }
}

fn person(id: &str, address: &str) -> DirectoryPerson {
    DirectoryPerson {
        id: id.to_owned(),
        address: Some(address.to_owned()),
        aliases: Some(vec![format!("alias.{address}")]),
        name: Some("Ann".to_owned()),
        is_suspended: Some(false),
        ..DirectoryPerson::default()
    }
}

async fn put(tenant: &TenantStore, known: Option<u64>) -> Result<(), StoreError> {
    let mut unit = tenant.write();
    unit.put_directory(&directory_definition(), known, SystemClock.now());
    unit.commit().await.map(drop)
}

async fn begin(tenant: &TenantStore) -> DiscoveryToken {
    DiscoveryToken { provider: GMAIL, token: tenant.begin_discovery(GMAIL).await.unwrap().unwrap().token }
}

async fn record_people(tenant: &TenantStore, run: u64, people: &[DirectoryPerson], is_whole: bool) {
    let mut unit = tenant.write();
    unit.record_people(GMAIL, run, people, is_whole);
    if is_whole {
        unit.mark_unlisted_departed(GMAIL, run);
    }
    unit.commit().await.unwrap();
}

async fn users(tenant: &TenantStore) -> Vec<User> {
    tenant.list_users(&UserFilter::default(), None, 100).await.unwrap()
}

fn is_refused(done: Result<impl Sized, StoreError>, why: Precondition) {
    assert!(matches!(done, Err(StoreError::Precondition(failed)) if failed == why));
}

#[tokio::test]
async fn directory_changes_need_the_current_version() {
    on_each_database(|db| async move {
        let acme = tenant(&db.store, "acme").await;

        put(&acme, None).await.unwrap();
        is_refused(put(&acme, None).await, Precondition::DirectoryChanged);
        put(&acme, Some(1)).await.unwrap();
        is_refused(put(&acme, Some(1)).await, Precondition::DirectoryChanged);

        let found = acme.find_directory(GMAIL).await.unwrap().unwrap();
        assert_eq!((found.version, found.backfill_seconds, found.interval_seconds), (2, Some(3600), 600));
        assert_eq!(acme.list_directories().await.unwrap(), [found]);
        assert_eq!(acme.find_directory(Provider::Outlook).await.unwrap(), None);
        record_people(&acme, 1, &[person("1", "ann@acme.test")], true).await;
        let mut unit = acme.write();
        unit.remove_directory(GMAIL, 2);
        unit.commit().await.unwrap();
        assert_eq!((acme.list_directories().await.unwrap(), users(&acme).await), (vec![], vec![]));
    })
    .await;
}

#[tokio::test]
async fn overtaken_discovery_writes_nothing() {
    on_each_database(|db| async move {
        let acme = tenant(&db.store, "acme").await;
        put(&acme, None).await.unwrap();
        let (first, second) = (begin(&acme).await, begin(&acme).await);

        let listing = |by| {
            let mut unit = acme.write();
            unit.begin_listing(by, 1, true, &Cursors::new());
            unit.commit()
        };
        is_refused(listing(first).await, Precondition::DiscoveryTakenOver);
        listing(second).await.unwrap();
        let cursors = Cursors::from([("next".to_owned(), "2".to_owned())]);
        let page = |by, is_last| {
            let mut unit = acme.write();
            unit.advance_listing(by, &cursors, is_last);
            unit.guard_directory(by);
            unit.record_people(GMAIL, 1, &[person("1", "ann@acme.test")], true);
            unit.commit()
        };
        is_refused(page(first, false).await, Precondition::DiscoveryTakenOver);
        assert_eq!(users(&acme).await, []);
        page(second, false).await.unwrap();

        let again = acme.begin_discovery(GMAIL).await.unwrap().unwrap();
        assert_eq!((again.directory.is_listing, again.directory.run, &again.directory.cursors), (true, 1, &cursors));
        is_refused(page(second, true).await, Precondition::DiscoveryTakenOver);
        let third = DiscoveryToken { provider: GMAIL, token: again.token };
        page(third, true).await.unwrap();
        let mut unit = acme.write();
        let end = DiscoveryResult { outcome: "held", report: json!({"people": 1}), resets_listing: true };
        unit.end_discovery(third, &end, Duration::from_secs(600));
        unit.commit().await.unwrap();
        let found = acme.find_directory(GMAIL).await.unwrap().unwrap();
        assert_eq!((found.is_listing, found.cursors.len(), found.whole_at), (false, 0, None));
        assert_eq!((found.outcome.as_deref(), found.last_run), (Some("held"), Some(json!({"people": 1}))));
    })
    .await;
}

#[tokio::test]
async fn only_active_directories_become_due() {
    on_each_database(|db| async move {
        let acme = tenant(&db.store, "acme").await;
        let system = db.store.system();
        put(&acme, None).await.unwrap();
        let due = async || system.list_due_directories(10).await.unwrap();

        assert_eq!(due().await, [(acme.id, GMAIL)]);
        system.set_tenant_active(acme.id, false).await.unwrap();
        assert_eq!(due().await, []);
        system.set_tenant_active(acme.id, true).await.unwrap();
        let mut unit = system.write_for(acme.id);
        unit.defer_directory(GMAIL, Duration::from_secs(3600));
        unit.commit().await.unwrap();
        assert_eq!(due().await, []);
    })
    .await;
}

#[tokio::test]
async fn people_keep_their_ids_when_listed_again() {
    on_each_database(|db| async move {
        let acme = tenant(&db.store, "acme").await;
        let people: Vec<DirectoryPerson> =
            (0..1_500).map(|n| person(&n.to_string(), &format!("p{n}@acme.test"))).collect();

        record_people(&acme, 1, &people, true).await;
        let first = acme.list_users(&UserFilter::default(), None, 2_000).await.unwrap();
        record_people(&acme, 2, &people[..1_499], true).await;
        let second = acme.list_users(&UserFilter::default(), None, 2_000).await.unwrap();

        assert_eq!(first.len(), 1_500);
        assert!(first.iter().map(|user| user.id).eq(second.iter().map(|user| user.id)));
        assert_eq!(second.iter().filter(|user| !user.is_listed).count(), 1);
        let mut after = None;
        let mut seen = 0;
        while let Some(last) = acme.list_users_with_mailboxes(GMAIL, after, 400).await.unwrap().last() {
            (after, seen) = (Some(last.user.id), seen + 1);
        }
        assert_eq!(seen, 4);
    })
    .await;
}

#[tokio::test]
async fn delta_keeps_omitted_facts_full_listing_clears() {
    on_each_database(|db| async move {
        let acme = tenant(&db.store, "acme").await;
        record_people(&acme, 1, &[person("1", "ann@acme.test")], true).await;
        let change = DirectoryPerson { id: "1".to_owned(), is_suspended: Some(true), ..DirectoryPerson::default() };

        record_people(&acme, 2, std::slice::from_ref(&change), false).await;
        let expected = DirectoryPerson { is_suspended: Some(true), ..person("1", "ann@acme.test") };
        assert_eq!(users(&acme).await[0].person, expected);
        record_people(&acme, 3, std::slice::from_ref(&change), true).await;
        assert_eq!(users(&acme).await[0].person, change);

        let mut unit = acme.write();
        unit.record_departures(GMAIL, 4, &["1".to_owned(), "2".to_owned()]);
        unit.commit().await.unwrap();
        assert!(!users(&acme).await[0].is_listed);
        record_people(&acme, 5, &[change], false).await;
        assert!(users(&acme).await[0].is_listed, "a listed person is in the directory");
    })
    .await;
}

fn new_mailbox(address: &str) -> NewMailbox {
    NewMailbox {
        id: MailboxId::new(&SystemClock),
        provider: GMAIL,
        address: address.to_owned(),
        settings: MailboxSettings::of_connection(json!({"app_only": true})),
        secret_ref: None,
        since: None,
    }
}

#[tokio::test]
async fn mailboxes_are_switched_in_one_commit_each() {
    on_each_database(|db| async move {
        let acme = tenant(&db.store, "acme").await;
        let people: Vec<DirectoryPerson> =
            (0..50).map(|n| person(&n.to_string(), &format!("p{n}@acme.test"))).collect();
        record_people(&acme, 1, &people, true).await;
        let users = users(&acme).await;
        let new: Vec<NewMailbox> = people.iter().map(|one| new_mailbox(one.address.as_ref().unwrap())).collect();
        let ids: Vec<MailboxId> = new.iter().map(|new| new.id).collect();
        let settled = |is_active: bool| -> Vec<UserDecision> {
            let left_out = (!is_active).then_some(ExclusionReason::Suspended);
            let one = |(user, id): (&User, &MailboxId)| UserDecision {
                user: user.id,
                is_active,
                left_out,
                mailbox: Some(*id),
            };
            users.iter().zip(&ids).map(one).collect()
        };

        let mut unit = acme.write();
        unit.add_mailboxes(new.clone());
        unit.settle_users(&settled(true));
        unit.commit().await.unwrap();
        assert_eq!(acme.count_active_users(GMAIL).await.unwrap(), 50);
        assert_eq!(db.store.system().list_due_mailboxes(100, &[]).await.unwrap().len(), 50);
        assert_eq!(db.store.system().list_due_watches(100).await.unwrap().len(), 50);

        let mut unit = acme.write();
        let off: Vec<_> = ids.iter().map(|id| (*id, Some(ExclusionReason::Suspended))).collect();
        unit.set_mailboxes_active(&off, false);
        unit.settle_users(&settled(false));
        unit.commit().await.unwrap();
        assert_eq!(db.store.system().list_due_mailboxes(100, &[]).await.unwrap(), []);
        let known = acme.list_users_with_mailboxes(GMAIL, None, 1).await.unwrap().remove(0);
        assert_eq!((known.user.is_active, known.user.left_out), (false, Some(ExclusionReason::Suspended)));
        assert!(!known.mailbox.unwrap().is_active);

        let mut unit = acme.write();
        let on: Vec<_> = ids.iter().map(|id| (*id, None)).collect();
        unit.set_mailboxes_active(&on, true);
        unit.set_mailboxes_active(&on[..1], true);
        unit.commit().await.unwrap();
        let events = acme.list_events(0, 1_000).await.unwrap();
        let kinds = |kind: &str| events.iter().filter(|event| event.kind == kind).count();
        assert_eq!((kinds("mailbox.deactivated"), kinds("mailbox.activated")), (50, 50), "each once");
        assert_eq!(events[0].data, json!({"reason": "suspended"}));

        let mut unit = acme.write();
        unit.add_mailboxes(vec![new_mailbox("new@acme.test"), new_mailbox("p1@acme.test")]);
        is_refused(unit.commit().await, Precondition::MailboxExists);
        assert_eq!(acme.list_mailboxes().await.unwrap().len(), 50, "all or none");
    })
    .await;
}

#[tokio::test]
async fn address_belongs_to_one_mailbox() {
    on_each_database(|db| async move {
        let acme = tenant(&db.store, "acme").await;
        record_people(&acme, 1, &[person("1", "ann@acme.test")], true).await;
        let (ann, bob) = (new_mailbox("ann@acme.test"), new_mailbox("bob@acme.test"));
        let user = users(&acme).await[0].id;
        let mut unit = acme.write();
        unit.add_mailboxes(vec![ann.clone(), bob.clone()]);
        unit.settle_users(&[UserDecision { user, is_active: true, left_out: None, mailbox: Some(ann.id) }]);
        unit.commit().await.unwrap();

        let rename = |address: &'static str| {
            let mut unit = acme.write();
            unit.rename_mailbox(bob.id, address, MailboxSettings::default());
            unit.commit()
        };
        is_refused(rename("ann@acme.test").await, Precondition::MailboxExists);
        rename("carol@acme.test").await.unwrap();
        let wanted = ["ann@acme.test", "bob@acme.test", "carol@acme.test"].map(str::to_owned).to_vec();
        let mut holders = acme.list_mailbox_holders(wanted).await.unwrap();
        holders.sort_by(|one, other| one.mailbox.address.cmp(&other.mailbox.address));

        assert_eq!(holders.len(), 2);
        assert_eq!((holders[0].user, holders[0].user_address.as_deref()), (Some((user, GMAIL)), Some("ann@acme.test")));
        assert_eq!((holders[1].mailbox.id, holders[1].user), (bob.id, None));
    })
    .await;
}

fn by(address: &str) -> UserFilter {
    UserFilter { address: Some(address.to_owned()), ..UserFilter::default() }
}

#[tokio::test]
async fn users_are_filtered_within_their_tenant() {
    on_each_database(|db| async move {
        let (acme, other) = (tenant(&db.store, "acme").await, tenant(&db.store, "other").await);
        record_people(&acme, 1, &[person("1", "ann@acme.test"), person("2", "bob@acme.test")], true).await;
        record_people(&other, 1, &[person("1", "ann@acme.test")], true).await;
        let found = async |filter: UserFilter| {
            let found = acme.list_users(&filter, None, 10).await.unwrap();
            // People of one page have no order.
            found.into_iter().map(|user| user.person.id).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
        };

        assert_eq!(found(by("ann@acme.test")).await, ["1"]);
        assert_eq!(found(by("alias.bob@acme.test")).await, ["2"]);
        assert_eq!(found(UserFilter { is_active: Some(true), ..UserFilter::default() }).await, [""; 0]);
        assert_eq!(found(UserFilter { provider: Some(GMAIL), ..UserFilter::default() }).await, ["1", "2"]);
        assert_eq!(
            found(UserFilter { left_out: Some(ExclusionReason::Guest), ..UserFilter::default() }).await,
            [""; 0]
        );
        let first = acme.list_users(&UserFilter::default(), None, 1).await.unwrap();
        assert_eq!(acme.list_users(&UserFilter::default(), Some(first[0].id), 10).await.unwrap().len(), 1);
    })
    .await;
}
