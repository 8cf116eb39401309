//! Outlook .msg files: MAPI properties in an OLE compound file (MS-OXMSG).

use std::borrow::Cow;
use std::io::{self, Read, Seek, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

use cfb::CompoundFile;
use domain::MessageLimits;

use super::attachments::{self, DecodeBudget};
use super::defects::{Defect, Defects};
use super::mapi::{self, MapiProperties, id, kind};
use super::{Attachment, ParsedEmail};
use crate::spool::SpoolableBytes;

const MAGIC: &[u8] = &[0xD0, 0xCF, 0x11, 0xE0, 0xA1, 0xB1, 0x1A, 0xE1];
const PROPERTIES: &str = "__properties_version1.0";
/// The most that is read into memory of all that is not an attachment: bodies, headers, names.
const MAX_PROPERTY_BYTES: u64 = 32 << 20;
/// The depth to which messages within messages are opened.
const MAX_MESSAGE_DEPTH: usize = 4;

pub fn is_msg(raw: &[u8]) -> bool {
    raw.starts_with(MAGIC)
}

pub fn read<F: Read + Seek>(
    raw: F,
    limits: &MessageLimits,
    budget: &mut DecodeBudget,
    defects: &mut Defects,
) -> ParsedEmail {
    // The container format is read by someone else's code; a panic in it must cost this file and nothing more.
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut found = Defects::default();
        let file = CompoundFile::open(raw).ok()?;
        let (left, held) = (budget.left(), budget.left().min(MAX_PROPERTY_BYTES));
        let mut reader = MsgReader { file, limits, defects: &mut found, left, held, budget };
        let email = reader.message("", 32, 0);
        Some((email, found))
    }));
    if let Ok(Some((email, found))) = outcome {
        defects.merge(found);
        return email;
    }
    defects.add(Defect::BadMsg);
    ParsedEmail::default()
}

struct MsgReader<'b, 's, 'c, F> {
    file: CompoundFile<F>,
    limits: &'c MessageLimits,
    defects: &'c mut Defects,
    /// Bytes that may still be read: streams may share sectors, so the size of the file is no bound.
    left: u64,
    /// Those of them that may still be read into memory.
    held: u64,
    budget: &'b mut DecodeBudget<'s>,
}

