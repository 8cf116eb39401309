//! What a file is by its first bytes. Mail may be as broken as it likes; what is clearly something else is not mail.

/// Enough to see the header of nearly every message.
pub const HEAD_BYTES: u64 = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    Empty,
    Mbox,
    /// Headers that mail has.
    Message,
    /// Outlook's own formats, which `mime::parse` reads.
    Outlook,
    /// Text: mail if its name says so.
    Unclear,
    Other(&'static OtherKind),
}

/// Something that is not mail, and what to do with it.
#[derive(Debug, PartialEq, Eq)]
pub struct OtherKind {
    pub name: &'static str,
    pub advice: &'static str,
}

const UNPACK: &str = "unpack it first";
const REMOVE: &str = "leave it out or restore the original file";
const EXPORT: &str = "export its mail as mbox or .eml first";

#[rustfmt::skip]
static MAGIC: [(&[u8], OtherKind); 22] = [
    (b"PK\x03\x04", OtherKind { name: "a zip archive", advice: UNPACK }),
    (b"PK\x05\x06", OtherKind { name: "an empty zip archive", advice: REMOVE }),
    (b"\x1f\x8b", OtherKind { name: "a gzip file", advice: UNPACK }),
    (b"BZh", OtherKind { name: "a bzip2 file", advice: UNPACK }),
    (b"\xfd7zXZ\0", OtherKind { name: "an xz file", advice: UNPACK }),
    (b"\x28\xb5\x2f\xfd", OtherKind { name: "a zstd file", advice: UNPACK }),
    (b"7z\xbc\xaf\x27\x1c", OtherKind { name: "a 7z archive", advice: UNPACK }),
    (b"Rar!\x1a\x07", OtherKind { name: "a rar archive", advice: UNPACK }),
    (b"%PDF-", OtherKind { name: "a PDF", advice: REMOVE }),
    (b"\x89PNG\r\n\x1a\n", OtherKind { name: "a PNG image", advice: REMOVE }),
    (b"\xff\xd8\xff", OtherKind { name: "a JPEG image", advice: REMOVE }),
    (b"GIF87a", OtherKind { name: "a GIF image", advice: REMOVE }),
    (b"GIF89a", OtherKind { name: "a GIF image", advice: REMOVE }),
    (b"\x7fELF", OtherKind { name: "a program", advice: REMOVE }),
    (b"MZ\x90\0", OtherKind { name: "a program", advice: REMOVE }),
    (b"\xca\xfe\xba\xbe", OtherKind { name: "a program", advice: REMOVE }),
    (b"\xcf\xfa\xed\xfe", OtherKind { name: "a program", advice: REMOVE }),
    (b"SQLite format 3\0", OtherKind { name: "an SQLite database", advice: REMOVE }),
    (b"!BDN", OtherKind { name: "an Outlook data file (.pst or .ost)", advice: EXPORT }),
    (b"bplist0", OtherKind { name: "a property list", advice: REMOVE }),
    (b"\xff\xfe", OtherKind { name: "UTF-16 text", advice: "save it as plain bytes or UTF-8 first" }),
    (b"\xfe\xff", OtherKind { name: "UTF-16 text", advice: "save it as plain bytes or UTF-8 first" }),
];
static TAR: OtherKind = OtherKind { name: "a tar archive", advice: UNPACK };
/// A file that someone named, without a name or content that mail has.
pub static PLAIN_TEXT: OtherKind =
    OtherKind { name: "text without mail headers", advice: "name it .eml if it is a message" };
static BINARY: OtherKind = OtherKind { name: "binary data", advice: REMOVE };

