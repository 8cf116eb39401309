//! Pages of a provider become rows, emails and events.

mod dead_mailboxes;
mod dead_server;
mod memory;
mod missing;
mod own_trouble;
mod parked_fetches;
mod placements;
mod polls;
mod stops;

use std::time::Duration;

use domain::connector::{FolderSnapshot, ListingPage, SeenMessage};
use domain::{Actor, Backfill, ConnectorError, FolderRole, MailboxSettings};
use engine::operations::mailboxes::{self, ConnectRequest, ResumeRequest};
use engine::operations::{Invocation, Origin};
use outbound::Gateway;
use store::testing::on_each_database;
use testkit::MailboxOperations;
use testkit::app::ADDRESS;
use testkit::pages::{folder, page, placement, seen_message};
use testkit::{AppOptions, ConnectorMethod, ScriptedApp, ScriptedConnector, TestApp};

fn draft(revision: &str) -> SeenMessage {
    SeenMessage { revision: Some(revision.into()), ..seen_message("d", "INBOX", &[]) }
}

fn throttled(seconds: u64) -> ConnectorError {
    ConnectorError::Throttled { retry_after: Some(Duration::from_secs(seconds)) }
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn message_is_stored_moved_flagged_deleted_and_restored() {
    on_each_database(|db| async move {
        let app = ScriptedApp::new(db).await;
        let mut after = 0;
        app.connector.fetches("m1", "Subject: one\n\nhello");
        app.connector.fetches("m2", "Subject: two\n\nhello");
        app.connector.queue_history(page(vec![seen_message("m2", "Archive", &["seen"])]));
        app.sync().await;
        assert_eq!(app.stored_emails().await, pairs(&[("two", "Archive[\"seen\"]")]));
        assert_eq!(app.email_events(&mut after).await, ["email.received"]);

        app.connector.queue_changes(page(vec![seen_message("m1", "INBOX", &[])]));
        app.sync().await;
        assert_eq!(app.stored_emails().await, pairs(&[("one", "INBOX[]"), ("two", "Archive[\"seen\"]")]));
        assert_eq!(app.email_events(&mut after).await, ["email.received"]);

        // Moved and marked at once; what is told twice happens once.
        let moved = ListingPage {
            removed_placements: vec![placement("m1", "INBOX")],
            ..page(vec![seen_message("m1", "Archive", &["seen"])])
        };
        app.connector.queue_changes(moved.clone());
        app.connector.queue_changes(moved);
        app.sync().await;
        app.sync().await;
        assert_eq!(app.stored_emails().await, pairs(&[("one", "Archive[\"seen\"]"), ("two", "Archive[\"seen\"]")]));
        assert_eq!(app.email_events(&mut after).await, ["email.flags_changed", "email.moved"]);

        // To the trash, which is out of scope.
        app.connector.queue_changes(ListingPage {
            removed_placements: vec![placement("m1", "Archive")],
            ..page(vec![seen_message("m1", "Trash", &[])])
        });
        app.sync().await;
        assert_eq!(app.stored_emails().await, pairs(&[("two", "Archive[\"seen\"]")]));
        assert_eq!(app.email_events(&mut after).await, ["email.deleted"]);
        assert_eq!(app.ledger().await, pairs(&[("m1", "gone"), ("m2", "processed")]));

        // And back again: nothing is fetched.
        app.connector.forget_fetched();
        app.connector.queue_changes(page(vec![seen_message("m1", "INBOX", &[])]));
        app.sync().await;
        assert_eq!(app.stored_emails().await, pairs(&[("one", "INBOX[]"), ("two", "Archive[\"seen\"]")]));
        assert_eq!(app.email_events(&mut after).await, ["email.restored"]);
        assert!(app.connector.fetched().is_empty());

        // Everything that is in a folder, and a folder that is no more.
        let folder_snapshots = vec![FolderSnapshot { folder: "INBOX".into(), uids: vec![] }];
        let missing = ListingPage { missing_folders: vec!["Archive".into()], ..page(vec![]) };
        app.connector.queue_changes(ListingPage { folder_snapshots, ..missing.clone() }).queue_changes(missing);
        app.sync().await;
        assert_eq!(app.stored_emails().await, []);
        assert_eq!(app.email_events(&mut after).await, ["email.deleted", "email.deleted"]);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn last_new_message_is_of_the_changes() {
    on_each_database(|db| async move {
        let app = ScriptedApp::new(db).await;
        let last = async || app.tenant.find_sync_state(app.mailbox).await.unwrap().unwrap().last_message_id;
        for id in ["old", "m1", "m2"] {
            app.connector.fetches(id, format!("Subject: {id}\n\nhello"));
        }
        app.connector.queue_history(page(vec![seen_message("old", "INBOX", &[])]));
        app.sync().await;
        assert_eq!(last().await, None);

        app.connector.queue_changes(page(vec![seen_message("m1", "INBOX", &[]), seen_message("m2", "INBOX", &[])]));
        app.sync().await;
        assert_eq!(last().await.as_deref(), Some("m2"));

        app.connector.queue_changes(page(vec![seen_message("m1", "INBOX", &["seen"])]));
        app.sync().await;
        assert_eq!(last().await.as_deref(), Some("m2"), "a flag is no new message");
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn draft_with_a_new_revision_is_fetched_again() {
    on_each_database(|db| async move {
        let app = ScriptedApp::new(db).await;
        let mut after = 0;
        app.connector.fetches("d", "Subject: first\n\nold");
        app.connector.queue_changes(page(vec![draft("1")]));
        app.sync().await;
        app.connector.fetches("d", "Subject: second\n\nnew");
        app.connector.queue_changes(page(vec![draft("2")]));
        app.connector.queue_changes(page(vec![draft("2")]));
        app.sync().await;
        app.sync().await;

        assert_eq!(app.stored_emails().await, pairs(&[("second", "INBOX[]")]));
        assert_eq!(app.email_events(&mut after).await, ["email.received", "email.updated"]);
        assert_eq!(app.connector.fetched().len(), 2);
        assert_eq!(app.db.rows("select 1 from emails").await.len(), 1);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_cursor_leads_to_a_comparison() {
    on_each_database(|db| async move {
        let app = ScriptedApp::new(db).await;
        let mut after = 0;
        for id in ["a", "b", "c"] {
            app.connector.fetches(id, format!("Subject: {id}\n\nhello"));
        }
        app.connector.queue_changes(page(vec![seen_message("a", "INBOX", &[]), seen_message("b", "INBOX", &[])]));
        app.sync().await;
        app.email_events(&mut after).await;

        // Meanwhile `a` went and `c` came; the list comes in two pages.
        app.connector.queue_changes(ConnectorError::CursorExpired);
        app.connector.queue_changes(page(vec![]));
        let first = ListingPage { is_last: false, ..page(vec![seen_message("b", "INBOX", &["seen"])]) };
        app.connector.queue_list(first).queue_list(page(vec![seen_message("c", "INBOX", &[])]));
        app.connector.forget_fetched();
        app.sync().await;

        assert_eq!(app.stored_emails().await, pairs(&[("b", "INBOX[\"seen\"]"), ("c", "INBOX[]")]));
        let mut told = app.email_events(&mut after).await;
        told.sort();
        assert_eq!(told, ["email.deleted", "email.flags_changed", "email.received", "mailbox.gap_healed"]);
        assert_eq!(app.connector.fetched(), ["c"]);
        assert_eq!(app.ledger().await, pairs(&[("a", "gone"), ("b", "processed"), ("c", "processed")]));
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reset_cursors_lead_to_a_comparison() {
    on_each_database(|db| async move {
        let app = ScriptedApp::new(db).await;
        let mut after = 0;
        for id in ["a", "b", "c"] {
            app.connector.fetches(id, format!("Subject: {id}\n\nhello"));
        }
        app.connector.queue_changes(page(vec![seen_message("a", "INBOX", &[]), seen_message("b", "INBOX", &[])]));
        app.sync().await;
        app.email_events(&mut after).await;
        let token = async || app.db.rows("select token from sync_states").await[0].get::<u64>(0).unwrap();
        let before = token().await;

        // Meanwhile `a` went and `c` came, which only a cursor that is refused would tell.
        app.connector
            .queue_changes(page(vec![]))
            .queue_list(page(vec![seen_message("b", "INBOX", &[]), seen_message("c", "INBOX", &[])]));
        let origin = Origin::from(Actor::Operator);
        let call = Invocation::begin(&app.engine, &origin).await.unwrap();
        let request = ResumeRequest { resets_cursors: true, ..ResumeRequest::default() };
        mailboxes::resume(&call, app.tenant.id, app.mailbox, request).await.unwrap();
        assert_eq!(app.db.rows("select 1 from sync_cursors").await.len(), 0);
        assert!(token().await > before, "a sync in progress records nothing more");
        app.run_jobs_until_idle().await;

        assert_eq!(app.stored_emails().await, pairs(&[("b", "INBOX[]"), ("c", "INBOX[]")]));
        let mut told = app.email_events(&mut after).await;
        told.sort();
        assert_eq!(told, ["email.deleted", "email.received", "mailbox.gap_healed"]);
        let audited = app.db.rows("select 1 from audit where entry like '%resets_cursors%'").await;
        assert_eq!(audited.len(), 1);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_message_harms_no_other() {
    on_each_database(|db| async move {
        let app = ScriptedApp::new(db).await;
        app.connector.fetches("good", "Subject: good\n\nhello");
        app.connector.queue_changes(page(vec![seen_message("good", "INBOX", &[]), seen_message("lost", "INBOX", &[])]));
        app.sync().await;

        assert_eq!(app.stored_emails().await, pairs(&[("good", "INBOX[]")]));
        assert_eq!(app.ledger().await, pairs(&[("good", "processed"), ("lost", "gone")]));
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_credentials_are_tried_once() {
    on_each_database(|db| async move {
        let connector = ScriptedConnector::quiet(ScriptedApp::PROVIDER);
        connector.queue_changes(ConnectorError::Unauthorized("no".into()));
        let app = TestApp::new(db, AppOptions::default().scripted(&connector));
        let acme = app.create_tenant("acme").await;
        let mailbox = app.add_mailbox(&acme, ScriptedApp::PROVIDER, ADDRESS).await;
        app.sync(&acme, mailbox).await;
        app.sync(&acme, mailbox).await;

        assert_eq!(app.mailbox_state(&acme, mailbox).await, domain::MailboxState::NeedsReauth);
        assert_eq!(connector.count(ConnectorMethod::Changes), 1);
        let events = acme.list_events(0, 10).await.unwrap();
        assert_eq!(events.iter().map(|event| event.kind.as_str()).collect::<Vec<_>>(), ["mailbox.state_changed"]);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn purged_email_is_not_fetched_again() {
    on_each_database(|db| async move {
        let app = ScriptedApp::new(db).await;
        app.connector.fetches("m", "Subject: secret\n\nhello");
        app.connector.queue_changes(page(vec![seen_message("m", "INBOX", &[])]));
        app.sync().await;
        let ids = app.tenant.list_email_ids(app.mailbox, 10).await.unwrap();
        assert_eq!(app.tenant.purge_emails(&ids).await.unwrap(), 1);

        app.connector.forget_fetched();
        app.connector.queue_changes(page(vec![seen_message("m", "INBOX", &["seen"])]));
        app.sync().await;

        assert!(app.connector.fetched().is_empty());
        assert_eq!(app.stored_emails().await, []);
        assert_eq!(app.ledger().await, pairs(&[("m", "gone")]));
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn new_revision_does_not_bring_a_deleted_email_back() {
    on_each_database(|db| async move {
        let app = ScriptedApp::new(db).await;
        app.connector.fetches("d", "Subject: first\n\nold");
        app.connector.queue_changes(page(vec![draft("1")]));
        app.sync().await;
        let mut unit = app.tenant.write();
        unit.discard_email(app.tenant.list_email_ids(app.mailbox, 10).await.unwrap()[0]);
        unit.commit().await.unwrap();
        let mut after = 0;
        app.email_events(&mut after).await;

        app.connector.fetches("d", "Subject: second\n\nnew");
        app.connector.queue_changes(page(vec![draft("2")]));
        app.sync().await;

        assert_eq!(app.count("emails where subject = 'second'").await, 1);
        assert_eq!(app.stored_emails().await, []);
        assert_eq!(app.email_events(&mut after).await, [""; 0]);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn scope_change_brings_and_removes_mail() {
    on_each_database(|db| async move {
        let app = ScriptedApp::new(db).await;
        app.connector.fetches("m", "Subject: one\n\nhello");
        app.connector.fetches("t", "Subject: two\n\nhello");
        app.connector.queue_changes(page(vec![seen_message("m", "Archive", &[]), seen_message("t", "Trash", &[])]));
        app.sync().await;
        assert_eq!(app.stored_emails().await, pairs(&[("one", "Archive[]")]));

        // What was the trash is an ordinary folder now, and the archive is the trash.
        let folders = vec![folder("Trash", None), folder("Archive", Some(FolderRole::Trash))];
        app.connector.queue_changes(ListingPage { folders, ..page(vec![]) });
        app.connector.queue_list(page(vec![seen_message("m", "Archive", &[]), seen_message("t", "Trash", &[])]));
        app.sync().await;

        assert_eq!(app.stored_emails().await, pairs(&[("two", "Trash[]")]));
        assert_eq!(app.ledger().await, pairs(&[("m", "gone"), ("t", "processed")]));
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn latest_revision_is_stored() {
    on_each_database(|db| async move {
        let app = ScriptedApp::new(db).await;
        app.connector.fetches("d", "Subject: first\n\nold");
        // Listed with another text before the first was stored: the job that brings the first must not win.
        app.connector.queue_changes(ListingPage { is_last: false, ..page(vec![draft("1")]) });
        app.connector.queue_changes(page(vec![draft("2")]));
        app.sync().await;
        app.connector.fetches("d", "Subject: second\n\nnew");
        app.connector.queue_changes(page(vec![draft("3")]));
        app.sync().await;

        assert_eq!(app.stored_emails().await, pairs(&[("second", "INBOX[]")]));
        assert_eq!(app.db.rows("select 1 from ledger where revision = '3' and state = 'processed'").await.len(), 1);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn comparison_restarts_when_the_scope_widens() {
    on_each_database(|db| async move {
        let app = ScriptedApp::new(db).await;
        for id in ["a", "b", "t"] {
            app.connector.fetches(id, format!("Subject: {id}\n\nhello"));
        }
        app.connector.queue_changes(page(vec![seen_message("a", "INBOX", &[]), seen_message("b", "INBOX", &[])]));
        app.sync().await;

        // In the middle of it what was the trash turns out to be an ordinary folder.
        app.connector.queue_changes(ConnectorError::CursorExpired);
        app.connector.queue_changes(page(vec![]));
        let first = ListingPage { is_last: false, ..page(vec![seen_message("a", "INBOX", &[])]) };
        let wider = ListingPage { folders: vec![folder("Trash", None)], ..page(vec![seen_message("b", "INBOX", &[])]) };
        let again = page(vec![
            seen_message("a", "INBOX", &[]),
            seen_message("b", "INBOX", &[]),
            seen_message("t", "Trash", &[]),
        ]);
        app.connector.queue_list(first).queue_list(wider).queue_list(again);
        app.sync().await;

        assert_eq!(app.stored_emails().await, pairs(&[("a", "INBOX[]"), ("b", "INBOX[]"), ("t", "Trash[]")]));
        assert_eq!(app.db.rows("select 1 from events where type = 'email.deleted'").await.len(), 0);
        assert!(app.db.rows("select 1 from sync_states where is_listing").await.is_empty(), "it has ended");
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn skipped_message_is_fetched_after_a_reconnect() {
    on_each_database(|db| async move {
        let app = ScriptedApp::new(db).await;
        app.connector.fails_to_fetch("m", ConnectorError::Protocol("broken".into()));
        app.connector.queue_changes(page(vec![seen_message("m", "INBOX", &[])]));
        app.sync().await;
        let mailbox = app.tenant.find_mailbox("me@acme.test").await.unwrap().unwrap();
        app.engine.disconnect(&mailbox).await.unwrap();
        assert_eq!(app.ledger().await, pairs(&[("m", "skipped")]));

        app.connector.fetches("m", "Subject: mended\n\nhello");
        app.connector.queue_changes(page(vec![]));
        app.connector.queue_list(page(vec![seen_message("m", "INBOX", &[])]));
        let connect = ConnectRequest {
            provider: ScriptedApp::PROVIDER,
            address: "me@acme.test".into(),
            settings: MailboxSettings::default(),
            secret: None,
            backfill: Backfill::All,
        };
        assert_eq!(app.engine.connect(app.tenant.id, connect).await.unwrap(), Some(app.mailbox));
        app.sync().await;

        assert_eq!(app.stored_emails().await, pairs(&[("mended", "INBOX[]")]));
        assert_eq!(app.ledger().await, pairs(&[("m", "processed")]));
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mailbox_inherits_the_folders_of_its_tenant() {
    on_each_database(|db| async move {
        let app = ScriptedApp::new(db).await;
        app.db.run("update tenants set settings = '{\"exclude\": [\"archive\"]}'").await;
        app.connector.fetches("m1", "Subject: one\n\nhello");
        app.connector.queue_history(page(vec![seen_message("m1", "INBOX", &[]), seen_message("m2", "Archive", &[])]));

        app.sync().await;

        assert_eq!(app.stored_emails().await, pairs(&[("one", "INBOX[]")]));
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn daily_byte_quota_pauses_a_mailbox() {
    on_each_database(|db| async move {
        let app = ScriptedApp::new(db).await;
        // There is nothing to list but what is new, so it is those who fetch that are refused.
        app.db.run("update sync_states set is_history_done = true").await;
        // A tenth of it at once. What is owed after one message takes hours.
        app.db.run("update mailboxes set settings = '{\"bytes_per_day\": 10000}'").await;
        let names: Vec<String> = (0..6).map(|n| format!("m{n}")).collect();
        for name in &names {
            app.connector.fetches(name, format!("Subject: {name}\r\n\r\n{}", "x".repeat(2000)));
        }
        // Each too large to share a batch; and of Outlook no more than four are fetched before the first is paid for.
        let large =
            names.iter().map(|name| SeenMessage { size_bytes: Some(5 << 20), ..seen_message(name, "INBOX", &[]) });
        app.connector.queue_changes(page(large.collect()));
        app.sync().await;

        let stored = app.stored_emails().await.len();
        assert!((1..=4).contains(&stored), "{stored}");
        assert_eq!(app.pause_reason().await.as_deref(), Some("the mailbox's daily byte quota is used up"));
        app.make_retries_ready().await;
        app.sync().await;
        assert_eq!(app.connector.fetched().len(), stored, "nobody calls");

        app.db.run("update mailboxes set settings = '{\"bytes_per_day\": 0}'").await;
        app.make_retries_ready().await;
        app.sync().await;
        assert_eq!(app.stored_emails().await.len(), 6);
        assert_eq!(app.connector.fetched().len(), 6, "none was fetched twice");
        assert_eq!(app.pause_reason().await, None);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_throttle_pauses_a_mailbox() {
    on_each_database(|db| async move {
        let mut app = ScriptedApp::new(db).await;
        app.connector.queue_changes_first(throttled(9));
        app.sync().await;
        assert_eq!(app.pause_reason().await, None);

        app.syncer.gateway = Gateway::default(); // as when the time has passed
        app.connector.queue_changes_first(throttled(3600));
        app.make_retries_ready().await;
        app.sync().await;
        assert_eq!(app.pause_reason().await.as_deref(), Some("the provider asked to wait"));
        assert_eq!(app.tenant.find_sync_state(app.mailbox).await.unwrap().unwrap().error_count, 0);

        app.syncer.gateway = Gateway::default();
        app.make_retries_ready().await;
        app.sync().await;
        assert_eq!(app.pause_reason().await, None);
        app.finish().await;
    })
    .await;
}
