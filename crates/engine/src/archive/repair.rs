//! Completes emails whose bytes blob storage could not take when they came in.

use std::sync::Arc;

use anyhow::Context;
use content::spool::SpoolableBytes;
use domain::{Clock, Lane};
use jobs::{Job, new_job};
use serde::{Deserialize, Serialize};
use store::blobs::BlobLocation;
use store::sql::jobs::{NewJob, OnConflict, StartTime, UniqueKey};
use store::sql::mailboxes::Mailbox;
use store::{StoreError, TenantStore};

use crate::archive::ingest::{IncomingMessage, IngestReport, MessageSource};
use crate::{Engine, Progress};

/// Emails per unit; few, because each may be as large as what is held in memory.
const EMAILS_PER_UNIT: u64 = 4;

#[derive(Debug, Clone, Default, Serialize)]
pub struct RepairReport {
    /// Emails that are complete now.
    pub completed: u64,
    /// Emails that still lack an attachment, because blob storage is still unavailable.
    pub incomplete: u64,
    /// Emails whose original was never stored: only their source has it.
    pub without_original: u64,
    /// Damage that was found, each as a sentence.
    pub problems: Vec<String>,
}

/// Completes the emails of its tenant that lack bytes, once blob storage takes some; as a job of the system, requests that
/// for each tenant.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RetryBlobs {}

impl Job for RetryBlobs {
    const KIND: &'static str = "retry_blobs";
    const LANE: Lane = Lane::Low;
}

impl RetryBlobs {
    /// Requests it; one per tenant is live at a time, so nothing is requested twice from a provider.
    pub fn request(clock: &dyn Clock, when: StartTime) -> Result<NewJob, serde_json::Error> {
        let job = new_job(&Self {}, clock, None)?;
        let unique = Some(UniqueKey { key: Self::KIND.to_owned(), policy: OnConflict::Merge });
        Ok(NewJob { unique, when, ..job })
    }
}

impl Engine {
    /// Stores missing attachments from the stored originals; what is stored is not written again. An email without its
    /// original needs its message once more from its source.
    pub async fn retry_blobs(
        &self,
        store: &TenantStore,
        mailbox: &Arc<Mailbox>,
        progress: &Progress,
    ) -> anyhow::Result<RepairReport> {
        let without_original = store.count_emails_without_original(mailbox.id).await?;
        let mut report = RepairReport { without_original, ..RepairReport::default() };
        let mut after = None;
        loop {
            let found = store.list_incomplete_emails(mailbox.id, after, EMAILS_PER_UNIT).await?;
            let Some(last) = found.last() else { return Ok(report) };
            after = Some(last.id);
            let mut messages = Vec::new();
            for email in found {
                // It was removed meanwhile.
                let Some(place) = store.find_blob(email.raw_sha256).await? else { continue };
                let raw = match self.read_data(store, place).await {
                    Ok(raw) => raw,
                    Err(e) => match e.downcast_ref::<StoreError>() {
                        // A damaged one does not keep others from being repaired.
                        Some(damage @ (StoreError::Corrupt(_) | StoreError::BlobMissing(_))) => {
                            report.problems.push(damage.to_string());
                            continue;
                        }
                        _ => return Err(e),
                    },
                };
                messages.push(IncomingMessage {
                    raw,
                    source: MessageSource::Stored { message: email.provider_message_id },
                    received_at: Some(email.received_at),
                    origin: format!("email {}", email.id),
                });
            }
            if messages.is_empty() {
                continue;
            }
            let count = messages.len() as u64;
            let batch = self.prepare(mailbox.clone(), messages).await?;
            let IngestReport { stored, incomplete, .. } = match self.commit(mailbox, batch).await {
                Ok(ingested) => ingested,
                Err(e) => match e.downcast_ref::<StoreError>() {
                    // They are completed or removed concurrently; the next run finds what is left.
                    Some(StoreError::Precondition(_)) => {
                        report.incomplete += count;
                        continue;
                    }
                    _ => return Err(e),
                },
            };
            report.completed += stored.saturating_sub(incomplete);
            report.incomplete += incomplete;
            progress.add_items(stored);
        }
    }

    /// Reads a blob into memory, or into the spool if it is too large.
    pub(crate) async fn read_data(&self, store: &TenantStore, place: BlobLocation) -> anyhow::Result<SpoolableBytes> {
        if place.size_bytes <= self.spool.message_bytes as u64 {
            return Ok(self.read_blob(store, place).await?.into());
        }
        let writer = self.spool.create().context("making a file in the spool of the data folder")?;
        Ok(SpoolableBytes::Spooled(self.blobs.read_to(&place, writer).await?.finish()))
    }
}
