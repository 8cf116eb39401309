//! Simulated providers, each with an Ann and a Bob.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use domain::{Clock, ConsentFlow, Provider, SystemClock};
use providers::gmail::{Gmail, GoogleOAuth};
use providers::http::{HttpClient, HttpTimeouts};
use providers::outlook::MicrosoftOAuth;
use sim::google::{self, Consent, GoogleRoute, GoogleServer, GoogleWorld};
use sim::microsoft::{self, MicrosoftServer, MicrosoftWorld};
use testkit::AppOptions;
use testkit::simulated::{google_settings, microsoft_settings};

pub type ConsentFlows = HashMap<Provider, Arc<dyn ConsentFlow>>;

/// Where people give their consent.
pub trait ProviderSite: Sized {
    /// As it is called in `/v1/oauth/…`.
    const NAME: &'static str;
    /// And the other one.
    const OTHER: &'static str;
    const ANN: &'static str;
    const BOB: &'static str;
    /// The scope without which nothing can be done.
    const READ: &'static str;

    async fn start() -> Self;

    /// Sets what people do with the page that asks them.
    fn set_consent(&self, consent: Consent);

    fn address(&self) -> SocketAddr;

    fn consent_flows(&self) -> ConsentFlows;

    /// Lets a worker sync the mailboxes.
    fn add_connector(&self, options: AppOptions) -> AppOptions;

    fn assert_no_violations(&self);

    /// So many consents that came to nothing are not kept: they were revoked, or a person was told where to do it.
    fn assert_withdrawn(&self, times: usize, page: &str);
}

fn client() -> HttpClient {
    HttpClient::new(HttpTimeouts::default()).unwrap()
}

pub fn automatic() -> Consent {
    Consent { auto: true, ..Consent::default() }
}

pub struct GoogleSite {
    pub world: Arc<GoogleWorld>,
    server: GoogleServer,
}

impl GoogleSite {
    pub fn revocations(&self) -> usize {
        self.requests(GoogleRoute::Revoke)
    }

    /// Codes that were exchanged for tokens.
    pub fn exchanges(&self) -> usize {
        self.requests(GoogleRoute::Token)
    }

    fn requests(&self, route: GoogleRoute) -> usize {
        self.world.request_log().iter().filter(|entry| entry.route == route).count()
    }
}

impl ProviderSite for GoogleSite {
    const NAME: &'static str = "google";
    const OTHER: &'static str = "microsoft";
    const ANN: &'static str = "ann@gmail.test";
    const BOB: &'static str = "bob@gmail.test";
    const READ: &'static str = google::READONLY;

    async fn start() -> Self {
        let world = Arc::new(GoogleWorld::new(7, 20, Arc::new(|| SystemClock.now())));
        for address in [Self::ANN, Self::BOB] {
            assert!(world.create(&google::AccountSpec { address: address.into(), messages: 5, seed: None }));
        }
        world.set_consent(automatic());
        let server = GoogleServer::start_here(world.clone()).await.unwrap();
        Self { world, server }
    }

    fn set_consent(&self, consent: Consent) {
        self.world.set_consent(consent);
    }

    fn address(&self) -> SocketAddr {
        self.server.address()
    }

    fn consent_flows(&self) -> ConsentFlows {
        let flow = GoogleOAuth::new(client(), google_settings(&self.server));
        HashMap::from([(Provider::Gmail, Arc::new(flow) as Arc<dyn ConsentFlow>)])
    }

    fn add_connector(&self, options: AppOptions) -> AppOptions {
        options.connector(Arc::new(Gmail::new(client(), &google_settings(&self.server)).unwrap()))
    }

    fn assert_no_violations(&self) {
        assert_eq!(self.world.violations(), []);
    }

    fn assert_withdrawn(&self, times: usize, _: &str) {
        assert_eq!(self.revocations(), times);
    }
}

pub struct MicrosoftSite {
    pub world: Arc<MicrosoftWorld>,
    server: MicrosoftServer,
}

/// She has an account of her own, in no directory.
pub const ZOE: &str = "zoe@outlook.com";

impl MicrosoftSite {
    pub fn oauth(&self) -> MicrosoftOAuth {
        MicrosoftOAuth::new(client(), microsoft_settings(&self.server))
    }
}

impl ProviderSite for MicrosoftSite {
    const NAME: &'static str = "microsoft";
    const OTHER: &'static str = "google";
    const ANN: &'static str = "ann@contoso.test";
    const BOB: &'static str = "bob@contoso.test";
    const READ: &'static str = "https://graph.microsoft.com/Mail.Read";

    async fn start() -> Self {
        let world = Arc::new(MicrosoftWorld::new(7, 20, Arc::new(|| SystemClock.now())));
        for address in [Self::ANN, Self::BOB, ZOE] {
            assert!(world.create(&microsoft::AccountSpec { address: address.into(), messages: 5, seed: None }));
        }
        world.set_consent(automatic());
        let server = MicrosoftServer::start_here(world.clone()).await.unwrap();
        Self { world, server }
    }

    fn set_consent(&self, consent: Consent) {
        self.world.set_consent(consent);
    }

    fn address(&self) -> SocketAddr {
        self.server.address()
    }

    fn consent_flows(&self) -> ConsentFlows {
        HashMap::from([(Provider::Outlook, Arc::new(self.oauth()) as Arc<dyn ConsentFlow>)])
    }

    /// No test here syncs its mailboxes.
    fn add_connector(&self, options: AppOptions) -> AppOptions {
        options
    }

    fn assert_no_violations(&self) {
        assert_eq!(self.world.violations(), []);
    }

    fn assert_withdrawn(&self, times: usize, page: &str) {
        assert_eq!(page.contains("withdraw your consent at https://"), times > 0, "{page}");
    }
}
