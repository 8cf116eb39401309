//! What becomes of one person: they come, go, come back, and are called otherwise.

use std::collections::BTreeSet;

use domain::{Choice, Clock, LeftOut, MailboxState, Provider, Rules, SystemClock};
use engine::directory::Ended;
use engine::mailboxes::{Backfill, Connect};
use jiff::SignedDuration;
use serde_json::json;
use sim::people::{PeopleOperation, PersonChange, State, TruthPerson};
use store::sql::events::Event;
use store::sql::users::User;
use store::testing::on_each_database;

use super::scene::{BOTH, Scene, change, left_out, looked_at, mailbox, user, users};

const DOMAIN: &str = "harbour.example";

fn address(name: &str) -> String {
    format!("{name}@{DOMAIN}")
}

#[tokio::test(flavor = "multi_thread")]
async fn everybody_who_works_there_gets_a_mailbox_and_the_second_look_changes_nothing() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        for provider in BOTH {
            let acme = scene.tenant(provider.as_str()).await;
            scene.organise(provider, DOMAIN, 120);
            scene.set(&acme, provider, DOMAIN, &Rules::default()).await;

            let first = scene.discover(&acme, provider).await;
            let second = scene.discover(&acme, provider).await;

            let wanted = scene.wanted(provider, DOMAIN);
            assert_eq!(looked_at(&acme).await, wanted);
            assert_eq!((first.added as usize, first.is_whole), (wanted.len(), true));
            assert_eq!((second.changes(), second.is_whole), (0, provider == Provider::Gmail));
            let told: usize = left_out(&acme).await.values().sum();
            assert_eq!(told + wanted.len(), users(&acme).await.len());
            let one = mailbox(&acme, wanted.first().unwrap()).await;
            assert_eq!((one.provider, one.state, one.secret_ref.is_none()), (provider, MailboxState::Connecting, true));
            assert_eq!(one.settings["connection"]["app_only"], true);
            let since = acme.find_sync(one.id).await.unwrap().unwrap().since;
            assert!(since.is_some(), "nothing of before is wanted");
        }
        assert_eq!((scene.google.violations(), scene.microsoft.violations()), (vec![], vec![]));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_goes_is_not_looked_at_and_who_comes_back_has_the_same_mailbox() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        for provider in BOTH {
            let acme = scene.tenant(provider.as_str()).await;
            scene.organise(provider, DOMAIN, 9);
            scene.set(&acme, provider, DOMAIN, &Rules::default()).await;
            let [left, suspended] = ["ann", "bob"].map(address);
            for person in [&left, &suspended] {
                scene.apply(provider, DOMAIN, PeopleOperation::join(person));
            }
            scene.discover(&acme, provider).await;
            let before = [mailbox(&acme, &left).await.id, mailbox(&acme, &suspended).await.id];

            scene.apply(provider, DOMAIN, PeopleOperation::Delete { person: left.clone() });
            let suspend = |is| PeopleOperation::Set(PersonChange { suspended: Some(is), ..change(&suspended) });
            scene.apply(provider, DOMAIN, suspend(true));
            let report = scene.discover(&acme, provider).await;

            assert_eq!((report.left, report.added), (2, 0));
            assert!(!mailbox(&acme, &left).await.is_active && !mailbox(&acme, &suspended).await.is_active);
            assert_eq!(user(&acme, provider, &suspended).await.left_out, Some(LeftOut::Suspended));
            assert_eq!(scene.discover(&acme, provider).await.changes(), 0, "once");

            // What happens to a mailbox whose owner cannot be acted for.
            let mut unit = acme.write();
            unit.move_mailbox(before[1], &[MailboxState::Connecting], MailboxState::NeedsReauth, Some("refused"));
            unit.commit().await.unwrap();
            scene.apply(provider, DOMAIN, PeopleOperation::Restore { person: left.clone() });
            scene.apply(provider, DOMAIN, suspend(false));
            let report = scene.discover(&acme, provider).await;

            assert_eq!((report.returned, report.added), (2, 0));
            let after = [mailbox(&acme, &left).await, mailbox(&acme, &suspended).await];
            assert_eq!([after[0].id, after[1].id], before);
            assert!(after.iter().all(|mailbox| mailbox.is_active && mailbox.state == MailboxState::Connecting));
            assert_eq!(looked_at(&acme).await, scene.wanted(provider, DOMAIN));
            let events = acme.list_events(0, 1_000).await.unwrap();
            let count = |kind: &str| events.iter().filter(|event| event.kind == kind).count();
            assert_eq!((count("mailbox.deactivated"), count("mailbox.activated")), (2, 2));
            assert_eq!(count("directory.discovered"), 3);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_refused_for_a_day_is_tried_again_and_one_in_error_keeps_its_reason() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        for provider in BOTH {
            let acme = scene.tenant(provider.as_str()).await;
            scene.organise(provider, DOMAIN, 3);
            scene.set(&acme, provider, DOMAIN, &Rules::default()).await;
            let [refused, broken] = ["ann", "bob"].map(address);
            for person in [&refused, &broken] {
                scene.apply(provider, DOMAIN, PeopleOperation::join(person));
            }
            scene.discover(&acme, provider).await;
            for (address, state) in [(&refused, MailboxState::NeedsReauth), (&broken, MailboxState::Error)] {
                let mut unit = acme.write();
                unit.move_mailbox(
                    mailbox(&acme, address).await.id,
                    &[MailboxState::Connecting],
                    state,
                    Some("so it is"),
                );
                unit.commit().await.unwrap();
            }
            scene.db.run("update mailboxes set state_since = '2020-01-01T00:00:00.000Z'").await;

            scene.discover(&acme, provider).await;

            let told = async |address: &str| {
                let mailbox = mailbox(&acme, address).await;
                (mailbox.state, mailbox.state_reason)
            };
            assert_eq!(told(&refused).await, (MailboxState::Connecting, None));
            assert_eq!(told(&broken).await, (MailboxState::Error, Some("so it is".to_owned())));
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_called_otherwise_keeps_the_mailbox_and_an_alias_makes_no_second() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        for provider in BOTH {
            let acme = scene.tenant(provider.as_str()).await;
            scene.organise(provider, DOMAIN, 3);
            scene.set(&acme, provider, DOMAIN, &Rules::default()).await;
            scene.apply(provider, DOMAIN, PeopleOperation::join(&address("ann")));
            scene.discover(&acme, provider).await;
            let (before, count) = (mailbox(&acme, &address("ann")).await, looked_at(&acme).await.len());

            let add = vec![address("annie")];
            scene.apply(provider, DOMAIN, PeopleOperation::Alias { person: address("ann"), add, remove: vec![] });
            assert_eq!(scene.discover(&acme, provider).await.changes(), 0);
            let renamed = PersonChange { address: Some(address("anna")), ..change(&address("ann")) };
            scene.apply(provider, DOMAIN, PeopleOperation::Set(renamed));
            let report = scene.discover(&acme, provider).await;

            assert_eq!((report.renamed, report.added, report.left), (1, 0, 0));
            let after = mailbox(&acme, &address("anna")).await;
            assert_eq!((after.id, looked_at(&acme).await.len()), (before.id, count));
            assert_eq!(after.settings["connection"]["user"] == json!(address("anna")), provider == Provider::Gmail);
            assert!(acme.find_mailbox(&address("ann")).await.unwrap().is_none());
            assert_eq!(scene.discover(&acme, provider).await.changes(), 0);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_changes_its_owner_is_another_mailbox() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        for provider in BOTH {
            let acme = scene.tenant(provider.as_str()).await;
            scene.organise(provider, DOMAIN, 3);
            scene.set(&acme, provider, DOMAIN, &Rules::default()).await;
            let bob = address("bob");
            let rename = |from: &str, to: &str| {
                let renamed = PersonChange { address: Some(address(to)), ..change(&address(from)) };
                scene.apply(provider, DOMAIN, PeopleOperation::Set(renamed));
            };
            scene.apply(provider, DOMAIN, PeopleOperation::join(&address("robert")));
            rename("robert", "bob");
            scene.discover(&acme, provider).await;
            let before = mailbox(&acme, &bob).await;

            // His successor gets his address, and both are told of at once.
            rename("bob", "old");
            let remove = vec![bob.clone()];
            scene.apply(provider, DOMAIN, PeopleOperation::Alias { person: address("old"), add: vec![], remove });
            scene.apply(provider, DOMAIN, PeopleOperation::Delete { person: address("old") });
            scene.apply(provider, DOMAIN, PeopleOperation::join(&address("new")));
            rename("new", "bob");
            let report = scene.discover(&acme, provider).await;

            let after = mailbox(&acme, &bob).await;
            assert_ne!(after.id, before.id, "his mail is not his successor's");
            assert_eq!((report.added, report.left), (1, 1));
            let former = mailbox(&acme, &before.id.to_string()).await;
            assert!(!former.is_active && former.address.starts_with("bob+former-"), "{}", former.address);
            assert_eq!(scene.discover(&acme, provider).await.changes(), 0);
        }
    })
    .await;
}

