//! `users.getProfile`, `users.watch` and `users.stop`.

use std::collections::BTreeSet;
use std::sync::PoisonError;

use serde_json::{Value, json};

use super::super::error::error;
use super::super::push;
use super::call::GmailCallContext;
use crate::response::{ResponseBody, SimResponse};

pub fn profile(context: &GmailCallContext<'_>) -> SimResponse {
    let account = context.mailbox.account();
    let threads: BTreeSet<u64> = account.messages.values().map(|message| message.thread).collect();
    SimResponse::json(json!({
        "emailAddress": context.world.person(context.mailbox).address,
        "messagesTotal": account.message_count(),
        "threadsTotal": threads.len(),
        "historyId": account.history_id().to_string(),
    }))
}

pub fn watch(context: &GmailCallContext<'_>) -> SimResponse {
    let (world, mailbox) = (context.world, context.mailbox);
    let body = context.body.unwrap_or(&Value::Null);
    let topic = body["topicName"].as_str().unwrap_or_default();
    let parts: Vec<&str> = topic.split('/').collect();
    if !matches!(parts[..], ["projects", project, "topics", name] if !project.is_empty() && !name.is_empty()) {
        return error(400, "invalidArgument", "Invalid topicName does not match projects/{project}/topics/{topic}");
    }
    let client = world.provider.oauth.client(&context.access.client);
    if client.and_then(|client| client.project).is_some_and(|project| project != push::project(topic)) {
        let why = "Invalid topicName: its project is not the project of the client that asks.";
        return error(400, "invalidArgument", why);
    }
    let named: Vec<&str> = body["labelIds"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let (labels, history_id) = {
        let account = mailbox.account();
        let labels: Option<Vec<_>> =
            named.iter().map(|label| account.labels.find(label).filter(|found| found.to_string() == **label)).collect();
        (labels, account.history_id())
    };
    let Some(labels) = labels else { return error(400, "invalidArgument", "Invalid labelIds") };
    let is_excluding = body["labelFilterBehavior"].as_str().or(body["labelFilterAction"].as_str()) == Some("exclude");
    let expires_ms = {
        let mut watches = mailbox.state.lock().unwrap_or_else(PoisonError::into_inner);
        watches.set(topic, labels, is_excluding, world.now_ms())
    };
    push::publish(world, mailbox, history_id);
    SimResponse::json(json!({"historyId": history_id.to_string(), "expiration": expires_ms.to_string()}))
}

pub fn stop(context: &GmailCallContext<'_>) -> SimResponse {
    context.mailbox.state.lock().unwrap_or_else(PoisonError::into_inner).stop();
    SimResponse::new(204, ResponseBody::Empty)
}
