//! Who the demo's mailboxes live with: a Google, a Microsoft and an IMAP server that do not exist.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use domain::{Clock, SystemClock};
use serde::Serialize;
use sim::google::{self, Endpoint};
use sim::microsoft::{self, DirectoryChange, LifecycleEvent};
use sim::people::{NewOrganisation, NewPerson, Organised, PeopleOperation};
use sim::{Server, imap, scripted};
use tokio::net::TcpListener;

use crate::cli::demo::Demo;
use crate::failure::Failure;

/// Different letters that all mail is made of.
const LETTERS: usize = 500;

/// The domains of the two organisations.
pub const GOOGLE: &str = "harbour.example";
pub const MICROSOFT: &str = "orchard.example";

/// Of each, whatever becomes of them: one is suspended, one has no licence, one is a guest.
const PEOPLE: usize = 12;

/// Their administrator, by whom the Google is read.
pub const ADMINISTRATOR: &str = "user1@harbour.example";

/// Has so much mail that it takes a while.
pub const ARCHIVE: &str = "archive@harbour.example";

/// Has said yes by themselves, and takes it back.
pub const CONTRACTOR: &str = "contractor@studio.example";

/// Is asked to wait.
pub const THROTTLED: &str = "user2@orchard.example";

/// Is asked for by its address, though jobs know mailboxes by their ids.
pub const MISNAMED: &str = "user3@orchard.example";

pub const AT_IMAP: [&str; 3] = ["office@workshop.example", "orders@workshop.example", "repairs@workshop.example"];

/// All mailboxes that are taken in but the archive.
const OTHERS: usize = 2 * 9 + 1 + AT_IMAP.len();

/// Changes a second at each provider, at rate 1.
const CHANGES: f64 = 0.5;

/// Where we are reached by the name that Google's pushes have for it.
pub const TOPIC: &str = "projects/demo/topics/mail";

pub struct Providers {
    pub google: Arc<google::World>,
    pub microsoft: Arc<microsoft::World>,
    pub imap: Arc<imap::World>,
    server: Server,
}

/// By provider: changes that were made, and those of what was pushed that Mailroom took.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Happened {
    pub changes: BTreeMap<&'static str, u64>,
    pub pushes: BTreeMap<&'static str, u64>,
    /// Answers that were wrong, late or missing.
    pub faults_met: u64,
}

impl Providers {
    pub async fn start(args: &Demo) -> Result<Self, Failure> {
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let (listener, imap_listener) = (TcpListener::bind(here).await?, TcpListener::bind(here).await?);
        let now = || -> google::Now { Arc::new(|| SystemClock.now()) };
        let scripted = Arc::new(scripted::World::new(args.seed, 1, now()));
        let google = Arc::new(google::World::new(args.seed, LETTERS, now()));
        let microsoft = Arc::new(microsoft::World::new(args.seed, LETTERS, now()));
        let imap = Arc::new(imap::World::new(args.seed, LETTERS, now()));
        let server = Server::start(listener, scripted, &google, &microsoft, (imap_listener, &imap))?;
        let providers = Self { google, microsoft, imap, server };
        providers.fill(args.emails);
        Ok(providers)
    }

    fn fill(&self, emails: usize) {
        let (many, messages) = (emails / 2, emails / 2 / OTHERS);
        let organisation = |domain: &str| NewOrganisation {
            domain: domain.to_owned(),
            more_domains: Vec::new(),
            people: PEOPLE,
            messages,
        };
        self.google.organise(&organisation(GOOGLE));
        let archive = NewPerson { address: ARCHIVE.to_owned(), messages: many, ..NewPerson::default() };
        // Nobody has the address yet.
        let _ = self.google.apply_to_people(GOOGLE, PeopleOperation::Join(archive));
        self.google.create(&google::NewAccount { address: CONTRACTOR.to_owned(), messages, seed: None });
        // Something to be taken in before the consent is taken back, however little mail was asked for.
        let _ = self.google.apply(CONTRACTOR, google::Operation::deliver());
        self.microsoft.organise(&organisation(MICROSOFT));
        for address in AT_IMAP {
            self.imap.create(&imap::NewAccount { address: address.to_owned(), messages, seed: None });
        }
    }

    /// The administrator at Microsoft says yes.
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

    /// Where Google tells what happens; Microsoft is told by whoever subscribes.
    pub fn push_to(&self, url: &str) {
        self.google.set_push(Some(Endpoint::new(&format!("{url}/v1/hooks/gmail"))));
    }

    /// 0: nothing happens any more.
    pub fn set_rate(&self, rate: f64) {
        let changes = CHANGES * rate;
        self.google.set_rate(changes);
        self.microsoft.set_rate(changes);
        self.imap.set_rate(changes);
    }

    /// Something goes wrong, somewhere else each time: an answer, or now and then what holds for longer than one.
    pub fn fail(&self, number: u64) {
        match number % 30 {
            10 => self.google.expire_access_tokens(None),
            11 => self.microsoft.expire_access_tokens(None),
            20 => drop(self.google.rotate_keys(false)),
            // The connections of one after the other end.
            21 => drop(self.imap.disconnect(AT_IMAP[(number / 30) as usize % AT_IMAP.len()])),
            n if n % 3 == 0 => self.google.fail_once(),
            n if n % 3 == 1 => self.microsoft.fail_once(),
            _ => self.imap.fail_once(),
        }
    }

    /// What happened so far, and what of it was taken.
    pub fn happened(&self) -> Happened {
        let (google, microsoft, imap) = (&self.google, &self.microsoft, &self.imap);
        Happened {
            changes: [("google", google.changes()), ("microsoft", microsoft.changes()), ("imap", imap.changes())]
                .into(),
            pushes: [("google", google.push_counts().acked), ("microsoft", microsoft.notification_counts().acked)]
                .into(),
            faults_met: google.faults_met() + microsoft.faults_met() + imap.faults_met(),
        }
    }

    /// Nothing goes wrong any more, and nothing changes.
    pub fn heal(&self) {
        self.set_rate(0.0);
        self.google.clear_faults();
        self.microsoft.clear_faults();
        self.imap.clear_faults();
    }

    /// What went for good at Microsoft shows once it says that something was missed, or a day later.
    pub fn remind(&self) {
        for subscription in self.microsoft.subscriptions() {
            self.microsoft.send_lifecycle(&subscription.id, LifecycleEvent::Missed);
        }
    }

    /// Whether everything was told that is to be told.
    pub fn have_told_all(&self) -> bool {
        self.google.push_counts().pending == 0 && self.microsoft.notification_counts().pending == 0
    }

    /// Calls and answers that were not as the providers' own descriptions have it.
    pub fn violations(&self) -> Vec<String> {
        let (google, microsoft, imap) = (self.google.violations(), self.microsoft.violations(), self.imap.violations());
        google.iter().chain(&microsoft).chain(&imap).map(|violation| format!("{violation:?}")).collect()
    }
}
