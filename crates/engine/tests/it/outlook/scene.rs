//! A simulated Microsoft for the engine.

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;

use connectors::http::Http;
use connectors::microsoft::MicrosoftSettings;
use connectors::outlook::Outlook;
use domain::{Clock, Connector, Secret, SystemClock};
use sim::microsoft::{CLIENT_ID, CLIENT_SECRET, Kind, NewAccount, Server, World};

use crate::scene::Simulated;

pub type Scene = crate::scene::Scene<World>;

/// Folders whose mail nobody wants unless it is said, and what lies below them.
const UNWANTED: [&str; 7] =
    ["deleteditems", "junkemail", "conversationhistory", "outbox", "conflicts", "localfailures", "serverfailures"];

impl Simulated for World {
    type Kind = Kind;

    fn begin() -> Self {
        World::new(1, 10, Arc::new(|| SystemClock.now()))
    }

    async fn serve(world: &Arc<Self>, http: Http) -> (Arc<dyn Connector>, Box<dyn Any + Send + Sync>) {
        let server = Server::start_here(Arc::clone(world)).await.unwrap();
        let settings = MicrosoftSettings {
            authority_url: server.url(),
            graph_url: server.url(),
            client_id: Some(CLIENT_ID.to_owned()),
            client_secret: Some(Secret::new(CLIENT_SECRET.to_owned())),
            ..MicrosoftSettings::default()
        };
        (Arc::new(Outlook::new(http, &settings).unwrap()), Box::new(server))
    }

    fn create(&self, address: &str, messages: usize) -> bool {
        World::create(self, &NewAccount { address: address.to_owned(), messages, seed: None })
    }

    fn consent(&self, address: &str) -> Option<String> {
        self.grant(address)?.refresh_token
    }

    fn truth_of(&self, address: &str) -> BTreeSet<String> {
        let truth = self.truth(address).unwrap();
        let is_below = |path: &str, above: &str| path == above || path.starts_with(&format!("{above}/"));
        let is_drafts = |id: &String| truth.folders[id].well_known.as_deref() == Some("drafts");
        let unwanted: Vec<&str> = truth
            .folders
            .values()
            .filter(|folder| {
                folder.is_hidden
                    || folder.is_search
                    || folder.well_known.as_deref().is_some_and(|name| UNWANTED.contains(&name))
            })
            .map(|folder| &*folder.path)
            .collect();
        let wanted = truth.messages.iter().filter(|(_, message)| {
            !is_drafts(&message.folder_id) && !unwanted.iter().any(|path| is_below(&message.folder, path))
        });
        wanted
            .map(|(id, message)| {
                let marks = [(message.is_draft, "draft"), (message.is_flagged, "flagged"), (message.is_read, "seen")];
                let flags: Vec<&str> = marks.iter().filter(|(is_set, _)| *is_set).map(|(_, name)| *name).collect();
                format!("{id} in {} {flags:?} {}", message.folder_id, message.sha256)
            })
            .collect()
    }
}
