//! What really is in a mailbox, for whoever wants to know whether all of it arrived.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::account::Account;
use crate::letters::Letters;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Truth {
    pub history_id: String,
    /// Names by id, the system's too.
    pub labels: BTreeMap<String, String>,
    /// By id.
    pub messages: BTreeMap<String, TruthMessage>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TruthMessage {
    pub thread_id: String,
    pub label_ids: Vec<String>,
    /// Milliseconds since 1970.
    pub internal_date: i64,
    pub history_id: String,
    pub size: usize,
    /// Of the raw bytes.
    pub sha256: String,
}

impl Account {
    pub fn truth(&self, letters: &Letters) -> Truth {
        let message = |(number, message): (&u64, &super::account::Message)| {
            let truth = TruthMessage {
                thread_id: self.id(message.thread),
                label_ids: message.labels.iter().map(ToString::to_string).collect(),
                internal_date: message.internal_date,
                history_id: message.history_id.to_string(),
                size: letters.size(&message.content),
                sha256: letters.sha256(&message.content),
            };
            (self.id(*number), truth)
        };
        Truth {
            history_id: self.history_id().to_string(),
            labels: self.labels.ids().map(|id| (id.to_string(), self.labels.name(id))).collect(),
            messages: self.messages.iter().map(message).collect(),
        }
    }
}
