//! The demo's simulated providers: a Google, a Microsoft and an IMAP server.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use domain::{Clock, SystemClock};
use serde::Serialize;
use sim::google::{self, PushEndpoint};
use sim::microsoft::{self, DirectoryChange, LifecycleEvent};
use sim::people::{DirectoryProvider, NewOrganisation, NewPerson, PeopleOperation};
use sim::{SimServer, SimWorlds, imap};
use terminal::Failure;
use tokio::net::TcpListener;

use super::DemoArgs;

/// Number of distinct messages that all mailboxes are filled with.
const DISTINCT_MESSAGES: usize = 500;

/// The domains of the two organisations.
pub const GOOGLE: &str = "harbour.example";
pub const MICROSOFT: &str = "orchard.example";

/// Users of each organisation, of which one is suspended, one has no licence, and one is a guest.
const USERS_PER_ORGANISATION: usize = 12;

/// The administrator on whose behalf the directory at Google is read.
pub const ADMINISTRATOR: &str = "user1@harbour.example";

/// The mailbox with so much mail that its backfill takes a while.
pub const ARCHIVE: &str = "archive@harbour.example";

/// The mailbox outside the organisations, whose owner consents and revokes the consent.
pub const CONTRACTOR: &str = "contractor@studio.example";

/// The mailbox that Microsoft throttles.
pub const THROTTLED: &str = "user2@orchard.example";

/// The mailbox that a job names by its address, although jobs name mailboxes by id.
pub const MISNAMED: &str = "user3@orchard.example";

pub const IMAP_ADDRESSES: [&str; 3] =
    ["office@workshop.example", "orders@workshop.example", "repairs@workshop.example"];

/// Number of synced mailboxes without the archive.
const SMALL_MAILBOXES: usize = 2 * 9 + 1 + IMAP_ADDRESSES.len();

/// Changes at each provider, at rate 1.
const CHANGES_PER_SECOND: f64 = 0.5;

/// The Pub/Sub topic of Google's pushes.
pub const PUBSUB_TOPIC: &str = "projects/demo/topics/mail";

/// All providers, behind one server.
pub struct DemoProviders {
    pub google: Arc<google::GoogleWorld>,
    pub microsoft: Arc<microsoft::MicrosoftWorld>,
    pub imap: Arc<imap::ImapWorld>,
    server: SimServer,
}

/// Number of changes that were made, and of pushes that Mailroom acknowledged, by provider.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ProviderActivity {
    pub changes: BTreeMap<&'static str, u64>,
    pub pushes: BTreeMap<&'static str, u64>,
    /// Responses that were wrong, late or missing.
    pub faults_met: u64,
}

impl DemoProviders {
    pub async fn start(args: &DemoArgs) -> Result<Self, Failure> {
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let (listener, imap_listener) = (TcpListener::bind(here).await?, TcpListener::bind(here).await?);
        let worlds = SimWorlds::new(args.seed, DISTINCT_MESSAGES, &clock());
        let server = SimServer::start(listener, imap_listener, &worlds)?;
        let SimWorlds { google, microsoft, imap, .. } = worlds;
        let providers = Self { google, microsoft, imap, server };
        providers.fill(args.emails);
        Ok(providers)
    }

    fn fill(&self, emails: usize) {
        let (many, messages) = (emails / 2, emails / 2 / SMALL_MAILBOXES);
        self.google.create_organisation(&new_organisation(GOOGLE, messages));
        let archive = NewPerson { address: ARCHIVE.to_owned(), messages: many, ..NewPerson::default() };
        // It cannot fail: the address is free.
        let _ = self.google.apply_to_people(GOOGLE, PeopleOperation::Join(archive));
        self.google.create(&google::AccountSpec { address: CONTRACTOR.to_owned(), messages, seed: None });
        // One email to sync before the consent is revoked, however few emails the demo has.
        let _ = self.google.apply(CONTRACTOR, google::GmailOperation::deliver());
        self.microsoft.create_organisation(&new_organisation(MICROSOFT, messages));
        for address in IMAP_ADDRESSES {
            self.imap.create(&imap::AccountSpec { address: address.to_owned(), messages, seed: None });
        }
    }

