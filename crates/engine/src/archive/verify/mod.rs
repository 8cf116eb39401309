//! Verifies the integrity of what is stored: rows, text index, packs, and with `deep` every byte.

mod packs;

use domain::MailboxId;
use serde::Serialize;
use store::TenantStore;
use store::sql::verify::{RowDifference, TenantTotals};

use crate::{Engine, Progress};

#[derive(Debug, Clone, Default, Serialize)]
pub struct VerifyReport {
    pub totals: TenantTotals,
    pub differences: Vec<RowDifference>,
    /// Each pack that is not as it was written.
    pub packs: Vec<DamagedPack>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DamagedPack {
    pub object_key: String,
    pub damage: Damage,
    /// How many of its blobs cannot be read, as far as is known without reading them.
    pub blobs: u64,
    /// How many emails have their original or an attachment among them.
    pub emails: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Damage {
    Missing,
    OtherSize { written_bytes: u64, found_bytes: u64 },
    OtherBytes,
}

impl Damage {
    fn name(self) -> &'static str {
        match self {
            Self::Missing => "packs are missing from blob storage",
            Self::OtherSize { .. } => "packs have another size in blob storage than was written",
            Self::OtherBytes => "packs have blobs that do not match their hash",
        }
    }
}

impl std::fmt::Display for DamagedPack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { object_key, damage, blobs, emails } = self;
        match damage {
            Damage::Missing => write!(f, "{object_key} is missing")?,
            Damage::OtherSize { written_bytes, found_bytes } => {
                write!(f, "{object_key} has {found_bytes} bytes instead of {written_bytes}")?;
            }
            Damage::OtherBytes => write!(f, "{object_key} has other bytes than were written")?,
        }
        write!(f, ": {blobs} blobs of {emails} emails cannot be read; put this object back from a backup")
    }
}

impl Engine {
    /// Verifies one mailbox or the whole tenant; packs are the tenant's either way.
    pub async fn verify(
        &self,
        store: &TenantStore,
        mailbox: Option<MailboxId>,
        deep: bool,
        progress: &Progress,
    ) -> anyhow::Result<VerifyReport> {
        let totals = store.totals().await?;
        progress.set_total(if deep { totals.blobs } else { 0 });
        let mut differences = store.verify_rows(mailbox).await?;
        let packs = self.verify_packs(store, deep, progress).await?;
        for pack in &packs {
            count(&mut differences, pack.damage.name(), &pack.object_key);
        }
        Ok(VerifyReport { totals, differences, packs })
    }
}

/// Counts a difference; the first of a kind is the example.
fn count(differences: &mut Vec<RowDifference>, what: &str, example: &str) {
    match differences.iter_mut().find(|difference| difference.what == what) {
        Some(difference) => difference.count += 1,
        None => differences.push(RowDifference { what: what.to_owned(), count: 1, example: example.to_owned() }),
    }
}
