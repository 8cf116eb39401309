//! Any bytes become an email with a list of defects; parsing never fails.
//!
//! A message goes through these steps, each a file: `prologue` (what should not be there), `headers` and `fields`,
//! `structure` (which parts there are), `bodies` and `attachments`. All of them see a `source`, which is in memory or,
//! when the message is too large for that, on disk (`spooled`). Outlook's own formats (`tnef`, `msg`) share `mapi`.

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
mod source;
mod spooled;
mod structure;
mod text;
mod tnef;
mod transfer;
mod uuencode;
mod words;

use std::io::{self, BufReader, Cursor};

use domain::{Address, MessageLimits, Recipient};
use jiff::Timestamp;
use serde::Serialize;

use crate::spool::{Spool, SpoolableBytes, SpooledBytes};
use attachments::DecodeBudget;
use defects::{Defect, Defects};
use headers::{HeaderReader, HeaderSection};
use params::HeaderParams;
use source::{InMemoryMessage, MessageSource};
use spooled::SpooledMessage;
use transfer::TransferEncoding;

/// What a message says, as far as it could be read.
#[derive(Debug, Clone, Default)]
pub struct ParsedEmail {
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
    /// The type by its first bytes, if they are known.
    pub sniffed_type: Option<String>,
    pub inline: bool,
    /// Without angle brackets.
    pub content_id: Option<String>,
    /// Of an attached message: what its own headers say.
    pub message: Option<Box<AttachedMessage>>,
    /// Decoded. Empty when `is_cut`.
    pub content: SpoolableBytes,
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
    fn read(raw: &[u8], limits: &MessageLimits) -> Self {
        // What is wrong inside is not wrong with the message around it.
        let mut defects = Defects::default();
        let mut email = ParsedEmail::default();
        let (raw, start) = prologue::prepare(raw, &mut defects);
        let section = HeaderSection::read(&raw, start, limits.header_bytes, |_| false, &mut defects);
        fields::read(&section, &HeaderReader { body_charset: None }, &mut email, &mut defects);
        Self { subject: email.subject, from: email.from, sent_at: email.sent_at, internet_message_id: email.message_id }
    }
}

/// Reads a message, an Outlook .msg file or a bare TNEF file.
pub fn parse(raw: &[u8], limits: &MessageLimits) -> ParsedEmail {
    let mut defects = Defects::default();
    let mut budget = DecodeBudget::new(limits, None);
    let mut email = if msg::is_msg(raw) {
        msg::read(Cursor::new(raw), limits, &mut budget, &mut defects)
    } else if tnef::is_tnef(raw) {
        tnef::read_bare(raw, limits, &mut budget, &mut defects)
    } else {
        held(raw, limits, &mut budget, &mut defects)
    };
    email.defects = defects.names();
    email
}

/// Parses a message in the spool. Its large parts are in the spool, too. An error is one of the disk and says nothing
/// about the message.
pub fn parse_spooled(raw: &SpooledBytes, spool: &Spool, limits: &MessageLimits) -> io::Result<ParsedEmail> {
    let mut defects = Defects::default();
    let mut budget = DecodeBudget::new(limits, Some(spool));
    let start = raw.read_range(0..8)?;
    let mut email = if msg::is_msg(&start) {
        msg::read(BufReader::new(raw.reader()), limits, &mut budget, &mut defects)
    } else {
        let container = SpoolableBytes::Spooled(raw.clone());
        match tnef::is_tnef(&start).then(|| budget.whole(&container)) {
            Some(Some(bytes)) => tnef::read_bare(&bytes, limits, &mut budget, &mut defects),
            // Then it is a message without headers, whose only attachment is itself.
            Some(None) => {
                defects.add(Defect::ContainerTooLarge);
                on_disk(raw, spool, limits, &mut budget, &mut defects)?
            }
            None => on_disk(raw, spool, limits, &mut budget, &mut defects)?,
        }
    };
    budget.failed.map_or(Ok(()), Err)?;
    email.defects = defects.names();
    Ok(email)
}

fn held(received: &[u8], limits: &MessageLimits, budget: &mut DecodeBudget, defects: &mut Defects) -> ParsedEmail {
    let (raw, start) = prologue::prepare(received, defects);
    // Mended line ends take as many bytes as the broken ones did, so places are the same; a change of charset moves them.
    let received = if raw.len() == received.len() { received } else { &raw };
    message(&mut InMemoryMessage { raw: &raw, received }, start, limits, budget, defects)
}

fn on_disk(
    raw: &SpooledBytes,
    spool: &Spool,
    limits: &MessageLimits,
    budget: &mut DecodeBudget,
    defects: &mut Defects,
) -> io::Result<ParsedEmail> {
    let (mut source, start) = SpooledMessage::open(raw, spool, defects)?;
    let email = message(&mut source, start, limits, budget, defects);
    source.failed.map_or(Ok(email), Err)
}

fn message<'a>(
    source: &mut impl MessageSource<'a>,
    start: usize,
    limits: &MessageLimits,
    budget: &mut DecodeBudget,
    defects: &mut Defects,
) -> ParsedEmail {
    let mut email = ParsedEmail::default();
    let head = source.head(start, limits.header_bytes, |_| false);
    let (section, body) = head.read(start, limits.header_bytes, |_| false, defects);
    if section.headers.is_empty() {
        defects.add(Defect::NoHeaders);
        if is_binary(&source.start(8192)) {
            return file(source, budget, defects);
        }
    }
    let declared =
        section.find("content-type").map(|header| HeaderParams::parse(&String::from_utf8_lossy(header.value)));
    let reader = HeaderReader { body_charset: declared.and_then(|params| params.find("charset")) };
    fields::read(&section, &reader, &mut email, defects);
    let leaves = structure::leaves(source, &section, body, &reader, limits, defects);
    bodies::read(&leaves, source, limits, budget, &mut email, defects);
    email
}

/// Returns whether it is neither a message nor a text: some file under a wrong name.
fn is_binary(head: &[u8]) -> bool {
    let is_known = sniff::sniff(head).is_some_and(|name| !name.starts_with("text/") && !name.starts_with("message/"));
    is_known || head.contains(&0)
}

/// Makes an email without text whose only attachment is the file.
fn file<'a>(source: &mut impl MessageSource<'a>, budget: &mut DecodeBudget, defects: &mut Defects) -> ParsedEmail {
    let mut email = ParsedEmail::default();
    let is_cut = !budget.admits(source.len() as u64, defects);
    let content = if is_cut {
        SpoolableBytes::default()
    } else {
        source.part(0..source.len(), TransferEncoding::Identity, budget, defects)
    };
    let attachment = attachments::inner("1".to_owned(), None, "application/octet-stream", content, budget);
    email.attachments.push(Attachment { is_cut, ..attachment });
    email
}
