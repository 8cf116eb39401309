//! Compares folder listings, for providers that list their folders but not the changes.

use domain::connector::{KnownFolder, ListedFolder};

/// Returns the folders that are new, renamed or have another role, and the ids of those that no longer exist.
pub fn diff_folders(known: &[KnownFolder], now: Vec<ListedFolder>) -> (Vec<ListedFolder>, Vec<String>) {
    let gone = known.iter().map(|known| &known.id).filter(|id| !now.iter().any(|folder| folder.id == **id));
    let gone = gone.cloned().collect();
    (now.into_iter().filter(|folder| !known.iter().any(|known| is_unchanged(known, folder))).collect(), gone)
}

fn is_unchanged(known: &KnownFolder, folder: &ListedFolder) -> bool {
    known.id == folder.id && known.name == folder.name && known.role == folder.role
}
