//! TNEF (winmail.dat, MS-OXTNEF): the container in which Outlook sends what MIME cannot express.

use std::borrow::Cow;

use domain::{Address, MessageLimits};

use super::attachments::{self, DecodeBudget};
use super::defects::{Defect, Defects};
use super::mapi::{self, MapiProperties, id, kind};
use super::{Attachment, ParsedEmail, charset, dates, text};
use crate::spool::SpoolableBytes;

const MAGIC: &[u8] = &[0x78, 0x9F, 0x3E, 0x22];
/// The media type by which a container is sniffed.
pub const TNEF_CONTENT_TYPE: &str = "application/ms-tnef";
/// Containers in containers are opened this far; below, the container itself is the attachment.
const MAX_CONTAINER_DEPTH: usize = 4;

pub fn is_tnef(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// What a container inside a mail adds to it.
#[derive(Debug, Default)]
pub struct TnefContents {
    pub text: Option<String>,
    pub html: Option<String>,
    pub attachments: Vec<Attachment>,
}

/// Reads a container that is part `path` of a mail.
pub fn read(bytes: &[u8], path: &str, budget: &mut DecodeBudget, defects: &mut Defects) -> TnefContents {
    let email = message(bytes, &format!("{path}.t"), 0, &MessageLimits::default(), budget, defects);
    TnefContents { text: email.body_text, html: email.body_html, attachments: email.attachments }
}

/// Reads a container that is all there is.
pub fn read_bare(
    bytes: &[u8],
    limits: &MessageLimits,
    budget: &mut DecodeBudget,
    defects: &mut Defects,
) -> ParsedEmail {
    message(bytes, "t", 0, limits, budget, defects)
}

fn message(
    bytes: &[u8],
    prefix: &str,
    depth: usize,
    limits: &MessageLimits,
    budget: &mut DecodeBudget,
    defects: &mut Defects,
) -> ParsedEmail {
    let parsed = TnefContainer::parse(bytes, limits.parts, defects);
    let mut email = ParsedEmail::default();
    mapi::fill(&parsed.props, &parsed.recipients, limits, &mut email, defects);
    parsed.fill_from_attributes(&mut email, defects);
    for (number, attachment) in (1..).zip(&parsed.attachments) {
        if !budget.admits_part(defects) {
            break;
        }
        let found = attachment.read(format!("{prefix}{number}"), depth, limits, budget, defects);
        email.attachments.extend(found);
    }
    email
}

/// A container's attributes, borrowed from its bytes.
#[derive(Default)]
struct TnefContainer<'a> {
    props: MapiProperties<'a>,
    recipients: Vec<MapiProperties<'a>>,
    attachments: Vec<TnefFile<'a>>,
    subject: Option<&'a [u8]>,
    body: Option<&'a [u8]>,
    from: Option<&'a [u8]>,
    sent: Option<&'a [u8]>,
    message_id: Option<&'a [u8]>,
}

#[derive(Default)]
struct TnefFile<'a> {
    title: Option<&'a [u8]>,
    data: Option<&'a [u8]>,
    props: MapiProperties<'a>,
}

impl<'a> TnefContainer<'a> {
    fn parse(bytes: &'a [u8], most: usize, defects: &mut Defects) -> Self {
        let mut container = Self::default();
        let mut cursor = TnefCursor(bytes.get(6..).unwrap_or_default());
        let mut page = None;
        while !cursor.0.is_empty() {
            let Some((attribute, data)) = cursor.attribute() else {
                defects.add(Defect::BadTnef);
                break;
            };
            match attribute {
                0x8000 => container.from = Some(data),
                0x8004 => container.subject = Some(data),
                0x8005 => container.sent = Some(data),
                0x8009 => container.message_id = Some(data),
                0x800C => container.body = Some(data),
                0x9003 => container.props = TnefCursor(data).props(defects),
                0x9004 => container.recipients = TnefCursor(data).table(most, defects),
                0x9007 => page = TnefCursor(data).u32().and_then(|page| mapi::code_page(i64::from(page))),
                // Rendering data opens an attachment; the others belong to the last one opened.
                0x9002 if container.attachments.len() < most => container.attachments.push(TnefFile::default()),
                0x9002 => defects.add(Defect::TooManyParts),
                0x800F | 0x8010 | 0x9005 => {
                    if let Some(file) = container.attachments.last_mut() {
                        match attribute {
                            0x800F => file.data = Some(data),
                            0x8010 => file.title = Some(data),
                            _ => file.props = TnefCursor(data).props(defects),
                        }
                    }
                }
                _ => {}
            }
        }
        let all = std::iter::once(&mut container.props).chain(&mut container.recipients);
        for props in all.chain(container.attachments.iter_mut().map(|file| &mut file.props)) {
            props.charset.clone_from(&page);
        }
        container.props.learn_charset();
        container
    }