impl<F: Read + Seek> MsgReader<'_, '_, '_, F> {
    /// Reads the message in a storage whose property stream has a header of this size.
    fn message(&mut self, storage: &str, header: usize, depth: usize) -> ParsedEmail {
        let mut props = self.props(storage, header);
        props.learn_charset();
        let charset = props.charset.clone();
        let (mut recipients, mut attachments) = (Vec::new(), Vec::new());
        for (name, _) in self.children(storage, true) {
            let path = format!("{storage}/{name}");
            if name.starts_with("__recip_version1.0_") {
                let mut recipient = self.props(&path, 8);
                recipient.charset.clone_from(&charset);
                recipients.push(recipient);
            } else if name.starts_with("__attach_version1.0_") && self.budget.admits_part(self.defects) {
                attachments.extend(self.attachment(&path, attachments.len() + 1, charset.as_ref(), depth));
            }
        }
        let mut email = ParsedEmail { attachments, ..ParsedEmail::default() };
        mapi::fill(&props, &recipients, self.limits, &mut email, self.defects);
        email
    }

    fn attachment(
        &mut self,
        storage: &str,
        number: usize,
        charset: Option<&String>,
        depth: usize,
    ) -> Option<Attachment> {
        let mut props = self.props(storage, 8);
        props.charset = charset.cloned();
        let name = mapi::attachment_name(&props, self.defects);
        let path = number.to_string();
        let object = format!("{storage}/__substg1.0_3701000D");
        // Method 5 is a message; other objects (OLE) are storages without bytes of their own.
        if self.file.is_storage(&object) {
            if props.number(id::ATTACH_METHOD) != Some(5) || depth >= MAX_MESSAGE_DEPTH {
                let found =
                    attachments::inner(path, name, "application/x-ole-storage", SpoolableBytes::default(), self.budget);
                return Some(Attachment { is_cut: true, ..found });
            }
            let inner = self.message(&object, 24, depth + 1);
            return Some(attachments::inner_message(path, name, &inner, self.budget, self.defects));
        }
        let content_type = mapi::attachment_type(&props, self.defects);
        let content_id = props.line(id::ATTACH_CONTENT_ID, self.defects);
        let (content, is_cut) = self.content(storage);
        let content_id = content_id.map(|id| id.trim_matches(['<', '>']).to_owned()).filter(|id| !id.is_empty());
        Some(Attachment { content_id, is_cut, ..attachments::inner(path, name, &content_type, content, self.budget) })
    }

    /// Returns the bytes of an attachment, and whether there are too many of them.
    fn content(&mut self, storage: &str) -> (SpoolableBytes, bool) {
        let Ok(mut stream) = self.file.open_stream(format!("{storage}/__substg1.0_37010102")) else {
            return (SpoolableBytes::default(), false);
        };
        let length = stream.len();
        if length > self.left {
            self.defects.add(Defect::DecodedTooLarge);
            return (SpoolableBytes::default(), true);
        }
        if !self.budget.admits(length, self.defects) {
            return (SpoolableBytes::default(), true);
        }
        self.left -= length;
        let mut is_bad = false;
        let mut copy = |out: &mut dyn Write| {
            let mut piece = vec![0; 64 << 10];
            loop {
                match stream.read(&mut piece) {
                    Ok(0) => return Ok(()),
                    Ok(count) => out.write_all(&piece[..count])?,
                    // The file is broken; what could be read of it counts.
                    Err(_) => {
                        is_bad = true;
                        return Ok(());
                    }
                }
            }
        };
        let content = if self.budget.holds(usize::try_from(length).unwrap_or(usize::MAX)) {
            let mut bytes = Vec::new();
            // Memory takes everything.
            let _: io::Result<()> = copy(&mut bytes);
            self.budget.keep(Cow::Owned(bytes))
        } else {
            self.budget.spool(|writer| copy(writer))
        };
        if is_bad {
            self.defects.add(Defect::BadMsg);
        }
        (content, false)
    }

    /// Returns every property in a storage: small ones from its property stream, others from a stream each.
    fn props(&mut self, storage: &str, header: usize) -> MapiProperties<'static> {
        let mut props = MapiProperties::default();
        let fixed = self.stream(&format!("{storage}/{PROPERTIES}")).unwrap_or_default();
        for entry in fixed.get(header..).unwrap_or_default().chunks_exact(16) {
            let [a, b, c, d, _, _, _, _, value @ ..] = entry else { continue };
            let mut bytes = [0u8; 8];
            bytes.iter_mut().zip(value).for_each(|(to, from)| *to = *from);
            props.insert_fixed(u16::from_le_bytes([*c, *d]), u16::from_le_bytes([*a, *b]), bytes);
        }
        for (name, _) in self.children(storage, false) {
            // The bytes of an attachment are many; they are read on their own.
            let Some((id, kind)) = tag(&name).filter(|(id, _)| id::is_wanted(*id) && *id != id::ATTACH_DATA) else {
                continue;
            };
            if let Some(bytes) = self.stream(&format!("{storage}/{name}")) {
                props.insert_raw(id, kind, Cow::Owned(bytes));
            }
        }
        props
    }

    /// Returns names and sizes of what is in a storage.
    fn children(&mut self, storage: &str, wants_storages: bool) -> Vec<(String, u64)> {
        let path = if storage.is_empty() { "/" } else { storage };
        let Ok(entries) = self.file.read_storage(path) else { return Vec::new() };
        // A message has some dozen properties, and recipients and attachments under the limit.
        let most = self.limits.parts.saturating_add(1000);
        let wanted = entries.filter(|entry| entry.is_storage() == wants_storages);
        wanted.take(most).map(|entry| (entry.name().to_owned(), entry.len())).collect()
    }

    fn stream(&mut self, path: &str) -> Option<Vec<u8>> {
        let stream = self.file.open_stream(path).ok()?;
        if stream.len() > self.left.min(self.held) {
            self.defects.add(Defect::DecodedTooLarge);
            return None;
        }
        let mut bytes = Vec::new();
        let length = stream.len();
        if stream.take(length).read_to_end(&mut bytes).is_err() {
            self.defects.add(Defect::BadMsg);
        }
        self.left = self.left.saturating_sub(bytes.len() as u64);
        self.held = self.held.saturating_sub(bytes.len() as u64);
        Some(bytes)
    }
}

