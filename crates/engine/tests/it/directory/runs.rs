//! What becomes of a look at a directory: it is tried out, held back, broken off, gone on with and asked for again.

use std::sync::atomic::{AtomicUsize, Ordering};

use domain::{ConnectorError, DirectoryRules, Provider, TenantId};
use engine::directory::{DiscoverDirectory, DiscoveryMode};
use engine::directory::{DiscoveryError, DiscoveryOutcome};
use engine::jobs::DiscoverDirectories;
use engine::sync::target::target_of;
use jobs::new_job;
use serde_json::json;
use sim::people::{PeopleOperation, PersonChange};
use sim::{google, microsoft};
use store::TenantStore;
use store::failpoint::Effect;
use store::testing::{migrated_sqlite, on_each_database};
use tokio::runtime::Handle;

use super::directory_app::{BOTH, DirectoryApp, change, looked_at, mailbox, user, users};
use crate::events::assert_like_examples;
use testkit::own_process;

const DOMAIN: &str = "harbour.example";

fn address(name: &str) -> String {
    format!("{name}@{DOMAIN}")
}

/// Everything that a look could change.
async fn all(app: &DirectoryApp) -> Vec<String> {
    let mut all = Vec::new();
    for sql in [
        "select cast(id as text), address, state, cast(settings as text), cast(version as text) from mailboxes order by 1",
        "select cast(id as text), coalesce(address, ''), state, coalesce(left_out, ''), cast(is_there as text) from users order by 1",
        "select cast(id as text), kind, state, '', '' from jobs order by 1",
        "select cast(run as text), cast(cursors as text), cast(token as text), coalesce(outcome, ''), '' from directories order by 1",
        "select cast(seq as text), type, '', '', '' from events order by 1",
    ] {
        for row in app.db.rows(sql).await {
            all.push((0..5).map(|n| row.get::<String>(n).unwrap()).collect::<Vec<_>>().join(" "));
        }
    }
    all
}

/// Most of them go.
fn empty(app: &DirectoryApp, provider: Provider) {
    for number in 4..=30 {
        let person = address(&format!("user{number}"));
        let operation = PeopleOperation::Delete { person: person.clone() };
        if app.wanted(provider, DOMAIN).contains(&person) {
            app.apply(provider, DOMAIN, operation);
        }
    }
}

async fn company(app: &DirectoryApp, provider: Provider, people: usize) -> TenantStore {
    let acme = app.tenant(provider.as_str()).await;
    app.organise(provider, DOMAIN, people);
    app.set(&acme, provider, DOMAIN, &DirectoryRules::default()).await;
    acme
}

