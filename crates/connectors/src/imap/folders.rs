//! Which of the folders that a server lists is which of ours. Names change and numbers repeat, so neither is an id.

use std::collections::HashMap;

use domain::Sha256;
use domain::connector::{KnownFolder, SeenFolder};

use super::client::{Folder, FolderStatus, WireName};

/// A number that was once a time; smaller ones are the same for many folders of many servers and prove nothing.
const TELLING: u32 = 1_000_000;

/// A folder with the id under which we know it, or will.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ours {
    pub id: String,
    pub wire: WireName,
    pub seen: SeenFolder,
    pub status: FolderStatus,
    /// What is in it is wanted, as far as is known.
    pub is_in_scope: bool,
    /// New, renamed, or emptied and filled anew.
    pub is_news: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Matched {
    pub folders: Vec<Ours>,
    /// Ids of those that are no more.
    pub gone: Vec<String>,
}

impl Matched {
    pub fn find(&self, id: &str) -> Option<&Ours> {
        self.folders.iter().find(|folder| folder.id == id)
    }
}

pub fn matched(listed: Vec<Folder>, known: &[KnownFolder]) -> Matched {
    let listed: Vec<Folder> = listed.into_iter().filter(Folder::is_selectable).collect();
    let mut pairs = Pairs { of: vec![None; listed.len()], is_taken: vec![false; known.len()] };
    pairs.by(&listed, known, |folder, known| mailbox_id(folder).is_some_and(|id| id == known.id));
    pairs.by(&listed, known, |folder, known| {
        folder.name == known.name && (validity(folder).is_none() || validity(folder) == validity_of(known))
    });
    pairs.by_telling_numbers(&listed, known);
    // Emptied and filled anew, under the same name.
    pairs.by(&listed, known, |folder, known| folder.name == known.name);
    let gone = known.iter().zip(&pairs.is_taken).filter(|(_, is_taken)| !**is_taken);
    let gone = gone.map(|(known, _)| known.id.clone()).collect();
    let ours = listed.into_iter().zip(pairs.of).map(|(folder, at)| ours(folder, at.map(|at| &known[at]))).collect();
    Matched { folders: ours, gone }
}

/// Which known folder each listed one is.
struct Pairs {
    of: Vec<Option<usize>>,
    is_taken: Vec<bool>,
}

impl Pairs {
    fn by(&mut self, listed: &[Folder], known: &[KnownFolder], is_same: impl Fn(&Folder, &KnownFolder) -> bool) {
        for (folder, of) in listed.iter().zip(&mut self.of) {
            if of.is_none() {
                *of = (0..known.len()).find(|at| !self.is_taken[*at] && is_same(folder, &known[*at]));
                of.iter().for_each(|at| self.is_taken[*at] = true);
            }
        }
    }

    /// Renamed: a number that one folder had and one folder has, and no other.
    fn by_telling_numbers(&mut self, listed: &[Folder], known: &[KnownFolder]) {
        let mut had: HashMap<u32, Vec<usize>> = HashMap::new();
        for (at, known) in known.iter().enumerate() {
            had.entry(validity_of(known).unwrap_or(0)).or_default().push(at);
        }
        let mut have: HashMap<u32, usize> = HashMap::new();
        for folder in listed {
            *have.entry(validity(folder).unwrap_or(0)).or_default() += 1;
        }
        for (folder, of) in listed.iter().zip(&mut self.of) {
            let Some(number) = validity(folder).filter(|number| *number >= TELLING) else { continue };
            if let (None, Some([at]), Some(1)) = (&of, had.get(&number).map(Vec::as_slice), have.get(&number))
                && !self.is_taken[*at]
            {
                self.is_taken[*at] = true;
                *of = Some(*at);
            }
        }
    }
}

fn ours(folder: Folder, known: Option<&KnownFolder>) -> Ours {
    let id = match known {
        Some(known) => known.id.clone(),
        None => mailbox_id(&folder).unwrap_or_else(|| new_id(&folder)),
    };
    let is_news = known.is_none_or(|known| {
        known.name != folder.name || (validity(&folder).is_some() && validity(&folder) != validity_of(known))
    });
    let seen = SeenFolder {
        id: id.clone(),
        name: folder.name.clone(),
        role: folder.role(),
        delimiter: folder.delimiter.map(String::from),
        uid_validity: validity(&folder).map(u64::from).or(known.and_then(|known| known.uid_validity)),
    };
    let is_in_scope = known.is_none_or(|known| known.is_in_scope);
    Ours { id, wire: folder.wire, seen, status: folder.status.unwrap_or_default(), is_in_scope, is_news }
}

