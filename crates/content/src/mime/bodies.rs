//! Decides which parts are the body and which are attachments, and extracts the text (RFC 8621 §4.1.4).
//!
//! - `text/plain` and `text/html` are body unless they are marked as attachments, follow the root of a
//!   multipart/related, or have a file name. A bare `name=` on the first part of a multipart does not count: bounces
//!   have it on the text that a person is meant to read.
//! - A signature without a file name is part of the envelope, not an attachment; with a name it is listed.
//! - What machines write for machines (delivery reports, returned headers, other forms of the body) is no attachment to
//!   a person unless it has a name or is marked as one; it stays in the raw message.
//! - Everything else is an attachment: pictures, files, attached messages, calendars, encrypted parts.

use std::borrow::Cow;
use std::collections::HashSet;

use domain::MessageLimits;

use super::attachments::{self, DecodeBudget};
use super::defects::{Defect, Defects};
use super::source::MessageSource;
use super::structure::Leaf;
use super::{Attachment, ParsedEmail, charset, html, text, tnef, uuencode};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PartRole {
    Text,
    Html,
    Attachment,
    Nothing,
}

/// Fills bodies and attachments from the parts of a message.
pub fn read<'a>(
    leaves: &[Leaf],
    source: &mut impl MessageSource<'a>,
    limits: &MessageLimits,
    budget: &mut DecodeBudget<'_>,
    email: &mut ParsedEmail,
    defects: &mut Defects,
) {
    let mut bodies = Bodies::new(limits, budget);
    let roles: Vec<PartRole> = leaves.iter().map(role).collect();
    let mut found = Vec::new();
    for (leaf, _) in leaves.iter().zip(&roles).filter(|(_, role)| **role == PartRole::Html) {
        let bytes = bodies.beginning(leaf, source, defects);
        let html = decode(leaf, &bytes, defects);
        bodies.html.push((html, leaf.place.alternative));
    }
    let cids: HashSet<String> = bodies.html.iter().flat_map(|(html, _)| attachments::shown_ids(html)).collect();
    let mut html_at = 0;
    for (leaf, role) in leaves.iter().zip(&roles) {
        match role {
            PartRole::Text => bodies.add_text(leaf, source, &mut found, defects),
            PartRole::Html => {
                bodies.text.push(BodyPiece::Html(html_at));
                html_at += 1;
            }
            PartRole::Attachment if bodies.budget.admits_part(defects) => {
                found.push(attachments::read(leaf, source, &cids, limits, bodies.budget, defects));
                bodies.unpack(&mut found, email, defects);
            }
            PartRole::Attachment | PartRole::Nothing => {}
        }
    }
    email.attachments = found;
    bodies.join(email, defects);
}

fn role(leaf: &Leaf) -> PartRole {
    let is_marked = leaf.disposition.value == "attachment";
    let body = match leaf.content_type.value.as_str() {
        "text/plain" => PartRole::Text,
        "text/html" => PartRole::Html,
        // A message that consists of nothing else: the text is what a person reads.
        "text/calendar" | "text/vcard" | "text/x-vcard" | "text/directory" => PartRole::Attachment,
        _ if leaf.content_type.kind() == "text" && leaf.place.is_whole => PartRole::Text,
        _ => PartRole::Attachment,
    };
    match body {
        PartRole::Text | PartRole::Html if is_marked || leaf.place.is_related => PartRole::Attachment,
        PartRole::Text | PartRole::Html if is_file(leaf) || !leaf.place.is_first && is_named(leaf) => {
            PartRole::Attachment
        }
        PartRole::Attachment if leaf.place.is_signature && is_signature(leaf) && !is_marked && !is_named(leaf) => {
            PartRole::Nothing
        }
        PartRole::Attachment if is_for_machines(leaf) && !is_marked && !is_named(leaf) => PartRole::Nothing,
        _ => body,
    }
}

fn is_named(leaf: &Leaf) -> bool {
    attachments::filename(leaf, &mut Defects::default()).is_some()
}

fn is_file(leaf: &Leaf) -> bool {
    leaf.disposition.find("filename").is_some() && !leaf.place.is_whole
}

fn is_for_machines(leaf: &Leaf) -> bool {
    match leaf.content_type.value.as_str() {
        "text/calendar" | "text/vcard" | "text/x-vcard" | "text/directory" => false,
        "text/plain" | "text/html" => false,
        "message/rfc822" | "message/global" | "message/partial" | "message/external-body" => false,
        _ => matches!(leaf.content_type.kind(), "text" | "message"),
    }
}

fn is_signature(leaf: &Leaf) -> bool {
    matches!(
        leaf.content_type.value.as_str(),
        "application/pgp-signature" | "application/pkcs7-signature" | "application/x-pkcs7-signature"
    )
}

