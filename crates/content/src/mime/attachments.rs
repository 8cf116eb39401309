//! Parts that a person would call attachments, with their bytes as far as the limits allow.

use std::borrow::Cow;
use std::collections::HashSet;
use std::io::{self, Write};

use domain::MessageLimits;

use super::compose;
use super::defects::{Defect, Defects};
use super::sniff;
use super::source::MessageSource;
use super::structure::Leaf;
use super::{AttachedMessage, Attachment, ParsedEmail};
use crate::spool::{Spool, SpoolWriter, SpoolableBytes};

/// Decoded parts of one message that may be in memory at once. Ordinary messages in memory are much smaller; an
/// Outlook file whose parts share their bytes can unpack to any size.
const MAX_IN_MEMORY_PART_BYTES: u64 = 32 << 20;

/// Counts decoded bytes and attachments of one message, and decides where they go.
#[derive(Debug)]
pub struct DecodeBudget<'s> {
    left: u64,
    attachment: u64,
    parts: usize,
    spool: Option<&'s Spool>,
    held: u64,
    /// Why the spool could not be used; the parsed email is unusable then.
    pub failed: Option<io::Error>,
}

impl<'s> DecodeBudget<'s> {
    /// Makes a budget. With a spool, large parts go there; without one everything is in memory, and what does not fit
    /// is cut.
    pub fn new(limits: &MessageLimits, spool: Option<&'s Spool>) -> Self {
        let left =
            if spool.is_some() { limits.decoded_bytes } else { limits.decoded_bytes.min(MAX_IN_MEMORY_PART_BYTES) };
        let (attachment, parts) = (limits.attachment_bytes, limits.parts);
        Self { left, attachment, parts, spool, held: MAX_IN_MEMORY_PART_BYTES, failed: None }
    }

    /// Returns whether a part of this size is kept in memory.
    pub fn holds(&self, bytes: usize) -> bool {
        self.spool.is_none_or(|spool| bytes <= spool.part_bytes && bytes as u64 <= self.held)
    }

    /// Takes bytes to where they belong.
    pub fn keep(&mut self, bytes: Cow<'_, [u8]>) -> SpoolableBytes {
        if self.holds(bytes.len()) {
            self.held = self.held.saturating_sub(bytes.len() as u64);
            return SpoolableBytes::from(bytes.into_owned());
        }
        self.spool(|writer| writer.write_all(&bytes))
    }

    /// Takes what is written to the spool, if there is one.
    pub fn spool(&mut self, write: impl FnOnce(&mut SpoolWriter) -> io::Result<()>) -> SpoolableBytes {
        let Some(spool) = self.spool else { return SpoolableBytes::default() };
        let written = spool.create().and_then(|mut writer| {
            write(&mut writer)?;
            Ok(SpoolableBytes::Spooled(writer.finish()))
        });
        written.unwrap_or_else(|e| {
            self.failed.get_or_insert(e);
            SpoolableBytes::default()
        })
    }

    /// Returns bytes at the start and at the end of a part.
    fn edges<'a>(&mut self, data: &'a SpoolableBytes, start: usize) -> (Cow<'a, [u8]>, Cow<'a, [u8]>) {
        let spooled = match data {
            SpoolableBytes::InMemory(bytes) => {
                let end = bytes.get(bytes.len().saturating_sub(sniff::EDGE_BYTES)..).unwrap_or_default();
                return (Cow::Borrowed(bytes), Cow::Borrowed(end));
            }
            SpoolableBytes::Spooled(spooled) => spooled,
        };
        let length = spooled.len();
        let mut read = |range| {
            spooled.read_range(range).unwrap_or_else(|e| {
                self.failed.get_or_insert(e);
                Vec::new()
            })
        };
        let end = length.saturating_sub(sniff::EDGE_BYTES as u64)..length;
        (Cow::Owned(read(0..start as u64)), Cow::Owned(read(end)))
    }

    /// Returns the whole of a part, unless it is too large for memory.
    pub fn whole<'a>(&mut self, data: &'a SpoolableBytes) -> Option<Cow<'a, [u8]>> {
        let spooled = match data {
            SpoolableBytes::InMemory(bytes) => return Some(Cow::Borrowed(bytes)),
            SpoolableBytes::Spooled(spooled) if spooled.len() > MAX_IN_MEMORY_PART_BYTES / 2 => return None,
            SpoolableBytes::Spooled(spooled) => spooled,
        };
        let read = spooled.read_range(0..spooled.len());
        Some(Cow::Owned(read.unwrap_or_else(|e| {
            self.failed.get_or_insert(e);
            Vec::new()
        })))
    }

    /// Returns whether one more attachment of this size fits; if not, a defect says why.
    pub fn admits(&mut self, bytes: u64, defects: &mut Defects) -> bool {
        if bytes > self.attachment {
            defects.add(Defect::AttachmentTooLarge);
            return false;
        }
        if bytes > self.left {
            defects.add(Defect::DecodedTooLarge);
            return false;
        }
        self.left -= bytes;
        true
    }

    /// Counts decoded body text, which has its own limit.
    pub fn spend(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes as u64);
    }

    pub fn left(&self) -> u64 {
        self.left
    }

    /// Returns whether one more attachment may be listed: those found inside parts count, too.
    pub fn admits_part(&mut self, defects: &mut Defects) -> bool {
        if self.parts == 0 {
            defects.add(Defect::TooManyParts);
            return false;
        }
        self.parts -= 1;
        true
    }
}