/// What the server itself calls it, for ever.
fn mailbox_id(folder: &Folder) -> Option<String> {
    Some(format!("m-{}", folder.status.as_ref()?.mailbox_id.as_ref()?))
}

/// Never the same for two folders that are there at one time, nor for one that follows another under its name.
fn new_id(folder: &Folder) -> String {
    let first = format!("{} {}", validity(folder).unwrap_or(0), folder.wire.to_text());
    format!("f-{}", &Sha256::of(first.as_bytes()).hex()[..20])
}

fn validity(folder: &Folder) -> Option<u32> {
    folder.status.as_ref()?.uid_validity.filter(|number| *number > 0)
}

fn validity_of(known: &KnownFolder) -> Option<u32> {
    known.uid_validity.and_then(|number| u32::try_from(number).ok()).filter(|number| *number > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str, number: u32) -> Folder {
        let status = FolderStatus { uid_validity: Some(number), ..FolderStatus::default() };
        Folder {
            wire: WireName::new(name.as_bytes()),
            name: name.to_owned(),
            delimiter: Some('/'),
            attributes: Vec::new(),
            status: Some(status),
        }
    }

    fn known(matched: &Matched) -> Vec<KnownFolder> {
        let known = |ours: &Ours| KnownFolder {
            id: ours.id.clone(),
            name: ours.seen.name.clone(),
            role: ours.seen.role,
            delimiter: ours.seen.delimiter.clone(),
            uid_validity: ours.seen.uid_validity,
            is_in_scope: true,
        };
        matched.folders.iter().map(known).collect()
    }

    const A: u32 = 1_700_000_001;
    const B: u32 = 1_700_000_002;
    const C: u32 = 1_700_000_003;

    #[test]
    fn a_renamed_folder_keeps_its_id_even_when_another_takes_its_name() {
        let first = matched(vec![folder("INBOX", A), folder("Work", B)], &[]);
        let then = matched(vec![folder("INBOX", A), folder("Old", B), folder("Work", C)], &known(&first));
        assert_eq!(then.find(&first.folders[1].id).unwrap().seen.name, "Old");
        assert!(then.folders[1].is_news && then.folders[2].is_news && !then.folders[0].is_news);
        assert_ne!(then.folders[2].id, first.folders[1].id);
        assert!(then.gone.is_empty());
    }

    #[test]
    fn a_folder_made_anew_under_its_name_is_the_same_with_another_number() {
        let first = matched(vec![folder("Work", A)], &[]);
        let then = matched(vec![folder("Work", B)], &known(&first));
        assert_eq!(then.folders[0].id, first.folders[0].id);
        assert!(then.folders[0].is_news && then.gone.is_empty());
    }

    #[test]
    fn a_number_that_many_have_proves_nothing() {
        for number in [1, A] {
            let first = matched(vec![folder("One", number), folder("Two", number)], &[]);
            let then = matched(vec![folder("One", number), folder("Three", number)], &known(&first));
            assert_eq!(then.gone, [first.folders[1].id.clone()]);
            assert!(then.folders[1].is_news && then.folders[1].id != first.folders[1].id);
        }
    }

    #[test]
    fn without_a_number_the_name_decides_and_nothing_is_new() {
        let first = matched(vec![folder("INBOX", A), folder("Work", B)], &[]);
        let then = matched(vec![folder("INBOX", 0), folder("Work", 0)], &known(&first));
        assert_eq!(known(&then), known(&first));
        assert!(then.folders.iter().all(|folder| !folder.is_news));
    }

    #[test]
    fn an_id_of_the_server_is_what_it_goes_by() {
        let with_id = |name, number, id: &str| {
            let mut folder = folder(name, number);
            folder.status.as_mut().unwrap().mailbox_id = Some(id.to_owned());
            folder
        };
        let first = matched(vec![with_id("One", 1, "x"), with_id("Two", 1, "y")], &[]);
        let then = matched(vec![with_id("Two", 1, "x"), with_id("One", 1, "y")], &known(&first));
        assert_eq!(then.find("m-x").unwrap().seen.name, "Two");
        assert_eq!(then.find("m-y").unwrap().seen.name, "One");
    }
}
