//! Whether what is stored is whole: rows, text index, packs, and with `deep` every byte.

use domain::MailboxId;
use serde::Serialize;
use store::sql::verify::{Difference, Totals};
use store::{StoreError, TenantStore};

use crate::{Engine, Progress};

/// Blobs are read this many at a time.
const BLOBS: u64 = 500;

#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    pub totals: Totals,
    pub differences: Vec<Difference>,
}

impl Engine {
    /// Of one mailbox or of the whole tenant; bytes are the tenant's either way.
    pub async fn verify(
        &self,
        store: &TenantStore,
        mailbox: Option<MailboxId>,
        deep: bool,
        progress: &Progress,
    ) -> anyhow::Result<Report> {
        let totals = store.totals().await?;
        progress.set_total(if deep { totals.blobs } else { 0 });
        let mut differences = store.verify_rows(mailbox).await?;
        self.verify_packs(store, &mut differences).await?;
        if deep {
            self.verify_bytes(store, &mut differences, progress).await?;
        }
        Ok(Report { totals, differences })
    }

    async fn verify_packs(&self, store: &TenantStore, differences: &mut Vec<Difference>) -> anyhow::Result<()> {
        for pack in store.list_live_packs().await? {
            match self.blobs.object_size(&pack.object_key).await? {
                None => note(differences, "packs are missing from blob storage", pack.object_key),
                found if found != pack.size_bytes => {
                    note(differences, "packs have another size in blob storage than was written", pack.object_key);
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    async fn verify_bytes(
        &self,
        store: &TenantStore,
        differences: &mut Vec<Difference>,
        progress: &Progress,
    ) -> anyhow::Result<()> {
        let mut last = None;
        loop {
            let places = store.list_blobs(last, BLOBS).await?;
            let Some(end) = places.last() else { return Ok(()) };
            last = Some(end.sha256);
            for place in &places {
                match self.blobs.read(place).await {
                    Ok(_) => {}
                    Err(StoreError::BlobMissing(_)) => {
                        note(differences, "blobs cannot be read because their object is missing", place.sha256.hex());
                    }
                    Err(StoreError::Corrupt(_)) => {
                        note(differences, "blobs do not match their hash", place.sha256.hex());
                    }
                    Err(e) => return Err(e.into()),
                }
                progress.add_done(1);
                progress.add_items(1);
            }
        }
    }
}

/// Counts a difference; the first of a kind is the example.
fn note(differences: &mut Vec<Difference>, what: &str, example: String) {
    match differences.iter_mut().find(|difference| difference.what == what) {
        Some(difference) => difference.count += 1,
        None => differences.push(Difference { what: what.to_owned(), count: 1, example }),
    }
}
