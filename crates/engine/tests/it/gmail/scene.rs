//! A simulated Google for the engine.

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;

use connectors::gmail::Gmail;
use connectors::google::GoogleSettings;
use connectors::http::Http;
use domain::{Clock, Connector, Secret, SystemClock};
use sim::google::{CLIENT_ID, CLIENT_SECRET, Kind, NewAccount, Server, World};

use crate::scene::Simulated;

pub type Scene = crate::scene::Scene<World>;

impl Simulated for World {
    type Kind = Kind;

    fn begin() -> Self {
        World::new(1, 10, Arc::new(|| SystemClock.now()))
    }

    async fn serve(world: &Arc<Self>, http: Http) -> (Arc<dyn Connector>, Box<dyn Any + Send + Sync>) {
        let server = Server::start_here(Arc::clone(world)).await.unwrap();
        (Arc::new(Gmail::new(http, &settings(&server)).unwrap()), Box::new(server))
    }

    fn create(&self, address: &str, messages: usize) -> bool {
        World::create(self, &NewAccount { address: address.to_owned(), messages, seed: None })
    }

    fn consent(&self, address: &str) -> Option<String> {
        self.grant(address)?.refresh_token
    }

    fn truth_of(&self, address: &str) -> BTreeSet<String> {
        let mut lines = BTreeSet::new();
        for (id, message) in self.truth(address).unwrap().messages {
            for (place, flags) in connectors::gmail::places(&id, &message.label_ids) {
                if !["TRASH", "SPAM", "DRAFT", "CHAT"].contains(&&*place.folder) {
                    lines.insert(format!("{id} in {} {:?} {}", place.folder, flags.names(), message.sha256));
                }
            }
        }
        lines
    }
}

/// Of an app that is known there, without limits of its own.
pub fn settings(server: &Server) -> GoogleSettings {
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
