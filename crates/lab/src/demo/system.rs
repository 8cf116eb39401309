//! The system that the demo shows: simulated providers, a server and three tenants, set up as a user would, with problems
//! of every kind.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use domain::{JobId, JobState, Lane, MailboxState, TenantId};
use engine::Engine;
use serde_json::{Value, json};
use sim::microsoft::{MicrosoftFault, MicrosoftFaultKind};
use sim::{google, imap, microsoft};
use store::sql::jobs::{JobFilter, JobRow, NewJob, StartTime};
use store::sql::mailboxes::Mailbox;
use terminal::Failure;

use super::DemoArgs;
use super::api::ApiClient;
use super::folder::DemoFolder;
use super::providers::{
    ADMINISTRATOR, ARCHIVE, CONTRACTOR, DemoProviders, IMAP_ADDRESSES, MICROSOFT, MISNAMED, THROTTLED,
};
use super::server::DemoServer;
use super::truth;
use crate::Installation;

const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Far longer than any step takes on a busy machine.
const STEP_TIMEOUT: Duration = Duration::from_secs(120);

/// More jobs than a demo ever has.
const MAX_JOBS: u64 = 10_000;

/// The running demo.
pub struct DemoSystem {
    pub providers: DemoProviders,
    pub server: DemoServer,
    pub api: ApiClient,
    pub engine: Engine,
    tenants: BTreeMap<&'static str, TenantId>,
}

/// The state of the demo at a moment.
#[derive(Debug, Clone, Default)]
pub struct SystemStatus {
    pub mailboxes: usize,
    pub emails: u64,
    /// Emails of the archive that are stored, and that are still to be fetched.
    pub backfill: Option<(u64, u64)>,
    pub open_jobs: usize,
    pub dead_letters: usize,
    pub needs_reauth: usize,
    /// Mailboxes that a provider has asked to wait.
    pub waiting: usize,
}

impl DemoSystem {
    pub async fn start(
        args: &DemoArgs,
        installation: &dyn Installation,
        folder: &DemoFolder,
        listen: SocketAddr,
        speed: Option<f64>,
    ) -> Result<Self, Failure> {
        let providers = DemoProviders::start(args).await?;
        folder.write_files(&providers, listen, speed)?;
        let installation = installation.load(Some(&folder.settings()), Vec::new())?;
        let server = DemoServer::start(folder).await?;
        let key = std::fs::read_to_string(folder.path("admin.key"))?.trim().to_owned();
        let api = ApiClient::new(format!("http://{listen}"), key)?;
        providers.push_to(&api.url);
        let engine = installation.open().await?;
        Ok(Self { providers, server, api, engine, tenants: BTreeMap::new() })
    }

    /// Connects all mailboxes: by one admin consent per organisation, a consent of one person, and three passwords.
    pub async fn connect(&mut self) -> Result<(), Failure> {
        for name in ["harbour", "orchard", "workshop"] {
            let created = self.api.post("/v1/tenants", None, &json!({"name": name})).await?;
            let id = created["id"].as_str().and_then(|id| id.parse().ok());
            self.tenants.insert(name, id.ok_or_else(|| Failure::problem("a tenant has no id"))?);
        }
        let google = json!({"administrator": ADMINISTRATOR, "backfill": "all"});
        self.api.put("/v1/directories/gmail", Some(&self.id("harbour")), &google).await?;
        let contractor = json!({"address": CONTRACTOR, "provider": "gmail", "backfill": "all",
            "refresh_token": self.grant_contractor_token()?});
        self.api.post("/v1/mailboxes", Some(&self.id("harbour")), &contractor).await?;
        self.providers.consent();
        let microsoft = json!({"directory": MICROSOFT, "backfill": "all"});
        self.api.put("/v1/directories/outlook", Some(&self.id("orchard")), &microsoft).await?;
        for address in IMAP_ADDRESSES {
            let imap = json!({"address": address, "provider": "imap", "host": "127.0.0.1", "tls": "none",
                "port": self.providers.imap_port(), "password": imap::PASSWORD, "backfill": "all"});
            self.api.post("/v1/mailboxes", Some(&self.id("workshop")), &imap).await?;
        }
        self.wait_until("everybody has a mailbox", async |system| {
            let expected: usize = truth::expected_mailboxes(&system.providers).values().map(BTreeSet::len).sum();
            let mailboxes = system.mailboxes().await?;
            let active = mailboxes.iter().filter(|mailbox| mailbox.state == MailboxState::Active);
            Ok(active.count() == expected && system.has_mail(CONTRACTOR).await?)
        })
        .await
    }

    /// Revokes a consent, throttles a mailbox for so long, and enqueues a job about a mailbox that does not exist.
    pub async fn cause_problems(&mut self, wait: Duration) -> Result<(), Failure> {
        self.providers.google.revoke_tokens(CONTRACTOR);
        let throttled = MicrosoftFaultKind::Throttled { retry_after: Some(wait.as_secs()) };
        let only = Some(THROTTLED.to_owned());
        self.providers.microsoft.add_fault(MicrosoftFault { account: only, ..MicrosoftFault::always(throttled) });
        // Each shows with the next sync, which a new email requests.
        let deliver = google::GmailOperation::deliver();
        self.providers.google.apply(CONTRACTOR, deliver).map_err(delivery_failure)?;
        let deliver = microsoft::OutlookOperation::deliver();
        self.providers.microsoft.apply(THROTTLED, deliver).map_err(delivery_failure)?;
        self.enqueue_misnamed_job().await?;
        let is_shown = wait >= Duration::from_secs(60);
        self.wait_until("all trouble shows", async |system| {
            let now = system.status().await?;
            Ok(now.needs_reauth == 1 && now.dead_letters == 1 && (now.waiting == 1 || !is_shown))
        })
        .await
    }

