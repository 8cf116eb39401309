//! Messages and folders as JSON, their states and blobs.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::account::{JmapAccount, JmapMessage, message_id, utc_date};
use super::super::folders::folder_id;
use crate::letter_pool::LetterPool;

pub const MESSAGE_PROPERTIES: [&str; 7] = ["id", "blobId", "threadId", "mailboxIds", "keywords", "size", "receivedAt"];

pub const FOLDER_PROPERTIES: [&str; 8] =
    ["id", "name", "parentId", "role", "sortOrder", "totalEmails", "unreadEmails", "isSubscribed"];

/// Returns the state of messages: a number, as Cyrus has it.
pub fn message_state(state: usize) -> String {
    state.to_string()
}

pub fn folder_state(state: usize) -> String {
    format!("f{state}")
}

/// Reads a state. It may end with `x`, which sets that of an empty page apart from the one before.
pub fn parse_state(text: &str, prefix: &str) -> Option<usize> {
    text.strip_prefix(prefix)?.trim_end_matches('x').parse().ok()
}

pub fn blob_id(number: u64) -> String {
    format!("G{number:x}-")
}

pub fn blob_number(id: &str) -> Option<u64> {
    u64::from_str_radix(id.strip_prefix('G')?.strip_suffix('-')?, 16).ok()
}

/// Renders these properties of a message.
pub fn message(number: u64, message: &JmapMessage, letters: &LetterPool, properties: &[String]) -> Value {
    let folders: BTreeMap<String, bool> = message.folders.iter().map(|folder| (folder_id(*folder), true)).collect();
    let keywords: BTreeMap<&str, bool> = message.keywords.iter().map(|keyword| (keyword.as_str(), true)).collect();
    let all = json!({
        "id": message_id(number),
        "blobId": blob_id(number),
        "threadId": format!("T{number}"),
        "mailboxIds": folders,
        "keywords": keywords,
        "size": letters.size(&message.content),
        "receivedAt": utc_date(message.received),
    });
    selected(all, properties)
}

/// Renders these properties of a folder.
pub fn folder(account: &JmapAccount, number: u32, properties: &[String]) -> Value {
    let folder = &account.folders[&number];
    let held: Vec<&JmapMessage> =
        account.messages.values().filter(|message| message.folders.contains(&number)).collect();
    let unread = held.iter().filter(|message| !message.keywords.contains("$seen")).count();
    let all = json!({
        "id": folder_id(number),
        "name": folder.name,
        "parentId": folder.parent.map(folder_id),
        "role": folder.role,
        "sortOrder": number,
        "totalEmails": held.len(),
        "unreadEmails": unread,
        "isSubscribed": true,
    });
    selected(all, properties)
}

/// Keeps these properties, and the id.
fn selected(mut all: Value, properties: &[String]) -> Value {
    if let Some(members) = all.as_object_mut() {
        members.retain(|name, _| name == "id" || properties.iter().any(|property| property == name));
    }
    all
}
