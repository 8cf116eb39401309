//! Detects the media type of an attachment by its bytes, whatever it declares.

/// How much of a file is inspected: the directory names that distinguish Office documents are near the start.
const SNIFF_BYTES: usize = 4096;

/// Signatures at the very start.
const MAGIC: &[(&[u8], &str)] = &[
    (b"%PDF-", "application/pdf"),
    (b"\x89PNG\r\n\x1A\n", "image/png"),
    (b"\xFF\xD8\xFF", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"\x1F\x8B", "application/gzip"),
    (b"BZh", "application/x-bzip2"),
    (b"\xFD7zXZ\0", "application/x-xz"),
    (b"\x28\xB5\x2F\xFD", "application/zstd"),
    (b"7z\xBC\xAF\x27\x1C", "application/x-7z-compressed"),
    (b"Rar!\x1A\x07", "application/vnd.rar"),
    (b"ID3", "audio/mpeg"),
    (b"OggS", "application/ogg"),
    (b"fLaC", "audio/flac"),
    (b"\x7FELF", "application/x-elf"),
    (b"{\\rtf", "application/rtf"),
    (b"\x78\x9F\x3E\x22", "application/ms-tnef"),
    (b"SQLite format 3\0", "application/vnd.sqlite3"),
    (b"%!PS", "application/postscript"),
];

/// Beginnings of texts, ignoring case, after white space and a byte order mark.
const TEXT_MAGIC: &[(&str, &str)] = &[
    ("<!doctype html", "text/html"),
    ("<html", "text/html"),
    ("<head", "text/html"),
    ("<body", "text/html"),
    ("<?xml", "text/xml"),
    ("<svg", "image/svg+xml"),
    ("begin:vcalendar", "text/calendar"),
    ("begin:vcard", "text/vcard"),
    ("-----begin pgp message", "application/pgp-encrypted"),
    ("-----begin pgp signature", "application/pgp-signature"),
    ("-----begin pgp public key", "application/pgp-keys"),
];

/// Headers with which a saved message begins.
const MESSAGE_STARTS: &[&str] =
    &["received:", "return-path:", "delivered-to:", "message-id:", "mime-version:", "from:", "x-mozilla-status:"];

/// How much of the start and of the end is inspected at most.
pub const EDGE_BYTES: usize = 64 << 10;

/// Returns the media type that the bytes tell, or `None` if they do not.
pub fn sniff(bytes: &[u8]) -> Option<&'static str> {
    let tail = bytes.get(bytes.len().saturating_sub(EDGE_BYTES)..).unwrap_or_default();
    sniff_edges(bytes, tail)
}

/// Returns the media type by the [`EDGE_BYTES`] at start and end alone.
pub fn sniff_edges(start: &[u8], end: &[u8]) -> Option<&'static str> {
    let head = start.get(..SNIFF_BYTES).unwrap_or(start);
    if let Some((_, name)) = MAGIC.iter().find(|(magic, _)| head.starts_with(magic)) {
        return Some(name);
    }
    match head {
        [b'P', b'K', 3, 4, ..] => return Some(zip(head)),
        [b'P', b'K', 5, 6, ..] => return Some("application/zip"),
        [0xD0, 0xCF, 0x11, 0xE0, 0xA1, 0xB1, 0x1A, 0xE1, ..] => return Some(ole(start, end)),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => return Some("image/webp"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'A', b'V', b'E', ..] => return Some("audio/wav"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'A', b'V', b'I', b' ', ..] => return Some("video/x-msvideo"),
        [_, _, _, _, b'f', b't', b'y', b'p', brand @ ..] => return Some(iso_media(brand)),
        // Two letters are little to go by: the size field of BMP and the zeros after it must fit, too.
        [b'B', b'M', _, _, _, _, 0, 0, 0, 0, ..] => return Some("image/bmp"),
        [b'M', b'Z', _, _, ..] if head.len() >= 64 => return Some("application/vnd.microsoft.portable-executable"),
        [0xFF, second, third, ..] if second & 0xE6 == 0xE2 && third & 0xF0 != 0xF0 && third & 0x0C != 0x0C => {
            return Some("audio/mpeg");
        }
        _ => {}
    }
    text(head)
}

