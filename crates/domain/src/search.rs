//! A parsed search query: tokens only, so that both databases and the reference matcher of the tests agree.
//! `content::query` parses it from what a person typed.

use jiff::Timestamp;

/// A separator token that no phrase can match across. It is itself a token in the index, where it keeps positions apart,
/// and no query can produce it.
pub const PHRASE_GAP: &str = ":";

/// The version of the tokens that `content::tokens` makes. Raise it when the same email gets other tokens than before:
/// `mailroom reindex` then replaces those of earlier versions.
pub const TOKENS_VERSION: u32 = 1;

/// Returns the token by which an email's entry in the text index shows its version. The first version has none. No word
/// begins with a colon, so no search finds it.
pub fn version_token(version: u32) -> Option<String> {
    (version > 1).then(|| format!(":version:{version}"))
}

/// Tokens that must be adjacent, in order. Tokens of one field carry its name: `:from:alice`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Phrase {
    pub tokens: Vec<String>,
    /// Whether the last token is a prefix of a word.
    pub is_prefix: bool,
}

/// What a matching email must and must not contain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SearchQuery {
    pub all_of: Vec<Phrase>,
    pub none_of: Vec<Phrase>,
    /// Folder names, compared without case, whole or by their last segment.
    pub labels: Vec<String>,
    pub not_labels: Vec<String>,
    /// Received at or after.
    pub after: Option<Timestamp>,
    /// Received before.
    pub before: Option<Timestamp>,
    pub deleted: DeletedEmails,
}

/// How a search treats soft-deleted emails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeletedEmails {
    #[default]
    Hidden,
    Included,
    /// It finds no others.
    Only,
}

impl SearchQuery {
    /// Returns whether it needs the text index at all.
    pub fn has_text(&self) -> bool {
        !self.all_of.is_empty() || !self.none_of.is_empty()
    }

    /// Finds soft-deleted emails, too, unless it finds only these.
    pub fn including_deleted(mut self) -> Self {
        if self.deleted == DeletedEmails::Hidden {
            self.deleted = DeletedEmails::Included;
        }
        self
    }
}

/// How results are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SearchOrder {
    #[default]
    Newest,
    /// By relevance, newest first among equals.
    Ranked,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_version_of_the_tokens_is_the_unmarked_one() {
        assert_eq!(version_token(1), None);
        assert_eq!(version_token(2).as_deref(), Some(":version:2"));
    }
}
