//! What is written down beside a change: who made it, and what was answered.
//!
//! A store that was given a [`Record`] adds it to the first unit that it commits, so a change, its entry in the audit and its
//! answer are there together or not at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use domain::{Sha256, TenantId};
use jiff::{SignedDuration, Timestamp};

use crate::sql::secrets::SealedSecret;
use crate::{Committed, Scope, Store, StoreError, Unit};

/// For how long an answer is kept.
pub const KEEP_ANSWERS: SignedDuration = SignedDuration::from_hours(24);

#[derive(Debug, Clone)]
pub struct Record {
    /// In whose audit it stands; [`TenantId::SYSTEM`] for what is nobody's.
    pub tenant: TenantId,
    pub at: Timestamp,
    /// JSON, without secrets. Nothing: it was written down before, as an intention.
    pub entry: Option<String>,
    pub answer: Option<KeptAnswer>,
}

/// What a request with an idempotency key is answered, now and when it comes again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptAnswer {
    /// Whose key it is.
    pub tenant: TenantId,
    pub key_hash: Sha256,
    pub request_hash: Sha256,
    pub status: u16,
    /// Beside those that every answer has.
    pub headers: Vec<(String, String)>,
    pub body: Body,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    Plain(String),
    /// It shows a secret.
    Sealed(SealedSecret),
}

/// A record and whether it is written.
#[derive(Debug)]
pub(crate) struct Pending {
    record: Record,
    is_written: AtomicBool,
}

impl Pending {
    pub(crate) fn add_to(&self, unit: &mut Unit, dialect: crate::Dialect) {
        if self.is_written.load(Ordering::Acquire) {
            return;
        }
        if let Some(answer) = &self.record.answer {
            unit.keep_answer(answer, self.record.at);
        }
        if let Some(entry) = &self.record.entry {
            unit.audit(dialect, self.record.tenant, self.record.at, entry);
        }
    }

    pub(crate) fn is_written(&self) {
        self.is_written.store(true, Ordering::Release);
    }
}

impl Store {
    /// The same store, which writes this down with the first thing that it commits.
    pub fn recording(&self, record: Record) -> Self {
        let pending = Pending { record, is_written: AtomicBool::new(false) };
        Self { pending: Some(Arc::new(pending)), ..self.clone() }
    }

    /// Where nothing had to be changed, what was asked and answered is written down all the same.
    pub async fn record_now(&self) -> Result<(), StoreError> {
        let Some(pending) = &self.pending else { return Ok(()) };
        let mut unit = Unit::default();
        pending.add_to(&mut unit, self.dialect());
        if unit.is_empty() {
            return Ok(());
        }
        self.commit(Scope::System, Arc::new(unit)).await?;
        pending.is_written();
        Ok(())
    }

    /// A unit of the system's own, with what is to be recorded.
    pub(crate) async fn commit_recorded(&self, mut unit: Unit) -> Result<Committed, StoreError> {
        if let Some(pending) = &self.pending {
            pending.add_to(&mut unit, self.dialect());
        }
        let committed = self.commit(Scope::System, Arc::new(unit)).await?;
        if let Some(pending) = &self.pending {
            pending.is_written();
        }
        Ok(committed)
    }
}
