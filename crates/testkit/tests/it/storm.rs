//! A storm in this process: mailboxes change while they are synced, the provider fails, and in the end exactly what
//! the provider has is stored.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use domain::{Backfill, FolderRole, MailboxState, Provider};
use engine::operations::mailboxes::ConnectRequest;
use serde_json::json;
use store::TenantStore;
use store::sql::mailboxes::Mailbox;
use store::testing::{TestDatabase, on_each_database};
use testkit::MailboxOperations;
use testkit::app::message_line;
use testkit::world::{FolderTruth, WorldFault, WorldFaultKind};
use testkit::{AppOptions, TestApp, WorldConnector, wait_until};

const ACCOUNTS: usize = 5;
const MESSAGES: usize = 30;
const ROUNDS: usize = 20;

/// Takes in drafts as well, whose texts change.
const WITH_DRAFTS: usize = 1;
/// Its provider denies messages that it has.
const DENIED: usize = 2;
/// One of its messages cannot be fetched.
const FAILING: usize = 3;
/// Its credentials are refused now and then.
const REFUSED: usize = 4;

/// Folders that are out of scope by default.
const OUT_OF_SCOPE: [FolderRole; 3] = [FolderRole::Drafts, FolderRole::Spam, FolderRole::Trash];

const FOLDERS_WITH_DRAFTS: [&str; 4] = ["INBOX", "Sent", "Archive", "Drafts"];

struct Storm {
    app: TestApp,
    connector: Arc<WorldConnector>,
    tenants: Vec<TenantStore>,
}

fn address(number: usize) -> String {
    format!("box{number}@world.example")
}

fn is_in_scope(number: usize, folder: &FolderTruth) -> bool {
    if number == WITH_DRAFTS {
        FOLDERS_WITH_DRAFTS.contains(&folder.name.as_str())
    } else {
        !folder.role.is_some_and(|role| OUT_OF_SCOPE.contains(&role))
    }
}

impl Storm {
    async fn new(db: TestDatabase, seed: u64) -> Self {
        let connector = WorldConnector::new(Provider::Gmail, seed);
        let options = AppOptions::default().connector(connector.clone() as Arc<_>).remote_slots(16);
        let mut storm = Self { app: TestApp::new(db, options), connector, tenants: Vec::new() };
        for number in 0..ACCOUNTS {
            storm.connect(number).await;
        }
        storm
    }

    async fn connect(&mut self, number: usize) {
        self.connector.create(&address(number), MESSAGES);
        let tenant = self.app.create_tenant(&format!("tenant {number}")).await;
        let settings = if number == WITH_DRAFTS { json!({"folders": FOLDERS_WITH_DRAFTS}) } else { json!({}) };
        let request = ConnectRequest {
            provider: Provider::Gmail,
            address: address(number),
            settings: settings.into(),
            secret: None,
            backfill: Backfill::All,
        };
        self.app.engine.connect(tenant.id, request).await.unwrap().unwrap();
        self.tenants.push(tenant);
    }

    async fn mailbox(&self, number: usize) -> Mailbox {
        self.app.mailbox(&self.tenants[number], &address(number)).await
    }

    fn begin_faults(&self) {
        for (kind, probability) in [
            (WorldFaultKind::Throttled { retry_after: Some(Duration::from_secs(1)) }, 0.02),
            (WorldFaultKind::Unavailable, 0.03),
            (WorldFaultKind::Hang(Duration::from_millis(300)), 0.02),
            (WorldFaultKind::InvalidResponse, 0.02),
            (WorldFaultKind::RepeatedPage, 0.1),
            (WorldFaultKind::CutFetch, 0.02),
            (WorldFaultKind::ShortMessage, 0.03),
        ] {
            self.connector.add_fault(WorldFault::sometimes(kind, probability));
        }
        let failing = WorldFaultKind::FailingMessage(format!("m{}", MESSAGES / 2));
        self.connector.add_fault(WorldFault::sometimes(WorldFaultKind::Gone, 0.2).at(&address(DENIED)));
        self.connector.add_fault(WorldFault::always(failing).at(&address(FAILING)));
        self.connector.add_fault(WorldFault::sometimes(WorldFaultKind::Unauthorized, 0.1).at(&address(REFUSED)));
    }

    async fn change(&self, round: usize) {
        for number in 0..ACCOUNTS {
            self.connector.step(&address(number), 6);
            if round % 9 == 8 && number % 2 == 0 {
                self.connector.expire_cursors(&address(number), round.is_multiple_of(2));
            }
            self.app.enqueue_sync(&self.tenants[number], self.mailbox(number).await.id).await;
        }
        self.resume_refused().await;
    }

    /// The owner says that the credentials are good.
    async fn resume_refused(&self) {
        let mailbox = self.mailbox(REFUSED).await;
        if mailbox.state == MailboxState::NeedsReauth {
            self.app.engine.resume_mailbox(&mailbox).await.unwrap();
        }
    }

    /// Ends all faults; the owners of mailboxes that need help give it once.
    async fn clear_faults(&self) {
        let met: u64 = self.connector.clear_faults().iter().map(|fault| fault.fired).sum();
        assert!(met > 10, "only {met} faults came");
        // Denied messages show in a comparison only.
        self.connector.expire_cursors(&address(DENIED), false);
        self.app.engine.resume_mailbox(&self.mailbox(FAILING).await).await.unwrap();
        self.resume_refused().await;
    }

    fn truth(&self, number: usize) -> BTreeSet<String> {
        let mut lines = BTreeSet::new();
        for (id, folder) in self.connector.truth(&address(number)).folders {
            if is_in_scope(number, &folder) {
                let placements = folder.placements.iter();
                lines.extend(placements.map(|at| message_line(&at.message, &id, &at.flags, &at.sha256)));
            }
        }
        lines
    }

    async fn wait_until_equal(&self, number: usize) {
        wait_until(&format!("everything of box {number} is stored"), async || {
            // A call that was under way may have been refused after the faults had ended.
            self.resume_refused().await;
            self.app.make_retries_ready().await;
            self.app.enqueue_sync(&self.tenants[number], self.mailbox(number).await.id).await;
            tokio::time::sleep(Duration::from_millis(200)).await;
            self.app.stored_messages(&self.tenants[number]).await == self.truth(number)
        })
        .await;
    }
}

async fn run_storm(seed: u64) {
    on_each_database(|db| async move {
        let storm = Storm::new(db, seed).await;
        storm.begin_faults();
        let worker = storm.app.start_worker();
        for round in 0..ROUNDS {
            storm.change(round).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        storm.clear_faults().await;
        for number in 0..ACCOUNTS {
            storm.wait_until_equal(number).await;
        }
        storm.app.make_retries_ready().await;
        storm.app.wait_until_idle().await;
        worker.shut_down().await;
        storm.app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn storm_ends_with_everything_stored() {
    run_storm(1).await;
}
