//! The ground truth of a mailbox, for comparison with what a client has synced.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::account::{GmailAccount, GmailMessage};
use crate::letter_pool::LetterPool;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GmailTruth {
    pub history_id: String,
    /// Names by id, system labels included.
    pub labels: BTreeMap<String, String>,
    /// By id.
    pub messages: BTreeMap<String, GmailMessageTruth>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GmailMessageTruth {
    pub thread_id: String,
    pub label_ids: Vec<String>,
    /// Milliseconds since 1970.
    pub internal_date: i64,
    pub history_id: String,
    pub size: usize,
    /// SHA-256 of the raw message.
    pub sha256: String,
}

impl GmailAccount {
    pub fn truth(&self, letters: &LetterPool) -> GmailTruth {
        let messages = self.messages.iter();
        GmailTruth {
            history_id: self.history_id().to_string(),
            labels: self.labels.ids().map(|id| (id.to_string(), self.labels.name(id))).collect(),
            messages: messages
                .map(|(number, message)| (self.id(*number), self.message_truth(message, letters)))
                .collect(),
        }
    }

    fn message_truth(&self, message: &GmailMessage, letters: &LetterPool) -> GmailMessageTruth {
        GmailMessageTruth {
            thread_id: self.id(message.thread),
            label_ids: message.labels.iter().map(ToString::to_string).collect(),
            internal_date: message.internal_date,
            history_id: message.history_id.to_string(),
            size: letters.size(&message.content),
            sha256: letters.sha256(&message.content),
        }
    }
}
