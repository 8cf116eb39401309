//! Addresses pass from one to another, and whose mail is whose stays so.

use std::collections::BTreeSet;

use domain::{Backfill, DirectoryRules, ExclusionReason, JobId, MailboxId, MailboxSettings, MailboxState, Provider};
use engine::directory::DiscoveryReport;
use engine::operations::mailboxes::ConnectRequest;
use engine::sync::FetchEmails;
use serde_json::json;
use sim::people::{NewPerson, PeopleOperation, PersonChange};
use store::TenantStore;
use store::testing::on_each_database;
use testkit::MailboxOperations;

use super::directory_app::{BOTH, DirectoryApp, change, mailbox, user};

const DOMAIN: &str = "harbour.example";

fn address(name: &str) -> String {
    format!("{name}@{DOMAIN}")
}

/// Somebody who was called otherwise when they came: that is what the simulated ones call the account.
fn join(app: &DirectoryApp, provider: Provider, name: &str, messages: usize) {
    let first = address(&format!("first.{name}"));
    let new = NewPerson { address: first, messages, ..NewPerson::default() };
    app.apply(provider, DOMAIN, PeopleOperation::Join(new));
    rename(app, provider, &format!("first.{name}"), name);
}

/// Without the old address as an alias, which is free from now on.
fn rename(app: &DirectoryApp, provider: Provider, from: &str, to: &str) {
    let renamed = PersonChange { address: Some(address(to)), ..change(&address(from)) };
    app.apply(provider, DOMAIN, PeopleOperation::Set(renamed));
    if !from.starts_with("first.") {
        let (person, remove) = (address(to), vec![address(from)]);
        app.apply(provider, DOMAIN, PeopleOperation::Alias { person, add: vec![], remove });
    }
}

async fn company(app: &DirectoryApp, provider: Provider) -> TenantStore {
    let acme = app.tenant(provider.as_str()).await;
    app.organise(provider, DOMAIN, 1);
    set(app, &acme, provider).await;
    acme
}

async fn set(app: &DirectoryApp, acme: &TenantStore, provider: Provider) {
    let settings = match provider {
        Provider::Gmail => json!({"administrator": address("user1")}),
        _ => json!({"directory": DOMAIN}),
    };
    app.set_with(acme, provider, settings, &DirectoryRules::default(), None).await;
}

/// What is in a mailbox here.
async fn mail(app: &DirectoryApp, mailbox: MailboxId) -> BTreeSet<String> {
    let sql = format!(
        "select distinct p.provider_message_id from placements p
         join emails e on e.tenant_id = p.tenant_id and e.id = p.email_id and e.deleted_at is null
         where p.is_live and cast(p.mailbox_id as text) = '{mailbox}'"
    );
    app.db.rows(&sql).await.iter().map(|row| row.get::<String>(0).unwrap()).collect()
}

