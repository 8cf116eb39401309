//! The properties in which Outlook keeps a message, the same in TNEF and in .msg files.

use std::borrow::Cow;
use std::collections::BTreeMap;

use domain::{Address, MessageLimits, Recipient, RecipientKind};
use jiff::Timestamp;

use super::defects::Defects;
use super::headers::{HeaderReader, HeaderSection};
use super::{ParsedEmail, charset, fields, rtf, text};

/// Property ids of MS-OXPROPS that we read.
pub mod id {
    pub const SUBJECT: u16 = 0x0037;
    pub const SUBMIT_TIME: u16 = 0x0039;
    pub const REPRESENTING_NAME: u16 = 0x0042;
    pub const REPRESENTING_EMAIL: u16 = 0x0065;
    pub const TRANSPORT_HEADERS: u16 = 0x007D;
    pub const RECIPIENT_TYPE: u16 = 0x0C15;
    pub const SENDER_NAME: u16 = 0x0C1A;
    pub const SENDER_EMAIL: u16 = 0x0C1F;
    pub const DISPLAY_BCC: u16 = 0x0E02;
    pub const DISPLAY_CC: u16 = 0x0E03;
    pub const DISPLAY_TO: u16 = 0x0E04;
    pub const DELIVERY_TIME: u16 = 0x0E06;
    pub const BODY: u16 = 0x1000;
    pub const RTF_COMPRESSED: u16 = 0x1009;
    pub const HTML: u16 = 0x1013;
    pub const MESSAGE_ID: u16 = 0x1035;
    pub const REFERENCES: u16 = 0x1039;
    pub const IN_REPLY_TO: u16 = 0x1042;
    pub const DISPLAY_NAME: u16 = 0x3001;
    pub const EMAIL: u16 = 0x3003;
    pub const SMTP: u16 = 0x39FE;
    pub const SENDER_SMTP: u16 = 0x5D01;
    pub const REPRESENTING_SMTP: u16 = 0x5D02;
    pub const ATTACH_DATA: u16 = 0x3701;
    pub const ATTACH_FILENAME: u16 = 0x3704;
    pub const ATTACH_METHOD: u16 = 0x3705;
    pub const ATTACH_LONG_FILENAME: u16 = 0x3707;
    pub const ATTACH_MIME: u16 = 0x370E;
    pub const ATTACH_CONTENT_ID: u16 = 0x3712;
    pub const INTERNET_CODEPAGE: u16 = 0x3FDE;
    pub const MESSAGE_CODEPAGE: u16 = 0x3FFD;

    /// Returns whether it is one of these properties; others are not kept.
    pub fn is_wanted(id: u16) -> bool {
        matches!(
            id,
            SUBJECT
                | SUBMIT_TIME
                | REPRESENTING_NAME
                | REPRESENTING_EMAIL
                | TRANSPORT_HEADERS
                | RECIPIENT_TYPE
                | SENDER_NAME
                | SENDER_EMAIL
                | DISPLAY_BCC
                | DISPLAY_CC
                | DISPLAY_TO
                | DELIVERY_TIME
                | BODY
                | RTF_COMPRESSED
                | HTML
                | MESSAGE_ID
                | REFERENCES
                | IN_REPLY_TO
                | DISPLAY_NAME
                | EMAIL
                | SMTP
                | SENDER_SMTP
                | REPRESENTING_SMTP
                | ATTACH_DATA
                | ATTACH_FILENAME
                | ATTACH_METHOD
                | ATTACH_LONG_FILENAME
                | ATTACH_MIME
                | ATTACH_CONTENT_ID
                | INTERNET_CODEPAGE
                | MESSAGE_CODEPAGE
        )
    }
}

/// The low half of a property tag.
pub mod kind {
    pub const SHORT: u16 = 0x0002;
    pub const LONG: u16 = 0x0003;
    pub const OBJECT: u16 = 0x000D;
    pub const STRING8: u16 = 0x001E;
    pub const UNICODE: u16 = 0x001F;
    pub const TIME: u16 = 0x0040;
    pub const BINARY: u16 = 0x0102;
}

#[derive(Debug)]
pub enum MapiValue<'a> {
    Number(i64),
    Time(Timestamp),
    /// In the code page of the message.
    Ansi(Cow<'a, [u8]>),
    Unicode(String),
    Binary(Cow<'a, [u8]>),
}

/// Properties of a message, a recipient or an attachment.
#[derive(Debug, Default)]
pub struct MapiProperties<'a> {
    values: BTreeMap<u16, MapiValue<'a>>,
    /// A label for `charset`, from the code page of the message.
    pub charset: Option<String>,
}

