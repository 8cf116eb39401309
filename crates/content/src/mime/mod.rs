//! Any bytes become an email with a list of defects; parsing never fails.

use domain::{Address, Limits, Recipient};
use jiff::Timestamp;

/// What a message says, as far as it could be read.
#[derive(Debug, Clone, Default)]
pub struct Email {
    /// Without angle brackets.
    pub message_id: Option<String>,
    pub in_reply_to: Option<String>,
    /// Oldest first, without angle brackets.
    pub references: Vec<String>,
    pub subject: Option<String>,
    pub from: Option<Address>,
    /// To, Cc, Bcc and Reply-To in this order, each in the order written.
    pub recipients: Vec<Recipient>,
    /// The Date header.
    pub sent_at: Option<Timestamp>,
    /// The topmost Received header that has a readable date.
    pub received_at: Option<Timestamp>,
    /// The text a person reads: the text part(s), or text made from the HTML when there is none.
    pub body_text: Option<String>,
    pub body_html: Option<String>,
    /// Every header in order, decoded to Unicode, name as written.
    pub headers: Vec<(String, String)>,
    pub attachments: Vec<Attachment>,
    /// Short stable names of what was wrong or cut, sorted and without repeats.
    pub defects: Vec<String>,
}

/// A part that a person would call an attachment: it has a file name or attachment disposition, or is an attached
/// message or an inline image.
#[derive(Debug, Clone)]
pub struct Attachment {
    /// Where it stands in the message: `2`, `2.1`; stable for the same bytes.
    pub path: String,
    pub filename: Option<String>,
    /// As declared, lower-cased, without parameters.
    pub content_type: String,
    /// By its first bytes, where they tell.
    pub sniffed_type: Option<String>,
    pub inline: bool,
    /// Without angle brackets.
    pub content_id: Option<String>,
    /// Decoded. Empty when `is_cut`.
    pub bytes: Vec<u8>,
    /// Over a limit: the bytes are only in the raw message.
    pub is_cut: bool,
}

pub fn parse(_raw: &[u8], _limits: &Limits) -> Email {
    Email::default()
}
