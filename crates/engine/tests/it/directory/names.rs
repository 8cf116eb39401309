//! Addresses pass from one to another, and whose mail is whose stays so.

use std::collections::BTreeSet;

use domain::{JobId, LeftOut, MailboxId, MailboxState, Provider, Rules};
use engine::directory::Report;
use engine::mailboxes::{Backfill, Connect};
use engine::sync::FetchEmails;
use serde_json::json;
use sim::people::{NewPerson, PeopleOperation, PersonChange};
use store::TenantStore;
use store::testing::on_each_database;

use super::scene::{BOTH, Scene, change, mailbox, user};

const DOMAIN: &str = "harbour.example";

fn address(name: &str) -> String {
    format!("{name}@{DOMAIN}")
}

/// Somebody who was called otherwise when they came: that is what the simulated ones call the account.
fn join(scene: &Scene, provider: Provider, name: &str, messages: usize) {
    let first = address(&format!("first.{name}"));
    let new = NewPerson { address: first, messages, ..NewPerson::default() };
    scene.apply(provider, DOMAIN, PeopleOperation::Join(new));
    rename(scene, provider, &format!("first.{name}"), name);
}

/// Without the old address as an alias, which is free from now on.
fn rename(scene: &Scene, provider: Provider, from: &str, to: &str) {
    let renamed = PersonChange { address: Some(address(to)), ..change(&address(from)) };
    scene.apply(provider, DOMAIN, PeopleOperation::Set(renamed));
    if !from.starts_with("first.") {
        let (person, remove) = (address(to), vec![address(from)]);
        scene.apply(provider, DOMAIN, PeopleOperation::Alias { person, add: vec![], remove });
    }
}

async fn company(scene: &Scene, provider: Provider) -> TenantStore {
    let acme = scene.tenant(provider.as_str()).await;
    scene.organise(provider, DOMAIN, 1);
    set(scene, &acme, provider).await;
    acme
}

async fn set(scene: &Scene, acme: &TenantStore, provider: Provider) {
    let settings = match provider {
        Provider::Gmail => json!({"administrator": address("user1")}),
        _ => json!({"directory": DOMAIN}),
    };
    scene.set_with(acme, provider, settings, &Rules::default(), None).await;
}

/// What is in a mailbox here.
async fn mail(scene: &Scene, mailbox: MailboxId) -> BTreeSet<String> {
    let sql = format!(
        "select distinct p.provider_message_id from placements p
         join emails e on e.tenant_id = p.tenant_id and e.id = p.email_id and e.deleted_at is null
         where p.is_live and cast(p.mailbox_id as text) = '{mailbox}'"
    );
    scene.db.rows(&sql).await.iter().map(|row| row.get::<String>(0).unwrap()).collect()
}

/// And there, of what is wanted.
fn truth(scene: &Scene, name: &str) -> BTreeSet<String> {
    let is_wanted =
        |labels: &[String]| !labels.iter().any(|label| ["TRASH", "SPAM", "DRAFT", "CHAT"].contains(&label.as_str()));
    let messages = scene.google.truth(&address(name)).unwrap().messages;
    messages.into_iter().filter(|(_, message)| is_wanted(&message.label_ids)).map(|(id, _)| id).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mailbox_that_was_opened_by_an_address_that_is_anothers_by_now_has_its_owners_mail_again() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        let provider = Provider::Gmail;
        let acme = company(&scene, provider).await;
        join(&scene, provider, "ann", 5);
        join(&scene, provider, "bob", 4);
        scene.discover(&acme, provider).await;
        scene.work().await;
        let [ann, bob] = [mailbox(&acme, &address("ann")).await, mailbox(&acme, &address("bob")).await];
        assert_eq!(mail(&scene, ann.id).await, truth(&scene, "first.ann"));
        assert!(!truth(&scene, "first.ann").is_empty() && !truth(&scene, "first.bob").is_empty());

        rename(&scene, provider, "ann", "old");
        rename(&scene, provider, "bob", "ann");
        // Whoever asks for a token for the address now opens what is Bob's.
        scene.google.expire_access_tokens(None);
        scene.engine.request_sync(&ann).await.unwrap();
        scene.work().await;
        assert!(!mail(&scene, ann.id).await.is_disjoint(&truth(&scene, "first.bob")), "nobody has looked yet");

        scene.discover(&acme, provider).await;
        scene.work().await;

        assert_eq!(mailbox(&acme, &address("old")).await.id, ann.id);
        assert_eq!(mailbox(&acme, &address("ann")).await.id, bob.id);
        assert_eq!(mail(&scene, ann.id).await, truth(&scene, "first.ann"));
        assert_eq!(mail(&scene, bob.id).await, truth(&scene, "first.bob"));
        // And what comes from now on.
        for name in ["first.ann", "first.bob"] {
            scene.google.step(&address(name), 5);
        }
        for mailbox in [&ann, &bob] {
            scene.engine.request_sync(mailbox).await.unwrap();
        }
        scene.work().await;
        assert_eq!(mail(&scene, ann.id).await, truth(&scene, "first.ann"));
        assert_eq!(mail(&scene, bob.id).await, truth(&scene, "first.bob"));
    })
    .await;
}

