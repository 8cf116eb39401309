//! A search as the stores understand it: tokens only, so that every database and the naive matcher of the tests
//! answer alike. `content::query` makes it from what a person typed.

use jiff::Timestamp;

/// Marks a place between two tokens that no phrase may cross. It is itself a token in the index (it keeps positions
/// apart), and no query can produce it.
pub const GAP: &str = ":";

/// Tokens that must follow each other. Tokens of one field carry its name: `:from:alice`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Phrase {
    pub tokens: Vec<String>,
    /// The last token is only the beginning of a word.
    pub is_prefix: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    pub all_of: Vec<Phrase>,
    pub none_of: Vec<Phrase>,
    /// Folder names, compared without case, whole or by their last segment.
    pub labels: Vec<String>,
    pub not_labels: Vec<String>,
    /// Received at or after.
    pub after: Option<Timestamp>,
    /// Received before.
    pub before: Option<Timestamp>,
}

impl Query {
    /// Whether it needs the text index at all.
    pub fn has_text(&self) -> bool {
        !self.all_of.is_empty() || !self.none_of.is_empty()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    #[default]
    Newest,
    /// By how well an email fits, newest first among equals.
    Ranked,
}
