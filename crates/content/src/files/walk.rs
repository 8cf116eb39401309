//! Walks a folder for files that may be mail, in sorted order, each with its mail folder.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use super::{ImportProblem, MailFileFormat, SkippedFiles, folder, maildir};

/// What a file's name says about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileShape {
    /// The file is the message.
    Whole,
    Emlx,
    Mbox,
    /// Decided by the content.
    Unknown,
}

/// How a file was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileOrigin {
    /// Given by path, so it is an error if it is not mail.
    Given,
    Tree,
    Maildir,
}

#[derive(Debug)]
pub struct CandidateFile {
    pub path: PathBuf,
    pub shape: FileShape,
    pub place: FileOrigin,
    pub size: u64,
    /// The folder path of the directory.
    segments: Vec<String>,
    /// In Apple Mail's `Sent.mbox/mbox` the directory has the name.
    is_named_by_directory: bool,
}

impl CandidateFile {
    pub fn given(path: &Path, format: MailFileFormat, size: u64) -> Self {
        let shape = shape(path, format).unwrap_or(match format {
            MailFileFormat::Eml => FileShape::Whole,
            MailFileFormat::Mbox => FileShape::Mbox,
            MailFileFormat::Auto | MailFileFormat::Maildir => FileShape::Unknown,
        });
        let segments = path.parent().and_then(Path::file_name).filter(|name| is_apple(name)).map(folder::of_directory);
        let is_named_by_directory = segments.is_some() && path.file_name() == Some(OsStr::new("mbox"));
        let segments = if is_named_by_directory { segments.into_iter().collect() } else { Vec::new() };
        Self { path: path.to_owned(), shape, place: FileOrigin::Given, size, segments, is_named_by_directory }
    }

    /// Returns the mail folder of its messages, once its shape is known.
    pub fn folder(&self, shape: FileShape) -> String {
        let mut segments = self.segments.clone();
        if shape == FileShape::Mbox && !self.is_named_by_directory {
            segments.extend(self.path.file_name().map(folder::of_mbox));
        }
        folder::joined(&segments)
    }
}

#[derive(Debug)]
pub struct MailFileWalk {
    format: MailFileFormat,
    open: Vec<OpenDirectory>,
    /// Real paths, since links can lead in circles.
    seen: HashSet<PathBuf>,
    problems: Vec<ImportProblem>,
    skipped: SkippedFiles,
    saw_maildir: bool,
}

#[derive(Debug)]
struct OpenDirectory {
    path: PathBuf,
    kind: DirectoryKind,
    segments: Vec<String>,
    /// Sorted, last first.
    names: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DirectoryKind {
    Plain,
    /// Within `Name.mbox`, whose inner directories are Apple Mail's own and name no folders.
    Apple,
    Maildir,
    /// `cur` or `new`.
    Messages,
}

impl MailFileWalk {
    pub fn folder(path: &Path, format: MailFileFormat) -> Self {
        let mut walk = Self { format, ..Self::nothing() };
        let name = path.file_name().filter(|name| is_apple(name));
        walk.enter(path.to_owned(), name.map(folder::of_directory).into_iter().collect(), name.is_some());
        walk
    }

    pub fn nothing() -> Self {
        Self {
            format: MailFileFormat::Auto,
            open: Vec::new(),
            seen: HashSet::new(),
            problems: Vec::new(),
            skipped: SkippedFiles::default(),
            saw_maildir: false,
        }
    }

    /// Returns whether a Maildir was found: an empty one is not an error.
    pub fn saw_maildir(&self) -> bool {
        self.saw_maildir
    }

    /// Returns the files that were passed over by their names.
    pub fn skipped(&self) -> &SkippedFiles {
        &self.skipped
    }

    pub fn skipped_mut(&mut self) -> &mut SkippedFiles {
        &mut self.skipped
    }

    fn enter(&mut self, path: PathBuf, segments: Vec<String>, is_apple: bool) {
        let kind = if maildir::is_maildir(&path) {
            DirectoryKind::Maildir
        } else if is_apple {
            DirectoryKind::Apple
        } else {
            DirectoryKind::Plain
        };
        self.saw_maildir |= kind == DirectoryKind::Maildir;
        self.list(path, kind, segments);
    }

