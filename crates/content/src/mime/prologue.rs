//! Prepares a message for parsing: skips what precedes the first header, and repairs non-standard line ends.

use std::borrow::Cow;

use super::defects::{Defect, Defects};
use super::headers::{is_header_line, line_at};

/// Returns the bytes to parse (rewritten only when their line ends or their encoding make it necessary) and where the
/// headers start in them.
pub fn prepare<'a>(raw: &'a [u8], defects: &mut Defects) -> (Cow<'a, [u8]>, usize) {
    let raw = from_utf16(raw, defects);
    let raw = with_line_feeds(raw, defects);
    let start = skip(&mut raw.as_ref(), defects);
    (raw, start)
}

/// Returns the encoding of a message that an editor saved as UTF-16.
pub fn utf16(raw: &[u8]) -> Option<&'static encoding_rs::Encoding> {
    match raw {
        [0xFF, 0xFE, ..] => Some(encoding_rs::UTF_16LE),
        [0xFE, 0xFF, ..] => Some(encoding_rs::UTF_16BE),
        _ => None,
    }
}

fn from_utf16<'a>(raw: &'a [u8], defects: &mut Defects) -> Cow<'a, [u8]> {
    let Some(encoding) = utf16(raw) else { return Cow::Borrowed(raw) };
    let (text, _, has_errors) = encoding.decode(raw);
    if has_errors {
        return Cow::Borrowed(raw);
    }
    defects.add(Defect::ByteOrderMark);
    Cow::Owned(text.into_owned().into_bytes())
}

/// Replaces lone CRs by line ends if the first line ends with one.
fn with_line_feeds<'a>(raw: Cow<'a, [u8]>, defects: &mut Defects) -> Cow<'a, [u8]> {
    let Some(at) = memchr::memchr2(b'\r', b'\n', &raw) else { return raw };
    if !is_bare_cr(raw.get(at..).unwrap_or_default()) {
        return raw;
    }
    defects.add(Defect::BareCr);
    let mut out = raw.into_owned();
    normalize_lone_crs(&mut out);
    Cow::Owned(out)
}

/// Returns whether the line end that these bytes start with is a lone CR.
pub fn is_bare_cr(bytes: &[u8]) -> bool {
    !matches!(bytes, [b'\r', b'\n', ..] | [b'\r', b'\r', b'\n', ..] | [b'\n', ..] | [])
}

/// Turns lone CRs into line feeds.
pub fn normalize_lone_crs(bytes: &mut [u8]) {
    for i in 0..bytes.len() {
        if bytes[i] == b'\r' && bytes.get(i + 1) != Some(&b'\n') {
            bytes[i] = b'\n';
        }
    }
}

/// A message by line.
pub trait LineSource {
    fn length(&self) -> usize;
    /// Returns the line that starts here without its end, and where the next one starts.
    fn line(&mut self, at: usize) -> (Cow<'_, [u8]>, usize);
}

impl LineSource for &[u8] {
    fn length(&self) -> usize {
        self.len()
    }

    fn line(&mut self, at: usize) -> (Cow<'_, [u8]>, usize) {
        let (line, next) = line_at(self, at);
        (Cow::Borrowed(line), next)
    }
}

/// Returns the position after a byte order mark, blank lines and a mailbox separator, if headers follow.
pub fn skip(raw: &mut impl LineSource, defects: &mut Defects) -> usize {
    let mut at = 0;
    if raw.line(0).0.starts_with(b"\xEF\xBB\xBF") {
        defects.add(Defect::ByteOrderMark);
        at = 3;
    }
    let length = raw.length();
    let mut from = at;
    let mut has_blank = false;
    let mut has_envelope = false;
    while from < length {
        let (line, next) = raw.line(from);
        if line.trim_ascii().is_empty() {
            has_blank = true;
        } else if !has_envelope && (line.starts_with(b"From ") || line.starts_with(b">From ")) {
            has_envelope = true;
        } else {
            if !is_header_line(&line) {
                break;
            }
            if has_blank {
                defects.add(Defect::LeadingBlankLines);
            }
            if has_envelope {
                defects.add(Defect::MboxFromLine);
            }
            return from;
        }
        from = next;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(raw: &[u8]) -> (Vec<u8>, Vec<String>) {
        let mut defects = Defects::default();
        let (bytes, start) = prepare(raw, &mut defects);
        (bytes[start..].to_vec(), defects.names())
    }

    #[test]
    fn prologue_before_the_headers_is_skipped() {
        assert_eq!(read(b"A: x\n\nb"), (b"A: x\n\nb".to_vec(), vec![]));
        assert_eq!(read(b"\xEF\xBB\xBFA: x").1, ["byte_order_mark"]);
        assert_eq!(read(b"\r\n \r\nA: x"), (b"A: x".to_vec(), vec!["leading_blank_lines".to_owned()]));
        let mbox = b"From a@example.com Fri Jul  4 10:00:00 2003\nA: x";
        assert_eq!(read(mbox), (b"A: x".to_vec(), vec!["mbox_from_line".to_owned()]));
    }

    #[test]
    fn text_without_headers_is_left_alone() {
        assert_eq!(read(b"\n\nFrom here on\nonly text").0, b"\n\nFrom here on\nonly text");
    }

    #[test]
    fn lone_carriage_returns_become_line_ends() {
        assert_eq!(read(b"A: x\rB: y\r\rbody"), (b"A: x\nB: y\n\nbody".to_vec(), vec!["bare_cr".to_owned()]));
        assert_eq!(read(b"A: x\r\r\nB: y").1, Vec::<String>::new());
    }

    #[test]
    fn utf16_files_are_read() {
        let wide: Vec<u8> = "\u{FEFF}A: é\n\nb".encode_utf16().flat_map(u16::to_le_bytes).collect();

        assert_eq!(read(&wide).0, "A: é\n\nb".as_bytes());
    }
}
