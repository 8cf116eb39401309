//! The history of a mailbox: records of changes, and how the API shows them.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::account::GmailAccount;
use super::labels::LabelId;
use crate::mail::rng::Rng;

/// The number of records kept; history ids before them have expired.
const MAX_HISTORY_RECORDS: usize = 100_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HistoryChange {
    Added,
    Deleted,
    Labelled { added: Vec<LabelId>, removed: Vec<LabelId> },
}

#[derive(Debug)]
pub struct HistoryRecord {
    pub id: u64,
    pub message: u64,
    pub thread: u64,
    /// The message's labels after the change.
    pub labels: Vec<LabelId>,
    pub change: HistoryChange,
}

#[derive(Debug)]
pub struct History {
    last: u64,
    /// History ids before this one have expired.
    oldest: u64,
    records: VecDeque<HistoryRecord>,
}

/// A query of the history.
#[derive(Debug, Default)]
pub struct HistoryQuery {
    pub start: u64,
    /// The last record of the previous page.
    pub after: Option<u64>,
    pub limit: usize,
    /// Empty: all types.
    pub types: Vec<String>,
    pub label: Option<LabelId>,
}

impl HistoryQuery {
    fn includes(&self, history_type: &str) -> bool {
        self.types.is_empty() || self.types.iter().any(|wanted| wanted == history_type)
    }
}

/// The start id has expired, or never belonged to this mailbox.
#[derive(Debug, PartialEq, Eq)]
pub struct HistoryExpired;

impl History {
    pub fn new(first: u64) -> Self {
        Self { last: first, oldest: first, records: VecDeque::new() }
    }

    pub fn last(&self) -> u64 {
        self.last
    }

    /// Appends a record and returns its id. Ids grow with gaps.
    pub fn record(
        &mut self,
        rng: &mut Rng,
        message: u64,
        thread: u64,
        labels: Vec<LabelId>,
        change: HistoryChange,
    ) -> u64 {
        self.last += 1 + rng.below(40) as u64;
        if self.records.len() == MAX_HISTORY_RECORDS
            && let Some(gone) = self.records.pop_front()
        {
            self.oldest = gone.id;
        }
        self.records.push_back(HistoryRecord { id: self.last, message, thread, labels, change });
        self.last
    }

    /// Drops all records and expires every history id up to now.
    pub fn expire(&mut self, rng: &mut Rng) {
        self.last += 1 + rng.below(40) as u64;
        self.drop_records();
    }

    /// Drops all records; the current history id stays valid.
    pub fn drop_records(&mut self) {
        self.oldest = self.last;
        // Replaced instead of cleared, so that thousands of filled mailboxes do not keep the capacity.
        self.records = VecDeque::new();
    }

    fn after(&self, id: u64) -> impl Iterator<Item = &HistoryRecord> {
        let skipped = self.records.partition_point(|record| record.id <= id);
        self.records.range(skipped..)
    }
}

impl GmailAccount {
    /// Returns a page of records, and the id of its last record if there are more.
    pub fn history(&self, query: &HistoryQuery) -> Result<(Vec<Value>, Option<u64>), HistoryExpired> {
        if query.start < self.history.oldest || query.start > self.history.last {
            return Err(HistoryExpired);
        }
        let mut records = Vec::new();
        let mut last = None;
        for record in self.history.after(query.after.unwrap_or(query.start)) {
            let Some(shown) = self.show_record(record, query) else { continue };
            if records.len() == query.limit {
                return Ok((records, last));
            }
            records.push(shown);
            last = Some(record.id);
        }
        Ok((records, None))
    }

    /// Returns the labels of the last changed message after that change.
    pub fn last_labels(&self) -> Vec<LabelId> {
        self.history.records.back().map(|record| record.labels.clone()).unwrap_or_default()
    }

    fn show_record(&self, record: &HistoryRecord, query: &HistoryQuery) -> Option<Value> {
        let mut message = json!({"id": self.id(record.message), "threadId": self.id(record.thread)});
        if !record.labels.is_empty() {
            message["labelIds"] = names(&record.labels);
        }
        let mut shown = json!({"id": record.id.to_string(), "messages": [message]});
        let mut concerned = record.labels.clone();
        let mut is_included = false;
        match &record.change {
            HistoryChange::Added if query.includes("messageAdded") => {
                shown["messagesAdded"] = json!([{"message": message}]);
                is_included = true;
            }
            HistoryChange::Deleted if query.includes("messageDeleted") => {
                shown["messagesDeleted"] = json!([{"message": message}]);
                is_included = true;
            }
            HistoryChange::Labelled { added, removed } => {
                for (labels, kind, field) in
                    [(added, "labelAdded", "labelsAdded"), (removed, "labelRemoved", "labelsRemoved")]
                {
                    if !labels.is_empty() && query.includes(kind) {
                        shown[field] = json!([{"message": message, "labelIds": names(labels)}]);
                        concerned.extend(labels);
                        is_included = true;
                    }
                }
            }
            HistoryChange::Added | HistoryChange::Deleted => {}
        }
        (is_included && query.label.is_none_or(|label| concerned.contains(&label))).then_some(shown)
    }
}

pub fn names(labels: &[LabelId]) -> Value {
    labels.iter().map(ToString::to_string).collect()
}
