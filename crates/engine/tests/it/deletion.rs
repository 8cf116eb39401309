//! Deleted emails can be found and restored, and their mailboxes are synced on.

use domain::connector::ListingPage;
use domain::search::SearchQuery;
use domain::{Actor, ConnectorError, EmailId};
use engine::operations::{Invocation, emails};
use store::sql::search::SearchPage;
use store::testing::on_each_database;
use testkit::ScriptedApp;
use testkit::pages::{page, placement, seen_message};

async fn delete(app: &ScriptedApp, id: EmailId) {
    let operator = Actor::Operator.into();
    let call = Invocation::begin(&app.engine, &operator).await.unwrap();
    emails::delete(&call, app.tenant.id, id).await.unwrap();
}

async fn restore(app: &ScriptedApp, id: EmailId) {
    let operator = Actor::Operator.into();
    let call = Invocation::begin(&app.engine, &operator).await.unwrap();
    emails::restore(&call, app.tenant.id, id).await.unwrap();
}

async fn found(app: &ScriptedApp, query: &str) -> Vec<EmailId> {
    let query: SearchQuery = content::query::parse(query).unwrap();
    app.tenant.search(&query, &SearchPage { limit: 100, ..SearchPage::default() }).await.unwrap()
}

/// Syncs a page of changes.
async fn sync(app: &ScriptedApp, changes: ListingPage) {
    app.connector.queue_changes(changes);
    app.sync().await;
}

fn gone(message: &str, folder: &str) -> ListingPage {
    ListingPage { removed_placements: vec![placement(message, folder)], ..page(vec![]) }
}

/// An application with one email, `m`, in INBOX. Returns its id and the number of its last event.
async fn with_email(app: &ScriptedApp) -> (EmailId, u64) {
    let mut after = 0;
    app.connector.fetches("m", "Subject: secret\n\nhello");
    sync(app, page(vec![seen_message("m", "INBOX", &[])])).await;
    app.email_events(&mut after).await;
    (app.tenant.list_email_ids(app.mailbox, 10).await.unwrap()[0], after)
}

#[tokio::test(flavor = "multi_thread")]
async fn restored_email_follows_its_provider_again() {
    on_each_database(|db| async move {
        let app = ScriptedApp::new(db).await;
        let (id, mut after) = with_email(&app).await;
        delete(&app, id).await;
        sync(&app, moved("m", "INBOX", "Archive")).await;
        assert_eq!(app.email_events(&mut after).await, ["email.deleted"], "what its provider does is no event");
        assert_eq!((found(&app, "hello").await, found(&app, "hello is:deleted").await), (vec![], vec![id]));

        restore(&app, id).await;

        assert_eq!((found(&app, "hello").await, found(&app, "is:deleted").await), (vec![id], vec![]));
        assert_eq!(app.email_events(&mut after).await, ["email.restored"]);
        assert_eq!(app.stored_emails().await, [("secret".to_owned(), "Archive[]".to_owned())]);
        sync(&app, moved("m", "Archive", "INBOX")).await;
        assert_eq!(app.email_events(&mut after).await, ["email.moved"]);
        sync(&app, gone("m", "INBOX")).await;
        assert_eq!(app.email_events(&mut after).await, ["email.deleted"]);
        assert_eq!((found(&app, "hello").await, found(&app, "is:deleted").await), (vec![], vec![id]));
        assert!(app.tenant.verify_rows(None).await.unwrap().is_empty());
        app.finish().await;
    })
    .await;
}

fn moved(message: &str, from: &str, to: &str) -> ListingPage {
    ListingPage { removed_placements: vec![placement(message, from)], ..page(vec![seen_message(message, to, &[])]) }
}

#[tokio::test(flavor = "multi_thread")]
async fn restored_email_stays_though_its_provider_has_it_no_more() {
    on_each_database(|db| async move {
        let app = ScriptedApp::new(db).await;
        let (id, mut after) = with_email(&app).await;
        sync(&app, gone("m", "INBOX")).await;
        assert_eq!(app.email_events(&mut after).await, ["email.deleted"]);

        restore(&app, id).await;
        restore(&app, id).await;

        assert_eq!(app.email_events(&mut after).await, ["email.restored"], "once");
        // The whole mailbox is compared: there is nothing.
        app.connector.queue_changes(ConnectorError::CursorExpired).queue_changes(page(vec![])).queue_list(page(vec![]));
        app.sync().await;
        assert_eq!(found(&app, "hello").await, [id]);
        assert_eq!(app.email_events(&mut after).await, ["mailbox.gap_healed"]);
        assert!(app.tenant.verify_rows(None).await.unwrap().is_empty());
        // It comes back and goes again.
        app.connector.forget_fetched();
        sync(&app, page(vec![seen_message("m", "INBOX", &[])])).await;
        sync(&app, gone("m", "INBOX")).await;
        assert_eq!(found(&app, "hello").await, []);
        assert!(app.connector.fetched().is_empty());
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_draft_stays_hidden_when_it_changes() {
    on_each_database(|db| async move {
        let app = ScriptedApp::new(db).await;
        let (id, mut after) = with_email(&app).await;
        delete(&app, id).await;
        app.email_events(&mut after).await;
        app.connector.fetches("m", "Subject: secret\n\nhello again");
        let revised = domain::connector::SeenMessage { revision: Some("2".into()), ..seen_message("m", "INBOX", &[]) };

        sync(&app, page(vec![revised])).await;

        assert_eq!((found(&app, "hello").await, found(&app, "again is:deleted").await), (vec![], vec![id]));
        assert_eq!(app.email_events(&mut after).await, [""; 0]);
        assert!(app.tenant.verify_rows(None).await.unwrap().is_empty());
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn held_tenant_keeps_what_its_provider_deletes() {
    on_each_database(|db| async move {
        let app = ScriptedApp::new(db).await;
        let (id, _) = with_email(&app).await;
        app.db.run("update tenants set hold_reason = 'a lawsuit'").await;

        sync(&app, gone("m", "INBOX")).await;

        assert_eq!(found(&app, "hello is:deleted").await, [id]);
        let progress = engine::Progress::default();
        let collected = app.engine.collect(app.tenant.id, jiff::SignedDuration::ZERO, &progress).await.unwrap();
        assert_eq!(collected.blobs_deleted, 0);
        let email = app.tenant.find_email(id).await.unwrap().unwrap();
        assert!(app.engine.read_raw(&app.tenant, &email).await.is_ok());
        app.finish().await;
    })
    .await;
}