/// Two people have each other's addresses from now on.
fn swap(scene: &Scene, provider: Provider, one: &str, other: &str) {
    let between = address("between");
    for (from, to) in [(one, &*between), (other, one), (&*between, other)] {
        let renamed = PersonChange { address: Some(to.to_owned()), ..change(from) };
        scene.apply(provider, DOMAIN, PeopleOperation::Set(renamed));
        let (person, remove) = (to.to_owned(), vec![from.to_owned()]);
        scene.apply(provider, DOMAIN, PeopleOperation::Alias { person, add: vec![], remove });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_who_swap_their_addresses_keep_their_mailboxes() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        for provider in BOTH {
            let acme = scene.tenant(provider.as_str()).await;
            scene.organise(provider, DOMAIN, 1);
            scene.set(&acme, provider, DOMAIN, &Rules::default()).await;
            for name in ["ann", "bob"] {
                let first = address(&format!("first.{name}"));
                scene.apply(provider, DOMAIN, PeopleOperation::join(&first));
                let renamed = PersonChange { address: Some(address(name)), ..change(&first) };
                scene.apply(provider, DOMAIN, PeopleOperation::Set(renamed));
            }
            scene.discover(&acme, provider).await;
            let [ann, bob] = [mailbox(&acme, &address("ann")).await.id, mailbox(&acme, &address("bob")).await.id];

            swap(&scene, provider, &address("ann"), &address("bob"));
            let report = scene.discover(&acme, provider).await;

            assert_eq!((report.renamed, report.added), (2, 0));
            let after = [mailbox(&acme, &address("ann")).await, mailbox(&acme, &address("bob")).await];
            assert_eq!([after[0].id, after[1].id], [bob, ann]);
            assert!(after.iter().all(|mailbox| mailbox.is_active));
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whose_address_is_anothers_already_is_not_looked_at_until_it_is_their_turn() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        let provider = Provider::Gmail;
        let acme = scene.tenant("acme").await;
        // More than are settled in one commit.
        scene.organise(provider, DOMAIN, 600);
        scene.set(&acme, provider, DOMAIN, &Rules::default()).await;
        scene.discover(&acme, provider).await;
        let all = users(&acme).await;
        let movable = |user: &&User| {
            let address = user.person.address.clone().unwrap();
            user.is_active && address != self::address("user1") && user.person.aliases.as_ref().unwrap().is_empty()
        };
        let chosen = [all.iter().find(movable).unwrap(), all.iter().rev().find(movable).unwrap()];
        // The simulated ones keep the address that they came with, as the name of their account.
        let [first, last] = [(chosen[0], address("ann")), (chosen[1], address("bob"))].map(|(user, to)| {
            let renamed = PersonChange { address: Some(to.clone()), ..change(user.person.address.as_ref().unwrap()) };
            scene.apply(provider, DOMAIN, PeopleOperation::Set(renamed));
            (user.mailbox.unwrap(), to)
        });
        scene.discover(&acme, provider).await;
        let before = acme.list_events(0, 10_000).await.unwrap().len();

        swap(&scene, provider, &first.1, &last.1);
        let report = scene.discover(&acme, provider).await;

        assert_eq!((report.renamed, report.added, report.left), (2, 0, 0));
        for (id, now) in [(first.0, &last.1), (last.0, &first.1)] {
            let mailbox = mailbox(&acme, &id.to_string()).await;
            assert_eq!((&mailbox.address, mailbox.is_active), (now, true));
            assert_eq!(mailbox.settings["connection"]["user"], json!(now));
            assert_eq!(mailbox.settings["connection"]["account"], json!(null));
        }
        let events = acme.list_events(0, 10_000).await.unwrap();
        let told = |event: &&Event| event.mailbox_id == Some(last.0);
        let mut told: Vec<&str> = events[before..].iter().filter(told).map(|event| event.kind.as_str()).collect();
        // Of each commit in any order.
        told.chunks_mut(2).for_each(<[&str]>::sort_unstable);
        let expected = ["mailbox.deactivated", "mailbox.renamed", "mailbox.activated", "mailbox.renamed"];
        assert_eq!(told, expected, "in between it would have opened what is the other's");
        assert_eq!(scene.discover(&acme, provider).await.changes(), 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_in_two_tenants_is_two_mailboxes_and_so_is_one_person_at_two_providers() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        let (acme, other) = (scene.tenant("acme").await, scene.tenant("other").await);
        for provider in BOTH {
            scene.organise(provider, DOMAIN, 4);
            for tenant in [&acme, &other] {
                scene.set(tenant, provider, DOMAIN, &Rules::default()).await;
                scene.discover(tenant, provider).await;
                scene.discover(tenant, provider).await;
            }
        }

        for tenant in [&acme, &other] {
            let google = user(tenant, Provider::Gmail, &address("user1")).await;
            let microsoft = user(tenant, Provider::Outlook, &address("user1")).await;
            assert!(google.is_active && microsoft.is_active && google.mailbox != microsoft.mailbox);
            let second = mailbox(tenant, &microsoft.mailbox.unwrap().to_string()).await;
            assert_eq!(second.provider, Provider::Outlook);
            assert_ne!(second.address, address("user1"), "that one is Google's here");
            assert_eq!(second.settings["connection"]["user"], json!(microsoft.person.id));
            assert_eq!(second.account(), address("user1"), "pushes name it so");
            let own = looked_at(tenant).await.len();
            let wanted = BOTH.map(|provider| scene.wanted(provider, DOMAIN).len());
            assert_eq!(own, wanted[0] + wanted[1]);
        }
        let mine = mailbox(&acme, &address("user1")).await.id;
        assert_ne!(mine, mailbox(&other, &address("user1")).await.id);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_connected_or_disconnected_by_hand_is_respected() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        let provider = Provider::Gmail;
        let acme = scene.tenant("acme").await;
        scene.organise(provider, DOMAIN, 1);
        scene.set(&acme, provider, DOMAIN, &Rules::default()).await;
        let [theirs, ended, elsewhere, files] = ["ann", "bob", "carol", "dora"].map(address);
        for person in [&theirs, &ended, &elsewhere, &files] {
            scene.apply(provider, DOMAIN, PeopleOperation::join(person));
        }
        let connect = async |provider, address: &str| {
            let settings = json!({"connection": {"app_only": true}});
            let connect =
                Connect { provider, address: address.to_owned(), settings, secret: None, backfill: Backfill::All };
            scene.engine.connect(acme.id, connect).await.unwrap().unwrap()
        };
        let by_hand = connect(provider, &theirs).await;
        connect(provider, &ended).await;
        scene.engine.disconnect(&mailbox(&acme, &ended).await, None).await.unwrap();
        connect(Provider::Imap, &elsewhere).await;
        let of_files = acme.ensure_files_mailbox(&files).await.unwrap().id;

        let report = scene.discover(&acme, provider).await;

        assert_eq!((report.adopted, report.added), (1, 2));
        assert_eq!(user(&acme, provider, &theirs).await.mailbox, Some(by_hand));
        assert_eq!(user(&acme, provider, &ended).await.left_out, Some(LeftOut::Disconnected));
        assert_eq!(mailbox(&acme, &ended).await.state, MailboxState::Disconnected);
        assert_eq!(user(&acme, provider, &elsewhere).await.left_out, Some(LeftOut::AddressTaken));
        assert_eq!(mailbox(&acme, &elsewhere).await.provider, Provider::Imap);
        assert_eq!(user(&acme, provider, &files).await.mailbox, Some(of_files), "what was imported is theirs");
        assert_eq!(mailbox(&acme, &files).await.provider, provider);
        assert_eq!(scene.discover(&acme, provider).await.changes(), 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_choose_by_group_and_address_and_hold_when_they_change() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        for provider in BOTH {
            let acme = scene.tenant(provider.as_str()).await;
            scene.organise(provider, DOMAIN, 60);
            let truth = scene.truth(provider, DOMAIN);
            let wanted = scene.wanted(provider, DOMAIN);
            let (group, members) = truth
                .groups
                .values()
                .map(|group| {
                    let people = group.all_people.iter().map(|id| truth.people[id].address.clone());
                    (group.address.clone(), people.filter(|address| wanted.contains(address)).collect::<Vec<_>>())
                })
                .max_by_key(|(_, members)| members.len())
                .unwrap();
            let include = Choice { groups: vec![group], ..Choice::default() };
            let exclude = Choice { addresses: vec![members[0].clone()], ..Choice::default() };

            scene.set(&acme, provider, DOMAIN, &Rules { include: include.clone(), ..Rules::default() }).await;
            scene.discover(&acme, provider).await;
            assert_eq!(looked_at(&acme).await, members.iter().cloned().collect());
            scene.set(&acme, provider, DOMAIN, &Rules { include, exclude, ..Rules::default() }).await;
            assert_eq!(scene.discover(&acme, provider).await.left, 1);
            assert_eq!(looked_at(&acme).await, members[1..].iter().cloned().collect());
            assert_eq!(left_out(&acme).await[&LeftOut::Excluded], 1);
            scene.set(&acme, provider, DOMAIN, &Rules::default()).await;
            scene.discover(&acme, provider).await;
            assert_eq!(looked_at(&acme).await, wanted);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_choose_by_unit_and_domain_and_let_in_whom_they_usually_leave_out() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        for provider in BOTH {
            let acme = scene.tenant(provider.as_str()).await;
            scene.organise(provider, DOMAIN, 60);
            let truth = scene.truth(provider, DOMAIN);
            let wanted = scene.wanted(provider, DOMAIN);
            let there = || truth.people.values().filter(|person| person.state == State::Present);
            let of = |is_it: &dyn Fn(&TruthPerson) -> bool| -> BTreeSet<String> {
                there().filter(|person| is_it(person)).map(|person| person.address.clone()).collect()
            };
            let is_usual = |person: &TruthPerson| wanted.contains(&person.address);
            let is_suspended =
                |person: &TruthPerson| person.is_suspended || (provider == Provider::Gmail && person.is_archived);
            // Google's are paths, Microsoft's departments the last part of them.
            let unit = if provider == Provider::Gmail { "/Sales" } else { "Sales" };
            let in_unit = |person: &TruthPerson| match provider {
                Provider::Gmail => person.unit.starts_with("/Sales"),
                _ => person.unit == "/Sales",
            };
            let units = Choice { units: vec![unit.to_owned()], ..Choice::default() };
            let domains = |domain: &str| Choice { domains: vec![domain.to_owned()], ..Choice::default() };
            let usual = Rules::default;
            let guests = "guests.harbour.example";
            let cases: Vec<(Rules, BTreeSet<String>)> = vec![
                (Rules { include: units.clone(), ..usual() }, of(&|person| is_usual(person) && in_unit(person))),
                (Rules { exclude: units, ..usual() }, of(&|person| is_usual(person) && !in_unit(person))),
                (Rules { exclude: domains(DOMAIN), ..usual() }, BTreeSet::new()),
                (Rules { include: domains(DOMAIN), ..usual() }, wanted.clone()),
                (Rules { suspended: true, ..usual() }, of(&|person| is_usual(person) || is_suspended(person))),
                (Rules { unlicensed: true, ..usual() }, of(&|person| !is_suspended(person) && !person.is_guest)),
                (
                    Rules { include: domains(guests), guests: true, unlicensed: true, ..usual() },
                    of(&|person| person.is_guest),
                ),
            ];
            for (rules, expected) in cases {
                scene.set(&acme, provider, DOMAIN, &rules).await;
                // However many go from one rule to the next.
                let ended = scene.syncer.discover(acme.id, provider, true, &|| {}).await.unwrap();
                assert!(matches!(ended, Ended::Done(_)), "{ended:?}");
                assert_eq!(looked_at(&acme).await, expected, "{provider:?} {rules:?}");
            }
            let kinds = [of(&is_suspended), of(&|person| person.is_guest), of(&|person| !person.is_licensed)];
            assert!(kinds.iter().all(|kind| !kind.is_empty()) && wanted.len() > 30);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn new_people_get_the_backfill_that_was_chosen_and_those_who_have_mailboxes_keep_theirs() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        let provider = Provider::Gmail;
        let acme = scene.tenant("acme").await;
        scene.organise(provider, DOMAIN, 1);
        let now = || SystemClock.now();
        let since = async |name: &str| {
            let mailbox = mailbox(&acme, &address(name)).await.id;
            acme.find_sync(mailbox).await.unwrap().unwrap().since
        };
        let begun = now();
        for (name, backfill) in [("all", None), ("day", Some(86_400)), ("none", Some(0))] {
            scene.apply(provider, DOMAIN, PeopleOperation::join(&address(name)));
            let settings = json!({"administrator": address("user1")});
            scene.set_with(&acme, provider, settings, &Rules::default(), backfill).await;
            scene.discover(&acme, provider).await;
        }

        assert_eq!(since("all").await, None);
        let day = SignedDuration::from_hours(24);
        let (of_a_day, none) = (since("day").await.unwrap(), since("none").await.unwrap());
        let second = SignedDuration::from_secs(1);
        assert!(of_a_day >= begun - day - second && of_a_day <= now() - day + second, "{of_a_day}");
        assert!(none >= begun - second && none <= now() + second, "{none}");
    })
    .await;
}
