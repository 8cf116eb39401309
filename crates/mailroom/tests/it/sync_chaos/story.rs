//! The events of a tenant, read from the first to the last as a subscriber would: they must lead to what is there now.

use std::collections::{BTreeMap, BTreeSet};

use domain::TenantId;
use serde_json::Value;
use store::Store;
use store::sql::events::Event;

use super::compare::Present;
use crate::place::block_on;

/// What a subscriber knows of an email; what nobody has told is unknown.
#[derive(Debug, Default)]
struct Email {
    is_live: bool,
    folders: Option<BTreeSet<String>>,
    flags: Option<BTreeSet<String>>,
}

#[derive(Debug, Default)]
pub struct Story {
    emails: BTreeMap<String, Email>,
    last: u64,
    pub odd: Vec<String>,
}

const PAGE: u64 = 500;

pub fn read(store: &Store, tenant: TenantId) -> Story {
    let mut story = Story::default();
    loop {
        let events = block_on(store.tenant(tenant).list_events(story.last, PAGE)).unwrap();
        if events.is_empty() {
            return story;
        }
        events.iter().for_each(|event| story.hear(event));
    }
}

impl Story {
    pub fn events(&self) -> u64 {
        self.last
    }

    fn hear(&mut self, event: &Event) {
        if event.seq != self.last + 1 {
            self.odd.push(format!("after {} comes {}", self.last, event.seq));
        }
        self.last = event.seq;
        let Some(id) = event.email_id else { return };
        let is_known = self.emails.contains_key(&id.to_string());
        let email = self.emails.entry(id.to_string()).or_default();
        let (from, to) = (names(&event.data["from"]), names(&event.data["to"]));
        let follows = |known: &Option<BTreeSet<String>>| known.is_none() || *known == from;
        let is_right = match event.kind.as_str() {
            "email.received" => !is_known,
            "email.restored" => is_known && !email.is_live,
            "email.deleted" | "email.moved" => email.is_live && follows(&email.folders),
            "email.flags_changed" => email.is_live && follows(&email.flags),
            "email.updated" => is_known,
            _ => false,
        };
        if !is_right {
            self.odd.push(format!("{event:?} of {email:?}"));
        }
        match event.kind.as_str() {
            "email.received" => email.is_live = true,
            "email.moved" => email.folders = to,
            "email.flags_changed" => email.flags = to,
            "email.restored" => *email = Email { is_live: true, folders: to, flags: None },
            "email.deleted" => *email = Email::default(),
            _ => {}
        }
    }

    /// In what the end of the story is not what is there.
    pub fn differences(&self, present: &Present) -> Vec<String> {
        let mut differences = self.odd.clone();
        let live = self.emails.iter().filter(|(_, email)| email.is_live);
        for (id, email) in live.clone() {
            let Some((folders, flags)) = present.get(id) else {
                differences.push(format!("{id} is told of, but not there"));
                continue;
            };
            let is_so = |told: &Option<BTreeSet<String>>, is: &BTreeSet<String>| told.as_ref().is_none_or(|t| t == is);
            if !is_so(&email.folders, folders) || !is_so(&email.flags, flags) {
                differences.push(format!("{id} is told to be {email:?}, but is {folders:?} {flags:?}"));
            }
        }
        let told: BTreeSet<&String> = live.map(|(id, _)| id).collect();
        let silent = present.keys().filter(|id| !told.contains(id));
        differences.extend(silent.map(|id| format!("{id} is there, but not told of")));
        differences
    }
}

fn names(list: &Value) -> Option<BTreeSet<String>> {
    let text = |name: &Value| name.as_str().unwrap().to_owned();
    Some(list.as_array()?.iter().map(text).collect())
}
