//! Message flags (read, answered, flagged, …) as IMAP and mail programs keep them per folder.

/// A set of flags, kept as sorted names so that it reads the same in rows, JSON and tests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flags(Vec<String>);

impl Flags {
    pub fn from_names<I: IntoIterator<Item = S>, S: Into<String>>(names: I) -> Self {
        let mut names: Vec<String> = names.into_iter().map(Into::into).collect();
        names.sort();
        names.dedup();
        Self(names)
    }

    pub fn names(&self) -> &[String] {
        &self.0
    }
}
