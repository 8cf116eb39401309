//! Compares folder listings, for providers that list their folders but not the changes.

use domain::connector::{KnownFolder, ListedFolder};

/// Returns the folders that are new, renamed, back or have another role, and the ids of those that are missing.
pub fn diff_folders(known: &[KnownFolder], now: Vec<ListedFolder>) -> (Vec<ListedFolder>, Vec<String>) {
    let missing = known.iter().map(|known| &known.id).filter(|id| !now.iter().any(|folder| folder.id == **id));
    let missing = missing.cloned().collect();
    (now.into_iter().filter(|folder| !known.iter().any(|known| is_unchanged(known, folder))).collect(), missing)
}

fn is_unchanged(known: &KnownFolder, folder: &ListedFolder) -> bool {
    known.id == folder.id && known.name == folder.name && known.role == folder.role && known.missing_since.is_none()
}
