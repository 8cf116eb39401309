//! Replays the events of a tenant as a subscriber does: they must lead to what is stored now.

use std::collections::{BTreeMap, BTreeSet};

use domain::TenantId;
use serde_json::Value;
use store::Store;
use store::sql::events::Event;

use super::compare::LiveEmails;
use crate::installation::block_on;

/// What a subscriber knows of an email; `None` is unknown.
#[derive(Debug, Default)]
struct ReplayedEmail {
    is_live: bool,
    folders: Option<BTreeSet<String>>,
    flags: Option<BTreeSet<String>>,
}

#[derive(Debug, Default)]
pub struct EventReplay {
    emails: BTreeMap<String, ReplayedEmail>,
    last: u64,
    contradictions: Vec<String>,
}

const EVENTS_PER_PAGE: u64 = 500;

pub fn replay(store: &Store, tenant: TenantId) -> EventReplay {
    let mut replay = EventReplay::default();
    loop {
        let events = block_on(store.tenant(tenant).list_events(replay.last, EVENTS_PER_PAGE)).unwrap();
        if events.is_empty() {
            return replay;
        }
        events.iter().for_each(|event| replay.apply(event));
    }
}

impl EventReplay {
    /// Returns the number of events.
    pub fn events(&self) -> u64 {
        self.last
    }

    fn apply(&mut self, event: &Event) {
        if event.seq != self.last + 1 {
            self.contradictions.push(format!("after {} comes {}", self.last, event.seq));
        }
        self.last = event.seq;
        let Some(id) = event.email_id else { return };
        let is_known = self.emails.contains_key(&id.to_string());
        let email = self.emails.entry(id.to_string()).or_default();
        let (from, to) = (names(&event.data["from"]), names(&event.data["to"]));
        let is_right = match event.kind.as_str() {
            "email.received" => !is_known,
            "email.restored" => is_known && !email.is_live,
            "email.deleted" | "email.moved" => email.is_live && (email.folders.is_none() || email.folders == from),
            "email.flags_changed" => email.is_live && (email.flags.is_none() || email.flags == from),
            "email.updated" => is_known,
            _ => false,
        };
        if !is_right {
            self.contradictions.push(format!("{event:?} of {email:?}"));
        }
        match event.kind.as_str() {
            "email.received" => email.is_live = true,
            "email.moved" => email.folders = to,
            "email.flags_changed" => email.flags = to,
            "email.restored" => *email = ReplayedEmail { is_live: true, folders: to, flags: None },
            "email.deleted" => *email = ReplayedEmail::default(),
            _ => {}
        }
    }

    /// Returns how the end of the replay differs from what is stored.
    pub fn differences(&self, stored: &LiveEmails) -> Vec<String> {
        let mut differences = self.contradictions.clone();
        let live = self.emails.iter().filter(|(_, email)| email.is_live);
        for (id, email) in live.clone() {
            let Some((folders, flags)) = stored.get(id) else {
                differences.push(format!("{id} is in the events, but not stored"));
                continue;
            };
            let is_same = email.folders.as_ref().is_none_or(|replayed| replayed == folders)
                && email.flags.as_ref().is_none_or(|replayed| replayed == flags);
            if !is_same {
                differences.push(format!("the events say that {id} is {email:?}, but it is {folders:?} {flags:?}"));
            }
        }
        let replayed: BTreeSet<&String> = live.map(|(id, _)| id).collect();
        let unknown = stored.keys().filter(|id| !replayed.contains(id));
        differences.extend(unknown.map(|id| format!("{id} is stored, but not in the events")));
        differences
    }
}

fn names(list: &Value) -> Option<BTreeSet<String>> {
    Some(list.as_array()?.iter().map(|name| name.as_str().unwrap().to_owned()).collect())
}