/// Parses id and type in a name such as `__substg1.0_0037001F`.
fn tag(name: &str) -> Option<(u16, u16)> {
    let digits = name.strip_prefix("__substg1.0_")?;
    if digits.len() != 8 || !digits.is_ascii() {
        return None;
    }
    let (id, kind) = digits.split_at(4);
    Some((u16::from_str_radix(id, 16).ok()?, u16::from_str_radix(kind, 16).ok().filter(|&k| k != kind::OBJECT)?))
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write};

    use super::*;

    fn parsed(raw: &[u8], defects: &mut Defects) -> ParsedEmail {
        let limits = MessageLimits::default();
        read(Cursor::new(raw), &limits, &mut DecodeBudget::new(&limits, None), defects)
    }

    fn write(file: &mut CompoundFile<Cursor<Vec<u8>>>, path: &str, bytes: &[u8]) {
        file.create_stream(path).unwrap().write_all(bytes).unwrap();
    }

    fn wide(text: &str) -> Vec<u8> {
        text.encode_utf16().flat_map(u16::to_le_bytes).collect()
    }

    /// Properties of fixed size behind a header.
    fn fixed(header: usize, entries: &[(u16, u16, u64)]) -> Vec<u8> {
        let mut out = vec![0; header];
        for (id, kind, value) in entries {
            out.extend(kind.to_le_bytes());
            out.extend(id.to_le_bytes());
            out.extend([0; 4]);
            out.extend(value.to_le_bytes());
        }
        out
    }

    fn sample() -> Vec<u8> {
        let mut file = CompoundFile::create(Cursor::new(Vec::new())).unwrap();
        let submitted = (1_709_632_800 + 11_644_473_600u64) * 10_000_000;
        write(&mut file, "/__properties_version1.0", &fixed(32, &[(id::SUBMIT_TIME, kind::TIME, submitted)]));
        write(&mut file, "/__substg1.0_0037001F", &wide("Grüße"));
        write(&mut file, "/__substg1.0_0042001F", &wide("Ann Example"));
        write(&mut file, "/__substg1.0_5D02001F", &wide("ann@example.com"));
        write(&mut file, "/__substg1.0_1000001F", &wide("Hello\r\nBob"));
        file.create_storage("/__recip_version1.0_#00000000").unwrap();
        write(
            &mut file,
            "/__recip_version1.0_#00000000/__properties_version1.0",
            &fixed(8, &[(id::RECIPIENT_TYPE, kind::LONG, 1)]),
        );
        write(&mut file, "/__recip_version1.0_#00000000/__substg1.0_39FE001F", &wide("bob@example.test"));
        file.create_storage("/__attach_version1.0_#00000000").unwrap();
        write(&mut file, "/__attach_version1.0_#00000000/__substg1.0_3707001F", &wide("plan.pdf"));
        write(&mut file, "/__attach_version1.0_#00000000/__substg1.0_37010102", b"%PDF-1.4");
        let inner = "/__attach_version1.0_#00000001";
        file.create_storage(inner).unwrap();
        write(&mut file, &format!("{inner}/__properties_version1.0"), &fixed(8, &[(id::ATTACH_METHOD, kind::LONG, 5)]));
        file.create_storage(format!("{inner}/__substg1.0_3701000D")).unwrap();
        write(&mut file, &format!("{inner}/__substg1.0_3701000D/__substg1.0_0037001F"), &wide("Inner"));
        file.into_inner().into_inner()
    }

    #[test]
    fn a_message_is_read_with_its_people_and_files() {
        let mut defects = Defects::default();

        let email = parsed(&sample(), &mut defects);

        assert_eq!(email.subject.as_deref(), Some("Grüße"));
        assert_eq!(email.from.unwrap().address, "ann@example.com");
        assert_eq!(email.recipients[0].address.address, "bob@example.test");
        assert_eq!(email.sent_at.unwrap().to_string(), "2024-03-05T10:00:00Z");
        assert_eq!(email.body_text.as_deref(), Some("Hello\nBob"));
        assert_eq!(email.attachments[0].filename.as_deref(), Some("plan.pdf"));
        assert_eq!(email.attachments[0].sniffed_type.as_deref(), Some("application/pdf"));
        assert_eq!(email.attachments[1].content_type, "message/rfc822");
        assert_eq!(email.attachments[1].filename.as_deref(), Some("Inner"));
        assert!(defects.names().is_empty());
    }

    #[test]
    fn a_broken_file_is_an_email_with_a_defect() {
        let whole = sample();
        let mut random = 0x2545_F491_4F6C_DD1Du64;
        for _ in 0..500 {
            let mut broken = whole.clone();
            for _ in 0..4 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let at = 8 + usize::try_from(random % (broken.len() as u64 - 8)).unwrap();
                broken[at] = random.to_le_bytes()[5];
            }

            parsed(&broken, &mut Defects::default());
        }
        let mut defects = Defects::default();
        parsed(&whole[..600], &mut defects);

        assert_eq!(defects.names(), ["bad_msg"]);
    }
}
