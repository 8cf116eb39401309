//! The files under a folder that may be mail, in sorted order, with the mail folder that each belongs to.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use super::{Format, Problem, folder, maildir};

/// What a file's name says about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// The file is the message.
    Whole,
    Emlx,
    Mbox,
    /// Only its content can tell.
    Unknown,
}

/// How a file came to be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Someone named it, so they want to hear when it is not mail.
    Given,
    Tree,
    Maildir,
}

#[derive(Debug)]
pub struct Candidate {
    pub path: PathBuf,
    pub shape: Shape,
    pub place: Place,
    pub size: u64,
    /// Of the directory.
    segments: Vec<String>,
    /// In Apple Mail's `Sent.mbox/mbox` the directory has the name.
    is_named_by_directory: bool,
}

impl Candidate {
    pub fn given(path: &Path, format: Format, size: u64) -> Self {
        let shape = shape(path, format).unwrap_or(match format {
            Format::Eml => Shape::Whole,
            Format::Mbox => Shape::Mbox,
            Format::Auto | Format::Maildir => Shape::Unknown,
        });
        let segments = path.parent().and_then(Path::file_name).filter(|name| is_apple(name)).map(folder::of_directory);
        let is_named_by_directory = segments.is_some() && path.file_name() == Some(OsStr::new("mbox"));
        let segments = if is_named_by_directory { segments.into_iter().collect() } else { Vec::new() };
        Self { path: path.to_owned(), shape, place: Place::Given, size, segments, is_named_by_directory }
    }

    /// The mail folder of its messages, once its shape is known.
    pub fn folder(&self, shape: Shape) -> String {
        let mut segments = self.segments.clone();
        if shape == Shape::Mbox && !self.is_named_by_directory {
            segments.extend(self.path.file_name().map(folder::of_mbox));
        }
        folder::joined(&segments)
    }
}

#[derive(Debug)]
pub struct Walk {
    format: Format,
    open: Vec<Directory>,
    /// Real paths, since links can lead in circles.
    seen: HashSet<PathBuf>,
    problems: Vec<Problem>,
    saw_maildir: bool,
}

#[derive(Debug)]
struct Directory {
    path: PathBuf,
    kind: Kind,
    segments: Vec<String>,
    /// Sorted, last first.
    names: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    /// Within `Name.mbox`, whose inner directories are Apple Mail's own and name no folders.
    Apple,
    Maildir,
    /// `cur` or `new`.
    Messages,
}

impl Walk {
    pub fn folder(path: &Path, format: Format) -> Self {
        let mut walk = Self { format, ..Self::nothing() };
        let name = path.file_name().filter(|name| is_apple(name));
        walk.enter(path.to_owned(), name.map(folder::of_directory).into_iter().collect(), name.is_some());
        walk
    }

    pub fn nothing() -> Self {
        Self { format: Format::Auto, open: Vec::new(), seen: HashSet::new(), problems: Vec::new(), saw_maildir: false }
    }

    /// An empty Maildir is mail that has not come yet, not a folder without mail.
    pub fn saw_maildir(&self) -> bool {
        self.saw_maildir
    }

    fn enter(&mut self, path: PathBuf, segments: Vec<String>, is_apple: bool) {
        let kind = match (maildir::is_maildir(&path), is_apple) {
            (true, _) => Kind::Maildir,
            (false, true) => Kind::Apple,
            (false, false) => Kind::Plain,
        };
        self.saw_maildir |= kind == Kind::Maildir;
        self.list(path, kind, segments);
    }

    fn list(&mut self, path: PathBuf, kind: Kind, segments: Vec<String>) {
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
                self.open.push(Directory { path, kind, segments, names });
            }
            Err(reason) => self.problems.push(Problem::opening(&path, reason)),
        }
    }

    /// A file that may be mail; directories are entered on the way.
    fn visit(&mut self, path: PathBuf, name: &OsStr, kind: Kind, segments: Vec<String>) -> Option<Candidate> {
        let about = match fs::metadata(&path) {
            Ok(about) => about,
            Err(reason) => {
                // A link to nowhere, or a file that was moved meanwhile, is no mail of this folder.
                if reason.kind() != std::io::ErrorKind::NotFound {
                    self.problems.push(Problem::opening(&path, reason));
                }
                return None;
            }
        };
        if about.is_dir() {
            self.visit_directory(path, name, kind, segments);
            return None;
        }
        if !about.is_file() || is_hidden(name) || kind == Kind::Maildir {
            return None;
        }
        let (shape, place) = match kind {
            Kind::Messages => (Shape::Whole, Place::Maildir),
            _ => (shape(&path, self.format)?, Place::Tree),
        };
        let is_named_by_directory = kind == Kind::Apple && name == "mbox";
        Some(Candidate { path, shape, place, size: about.len(), segments, is_named_by_directory })
    }

    fn visit_directory(&mut self, path: PathBuf, name: &OsStr, kind: Kind, mut segments: Vec<String>) {
        match kind {
            Kind::Messages => {}
            Kind::Maildir if name == "cur" || name == "new" => self.list(path, Kind::Messages, segments),
            Kind::Maildir if name == "tmp" => {}
            _ if maildir::is_maildir(&path) => {
                segments.extend(folder::of_maildir(name));
                self.enter(path, segments, false);
            }
            _ if is_hidden(name) => {}
            _ => {
                let is_apple = is_apple(name);
                if kind != Kind::Apple || is_apple {
                    segments.push(folder::of_directory(name));
                }
                self.enter(path, segments, is_apple || kind == Kind::Apple);
            }
        }
    }
}

impl Iterator for Walk {
    type Item = Result<Candidate, Problem>;

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

/// By the file's name; `None` when it is named as something other than mail.
fn shape(path: &Path, format: Format) -> Option<Shape> {
    let extension = path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let is_winmail = path.file_name().is_some_and(|name| name.eq_ignore_ascii_case("winmail.dat"));
    let shape = match extension.as_str() {
        "emlx" => Shape::Emlx,
        "eml" | "msg" | "tnef" => Shape::Whole,
        "mbox" | "mbx" => Shape::Mbox,
        "" => Shape::Unknown,
        _ if is_winmail => Shape::Whole,
        _ => return None,
    };
    match format {
        Format::Eml if shape != Shape::Emlx => Some(Shape::Whole),
        Format::Mbox => Some(Shape::Mbox),
        _ => Some(shape),
    }
}

fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

fn is_apple(name: &OsStr) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension.eq_ignore_ascii_case("mbox"))
}
