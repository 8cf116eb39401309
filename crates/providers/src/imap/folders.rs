//! Matches the folders that a server lists with those that we know. Names change and UIDVALIDITY values repeat, so neither
//! is an id.

use std::collections::HashMap;

use domain::Sha256;
use domain::connector::{KnownFolder, ListedFolder};

use super::client::{FolderStatus, ImapFolder, WireName};

/// A UIDVALIDITY of at least this was derived from a time; smaller ones are common to many folders and prove nothing.
const MIN_UNIQUE_UID_VALIDITY: u32 = 1_000_000;

/// A listed folder with our id of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatchedFolder {
    pub id: String,
    pub wire: WireName,
    pub seen: ListedFolder,
    pub status: FolderStatus,
    /// Whether its mail is wanted; of a new folder that is assumed.
    pub is_in_scope: bool,
    /// It is new, renamed, back, or was replaced under its name.
    pub is_changed: bool,
}

/// The result of a match.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FolderMatches {
    pub folders: Vec<MatchedFolder>,
    /// Ids of known folders that are not listed.
    pub missing: Vec<String>,
}

impl FolderMatches {
    pub fn find(&self, id: &str) -> Option<&MatchedFolder> {
        self.folders.iter().find(|folder| folder.id == id)
    }
}

/// Matches listed folders with known ones: by server id, by name and UIDVALIDITY, by UIDVALIDITY alone (renamed), by name
/// alone (replaced).
pub fn match_folders(listed: Vec<ImapFolder>, known: &[KnownFolder]) -> FolderMatches {
    let listed: Vec<ImapFolder> = listed.into_iter().filter(ImapFolder::is_selectable).collect();
    let mut pairing = FolderPairing { of: vec![None; listed.len()], is_paired: vec![false; known.len()] };
    pairing.pair_by(&listed, known, |folder, known| mailbox_id(folder).is_some_and(|id| id == known.id));
    pairing.pair_by(&listed, known, |folder, known| {
        folder.name == known.name && (validity(folder).is_none() || validity(folder) == known_validity(known))
    });
    pairing.pair_by_unique_validity(&listed, known);
    // Replaced by another folder of the same name.
    pairing.pair_by(&listed, known, |folder, known| folder.name == known.name);
    let missing = known.iter().zip(&pairing.is_paired).filter(|(_, is_paired)| !**is_paired);
    let missing = missing.map(|(known, _)| known.id.clone()).collect();
    let folders = listed.into_iter().zip(pairing.of);
    let folders = folders.map(|(folder, at)| matched_folder(folder, at.map(|at| &known[at]))).collect();
    FolderMatches { folders, missing }
}

/// Pairs of listed and known folders.
struct FolderPairing {
    /// Index of the known folder of each listed one.
    of: Vec<Option<usize>>,
    /// Whether each known folder has a listed one.
    is_paired: Vec<bool>,
}

impl FolderPairing {
    fn pair_by(
        &mut self,
        listed: &[ImapFolder],
        known: &[KnownFolder],
        is_same: impl Fn(&ImapFolder, &KnownFolder) -> bool,
    ) {
        for (folder, of) in listed.iter().zip(&mut self.of) {
            if of.is_none() {
                *of = (0..known.len()).find(|at| !self.is_paired[*at] && is_same(folder, &known[*at]));
                of.iter().for_each(|at| self.is_paired[*at] = true);
            }
        }
    }

    /// Pairs renamed folders: a UIDVALIDITY that exactly one known and one listed folder has.
    fn pair_by_unique_validity(&mut self, listed: &[ImapFolder], known: &[KnownFolder]) {
        let mut had: HashMap<u32, Vec<usize>> = HashMap::new();
        for (at, known) in known.iter().enumerate() {
            had.entry(known_validity(known).unwrap_or(0)).or_default().push(at);
        }
        let mut have: HashMap<u32, usize> = HashMap::new();
        for folder in listed {
            *have.entry(validity(folder).unwrap_or(0)).or_default() += 1;
        }
        for (folder, of) in listed.iter().zip(&mut self.of) {
            let Some(number) = validity(folder).filter(|number| *number >= MIN_UNIQUE_UID_VALIDITY) else { continue };
            if let (None, Some([at]), Some(1)) = (&of, had.get(&number).map(Vec::as_slice), have.get(&number))
                && !self.is_paired[*at]
            {
                self.is_paired[*at] = true;
                *of = Some(*at);
            }
        }
    }
}