/// Body text in the order of its parts.
enum BodyPiece {
    Plain { text: String, alternative: Option<usize> },
    Html(usize),
}

struct Bodies<'c, 's> {
    limits: &'c MessageLimits,
    budget: &'c mut DecodeBudget<'s>,
    text: Vec<BodyPiece>,
    html: Vec<(String, Option<usize>)>,
    /// Encoded bodies are read this far, all texts together and all HTML together.
    text_left: usize,
    html_left: usize,
}

impl<'c, 's> Bodies<'c, 's> {
    fn new(limits: &'c MessageLimits, budget: &'c mut DecodeBudget<'s>) -> Self {
        // Markup and pasted files are left out of the text, so there may be more of them than text that is kept. No
        // message that is held has more than this; of a larger one it is what may be held.
        let most = limits.body_bytes.saturating_mul(2);
        Self { limits, budget, text: Vec::new(), html: Vec::new(), text_left: most, html_left: most }
    }

    /// Returns the bytes of a body, as far as they are read.
    fn beginning<'a>(
        &mut self,
        leaf: &Leaf,
        source: &mut impl MessageSource<'a>,
        defects: &mut Defects,
    ) -> Cow<'a, [u8]> {
        let left = if is_html(leaf) { &mut self.html_left } else { &mut self.text_left };
        let most = usize::try_from(self.budget.left()).unwrap_or(usize::MAX).min(*left);
        let (bytes, is_cut) = source.beginning(leaf.body.clone(), leaf.transfer, most, defects);
        *left -= bytes.len();
        self.budget.spend(bytes.len());
        if is_cut {
            defects.add(Defect::BodyTruncated);
        }
        bytes
    }

    /// Adds a plain text; files pasted into it become attachments.
    fn add_text<'a>(
        &mut self,
        leaf: &Leaf,
        source: &mut impl MessageSource<'a>,
        found: &mut Vec<Attachment>,
        defects: &mut Defects,
    ) {
        let mut bytes = self.beginning(leaf, source, defects);
        if let Some((kept, files)) = uuencode::extract(&bytes, self.limits.parts) {
            bytes = Cow::Owned(kept);
            for (number, file) in (1..).zip(files) {
                if self.budget.admits_part(defects) && self.budget.admits(file.bytes.len() as u64, defects) {
                    let path = format!("{}.u{number}", leaf.path);
                    let name = Some(text::single_line(file.name, defects)).filter(|name| !name.is_empty());
                    let content = self.budget.keep(Cow::Owned(file.bytes));
                    found.push(attachments::inner(path, name, "application/octet-stream", content, self.budget));
                }
            }
        }
        let decoded = decode(leaf, &bytes, defects);
        drop(bytes);
        let text = text::lines(decoded, defects);
        self.text.push(BodyPiece::Plain { text, alternative: leaf.place.alternative });
    }

    /// Unpacks the last attachment if it is a TNEF container: its contents follow it.
    fn unpack(&mut self, found: &mut Vec<Attachment>, email: &mut ParsedEmail, defects: &mut Defects) {
        let Some(container) = found.last() else { return };
        if container.sniffed_type.as_deref() != Some(tnef::TNEF_CONTENT_TYPE) {
            return;
        }
        let Some(bytes) = self.budget.whole(&container.content) else {
            defects.add(Defect::ContainerTooLarge);
            return;
        };
        let contents = tnef::read(&bytes, &container.path, self.budget, defects);
        drop(bytes);
        found.extend(contents.attachments);
        // Only for a mail that has no body of its own; `join` decides.
        email.body_text = email.body_text.take().or(contents.text);
        email.body_html = email.body_html.take().or(contents.html);
    }

    fn join(self, email: &mut ParsedEmail, defects: &mut Defects) {
        let spoken: HashSet<usize> = self.text.iter().filter_map(BodyPiece::alternative).collect();
        let mut plain = String::new();
        let mut has_plain = false;
        for piece in self.text {
            match piece {
                BodyPiece::Plain { text, .. } => {
                    has_plain = true;
                    if !text.trim().is_empty() {
                        append(&mut plain, text);
                    }
                }
                // HTML that repeats a text is not repeated; HTML that stands alone is read out.
                BodyPiece::Html(at) => {
                    let Some((source, alternative)) = self.html.get(at) else { continue };
                    if alternative.is_none_or(|group| !spoken.contains(&group)) {
                        append(&mut plain, html::to_text(source));
                    }
                }
            }
        }
        let mut markup = String::new();
        for (source, _) in self.html {
            append(&mut markup, source);
        }
        let inner_html = email.body_html.take();
        let inner_text = email.body_text.take();
        email.body_html = Some(markup).filter(|markup| !markup.trim().is_empty()).or(inner_html);
        email.body_text = Some(plain).filter(|plain| !plain.trim().is_empty());
        email.body_text = email.body_text.take().or(inner_text);
        if email.body_text.is_none() {
            let from_html = email.body_html.as_deref().map(html::to_text);
            email.body_text = from_html.filter(|text| !text.is_empty()).or(has_plain.then(String::new));
        }
        for body in [&mut email.body_text, &mut email.body_html].into_iter().flatten() {
            text::truncate(body, self.limits.body_bytes, defects);
        }
    }
}

