//! Detects what a file is by its first bytes. Broken mail counts as mail; what is clearly something else does not.

/// Enough to see the header of nearly every message.
pub const HEAD_BYTES: u64 = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileContent {
    Empty,
    Mbox,
    /// Headers that mail has.
    Message,
    /// Outlook's own formats, which `mime::parse` reads.
    Outlook,
    /// Text: mail if its name says so.
    Unclear,
    Other(&'static NonMailType),
}

/// Something that is not mail, and what to do with it.
#[derive(Debug, PartialEq, Eq)]
pub struct NonMailType {
    pub name: &'static str,
    pub advice: &'static str,
}

const UNPACK: &str = "unpack it first";
const REMOVE: &str = "leave it out or restore the original file";
const EXPORT: &str = "export its mail as mbox or .eml first";

#[rustfmt::skip]
static MAGIC: [(&[u8], NonMailType); 22] = [
    (b"PK\x03\x04", NonMailType { name: "a zip archive", advice: UNPACK }),
    (b"PK\x05\x06", NonMailType { name: "an empty zip archive", advice: REMOVE }),
    (b"\x1f\x8b", NonMailType { name: "a gzip file", advice: UNPACK }),
    (b"BZh", NonMailType { name: "a bzip2 file", advice: UNPACK }),
    (b"\xfd7zXZ\0", NonMailType { name: "an xz file", advice: UNPACK }),
    (b"\x28\xb5\x2f\xfd", NonMailType { name: "a zstd file", advice: UNPACK }),
    (b"7z\xbc\xaf\x27\x1c", NonMailType { name: "a 7z archive", advice: UNPACK }),
    (b"Rar!\x1a\x07", NonMailType { name: "a rar archive", advice: UNPACK }),
    (b"%PDF-", NonMailType { name: "a PDF", advice: REMOVE }),
    (b"\x89PNG\r\n\x1a\n", NonMailType { name: "a PNG image", advice: REMOVE }),
    (b"\xff\xd8\xff", NonMailType { name: "a JPEG image", advice: REMOVE }),
    (b"GIF87a", NonMailType { name: "a GIF image", advice: REMOVE }),
    (b"GIF89a", NonMailType { name: "a GIF image", advice: REMOVE }),
    (b"\x7fELF", NonMailType { name: "a program", advice: REMOVE }),
    (b"MZ\x90\0", NonMailType { name: "a program", advice: REMOVE }),
    (b"\xca\xfe\xba\xbe", NonMailType { name: "a program", advice: REMOVE }),
    (b"\xcf\xfa\xed\xfe", NonMailType { name: "a program", advice: REMOVE }),
    (b"SQLite format 3\0", NonMailType { name: "an SQLite database", advice: REMOVE }),
    (b"!BDN", NonMailType { name: "an Outlook data file (.pst or .ost)", advice: EXPORT }),
    (b"bplist0", NonMailType { name: "a property list", advice: REMOVE }),
    (b"\xff\xfe", NonMailType { name: "UTF-16 text", advice: "save it as plain bytes or UTF-8 first" }),
    (b"\xfe\xff", NonMailType { name: "UTF-16 text", advice: "save it as plain bytes or UTF-8 first" }),
];
/// Archives and mail programs' own files by their extensions, which are told without opening them.
#[rustfmt::skip]
static CONTAINERS: [(&[&str], NonMailType); 5] = [
    (&["zip", "gz", "tgz", "bz2", "tbz2", "xz", "txz", "zst", "7z", "rar", "tar"], NonMailType { name: "an archive", advice: UNPACK }),
    (&["pst", "ost"], NonMailType { name: "an Outlook data file", advice: EXPORT }),
    (&["olm"], NonMailType { name: "an archive of Outlook for Mac", advice: EXPORT }),
    (&["nsf"], NonMailType { name: "a Notes database", advice: EXPORT }),
    (&["dbx"], NonMailType { name: "an Outlook Express folder", advice: EXPORT }),
];

/// Returns what a file with this extension, in lower case, is if it may contain mail that cannot be read as it is.
pub fn container_by_extension(extension: &str) -> Option<&'static NonMailType> {
    CONTAINERS.iter().find(|(extensions, _)| extensions.contains(&extension)).map(|(_, kind)| kind)
}

impl NonMailType {
    /// Returns whether mail may be inside, to be had by unpacking or exporting.
    pub fn may_contain_mail(&self) -> bool {
        [UNPACK, EXPORT].contains(&self.advice)
    }
}

