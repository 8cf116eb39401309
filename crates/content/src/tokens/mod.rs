//! Tokenises text in one place, so that both databases, the reference matcher and snippets see the same words.

mod email;
mod fold;
mod words;

pub use email::{EmailText, EmailTokens, email_tokens};
pub use words::{Words, words};

/// The parts of an email that can be searched alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchField {
    Subject,
    From,
    To,
    Filename,
}

impl SearchField {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Subject => "subject",
            Self::From => "from",
            Self::To => "to",
            Self::Filename => "filename",
        }
    }

    /// Returns what a word becomes in this field: `:from:alice`. The leading colon keeps a prefix search apart: without
    /// it `fr*` would find every email that has a sender.
    pub fn token(self, word: &str) -> String {
        format!(":{}:{word}", self.as_str())
    }
}

/// The token of an email with attachments.
pub const HAS_ATTACHMENT: &str = ":has:attachment";

/// Returns whether a script is written without spaces between words. Runs of it are indexed as overlapping pairs, since
/// finding their words needs a dictionary.
pub(crate) fn is_unspaced(c: char) -> bool {
    matches!(c,
        '\u{0E00}'..='\u{0EFF}' // Thai, Lao
        | '\u{1000}'..='\u{109F}' // Myanmar
        | '\u{1780}'..='\u{17FF}' // Khmer
        | '\u{3005}'..='\u{3007}' | '\u{3041}'..='\u{312F}' | '\u{31A0}'..='\u{31FF}' // kana, bopomofo
        | '\u{3400}'..='\u{4DBF}' | '\u{4E00}'..='\u{9FFF}' | '\u{F900}'..='\u{FAFF}' // Han
        | '\u{20000}'..='\u{3FFFF}')
}
