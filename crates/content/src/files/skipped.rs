//! Files of a folder that are passed over. Those that may contain mail are named, so that nobody takes their mail for
//! imported; the others, such as pictures, are counted.

use std::path::Path;

use super::ImportProblem;
use super::sniff::{self, FileContent, NonMailType};

/// The problems that are kept until they are taken; a folder may hold a million archives.
const MAX_CONTAINERS: usize = 1000;

#[derive(Debug, Default)]
pub struct SkippedFiles {
    count: u64,
    containers: Vec<ImportProblem>,
}

impl SkippedFiles {
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the problems of files that may contain mail, each once.
    pub fn take_containers(&mut self) -> Vec<ImportProblem> {
        std::mem::take(&mut self.containers)
    }

    /// Adds a file that is not named like mail; it is not opened.
    pub fn add_by_name(&mut self, path: &Path) {
        let extension = path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        self.add(path, sniff::container_by_extension(&extension));
    }

    /// Adds a file whose content is no mail.
    pub fn add_by_content(&mut self, path: &Path, content: FileContent) {
        let container = match content {
            FileContent::Other(kind) => Some(kind).filter(|kind| kind.may_contain_mail()),
            _ => None,
        };
        self.add(path, container);
    }

    fn add(&mut self, path: &Path, container: Option<&'static NonMailType>) {
        self.count += 1;
        if let Some(kind) = container
            && self.containers.len() < MAX_CONTAINERS
        {
            self.containers.push(ImportProblem::NotMail { path: path.to_owned(), kind });
        }
    }
}
