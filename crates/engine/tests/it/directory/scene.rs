//! A simulated Google and a simulated Microsoft, and a Mailroom whose tenants have organisations there.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use connectors::gmail::Gmail;
use connectors::google::GoogleSettings;
use connectors::http::{Deadlines, Http};
use connectors::microsoft::MicrosoftSettings;
use connectors::outlook::Outlook;
use domain::{Clock, Connector, LeftOut, PlanTier, Provider, Rules, Secret, SystemClock};
use engine::Engine;
use engine::calls::{CallSettings, Calls};
use engine::directory::{Ended, Report};
use engine::jobs::Keep;
use engine::sync::{SyncSettings, Syncer};
use jiff::SignedDuration;
use jobs::{Kinds, SystemDice, Worker};
use serde_json::{Value, json};
use sim::people::{NewOrganisation, Organised, PeopleOperation, PersonChange, State, TruthPerson};
use sim::{google, microsoft};
use store::TenantStore;
use store::sql::directories::DirectoryWish;
use store::sql::jobs::KeepFor;
use store::sql::mailboxes::Mailbox;
use store::sql::users::{User, UserFilter};
use store::testing::TestDatabase;

use crate::bench::{Bench, worker_settings};

/// Only a hang gets there.
const DEADLINE: Duration = Duration::from_secs(120);

pub const BOTH: [Provider; 2] = [Provider::Gmail, Provider::Outlook];

pub struct Scene {
    pub db: TestDatabase,
    pub google: Arc<google::World>,
    pub microsoft: Arc<microsoft::World>,
    pub engine: Engine,
    pub syncer: Syncer,
    _servers: (google::Server, microsoft::Server),
    _folder: tempfile::TempDir,
}

impl Scene {
    pub async fn new(db: TestDatabase) -> Self {
        let google = Arc::new(google::World::new(1, 10, Arc::new(|| SystemClock.now())));
        let microsoft = Arc::new(microsoft::World::new(1, 10, Arc::new(|| SystemClock.now())));
        let servers = (
            google::Server::start_here(google.clone()).await.unwrap(),
            microsoft::Server::start_here(microsoft.clone()).await.unwrap(),
        );
        let http = Http::new(Deadlines::default()).unwrap();
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
        let connectors = HashMap::from([(Provider::Gmail, gmail), (Provider::Outlook, outlook)]);
        let folder = tempfile::tempdir().unwrap();
        let engine = Bench::engine(&db.store, folder.path());
        let settings = SyncSettings { holder: "test".into(), lease: Duration::from_secs(60), duplicate_check: true };
        let calls = Calls::new(CallSettings::default(), Arc::new(SystemDice), None);
        let syncer = Syncer::new(engine.clone(), settings, connectors, calls);
        Self { db, google, microsoft, engine, syncer, _servers: servers, _folder: folder }
    }

