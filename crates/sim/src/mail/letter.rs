//! A message as sent, and its form as delivered.

use jiff::Timestamp;

use super::dates;
use super::kinds::MailKind;
use super::lexicon::Language;
use super::mail_programs::WritingStyle;
use super::mime::{Headers, MimePart, PartRole};
use super::people::Contact;
use super::rng::Rng;
use super::transport::TransportTrace;

/// The random stream of the transport fields.
const TRANSPORT_STREAM: u64 = 2 << 40;

/// A message as its sender wrote it, before any server added to it, with its facts.
#[derive(Debug)]
pub struct ComposedLetter {
    pub kind: MailKind,
    pub language: Language,
    /// The position in the generator's sequence.
    pub number: u64,
    pub from: Contact,
    /// Where failures are reported: the sender, a list's address, or empty for automatic mail.
    pub return_path: String,
    pub to: Vec<Contact>,
    pub cc: Vec<Contact>,
    pub subject: String,
    pub message_id: String,
    pub sent_at: Timestamp,
    pub received_at: Timestamp,
    /// Parts marked as attachments.
    pub attachments: usize,
    /// Pictures shown inside the text.
    pub inline_images: usize,
    /// The sender's copy; recipients get [`ComposedLetter::delivered_to`].
    pub bytes: Vec<u8>,
}

impl ComposedLetter {
    pub fn recipients(&self) -> impl Iterator<Item = &Contact> {
        self.to.iter().chain(&self.cc)
    }

    /// Returns the bytes as delivered to every recipient at one domain.
    pub fn delivered_to(&self, seed: u64, domain: &str) -> Vec<u8> {
        let mut at_domain = self.recipients().filter(|contact| contact.domain() == domain);
        let only_recipient = match (at_domain.next(), at_domain.next()) {
            (Some(recipient), None) => Some(recipient.address.as_str()),
            _ => None,
        };
        let route = TransportTrace {
            return_path: &self.return_path,
            from_domain: self.return_path.split_once('@').map_or(self.from.domain(), |(_, domain)| domain),
            to_domain: domain,
            only_recipient,
            received_at: self.received_at,
        };
        let domain_mark = domain.bytes().fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
        let fields = route.fields(&mut Rng::for_part(seed ^ domain_mark, TRANSPORT_STREAM + self.number));
        let mut raw = Vec::with_capacity(fields.len() + self.bytes.len());
        raw.extend_from_slice(fields.as_bytes());
        raw.extend_from_slice(&self.bytes);
        raw
    }
}

/// The part of a letter that its kind decides; the composer adds the rest.
#[derive(Debug)]
pub struct Draft {
    pub kind: MailKind,
    pub style: WritingStyle,
    pub language: Language,
    pub from: Contact,
    /// The return path, where it is not the sender's address.
    pub return_path: Option<String>,
    pub to: Vec<Contact>,
    pub cc: Vec<Contact>,
    pub subject: String,
    pub message_id: String,
    /// Further header fields, each ended by CRLF.
    pub fields: String,
    pub body: MimePart,
}

impl Draft {
    pub fn into_letter(self, number: u64, sent_at: Timestamp, received_at: Timestamp) -> ComposedLetter {
        let mut bytes = self.header_fields(sent_at).into_bytes();
        self.body.write(&mut bytes);
        ComposedLetter {
            kind: self.kind,
            language: self.language,
            number,
            sent_at,
            received_at,
            attachments: self.body.count(PartRole::Attached),
            inline_images: self.body.count(PartRole::Inline),
            return_path: self.return_path.unwrap_or_else(|| self.from.address.clone()),
            from: self.from,
            to: self.to,
            cc: self.cc,
            subject: self.subject,
            message_id: self.message_id,
            bytes,
        }
    }

    fn header_fields(&self, sent_at: Timestamp) -> String {
        let WritingStyle { client, charset } = self.style;
        let mut headers = Headers::default();
        headers.text.reserve(1_024);
        headers.field("Message-ID", &format!("<{}>", self.message_id));
        headers.field("Date", &dates::rfc5322(sent_at, dates::utc_offset_hours(self.language)));
        headers.field("MIME-Version", "1.0");
        for (name, people) in [("From", std::slice::from_ref(&self.from)), ("To", &self.to), ("Cc", &self.cc)] {
            if !people.is_empty() {
                let pairs = people.iter().map(|contact| (contact.name.as_str(), contact.address.as_str()));
                headers.addresses(name, pairs, charset, client.words);
            }
        }
        headers.unstructured("Subject", &self.subject, charset, client.words);
        headers.text.push_str(&self.fields);
        headers.text
    }
}
