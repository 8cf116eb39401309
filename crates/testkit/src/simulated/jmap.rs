//! A simulated JMAP server.

use std::collections::BTreeSet;
use std::sync::Arc;

use domain::{Clock, Connector, SystemClock};
use providers::http::HttpClient;
use providers::jmap::{Jmap, JmapConnection};
use serde_json::Value;
use sim::jmap::{AccountSpec, JMAP_PASSWORD, JmapFaultKind, JmapServer, JmapTruth, JmapWorld};

use super::{LETTERS, SEED, SimulatedProvider};
use crate::app::message_line;
use crate::contract::jmap_flags;

/// Folders that are out of scope by default, with what lies below them.
const OUT_OF_SCOPE: [&str; 3] = ["Deleted Items", "Junk Mail", "Drafts"];

impl SimulatedProvider for JmapWorld {
    type Fault = JmapFaultKind;
    type Server = JmapServer;

    fn begin() -> Self {
        JmapWorld::new(SEED, LETTERS, Arc::new(|| SystemClock.now()))
    }

    async fn serve(world: &Arc<Self>) -> JmapServer {
        JmapServer::start_here(Arc::clone(world)).await.unwrap()
    }

    fn connect_to(_server: &JmapServer, http: HttpClient) -> Arc<dyn Connector> {
        Arc::new(Jmap::new(http).unwrap())
    }

    fn create(&self, address: &str, messages: usize) -> bool {
        JmapWorld::create(self, &AccountSpec { address: address.to_owned(), messages, seed: None })
    }

    fn connection(server: &JmapServer, address: &str) -> Value {
        serde_json::to_value(JmapConnection::new(&server.url(), address).unwrap()).unwrap()
    }

    fn consent(&self, _address: &str) -> Option<String> {
        Some(JMAP_PASSWORD.to_owned())
    }

    fn truth_of(&self, address: &str) -> BTreeSet<String> {
        let truth = self.truth(address).unwrap();
        let mut lines = BTreeSet::new();
        for id in truth.messages.keys() {
            let folders = truth.messages[id].folders.iter().filter(|folder| is_in_jmap_scope(&truth, folder));
            lines.extend(folders.map(|folder| line(&truth, id, folder)));
        }
        lines
    }
}

fn line(truth: &JmapTruth, id: &str, folder: &str) -> String {
    let message = &truth.messages[id];
    let flags: BTreeSet<String> = jmap_flags(message).into_iter().collect();
    message_line(id, folder, &flags.into_iter().collect::<Vec<_>>(), &message.sha256)
}

/// Returns whether a folder is synced by default. Drafts are not, but what somebody has put below them is.
pub fn is_in_jmap_scope(truth: &JmapTruth, folder: &str) -> bool {
    let name = &truth.folders[folder].name;
    !OUT_OF_SCOPE.iter().any(|out| name == out || *out != "Drafts" && name.starts_with(&format!("{out}/")))
}