    /// Enqueues a job with an address where jobs have an id, as `mailroom jobs enqueue` does.
    async fn enqueue_misnamed_job(&self) -> Result<(), Failure> {
        let store = &self.engine.store;
        let mut unit = store.system().write_for(self.tenant("orchard"));
        unit.enqueue(vec![NewJob {
            id: JobId::new(store.clock()),
            kind: "sync_mailbox".to_owned(),
            lane: Lane::Normal,
            payload: json!({"mailbox": MISNAMED}),
            when: StartTime::Now,
            unique: None,
            order_key: None,
            after: Vec::new(),
            traceparent: None,
        }]);
        unit.commit().await?;
        Ok(store.notify_other_processes().await?)
    }

    /// Returns the payload that the misnamed job should have had.
    pub async fn corrected_payload(&self) -> Result<Value, Failure> {
        let mailbox = self.engine.store.tenant(self.tenant("orchard")).find_mailbox(MISNAMED).await?;
        let mailbox = mailbox.ok_or_else(|| Failure::problem(format!("{MISNAMED} has no mailbox")))?;
        Ok(json!({"mailbox": mailbox.id}))
    }

    /// Obtains the contractor's consent; returns the refresh token.
    pub fn grant_contractor_token(&self) -> Result<String, Failure> {
        let granted = self.providers.google.grant(CONTRACTOR).and_then(|granted| granted.refresh_token);
        granted.ok_or_else(|| Failure::problem("nobody can consent"))
    }

    async fn has_mail(&self, address: &str) -> Result<bool, Failure> {
        for (_, tenant) in self.tenants() {
            let store = self.engine.store.tenant(tenant);
            if let Some(mailbox) = store.find_mailbox(address).await? {
                return Ok(store::bench::count_live_emails(&store, mailbox.id).await? > 0);
            }
        }
        Ok(false)
    }

    /// Returns the id of a tenant; the system's, if the tenant does not exist yet.
    pub fn tenant(&self, name: &str) -> TenantId {
        self.tenants.get(name).copied().unwrap_or(TenantId::SYSTEM)
    }

    pub fn id(&self, name: &str) -> String {
        self.tenant(name).to_string()
    }

    pub fn tenants(&self) -> impl Iterator<Item = (&'static str, TenantId)> {
        self.tenants.iter().map(|(name, id)| (*name, *id))
    }

    pub async fn mailboxes(&self) -> Result<Vec<Mailbox>, Failure> {
        let mut all = Vec::new();
        for (_, tenant) in self.tenants() {
            all.extend(self.engine.store.tenant(tenant).list_mailboxes().await?);
        }
        Ok(all)
    }

    /// Lists the jobs that are not finished.
    pub async fn open_jobs(&self) -> Result<Vec<JobRow>, Failure> {
        use JobState::{Blocked, Doomed, Ready, Retry, Running, Scheduled};
        let mut open = Vec::new();
        for state in [Scheduled, Blocked, Doomed, Ready, Running, Retry] {
            let filter = JobFilter { state: Some(state), ..JobFilter::default() };
            open.extend(self.engine.store.system().list_jobs(&filter, None, MAX_JOBS).await?);
        }
        Ok(open)
    }

    pub async fn dead_letters(&self) -> Result<Vec<JobRow>, Failure> {
        let filter = JobFilter { state: Some(JobState::Dead), ..JobFilter::default() };
        Ok(self.engine.store.system().list_jobs(&filter, None, MAX_JOBS).await?)
    }

    pub async fn status(&self) -> Result<SystemStatus, Failure> {
        let mut now = SystemStatus { dead_letters: self.dead_letters().await?.len(), ..SystemStatus::default() };
        now.open_jobs = self.open_jobs().await?.len();
        for (_, tenant) in self.tenants() {
            let store = self.engine.store.tenant(tenant);
            now.emails += store.totals().await?.emails;
            now.waiting += store.list_pauses().await?.len();
            let backfills = store.list_backfills(None).await?;
            for mailbox in store.list_mailboxes().await? {
                now.mailboxes += 1;
                now.needs_reauth += usize::from(mailbox.state == MailboxState::NeedsReauth);
                if mailbox.address == ARCHIVE {
                    let progress = backfills.get(&mailbox.id);
                    now.backfill = progress.map(|progress| (progress.stored, progress.to_fetch));
                }
            }
        }
        Ok(now)
    }

    /// Waits until a condition holds. Fails if the server ends meanwhile or it takes too long.
    pub async fn wait_until(
        &mut self,
        what: &str,
        is_true: impl AsyncFn(&Self) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let begun = Instant::now();
        while !is_true(self).await? {
            self.server.check_running()?;
            if begun.elapsed() > STEP_TIMEOUT {
                return Err(Failure::problem(format!("waited too long until {what}")));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }
}

fn delivery_failure(e: impl std::fmt::Display) -> Failure {
    Failure::problem(format!("no email can be delivered: {e}"))
}
