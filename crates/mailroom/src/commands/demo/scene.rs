//! Three tenants at work: set up as a user would, with trouble of every kind, and looked at while it runs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use domain::{JobId, JobState, Lane, MailboxState, TenantId};
use engine::Engine;
use serde_json::{Value, json};
use sim::microsoft::{Fault, Kind};
use sim::{google, imap, microsoft};
use store::sql::jobs::{JobFilter, JobRow, NewJob, When};
use store::sql::mailboxes::Mailbox;

use super::api::Api;
use super::place::Place;
use super::providers::{ADMINISTRATOR, ARCHIVE, AT_IMAP, CONTRACTOR, MICROSOFT, MISNAMED, Providers, THROTTLED};
use super::server::Server;
use super::truth;
use crate::app;
use crate::cli::demo::Demo;
use crate::config::Config;
use crate::failure::Failure;

const LOOK: Duration = Duration::from_millis(200);

/// Far longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// More jobs than ever wait here.
const JOBS: u64 = 10_000;

pub struct Scene {
    pub providers: Providers,
    pub server: Server,
    pub api: Api,
    pub engine: Engine,
    tenants: BTreeMap<&'static str, TenantId>,
}

/// How the demo looks at a moment.
#[derive(Debug, Clone, Default)]
pub struct Moment {
    pub mailboxes: usize,
    pub emails: u64,
    /// Stored, and still to be fetched.
    pub backfill: Option<(u64, u64)>,
    pub jobs: usize,
    pub dead: usize,
    pub needs_reauth: usize,
    pub waiting: usize,
}

impl Scene {
    pub async fn start(args: &Demo, place: &Place, listen: SocketAddr, pace: Option<f64>) -> Result<Self, Failure> {
        let providers = Providers::start(args).await?;
        place.furnish(&providers, listen, pace)?;
        let nothing: [(&str, &str); 0] = [];
        let config = Config::load(Some(&place.settings()), nothing, None)?;
        let server = Server::start(place).await?;
        let key = std::fs::read_to_string(place.path("admin.key"))?.trim().to_owned();
        let api = Api::new(format!("http://{listen}"), key)?;
        providers.push_to(&api.url);
        let engine = app::open(&config).await?;
        Ok(Self { providers, server, api, engine, tenants: BTreeMap::new() })
    }

    /// One admin consent each, a consent of one person, and three passwords.
    pub async fn connect(&mut self) -> Result<(), Failure> {
        for name in ["harbour", "orchard", "workshop"] {
            let made = self.api.post("/v1/tenants", None, &json!({"name": name})).await?;
            let id = made["id"].as_str().and_then(|id| id.parse().ok());
            self.tenants.insert(name, id.ok_or_else(|| Failure::problem("a tenant has no id"))?);
        }
        let google = json!({"administrator": ADMINISTRATOR, "backfill": "all"});
        self.api.put("/v1/directories/gmail", Some(&self.id("harbour")), &google).await?;
        let contractor = json!({"address": CONTRACTOR, "provider": "gmail", "backfill": "all",
            "refresh_token": self.consent_of_contractor()?});
        self.api.post("/v1/mailboxes", Some(&self.id("harbour")), &contractor).await?;
        self.providers.consent();
        let microsoft = json!({"directory": MICROSOFT, "backfill": "all"});
        self.api.put("/v1/directories/outlook", Some(&self.id("orchard")), &microsoft).await?;
        for address in AT_IMAP {
            let imap = json!({"address": address, "provider": "imap", "host": "127.0.0.1", "tls": "none",
                "port": self.providers.imap_port(), "password": imap::PASSWORD, "backfill": "all"});
            self.api.post("/v1/mailboxes", Some(&self.id("workshop")), &imap).await?;
        }
        self.until("everybody has a mailbox", async |scene| {
            let expected: usize = truth::expected(&scene.providers).values().map(BTreeSet::len).sum();
            let mailboxes = scene.mailboxes().await?;
            let active = mailboxes.iter().filter(|mailbox| mailbox.state == MailboxState::Active);
            Ok(active.count() == expected && scene.has_mail(CONTRACTOR).await?)
        })
        .await
    }

