//! Organisations at a simulated Google and a simulated Microsoft, and tenants that discover their people.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use domain::{Clock, Connector, DirectoryRules, ExclusionReason, Provider, Secret, SystemClock};
use engine::directory::{DiscoveryOutcome, DiscoveryReport};
use jobs::JobKinds;
use providers::gmail::{Gmail, GoogleSettings};
use providers::http::{HttpClient, HttpTimeouts};
use providers::outlook::{MicrosoftSettings, Outlook};
use serde_json::{Value, json};
use sim::people::{DirectoryProvider, NewOrganisation, PeopleOperation, PersonChange, PersonState};
use sim::{google, microsoft};
use store::TenantStore;
use store::sql::directories::DirectoryDefinition;
use store::sql::mailboxes::Mailbox;
use store::sql::users::{User, UserFilter};
use store::testing::TestDatabase;
use testkit::app::{all_kinds, listing_kinds, worker_settings};
use testkit::{AppOptions, TestApp, wait_until};

const REMOTE_SLOTS: usize = 32;

pub const BOTH: [Provider; 2] = [Provider::Gmail, Provider::Outlook];

/// An application whose tenants have organisations at a simulated Google and a simulated Microsoft.
pub struct DirectoryApp {
    app: TestApp,
    pub google: Arc<google::GoogleWorld>,
    pub microsoft: Arc<microsoft::MicrosoftWorld>,
    _servers: (google::GoogleServer, microsoft::MicrosoftServer),
}

impl Deref for DirectoryApp {
    type Target = TestApp;

    fn deref(&self) -> &TestApp {
        &self.app
    }
}

impl DerefMut for DirectoryApp {
    fn deref_mut(&mut self) -> &mut TestApp {
        &mut self.app
    }
}

impl DirectoryApp {
    pub async fn new(db: TestDatabase) -> Self {
        let google = Arc::new(google::GoogleWorld::new(1, 10, Arc::new(|| SystemClock.now())));
        let microsoft = Arc::new(microsoft::MicrosoftWorld::new(1, 10, Arc::new(|| SystemClock.now())));
        let servers = (
            google::GoogleServer::start_here(google.clone()).await.unwrap(),
            microsoft::MicrosoftServer::start_here(microsoft.clone()).await.unwrap(),
        );
        let http = HttpClient::new(HttpTimeouts::default()).unwrap();
        let url = servers.0.url();
        let settings = GoogleSettings {
            token_url: format!("{url}/token"),
            api_url: url.clone(),
            directory_url: url,
            service_account: Some(Secret::new(google.service_account_key().to_string())),
            ..GoogleSettings::default()
        };
        let gmail: Arc<dyn Connector> = Arc::new(Gmail::new(http.clone(), &settings).unwrap());
        let settings = MicrosoftSettings {
            authority_url: servers.1.url(),
            graph_url: servers.1.url(),
            client_id: Some(microsoft::CLIENT_ID.to_owned()),
            client_secret: Some(Secret::new(microsoft::CLIENT_SECRET.to_owned())),
            ..MicrosoftSettings::default()
        };
        let outlook: Arc<dyn Connector> = Arc::new(Outlook::new(http, &settings).unwrap());
        let app =
            TestApp::new(db, AppOptions::default().connector(gmail).connector(outlook).remote_slots(REMOTE_SLOTS));
        // Nobody syncs the mailboxes that are discovered, unless the test works.
        app.leaves_jobs(&["sync_mailbox"]);
        Self { app, google, microsoft, _servers: servers }
    }

    /// An organisation that has let us in.
    pub fn organise(&self, provider: Provider, domain: &str, people: usize) {
        let new = NewOrganisation { domain: domain.to_owned(), people, ..NewOrganisation::default() };
        match provider {
            Provider::Gmail => drop(self.google.create_organisation(&new).unwrap()),
            _ => {
                self.microsoft.create_organisation(&new).unwrap();
                let change =
                    microsoft::DirectoryChange { admin_consent: Some(true), ..microsoft::DirectoryChange::default() };
                self.microsoft.change_directory(domain, &change);
            }
        }
    }

    pub fn apply(&self, provider: Provider, domain: &str, operation: PeopleOperation) {
        match provider {
            Provider::Gmail => self.google.apply_to_people(domain, operation).unwrap(),
            _ => self.microsoft.apply_to_people(domain, operation).unwrap(),
        };
    }

    pub fn truth(&self, provider: Provider, domain: &str) -> sim::people::OrganisationTruth {
        match provider {
            Provider::Gmail => self.google.organisation(domain).unwrap(),
            _ => self.microsoft.organisation(domain).unwrap(),
        }
    }

    /// Addresses of those whom the usual rules want.
    pub fn wanted(&self, provider: Provider, domain: &str) -> BTreeSet<String> {
        let truth = self.truth(provider, domain);
        let wanted = truth.people.values().filter(|person| {
            let is_suspended = person.is_suspended || (provider == Provider::Gmail && person.is_archived);
            person.state == PersonState::Present && !is_suspended && !person.is_guest && person.has_mailbox
        });
        wanted.map(|person| person.address.clone()).collect()
    }