impl<'a> MapiProperties<'a> {
    pub fn insert(&mut self, id: u16, value: MapiValue<'a>) {
        // The first one counts, as everywhere.
        self.values.entry(id).or_insert(value);
    }

    /// Inserts a property of variable length, as it is stored.
    pub fn insert_raw(&mut self, id: u16, kind: u16, bytes: Cow<'a, [u8]>) {
        match kind {
            kind::UNICODE => self.insert(id, MapiValue::Unicode(from_utf16(&bytes))),
            kind::STRING8 => self.insert(id, MapiValue::Ansi(bytes)),
            kind::BINARY | kind::OBJECT => self.insert(id, MapiValue::Binary(bytes)),
            _ => {}
        }
    }

    /// Inserts a property that fits into eight bytes.
    pub fn insert_fixed(&mut self, id: u16, kind: u16, bytes: [u8; 8]) {
        let [a, b, c, d, ..] = bytes;
        match kind {
            kind::SHORT => self.insert(id, MapiValue::Number(i64::from(i16::from_le_bytes([a, b])))),
            kind::LONG => self.insert(id, MapiValue::Number(i64::from(i32::from_le_bytes([a, b, c, d])))),
            kind::TIME => {
                if let Some(time) = file_time(u64::from_le_bytes(bytes)) {
                    self.insert(id, MapiValue::Time(time));
                }
            }
            _ => {}
        }
    }

    pub fn number(&self, id: u16) -> Option<i64> {
        match self.values.get(&id)? {
            MapiValue::Number(number) => Some(*number),
            _ => None,
        }
    }

    pub fn time(&self, id: u16) -> Option<Timestamp> {
        match self.values.get(&id)? {
            MapiValue::Time(time) => Some(*time),
            _ => None,
        }
    }

    pub fn bytes(&self, id: u16) -> Option<&[u8]> {
        match self.values.get(&id)? {
            MapiValue::Binary(bytes) | MapiValue::Ansi(bytes) => Some(bytes),
            _ => None,
        }
    }

    pub fn text(&self, id: u16, defects: &mut Defects) -> Option<String> {
        let text = match self.values.get(&id)? {
            MapiValue::Unicode(text) => text.clone(),
            MapiValue::Ansi(bytes) => {
                let end = bytes.iter().rposition(|&b| b != 0).map_or(0, |last| last + 1);
                charset::decode(bytes.get(..end).unwrap_or_default(), self.charset.as_deref(), defects)
            }
            _ => return None,
        };
        Some(text).filter(|text| !text.is_empty())
    }

    /// Returns a text property as one line.
    pub fn line(&self, id: u16, defects: &mut Defects) -> Option<String> {
        let line = text::single_line(self.text(id, defects)?, defects);
        Some(line).filter(|line| !line.is_empty())
    }

    /// Sets the charset to the code page that the message names itself.
    pub fn learn_charset(&mut self) {
        let page = self.number(id::MESSAGE_CODEPAGE).or(self.number(id::INTERNET_CODEPAGE));
        self.charset = page.and_then(code_page).or(self.charset.take());
    }
}

/// Returns the charset label of a Windows code page.
pub fn code_page(number: i64) -> Option<String> {
    Some(match number {
        20127 => "us-ascii".to_owned(),
        28591..=28605 => format!("iso-8859-{}", number - 28590),
        51932 => "euc-jp".to_owned(),
        51949 => "euc-kr".to_owned(),
        54936 => "gb18030".to_owned(),
        1..=99999 => format!("cp{number}"),
        _ => return None,
    })
}

pub fn from_utf16(bytes: &[u8]) -> String {
    let units = bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    let text: String = char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
    text.trim_end_matches('\0').to_owned()
}

/// Converts a Windows file time: 100 ns ticks since 1601.
fn file_time(ticks: u64) -> Option<Timestamp> {
    let seconds = i64::try_from(ticks / 10_000_000).ok()?.checked_sub(11_644_473_600)?;
    // The years that mail can be of, as for the Date header.
    (0..=4_133_980_799).contains(&seconds).then(|| Timestamp::from_second(seconds).ok()).flatten()
}

