//! A simulated Microsoft.

use std::collections::BTreeSet;
use std::sync::Arc;

use domain::{Clock, Connector, Secret, SystemClock};
use providers::http::HttpClient;
use providers::outlook::{MicrosoftSettings, Outlook};
use sim::microsoft::{AccountSpec, CLIENT_ID, CLIENT_SECRET, MicrosoftFaultKind, MicrosoftServer, MicrosoftWorld};

use super::{LETTERS, SEED, SimulatedProvider};
use crate::app::message_line;

/// Folders that are out of scope by default, with what lies below them.
const OUT_OF_SCOPE: [&str; 7] =
    ["deleteditems", "junkemail", "conversationhistory", "outbox", "conflicts", "localfailures", "serverfailures"];

impl SimulatedProvider for MicrosoftWorld {
    type Fault = MicrosoftFaultKind;
    type Server = MicrosoftServer;

    fn begin() -> Self {
        MicrosoftWorld::new(SEED, LETTERS, Arc::new(|| SystemClock.now()))
    }

    async fn serve(world: &Arc<Self>) -> MicrosoftServer {
        MicrosoftServer::start_here(Arc::clone(world)).await.unwrap()
    }

    fn connect_to(server: &MicrosoftServer, http: HttpClient) -> Arc<dyn Connector> {
        Arc::new(Outlook::new(http, &microsoft_settings(server)).unwrap())
    }

    fn create(&self, address: &str, messages: usize) -> bool {
        MicrosoftWorld::create(self, &AccountSpec { address: address.to_owned(), messages, seed: None })
    }

    fn consent(&self, address: &str) -> Option<String> {
        self.grant(address)?.refresh_token
    }

    fn truth_of(&self, address: &str) -> BTreeSet<String> {
        let truth = self.truth(address).unwrap();
        let mut out_of_scope = Vec::new();
        for folder in truth.folders.values() {
            let is_out = folder.well_known.as_deref().is_some_and(|name| OUT_OF_SCOPE.contains(&name));
            if folder.is_hidden || folder.is_search || is_out {
                out_of_scope.push(&*folder.path);
            }
        }
        let in_scope = truth.messages.iter().filter(|(_, message)| {
            truth.folders[&message.folder_id].well_known.as_deref() != Some("drafts")
                && !out_of_scope.iter().any(|path| is_below(&message.folder, path))
        });
        in_scope
            .map(|(id, message)| {
                let marks = [(message.is_draft, "draft"), (message.is_flagged, "flagged"), (message.is_read, "seen")];
                let flags: Vec<String> =
                    marks.iter().filter(|(is_set, _)| *is_set).map(|(_, name)| (*name).to_owned()).collect();
                message_line(id, &message.folder_id, &flags, &message.sha256)
            })
            .collect()
    }
}

fn is_below(path: &str, above: &str) -> bool {
    path == above || path.starts_with(&format!("{above}/"))
}

/// Settings of an app that is known there.
pub fn microsoft_settings(server: &MicrosoftServer) -> MicrosoftSettings {
    MicrosoftSettings {
        authority_url: server.url(),
        graph_url: server.url(),
        client_id: Some(CLIENT_ID.to_owned()),
        client_secret: Some(Secret::new(CLIENT_SECRET.to_owned())),
        ..MicrosoftSettings::default()
    }
}