fn is_html(leaf: &Leaf) -> bool {
    leaf.content_type.value == "text/html"
}

/// Decodes a body's bytes to text.
fn decode(leaf: &Leaf, bytes: &[u8], defects: &mut Defects) -> String {
    let is_html = is_html(leaf);
    let declared = leaf.content_type.find("charset");
    let label = declared.filter(|label| !is_html || charset::is_known(label));
    let label = label.or_else(|| is_html.then(|| meta_charset(bytes)).flatten());
    text::without_nul(charset::decode(bytes, label.as_deref(), defects), defects)
}

impl BodyPiece {
    /// Returns the number of the multipart/alternative that this text represents; a blank text represents none.
    fn alternative(&self) -> Option<usize> {
        match self {
            Self::Plain { text, alternative } if !text.trim().is_empty() => *alternative,
            _ => None,
        }
    }
}

/// Appends a part, which starts on a line of its own.
fn append(whole: &mut String, part: String) {
    if whole.is_empty() {
        *whole = part;
        return;
    }
    if !part.is_empty() && !whole.ends_with('\n') {
        whole.push('\n');
    }
    whole.push_str(&part);
}

/// Returns the charset that an HTML page declares itself, for mail that declares none.
fn meta_charset(html: &[u8]) -> Option<String> {
    let head = html.get(..2048).unwrap_or(html).to_ascii_lowercase();
    let at = memchr::memmem::find(&head, b"charset=")?;
    let value = head.get(at + 8..)?;
    let value = value.trim_ascii_start();
    let value = value.strip_prefix(b"\"").or(value.strip_prefix(b"'")).unwrap_or(value);
    let end = value.iter().position(|b| !b.is_ascii_alphanumeric() && !matches!(b, b'-' | b'_' | b':'))?;
    let label = String::from_utf8_lossy(value.get(..end)?).into_owned();
    Some(label).filter(|label| charset::is_known(label) && !label.starts_with("utf-16"))
}

#[cfg(test)]
mod tests {
    use crate::mime::{ParsedEmail, parse};
    use domain::MessageLimits;

    fn within(raw: &str, limits: &MessageLimits) -> ParsedEmail {
        parse(raw.as_bytes(), limits)
    }

    #[test]
    fn a_long_body_is_cut_and_said_so() {
        let limits = MessageLimits { body_bytes: 10, ..MessageLimits::default() };

        let email = within(&format!("Subject: x\n\n{}", "é".repeat(100)), &limits);

        assert_eq!(email.body_text.as_deref(), Some("ééééé"));
        assert_eq!(email.defects, ["body_truncated"]);
    }

    #[test]
    fn a_large_attachment_is_listed_without_its_bytes() {
        let limits = MessageLimits { attachment_bytes: 10, ..MessageLimits::default() };
        let part = "--b\nContent-Type: a/b; name=x\n\n0123456789ABCDEF\n";

        let email = within(&format!("Content-Type: multipart/mixed; boundary=b\n\n{part}--b--"), &limits);

        assert!(email.attachments[0].is_cut);
        assert!(email.attachments[0].content.is_empty());
        assert_eq!(email.defects, ["attachment_too_large"]);
    }

    #[test]
    fn attachments_together_stay_within_their_limit() {
        let limits = MessageLimits { decoded_bytes: 10, ..MessageLimits::default() };
        let part = "--b\nContent-Type: a/b; name=x\n\n01234567\n";

        let email = within(&format!("Content-Type: multipart/mixed; boundary=b\n\n{part}{part}--b--"), &limits);

        assert!(!email.attachments[0].is_cut);
        assert!(email.attachments[1].is_cut);
        assert_eq!(email.defects, ["decoded_too_large"]);
    }

    #[test]
    fn html_beside_a_text_is_not_read_out_twice() {
        let alternative = "--a\n\nplain\n--a\nContent-Type: text/html\n\n<p>rich</p>\n--a--\n";
        let raw = format!(
            "Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: multipart/alternative; boundary=a\n\n\
             {alternative}\n--b\nContent-Type: text/html\n\n<p>footer</p>\n--b--"
        );

        let email = within(&raw, &MessageLimits::default());

        assert_eq!(email.body_text.as_deref(), Some("plain\nfooter"));
        assert_eq!(email.body_html.as_deref(), Some("<p>rich</p>\n<p>footer</p>"));
    }
}