/// Somebody has a mailbox of this name that is no concern of the directory's.
async fn connect(scene: &Scene, acme: &TenantStore, provider: Provider, address: &str) -> MailboxId {
    let settings = json!({"connection": {"app_only": true}});
    let connect = Connect { provider, address: address.to_owned(), settings, secret: None, backfill: Backfill::All };
    scene.engine.connect(acme.id, connect).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_gave_up_a_name_and_cannot_have_the_new_one_keeps_the_one_that_was_made_up() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        for provider in BOTH {
            let acme = company(&scene, provider).await;
            for name in ["ann", "bob"] {
                join(&scene, provider, name, 0);
                // One after the other, so that hers is the lower id.
                scene.discover(&acme, provider).await;
            }
            let [ann, bob] = [mailbox(&acme, &address("ann")).await.id, mailbox(&acme, &address("bob")).await.id];
            connect(&scene, &acme, Provider::Imap, &address("carl")).await;

            rename(&scene, provider, "bob", "carl");
            rename(&scene, provider, "ann", "bob");
            scene.discover(&acme, provider).await;

            assert_eq!(mailbox(&acme, &address("bob")).await.id, ann);
            let aside = mailbox(&acme, &bob.to_string()).await;
            assert!(aside.is_active && aside.address.starts_with("bob+former-"), "{}", aside.address);
            assert_eq!(aside.account(), address("carl"), "what its provider knows it by");
            if provider == Provider::Gmail {
                assert_eq!(aside.settings["connection"]["user"], json!(address("carl")));
            }
            assert_eq!(scene.discover(&acme, provider).await.changes(), 0);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_is_removed_and_set_again_gives_nobody_what_is_anothers() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        for provider in BOTH {
            let acme = company(&scene, provider).await;
            for name in ["ann", "bob"] {
                join(&scene, provider, name, 0);
            }
            scene.discover(&acme, provider).await;
            let [ann, bob] = [mailbox(&acme, &address("ann")).await, mailbox(&acme, &address("bob")).await];
            scene.apply(provider, DOMAIN, PeopleOperation::Delete { person: address("ann") });
            scene.discover(&acme, provider).await;

            let directory = acme.find_directory(provider).await.unwrap().unwrap();
            let mut unit = acme.write();
            unit.remove_directory(provider, directory.version);
            unit.commit().await.unwrap();
            scene.apply(provider, DOMAIN, PeopleOperation::Purge { person: address("ann") });
            scene.apply(provider, DOMAIN, PeopleOperation::join(&address("successor")));
            rename(&scene, provider, "successor", "ann");
            set(&scene, &acme, provider).await;
            scene.discover(&acme, provider).await;

            let successor = mailbox(&acme, &address("ann")).await;
            assert_ne!(successor.id, ann.id, "her mail is not her successor's");
            assert!(successor.is_active);
            let former = mailbox(&acme, &ann.id.to_string()).await;
            assert!(!former.is_active && former.address.starts_with("ann+former-"), "{}", former.address);
            assert_eq!(mailbox(&acme, &address("bob")).await.id, bob.id, "who is still there has what they had");
            assert_eq!(user(&acme, provider, &address("bob")).await.mailbox, Some(bob.id));
            assert_eq!(scene.discover(&acme, provider).await.changes(), 0);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_was_connected_by_hand_under_another_of_their_names_gets_no_second_mailbox() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        for provider in BOTH {
            let acme = company(&scene, provider).await;
            for name in ["ann", "bob"] {
                join(&scene, provider, name, 0);
            }
            let ann = connect(&scene, &acme, provider, &address("first.ann")).await;
            let bob = connect(&scene, &acme, provider, &address("first.bob")).await;
            scene.engine.disconnect(&mailbox(&acme, &bob.to_string()).await, None).await.unwrap();

            let before = acme.list_mailboxes().await.unwrap().len();
            let report = scene.discover(&acme, provider).await;

            assert_eq!(report.adopted, 1);
            assert_eq!(mailbox(&acme, &address("ann")).await.id, ann, "it is called as they are");
            assert_eq!(user(&acme, provider, &address("ann")).await.mailbox, Some(ann));
            assert_eq!(user(&acme, provider, &address("bob")).await.left_out, Some(LeftOut::Disconnected));
            assert_eq!(mailbox(&acme, &bob.to_string()).await.state, MailboxState::Disconnected);
            // The administrator's.
            assert_eq!(acme.list_mailboxes().await.unwrap().len(), before + 1);
            assert_eq!(scene.discover(&acme, provider).await.changes(), 0);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_goes_in_the_middle_of_a_backfill_leaves_no_jobs_and_has_everything_on_their_return() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        let provider = Provider::Gmail;
        let acme = company(&scene, provider).await;
        join(&scene, provider, "ann", 7);
        scene.discover(&acme, provider).await;
        scene.list_only().await;
        let ann = mailbox(&acme, &address("ann")).await.id;
        let fetching = "select state from jobs where kind = 'fetch_emails'";
        assert!(!scene.db.rows(fetching).await.is_empty());
        // Of one, nobody knows how to store it.
        let poison: String = scene.db.rows("select min(provider_message_id) from ledger").await[0].get(0).unwrap();
        bury(&scene, &acme, ann, &poison).await;

        let suspend = |is| PeopleOperation::Set(PersonChange { suspended: Some(is), ..change(&address("ann")) });
        scene.apply(provider, DOMAIN, suspend(true));
        scene.discover(&acme, provider).await;
        scene.work().await;
        assert_eq!(scene.db.rows(fetching).await.len(), 0, "nobody is to fetch what is not looked at");
        assert_eq!(mail(&scene, ann).await, BTreeSet::new());

        scene.apply(provider, DOMAIN, suspend(false));
        scene.discover(&acme, provider).await;
        scene.work().await;
        let mut all = truth(&scene, "first.ann");
        assert!(all.remove(&poison) && !all.is_empty());
        assert_eq!(mail(&scene, ann).await, all, "but what waits for somebody to look at it");
        let emails = format!("select id from emails where cast(tenant_id as text) = '{}'", acme.id);
        assert_eq!(scene.db.rows(&emails).await.len(), all.len(), "once");
    })
    .await;
}

/// A dead letter: the message took its process with it again and again.
async fn bury(scene: &Scene, acme: &TenantStore, mailbox: MailboxId, message: &str) {
    let (id, payload) = (JobId::new(acme.clock()), json!(FetchEmails { mailbox, messages: vec![message.to_owned()] }));
    let sql = format!(
        "insert into finished_jobs (id, tenant_id, kind, lane, state, payload, token, attempt, abandoned, created_at, ended_at)
         values ('{id}', '{}', 'fetch_emails', 1, 'dead', '{payload}', 3, 0, 3, mailroom_now(), mailroom_now())",
        acme.id
    );
    scene.db.run(&sql).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_tells_of_an_address_that_passes_on_what_happens_then() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        for provider in BOTH {
            let acme = company(&scene, provider).await;
            for name in ["ann", "bob"] {
                join(&scene, provider, name, 0);
            }
            scene.discover(&acme, provider).await;

            // Hers to somebody new, and his to nobody.
            rename(&scene, provider, "ann", "old");
            scene.apply(provider, DOMAIN, PeopleOperation::join(&address("successor")));
            rename(&scene, provider, "successor", "ann");
            scene.apply(provider, DOMAIN, PeopleOperation::Delete { person: address("bob") });
            let tried = scene.dry_run(&acme, provider).await;
            let done = scene.discover(&acme, provider).await;

            let counts = |report: &Report| (report.added, report.renamed, report.left, report.left_out.clone());
            assert_eq!(counts(&tried), counts(&done));
            assert_eq!((done.added, done.renamed, done.left), (1, 1, 1));
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_directory_switched_off_is_its_own_to_switch_on_as_long_as_it_is_there() {
    on_each_database(|db| async move {
        let scene = Scene::new(db).await;
        let provider = Provider::Gmail;
        let acme = company(&scene, provider).await;
        join(&scene, provider, "ann", 0);
        scene.discover(&acme, provider).await;
        scene.apply(provider, DOMAIN, PeopleOperation::Delete { person: address("ann") });
        scene.discover(&acme, provider).await;

        scene.engine.resume_mailbox(&mailbox(&acme, &address("ann")).await, None).await.unwrap();
        assert!(!mailbox(&acme, &address("ann")).await.is_active, "whoever has left is not looked at");

        let directory = acme.find_directory(provider).await.unwrap().unwrap();
        let mut unit = acme.write();
        unit.remove_directory(provider, directory.version);
        unit.commit().await.unwrap();
        scene.engine.resume_mailbox(&mailbox(&acme, &address("ann")).await, None).await.unwrap();
        assert!(mailbox(&acme, &address("ann")).await.is_active, "nobody else would");
    })
    .await;
}
