//! What happened to the messages of a mailbox, and how it is told.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::account::Account;
use super::labels::LabelId;
use crate::mail::rng::Rng;

/// The records that are kept: an id from before them has expired.
const KEPT: usize = 100_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Added,
    Deleted,
    Labelled { added: Vec<LabelId>, removed: Vec<LabelId> },
}

#[derive(Debug)]
pub struct Record {
    pub id: u64,
    pub message: u64,
    pub thread: u64,
    /// As they were right after.
    pub labels: Vec<LabelId>,
    pub change: Change,
}

#[derive(Debug)]
pub struct History {
    last: u64,
    /// Ids from before this one are not known any more.
    oldest: u64,
    records: VecDeque<Record>,
}

/// What is asked of the history.
#[derive(Debug, Default)]
pub struct Asked {
    pub start: u64,
    /// The last record that an earlier page told.
    pub after: Option<u64>,
    pub limit: usize,
    /// Empty: all of them.
    pub types: Vec<String>,
    pub label: Option<LabelId>,
}

/// The id has expired, or never was one of this mailbox.
#[derive(Debug, PartialEq, Eq)]
pub struct Expired;

impl History {
    pub fn new(first: u64) -> Self {
        Self { last: first, oldest: first, records: VecDeque::new() }
    }

    pub fn last(&self) -> u64 {
        self.last
    }

    /// Ids only grow, with gaps.
    pub fn record(&mut self, rng: &mut Rng, message: u64, thread: u64, labels: Vec<LabelId>, change: Change) -> u64 {
        self.last += 1 + rng.below(40) as u64;
        if self.records.len() == KEPT
            && let Some(gone) = self.records.pop_front()
        {
            self.oldest = gone.id;
        }
        self.records.push_back(Record { id: self.last, message, thread, labels, change });
        self.last
    }

    /// What was so far is not told any more, and every id from before now has expired.
    pub fn expire(&mut self, rng: &mut Rng) {
        self.last += 1 + rng.below(40) as u64;
        self.forget();
    }

    /// What was so far is not told any more; the present id is still good.
    pub fn forget(&mut self) {
        self.oldest = self.last;
        // Not cleared: thousands of mailboxes that were just filled would keep the room for it.
        self.records = VecDeque::new();
    }

    fn after(&self, id: u64) -> impl Iterator<Item = &Record> {
        let skipped = self.records.partition_point(|record| record.id <= id);
        self.records.range(skipped..)
    }
}

impl Account {
    /// A page of records, and the id of its last one if there are more.
    pub fn history(&self, asked: &Asked) -> Result<(Vec<Value>, Option<u64>), Expired> {
        if asked.start < self.history.oldest || asked.start > self.history.last {
            return Err(Expired);
        }
        let mut told = Vec::new();
        let mut last = None;
        for record in self.history.after(asked.after.unwrap_or(asked.start)) {
            let Some(shown) = self.show_record(record, asked) else { continue };
            if told.len() == asked.limit {
                return Ok((told, last));
            }
            told.push(shown);
            last = Some(record.id);
        }
        Ok((told, None))
    }

    /// Of the message that changed last, right after.
    pub fn last_labels(&self) -> Vec<LabelId> {
        self.history.records.back().map(|record| record.labels.clone()).unwrap_or_default()
    }

    fn show_record(&self, record: &Record, asked: &Asked) -> Option<Value> {
        let is_wanted = |name: &str| asked.types.is_empty() || asked.types.iter().any(|wanted| wanted == name);
        let mut message = json!({"id": self.id(record.message), "threadId": self.id(record.thread)});
        if !record.labels.is_empty() {
            message["labelIds"] = names(&record.labels);
        }
        let mut shown = json!({"id": record.id.to_string(), "messages": [message]});
        let mut concerned = record.labels.clone();
        let mut is_told = false;
        match &record.change {
            Change::Added if is_wanted("messageAdded") => {
                shown["messagesAdded"] = json!([{"message": message}]);
                is_told = true;
            }
            Change::Deleted if is_wanted("messageDeleted") => {
                shown["messagesDeleted"] = json!([{"message": message}]);
                is_told = true;
            }
            Change::Labelled { added, removed } => {
                for (labels, kind, field) in
                    [(added, "labelAdded", "labelsAdded"), (removed, "labelRemoved", "labelsRemoved")]
                {
                    if !labels.is_empty() && is_wanted(kind) {
                        shown[field] = json!([{"message": message, "labelIds": names(labels)}]);
                        concerned.extend(labels);
                        is_told = true;
                    }
                }
            }
            Change::Added | Change::Deleted => {}
        }
        (is_told && asked.label.is_none_or(|label| concerned.contains(&label))).then_some(shown)
    }
}

pub fn names(labels: &[LabelId]) -> Value {
    labels.iter().map(ToString::to_string).collect()
}
