//! Fills in bytes that blob storage could not take when their email came in.

use std::sync::Arc;

use anyhow::Context;
use content::spool::Data;
use serde::Serialize;
use store::sql::blobs::BlobPlace;
use store::sql::mailboxes::Mailbox;
use store::{StoreError, TenantStore};

use crate::ingest::{Ingested, Message, Source};
use crate::{Engine, Progress};

/// Emails that are read back and stored again in one unit; few, for each may be as large as what is held in memory.
const EMAILS: u64 = 4;

#[derive(Debug, Clone, Default, Serialize)]
pub struct Repaired {
    /// Emails that are complete now.
    pub completed: u64,
    /// Emails that still lack an attachment, because blob storage is still away.
    pub incomplete: u64,
    /// Emails whose original was never stored: only their source has it.
    pub without_original: u64,
    /// What could not be read, each as a sentence.
    pub problems: Vec<String>,
}

impl Engine {
    /// Attachments that are missing are taken from the stored original; what is stored is not written again. An email
    /// without its original needs its message once more from where it came.
    pub async fn retry_blobs(
        &self,
        store: &TenantStore,
        mailbox: &Arc<Mailbox>,
        progress: &Progress,
    ) -> anyhow::Result<Repaired> {
        let mut repaired = Repaired::default();
        let mut after = None;
        loop {
            let found = store.list_incomplete_emails(mailbox.id, after, EMAILS).await?;
            let Some(last) = found.last() else { return Ok(repaired) };
            after = Some(last.id);
            let mut messages = Vec::new();
            for email in found {
                if !email.raw_is_stored {
                    repaired.without_original += 1;
                    continue;
                }
                // Removed meanwhile, it needs no repair.
                let Some(place) = store.find_blob(email.raw_sha256).await? else { continue };
                let raw = match self.read_data(store, place).await {
                    Ok(raw) => raw,
                    Err(e) => match e.downcast_ref::<StoreError>() {
                        // One that is damaged keeps no other from being repaired.
                        Some(damage @ (StoreError::Corrupt(_) | StoreError::BlobMissing(_))) => {
                            repaired.problems.push(damage.to_string());
                            continue;
                        }
                        _ => return Err(e),
                    },
                };
                messages.push(Message {
                    raw,
                    source: Source::Stored { message: email.provider_message_id },
                    received_at: Some(email.received_at),
                    origin: format!("email {}", email.id),
                });
            }
            if messages.is_empty() {
                continue;
            }
            let count = messages.len() as u64;
            let batch = self.prepare(mailbox.clone(), messages).await?;
            let Ingested { stored, incomplete, .. } = match self.commit(mailbox, batch).await {
                Ok(ingested) => ingested,
                Err(e) => match e.downcast_ref::<StoreError>() {
                    // Somebody else completes or removes them just now; what is left is found by the next run.
                    Some(StoreError::Precondition(_)) => {
                        repaired.incomplete += count;
                        continue;
                    }
                    _ => return Err(e),
                },
            };
            repaired.completed += stored.saturating_sub(incomplete);
            repaired.incomplete += incomplete;
            progress.add_items(stored);
        }
    }

    /// In memory, or in the spool if it is too large for that.
    async fn read_data(&self, store: &TenantStore, place: BlobPlace) -> anyhow::Result<Data> {
        if place.size_bytes <= self.spool.message_bytes as u64 {
            return Ok(self.read_blob(store, place).await?.into());
        }
        let writer = self.spool.create().context("making a file in the spool of the data folder")?;
        Ok(Data::Spooled(self.blobs.read_to(&place, writer).await?.finish()))
    }
}