    /// A consent is taken back, a mailbox is asked to wait for so long, and a job is about a mailbox that there is not.
    pub async fn make_trouble(&mut self, wait: Duration) -> Result<(), Failure> {
        self.providers.google.revoke_tokens(CONTRACTOR);
        let throttled = Kind::Throttled { retry_after: Some(wait.as_secs()) };
        let only = Some(THROTTLED.to_owned());
        self.providers.microsoft.add_fault(Fault { account: only, ..Fault::always(throttled) });
        // It shows with the next look, which a new email asks for.
        let refused = |e: &dyn std::fmt::Display| Failure::problem(format!("no email can be delivered: {e}"));
        let deliver = google::Operation::deliver();
        self.providers.google.apply(CONTRACTOR, deliver).map_err(|e| refused(&e))?;
        let deliver = microsoft::Operation::deliver();
        self.providers.microsoft.apply(THROTTLED, deliver).map_err(|e| refused(&e))?;
        self.misname().await?;
        let is_shown = wait >= Duration::from_secs(60);
        self.until("all trouble shows", async |scene| {
            let now = scene.look().await?;
            Ok(now.needs_reauth == 1 && now.dead == 1 && (now.waiting == 1 || !is_shown))
        })
        .await
    }

    /// What `mailroom jobs enqueue` does.
    async fn misname(&self) -> Result<(), Failure> {
        let store = &self.engine.store;
        let mut unit = store.system().write_for(self.tenant("orchard"));
        unit.enqueue(vec![NewJob {
            id: JobId::new(store.clock()),
            kind: "sync_mailbox".to_owned(),
            lane: Lane::Normal,
            payload: json!({"mailbox": MISNAMED}),
            when: When::Now,
            unique: None,
            order_key: None,
            after: Vec::new(),
            traceparent: None,
        }]);
        unit.commit().await?;
        Ok(store.tell_of_jobs().await?)
    }

    /// What the job was to be about.
    pub async fn right_payload(&self) -> Result<Value, Failure> {
        let named = self.engine.store.tenant(self.tenant("orchard")).find_mailbox(MISNAMED).await?;
        let named = named.ok_or_else(|| Failure::problem(format!("{MISNAMED} has no mailbox")))?;
        Ok(json!({"mailbox": named.id}))
    }

    pub fn consent_of_contractor(&self) -> Result<String, Failure> {
        let granted = self.providers.google.grant(CONTRACTOR).and_then(|granted| granted.refresh_token);
        granted.ok_or_else(|| Failure::problem("nobody can consent"))
    }

    async fn has_mail(&self, address: &str) -> Result<bool, Failure> {
        for (_, tenant) in self.tenants() {
            let store = self.engine.store.tenant(tenant);
            if let Some(mailbox) = store.find_mailbox(address).await? {
                return Ok(store.count_live_emails(mailbox.id).await? > 0);
            }
        }
        Ok(false)
    }

    /// Those who are still to be made have none.
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

    /// Jobs that are not over.
    pub async fn open_jobs(&self) -> Result<Vec<JobRow>, Failure> {
        use JobState::{Blocked, Doomed, Ready, Retry, Running, Scheduled};
        let mut open = Vec::new();
        for state in [Scheduled, Blocked, Doomed, Ready, Running, Retry] {
            let filter = JobFilter { state: Some(state), ..JobFilter::default() };
            open.extend(self.engine.store.system().list_jobs(&filter, None, JOBS).await?);
        }
        Ok(open)
    }

    pub async fn dead_letters(&self) -> Result<Vec<JobRow>, Failure> {
        let filter = JobFilter { state: Some(JobState::Dead), ..JobFilter::default() };
        Ok(self.engine.store.system().list_jobs(&filter, None, JOBS).await?)
    }

    pub async fn look(&self) -> Result<Moment, Failure> {
        let mut now = Moment { dead: self.dead_letters().await?.len(), ..Moment::default() };
        now.jobs = self.open_jobs().await?.len();
        for (_, tenant) in self.tenants() {
            let store = self.engine.store.tenant(tenant);
            now.emails += store.totals().await?.emails;
            now.waiting += store.list_pauses().await?.len();
            let backfills = store.list_backfills(None).await?;
            for mailbox in store.list_mailboxes().await? {
                now.mailboxes += 1;
                now.needs_reauth += usize::from(mailbox.state == MailboxState::NeedsReauth);
                if mailbox.address == ARCHIVE {
                    now.backfill = backfills.get(&mailbox.id).map(|far| (far.stored, far.to_fetch));
                }
            }
        }
        Ok(now)
    }

    /// Looks again and again.
    pub async fn until(
        &mut self,
        what: &str,
        is_so: impl AsyncFn(&Self) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let begun = Instant::now();
        while !is_so(self).await? {
            self.server.check()?;
            if begun.elapsed() > PATIENCE {
                return Err(Failure::problem(format!("waited too long until {what}")));
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }
}