/// Returns the file name that a part declares. It may hold a path and is never used as one.
pub fn filename(leaf: &Leaf, defects: &mut Defects) -> Option<String> {
    leaf.disposition
        .text("filename", defects)
        .or_else(|| leaf.content_type.text("name", defects))
        // Mailers that mixed the two up.
        .or_else(|| leaf.disposition.text("name", defects))
        .or_else(|| leaf.content_type.text("filename", defects))
}

/// Decodes one part. Over a limit it is listed without its bytes.
pub fn read<'a>(
    leaf: &Leaf,
    source: &mut impl MessageSource<'a>,
    cids: &HashSet<String>,
    limits: &MessageLimits,
    budget: &mut DecodeBudget,
    defects: &mut Defects,
) -> Attachment {
    let filename = filename(leaf, defects);
    let is_cut = !budget.admits(leaf.transfer.bound(leaf.body.len()) as u64, defects);
    let content =
        if is_cut { SpoolableBytes::default() } else { source.part(leaf.body.clone(), leaf.transfer, budget, defects) };
    let is_shown = leaf.content_id.as_ref().is_some_and(|id| cids.contains(id));
    let is_inline = leaf.disposition.value == "inline" || is_shown;
    let content_type = &leaf.content_type.value;
    let found = described(leaf.path.clone(), filename, content_type, content, limits, budget);
    Attachment { inline: is_inline, content_id: leaf.content_id.clone(), is_cut, ..found }
}

fn is_message(content_type: &str) -> bool {
    matches!(content_type, "message/rfc822" | "message/global")
}

/// Describes an attachment by its bytes: sniffed type, hash, and the message inside.
fn described(
    path: String,
    filename: Option<String>,
    content_type: &str,
    content: SpoolableBytes,
    limits: &MessageLimits,
    budget: &mut DecodeBudget,
) -> Attachment {
    let is_message = is_message(content_type);
    // Of an attached message the headers are read; blank lines and the like before them have room, too.
    let start = if is_message { limits.header_bytes.saturating_add(sniff::EDGE_BYTES) } else { sniff::EDGE_BYTES };
    let (start, end) = budget.edges(&content, start);
    Attachment {
        path,
        filename,
        content_type: content_type.to_owned(),
        sniffed_type: sniff::sniff_edges(&start, &end).map(str::to_owned),
        inline: false,
        content_id: None,
        message: is_message.then(|| Box::new(AttachedMessage::read(&start, limits))),
        content,
        is_cut: false,
    }
}

/// Makes the attachment for a file found inside a part: uuencoded text, TNEF, Outlook.
pub fn inner(
    path: String,
    filename: Option<String>,
    content_type: &str,
    content: SpoolableBytes,
    budget: &mut DecodeBudget,
) -> Attachment {
    described(path, filename, content_type, content, &MessageLimits::default(), budget)
}

/// Makes the attachment for a message found inside a part. As MIME it is larger than its source, so it is counted
/// again.
pub fn inner_message(
    path: String,
    filename: Option<String>,
    email: &ParsedEmail,
    budget: &mut DecodeBudget,
    defects: &mut Defects,
) -> Attachment {
    let filename = filename.or_else(|| email.subject.clone());
    let size = compose::size(email);
    let is_cut = !budget.admits(size, defects);
    let content = if is_cut { SpoolableBytes::default() } else { composed(email, size, budget) };
    Attachment { is_cut, ..inner(path, filename, "message/rfc822", content, budget) }
}

fn composed(email: &ParsedEmail, size: u64, budget: &mut DecodeBudget) -> SpoolableBytes {
    if !budget.holds(usize::try_from(size).unwrap_or(usize::MAX)) {
        return budget.spool(|writer| compose::compose(email, writer));
    }
    let mut bytes = Vec::new();
    if let Err(e) = compose::compose(email, &mut bytes) {
        budget.failed.get_or_insert(e);
    }
    budget.keep(Cow::Owned(bytes))
}

/// Returns every `cid:` that an HTML body shows.
pub fn shown_ids(html: &str) -> HashSet<String> {
    let bytes = html.as_bytes();
    let mut found = HashSet::new();
    let places = memchr::memmem::find_iter(bytes, b"cid:").chain(memchr::memmem::find_iter(bytes, b"CID:"));
    // No page shows more pictures than a message may have parts, and no id is longer; both bound the time.
    for at in places.take(20_000) {
        let tail = html.get(at + 4..).unwrap_or_default();
        let end = tail
            .bytes()
            .take(250)
            .position(|b| matches!(b, b'"' | b'\'' | b'>' | b')' | b'<' | b'&') || b.is_ascii_whitespace());
        if let Some(id) = end.and_then(|end| tail.get(..end)).filter(|id| !id.is_empty()) {
            found.insert(id.replace("%40", "@").replace("%24", "$"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_shown_by_html_are_found() {
        let ids = shown_ids("<img src=\"cid:a@x\"><td background='cid:b%40x'> url(cid:c) cid:");

        assert_eq!(ids, HashSet::from(["a@x".to_owned(), "b@x".to_owned(), "c".to_owned()]));
    }

    #[test]
    fn the_budget_tells_which_limit_was_passed() {
        let limits = MessageLimits { decoded_bytes: 10, attachment_bytes: 8, ..MessageLimits::default() };
        let mut budget = DecodeBudget::new(&limits, None);
        let mut defects = Defects::default();

        assert!(!budget.admits(9, &mut defects));
        assert!(budget.admits(8, &mut defects));
        assert!(!budget.admits(8, &mut defects));
        assert_eq!(defects.names(), ["attachment_too_large", "decoded_too_large"]);
    }
}
