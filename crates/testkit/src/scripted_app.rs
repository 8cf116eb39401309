//! An application with one mailbox, whose provider follows a script.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use domain::connector::ListingPage;
use domain::{FolderRole, MailboxId, Provider};
use store::TenantStore;
use store::testing::TestDatabase;

use crate::app::{ADDRESS, AppOptions, TestApp};
use crate::pages;
use crate::scripted::ScriptedConnector;

/// An application with the tenant `acme` and its mailbox [`ADDRESS`], which was never synced. The first page of its
/// changes lists the folders `INBOX`, `Archive` and `Trash`; everything else is for the test to script.
#[derive(Debug)]
pub struct ScriptedApp {
    pub app: TestApp,
    pub connector: Arc<ScriptedConnector>,
    pub tenant: TenantStore,
    pub mailbox: MailboxId,
}

impl Deref for ScriptedApp {
    type Target = TestApp;

    fn deref(&self) -> &TestApp {
        &self.app
    }
}

impl DerefMut for ScriptedApp {
    fn deref_mut(&mut self) -> &mut TestApp {
        &mut self.app
    }
}

impl ScriptedApp {
    /// The provider of the mailbox: one with lasting message ids that is polled by a single call.
    pub const PROVIDER: Provider = Provider::Outlook;

    pub async fn new(db: TestDatabase) -> Self {
        Self::with_options(db, AppOptions::default()).await
    }

    pub async fn with_options(db: TestDatabase, options: AppOptions) -> Self {
        let connector = ScriptedConnector::quiet(Self::PROVIDER);
        let app = TestApp::new(db, options.scripted(&connector));
        let tenant = app.create_tenant("acme").await;
        let mailbox = app.add_mailbox(&tenant, Self::PROVIDER, ADDRESS).await;
        connector.queue_changes(ListingPage {
            folders: vec![
                pages::folder("INBOX", Some(FolderRole::Inbox)),
                pages::folder("Archive", None),
                pages::folder("Trash", Some(FolderRole::Trash)),
            ],
            is_last: false,
            ..pages::page(vec![])
        });
        Self { app, connector, tenant, mailbox }
    }

    /// Enqueues a sync of the mailbox, unless one waits already.
    pub async fn enqueue_sync(&self) {
        self.app.enqueue_sync(&self.tenant, self.mailbox).await;
    }

    /// Syncs the mailbox and works until nothing is left to do.
    pub async fn sync(&self) {
        self.app.sync(&self.tenant, self.mailbox).await;
    }

    /// Types of events of emails after this one, which moves on, and of gaps that were healed.
    pub async fn email_events(&self, after: &mut u64) -> Vec<String> {
        let mut types = self.app.events(&self.tenant, after).await;
        types.retain(|kind| kind.starts_with("email.") || kind == "mailbox.gap_healed");
        types
    }

    /// Why the mailbox is paused by a quota or by its provider.
    pub async fn pause_reason(&self) -> Option<String> {
        let paused = self.app.sync_state(&self.tenant, self.mailbox).await.paused;
        assert_eq!(self.tenant.list_pauses().await.unwrap().remove(&self.mailbox), paused);
        paused.map(|pause| pause.reason)
    }
}