    /// Fills what the properties left empty from the older attributes.
    fn fill_from_attributes(&self, email: &mut ParsedEmail, defects: &mut Defects) {
        let label = self.props.charset.as_deref();
        let mut read = |bytes: Option<&[u8]>| {
            let bytes = bytes?;
            let end = memchr::memchr(0, bytes).unwrap_or(bytes.len());
            Some(charset::decode(bytes.get(..end)?, label, defects)).filter(|text| !text.trim().is_empty())
        };
        let subject = read(self.subject);
        let body = read(self.body);
        let message_id = read(self.message_id);
        let from = self.from.and_then(triple);
        let from = from.map(|(name, address)| (read(Some(name)), read(Some(address))));
        email.subject = email.subject.take().or(subject.map(|subject| text::single_line(subject, defects)));
        email.body_text = email.body_text.take().or(body.map(|body| text::lines(body, defects)));
        if email.message_id.is_none() && message_id.as_ref().is_some_and(|id| id.contains('@')) {
            email.message_id = message_id.map(|id| text::single_line(id, defects));
        }
        if email.from.is_none()
            && let Some((name, Some(address))) = from
        {
            let address = address.split_once(':').map_or(address.as_str(), |(_, address)| address);
            let address = text::single_line(address.to_owned(), defects);
            let name = name.map(|name| text::single_line(name, defects));
            email.from = Some(Address { name, address });
        }
        email.sent_at = email.sent_at.or(self.sent.and_then(date));
    }
}

impl TnefFile<'_> {
    fn read(
        &self,
        path: String,
        depth: usize,
        limits: &MessageLimits,
        budget: &mut DecodeBudget,
        defects: &mut Defects,
    ) -> Option<Attachment> {
        let name = mapi::attachment_name(&self.props, defects).or_else(|| {
            let title = self.title?;
            let end = memchr::memchr(0, title).unwrap_or(title.len());
            let title = charset::decode(title.get(..end)?, self.props.charset.as_deref(), defects);
            Some(text::single_line(title, defects)).filter(|title| !title.is_empty())
        });
        // An object is preceded by the id of its interface.
        let object = self.props.bytes(id::ATTACH_DATA).map(|bytes| bytes.get(16..).unwrap_or(bytes));
        let data = self.data.filter(|data| !data.is_empty()).or(object)?;
        let content_id = self.props.line(id::ATTACH_CONTENT_ID, defects);
        let content_id = content_id.map(|id| id.trim_matches(['<', '>']).to_owned()).filter(|id| !id.is_empty());
        let mut attachment = if is_tnef(data) && depth < MAX_CONTAINER_DEPTH {
            let inner = message(data, "t", depth + 1, limits, budget, defects);
            attachments::inner_message(path, name, &inner, budget, defects)
        } else {
            let is_cut = !budget.admits(data.len() as u64, defects);
            let content = if is_cut { SpoolableBytes::default() } else { budget.keep(Cow::Borrowed(data)) };
            let content_type = mapi::attachment_type(&self.props, defects);
            Attachment { is_cut, ..attachments::inner(path, name, &content_type, content, budget) }
        };
        attachment.content_id = content_id;
        Some(attachment)
    }
}

/// Parses a sender in the old form: type, id, the lengths of name and address, then both.
fn triple(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let lengths = bytes.get(4..8)?;
    let name = usize::from(u16::from_le_bytes([lengths[0], lengths[1]]));
    let address = usize::from(u16::from_le_bytes([lengths[2], lengths[3]]));
    Some((bytes.get(8..8 + name)?, bytes.get(8 + name..8 + name + address)?))
}

/// Parses a date: year, month, day, hour, minute, second, each two bytes, in UTC.
fn date(bytes: &[u8]) -> Option<jiff::Timestamp> {
    let mut fields = bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    let (year, month, day) = (fields.next()?, fields.next()?, fields.next()?);
    let (hour, minute, second) = (fields.next()?, fields.next()?, fields.next()?);
    dates::parse(&format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"))
}

/// Reads little-endian fields and stops at the end of the bytes.
struct TnefCursor<'a>(&'a [u8]);