static TAR: NonMailType = NonMailType { name: "a tar archive", advice: UNPACK };
/// A file given by path with neither a name nor content of mail.
pub static PLAIN_TEXT: NonMailType =
    NonMailType { name: "text without mail headers", advice: "name it .eml if it is a message" };
static BINARY: NonMailType = NonMailType { name: "binary data", advice: REMOVE };

/// A compound file (.msg) and TNEF.
const OUTLOOK: [&[u8]; 2] = [b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", b"\x78\x9f\x3e\x22"];

/// Headers by which a file is taken for mail if its name does not say.
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

pub fn content(head: &[u8]) -> FileContent {
    if head.is_empty() {
        return FileContent::Empty;
    }
    if OUTLOOK.iter().any(|magic| head.starts_with(magic)) {
        return FileContent::Outlook;
    }
    if let Some((_, kind)) = MAGIC.iter().find(|(magic, _)| head.starts_with(magic)) {
        return FileContent::Other(kind);
    }
    if head.get(257..262) == Some(b"ustar") {
        return FileContent::Other(&TAR);
    }
    let text = skip_blank(head);
    if text.starts_with(b"From ") {
        FileContent::Mbox
    } else if starts_with_mail_headers(text) {
        FileContent::Message
    } else if is_binary(head) && !lines(head).any(is_header) {
        FileContent::Other(&BINARY)
    } else {
        FileContent::Unclear
    }
}

/// Returns whether it is `Name: value`, with a name that RFC 5322 allows and of a usual length.
pub fn is_header(line: &[u8]) -> bool {
    let Some(colon) = line.iter().take(80).position(|&b| b == b':') else { return false };
    let name = line[..colon].trim_ascii_end();
    !name.is_empty() && name.iter().all(u8::is_ascii_graphic)
}

/// Returns whether it is a header that mail has and other text hardly ever.
pub fn is_known_header(line: &[u8]) -> bool {
    let name = line.split(|&b| b == b':').next().unwrap_or_default().trim_ascii_end();
    let is_extension = name.len() > 2 && name[..2].eq_ignore_ascii_case(b"x-");
    is_header(line) && (is_extension || KNOWN_HEADERS.iter().any(|known| known.eq_ignore_ascii_case(name)))
}

pub fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&b| b == b'\n' || b == b'\r')
}

/// Returns the text without a byte order mark and blank lines at its start.
pub fn skip_blank(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text).trim_ascii_start()
}

fn starts_with_mail_headers(text: &[u8]) -> bool {
    // Splitting at each of CR and LF leaves empty lines between those that end in both.
    let mut header_lines = lines(text).take_while(|line| is_header(line) || is_folded(line) || line.is_empty());
    is_header(lines(text).next().unwrap_or_default()) && header_lines.any(is_known_header)
}

fn is_folded(line: &[u8]) -> bool {
    line.first().is_some_and(|&b| b == b' ' || b == b'\t')
}

/// Returns whether it is binary data: mail holds few stray control bytes, binary data is full of them.
fn is_binary(head: &[u8]) -> bool {
    head.contains(&0) || head.iter().filter(|b| is_odd_control(**b)).count() * 20 > head.len()
}

fn is_odd_control(b: u8) -> bool {
    b.is_ascii_control() && !matches!(b, b'\t' | b'\n' | b'\r' | 0x08 | 0x0c | 0x1b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mail_is_told_from_other_text() {
        assert_eq!(content(b"From a@x Mon Jan  1 00:00:00 2024\nTo: b\n"), FileContent::Mbox);
        assert_eq!(content(b"\r\nX-Foo: 1\r\nSubject: hi\r\n\r\n"), FileContent::Message);
        assert_eq!(content(b"Name: value\nother: value\n"), FileContent::Unclear);
        assert_eq!(content(b"Dear all,\n"), FileContent::Unclear);
        assert_eq!(content(b""), FileContent::Empty);
    }

    #[test]
    fn other_files_are_named() {
        fn name(head: &[u8]) -> &'static str {
            match content(head) {
                FileContent::Other(kind) => kind.name,
                _ => "",
            }
        }

        assert_eq!(name(b"PK\x03\x04\x14\0"), "a zip archive");
        assert_eq!(name(b"\x01\0\x02\x03junk"), "binary data");
        assert_eq!(name(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0\0"), "");
        assert_eq!(name(b"Subject: a stray \0\nTo: b\n"), "");
    }
}
