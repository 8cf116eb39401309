//! The contract for directories of Microsoft Entra.

use std::sync::Arc;

use domain::connector::Cursors;
use domain::{Clock, Connector, SystemClock};
use providers::http::{HttpClient, HttpTimeouts};
use providers::outlook::Outlook;
use serde_json::{Value, json};
use sim::microsoft::{
    DirectoryChange, MicrosoftFault, MicrosoftFaultKind, MicrosoftRoute, MicrosoftServer, MicrosoftWorld,
};
use sim::people::{DirectoryProvider, NewOrganisation, OrganisationTruth, PeopleOperation};

use super::DirectoryUnderTest;
use crate::simulated::microsoft_settings;

/// An organisation at a simulated Microsoft, whose administrator has consented to our app.
#[derive(Debug)]
pub struct MicrosoftDirectoryUnderTest {
    pub world: Arc<MicrosoftWorld>,
    pub outlook: Outlook,
    _server: MicrosoftServer,
}

impl MicrosoftDirectoryUnderTest {
    /// The organisation's domain.
    pub const DOMAIN: &str = "fabrikam.example";

    pub async fn new(people: usize) -> Self {
        let world = Arc::new(MicrosoftWorld::new(3, 20, Arc::new(|| SystemClock.now())));
        let new =
            NewOrganisation { domain: Self::DOMAIN.to_owned(), people, messages: 1, ..NewOrganisation::default() };
        world.create_organisation(&new).unwrap();
        let server = MicrosoftServer::start_here(Arc::clone(&world)).await.unwrap();
        let http = HttpClient::new(HttpTimeouts::default()).unwrap();
        let outlook = Outlook::new(http, &microsoft_settings(&server)).unwrap();
        let under_test = Self { world, outlook, _server: server };
        under_test.consent(None);
        under_test
    }

    /// Consents to these permissions of our app; `None`: to all that it needs.
    pub fn consent(&self, permissions: Option<&[&str]>) {
        let permissions = permissions.map(|all| all.iter().map(|one| (*one).to_owned()).collect());
        let change = DirectoryChange { admin_consent: Some(true), permissions, ..DirectoryChange::default() };
        self.world.change_directory(Self::DOMAIN, &change);
    }
}

impl DirectoryUnderTest for MicrosoftDirectoryUnderTest {
    fn name(&self) -> &'static str {
        "microsoft"
    }

    fn domain(&self) -> &'static str {
        Self::DOMAIN
    }

    fn connector(&self) -> &dyn Connector {
        &self.outlook
    }

    fn reader(&self) -> (String, Value) {
        (String::new(), json!({"app_only": true, "directory": Self::DOMAIN}))
    }

    fn truth(&self) -> OrganisationTruth {
        self.world.organisation(Self::DOMAIN).unwrap()
    }

    fn apply(&self, operation: PeopleOperation) -> Option<String> {
        self.world.apply_to_people(Self::DOMAIN, operation).unwrap().person
    }

    fn send_empty_page(&self) {
        let fault = MicrosoftFault::once(MicrosoftFaultKind::EmptyPage);
        self.world.add_fault(MicrosoftFault { route: Some(MicrosoftRoute::UsersDelta), ..fault });
    }

    fn expire(&self, cursors: Cursors) -> Cursors {
        self.apply(PeopleOperation::ExpireDelta);
        cursors
    }

    fn violations(&self) -> Vec<String> {
        self.world.violations().iter().map(|violation| format!("{violation:?}")).collect()
    }
}
