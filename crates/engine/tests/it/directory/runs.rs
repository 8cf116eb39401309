//! What becomes of a look at a directory: it is tried out, held back, broken off, gone on with and asked for again.

use std::sync::atomic::{AtomicUsize, Ordering};

use domain::{ConnectorError, Provider, Rules, TenantId};
use engine::directory::{DiscoveryError, Ended};
use engine::jobs::{DiscoverDirectories, DiscoverDirectory, Discovery};
use jobs::new_job;
use serde_json::json;
use sim::people::{PeopleOperation, PersonChange};
use sim::{google, microsoft};
use store::TenantStore;
use store::failpoint::Effect;
use store::testing::{migrated_sqlite, on_each_database};
use tokio::runtime::Handle;

use super::scene::{BOTH, Scene, change, looked_at, mailbox, user, users};
use crate::alone::alone;

const DOMAIN: &str = "harbour.example";

fn address(name: &str) -> String {
    format!("{name}@{DOMAIN}")
}

/// Everything that a look could change.
async fn all(scene: &Scene) -> Vec<String> {
    let mut all = Vec::new();
    for sql in [
        "select cast(id as text), address, state, cast(settings as text), cast(version as text) from mailboxes order by 1",
        "select cast(id as text), coalesce(address, ''), state, coalesce(left_out, ''), cast(is_there as text) from users order by 1",
        "select cast(id as text), kind, state, '', '' from jobs order by 1",
        "select cast(run as text), cast(cursors as text), cast(token as text), coalesce(outcome, ''), '' from directories order by 1",
        "select cast(seq as text), type, '', '', '' from events order by 1",
    ] {
        let text = |row: &store::Row| (0..5).map(|n| row.get::<String>(n).unwrap()).collect::<Vec<_>>().join(" ");
        all.extend(scene.db.rows(sql).await.iter().map(text));
    }
    all
}

/// Most of them go.
fn empty(scene: &Scene, provider: Provider) {
    for number in 4..=30 {
        let person = address(&format!("user{number}"));
        let operation = PeopleOperation::Delete { person: person.clone() };
        if scene.wanted(provider, DOMAIN).contains(&person) {
            scene.apply(provider, DOMAIN, operation);
        }
    }
}