fn matched_folder(folder: ImapFolder, known: Option<&KnownFolder>) -> MatchedFolder {
    let id = match known {
        Some(known) => known.id.clone(),
        None => mailbox_id(&folder).unwrap_or_else(|| new_id(&folder)),
    };
    let is_changed = known.is_none_or(|known| {
        known.name != folder.name
            || known.missing_since.is_some()
            || (validity(&folder).is_some() && validity(&folder) != known_validity(known))
    });
    let seen = ListedFolder {
        id: id.clone(),
        name: folder.name.clone(),
        role: folder.role(),
        delimiter: folder.delimiter.map(String::from),
        uid_validity: validity(&folder).map(u64::from).or(known.and_then(|known| known.uid_validity)),
    };
    let is_in_scope = known.is_none_or(|known| known.is_in_scope);
    MatchedFolder { id, wire: folder.wire, seen, status: folder.status.unwrap_or_default(), is_in_scope, is_changed }
}

/// Returns our id of a folder with a permanent MAILBOXID.
fn mailbox_id(folder: &ImapFolder) -> Option<String> {
    Some(format!("m-{}", folder.status.as_ref()?.mailbox_id.as_ref()?))
}

/// Returns an id that differs between any two present folders, and between a folder and a later one of the same name.
fn new_id(folder: &ImapFolder) -> String {
    let first = format!("{} {}", validity(folder).unwrap_or(0), folder.wire.to_text());
    format!("f-{}", &Sha256::of(first.as_bytes()).hex()[..20])
}

fn validity(folder: &ImapFolder) -> Option<u32> {
    folder.status.as_ref()?.uid_validity.filter(|number| *number > 0)
}

fn known_validity(known: &KnownFolder) -> Option<u32> {
    known.uid_validity.and_then(|number| u32::try_from(number).ok()).filter(|number| *number > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str, number: u32) -> ImapFolder {
        let status = FolderStatus { uid_validity: Some(number), ..FolderStatus::default() };
        ImapFolder {
            wire: WireName::new(name.as_bytes()),
            name: name.to_owned(),
            delimiter: Some('/'),
            attributes: Vec::new(),
            status: Some(status),
        }
    }

    fn known(matches: &FolderMatches) -> Vec<KnownFolder> {
        let known = matches.folders.iter().map(|folder| KnownFolder {
            id: folder.id.clone(),
            name: folder.seen.name.clone(),
            role: folder.seen.role,
            delimiter: folder.seen.delimiter.clone(),
            uid_validity: folder.seen.uid_validity,
            is_in_scope: true,
            missing_since: None,
        });
        known.collect()
    }

    fn folder_with_id(name: &str, number: u32, id: &str) -> ImapFolder {
        let mut folder = folder(name, number);
        folder.status.as_mut().unwrap().mailbox_id = Some(id.to_owned());
        folder
    }

    const A: u32 = 1_700_000_001;
    const B: u32 = 1_700_000_002;
    const C: u32 = 1_700_000_003;

    #[test]
    fn renamed_folder_keeps_its_id() {
        let first = match_folders(vec![folder("INBOX", A), folder("Work", B)], &[]);
        let then = match_folders(vec![folder("INBOX", A), folder("Old", B), folder("Work", C)], &known(&first));
        assert_eq!(then.find(&first.folders[1].id).unwrap().seen.name, "Old");
        assert!(then.folders[1].is_changed && then.folders[2].is_changed && !then.folders[0].is_changed);
        assert_ne!(then.folders[2].id, first.folders[1].id);
        assert!(then.missing.is_empty());
    }

    #[test]
    fn replaced_folder_keeps_its_id_and_is_changed() {
        let first = match_folders(vec![folder("Work", A)], &[]);
        let then = match_folders(vec![folder("Work", B)], &known(&first));
        assert_eq!(then.folders[0].id, first.folders[0].id);
        assert!(then.folders[0].is_changed && then.missing.is_empty());
    }

    #[test]
    fn common_uid_validity_does_not_identify_a_folder() {
        for number in [1, A] {
            let first = match_folders(vec![folder("One", number), folder("Two", number)], &[]);
            let then = match_folders(vec![folder("One", number), folder("Three", number)], &known(&first));
            assert_eq!(then.missing, [first.folders[1].id.clone()]);
            assert!(then.folders[1].is_changed && then.folders[1].id != first.folders[1].id);
        }
    }

    #[test]
    fn folders_without_uid_validity_are_matched_by_name() {
        let first = match_folders(vec![folder("INBOX", A), folder("Work", B)], &[]);
        let then = match_folders(vec![folder("INBOX", 0), folder("Work", 0)], &known(&first));
        assert_eq!(known(&then), known(&first));
        assert!(then.folders.iter().all(|folder| !folder.is_changed));
    }

    #[test]
    fn mailbox_id_identifies_a_folder() {
        let first = match_folders(vec![folder_with_id("One", 1, "x"), folder_with_id("Two", 1, "y")], &[]);
        let then = match_folders(vec![folder_with_id("Two", 1, "x"), folder_with_id("One", 1, "y")], &known(&first));
        assert_eq!(then.find("m-x").unwrap().seen.name, "Two");
        assert_eq!(then.find("m-y").unwrap().seen.name, "One");
    }
}
