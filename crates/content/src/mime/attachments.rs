//! Parts that a person would call attachments, with their bytes as far as the limits allow.

use std::collections::HashSet;

use domain::Limits;

use super::compose;
use super::defects::{Defect, Defects};
use super::params::Params;
use super::sniff;
use super::structure::Leaf;
use super::transfer::Transfer;
use super::{AttachedMessage, Attachment, Email};

/// Counts decoded bytes and attachments of one message.
#[derive(Debug)]
pub struct Budget {
    left: u64,
    attachment: u64,
    parts: usize,
}

impl Budget {
    pub fn new(limits: &Limits) -> Self {
        Self { left: limits.decoded_bytes, attachment: limits.attachment_bytes, parts: limits.parts }
    }

    /// Whether one more attachment of this size may be held; the defect says why not.
    pub fn admits(&mut self, bytes: usize, defects: &mut Defects) -> bool {
        let bytes = bytes as u64;
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

    /// Body text is decoded, too, and cut by its own limit.
    pub fn spend(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes as u64);
    }

    pub fn left(&self) -> usize {
        usize::try_from(self.left).unwrap_or(usize::MAX)
    }

    /// Whether one more attachment may be listed: those found inside parts count, too.
    pub fn admits_part(&mut self, defects: &mut Defects) -> bool {
        if self.parts == 0 {
            defects.add(Defect::TooManyParts);
            return false;
        }
        self.parts -= 1;
        true
    }
}

/// The name a part gives itself. It may hold a path and is never used as one.
pub fn filename(leaf: &Leaf<'_>, defects: &mut Defects) -> Option<String> {
    let named = |params: &Params, name: &str, defects: &mut Defects| params.text(name, defects);
    named(&leaf.disposition, "filename", defects)
        .or_else(|| named(&leaf.content_type, "name", defects))
        // Mailers that mixed the two up.
        .or_else(|| named(&leaf.disposition, "name", defects))
        .or_else(|| named(&leaf.content_type, "filename", defects))
}

/// Decodes one part. Over a limit it is listed without its bytes.
pub fn read(
    leaf: &Leaf<'_>,
    cids: &HashSet<String>,
    limits: &Limits,
    budget: &mut Budget,
    defects: &mut Defects,
) -> Attachment {
    let filename = filename(leaf, defects);
    let is_cut = !budget.admits(leaf.transfer.bound(leaf.body.len()), defects);
    let bytes = match leaf.transfer {
        _ if is_cut => Vec::new(),
        Transfer::Identity => leaf.received.to_vec(),
        encoded => encoded.decode(leaf.body, defects).into_owned(),
    };
    let is_shown = leaf.content_id.as_ref().is_some_and(|id| cids.contains(id));
    Attachment {
        path: leaf.path.clone(),
        filename,
        content_type: leaf.content_type.value.clone(),
        sniffed_type: sniff::sniff(&bytes).map(str::to_owned),
        inline: leaf.disposition.value == "inline" || is_shown,
        content_id: leaf.content_id.clone(),
        message: is_message(&leaf.content_type.value).then(|| Box::new(AttachedMessage::read(&bytes, limits))),
        bytes,
        is_cut,
    }
}

fn is_message(content_type: &str) -> bool {
    matches!(content_type, "message/rfc822" | "message/global")
}

/// A file found inside a part: uuencoded text, TNEF, Outlook.
pub fn inner(path: String, filename: Option<String>, content_type: &str, bytes: Vec<u8>) -> Attachment {
    Attachment {
        path,
        filename,
        content_type: content_type.to_owned(),
        sniffed_type: sniff::sniff(&bytes).map(str::to_owned),
        inline: false,
        content_id: None,
        message: is_message(content_type).then(|| Box::new(AttachedMessage::read(&bytes, &Limits::default()))),
        bytes,
        is_cut: false,
    }
}

/// A message found inside a part. Written as MIME it is larger than what it was made from, so it is counted again.
pub fn inner_message(
    path: String,
    filename: Option<String>,
    email: &Email,
    budget: &mut Budget,
    defects: &mut Defects,
) -> Attachment {
    let filename = filename.or_else(|| email.subject.clone());
    let bytes = compose::compose(email);
    let is_cut = !budget.admits(bytes.len(), defects);
    let bytes = if is_cut { Vec::new() } else { bytes };
    Attachment { is_cut, ..inner(path, filename, "message/rfc822", bytes) }
}

/// Every `cid:` that an HTML body shows.
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
        let mut budget = Budget { left: 10, attachment: 8, parts: 1 };
        let mut defects = Defects::default();

        assert!(!budget.admits(9, &mut defects));
        assert!(budget.admits(8, &mut defects));
        assert!(!budget.admits(8, &mut defects));
        assert_eq!(defects.names(), ["attachment_too_large", "decoded_too_large"]);
    }
}
