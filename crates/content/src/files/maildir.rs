//! Maildir: a file per message in `cur` and `new`, flags in its name.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use domain::Flags;

/// Returns whether a folder is a Maildir. Copies lose empty folders, so `cur` is enough; `new` counts only if nothing
/// but parts of a Maildir is beside it, since any folder could be named so.
pub fn is_maildir(folder: &Path) -> bool {
    if folder.join("cur").is_dir() {
        return true;
    }
    folder.join("new").is_dir()
        && fs::read_dir(folder).is_ok_and(|entries| entries.flatten().all(|entry| is_maildir_entry(&entry.file_name())))
}

fn is_maildir_entry(name: &OsStr) -> bool {
    name == "new" || name == "tmp" || name.as_encoded_bytes().starts_with(b".")
}

/// Returns the flags after `:2,` in a name. Where a colon cannot stand in names, programs write `;` or `!`.
pub fn flags(path: &Path) -> Flags {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let Some((_, letters)) = [":2,", ";2,", "!2,"].iter().find_map(|mark| name.rsplit_once(mark)) else {
        return Flags::default();
    };
    Flags::from_names(letters.chars().filter_map(|letter| match letter {
        'D' => Some("draft"),
        'F' => Some("flagged"),
        'P' => Some("forwarded"),
        'R' => Some("answered"),
        'S' => Some("seen"),
        'T' => Some("deleted"),
        _ => None, // keywords of Dovecot, whose names are in a file of its own
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_after_the_mark_are_flags() {
        fn names(name: &str) -> String {
            flags(Path::new(name)).names().join(" ")
        }

        assert_eq!(names("1700000000.M1P2.host,S=10:2,FRSa"), "answered flagged seen");
        assert_eq!(names("1;2,DT"), "deleted draft");
        assert_eq!(names("1!2,P"), "forwarded");
        assert_eq!(names("1.host"), "");
    }
}
