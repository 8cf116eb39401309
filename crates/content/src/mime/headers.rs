//! The header section as written: its lines, its end, and the text of a value.

use std::borrow::Cow;

use super::charset;
use super::defects::{Defect, Defects};
use super::text;
use super::words;

/// One header as its bytes stand in the message, folds included.
#[derive(Debug, Clone, Copy)]
pub struct RawHeader<'a> {
    pub name: &'a [u8],
    pub value: &'a [u8],
}

impl RawHeader<'_> {
    pub fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name.as_bytes())
    }
}

#[derive(Debug)]
pub struct HeaderSection<'a> {
    pub headers: Vec<RawHeader<'a>>,
    /// Where the body starts.
    pub body: usize,
    /// Something ended it, not just the end of the bytes.
    pub is_ended: bool,
}

impl<'a> HeaderSection<'a> {
    /// Reads headers from `start` up to the blank line, a line that can't be a header, or one that `is_boundary`.
    pub fn read(
        raw: &'a [u8],
        start: usize,
        limit: usize,
        is_boundary: impl Fn(&[u8]) -> bool,
        defects: &mut Defects,
    ) -> Self {
        let mut headers: Vec<RawHeader<'a>> = Vec::new();
        let mut open: Option<HeaderSpan> = None;
        let mut at = start;
        let mut is_ended = false;
        let limit = start.saturating_add(limit);
        while at < raw.len() {
            let (line, next) = line_at(raw, at);
            match HeaderLine::of(line) {
                HeaderLine::Blank => {
                    at = next;
                    is_ended = true;
                    break;
                }
                HeaderLine::Header { .. } | HeaderLine::Other if line.starts_with(b"--") && is_boundary(line) => {
                    is_ended = true;
                    break;
                }
                HeaderLine::Folded => match &mut open {
                    Some(span) => span.end = at + line.len(),
                    None => defects.add(Defect::BadHeader),
                },
                HeaderLine::Header { name, value } => {
                    HeaderSpan::close(open.take(), raw, limit, &mut headers, defects);
                    // Nothing beyond the limit is remembered, or a message of nothing but headers would fill memory.
                    if at < limit {
                        open = Some(HeaderSpan { name: at..at + name, value: at + value, end: at + line.len() });
                    } else {
                        defects.add(Defect::HeadersTruncated);
                    }
                }
                HeaderLine::Envelope => defects.add(Defect::MboxFromLine),
                HeaderLine::Nameless => defects.add(Defect::BadHeader),
                // A parameter that lost its indentation.
                HeaderLine::Other
                    if open.as_ref().is_some_and(|span| span.awaits_parameter(raw)) && is_parameter(line) =>
                {
                    defects.add(Defect::BadHeader);
                    if let Some(span) = &mut open {
                        span.end = at + line.len();
                    }
                }
                HeaderLine::Other => {
                    defects.add(Defect::MissingSeparator);
                    is_ended = true;
                    break;
                }
            }
            at = next;
        }
        HeaderSpan::close(open, raw, limit, &mut headers, defects);
        Self { headers, body: at, is_ended }
    }

    pub fn find(&self, name: &str) -> Option<&RawHeader<'a>> {
        self.headers.iter().find(|header| header.is(name))
    }
}

/// A header whose continuation lines may still follow.
struct HeaderSpan {
    name: std::ops::Range<usize>,
    value: usize,
    end: usize,
}

impl HeaderSpan {
    /// Returns whether this is a header of parameters that ended at a semicolon.
    fn awaits_parameter(&self, raw: &[u8]) -> bool {
        let name = raw.get(self.name.clone()).unwrap_or_default();
        let value = raw.get(self.value..self.end).unwrap_or_default();
        (name.eq_ignore_ascii_case(b"content-type") || name.eq_ignore_ascii_case(b"content-disposition"))
            && value.trim_ascii_end().ends_with(b";")
    }

    fn close<'a>(
        span: Option<Self>,
        raw: &'a [u8],
        limit: usize,
        headers: &mut Vec<RawHeader<'a>>,
        defects: &mut Defects,
    ) {
        let Some(span) = span else { return };
        if span.end > limit {
            defects.add(Defect::HeadersTruncated);
        }
        let end = span.end.min(limit.max(span.value));
        let name = raw.get(span.name).unwrap_or_default();
        headers.push(RawHeader { name, value: raw.get(span.value..end).unwrap_or_default() });
    }
}

enum HeaderLine {
    Blank,
    Folded,
    /// Offsets in the line: where the name ends, where the value starts.
    Header {
        name: usize,
        value: usize,
    },
    /// `From …` of a mailbox file.
    Envelope,
    /// Starts with a colon.
    Nameless,
    Other,
}

impl HeaderLine {
    fn of(line: &[u8]) -> Self {
        let Some(&first) = line.first() else { return Self::Blank };
        if matches!(first, b' ' | b'\t') {
            return Self::Folded;
        }
        if line.starts_with(b"From ") || line.starts_with(b">From ") {
            return Self::Envelope;
        }
        let Some(colon) = memchr::memchr(b':', line) else { return Self::Other };
        if colon == 0 {
            return Self::Nameless;
        }
        let name = line.get(..colon).unwrap_or_default().trim_ascii_end();
        if !name.is_empty() && name.iter().all(u8::is_ascii_graphic) {
            return Self::Header { name: name.len(), value: colon + 1 };
        }
        Self::Other
    }
}