async fn company(scene: &Scene, provider: Provider, people: usize) -> TenantStore {
    let acme = scene.tenant(provider.as_str()).await;
    scene.organise(provider, DOMAIN, people);
    scene.set(&acme, provider, DOMAIN, &Rules::default()).await;
    acme
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_tells_what_would_happen_and_changes_nothing() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        for provider in BOTH {
            let acme = company(&scene, provider, 40).await;
            for round in 0..2 {
                let before = all(&scene).await;
                let told = scene.dry_run(&acme, provider).await;
                assert_eq!(all(&scene).await, before);

                let done = scene.discover(&acme, provider).await;

                assert_eq!((told.added, told.left, told.renamed), (done.added, done.left, done.renamed));
                assert_eq!((told.returned, &told.left_out), (done.returned, &done.left_out));
                let named = |action: &str| told.items.iter().filter(|item| item.action == action).count() as u64;
                assert_eq!([named("add"), named("leave"), named("rename")], [done.added, done.left, done.renamed]);
                let recorded = acme.find_directory(provider).await.unwrap().unwrap().dry_run.unwrap();
                assert_eq!(recorded["added"], json!(told.added));
                if round == 0 {
                    scene.apply(provider, DOMAIN, PeopleOperation::Delete { person: address("user2") });
                    let renamed = PersonChange { address: Some(address("zoe")), ..change(&address("user3")) };
                    scene.apply(provider, DOMAIN, PeopleOperation::Set(renamed));
                    scene.apply(provider, DOMAIN, PeopleOperation::join(&address("new")));
                } else {
                    assert_eq!([done.added, done.left, done.renamed], [1, 1, 1]);
                }
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_tells_of_far_fewer_people_changes_nothing_until_somebody_is_sure() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        for provider in BOTH {
            let acme = company(&scene, provider, 30).await;
            scene.discover(&acme, provider).await;
            let before = looked_at(&acme).await;
            empty(&scene, provider);

            let told = scene.dry_run(&acme, provider).await;
            assert!(told.left > 0 && told.reason.is_some(), "it would be held, and says so: {told:?}");
            for _ in 0..2 {
                let ended = scene.syncer.discover(acme.id, provider, false, &|| {}).await.unwrap();
                assert!(matches!(&ended, Ended::Held(report) if report.reason.is_some()), "{ended:?}");
                assert_eq!(looked_at(&acme).await, before);
            }
            let directory = acme.find_directory(provider).await.unwrap().unwrap();
            assert_eq!(directory.outcome.as_deref(), Some("held"));
            let events = acme.list_events(0, 1_000).await.unwrap();
            assert_eq!(events.iter().filter(|event| event.kind == "directory.held").count(), 1, "it is told once");
            let ended = scene.syncer.discover(acme.id, provider, true, &|| {}).await.unwrap();
            assert!(matches!(ended, Ended::Done(_)));
            assert_eq!(looked_at(&acme).await, scene.wanted(provider, DOMAIN));
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_that_fails_deactivates_nobody() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        for provider in BOTH {
            let acme = company(&scene, provider, 8).await;
            scene.discover(&acme, provider).await;
            let before = looked_at(&acme).await;
            scene.apply(provider, DOMAIN, PeopleOperation::Delete { person: address("user2") });
            scene.google.add_fault(google::Fault {
                route: Some(google::Route::UsersList),
                ..google::Fault::once(google::Kind::Internal)
            });
            scene.microsoft.add_fault(microsoft::Fault {
                route: Some(microsoft::Route::UsersDelta),
                ..microsoft::Fault::once(microsoft::Kind::Internal)
            });

            let e = scene.syncer.discover(acme.id, provider, false, &|| {}).await.unwrap_err();
            scene.google.clear_faults();
            scene.microsoft.clear_faults();

            assert!(matches!(e, DiscoveryError::Provider(ConnectorError::Unavailable(_))), "{e:?}");
            assert_eq!(looked_at(&acme).await, before);
            let failed = acme.find_directory(provider).await.unwrap().unwrap();
            assert_eq!(failed.outcome.as_deref(), Some("failed"));
            assert!(failed.last_run.unwrap()["reason"].is_string());
            assert_eq!(scene.discover(&acme, provider).await.left, 1);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_does_not_work_is_left_alone_at_last_and_keeps_no_mailbox_waiting() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        for provider in BOTH {
            let acme = company(&scene, provider, 8).await;
            scene.discover(&acme, provider).await;
            scene.google.add_fault(google::Fault {
                route: Some(google::Route::UsersList),
                ..google::Fault::always(google::Kind::Internal)
            });
            scene.microsoft.add_fault(microsoft::Fault {
                route: Some(microsoft::Route::UsersDelta),
                ..microsoft::Fault::always(microsoft::Kind::Internal)
            });

            let mut last = None;
            for _ in 0..30 {
                last = scene.syncer.discover(acme.id, provider, false, &|| {}).await.err();
            }

            let is_left_alone = matches!(last, Some(DiscoveryError::Provider(ConnectorError::NotYet(_))));
            assert!(is_left_alone, "its breaker is open: {last:?}");
            let ours = mailbox(&acme, &address("user2")).await;
            assert_eq!(scene.syncer.calls.make(&ours, Box::pin(async { Ok(()) })).await, Ok(()));
            scene.google.clear_faults();
            scene.microsoft.clear_faults();
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_wants_us_to_wait_is_waited_for_and_nobody_is_told_that_it_failed() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        let provider = Provider::Gmail;
        let acme = company(&scene, provider, 8).await;
        let slow_down = |seconds| {
            scene.google.add_fault(google::Fault {
                route: Some(google::Route::UsersList),
                ..google::Fault::once(google::Kind::Throttled { retry_after: Some(seconds) })
            });
        };

        slow_down(1);
        scene.discover(&acme, provider).await;
        assert_eq!(looked_at(&acme).await, scene.wanted(provider, DOMAIN));
        slow_down(60);
        let e = scene.syncer.discover(acme.id, provider, false, &|| {}).await.unwrap_err();

        assert!(matches!(e, DiscoveryError::Provider(ConnectorError::Throttled { .. })), "{e:?}");
        let directory = acme.find_directory(provider).await.unwrap().unwrap();
        assert_eq!(directory.outcome.as_deref(), Some("done"), "as it was before");
        let events = acme.list_events(0, 1_000).await.unwrap();
        assert!(events.iter().all(|event| event.kind != "directory.failed"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_administrator_takes_back_shows_and_deactivates_nobody() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        for provider in BOTH {
            let acme = company(&scene, provider, 8).await;
            scene.discover(&acme, provider).await;
            let before = looked_at(&acme).await;
            let allow = |is_allowed: bool| match provider {
                Provider::Gmail => {
                    scene.google.set_delegated_scopes_of(DOMAIN, if is_allowed { None } else { Some(Vec::new()) });
                }
                _ => {
                    let change = microsoft::DirectoryChange { admin_consent: Some(is_allowed), ..Default::default() };
                    scene.microsoft.change_directory(DOMAIN, &change);
                }
            };
            allow(false);

            let e = scene.syncer.discover(acme.id, provider, true, &|| {}).await.unwrap_err();

            assert!(matches!(e, DiscoveryError::Provider(ConnectorError::Unauthorized(_))), "{e:?}");
            assert_eq!(looked_at(&acme).await, before);
            let rules = serde_json::from_value(json!({"include": {"groups": ["nobody@harbour.example"]}})).unwrap();
            allow(true);
            scene.set(&acme, provider, DOMAIN, &rules).await;
            let e = scene.syncer.discover(acme.id, provider, true, &|| {}).await.unwrap_err();
            assert!(matches!(e, DiscoveryError::NoGroup(_)), "{e:?}");
            assert_eq!(looked_at(&acme).await, before, "a group that is not there is no empty group");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_that_are_forgotten_are_made_up_for_by_a_whole_listing() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        let provider = Provider::Outlook;
        let acme = company(&scene, provider, 8).await;
        scene.discover(&acme, provider).await;
        scene.apply(provider, DOMAIN, PeopleOperation::Delete { person: address("user2") });
        scene.apply(provider, DOMAIN, PeopleOperation::ExpireDelta);

        let report = scene.discover(&acme, provider).await;

        assert_eq!((report.is_whole, report.left, report.added), (true, 1, 0));
        let report = scene.discover(&acme, provider).await;
        assert_eq!((report.is_whole, report.listed), (false, 0), "and from there on changes are told");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_that_are_due_are_looked_at_by_themselves_and_mail_comes_in() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        let mut tenants = Vec::new();
        for provider in BOTH {
            tenants.push((provider, company(&scene, provider, 4).await));
        }
        let off = scene.tenant("off").await;
        scene.set(&off, Provider::Gmail, DOMAIN, &Rules::default()).await;
        scene.db.store.system().set_tenant_active(off.id, false).await.unwrap();

        let mut unit = scene.db.store.system().write_for(TenantId::SYSTEM);
        unit.enqueue(vec![new_job(&DiscoverDirectories {}, scene.db.store.clock(), None).unwrap()]);
        unit.commit().await.unwrap();
        scene.work().await;

        for (provider, tenant) in &tenants {
            assert_eq!(looked_at(tenant).await, scene.wanted(*provider, DOMAIN));
            let states = tenant.list_mailboxes().await.unwrap();
            assert!(states.iter().all(|mailbox| mailbox.state == domain::MailboxState::Active), "{states:?}");
            let directory = tenant.find_directory(*provider).await.unwrap().unwrap();
            assert!(directory.next_at > directory.last_run_at.unwrap());
        }
        assert_eq!(users(&off).await, []);
        assert_eq!(scene.db.store.system().list_due_directories(10).await.unwrap(), []);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_that_is_switched_off_is_not_looked_at_even_if_it_was_asked_for() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        let provider = Provider::Gmail;
        let acme = company(&scene, provider, 4).await;
        let mut unit = acme.write();
        for how in [Discovery::Usual, Discovery::Dry] {
            unit.enqueue(vec![DiscoverDirectory::now(scene.db.store.clock(), provider, how).unwrap()]);
        }
        unit.commit().await.unwrap();
        let system = scene.db.store.system();
        system.set_tenant_active(acme.id, false).await.unwrap();
        let other = scene.tenant("other").await;
        scene.set(&other, provider, DOMAIN, &Rules::default()).await;
        let mut unit = other.write();
        unit.enqueue(vec![DiscoverDirectory::now(scene.db.store.clock(), provider, Discovery::Usual).unwrap()]);
        unit.commit().await.unwrap();

        scene.work_for(&other).await;
        assert_eq!((users(&acme).await.len(), users(&other).await.len()), (0, 4));
        system.set_tenant_active(acme.id, true).await.unwrap();
        scene.work().await;
        assert_eq!(users(&acme).await.len(), 4);
    })
    .await;
}

/// Calls from within a look, at the so many-th sign of progress.
fn at_sign<'a>(
    number: usize,
    signs: &'a AtomicUsize,
    act: impl AsyncFn() + Send + Sync + 'a,
) -> impl Fn() + Send + Sync + 'a {
    move || {
        if signs.fetch_add(1, Ordering::SeqCst) + 1 == number {
            tokio::task::block_in_place(|| Handle::current().block_on(act()));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_that_is_switched_off_in_the_middle_of_a_look_stays_as_it_is() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        let provider = Provider::Gmail;
        let acme = company(&scene, provider, 600).await;
        let system = scene.db.store.system();
        let mut interrupted = 0;
        for number in 1.. {
            let (signs, then) = (AtomicUsize::new(0), tokio::sync::Mutex::new(None));
            let switch_off = async || {
                system.set_tenant_active(acme.id, false).await.unwrap();
                *then.lock().await = Some(all(&scene).await);
            };
            let progress = at_sign(number, &signs, switch_off);
            let ended = scene.syncer.discover(acme.id, provider, false, &progress).await;
            drop(progress);
            let Some(then) = then.into_inner() else { break };

            assert_eq!(all(&scene).await, then, "after {number} signs of progress: {ended:?}");
            interrupted += usize::from(ended.is_err());
            system.set_tenant_active(acme.id, true).await.unwrap();
        }
        assert!(interrupted > 3, "{interrupted}");
        let signs = AtomicUsize::new(0);
        let switch_off = async || drop(system.set_tenant_active(acme.id, false).await);
        let tried = scene.syncer.try_discovery(acme.id, provider, &at_sign(1, &signs, switch_off)).await;
        assert!(tried.is_err_and(|e| e.is_overtaken()));
        assert_eq!(acme.find_directory(provider).await.unwrap().unwrap().dry_run, None);
        system.set_tenant_active(acme.id, true).await.unwrap();
        assert_eq!(looked_at(&acme).await, scene.wanted(provider, DOMAIN));
        assert_eq!(scene.discover(&acme, provider).await.changes(), 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_who_look_at_once_the_first_gives_way_and_nobody_has_two_mailboxes() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        let provider = Provider::Gmail;
        let acme = company(&scene, provider, 600).await;
        let mut overtaken = 0;
        for number in 1..8 {
            let signs = AtomicUsize::new(0);
            let other = async || drop(scene.discover(&acme, provider).await);
            let progress = at_sign(number, &signs, other);
            let ended = scene.syncer.discover(acme.id, provider, false, &progress).await;
            drop(progress);

            overtaken += usize::from(matches!(&ended, Err(e) if e.is_overtaken()));
            assert_eq!(looked_at(&acme).await, scene.wanted(provider, DOMAIN));
            let outcome = acme.find_directory(provider).await.unwrap().unwrap().outcome;
            assert_eq!(outcome.as_deref(), Some("done"));
            // Somebody comes and somebody goes before the next.
            scene.apply(provider, DOMAIN, PeopleOperation::join(&address(&format!("new{number}"))));
            scene.apply(provider, DOMAIN, PeopleOperation::Delete { person: address(&format!("user{}", number + 1)) });
        }
        // Later than while it lists it has nothing left to do, and finds that out at its end.
        assert!(overtaken >= 2, "{overtaken}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_forgets_again_and_again_where_we_were_is_left_for_the_next_time() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        let provider = Provider::Outlook;
        // More than a page.
        let acme = company(&scene, provider, 1_100).await;
        let signs = AtomicUsize::new(0);
        let forget = || {
            signs.fetch_add(1, Ordering::SeqCst);
            scene.apply(provider, DOMAIN, PeopleOperation::ExpireDelta);
        };

        let e = scene.syncer.discover(acme.id, provider, false, &forget).await.unwrap_err();

        assert!(matches!(e, DiscoveryError::Provider(ConnectorError::CursorExpired)), "{e:?}");
        assert_eq!((signs.load(Ordering::SeqCst), looked_at(&acme).await.len()), (4, 0));
        scene.discover(&acme, provider).await;
        assert_eq!(looked_at(&acme).await, scene.wanted(provider, DOMAIN));
    })
    .await;
}

#[test]
fn who_dies_on_the_way_through_a_directory_leaves_what_the_next_one_goes_on_with() {
    for effect in Effect::DISCOVERY {
        for moment in ["before", "after"] {
            let failpoint = format!("{moment}:{}=panic", effect.name());
            let folder = tempfile::tempdir().unwrap();
            let trace = folder.path().join("trace");
            alone("directory::runs::outlives_a_panic", &format!("{failpoint} trace={}", trace.display()));
            let passed = std::fs::read_to_string(trace).unwrap();
            assert!(passed.contains(&format!("{moment}:{}", effect.name())), "{failpoint} was never reached");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by another test, with a failpoint that panics"]
async fn outlives_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let scene = Scene::new(migrated_sqlite(folder.path()).await).await;
    let provider = Provider::Gmail;
    // More than a page, and more than fit one commit.
    let acme = company(&scene, provider, 1_100).await;
    let look = async || {
        let (syncer, tenant) = (scene.syncer.clone(), acme.id);
        let look = tokio::spawn(async move { syncer.discover(tenant, provider, false, &|| {}).await.map(drop) });
        look.await
    };

    if look().await.is_err() {
        look().await.unwrap().unwrap();
    }

    assert_eq!(looked_at(&acme).await, scene.wanted(provider, DOMAIN));
    assert_eq!(acme.count_active_users(provider).await.unwrap() as usize, looked_at(&acme).await.len());
    let ann = user(&acme, provider, &address("user1")).await;
    assert_eq!(ann.mailbox, Some(mailbox(&acme, &address("user1")).await.id));
    assert_eq!(scene.discover(&acme, provider).await.changes(), 0);
}
