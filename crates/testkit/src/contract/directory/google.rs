//! The contract for directories of Google Workspace.

use std::sync::Arc;

use domain::connector::Cursors;
use domain::{Clock, Connector, Secret, SystemClock};
use providers::gmail::{Gmail, GoogleSettings};
use providers::http::{HttpClient, HttpTimeouts};
use serde_json::{Value, json};
use sim::google::{GoogleFault, GoogleFaultKind, GoogleRoute, GoogleServer, GoogleWorld};
use sim::people::{DirectoryProvider, NewOrganisation, OrganisationTruth, PeopleOperation, PersonTruth};

use super::DirectoryUnderTest;

/// An organisation at a simulated Google, which trusts our service account.
#[derive(Debug)]
pub struct GoogleDirectoryUnderTest {
    pub world: Arc<GoogleWorld>,
    pub gmail: Gmail,
    _server: GoogleServer,
}

impl GoogleDirectoryUnderTest {
    /// The organisation's domain.
    pub const DOMAIN: &str = "harbour.example";
    /// An administrator of the organisation.
    pub const ADMIN: &str = "user1@harbour.example";

    pub async fn new(people: usize) -> Self {
        let world = Arc::new(GoogleWorld::new(3, 20, Arc::new(|| SystemClock.now())));
        let new = NewOrganisation { domain: Self::DOMAIN.to_owned(), people, ..NewOrganisation::default() };
        world.create_organisation(&new).unwrap();
        let server = GoogleServer::start_here(Arc::clone(&world)).await.unwrap();
        let url = server.url();
        let settings = GoogleSettings {
            token_url: format!("{url}/token"),
            api_url: url.clone(),
            directory_url: url,
            service_account: Some(Secret::new(world.service_account_key().to_string())),
            ..GoogleSettings::default()
        };
        let gmail = Gmail::new(HttpClient::new(HttpTimeouts::default()).unwrap(), &settings).unwrap();
        Self { world, gmail, _server: server }
    }

    /// Lets the next page of people fail once.
    pub fn fail_next_page(&self, kind: GoogleFaultKind) {
        self.world.add_fault(GoogleFault { route: Some(GoogleRoute::UsersList), ..GoogleFault::once(kind) });
    }
}

impl DirectoryUnderTest for GoogleDirectoryUnderTest {
    fn name(&self) -> &'static str {
        "google"
    }

    fn domain(&self) -> &'static str {
        Self::DOMAIN
    }

    fn connector(&self) -> &dyn Connector {
        &self.gmail
    }

    fn reader(&self) -> (String, Value) {
        (Self::ADMIN.to_owned(), json!({"app_only": true, "groups": true}))
    }

    fn truth(&self) -> OrganisationTruth {
        self.world.organisation(Self::DOMAIN).unwrap()
    }

    fn apply(&self, operation: PeopleOperation) -> Option<String> {
        self.world.apply_to_people(Self::DOMAIN, operation).unwrap().person
    }

    fn is_suspended(&self, person: &PersonTruth) -> bool {
        person.is_suspended || person.is_archived
    }

    fn send_empty_page(&self) {
        self.fail_next_page(GoogleFaultKind::EmptyPage);
    }

    fn expire(&self, _cursors: Cursors) -> Cursors {
        Cursors::from([("next".to_owned(), "abc".to_owned())])
    }

    fn violations(&self) -> Vec<String> {
        self.world.violations().iter().map(|violation| format!("{violation:?}")).collect()
    }
}
