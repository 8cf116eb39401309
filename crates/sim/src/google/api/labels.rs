//! The labels of a mailbox.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::error::error;
use super::super::labels::LabelId;
use super::call::Entered;
use crate::answer::Answer;

pub fn list(entered: &Entered<'_>) -> Answer {
    let account = entered.mailbox.account();
    let labels: Vec<Value> = account.labels.ids().map(|label| account.labels.show(label)).collect();
    Answer::json(json!({"labels": labels}))
}

/// With counts, which a list does not have.
pub fn get(entered: &Entered<'_>) -> Answer {
    let account = entered.mailbox.account();
    let Some(label) = LabelId::parse(entered.call.path("id")).filter(|label| account.labels.has(*label)) else {
        return error(404, "notFound", "Requested entity was not found.");
    };
    let mut shown = account.labels.show(label);
    let labelled: Vec<_> = account.messages.values().filter(|message| message.labels.contains(&label)).collect();
    let is_unread = |message: &&&super::super::account::Message| message.labels.contains(&LabelId::UNREAD);
    let unread: Vec<_> = labelled.iter().filter(is_unread).collect();
    shown["messagesTotal"] = json!(labelled.len());
    shown["messagesUnread"] = json!(unread.len());
    shown["threadsTotal"] = json!(labelled.iter().map(|message| message.thread).collect::<BTreeSet<_>>().len());
    shown["threadsUnread"] = json!(unread.iter().map(|message| message.thread).collect::<BTreeSet<_>>().len());
    Answer::json(shown)
}