fn is_parameter(line: &[u8]) -> bool {
    ["boundary=", "charset=", "name=", "filename="]
        .iter()
        .any(|start| line.get(..start.len()).is_some_and(|prefix| prefix.eq_ignore_ascii_case(start.as_bytes())))
}

/// Returns whether a line would be read as a header.
pub fn is_header_line(line: &[u8]) -> bool {
    matches!(HeaderLine::of(line), HeaderLine::Header { .. })
}

/// Returns the line without its end, and where the next one starts. `\r\r\n`, which broken gateways write, ends a line
/// too.
pub fn line_at(raw: &[u8], at: usize) -> (&[u8], usize) {
    let rest = raw.get(at..).unwrap_or_default();
    let (mut line, next) = match memchr::memchr(b'\n', rest) {
        Some(end) => (rest.get(..end).unwrap_or_default(), at + end + 1),
        None => (rest, raw.len()),
    };
    while let Some(shorter) = line.strip_suffix(b"\r") {
        line = shorter;
    }
    (line, next)
}

/// Unfolds a value to one line: each fold becomes one space.
pub fn unfold(value: &[u8]) -> Cow<'_, [u8]> {
    let value = value.trim_ascii();
    if memchr::memchr2(b'\r', b'\n', value).is_none() {
        return Cow::Borrowed(value);
    }
    let mut out = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some(at) = memchr::memchr2(b'\r', b'\n', rest) {
        out.extend_from_slice(rest.get(..at).unwrap_or_default().trim_ascii_end());
        out.push(b' ');
        rest = rest.get(at..).unwrap_or_default().trim_ascii_start();
    }
    out.extend_from_slice(rest);
    Cow::Owned(out)
}

/// Reads header values of one message.
#[derive(Debug, Default)]
pub struct HeaderReader {
    /// What the body declares; raw header bytes that are not UTF-8 are most likely in it.
    pub body_charset: Option<String>,
}

impl HeaderReader {
    /// Returns one line of Unicode in which encoded words are still as written.
    pub fn line<'a>(&self, value: &'a [u8], defects: &mut Defects) -> Cow<'a, str> {
        match unfold(value) {
            Cow::Borrowed(bytes) => charset::decode_header(bytes, self.body_charset.as_deref(), defects),
            Cow::Owned(bytes) => {
                Cow::Owned(charset::decode_header(&bytes, self.body_charset.as_deref(), defects).into_owned())
            }
        }
    }

    /// Returns what a person reads: encoded words decoded, control characters removed.
    pub fn text(&self, value: &[u8], defects: &mut Defects) -> String {
        let line = self.line(value, defects);
        let decoded = if line.contains("=?") { words::decode(&line, defects) } else { line.into_owned() };
        text::single_line(decoded, defects)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(raw: &str) -> (Vec<(String, String)>, String, Vec<String>) {
        let mut defects = Defects::default();
        let section = HeaderSection::read(raw.as_bytes(), 0, 1000, |line| line == b"--b", &mut defects);
        let reader = HeaderReader::default();
        let headers = section.headers.iter().map(|header| {
            (String::from_utf8_lossy(header.name).into_owned(), reader.text(header.value, &mut Defects::default()))
        });
        (headers.collect(), raw[section.body..].to_owned(), defects.names())
    }

    #[test]
    fn folds_of_any_shape_become_one_space() {
        let (headers, body, defects) = read("A: one\r\n\t two\r\n \r\n three \r\nB:x\r\n\r\nbody");

        assert_eq!(headers, [("A".to_owned(), "one two three".to_owned()), ("B".to_owned(), "x".to_owned())]);
        assert_eq!(body, "body");
        assert!(defects.is_empty());
    }

    #[test]
    fn a_line_that_is_no_header_starts_the_body() {
        let (headers, body, defects) = read("Subject : x\nHello there\nB: y\n");

        assert_eq!(headers, [("Subject".to_owned(), "x".to_owned())]);
        assert_eq!(body, "Hello there\nB: y\n");
        assert_eq!(defects, ["missing_separator"]);
    }

    #[test]
    fn unindented_parameter_belongs_to_its_header() {
        let (headers, body, defects) = read("Content-Type: multipart/mixed;\nboundary=\"x\"\n\nbody");

        assert_eq!(headers[0].1, "multipart/mixed; boundary=\"x\"");
        assert_eq!(body, "body");
        assert_eq!(defects, ["bad_header"]);
    }

    #[test]
    fn a_boundary_ends_the_headers_of_a_part() {
        let (headers, body, defects) = read("A: x\n--b\nrest");

        assert_eq!(headers.len(), 1);
        assert_eq!(body, "--b\nrest");
        assert!(defects.is_empty());
    }

    #[test]
    fn headers_beyond_the_limit_are_not_kept() {
        let raw = format!("A: {}\nB: y\n\nbody", "x".repeat(2000));

        let (headers, body, defects) = read(&raw);

        assert_eq!(headers.len(), 1);
        assert_eq!(headers[0].1.len(), 997);
        assert_eq!(body, "body");
        assert_eq!(defects, ["headers_truncated"]);
    }

    #[test]
    fn values_lose_control_characters_even_when_encoded() {
        let value = HeaderReader::default().text(b"=?utf-8?q?a=0D=0AX-Evil:_b=00?=", &mut Defects::default());

        assert_eq!(value, "a X-Evil: b");
    }
}
