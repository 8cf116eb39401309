//! What becomes of one person: they come, go, come back, and are called otherwise.

use std::collections::BTreeSet;

use domain::{
    Backfill, Clock, DirectoryRules, ExclusionReason, MailboxEvent, MailboxSettings, MailboxState, PersonSelector,
    Provider, SystemClock,
};
use engine::directory::DiscoveryOutcome;
use engine::operations::mailboxes::ConnectRequest;
use jiff::SignedDuration;
use serde_json::json;
use sim::people::{PeopleOperation, PersonChange, PersonState, PersonTruth};
use store::sql::users::User;
use store::testing::on_each_database;
use testkit::MailboxOperations;

use super::directory_app::{BOTH, DirectoryApp, change, left_out, looked_at, mailbox, user, users};
use crate::events::assert_like_examples;

const DOMAIN: &str = "harbour.example";

fn address(name: &str) -> String {
    format!("{name}@{DOMAIN}")
}

#[tokio::test(flavor = "multi_thread")]
async fn each_employee_gets_one_mailbox() {
    on_each_database(|db| async move {
        let app = DirectoryApp::new(db).await;
        for provider in BOTH {
            let acme = app.tenant(provider.as_str()).await;
            app.organise(provider, DOMAIN, 120);
            app.set(&acme, provider, DOMAIN, &DirectoryRules::default()).await;

            let first = app.discover(&acme, provider).await;
            let second = app.discover(&acme, provider).await;

            let wanted = app.wanted(provider, DOMAIN);
            assert_eq!(looked_at(&acme).await, wanted);
            assert_eq!((first.added as usize, first.is_whole), (wanted.len(), true));
            assert_eq!((second.changes(), second.is_whole), (0, provider == Provider::Gmail));
            let told: usize = left_out(&acme).await.values().sum();
            assert_eq!(told + wanted.len(), users(&acme).await.len());
            let one = mailbox(&acme, wanted.first().unwrap()).await;
            assert_eq!((one.provider, one.state, one.secret_ref.is_none()), (provider, MailboxState::Connecting, true));
            assert_eq!(one.settings.connection["app_only"], true);
            let since = acme.find_sync_state(one.id).await.unwrap().unwrap().since;
            assert!(since.is_some(), "nothing of before is wanted");
        }
        assert_eq!((app.google.violations(), app.microsoft.violations()), (vec![], vec![]));
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn returning_user_keeps_the_mailbox() {
    on_each_database(|db| async move {
        let app = DirectoryApp::new(db).await;
        for provider in BOTH {
            let acme = app.tenant(provider.as_str()).await;
            app.organise(provider, DOMAIN, 9);
            app.set(&acme, provider, DOMAIN, &DirectoryRules::default()).await;
            let [left, suspended] = ["ann", "bob"].map(address);
            for person in [&left, &suspended] {
                app.apply(provider, DOMAIN, PeopleOperation::join(person));
            }
            app.discover(&acme, provider).await;
            let before = [mailbox(&acme, &left).await.id, mailbox(&acme, &suspended).await.id];

            app.apply(provider, DOMAIN, PeopleOperation::Delete { person: left.clone() });
            let suspend = |is| PeopleOperation::Set(PersonChange { suspended: Some(is), ..change(&suspended) });
            app.apply(provider, DOMAIN, suspend(true));
            let report = app.discover(&acme, provider).await;

            assert_eq!((report.left, report.added), (2, 0));
            assert!(!mailbox(&acme, &left).await.is_active && !mailbox(&acme, &suspended).await.is_active);
            assert_eq!(user(&acme, provider, &suspended).await.left_out, Some(ExclusionReason::Suspended));
            assert_eq!(app.discover(&acme, provider).await.changes(), 0, "once");

            // What happens to a mailbox whose owner cannot be acted for.
            let mut unit = acme.write();
            unit.apply_mailbox_event(before[1], MailboxEvent::CredentialsRefused, Some("refused"));
            unit.commit().await.unwrap();
            app.apply(provider, DOMAIN, PeopleOperation::Restore { person: left.clone() });
            app.apply(provider, DOMAIN, suspend(false));
            let report = app.discover(&acme, provider).await;

            assert_eq!((report.returned, report.added), (2, 0));
            let after = [mailbox(&acme, &left).await, mailbox(&acme, &suspended).await];
            assert_eq!([after[0].id, after[1].id], before);
            assert!(after.iter().all(|mailbox| mailbox.is_active && mailbox.state == MailboxState::Connecting));
            assert_eq!(looked_at(&acme).await, app.wanted(provider, DOMAIN));
            let events = acme.list_events(0, 1_000).await.unwrap();
            assert_like_examples(&events);
            for (kind, count) in [("mailbox.deactivated", 2), ("mailbox.activated", 2), ("directory.discovered", 3)] {
                assert_eq!(events.iter().filter(|event| event.kind == kind).count(), count, "{kind}");
            }
        }
        app.leaves_jobs(&["fetch_forgotten", "sync_mailbox"]);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_mailbox_is_tried_again_after_a_day() {
    on_each_database(|db| async move {
        let app = DirectoryApp::new(db).await;
        for provider in BOTH {
            let acme = app.tenant(provider.as_str()).await;
            app.organise(provider, DOMAIN, 3);
            app.set(&acme, provider, DOMAIN, &DirectoryRules::default()).await;
            let [refused, broken] = ["ann", "bob"].map(address);
            for person in [&refused, &broken] {
                app.apply(provider, DOMAIN, PeopleOperation::join(person));
            }
            app.discover(&acme, provider).await;
            for (address, state) in [(&refused, MailboxState::NeedsReauth), (&broken, MailboxState::Error)] {
                let id = mailbox(&acme, address).await.id;
                let state = state.as_str();
                app.db
                    .run(&format!(
                        "update mailboxes set state = '{state}', state_reason = 'so it is' where id = '{id}'"
                    ))
                    .await;
            }
            app.db.run("update mailboxes set state_since = '2020-01-01T00:00:00.000Z'").await;

            app.discover(&acme, provider).await;

            let [refused, broken] = [mailbox(&acme, &refused).await, mailbox(&acme, &broken).await];
            assert_eq!((refused.state, refused.state_reason), (MailboxState::Connecting, None));
            assert_eq!((broken.state, broken.state_reason), (MailboxState::Error, Some("so it is".to_owned())));
        }
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn renamed_user_keeps_the_mailbox() {
    on_each_database(|db| async move {
        let app = DirectoryApp::new(db).await;
        for provider in BOTH {
            let acme = app.tenant(provider.as_str()).await;
            app.organise(provider, DOMAIN, 3);
            app.set(&acme, provider, DOMAIN, &DirectoryRules::default()).await;
            app.apply(provider, DOMAIN, PeopleOperation::join(&address("ann")));
            app.discover(&acme, provider).await;
            let (before, count) = (mailbox(&acme, &address("ann")).await, looked_at(&acme).await.len());

            let add = vec![address("annie")];
            app.apply(provider, DOMAIN, PeopleOperation::Alias { person: address("ann"), add, remove: vec![] });
            assert_eq!(app.discover(&acme, provider).await.changes(), 0);
            let renamed = PersonChange { address: Some(address("anna")), ..change(&address("ann")) };
            app.apply(provider, DOMAIN, PeopleOperation::Set(renamed));
            let report = app.discover(&acme, provider).await;

            assert_eq!((report.renamed, report.added, report.left), (1, 0, 0));
            let after = mailbox(&acme, &address("anna")).await;
            assert_eq!((after.id, looked_at(&acme).await.len()), (before.id, count));
            assert_eq!(after.settings.connection["user"] == json!(address("anna")), provider == Provider::Gmail);
            assert!(acme.find_mailbox(&address("ann")).await.unwrap().is_none());
            assert_eq!(app.discover(&acme, provider).await.changes(), 0);
        }
        app.finish().await;
    })
    .await;
}

fn rename(app: &DirectoryApp, provider: Provider, from: &str, to: &str) {
    let renamed = PersonChange { address: Some(address(to)), ..change(&address(from)) };
    app.apply(provider, DOMAIN, PeopleOperation::Set(renamed));
}

#[tokio::test(flavor = "multi_thread")]
async fn reassigned_address_is_another_mailbox() {
    on_each_database(|db| async move {
        let app = DirectoryApp::new(db).await;
        for provider in BOTH {
            let acme = app.tenant(provider.as_str()).await;
            app.organise(provider, DOMAIN, 3);
            app.set(&acme, provider, DOMAIN, &DirectoryRules::default()).await;
            let bob = address("bob");
            app.apply(provider, DOMAIN, PeopleOperation::join(&address("robert")));
            rename(&app, provider, "robert", "bob");
            app.discover(&acme, provider).await;
            let before = mailbox(&acme, &bob).await;

            // His successor gets his address, and both are told of at once.
            rename(&app, provider, "bob", "old");
            let remove = vec![bob.clone()];
            app.apply(provider, DOMAIN, PeopleOperation::Alias { person: address("old"), add: vec![], remove });
            app.apply(provider, DOMAIN, PeopleOperation::Delete { person: address("old") });
            app.apply(provider, DOMAIN, PeopleOperation::join(&address("new")));
            rename(&app, provider, "new", "bob");
            let report = app.discover(&acme, provider).await;

            let after = mailbox(&acme, &bob).await;
            assert_ne!(after.id, before.id, "his mail is not his successor's");
            assert_eq!((report.added, report.left), (1, 1));
            let former = mailbox(&acme, &before.id.to_string()).await;
            assert!(!former.is_active && former.address.starts_with("bob+former-"), "{}", former.address);
            assert_eq!(app.discover(&acme, provider).await.changes(), 0);
        }
        app.finish().await;
    })
    .await;
}

/// Two people have each other's addresses from now on.
fn swap(app: &DirectoryApp, provider: Provider, one: &str, other: &str) {
    let between = address("between");
    for (from, to) in [(one, &*between), (other, one), (&*between, other)] {
        let renamed = PersonChange { address: Some(to.to_owned()), ..change(from) };
        app.apply(provider, DOMAIN, PeopleOperation::Set(renamed));
        let (person, remove) = (to.to_owned(), vec![from.to_owned()]);
        app.apply(provider, DOMAIN, PeopleOperation::Alias { person, add: vec![], remove });
    }
}

fn is_movable(user: &User) -> bool {
    let address = user.person.address.as_ref().unwrap();
    user.is_active && *address != self::address("user1") && user.person.aliases.as_ref().unwrap().is_empty()
}

#[tokio::test(flavor = "multi_thread")]
async fn swapped_addresses_keep_their_mailboxes() {
    on_each_database(|db| async move {
        let app = DirectoryApp::new(db).await;
        for provider in BOTH {
            let acme = app.tenant(provider.as_str()).await;
            app.organise(provider, DOMAIN, 1);
            app.set(&acme, provider, DOMAIN, &DirectoryRules::default()).await;
            for name in ["ann", "bob"] {
                let first = address(&format!("first.{name}"));
                app.apply(provider, DOMAIN, PeopleOperation::join(&first));
                let renamed = PersonChange { address: Some(address(name)), ..change(&first) };
                app.apply(provider, DOMAIN, PeopleOperation::Set(renamed));
            }
            app.discover(&acme, provider).await;
            let [ann, bob] = [mailbox(&acme, &address("ann")).await.id, mailbox(&acme, &address("bob")).await.id];

            swap(&app, provider, &address("ann"), &address("bob"));
            let report = app.discover(&acme, provider).await;

            assert_eq!((report.renamed, report.added), (2, 0));
            let after = [mailbox(&acme, &address("ann")).await, mailbox(&acme, &address("bob")).await];
            assert_eq!([after[0].id, after[1].id], [bob, ann]);
            assert!(after.iter().all(|mailbox| mailbox.is_active));
        }
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn taken_address_waits_until_it_is_free() {
    on_each_database(|db| async move {
        let app = DirectoryApp::new(db).await;
        let provider = Provider::Gmail;
        let acme = app.tenant("acme").await;
        // More than are settled in one commit.
        app.organise(provider, DOMAIN, 600);
        app.set(&acme, provider, DOMAIN, &DirectoryRules::default()).await;
        app.discover(&acme, provider).await;
        let all = users(&acme).await;
        let chosen = [
            all.iter().find(|user| is_movable(user)).unwrap(),
            all.iter().rev().find(|user| is_movable(user)).unwrap(),
        ];
        // The simulated ones keep the address that they came with, as the name of their account.
        let [first, last] = [(chosen[0], address("ann")), (chosen[1], address("bob"))].map(|(user, to)| {
            let renamed = PersonChange { address: Some(to.clone()), ..change(user.person.address.as_ref().unwrap()) };
            app.apply(provider, DOMAIN, PeopleOperation::Set(renamed));
            (user.mailbox.unwrap(), to)
        });
        app.discover(&acme, provider).await;
        let before = acme.list_events(0, 10_000).await.unwrap().len();

        swap(&app, provider, &first.1, &last.1);
        let report = app.discover(&acme, provider).await;

        assert_eq!((report.renamed, report.added, report.left), (2, 0, 0));
        for (id, now) in [(first.0, &last.1), (last.0, &first.1)] {
            let mailbox = mailbox(&acme, &id.to_string()).await;
            assert_eq!((&mailbox.address, mailbox.is_active), (now, true));
            assert_eq!(mailbox.settings.connection["user"], json!(now));
            assert_eq!(mailbox.settings.connection["account"], json!(null));
        }
        let events = acme.list_events(0, 10_000).await.unwrap();
        assert_like_examples(&events);
        let of_last = events[before..].iter().filter(|event| event.mailbox_id == Some(last.0));
        let mut told: Vec<&str> = of_last.map(|event| event.kind.as_str()).collect();
        // Of each commit in any order.
        told.chunks_mut(2).for_each(<[&str]>::sort_unstable);
        let expected = ["mailbox.deactivated", "mailbox.renamed", "mailbox.activated", "mailbox.renamed"];
        assert_eq!(told, expected, "in between it would have opened what is the other's");
        assert_eq!(app.discover(&acme, provider).await.changes(), 0);
        app.leaves_jobs(&["fetch_forgotten", "sync_mailbox"]);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shared_address_is_one_mailbox_per_tenant() {
    on_each_database(|db| async move {
        let app = DirectoryApp::new(db).await;
        let (acme, other) = (app.tenant("acme").await, app.tenant("other").await);
        for provider in BOTH {
            app.organise(provider, DOMAIN, 4);
            for tenant in [&acme, &other] {
                app.set(tenant, provider, DOMAIN, &DirectoryRules::default()).await;
                app.discover(tenant, provider).await;
                app.discover(tenant, provider).await;
            }
        }

        for tenant in [&acme, &other] {
            let google = user(tenant, Provider::Gmail, &address("user1")).await;
            let microsoft = user(tenant, Provider::Outlook, &address("user1")).await;
            assert!(google.is_active && microsoft.is_active && google.mailbox != microsoft.mailbox);
            let second = mailbox(tenant, &microsoft.mailbox.unwrap().to_string()).await;
            assert_eq!(second.provider, Provider::Outlook);
            assert_ne!(second.address, address("user1"), "that one is Google's here");
            assert_eq!(second.settings.connection["user"], json!(microsoft.person.id));
            assert_eq!(second.account(), address("user1"), "pushes name it so");
            let own = looked_at(tenant).await.len();
            let wanted = BOTH.map(|provider| app.wanted(provider, DOMAIN).len());
            assert_eq!(own, wanted[0] + wanted[1]);
        }
        let mine = mailbox(&acme, &address("user1")).await.id;
        assert_ne!(mine, mailbox(&other, &address("user1")).await.id);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn manual_connections_are_respected() {
    on_each_database(|db| async move {
        let app = DirectoryApp::new(db).await;
        let provider = Provider::Gmail;
        let acme = app.tenant("acme").await;
        app.organise(provider, DOMAIN, 1);
        app.set(&acme, provider, DOMAIN, &DirectoryRules::default()).await;
        let [theirs, ended, elsewhere, files] = ["ann", "bob", "carol", "dora"].map(address);
        for person in [&theirs, &ended, &elsewhere, &files] {
            app.apply(provider, DOMAIN, PeopleOperation::join(person));
        }
        let connect = async |provider, address: &str| {
            let settings = MailboxSettings::of_connection(json!({"app_only": true}));
            let connect = ConnectRequest {
                provider,
                address: address.to_owned(),
                settings,
                secret: None,
                backfill: Backfill::All,
            };
            app.engine.connect(acme.id, connect).await.unwrap().unwrap()
        };
        let by_hand = connect(provider, &theirs).await;
        connect(provider, &ended).await;
        app.engine.disconnect(&mailbox(&acme, &ended).await).await.unwrap();
        connect(Provider::Imap, &elsewhere).await;
        let of_files = acme.ensure_files_mailbox(&files).await.unwrap().id;

        let report = app.discover(&acme, provider).await;

        assert_eq!((report.adopted, report.added), (1, 2));
        assert_eq!(user(&acme, provider, &theirs).await.mailbox, Some(by_hand));
        assert_eq!(user(&acme, provider, &ended).await.left_out, Some(ExclusionReason::Disconnected));
        assert_eq!(mailbox(&acme, &ended).await.state, MailboxState::Disconnected);
        assert_eq!(user(&acme, provider, &elsewhere).await.left_out, Some(ExclusionReason::AddressTaken));
        assert_eq!(mailbox(&acme, &elsewhere).await.provider, Provider::Imap);
        assert_eq!(user(&acme, provider, &files).await.mailbox, Some(of_files), "what was imported is theirs");
        assert_eq!(mailbox(&acme, &files).await.provider, provider);
        assert_eq!(app.discover(&acme, provider).await.changes(), 0);
        app.leaves_jobs(&["fetch_forgotten", "stop_watch", "sync_mailbox", "watch_mailbox"]);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_select_by_group_and_address() {
    on_each_database(|db| async move {
        let app = DirectoryApp::new(db).await;
        for provider in BOTH {
            let acme = app.tenant(provider.as_str()).await;
            app.organise(provider, DOMAIN, 60);
            let truth = app.truth(provider, DOMAIN);
            let wanted = app.wanted(provider, DOMAIN);
            let (group, members) = truth
                .groups
                .values()
                .map(|group| {
                    let people = group.all_people.iter().map(|id| truth.people[id].address.clone());
                    (group.address.clone(), people.filter(|address| wanted.contains(address)).collect::<Vec<_>>())
                })
                .max_by_key(|(_, members)| members.len())
                .unwrap();
            let include = PersonSelector { groups: vec![group], ..PersonSelector::default() };
            let exclude = PersonSelector { addresses: vec![members[0].clone()], ..PersonSelector::default() };

            app.set(&acme, provider, DOMAIN, &DirectoryRules { include: include.clone(), ..DirectoryRules::default() })
                .await;
            app.discover(&acme, provider).await;
            assert_eq!(looked_at(&acme).await, members.iter().cloned().collect());
            app.set(&acme, provider, DOMAIN, &DirectoryRules { include, exclude, ..DirectoryRules::default() }).await;
            assert_eq!(app.discover(&acme, provider).await.left, 1);
            assert_eq!(looked_at(&acme).await, members[1..].iter().cloned().collect());
            assert_eq!(left_out(&acme).await[&ExclusionReason::Excluded], 1);
            app.set(&acme, provider, DOMAIN, &DirectoryRules::default()).await;
            app.discover(&acme, provider).await;
            assert_eq!(looked_at(&acme).await, wanted);
        }
        app.leaves_jobs(&["fetch_forgotten", "sync_mailbox"]);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_select_by_unit_and_domain() {
    on_each_database(|db| async move {
        let app = DirectoryApp::new(db).await;
        for provider in BOTH {
            let acme = app.tenant(provider.as_str()).await;
            app.organise(provider, DOMAIN, 60);
            let truth = app.truth(provider, DOMAIN);
            let wanted = app.wanted(provider, DOMAIN);
            let there = || truth.people.values().filter(|person| person.state == PersonState::Present);
            let of = |is_it: &dyn Fn(&PersonTruth) -> bool| -> BTreeSet<String> {
                there().filter(|person| is_it(person)).map(|person| person.address.clone()).collect()
            };
            let is_usual = |person: &PersonTruth| wanted.contains(&person.address);
            let is_suspended =
                |person: &PersonTruth| person.is_suspended || (provider == Provider::Gmail && person.is_archived);
            // Google's are paths, Microsoft's departments the last part of them.
            let unit = if provider == Provider::Gmail { "/Sales" } else { "Sales" };
            let in_unit = |person: &PersonTruth| match provider {
                Provider::Gmail => person.unit.starts_with("/Sales"),
                _ => person.unit == "/Sales",
            };
            let units = PersonSelector { units: vec![unit.to_owned()], ..PersonSelector::default() };
            let domains =
                |domain: &str| PersonSelector { domains: vec![domain.to_owned()], ..PersonSelector::default() };
            let usual = DirectoryRules::default;
            let guests = "guests.harbour.example";
            let cases: Vec<(DirectoryRules, BTreeSet<String>)> = vec![
                (
                    DirectoryRules { include: units.clone(), ..usual() },
                    of(&|person| is_usual(person) && in_unit(person)),
                ),
                (DirectoryRules { exclude: units, ..usual() }, of(&|person| is_usual(person) && !in_unit(person))),
                (DirectoryRules { exclude: domains(DOMAIN), ..usual() }, BTreeSet::new()),
                (DirectoryRules { include: domains(DOMAIN), ..usual() }, wanted.clone()),
                (DirectoryRules { suspended: true, ..usual() }, of(&|person| is_usual(person) || is_suspended(person))),
                (
                    DirectoryRules { unlicensed: true, ..usual() },
                    of(&|person| !is_suspended(person) && !person.is_guest),
                ),
                (
                    DirectoryRules { include: domains(guests), guests: true, unlicensed: true, ..usual() },
                    of(&|person| person.is_guest),
                ),
            ];
            for (rules, expected) in cases {
                app.set(&acme, provider, DOMAIN, &rules).await;
                // However many go from one rule to the next.
                let ended = app.syncer.discover(acme.id, provider, true, &|| {}).await.unwrap();
                assert!(matches!(ended, DiscoveryOutcome::Done(_)), "{ended:?}");
                assert_eq!(looked_at(&acme).await, expected, "{provider:?} {rules:?}");
            }
            let kinds = [of(&is_suspended), of(&|person| person.is_guest), of(&|person| !person.is_licensed)];
            assert!(kinds.iter().all(|kind| !kind.is_empty()) && wanted.len() > 30);
        }
        app.leaves_jobs(&["fetch_forgotten", "sync_mailbox"]);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn new_users_get_the_configured_backfill() {
    on_each_database(|db| async move {
        let app = DirectoryApp::new(db).await;
        let provider = Provider::Gmail;
        let acme = app.tenant("acme").await;
        app.organise(provider, DOMAIN, 1);
        let since = async |name: &str| {
            let mailbox = mailbox(&acme, &address(name)).await.id;
            acme.find_sync_state(mailbox).await.unwrap().unwrap().since
        };
        let begun = SystemClock.now();
        for (name, backfill) in [("all", None), ("day", Some(86_400)), ("none", Some(0))] {
            app.apply(provider, DOMAIN, PeopleOperation::join(&address(name)));
            let settings = json!({"administrator": address("user1")});
            app.set_with(&acme, provider, settings, &DirectoryRules::default(), backfill).await;
            app.discover(&acme, provider).await;
        }

        assert_eq!(since("all").await, None);
        let day = SignedDuration::from_hours(24);
        let (of_a_day, none) = (since("day").await.unwrap(), since("none").await.unwrap());
        let second = SignedDuration::from_secs(1);
        assert!(of_a_day >= begun - day - second && of_a_day <= SystemClock.now() - day + second, "{of_a_day}");
        assert!(none >= begun - second && none <= SystemClock.now() + second, "{none}");
        app.finish().await;
    })
    .await;
}
