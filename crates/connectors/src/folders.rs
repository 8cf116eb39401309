//! What has become of folders, for providers that only say which there are.

use domain::connector::{KnownFolder, SeenFolder};

/// Those that are new or are called something else, and those that are no more.
pub fn compare(known: &[KnownFolder], now: Vec<SeenFolder>) -> (Vec<SeenFolder>, Vec<String>) {
    let is_gone = |known: &&KnownFolder| !now.iter().any(|folder| folder.id == known.id);
    let gone = known.iter().filter(is_gone).map(|known| known.id.clone()).collect();
    let is_known = |folder: &SeenFolder| {
        known.iter().any(|known| known.id == folder.id && known.name == folder.name && known.role == folder.role)
    };
    (now.into_iter().filter(|folder| !is_known(folder)).collect(), gone)
}
