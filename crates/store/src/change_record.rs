//! Audit entry and kept reply of a change, committed with it.
//!
//! A store with a [`ChangeRecord`] adds it to the first unit that it commits, so that a change, its audit entry and its
//! reply are stored together or not at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use domain::TenantId;
use jiff::Timestamp;

use crate::sql::idempotency::StoredReply;
use crate::{Scope, Store, StoreError, Unit};

#[derive(Debug, Clone)]
pub struct ChangeRecord {
    /// The tenant whose audit it belongs to; [`TenantId::SYSTEM`] for changes of the system itself.
    pub tenant: TenantId,
    pub at: Timestamp,
    /// JSON, without secrets. `None`: it was recorded before, as an intention.
    pub entry: Option<String>,
    pub reply: Option<StoredReply>,
}

/// A record, and whether it is committed.
#[derive(Debug)]
pub(crate) struct PendingRecord {
    record: ChangeRecord,
    is_written: AtomicBool,
}

impl PendingRecord {
    pub(crate) fn add_to(&self, unit: &mut Unit, dialect: crate::Dialect) {
        if self.is_written.load(Ordering::Acquire) {
            return;
        }
        if let Some(answer) = &self.record.reply {
            unit.put_reply(answer, self.record.at);
        }
        if let Some(entry) = &self.record.entry {
            unit.audit(dialect, self.record.tenant, self.record.at, entry);
        }
    }

    pub(crate) fn mark_written(&self) {
        self.is_written.store(true, Ordering::Release);
    }
}

impl Store {
    /// Returns the same store, which adds this record to the first unit that it commits.
    pub fn recording(&self, record: ChangeRecord) -> Self {
        let pending = PendingRecord { record, is_written: AtomicBool::new(false) };
        Self { pending: Some(Arc::new(pending)), ..self.clone() }
    }

    /// Commits the record alone, where nothing had to be changed.
    pub async fn record_now(&self) -> Result<(), StoreError> {
        self.seal(Scope::System, Unit::default(), false).commit().await.map(drop)
    }
}
