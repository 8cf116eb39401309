//! `users.labels`: the labels of a mailbox.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::error::error;
use super::super::labels::LabelId;
use super::call::GmailCallContext;
use crate::response::SimResponse;

pub fn list(context: &GmailCallContext<'_>) -> SimResponse {
    let account = context.mailbox.account();
    let labels: Vec<Value> = account.labels.ids().map(|label| account.labels.show(label)).collect();
    SimResponse::json(json!({"labels": labels}))
}

/// Returns one label with its counts, which the list does not have.
pub fn get(context: &GmailCallContext<'_>) -> SimResponse {
    let account = context.mailbox.account();
    let Some(label) = LabelId::parse(context.call.path("id")).filter(|label| account.labels.has(*label)) else {
        return error(404, "notFound", "Requested entity was not found.");
    };
    let mut shown = account.labels.show(label);
    let labelled: Vec<_> = account.messages.values().filter(|message| message.labels.contains(&label)).collect();
    let unread: Vec<_> = labelled.iter().filter(|message| message.labels.contains(&LabelId::UNREAD)).collect();
    shown["messagesTotal"] = json!(labelled.len());
    shown["messagesUnread"] = json!(unread.len());
    shown["threadsTotal"] = json!(labelled.iter().map(|message| message.thread).collect::<BTreeSet<_>>().len());
    shown["threadsUnread"] = json!(unread.iter().map(|message| message.thread).collect::<BTreeSet<_>>().len());
    SimResponse::json(shown)
}