    fn list(&mut self, path: PathBuf, kind: DirectoryKind, segments: Vec<String>) {
        let real = fs::canonicalize(&path);
        if real.is_ok_and(|real| !self.seen.insert(real)) {
            return;
        }
        let listed = fs::read_dir(&path).and_then(|entries| {
            entries.map(|entry| entry.map(|entry| entry.file_name())).collect::<Result<Vec<_>, _>>()
        });
        match listed {
            Ok(mut names) => {
                names.sort_unstable_by(|a, b| b.cmp(a));
                self.open.push(OpenDirectory { path, kind, segments, names });
            }
            Err(reason) => self.problems.push(ImportProblem::opening(&path, reason)),
        }
    }

    /// Returns the file if it may be mail; enters it if it is a directory.
    fn visit(
        &mut self,
        path: PathBuf,
        name: &OsStr,
        kind: DirectoryKind,
        segments: Vec<String>,
    ) -> Option<CandidateFile> {
        let about = match fs::metadata(&path) {
            Ok(about) => about,
            Err(reason) => {
                // A link to nowhere, or a file that was moved meanwhile, is no mail of this folder.
                if reason.kind() != std::io::ErrorKind::NotFound {
                    self.problems.push(ImportProblem::opening(&path, reason));
                }
                return None;
            }
        };
        if about.is_dir() {
            self.visit_directory(path, name, kind, segments);
            return None;
        }
        if !about.is_file() || is_hidden(name) || kind == DirectoryKind::Maildir {
            return None;
        }
        let (shape, place) = match kind {
            DirectoryKind::Messages => (FileShape::Whole, FileOrigin::Maildir),
            _ => {
                let Some(shape) = shape(&path, self.format) else {
                    self.skipped.add_by_name(&path);
                    return None;
                };
                (shape, FileOrigin::Tree)
            }
        };
        let is_named_by_directory = kind == DirectoryKind::Apple && name == "mbox";
        Some(CandidateFile { path, shape, place, size: about.len(), segments, is_named_by_directory })
    }

    fn visit_directory(&mut self, path: PathBuf, name: &OsStr, kind: DirectoryKind, mut segments: Vec<String>) {
        match kind {
            DirectoryKind::Messages => {}
            DirectoryKind::Maildir if name == "cur" || name == "new" => {
                self.list(path, DirectoryKind::Messages, segments);
            }
            DirectoryKind::Maildir if name == "tmp" => {}
            _ if maildir::is_maildir(&path) => {
                segments.extend(folder::of_maildir(name));
                self.enter(path, segments, false);
            }
            _ if is_hidden(name) => {}
            _ => {
                let is_apple = is_apple(name);
                if kind != DirectoryKind::Apple || is_apple {
                    segments.push(folder::of_directory(name));
                }
                self.enter(path, segments, is_apple || kind == DirectoryKind::Apple);
            }
        }
    }
}

impl Iterator for MailFileWalk {
    type Item = Result<CandidateFile, ImportProblem>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(problem) = self.problems.pop() {
                return Some(Err(problem));
            }
            let directory = self.open.last_mut()?;
            let Some(name) = directory.names.pop() else {
                self.open.pop();
                continue;
            };
            let (path, kind, segments) = (directory.path.join(&name), directory.kind, directory.segments.clone());
            if let Some(candidate) = self.visit(path, &name, kind, segments) {
                return Some(Ok(candidate));
            }
        }
    }
}

/// Returns the shape that the file's name tells, or `None` if it is not named like mail.
fn shape(path: &Path, format: MailFileFormat) -> Option<FileShape> {
    let extension = path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let is_winmail = path.file_name().is_some_and(|name| name.eq_ignore_ascii_case("winmail.dat"));
    let shape = match extension.as_str() {
        "emlx" => FileShape::Emlx,
        "eml" | "msg" | "tnef" => FileShape::Whole,
        "mbox" | "mbx" => FileShape::Mbox,
        "" => FileShape::Unknown,
        _ if is_winmail => FileShape::Whole,
        _ => return None,
    };
    match format {
        MailFileFormat::Eml if shape != FileShape::Emlx => Some(FileShape::Whole),
        MailFileFormat::Mbox => Some(FileShape::Mbox),
        _ => Some(shape),
    }
}

fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

fn is_apple(name: &OsStr) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension.eq_ignore_ascii_case("mbox"))
}