    pub async fn tenant(&self, name: &str) -> TenantStore {
        self.create_tenant(name).await
    }

    /// From now on the tenant has this directory, with these rules.
    pub async fn set(&self, tenant: &TenantStore, provider: Provider, domain: &str, rules: &DirectoryRules) {
        let settings = match provider {
            Provider::Gmail => json!({"administrator": format!("user1@{domain}")}),
            _ => json!({"directory": domain}),
        };
        self.set_to(tenant, provider, settings, rules).await;
    }

    pub async fn set_to(&self, tenant: &TenantStore, provider: Provider, settings: Value, rules: &DirectoryRules) {
        self.set_with(tenant, provider, settings, rules, Some(0)).await;
    }

    pub async fn set_with(
        &self,
        tenant: &TenantStore,
        provider: Provider,
        settings: Value,
        rules: &DirectoryRules,
        backfill_seconds: Option<u64>,
    ) {
        let wish = DirectoryDefinition {
            provider,
            settings,
            rules: json!(rules),
            backfill_seconds,
            interval_seconds: 3600,
            is_paused: false,
        };
        let known = tenant.find_directory(provider).await.unwrap().map(|directory| directory.version);
        let mut unit = tenant.write();
        unit.put_directory(&wish, known, self.store().system().now().await.unwrap());
        unit.commit().await.unwrap();
    }

    pub async fn discover(&self, tenant: &TenantStore, provider: Provider) -> DiscoveryReport {
        match self.syncer.discover(tenant.id, provider, false, &|| {}).await.unwrap() {
            DiscoveryOutcome::Done(report) => report,
            ended => panic!("{ended:?}"),
        }
    }

    pub async fn dry_run(&self, tenant: &TenantStore, provider: Provider) -> DiscoveryReport {
        self.syncer.dry_run_discovery(tenant.id, provider, &|| {}).await.unwrap().unwrap()
    }

    /// All that works, until nothing is left to do.
    pub async fn work(&self) {
        self.run_jobs_until_idle().await;
        self.leaves_jobs(&[]);
    }

    /// The same, until nothing is left to do for this tenant.
    pub async fn work_for(&self, tenant: &TenantStore) {
        let id = tenant.id;
        let left = format!(
            "select kind, state from jobs where state not in ('scheduled', 'retry') and cast(tenant_id as text) = '{id}'"
        );
        self.work_with(all_kinds(&self.syncer), &left).await;
    }

    /// What there is to be fetched is known after that, and nothing is fetched.
    pub async fn list_only(&self) {
        let left = "select kind, state from jobs where kind in ('sync_mailbox', 'list_history', 'list_mailbox')";
        self.work_with(listing_kinds(&self.syncer), left).await;
    }

    async fn work_with(&self, kinds: JobKinds, left: &str) {
        let settings = jobs::WorkerSettings { remote_slots: REMOTE_SLOTS, ..worker_settings() };
        let worker = self.start_worker_with(kinds, settings);
        wait_until(&format!("nothing is left of {left}"), async || self.db.rows(left).await.is_empty()).await;
        worker.shut_down().await;
    }
}

pub async fn users(tenant: &TenantStore) -> Vec<User> {
    tenant.list_users(&UserFilter::default(), None, 100_000).await.unwrap()
}

pub async fn user(tenant: &TenantStore, provider: Provider, address: &str) -> User {
    let filter = UserFilter { provider: Some(provider), address: Some(address.to_owned()), ..UserFilter::default() };
    let mut found = tenant.list_users(&filter, None, 10).await.unwrap();
    found.retain(|user| user.person.address.as_deref() == Some(address) && user.is_listed);
    assert_eq!(found.len(), 1, "{address}");
    found.remove(0)
}

pub async fn mailbox(tenant: &TenantStore, address: &str) -> Mailbox {
    tenant.find_mailbox(address).await.unwrap().unwrap_or_else(|| panic!("{address} has none"))
}

/// Those that are looked at.
pub async fn looked_at(tenant: &TenantStore) -> BTreeSet<String> {
    let mailboxes = tenant.list_mailboxes().await.unwrap();
    mailboxes.into_iter().filter(|mailbox| mailbox.is_active).map(|mailbox| mailbox.address).collect()
}

/// How many are left out, by why, as users tell it themselves.
pub async fn left_out(tenant: &TenantStore) -> BTreeMap<ExclusionReason, usize> {
    let mut all = BTreeMap::new();
    for reason in users(tenant).await.into_iter().filter_map(|user| user.left_out) {
        *all.entry(reason).or_default() += 1;
    }
    all
}

pub fn change(person: &str) -> PersonChange {
    PersonChange { person: person.to_owned(), ..PersonChange::default() }
}
