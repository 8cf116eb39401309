//! Gmail labels, system and user.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};

/// The labels that every mailbox has, in the order of [`LabelId`]'s constants.
const SYSTEM: [&str; 14] = [
    "INBOX",
    "SENT",
    "DRAFT",
    "SPAM",
    "TRASH",
    "UNREAD",
    "STARRED",
    "IMPORTANT",
    "CHAT",
    "CATEGORY_PERSONAL",
    "CATEGORY_SOCIAL",
    "CATEGORY_PROMOTIONS",
    "CATEGORY_UPDATES",
    "CATEGORY_FORUMS",
];

/// A label's id. Numbers below 14 are system labels, others are `Label_14` and so on; ids are never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LabelId(u32);

impl LabelId {
    pub const INBOX: Self = Self(0);
    pub const SENT: Self = Self(1);
    pub const DRAFT: Self = Self(2);
    pub const SPAM: Self = Self(3);
    pub const TRASH: Self = Self(4);
    pub const UNREAD: Self = Self(5);
    pub const STARRED: Self = Self(6);
    pub const IMPORTANT: Self = Self(7);
    pub const CHAT: Self = Self(8);
    pub const CATEGORIES: [Self; 5] = [Self(9), Self(10), Self(11), Self(12), Self(13)];

    pub fn parse(text: &str) -> Option<Self> {
        if let Some(at) = SYSTEM.iter().position(|name| *name == text) {
            return Some(Self(at as u32));
        }
        let number = text.strip_prefix("Label_")?.parse().ok()?;
        (number as usize >= SYSTEM.len()).then_some(Self(number))
    }

    pub fn is_system(self) -> bool {
        (self.0 as usize) < SYSTEM.len()
    }
}

impl fmt::Display for LabelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match SYSTEM.get(self.0 as usize) {
            Some(name) => f.write_str(name),
            None => write!(f, "Label_{}", self.0),
        }
    }
}

/// The labels of one mailbox.
#[derive(Debug)]
pub struct Labels {
    next: u32,
    /// User labels with their names.
    own: BTreeMap<LabelId, String>,
}

impl Default for Labels {
    fn default() -> Self {
        Self { next: SYSTEM.len() as u32, own: BTreeMap::new() }
    }
}

impl Labels {
    pub fn has(&self, label: LabelId) -> bool {
        label.is_system() || self.own.contains_key(&label)
    }

    /// Finds a label by id or name.
    pub fn find(&self, text: &str) -> Option<LabelId> {
        if let Some(id) = LabelId::parse(text).filter(|id| self.has(*id)) {
            return Some(id);
        }
        let named = self.own.iter().find(|(_, name)| name.eq_ignore_ascii_case(text)).map(|(id, _)| *id);
        named.or_else(|| LabelId::parse(&text.to_uppercase()).filter(|id| id.is_system()))
    }

    pub fn own(&self) -> impl Iterator<Item = LabelId> {
        self.own.keys().copied()
    }

    /// Creates a label. Returns `None` if the name is in use.
    pub fn create(&mut self, name: String) -> Option<LabelId> {
        if self.find(&name).is_some() {
            return None;
        }
        let id = LabelId(self.next);
        self.next += 1;
        self.own.insert(id, name);
        Some(id)
    }

    pub fn rename(&mut self, label: LabelId, name: String) -> bool {
        self.own.get_mut(&label).map(|old| *old = name).is_some()
    }

    pub fn delete(&mut self, label: LabelId) -> bool {
        self.own.remove(&label).is_some()
    }

    pub fn ids(&self) -> impl Iterator<Item = LabelId> {
        (0..SYSTEM.len() as u32).map(LabelId).chain(self.own())
    }

    pub fn name(&self, label: LabelId) -> String {
        self.own.get(&label).cloned().unwrap_or_else(|| label.to_string())
    }

    /// Renders a label as the list shows it: without counts.
    pub fn show(&self, label: LabelId) -> Value {
        let kind = if label.is_system() { "system" } else { "user" };
        let mut shown = json!({"id": label.to_string(), "name": self.name(label), "type": kind});
        if !label.is_system() {
            shown["labelListVisibility"] = json!("labelShow");
            shown["messageListVisibility"] = json!("show");
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deleted_label_id_is_never_reused() {
        let mut labels = Labels::default();
        let travel = labels.create("Travel".into()).unwrap();

        assert_eq!(travel.to_string(), "Label_14");
        assert_eq!(
            (labels.find("Label_14"), labels.find("travel"), labels.find("Inbox")),
            (Some(travel), Some(travel), Some(LabelId::INBOX))
        );
        assert_eq!(labels.create("travel".into()), None);
        assert!(labels.delete(travel) && !labels.delete(LabelId::INBOX));
        assert_eq!(labels.create("Travel".into()).unwrap().to_string(), "Label_15");
        assert_eq!(labels.find("Label_14"), None);
    }
}
