//! Any bytes become an email with a list of defects; parsing never fails.
//!
//! A message goes through these steps, each a file: `prologue` (what should not be there), `headers` and `fields`,
//! `structure` (which parts there are), `bodies` and `attachments`. Outlook's own formats (`tnef`, `msg`) share `mapi`.

mod addresses;
mod attachments;
mod bodies;
mod charset;
mod compose;
mod dates;
mod defects;
mod fields;
mod headers;
mod html;
mod mapi;
mod msg;
mod params;
mod prologue;
mod rtf;
mod sniff;
mod structure;
mod text;
mod tnef;
mod transfer;
mod uuencode;
mod words;

use domain::{Address, Limits, Recipient};
use jiff::Timestamp;
use serde::Serialize;

use defects::{Defect, Defects};
use headers::{Reader, Section};
use params::Params;

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
    /// Of an attached message: what its own headers say.
    pub message: Option<Box<AttachedMessage>>,
    /// Decoded. Empty when `is_cut`.
    pub bytes: Vec<u8>,
    /// Over a limit: the bytes are only in the raw message.
    pub is_cut: bool,
}

/// The facts of a message inside another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AttachedMessage {
    pub subject: Option<String>,
    pub from: Option<Address>,
    pub sent_at: Option<Timestamp>,
    pub internet_message_id: Option<String>,
}

impl AttachedMessage {
    /// Reads the headers only, so a chain of messages in messages costs no more than its bytes.
    fn read(raw: &[u8], limits: &Limits) -> Self {
        // What is wrong inside is not wrong with the message around it.
        let mut defects = Defects::default();
        let mut email = Email::default();
        let (raw, start) = prologue::prepare(raw, &mut defects);
        let section = Section::read(&raw, start, limits.header_bytes, |_| false, &mut defects);
        fields::read(&section, &Reader { body_charset: None }, &mut email, &mut defects);
        Self { subject: email.subject, from: email.from, sent_at: email.sent_at, internet_message_id: email.message_id }
    }
}

/// Reads a message, an Outlook .msg file or a bare TNEF file.
pub fn parse(raw: &[u8], limits: &Limits) -> Email {
    let mut defects = Defects::default();
    let mut email = if msg::is_msg(raw) {
        msg::read(raw, limits, &mut defects)
    } else if tnef::is_tnef(raw) {
        tnef::read_bare(raw, limits, &mut defects)
    } else {
        message(raw, limits, &mut defects)
    };
    email.defects = defects.names();
    email
}

fn message(raw: &[u8], limits: &Limits, defects: &mut Defects) -> Email {
    let mut email = Email::default();
    let received = raw;
    let (raw, start) = prologue::prepare(received, defects);
    let section = Section::read(&raw, start, limits.header_bytes, |_| false, defects);
    if section.headers.is_empty() {
        defects.add(Defect::NoHeaders);
        if is_binary(&raw) {
            return file(&raw, limits, defects);
        }
    }
    let declared = section.find("content-type").map(|header| Params::parse(&String::from_utf8_lossy(header.value)));
    let reader = Reader { body_charset: declared.and_then(|params| params.find("charset")) };
    fields::read(&section, &reader, &mut email, defects);
    // Mended line ends take as many bytes as the broken ones did, so places are the same; a change of charset moves them.
    let received = if raw.len() == received.len() { received } else { &raw };
    let leaves = structure::leaves(&raw, received, &section, &reader, limits, defects);
    bodies::read(&leaves, limits, &mut email, defects);
    email
}

/// Not a message and not a text: some file under a wrong name.
fn is_binary(raw: &[u8]) -> bool {
    let head = raw.get(..8192).unwrap_or(raw);
    let is_known = sniff::sniff(head).is_some_and(|name| !name.starts_with("text/") && !name.starts_with("message/"));
    is_known || head.contains(&0)
}

/// What it is stays readable as the only attachment of an email that says nothing.
fn file(raw: &[u8], limits: &Limits, defects: &mut Defects) -> Email {
    let mut email = Email::default();
    let is_cut = !attachments::Budget::new(limits).admits(raw.len(), defects);
    let bytes = if is_cut { Vec::new() } else { raw.to_vec() };
    let attachment = attachments::inner("1".to_owned(), None, "application/octet-stream", bytes);
    email.attachments.push(Attachment { is_cut, ..attachment });
    email
}
