//! A simulated Google.

use std::collections::BTreeSet;
use std::sync::Arc;

use domain::{Clock, Connector, Secret, SystemClock};
use providers::gmail::{Gmail, GoogleSettings};
use providers::http::HttpClient;
use sim::google::{AccountSpec, CLIENT_ID, CLIENT_SECRET, GoogleFaultKind, GoogleServer, GoogleWorld};

use super::{LETTERS, SEED, SimulatedProvider};
use crate::app::message_line;

/// Folders that are out of scope by default.
const OUT_OF_SCOPE: [&str; 4] = ["TRASH", "SPAM", "DRAFT", "CHAT"];

impl SimulatedProvider for GoogleWorld {
    type Fault = GoogleFaultKind;
    type Server = GoogleServer;

    fn begin() -> Self {
        GoogleWorld::new(SEED, LETTERS, Arc::new(|| SystemClock.now()))
    }

    async fn serve(world: &Arc<Self>) -> GoogleServer {
        GoogleServer::start_here(Arc::clone(world)).await.unwrap()
    }

    fn connect_to(server: &GoogleServer, http: HttpClient) -> Arc<dyn Connector> {
        Arc::new(Gmail::new(http, &google_settings(server)).unwrap())
    }

    fn create(&self, address: &str, messages: usize) -> bool {
        GoogleWorld::create(self, &AccountSpec { address: address.to_owned(), messages, seed: None })
    }

    fn consent(&self, address: &str) -> Option<String> {
        self.grant(address)?.refresh_token
    }

    fn truth_of(&self, address: &str) -> BTreeSet<String> {
        let mut lines = BTreeSet::new();
        for (id, message) in self.truth(address).unwrap().messages {
            for (place, flags) in providers::gmail::placements(&id, &message.label_ids) {
                if !OUT_OF_SCOPE.contains(&&*place.folder) {
                    lines.insert(message_line(&id, &place.folder, flags.names(), &message.sha256));
                }
            }
        }
        lines
    }
}

/// Settings of an app that is known there, without limits of its own.
pub fn google_settings(server: &GoogleServer) -> GoogleSettings {
    GoogleSettings {
        auth_url: format!("{}/o/oauth2/v2/auth", server.url()),
        token_url: format!("{}/token", server.url()),
        api_url: server.url(),
        jwks_url: format!("{}/oauth2/v3/certs", server.url()),
        client_id: Some(CLIENT_ID.to_owned()),
        client_secret: Some(Secret::new(CLIENT_SECRET.to_owned())),
        user_units_per_minute: None,
        ..GoogleSettings::default()
    }
}