    /// Grants the consent of the administrator at Microsoft.
    pub fn consent(&self) {
        let change = DirectoryChange { admin_consent: Some(true), ..DirectoryChange::default() };
        self.microsoft.change_directory(MICROSOFT, &change);
    }

    pub fn url(&self) -> String {
        self.server.url()
    }

    pub fn imap_port(&self) -> u16 {
        self.server.imap().port()
    }

    /// Sets where Google sends its pushes. Microsoft gets the address with the subscription.
    pub fn push_to(&self, url: &str) {
        self.google.set_push(Some(PushEndpoint::new(&format!("{url}/v1/hooks/gmail"))));
    }

    /// Sets the rate of changes; 0 stops them.
    pub fn set_rate(&self, rate: f64) {
        let changes = CHANGES_PER_SECOND * rate;
        self.google.set_rate(changes);
        self.microsoft.set_rate(changes);
        self.imap.set_rate(changes);
    }

    /// Injects a fault, at another provider each time: of one response, or now and then one that lasts longer.
    pub fn inject_fault(&self, number: u64) {
        match number % 30 {
            10 => self.google.expire_access_tokens(None),
            11 => self.microsoft.expire_access_tokens(None),
            20 => drop(self.google.rotate_keys(false)),
            // Closes the connections of one mailbox after the other.
            21 => drop(self.imap.disconnect(IMAP_ADDRESSES[(number / 30) as usize % IMAP_ADDRESSES.len()])),
            n if n % 3 == 0 => self.google.inject_transient_fault(),
            n if n % 3 == 1 => self.microsoft.inject_transient_fault(),
            _ => self.imap.inject_transient_fault(),
        }
    }

    /// Returns the counts so far.
    pub fn activity(&self) -> ProviderActivity {
        let (google, microsoft, imap) = (&self.google, &self.microsoft, &self.imap);
        ProviderActivity {
            changes: [("google", google.changes()), ("microsoft", microsoft.changes()), ("imap", imap.changes())]
                .into(),
            pushes: [("google", google.push_counts().acked), ("microsoft", microsoft.notification_counts().acked)]
                .into(),
            faults_met: google.faults_fired() + microsoft.faults_fired() + imap.faults_fired(),
        }
    }

    /// Ends all faults and changes.
    pub fn clear_faults(&self) {
        self.set_rate(0.0);
        self.google.clear_faults();
        self.microsoft.clear_faults();
        self.imap.clear_faults();
    }

    /// Sends `missed` for all subscriptions at Microsoft: without it, a permanent deletion shows a day later.
    pub fn send_missed_notifications(&self) {
        for subscription in self.microsoft.subscriptions() {
            self.microsoft.send_lifecycle(&subscription.id, LifecycleEvent::Missed);
        }
    }

    /// Returns whether no push is pending.
    pub fn has_pushed_all(&self) -> bool {
        self.google.push_counts().pending == 0 && self.microsoft.notification_counts().pending == 0
    }

    /// Returns the calls and responses that were not as the providers' own descriptions have it.
    pub fn violations(&self) -> Vec<String> {
        let (google, microsoft, imap) = (self.google.violations(), self.microsoft.violations(), self.imap.violations());
        google.iter().chain(&microsoft).chain(&imap).map(|violation| format!("{violation:?}")).collect()
    }
}

fn clock() -> google::Now {
    Arc::new(|| SystemClock.now())
}

fn new_organisation(domain: &str, messages: usize) -> NewOrganisation {
    NewOrganisation { domain: domain.to_owned(), more_domains: Vec::new(), people: USERS_PER_ORGANISATION, messages }
}