/// Fills an email from the properties of a message; its attachments are the caller's.
pub fn fill(
    props: &MapiProperties<'_>,
    recipients: &[MapiProperties<'_>],
    limits: &MessageLimits,
    email: &mut ParsedEmail,
    defects: &mut Defects,
) {
    if let Some(headers) = props.text(id::TRANSPORT_HEADERS, defects) {
        let headers = format!("{}\n\n", headers.trim());
        let section = HeaderSection::read(headers.as_bytes(), 0, limits.header_bytes, |_| false, defects);
        fields::read(&section, &HeaderReader::default(), email, defects);
    }
    email.subject = email.subject.take().or(props.line(id::SUBJECT, defects));
    email.message_id = email.message_id.take().or(first_message_id(props.line(id::MESSAGE_ID, defects)));
    email.in_reply_to = email.in_reply_to.take().or(first_message_id(props.line(id::IN_REPLY_TO, defects)));
    if email.references.is_empty() {
        email.references = props.line(id::REFERENCES, defects).map(|ids| fields::message_ids(&ids)).unwrap_or_default();
    }
    email.sent_at = email.sent_at.or(props.time(id::SUBMIT_TIME));
    email.received_at = email.received_at.or(props.time(id::DELIVERY_TIME));
    email.from = email.from.take().or(sender(props, defects));
    let has_senders_view = email.recipients.iter().any(|r| r.kind != RecipientKind::ReplyTo);
    if !has_senders_view {
        let mut found = addressed(props, recipients, defects);
        found.append(&mut email.recipients);
        email.recipients = found;
    }
    bodies(props, limits, email, defects);
}

fn sender(props: &MapiProperties<'_>, defects: &mut Defects) -> Option<Address> {
    let pairs = [
        (id::REPRESENTING_NAME, [id::REPRESENTING_SMTP, id::REPRESENTING_EMAIL]),
        (id::SENDER_NAME, [id::SENDER_SMTP, id::SENDER_EMAIL]),
    ];
    pairs.into_iter().find_map(|(name, emails)| person(props, name, &emails, defects))
}

/// Returns the address in the first property that holds one; an Exchange address counts only if there is no other.
fn person(props: &MapiProperties<'_>, name: u16, emails: &[u16], defects: &mut Defects) -> Option<Address> {
    let name = props.line(name, defects);
    let found: Vec<String> = emails.iter().filter_map(|&email| props.line(email, defects)).collect();
    let address = found.iter().find(|email| is_internet_address(email));
    let address = address.or(name.as_ref().filter(|name| is_internet_address(name))).or(found.first())?.clone();
    // Outlook often repeats the address as the name.
    let name = name.filter(|name| name.trim_matches('\'') != address);
    Some(Address { name, address })
}

fn is_internet_address(text: &str) -> bool {
    text.contains('@') && !text.contains(' ')
}

fn first_message_id(text: Option<String>) -> Option<String> {
    fields::message_ids(&text?).into_iter().next()
}

/// Returns the recipients from their table; without one, from the displayed names.
fn addressed(props: &MapiProperties<'_>, recipients: &[MapiProperties<'_>], defects: &mut Defects) -> Vec<Recipient> {
    let kinds = [RecipientKind::To, RecipientKind::Cc, RecipientKind::Bcc];
    let mut found = Vec::new();
    for (number, kind) in (1..).zip(kinds) {
        for recipient in recipients.iter().filter(|r| r.number(id::RECIPIENT_TYPE).unwrap_or(1) & 0xF == number) {
            let person = person(recipient, id::DISPLAY_NAME, &[id::SMTP, id::EMAIL], defects);
            found.extend(person.map(|address| Recipient { kind, address }));
        }
    }
    if found.is_empty() {
        for (shown, kind) in [id::DISPLAY_TO, id::DISPLAY_CC, id::DISPLAY_BCC].into_iter().zip(kinds) {
            let names = props.line(shown, defects).unwrap_or_default();
            // Names without an address are nobody one could write to.
            let addresses =
                names.split(';').map(|name| name.trim().trim_matches('\'')).filter(|name| name.contains('@'));
            let addresses = addresses.map(|address| Address { name: None, address: address.to_owned() });
            found.extend(addresses.map(|address| Recipient { kind, address }));
        }
    }
    found
}