/// A compound file (.msg) and TNEF.
const OUTLOOK: [&[u8]; 2] = [b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", b"\x78\x9f\x3e\x22"];

/// Headers by which a file without a telling name is taken for mail.
const KNOWN_HEADERS: [&[u8]; 22] = [
    b"from",
    b"to",
    b"cc",
    b"bcc",
    b"subject",
    b"date",
    b"sender",
    b"reply-to",
    b"received",
    b"return-path",
    b"message-id",
    b"delivered-to",
    b"mime-version",
    b"content-type",
    b"content-transfer-encoding",
    b"in-reply-to",
    b"references",
    b"status",
    b"dkim-signature",
    b"authentication-results",
    b"envelope-to",
    b"newsgroups",
];

pub fn content(head: &[u8]) -> Content {
    if head.is_empty() {
        return Content::Empty;
    }
    if OUTLOOK.iter().any(|magic| head.starts_with(magic)) {
        return Content::Outlook;
    }
    if let Some((_, kind)) = MAGIC.iter().find(|(magic, _)| head.starts_with(magic)) {
        return Content::Other(kind);
    }
    if head.get(257..262) == Some(b"ustar") {
        return Content::Other(&TAR);
    }
    let text = skip_blank(head);
    if text.starts_with(b"From ") {
        Content::Mbox
    } else if starts_with_mail_headers(text) {
        Content::Message
    } else if is_binary(head) && !lines(head).any(is_header) {
        Content::Other(&BINARY)
    } else {
        Content::Unclear
    }
}

/// `Name: value` with a name that RFC 5322 allows and a length that people use.
pub fn is_header(line: &[u8]) -> bool {
    let Some(colon) = line.iter().take(80).position(|&b| b == b':') else { return false };
    let name = line[..colon].trim_ascii_end();
    !name.is_empty() && name.iter().all(u8::is_ascii_graphic)
}

/// A header that mail has and other text hardly ever.
pub fn is_known_header(line: &[u8]) -> bool {
    let name = line.split(|&b| b == b':').next().unwrap_or_default().trim_ascii_end();
    let is_extension = name.len() > 2 && name[..2].eq_ignore_ascii_case(b"x-");
    is_header(line) && (is_extension || KNOWN_HEADERS.iter().any(|known| known.eq_ignore_ascii_case(name)))
}

pub fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&b| b == b'\n' || b == b'\r')
}

/// Without a byte order mark and blank lines.
pub fn skip_blank(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text).trim_ascii_start()
}

fn starts_with_mail_headers(text: &[u8]) -> bool {
    // Splitting at each of CR and LF leaves empty lines between those that end in both.
    let is_part = |line: &&[u8]| is_header(line) || is_folded(line) || line.is_empty();
    is_header(lines(text).next().unwrap_or_default()) && lines(text).take_while(is_part).any(is_known_header)
}

fn is_folded(line: &[u8]) -> bool {
    line.first().is_some_and(|&b| b == b' ' || b == b'\t')
}

/// Mail holds a stray control byte here and there; junk is full of them.
fn is_binary(head: &[u8]) -> bool {
    let odd = |b: &&u8| b.is_ascii_control() && !matches!(**b, b'\t' | b'\n' | b'\r' | 0x08 | 0x0c | 0x1b);
    head.contains(&0) || head.iter().filter(odd).count() * 20 > head.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mail_is_told_from_other_text() {
        assert_eq!(content(b"From a@x Mon Jan  1 00:00:00 2024\nTo: b\n"), Content::Mbox);
        assert_eq!(content(b"\r\nX-Foo: 1\r\nSubject: hi\r\n\r\n"), Content::Message);
        assert_eq!(content(b"Name: value\nother: value\n"), Content::Unclear);
        assert_eq!(content(b"Dear all,\n"), Content::Unclear);
        assert_eq!(content(b""), Content::Empty);
    }

    #[test]
    fn other_files_are_named() {
        let name = |head: &[u8]| match content(head) {
            Content::Other(kind) => kind.name,
            _ => "",
        };

        assert_eq!(name(b"PK\x03\x04\x14\0"), "a zip archive");
        assert_eq!(name(b"\x01\0\x02\x03junk"), "binary data");
        assert_eq!(name(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0\0"), "");
        assert_eq!(name(b"Subject: a stray \0\nTo: b\n"), "");
    }
}