impl<'a> TnefCursor<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|b| u16::from_le_bytes([b[0], b[1]]))
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }

    /// Reads one attribute: level, id, length, data, checksum.
    fn attribute(&mut self) -> Option<(u32, &'a [u8])> {
        self.take(1)?;
        let attribute = self.u32()? & 0xFFFF;
        let length = usize::try_from(self.u32()?).ok()?;
        let data = self.take(length)?;
        self.take(2.min(self.0.len()))?;
        Some((attribute, data))
    }

    /// Rows of properties: the recipients.
    fn table(&mut self, most: usize, defects: &mut Defects) -> Vec<MapiProperties<'a>> {
        let rows = self.u32().unwrap_or(0);
        let mut found = Vec::new();
        for _ in 0..rows {
            if self.0.is_empty() || found.len() >= most {
                break;
            }
            let mut row = MapiProperties::default();
            if self.row(&mut row).is_none() {
                defects.add(Defect::BadTnef);
                break;
            }
            found.push(row);
        }
        found
    }

    fn props(&mut self, defects: &mut Defects) -> MapiProperties<'a> {
        let mut props = MapiProperties::default();
        if self.row(&mut props).is_none() {
            defects.add(Defect::BadTnef);
        }
        props
    }

    fn row(&mut self, props: &mut MapiProperties<'a>) -> Option<()> {
        for _ in 0..self.u32()? {
            let (kind, id) = (self.u16()?, self.u16()?);
            if id >= 0x8000 {
                self.take(16)?;
                match self.u32()? {
                    0 => self.take(4)?,
                    _ => {
                        let length = usize::try_from(self.u32()?).ok()?;
                        self.padded(length)?
                    }
                };
            }
            self.value(kind, id, props)?;
        }
        Some(())
    }

    fn value(&mut self, tag: u16, id: u16, props: &mut MapiProperties<'a>) -> Option<()> {
        let is_multiple = tag & 0x1000 != 0;
        let kind = tag & 0x0FFF;
        let is_long = matches!(kind, kind::STRING8 | kind::UNICODE | kind::BINARY | kind::OBJECT);
        let count = if is_multiple || is_long { self.u32()? } else { 1 };
        for _ in 0..count {
            if is_long {
                let length = usize::try_from(self.u32()?).ok()?;
                let bytes = self.padded(length)?;
                if id::is_wanted(id) && !is_multiple {
                    props.insert_raw(id, kind, Cow::Borrowed(bytes));
                }
                continue;
            }
            let size = match kind {
                0x0005 | 0x0006 | 0x0007 | 0x0014 | kind::TIME => 8,
                0x0048 => 16,
                0x0000 | 0x0001 => 0,
                _ => 4,
            };
            if size == 0 {
                return Some(()); // an empty value takes no bytes, however many are promised
            }
            let bytes = self.take(size)?;
            let mut fixed = [0u8; 8];
            fixed.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            if id::is_wanted(id) && !is_multiple {
                props.insert_fixed(id, kind, fixed);
            }
        }
        Some(())
    }

    /// Values are padded to four bytes, except that the last one may not be.
    fn padded(&mut self, length: usize) -> Option<&'a [u8]> {
        let bytes = self.take(length)?;
        let padding = length.next_multiple_of(4) - length;
        self.take(padding.min(self.0.len()))?;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget() -> DecodeBudget<'static> {
        DecodeBudget::new(&MessageLimits::default(), None)
    }

    fn attribute(out: &mut Vec<u8>, level: u8, id: u32, data: &[u8]) {
        out.push(level);
        out.extend(id.to_le_bytes());
        out.extend((data.len() as u32).to_le_bytes());
        out.extend(data);
        out.extend([0, 0]);
    }

    fn container(subject: &[u8], file: &[u8]) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend([1, 0]);
        attribute(&mut out, 1, 0x0001_8004, subject);
        attribute(&mut out, 2, 0x0006_9002, &[0; 14]);
        attribute(&mut out, 2, 0x0001_8010, b"a.bin\0");
        attribute(&mut out, 2, 0x0006_800F, file);
        out
    }

    #[test]
    fn files_come_out_with_their_names() {
        let email =
            read_bare(&container(b"Hi\0", b"data"), &MessageLimits::default(), &mut budget(), &mut Defects::default());

        assert_eq!(email.subject.as_deref(), Some("Hi"));
        assert_eq!(email.attachments[0].path, "t1");
        assert_eq!(email.attachments[0].filename.as_deref(), Some("a.bin"));
        assert_eq!(email.attachments[0].content.in_memory(), b"data");
    }

    #[test]
    fn a_message_inside_is_an_attached_message() {
        let outer = container(b"Outer\0", &container(b"Inner\0", b"deep"));

        let email = read_bare(&outer, &MessageLimits::default(), &mut budget(), &mut Defects::default());

        assert_eq!(email.attachments[0].content_type, "message/rfc822");
        let inner = crate::mime::parse(email.attachments[0].content.in_memory(), &MessageLimits::default());
        assert_eq!(inner.subject.as_deref(), Some("Inner"));
        assert_eq!(inner.attachments[0].content.in_memory(), b"deep");
    }

    #[test]
    fn endless_nesting_is_opened_only_so_far() {
        let mut bytes = container(b"0\0", b"bottom");
        for _ in 0..50 {
            bytes = container(b"n\0", &bytes);
        }

        let email = read_bare(&bytes, &MessageLimits::default(), &mut budget(), &mut Defects::default());

        assert_eq!(email.attachments.len(), 1);
    }

    #[test]
    fn truncated_container_is_read_up_to_the_cut() {
        let whole = container(b"Hi\0", b"data");
        for end in 0..whole.len() {
            let mut defects = Defects::default();

            read_bare(&whole[..end], &MessageLimits::default(), &mut budget(), &mut defects);
        }
        let mut defects = Defects::default();
        let email = read_bare(&whole[..whole.len() - 8], &MessageLimits::default(), &mut budget(), &mut defects);

        assert_eq!(email.subject.as_deref(), Some("Hi"));
        assert_eq!(defects.names(), ["bad_tnef"]);
    }
}