fn bodies(props: &MapiProperties<'_>, limits: &MessageLimits, email: &mut ParsedEmail, defects: &mut Defects) {
    let most = limits.body_bytes.saturating_mul(8);
    let plain = props.text(id::BODY, defects).map(|body| text::lines(body, defects));
    let declared = props.number(id::INTERNET_CODEPAGE).and_then(code_page);
    let html = match props.bytes(id::HTML) {
        Some(bytes) => Some(charset::decode(bytes.get(..most).unwrap_or(bytes), declared.as_deref(), defects)),
        None => props.text(id::HTML, defects),
    };
    let rich = match (&plain, &html, props.bytes(id::RTF_COMPRESSED)) {
        (None, _, Some(packed)) | (_, None, Some(packed)) => rtf::decompress(packed, most).map(|rich| rtf::read(&rich)),
        _ => None,
    };
    let (rich_html, rich_text) = match rich {
        Some(rtf::RtfContent::Html(html)) => (Some(html), None),
        Some(rtf::RtfContent::Text(text)) => (None, Some(text)),
        None => (None, None),
    };
    let html = html.filter(|html| !html.trim().is_empty()).or(rich_html);
    email.body_html = html.map(|html| text::without_nul(html, defects));
    let text = plain.filter(|plain| !plain.trim().is_empty());
    let text = text.or_else(|| email.body_html.as_deref().map(super::html::to_text)).or(rich_text);
    email.body_text = text.map(|text| text::lines(text, defects)).filter(|text| !text.is_empty());
    for body in [&mut email.body_text, &mut email.body_html].into_iter().flatten() {
        text::truncate(body, limits.body_bytes, defects);
    }
}

/// Returns the name of an attachment, long form first.
pub fn attachment_name(props: &MapiProperties<'_>, defects: &mut Defects) -> Option<String> {
    props
        .line(id::ATTACH_LONG_FILENAME, defects)
        .or_else(|| props.line(id::ATTACH_FILENAME, defects))
        .or_else(|| props.line(id::DISPLAY_NAME, defects))
}

/// Returns the declared media type if it is well formed, else the type of arbitrary bytes.
pub fn attachment_type(props: &MapiProperties<'_>, defects: &mut Defects) -> String {
    let declared = props.line(id::ATTACH_MIME, defects).map(|name| name.to_ascii_lowercase());
    let valid = declared.filter(|name| name.contains('/') && name.bytes().all(|b| b.is_ascii_graphic()));
    valid.unwrap_or_else(|| "application/octet-stream".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ansi(text: &'static [u8]) -> Cow<'static, [u8]> {
        Cow::Borrowed(text)
    }

    #[test]
    fn properties_become_an_email() {
        let mut props = MapiProperties::default();
        props.insert_raw(id::SUBJECT, kind::UNICODE, Cow::Borrowed(b"H\0i\0\0\0"));
        props.insert_raw(id::REPRESENTING_NAME, kind::STRING8, ansi(b"Ann\xE9e\0"));
        props.insert_raw(id::REPRESENTING_EMAIL, kind::STRING8, ansi(b"/O=ORG/CN=ANN"));
        props.insert_raw(id::REPRESENTING_SMTP, kind::STRING8, ansi(b"ann@example.com"));
        props.insert_raw(id::BODY, kind::STRING8, ansi(b"one\r\ntwo"));
        props.insert_fixed(id::SUBMIT_TIME, kind::TIME, 133_485_408_000_000_000u64.to_le_bytes());
        props.charset = code_page(1252);
        let mut to = MapiProperties::default();
        to.insert_raw(id::SMTP, kind::STRING8, ansi(b"bob@example.com"));
        to.insert_fixed(id::RECIPIENT_TYPE, kind::LONG, [1, 0, 0, 0, 0, 0, 0, 0]);
        let mut email = ParsedEmail::default();

        fill(&props, &[to], &MessageLimits::default(), &mut email, &mut Defects::default());

        assert_eq!(email.subject.as_deref(), Some("Hi"));
        assert_eq!(email.from, Some(Address { name: Some("Année".to_owned()), address: "ann@example.com".to_owned() }));
        assert_eq!(email.recipients.len(), 1);
        assert_eq!(email.body_text.as_deref(), Some("one\ntwo"));
        assert_eq!(email.sent_at.unwrap().to_string(), "2024-01-01T00:00:00Z");
    }

    #[test]
    fn code_pages_have_names() {
        assert_eq!(code_page(28592).as_deref(), Some("iso-8859-2"));
        assert_eq!(code_page(932).as_deref(), Some("cp932"));
        assert_eq!(code_page(-1), None);
    }
}
