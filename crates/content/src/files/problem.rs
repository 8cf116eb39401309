//! Why a file or message could not be imported, in words for the person who can fix it.

use std::io;
use std::path::{Path, PathBuf};

use super::sniff::NonMailType;

#[derive(Debug, thiserror::Error)]
pub enum ImportProblem {
    #[error("{} does not exist; check the path", path.display())]
    Missing { path: PathBuf },
    #[error("{} could not be read ({reason}); check its permissions and the disk, then import it again", path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        reason: io::Error,
    },
    #[error("{} is neither a file nor a folder; save the mail to a file first", path.display())]
    NotAFile { path: PathBuf },
    #[error("no mail was found in {}; name an mbox file, a Maildir or a folder with .eml files", path.display())]
    NoMail { path: PathBuf },
    #[error("{} is not a Maildir, which has the folders cur and new; name one, or leave the format to be found out", path.display())]
    NotMaildir { path: PathBuf },
    #[error("{} is not an mbox, for no line in it starts a message with \"From \"; if it is one message, import it as eml", path.display())]
    NotMbox { path: PathBuf },
    #[error("{} is empty; export or copy it again if a message should be in it", path.display())]
    Empty { path: PathBuf },
    #[error("{} is {}, not an email; {}", path.display(), kind.name, kind.advice)]
    NotMail { path: PathBuf, kind: &'static NonMailType },
    #[error("{origin} is larger than limits.message_size ({}); raise it to import this message", size(*limit))]
    TooLarge { origin: String, limit: u64 },
    #[error(
        "{origin} starts with {bytes} bytes that belong to no message, which were left out; look whether the file is damaged"
    )]
    Skipped { origin: String, bytes: u64 },
    #[error(
        "{origin} is too large to be held in memory and could not be copied to the spool in the data folder ({reason}); make room there, then import the file again"
    )]
    NotSpooled {
        origin: String,
        #[source]
        reason: io::Error,
    },
    /// The file ends before the length that it declares.
    #[error("{origin} ends in the middle of the message; copy or export the file again")]
    Cut { origin: String },
}

impl ImportProblem {
    pub(super) fn opening(path: &Path, reason: io::Error) -> Self {
        let path = path.to_owned();
        match reason.kind() {
            io::ErrorKind::NotFound => Self::Missing { path },
            _ => Self::Unreadable { path, reason },
        }
    }

    pub(super) fn too_large(origin: String, limit: u64) -> Self {
        Self::TooLarge { origin, limit }
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        0..0x400 => format!("{bytes} bytes"),
        0x400..0x10_0000 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_file_is_reported_with_the_reason() {
        let problem = ImportProblem::opening(Path::new("a.eml"), io::ErrorKind::PermissionDenied.into());

        assert_eq!(
            problem.to_string(),
            "a.eml could not be read (permission denied); check its permissions and the disk, then import it again"
        );
    }

    #[test]
    fn limit_is_shown_in_the_configured_unit() {
        let problem = ImportProblem::too_large("a.mbox:7".to_owned(), 50 << 20);

        assert_eq!(
            problem.to_string(),
            "a.mbox:7 is larger than limits.message_size (50 MiB); raise it to import this message"
        );
    }
}