#[tokio::test(flavor = "multi_thread")]
async fn dry_run_changes_nothing() {
    on_each_database(|db| async move {
        let app = DirectoryApp::new(db).await;
        for provider in BOTH {
            let acme = company(&app, provider, 40).await;
            for round in 0..2 {
                let before = all(&app).await;
                let told = app.dry_run(&acme, provider).await;
                assert_eq!(all(&app).await, before);

                let done = app.discover(&acme, provider).await;

                assert_eq!((told.added, told.left, told.renamed), (done.added, done.left, done.renamed));
                assert_eq!((told.returned, &told.left_out), (done.returned, &done.left_out));
                let named = ["add", "leave", "rename"]
                    .map(|action| told.items.iter().filter(|item| item.action == action).count() as u64);
                assert_eq!(named, [done.added, done.left, done.renamed]);
                let recorded = acme.find_directory(provider).await.unwrap().unwrap().dry_run.unwrap();
                assert_eq!(recorded["added"], json!(told.added));
                if round == 0 {
                    app.apply(provider, DOMAIN, PeopleOperation::Delete { person: address("user2") });
                    let renamed = PersonChange { address: Some(address("zoe")), ..change(&address("user3")) };
                    app.apply(provider, DOMAIN, PeopleOperation::Set(renamed));
                    app.apply(provider, DOMAIN, PeopleOperation::join(&address("new")));
                } else {
                    assert_eq!([done.added, done.left, done.renamed], [1, 1, 1]);
                }
            }
        }
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shrunken_directory_needs_a_confirmation() {
    on_each_database(|db| async move {
        let app = DirectoryApp::new(db).await;
        for provider in BOTH {
            let acme = company(&app, provider, 30).await;
            app.discover(&acme, provider).await;
            let before = looked_at(&acme).await;
            empty(&app, provider);

            let told = app.dry_run(&acme, provider).await;
            assert!(told.left > 0 && told.reason.is_some(), "it would be held, and says so: {told:?}");
            for _ in 0..2 {
                let ended = app.syncer.discover(acme.id, provider, false, &|| {}).await.unwrap();
                assert!(matches!(&ended, DiscoveryOutcome::Held(report) if report.reason.is_some()), "{ended:?}");
                assert_eq!(looked_at(&acme).await, before);
            }
            let directory = acme.find_directory(provider).await.unwrap().unwrap();
            assert_eq!(directory.outcome.as_deref(), Some("held"));
            let events = acme.list_events(0, 1_000).await.unwrap();
            assert_like_examples(&events);
            assert_eq!(events.iter().filter(|event| event.kind == "directory.held").count(), 1, "it is told once");
            let ended = app.syncer.discover(acme.id, provider, true, &|| {}).await.unwrap();
            assert!(matches!(ended, DiscoveryOutcome::Done(_)));
            assert_eq!(looked_at(&acme).await, app.wanted(provider, DOMAIN));
        }
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_listing_deactivates_nobody() {
    on_each_database(|db| async move {
        let app = DirectoryApp::new(db).await;
        for provider in BOTH {
            let acme = company(&app, provider, 8).await;
            app.discover(&acme, provider).await;
            let before = looked_at(&acme).await;
            app.apply(provider, DOMAIN, PeopleOperation::Delete { person: address("user2") });
            app.google.add_fault(google::GoogleFault {
                route: Some(google::GoogleRoute::UsersList),
                ..google::GoogleFault::once(google::GoogleFaultKind::Internal)
            });
            app.microsoft.add_fault(microsoft::MicrosoftFault {
                route: Some(microsoft::MicrosoftRoute::UsersDelta),
                ..microsoft::MicrosoftFault::once(microsoft::MicrosoftFaultKind::Internal)
            });

            let e = app.syncer.discover(acme.id, provider, false, &|| {}).await.unwrap_err();
            app.google.clear_faults();
            app.microsoft.clear_faults();

            assert!(matches!(e, DiscoveryError::Provider(ConnectorError::Unavailable(_))), "{e:?}");
            assert_eq!(looked_at(&acme).await, before);
            let failed = acme.find_directory(provider).await.unwrap().unwrap();
            assert_eq!(failed.outcome.as_deref(), Some("failed"));
            assert!(failed.last_run.unwrap()["reason"].is_string());
            assert_eq!(app.discover(&acme, provider).await.left, 1);
        }
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_directory_does_not_delay_mailboxes() {
    on_each_database(|db| async move {
        let app = DirectoryApp::new(db).await;
        for provider in BOTH {
            let acme = company(&app, provider, 8).await;
            app.discover(&acme, provider).await;
            app.google.add_fault(google::GoogleFault {
                route: Some(google::GoogleRoute::UsersList),
                ..google::GoogleFault::always(google::GoogleFaultKind::Internal)
            });
            app.microsoft.add_fault(microsoft::MicrosoftFault {
                route: Some(microsoft::MicrosoftRoute::UsersDelta),
                ..microsoft::MicrosoftFault::always(microsoft::MicrosoftFaultKind::Internal)
            });

            let mut last = None;
            for _ in 0..30 {
                last = app.syncer.discover(acme.id, provider, false, &|| {}).await.err();
            }

            let is_left_alone = matches!(last, Some(DiscoveryError::Provider(ConnectorError::RateLimited(_))));
            assert!(is_left_alone, "its breaker is open: {last:?}");
            let ours = mailbox(&acme, &address("user2")).await;
            assert_eq!(
                app.syncer
                    .gateway
                    .make(&target_of(&ours, app.syncer.gateway.settings()), Box::pin(async { Ok(()) }))
                    .await,
                Ok(())
            );
            app.google.clear_faults();
            app.microsoft.clear_faults();
        }
        app.finish().await;
    })
    .await;
}

fn throttle_once(app: &DirectoryApp, seconds: u64) {
    app.google.add_fault(google::GoogleFault {
        route: Some(google::GoogleRoute::UsersList),
        ..google::GoogleFault::once(google::GoogleFaultKind::Throttled { retry_after: Some(seconds) })
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn throttled_discovery_is_no_failure() {
    on_each_database(|db| async move {
        let app = DirectoryApp::new(db).await;
        let provider = Provider::Gmail;
        let acme = company(&app, provider, 8).await;
        throttle_once(&app, 1);
        app.discover(&acme, provider).await;
        assert_eq!(looked_at(&acme).await, app.wanted(provider, DOMAIN));
        throttle_once(&app, 60);
        let e = app.syncer.discover(acme.id, provider, false, &|| {}).await.unwrap_err();

        assert!(matches!(e, DiscoveryError::Provider(ConnectorError::Throttled { .. })), "{e:?}");
        let directory = acme.find_directory(provider).await.unwrap().unwrap();
        assert_eq!(directory.outcome.as_deref(), Some("done"), "as it was before");
        let events = acme.list_events(0, 1_000).await.unwrap();
        assert!(events.iter().all(|event| event.kind != "directory.failed"));
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_consent_deactivates_nobody() {
    on_each_database(|db| async move {
        let app = DirectoryApp::new(db).await;
        for provider in BOTH {
            let acme = company(&app, provider, 8).await;
            app.discover(&acme, provider).await;
            let before = looked_at(&acme).await;
            let allow = |is_allowed: bool| match provider {
                Provider::Gmail => {
                    app.google.set_delegated_scopes_of(DOMAIN, if is_allowed { None } else { Some(Vec::new()) });
                }
                _ => {
                    let change = microsoft::DirectoryChange { admin_consent: Some(is_allowed), ..Default::default() };
                    app.microsoft.change_directory(DOMAIN, &change);
                }
            };
            allow(false);

            let e = app.syncer.discover(acme.id, provider, true, &|| {}).await.unwrap_err();

            assert!(matches!(e, DiscoveryError::Provider(ConnectorError::Unauthorized(_))), "{e:?}");
            assert_eq!(looked_at(&acme).await, before);
            let rules = serde_json::from_value(json!({"include": {"groups": ["nobody@harbour.example"]}})).unwrap();
            allow(true);
            app.set(&acme, provider, DOMAIN, &rules).await;
            let e = app.syncer.discover(acme.id, provider, true, &|| {}).await.unwrap_err();
            assert!(matches!(e, DiscoveryError::NoGroup(_)), "{e:?}");
            assert_eq!(looked_at(&acme).await, before, "a group that is not there is no empty group");
        }
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_delta_leads_to_a_full_listing() {
    on_each_database(|db| async move {
        let app = DirectoryApp::new(db).await;
        let provider = Provider::Outlook;
        let acme = company(&app, provider, 8).await;
        app.discover(&acme, provider).await;
        app.apply(provider, DOMAIN, PeopleOperation::Delete { person: address("user2") });
        app.apply(provider, DOMAIN, PeopleOperation::ExpireDelta);

        let report = app.discover(&acme, provider).await;

        assert_eq!((report.is_whole, report.left, report.added), (true, 1, 0));
        let report = app.discover(&acme, provider).await;
        assert_eq!((report.is_whole, report.listed), (false, 0), "and from there on changes are told");
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn due_directory_is_discovered_by_itself() {
    on_each_database(|db| async move {
        let app = DirectoryApp::new(db).await;
        let mut tenants = Vec::new();
        for provider in BOTH {
            tenants.push((provider, company(&app, provider, 4).await));
        }
        let off = app.tenant("off").await;
        app.set(&off, Provider::Gmail, DOMAIN, &DirectoryRules::default()).await;
        app.db.store.system().set_tenant_active(off.id, false).await.unwrap();

        let mut unit = app.db.store.system().write_for(TenantId::SYSTEM);
        unit.enqueue(vec![new_job(&DiscoverDirectories {}, app.db.store.clock(), None).unwrap()]);
        unit.commit().await.unwrap();
        app.work().await;

        for (provider, tenant) in &tenants {
            assert_eq!(looked_at(tenant).await, app.wanted(*provider, DOMAIN));
            let states = tenant.list_mailboxes().await.unwrap();
            assert!(states.iter().all(|mailbox| mailbox.state == domain::MailboxState::Active), "{states:?}");
            let directory = tenant.find_directory(*provider).await.unwrap().unwrap();
            assert!(directory.next_at > directory.last_run_at.unwrap());
        }
        assert_eq!(users(&off).await, []);
        assert_eq!(app.db.store.system().list_due_directories(10).await.unwrap(), []);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inactive_tenant_is_not_discovered() {
    on_each_database(|db| async move {
        let app = DirectoryApp::new(db).await;
        let provider = Provider::Gmail;
        let acme = company(&app, provider, 4).await;
        let mut unit = acme.write();
        for how in [DiscoveryMode::Usual, DiscoveryMode::Dry] {
            unit.enqueue(vec![DiscoverDirectory::request(app.db.store.clock(), provider, how).unwrap()]);
        }
        unit.commit().await.unwrap();
        let system = app.db.store.system();
        system.set_tenant_active(acme.id, false).await.unwrap();
        let other = app.tenant("other").await;
        app.set(&other, provider, DOMAIN, &DirectoryRules::default()).await;
        let mut unit = other.write();
        unit.enqueue(vec![DiscoverDirectory::request(app.db.store.clock(), provider, DiscoveryMode::Usual).unwrap()]);
        unit.commit().await.unwrap();

        app.work_for(&other).await;
        assert_eq!((users(&acme).await.len(), users(&other).await.len()), (0, 4));
        system.set_tenant_active(acme.id, true).await.unwrap();
        app.work().await;
        assert_eq!(users(&acme).await.len(), 4);
        app.finish().await;
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
async fn tenant_deactivated_mid_run_stays_unchanged() {
    on_each_database(|db| async move {
        let app = DirectoryApp::new(db).await;
        let provider = Provider::Gmail;
        let acme = company(&app, provider, 600).await;
        let system = app.db.store.system();
        let mut interrupted = 0;
        for number in 1.. {
            let (signs, then) = (AtomicUsize::new(0), tokio::sync::Mutex::new(None));
            let switch_off = async || {
                system.set_tenant_active(acme.id, false).await.unwrap();
                *then.lock().await = Some(all(&app).await);
            };
            let progress = at_sign(number, &signs, switch_off);
            let ended = app.syncer.discover(acme.id, provider, false, &progress).await;
            drop(progress);
            let Some(then) = then.into_inner() else { break };

            assert_eq!(all(&app).await, then, "after {number} signs of progress: {ended:?}");
            interrupted += usize::from(ended.is_err());
            system.set_tenant_active(acme.id, true).await.unwrap();
        }
        assert!(interrupted > 3, "{interrupted}");
        let signs = AtomicUsize::new(0);
        let switch_off = async || drop(system.set_tenant_active(acme.id, false).await);
        let tried = app.syncer.dry_run_discovery(acme.id, provider, &at_sign(1, &signs, switch_off)).await;
        assert!(tried.is_err_and(|e| e.is_superseded()));
        assert_eq!(acme.find_directory(provider).await.unwrap().unwrap().dry_run, None);
        system.set_tenant_active(acme.id, true).await.unwrap();
        assert_eq!(looked_at(&acme).await, app.wanted(provider, DOMAIN));
        assert_eq!(app.discover(&acme, provider).await.changes(), 0);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_discoveries_make_no_double() {
    on_each_database(|db| async move {
        let app = DirectoryApp::new(db).await;
        let provider = Provider::Gmail;
        let acme = company(&app, provider, 600).await;
        let mut overtaken = 0;
        for number in 1..8 {
            let signs = AtomicUsize::new(0);
            let other = async || drop(app.discover(&acme, provider).await);
            let progress = at_sign(number, &signs, other);
            let ended = app.syncer.discover(acme.id, provider, false, &progress).await;
            drop(progress);

            overtaken += usize::from(matches!(&ended, Err(e) if e.is_superseded()));
            assert_eq!(looked_at(&acme).await, app.wanted(provider, DOMAIN));
            let outcome = acme.find_directory(provider).await.unwrap().unwrap().outcome;
            assert_eq!(outcome.as_deref(), Some("done"));
            // Somebody comes and somebody goes before the next.
            app.apply(provider, DOMAIN, PeopleOperation::join(&address(&format!("new{number}"))));
            app.apply(provider, DOMAIN, PeopleOperation::Delete { person: address(&format!("user{}", number + 1)) });
        }
        // Later than while it lists it has nothing left to do, and finds that out at its end.
        assert!(overtaken >= 2, "{overtaken}");
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeatedly_expiring_delta_is_deferred() {
    on_each_database(|db| async move {
        let app = DirectoryApp::new(db).await;
        let provider = Provider::Outlook;
        // More than a page.
        let acme = company(&app, provider, 1_100).await;
        let signs = AtomicUsize::new(0);
        let forget = || {
            signs.fetch_add(1, Ordering::SeqCst);
            app.apply(provider, DOMAIN, PeopleOperation::ExpireDelta);
        };

        let e = app.syncer.discover(acme.id, provider, false, &forget).await.unwrap_err();

        assert!(matches!(e, DiscoveryError::Provider(ConnectorError::CursorExpired)), "{e:?}");
        assert_eq!((signs.load(Ordering::SeqCst), looked_at(&acme).await.len()), (4, 0));
        app.discover(&acme, provider).await;
        assert_eq!(looked_at(&acme).await, app.wanted(provider, DOMAIN));
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn crashed_discovery_is_resumed() {
    if own_process::is_child() {
        return outlive_a_panic().await;
    }
    for effect in Effect::DISCOVERY {
        for moment in ["before", "after"] {
            let failpoint = format!("{moment}:{}=panic", effect.name());
            let folder = tempfile::tempdir().unwrap();
            let trace = folder.path().join("trace");
            own_process::run(
                "directory::runs::crashed_discovery_is_resumed",
                &format!("{failpoint} trace={}", trace.display()),
            );
            let passed = std::fs::read_to_string(trace).unwrap();
            assert!(passed.contains(&format!("{moment}:{}", effect.name())), "{failpoint} was never reached");
        }
    }
}

/// Discovers a directory, with a panic on the way.
async fn outlive_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let app = DirectoryApp::new(migrated_sqlite(folder.path()).await).await;
    let provider = Provider::Gmail;
    // More than a page, and more than fit one commit.
    let acme = company(&app, provider, 1_100).await;
    let look = async || {
        let (syncer, tenant) = (app.syncer.clone(), acme.id);
        let look = tokio::spawn(async move { syncer.discover(tenant, provider, false, &|| {}).await.map(drop) });
        look.await
    };

    if look().await.is_err() {
        look().await.unwrap().unwrap();
    }

    assert_eq!(looked_at(&acme).await, app.wanted(provider, DOMAIN));
    assert_eq!(acme.count_active_users(provider).await.unwrap() as usize, looked_at(&acme).await.len());
    let ann = user(&acme, provider, &address("user1")).await;
    assert_eq!(ann.mailbox, Some(mailbox(&acme, &address("user1")).await.id));
    assert_eq!(app.discover(&acme, provider).await.changes(), 0);
    app.finish().await;
}