    /// An organisation that has let us in.
    pub fn organise(&self, provider: Provider, domain: &str, people: usize) {
        let new = NewOrganisation { domain: domain.to_owned(), people, ..NewOrganisation::default() };
        match provider {
            Provider::Gmail => drop(self.google.organise(&new).unwrap()),
            _ => {
                self.microsoft.organise(&new).unwrap();
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
        let is_wanted = |person: &&TruthPerson| {
            let is_suspended = person.is_suspended || (provider == Provider::Gmail && person.is_archived);
            person.state == State::Present && !is_suspended && !person.is_guest && person.has_mailbox
        };
        let truth = self.truth(provider, domain);
        truth.people.values().filter(is_wanted).map(|person| person.address.clone()).collect()
    }

    pub async fn tenant(&self, name: &str) -> TenantStore {
        let tenant = self.db.store.system().create_tenant(name, PlanTier::Standard).await.unwrap().unwrap();
        self.db.store.tenant(tenant.id)
    }

    /// From now on the tenant has this directory, with these rules.
    pub async fn set(&self, tenant: &TenantStore, provider: Provider, domain: &str, rules: &Rules) {
        let settings = match provider {
            Provider::Gmail => json!({"administrator": format!("user1@{domain}")}),
            _ => json!({"directory": domain}),
        };
        self.set_to(tenant, provider, settings, rules).await;
    }

    pub async fn set_to(&self, tenant: &TenantStore, provider: Provider, settings: Value, rules: &Rules) {
        self.set_with(tenant, provider, settings, rules, Some(0)).await;
    }

    pub async fn set_with(
        &self,
        tenant: &TenantStore,
        provider: Provider,
        settings: Value,
        rules: &Rules,
        backfill_seconds: Option<u64>,
    ) {
        let wish = DirectoryWish {
            provider,
            settings,
            rules: json!(rules),
            backfill_seconds,
            interval_seconds: 3600,
            is_paused: false,
        };
        let known = tenant.find_directory(provider).await.unwrap().map(|directory| directory.version);
        let mut unit = tenant.write();
        unit.put_directory(&wish, known);
        unit.commit().await.unwrap();
    }

    pub async fn discover(&self, tenant: &TenantStore, provider: Provider) -> Report {
        match self.syncer.discover(tenant.id, provider, false, &|| {}).await.unwrap() {
            Ended::Done(report) => report,
            ended => panic!("{ended:?}"),
        }
    }

    pub async fn dry_run(&self, tenant: &TenantStore, provider: Provider) -> Report {
        self.syncer.try_discovery(tenant.id, provider, &|| {}).await.unwrap().unwrap()
    }

    /// All that works, until nothing is left to do.
    pub async fn work(&self) {
        self.work_until("select kind, state from jobs where state not in ('scheduled', 'retry')").await;
    }

    /// The same, until nothing is left to do for this tenant.
    pub async fn work_for(&self, tenant: &TenantStore) {
        let id = tenant.id;
        let left = format!(
            "select kind, state from jobs where state not in ('scheduled', 'retry') and cast(tenant_id as text) = '{id}'"
        );
        self.work_until(&left).await;
    }

    /// What there is to be fetched is known after that, and nothing is fetched.
    pub async fn list_only(&self) {
        let kinds = self.syncer.list_kinds().into_iter().fold(Kinds::default(), Kinds::with);
        let left = "select kind, state from jobs where kind in ('sync_mailbox', 'list_history', 'list_mailbox')";
        self.work_with(kinds, left).await;
    }

    async fn work_until(&self, left: &str) {
        let week = Duration::from_secs(7 * 86_400);
        let keep = Keep {
            jobs: KeepFor { finished: week, dead: week },
            events: SignedDuration::MAX,
            deliveries: week,
            blobs: SignedDuration::MAX,
        };
        self.work_with(engine::jobs::kinds(&self.syncer, keep), left).await;
    }

    async fn work_with(&self, kinds: Kinds, left: &str) {
        let settings = jobs::Settings { remote_slots: 32, ..worker_settings() };
        let worker = Worker::start(self.db.store.clone(), kinds, settings, Arc::new(SystemDice));
        let idle = async {
            while !self.db.rows(left).await.is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        assert!(tokio::time::timeout(DEADLINE, idle).await.is_ok(), "{:?}", self.db.rows(left).await);
        worker.shut_down().await;
    }
}

pub async fn users(tenant: &TenantStore) -> Vec<User> {
    tenant.list_users(&UserFilter::default(), None, 100_000).await.unwrap()
}

pub async fn user(tenant: &TenantStore, provider: Provider, address: &str) -> User {
    let filter = UserFilter { provider: Some(provider), address: Some(address.to_owned()), ..UserFilter::default() };
    let mut found = tenant.list_users(&filter, None, 10).await.unwrap();
    found.retain(|user| user.person.address.as_deref() == Some(address) && user.is_there);
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
pub async fn left_out(tenant: &TenantStore) -> BTreeMap<LeftOut, usize> {
    let mut all = BTreeMap::new();
    for reason in users(tenant).await.into_iter().filter_map(|user| user.left_out) {
        *all.entry(reason).or_default() += 1;
    }
    all
}

pub fn change(person: &str) -> PersonChange {
    PersonChange { person: person.to_owned(), ..PersonChange::default() }
}