/// Returns the type of a zip archive: Office documents are recognised by the first names in it.
fn zip(head: &[u8]) -> &'static str {
    if let Some(at) = memchr::memmem::find(head, b"mimetypeapplication/") {
        let rest = head.get(at + 8..).unwrap_or_default();
        let known: [(&[u8], &str); 4] = [
            (b"application/vnd.oasis.opendocument.text", "application/vnd.oasis.opendocument.text"),
            (b"application/vnd.oasis.opendocument.spreadsheet", "application/vnd.oasis.opendocument.spreadsheet"),
            (b"application/vnd.oasis.opendocument.presentation", "application/vnd.oasis.opendocument.presentation"),
            (b"application/epub+zip", "application/epub+zip"),
        ];
        if let Some((_, name)) = known.iter().find(|(magic, _)| rest.starts_with(magic)) {
            return name;
        }
    }
    let is_office =
        contains(head, b"[Content_Types].xml") || contains(head, b"_rels/.rels") || contains(head, b"docProps/");
    match () {
        () if is_office && contains(head, b"word/") => {
            "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
        }
        () if is_office && contains(head, b"xl/") => {
            "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
        }
        () if is_office && contains(head, b"ppt/") => {
            "application/vnd.openxmlformats-officedocument.presentationml.presentation"
        }
        () if contains(head, b"META-INF/MANIFEST.MF") => "application/java-archive",
        () => "application/zip",
    }
}

fn contains(bytes: &[u8], name: &[u8]) -> bool {
    memchr::memmem::find(bytes, name).is_some()
}

/// Returns the type of an OLE file: Word, Excel and Outlook differ by the names in its directory.
fn ole(start: &[u8], end: &[u8]) -> &'static str {
    // The directory may be anywhere, but is near one of the ends in practice.
    let start = start.get(..EDGE_BYTES).unwrap_or(start);
    match () {
        () if has_entry(start, end, "__properties_version1.0") => "application/vnd.ms-outlook",
        () if has_entry(start, end, "WordDocument") => "application/msword",
        () if has_entry(start, end, "Workbook") => "application/vnd.ms-excel",
        () if has_entry(start, end, "PowerPoint Document") => "application/vnd.ms-powerpoint",
        () => "application/x-ole-storage",
    }
}

/// Returns whether an entry of this name, which is in UTF-16, is near one of the ends.
fn has_entry(start: &[u8], end: &[u8], name: &str) -> bool {
    let wide: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
    contains(start, &wide) || contains(end, &wide)
}

fn iso_media(brand: &[u8]) -> &'static str {
    match brand.get(..4) {
        Some(b"heic" | b"heix" | b"mif1" | b"msf1") => "image/heic",
        Some(b"avif") => "image/avif",
        Some(b"qt  ") => "video/quicktime",
        Some(b"M4A " | b"M4B ") => "audio/mp4",
        _ => "video/mp4",
    }
}

fn text(head: &[u8]) -> Option<&'static str> {
    let head = head.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(head).trim_ascii_start();
    let starts =
        |prefix: &str| head.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()));
    if let Some((_, name)) = TEXT_MAGIC.iter().find(|(prefix, _)| starts(prefix)) {
        return Some(name);
    }
    MESSAGE_STARTS.iter().any(|prefix| starts(prefix)).then_some("message/rfc822")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_known_by_their_first_bytes() {
        let office = b"PK\x03\x04....[Content_Types].xml....word/document.xml";
        let cases: &[(&[u8], &str)] = &[
            (b"%PDF-1.7", "application/pdf"),
            (b"\x89PNG\r\n\x1A\n", "image/png"),
            (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
            (b"BM\x46\0\0\0\0\0\0\0", "image/bmp"),
            (b"PK\x03\x04....readme.txt", "application/zip"),
            (office, "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
            (b"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1", "application/x-ole-storage"),
            (b"\0\0\0\x18ftypmp42", "video/mp4"),
            (b"\xFF\xFB\x90\x00", "audio/mpeg"),
            (b"  <!DOCTYPE HTML><p>", "text/html"),
            (b"BEGIN:VCALENDAR\r\n", "text/calendar"),
            (b"BEGIN:VCARD\r\n", "text/vcard"),
            (b"Received: from x", "message/rfc822"),
            (b"{\\rtf1", "application/rtf"),
        ];
        for (bytes, name) in cases {
            assert_eq!(sniff(bytes), Some(*name));
        }
    }

    #[test]
    fn unknown_bytes_have_no_type() {
        assert_eq!(sniff(b""), None);
        assert_eq!(sniff(b"BMW is a car"), None);
        assert_eq!(sniff(b"MZ"), None);
        assert_eq!(sniff(b"hello"), None);
    }
}