/// And there, of what is wanted.
fn truth(app: &DirectoryApp, name: &str) -> BTreeSet<String> {
    let is_wanted =
        |labels: &[String]| !labels.iter().any(|label| ["TRASH", "SPAM", "DRAFT", "CHAT"].contains(&label.as_str()));
    let messages = app.google.truth(&address(name)).unwrap().messages;
    messages.into_iter().filter(|(_, message)| is_wanted(&message.label_ids)).map(|(id, _)| id).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn mailbox_follows_its_owner_after_address_reuse() {
    on_each_database(|db| async move {
        let app = DirectoryApp::new(db).await;
        let provider = Provider::Gmail;
        let acme = company(&app, provider).await;
        join(&app, provider, "ann", 5);
        join(&app, provider, "bob", 4);
        app.discover(&acme, provider).await;
        app.work().await;
        let [ann, bob] = [mailbox(&acme, &address("ann")).await, mailbox(&acme, &address("bob")).await];
        assert_eq!(mail(&app, ann.id).await, truth(&app, "first.ann"));
        assert!(!truth(&app, "first.ann").is_empty() && !truth(&app, "first.bob").is_empty());

        rename(&app, provider, "ann", "old");
        rename(&app, provider, "bob", "ann");
        // Whoever asks for a token for the address now opens what is Bob's.
        app.google.expire_access_tokens(None);
        app.engine.request_sync(&ann).await.unwrap();
        app.work().await;
        assert!(!mail(&app, ann.id).await.is_disjoint(&truth(&app, "first.bob")), "nobody has looked yet");

        app.discover(&acme, provider).await;
        app.work().await;

        assert_eq!(mailbox(&acme, &address("old")).await.id, ann.id);
        assert_eq!(mailbox(&acme, &address("ann")).await.id, bob.id);
        assert_eq!(mail(&app, ann.id).await, truth(&app, "first.ann"));
        assert_eq!(mail(&app, bob.id).await, truth(&app, "first.bob"));
        // And what comes from now on.
        for name in ["first.ann", "first.bob"] {
            app.google.step(&address(name), 5);
        }
        for mailbox in [&ann, &bob] {
            app.engine.request_sync(mailbox).await.unwrap();
        }
        app.work().await;
        assert_eq!(mail(&app, ann.id).await, truth(&app, "first.ann"));
        assert_eq!(mail(&app, bob.id).await, truth(&app, "first.bob"));
        app.finish().await;
    })
    .await;
}

/// Somebody has a mailbox of this name that is no concern of the directory's.
async fn connect(app: &DirectoryApp, acme: &TenantStore, provider: Provider, address: &str) -> MailboxId {
    let settings = MailboxSettings::of_connection(json!({"app_only": true}));
    let connect =
        ConnectRequest { provider, address: address.to_owned(), settings, secret: None, backfill: Backfill::All };
    app.engine.connect(acme.id, connect).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn renamed_user_keeps_a_placeholder_address() {
    on_each_database(|db| async move {
        let app = DirectoryApp::new(db).await;
        for provider in BOTH {
            let acme = company(&app, provider).await;
            for name in ["ann", "bob"] {
                join(&app, provider, name, 0);
                // One after the other, so that hers is the lower id.
                app.discover(&acme, provider).await;
            }
            let [ann, bob] = [mailbox(&acme, &address("ann")).await.id, mailbox(&acme, &address("bob")).await.id];
            connect(&app, &acme, Provider::Imap, &address("carl")).await;

            rename(&app, provider, "bob", "carl");
            rename(&app, provider, "ann", "bob");
            app.discover(&acme, provider).await;

            assert_eq!(mailbox(&acme, &address("bob")).await.id, ann);
            let aside = mailbox(&acme, &bob.to_string()).await;
            assert!(aside.is_active && aside.address.starts_with("bob+former-"), "{}", aside.address);
            assert_eq!(aside.account(), address("carl"), "what its provider knows it by");
            if provider == Provider::Gmail {
                assert_eq!(aside.settings.connection["user"], json!(address("carl")));
            }
            assert_eq!(app.discover(&acme, provider).await.changes(), 0);
        }
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn restored_directory_mixes_up_no_mailboxes() {
    on_each_database(|db| async move {
        let app = DirectoryApp::new(db).await;
        for provider in BOTH {
            let acme = company(&app, provider).await;
            for name in ["ann", "bob"] {
                join(&app, provider, name, 0);
            }
            app.discover(&acme, provider).await;
            let [ann, bob] = [mailbox(&acme, &address("ann")).await, mailbox(&acme, &address("bob")).await];
            app.apply(provider, DOMAIN, PeopleOperation::Delete { person: address("ann") });
            app.discover(&acme, provider).await;

            let directory = acme.find_directory(provider).await.unwrap().unwrap();
            let mut unit = acme.write();
            unit.remove_directory(provider, directory.version);
            unit.commit().await.unwrap();
            app.apply(provider, DOMAIN, PeopleOperation::Purge { person: address("ann") });
            app.apply(provider, DOMAIN, PeopleOperation::join(&address("successor")));
            rename(&app, provider, "successor", "ann");
            set(&app, &acme, provider).await;
            app.discover(&acme, provider).await;

            let successor = mailbox(&acme, &address("ann")).await;
            assert_ne!(successor.id, ann.id, "her mail is not her successor's");
            assert!(successor.is_active);
            let former = mailbox(&acme, &ann.id.to_string()).await;
            assert!(!former.is_active && former.address.starts_with("ann+former-"), "{}", former.address);
            assert_eq!(mailbox(&acme, &address("bob")).await.id, bob.id, "who is still there has what they had");
            assert_eq!(user(&acme, provider, &address("bob")).await.mailbox, Some(bob.id));
            assert_eq!(app.discover(&acme, provider).await.changes(), 0);
        }
        app.leaves_jobs(&["fetch_forgotten", "sync_mailbox"]);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn alias_connected_by_hand_gets_no_second_mailbox() {
    on_each_database(|db| async move {
        let app = DirectoryApp::new(db).await;
        for provider in BOTH {
            let acme = company(&app, provider).await;
            for name in ["ann", "bob"] {
                join(&app, provider, name, 0);
            }
            let ann = connect(&app, &acme, provider, &address("first.ann")).await;
            let bob = connect(&app, &acme, provider, &address("first.bob")).await;
            app.engine.disconnect(&mailbox(&acme, &bob.to_string()).await).await.unwrap();

            let before = acme.list_mailboxes().await.unwrap().len();
            let report = app.discover(&acme, provider).await;

            assert_eq!(report.adopted, 1);
            assert_eq!(mailbox(&acme, &address("ann")).await.id, ann, "it is called as they are");
            assert_eq!(user(&acme, provider, &address("ann")).await.mailbox, Some(ann));
            assert_eq!(user(&acme, provider, &address("bob")).await.left_out, Some(ExclusionReason::Disconnected));
            assert_eq!(mailbox(&acme, &bob.to_string()).await.state, MailboxState::Disconnected);
            // The administrator's.
            assert_eq!(acme.list_mailboxes().await.unwrap().len(), before + 1);
            assert_eq!(app.discover(&acme, provider).await.changes(), 0);
        }
        app.leaves_jobs(&["fetch_forgotten", "stop_watch", "sync_mailbox", "watch_mailbox"]);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leaver_resumes_the_backfill_on_return() {
    on_each_database(|db| async move {
        let app = DirectoryApp::new(db).await;
        let provider = Provider::Gmail;
        let acme = company(&app, provider).await;
        join(&app, provider, "ann", 7);
        app.discover(&acme, provider).await;
        app.list_only().await;
        let ann = mailbox(&acme, &address("ann")).await.id;
        let fetching = "select state from jobs where kind = 'fetch_emails'";
        assert!(!app.db.rows(fetching).await.is_empty());
        // Of one, nobody knows how to store it.
        let poison: String = app.db.rows("select min(provider_message_id) from ledger").await[0].get(0).unwrap();
        bury(&app, &acme, ann, &poison).await;

        let suspend = |is| PeopleOperation::Set(PersonChange { suspended: Some(is), ..change(&address("ann")) });
        app.apply(provider, DOMAIN, suspend(true));
        app.discover(&acme, provider).await;
        app.work().await;
        assert_eq!(app.db.rows(fetching).await.len(), 0, "nobody is to fetch what is not looked at");
        assert_eq!(mail(&app, ann).await, BTreeSet::new());

        app.apply(provider, DOMAIN, suspend(false));
        app.discover(&acme, provider).await;
        app.work().await;
        let mut all = truth(&app, "first.ann");
        assert!(all.remove(&poison) && !all.is_empty());
        assert_eq!(mail(&app, ann).await, all, "but what waits for somebody to look at it");
        let emails = format!("select id from emails where cast(tenant_id as text) = '{}'", acme.id);
        assert_eq!(app.db.rows(&emails).await.len(), all.len(), "once");
        app.expect_dead_letters(1);
        app.finish().await;
    })
    .await;
}

/// A dead letter: the message took its process with it again and again.
async fn bury(app: &DirectoryApp, acme: &TenantStore, mailbox: MailboxId, message: &str) {
    let (id, payload) = (JobId::new(acme.clock()), json!(FetchEmails { mailbox, messages: vec![message.to_owned()] }));
    let sql = format!(
        "insert into finished_jobs (id, tenant_id, kind, lane, state, payload, token, attempt, abandoned, created_at, ended_at)
         values ('{id}', '{}', 'fetch_emails', 1, 'dead', '{payload}', 3, 0, 3, mailroom_now(), mailroom_now())",
        acme.id
    );
    app.db.run(&sql).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dry_run_reports_a_passed_on_address() {
    on_each_database(|db| async move {
        let app = DirectoryApp::new(db).await;
        for provider in BOTH {
            let acme = company(&app, provider).await;
            for name in ["ann", "bob"] {
                join(&app, provider, name, 0);
            }
            app.discover(&acme, provider).await;

            // Hers to somebody new, and his to nobody.
            rename(&app, provider, "ann", "old");
            app.apply(provider, DOMAIN, PeopleOperation::join(&address("successor")));
            rename(&app, provider, "successor", "ann");
            app.apply(provider, DOMAIN, PeopleOperation::Delete { person: address("bob") });
            let tried = app.dry_run(&acme, provider).await;
            let done = app.discover(&acme, provider).await;

            let counts =
                |report: &DiscoveryReport| (report.added, report.renamed, report.left, report.left_out.clone());
            assert_eq!(counts(&tried), counts(&done));
            assert_eq!((done.added, done.renamed, done.left), (1, 1, 1));
        }
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn directory_reactivates_what_it_deactivated() {
    on_each_database(|db| async move {
        let app = DirectoryApp::new(db).await;
        let provider = Provider::Gmail;
        let acme = company(&app, provider).await;
        join(&app, provider, "ann", 0);
        app.discover(&acme, provider).await;
        app.apply(provider, DOMAIN, PeopleOperation::Delete { person: address("ann") });
        app.discover(&acme, provider).await;

        app.engine.resume_mailbox(&mailbox(&acme, &address("ann")).await).await.unwrap();
        assert!(!mailbox(&acme, &address("ann")).await.is_active, "whoever has left is not looked at");

        let directory = acme.find_directory(provider).await.unwrap().unwrap();
        let mut unit = acme.write();
        unit.remove_directory(provider, directory.version);
        unit.commit().await.unwrap();
        app.engine.resume_mailbox(&mailbox(&acme, &address("ann")).await).await.unwrap();
        assert!(mailbox(&acme, &address("ann")).await.is_active, "nobody else would");
        app.leaves_jobs(&["fetch_failed", "fetch_forgotten", "sync_mailbox", "watch_mailbox"]);
        app.finish().await;
    })
    .await;
}
