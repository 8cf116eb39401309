//! A scripted provider in this process and an account there.

use std::sync::Arc;
use std::time::Duration;

use connectors::http::{Deadlines, Http};
use connectors::scripted::Scripted;
use domain::connector::{Account, Cursors, NoAccess, Page};
use domain::{Connector, ConnectorError, MailboxId, Secret, SystemClock, TenantId};
use sim::scripted::{NewAccount, Server, World};

pub const ADDRESS: &str = "ann@scripted.example";
pub const TOKEN: &str = "open-sesame";

pub struct Place {
    pub world: Arc<World>,
    _server: Server,
    pub connector: Scripted,
    pub account: Account,
}

impl Place {
    pub async fn with(seed: u64, messages: usize, deadlines: Deadlines) -> Self {
        let start: jiff::Timestamp = "2026-02-01T12:00:00Z".parse().unwrap();
        let world = Arc::new(World::new(seed, 20, Arc::new(move || start)));
        let new = NewAccount { address: ADDRESS.into(), token: TOKEN.into(), messages, seed: Some(seed) };
        assert!(world.create(&new));
        let server = Server::start_here(Arc::clone(&world)).await.unwrap();
        let account = account(&server.url());
        Self { world, _server: server, connector: connector(deadlines), account }
    }

    pub async fn new(seed: u64, messages: usize) -> Self {
        Self::with(seed, messages, Deadlines::default()).await
    }

    /// Small pages, so that there is more than one.
    pub fn set_page_size(&mut self, size: usize) {
        let mut settings: serde_json::Value = serde_json::from_str(&self.account.settings).unwrap();
        settings["page_size"] = size.into();
        self.account.settings = settings.to_string();
    }

    pub async fn changes(&self) -> Result<Page, ConnectorError> {
        self.connector.changes(&self.account, &Cursors::new()).await
    }
}

pub fn account(url: &str) -> Account {
    Account {
        tenant: TenantId::new(&SystemClock),
        mailbox: MailboxId::new(&SystemClock),
        address: ADDRESS.to_owned(),
        settings: serde_json::json!({ "url": url }).to_string(),
        secret: Some(Secret::new(TOKEN.to_owned())),
        folders: Vec::new(),
        sweep_since: None,
        access: Arc::new(NoAccess),
    }
}

pub fn connector(deadlines: Deadlines) -> Scripted {
    Scripted::new(Http::new(deadlines).unwrap())
}

/// For what hangs on purpose, and nothing else: on a busy machine an honest answer may take as long.
pub fn impatient() -> Deadlines {
    let (answer, stream) = (Duration::from_secs(2), Duration::from_secs(20));
    Deadlines { silence: Duration::from_millis(300), answer, stream, ..Deadlines::default() }
}

/// An error goes into rows and logs.
pub fn assert_says_nothing(error: &ConnectorError) {
    let text = format!("{error} {error:?}");
    for secret in [ADDRESS, TOKEN, "ann@", "scripted", "127.0.0.1", "http:"] {
        assert!(!text.contains(secret), "{text}");
    }
}
