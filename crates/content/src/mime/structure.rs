//! Finds the parts of a message in one pass over its bytes.
//!
//! Written here because of what hostile mail does to a general parser: mail-parser 0.11 overflows the stack when it drops
//! a million nested messages (30 bytes each), and takes time in the square of the parts when their boundaries never
//! come. Here levels are a short stack, every byte is looked at once, and nothing is decoded before it is asked for.

use std::marker::PhantomData;
use std::ops::Range;

use domain::MessageLimits;

use super::defects::{Defect, Defects};
use super::headers::{HeaderReader, HeaderSection};
use super::params::HeaderParams;
use super::source::MessageSource;
use super::transfer::TransferEncoding;

/// A part that has no parts of its own (an attached message counts as one).
#[derive(Debug)]
pub struct Leaf {
    /// `2.1`: the first part of the second part.
    pub path: String,
    pub content_type: HeaderParams,
    pub disposition: HeaderParams,
    pub transfer: TransferEncoding,
    /// Without angle brackets.
    pub content_id: Option<String>,
    /// Where its encoded body is.
    pub body: Range<usize>,
    pub place: LeafPosition,
}

/// The position of a leaf among others.
#[derive(Debug, Clone, Copy, Default)]
pub struct LeafPosition {
    /// The innermost multipart/alternative around it: leaves with the same number are versions of the same content.
    pub alternative: Option<usize>,
    /// Directly inside multipart/related, behind its root.
    pub is_related: bool,
    /// Directly inside multipart/signed, and not its first part.
    pub is_signature: bool,
    /// Nothing stands before it in its multipart (or it is the whole message).
    pub is_first: bool,
    pub is_whole: bool,
}

/// Returns all leaves of a message whose headers were read already; its body starts at `body`.
pub fn leaves<'a>(
    source: &mut impl MessageSource<'a>,
    section: &HeaderSection<'_>,
    body: usize,
    reader: &HeaderReader,
    limits: &MessageLimits,
    defects: &mut Defects,
) -> Vec<Leaf> {
    let mut walk = StructureWalk {
        source,
        reader,
        limits,
        defects,
        levels: Vec::new(),
        leaves: Vec::new(),
        alternatives: 0,
        lifetime: PhantomData,
    };
    walk.run(section, body);
    walk.leaves
}

struct StructureWalk<'a, 'c, S> {
    source: &'c mut S,
    reader: &'c HeaderReader,
    limits: &'c MessageLimits,
    defects: &'c mut Defects,
    levels: Vec<OpenMultipart>,
    leaves: Vec<Leaf>,
    alternatives: usize,
    lifetime: PhantomData<&'a ()>,
}

/// A multipart that is open.
struct OpenMultipart {
    boundary: Vec<u8>,
    path: String,
    kind: MultipartKind,
    alternative: Option<usize>,
    /// How many parts were begun.
    parts: usize,
    /// A part that can be the body was begun: in multipart/related, others belong to it.
    has_root: bool,
    /// Where its first boundary was looked for.
    body: usize,
    place: LeafPosition,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MultipartKind {
    Related,
    Signed,
    Digest,
    Other,
}

/// A boundary line of the level with this index.
struct BoundaryLine {
    level: usize,
    is_close: bool,
    /// Where the part before it ends, without the line end that belongs to the boundary.
    end: usize,
    next: usize,
}

impl<'a, S: MessageSource<'a>> StructureWalk<'a, '_, S> {
    fn run(&mut self, section: &HeaderSection<'_>, body: usize) {
        let mut next = self.entity(section, body);
        while let Some(start) = next {
            let levels = &self.levels;
            let limit = self.limits.header_bytes;
            let head = self.source.head(start, limit, |line| find_level(levels, line).is_some());
            let (section, body) = head.read(start, limit, |line| find_level(levels, line).is_some(), self.defects);
            next = self.entity(&section, body);
        }
        if self.leaves.len() > self.limits.parts {
            self.defects.add(Defect::TooManyParts);
            self.leaves.truncate(self.limits.parts);
        }
    }

    /// Reads one part from its body on; gives where the next one starts.
    fn entity(&mut self, section: &HeaderSection<'_>, body: usize) -> Option<usize> {
        let mut content_type = self.content_type(section);
        let (path, place) = self.begin(&content_type);
        if content_type.kind() == "multipart" {
            let boundary = content_type.find("boundary").unwrap_or_default();
            let boundary = boundary.trim_end().as_bytes();
            if boundary.is_empty() || boundary.len() > 1000 {
                self.defects.add(Defect::MissingBoundary);
                content_type.value = "text/plain".to_owned();
            } else if self.levels.len() >= self.limits.nesting {
                self.defects.add(Defect::NestingTooDeep);
            } else {
                self.open(&content_type, boundary, path, body, place);
                return self.advance(body);
            }
        }
        let found = self.seek(body);
        // The last line end of a cut multipart belongs to the boundary that is missing.
        let length = self.source.len();
        let end = match &found {
            Some(found) => found.end,
            None if self.levels.is_empty() => length,
            None => self.source.line_end_before(length),
        };
        self.push(section, content_type, path, place, body..end.max(body));
        self.follow(found)
    }

    fn begin(&mut self, content_type: &HeaderParams) -> (String, LeafPosition) {
        let is_whole = self.levels.is_empty();
        let Some(level) = self.levels.last_mut() else {
            return ("1".to_owned(), LeafPosition { is_first: true, is_whole, ..LeafPosition::default() });
        };
        level.parts += 1;
        let number = level.parts;
        let path = if level.path.is_empty() { number.to_string() } else { format!("{}.{number}", level.path) };
        let place = LeafPosition {
            alternative: level.alternative,
            is_related: level.kind == MultipartKind::Related && level.has_root,
            is_signature: level.kind == MultipartKind::Signed && number > 1,
            is_first: number == 1,
            is_whole,
        };
        level.has_root |= matches!(content_type.kind(), "text" | "multipart");
        (path, place)
    }

    fn open(&mut self, content_type: &HeaderParams, boundary: &[u8], path: String, body: usize, place: LeafPosition) {
        let (kind, is_alternative) = match content_type.value.as_str() {
            "multipart/alternative" => (MultipartKind::Other, true),
            "multipart/related" => (MultipartKind::Related, false),
            "multipart/signed" => (MultipartKind::Signed, false),
            "multipart/digest" => (MultipartKind::Digest, false),
            _ => (MultipartKind::Other, false),
        };
        self.alternatives += usize::from(is_alternative);
        let alternative = if is_alternative { Some(self.alternatives) } else { place.alternative };
        // The whole message has no number of its own: its parts are 1, 2, 3.
        let path = if place.is_whole { String::new() } else { path };
        self.levels.push(OpenMultipart {
            boundary: boundary.to_vec(),
            path,
            kind,
            alternative,
            parts: 0,
            has_root: false,
            body,
            place,
        });
    }

    /// Returns the start of the next part, from any position between parts.
    fn advance(&mut self, from: usize) -> Option<usize> {
        let found = self.seek(from);
        self.follow(found)
    }

    /// Closes what a boundary closes; gives where the part that it opens starts.
    fn follow(&mut self, mut found: Option<BoundaryLine>) -> Option<usize> {
        // Leaves beyond the limit are not even looked for.
        if self.leaves.len() > self.limits.parts {
            return None;
        }
        loop {
            let Some(boundary) = found else {
                if !self.levels.is_empty() {
                    self.defects.add(Defect::UnclosedMultipart);
                }
                self.close_above(0, self.source.len());
                return None;
            };
            if self.levels.len() > boundary.level + 1 {
                self.defects.add(Defect::UnclosedMultipart);
                self.close_above(boundary.level + 1, boundary.end);
            }
            if !boundary.is_close {
                return Some(boundary.next);
            }
            self.close_above(boundary.level, boundary.end);
            if self.levels.is_empty() {
                return None; // an epilogue says nothing
            }
            found = self.seek(boundary.next);
        }
    }

    /// Ends all levels from this index on. One in which no part ever began is a text after all.
    fn close_above(&mut self, index: usize, end: usize) {
        while self.levels.len() > index {
            let Some(level) = self.levels.pop() else { return };
            if level.parts > 0 {
                continue;
            }
            self.defects.add(Defect::MissingBoundary);
            let body = level.body..end.max(level.body);
            if self.source.is_blank(body.clone()) {
                continue;
            }
            let path = if level.path.is_empty() { "1".to_owned() } else { level.path };
            self.leaves.push(Leaf {
                path,
                content_type: HeaderParams::parse("text/plain"),
                disposition: HeaderParams::default(),
                transfer: TransferEncoding::Identity,
                content_id: None,
                body,
                place: level.place,
            });
        }
    }

    /// Returns the next boundary line of any open level, at or after `from`, which must be the start of a line.
    fn seek(&mut self, from: usize) -> Option<BoundaryLine> {
        if self.levels.is_empty() {
            return None;
        }
        let levels = &self.levels;
        let (lines, (level, is_close)) = self.source.find_line(from, |line| find_level(levels, line))?;
        let end = if lines.start > from { self.source.line_end_before(lines.start).max(from) } else { from };
        Some(BoundaryLine { level, is_close, end, next: lines.end })
    }

    fn push(
        &mut self,
        section: &HeaderSection<'_>,
        content_type: HeaderParams,
        path: String,
        place: LeafPosition,
        body: Range<usize>,
    ) {
        let disposition = section
            .find("content-disposition")
            .map(|header| HeaderParams::parse(&self.reader.line(header.value, self.defects)))
            .unwrap_or_default();
        let transfer = section
            .find("content-transfer-encoding")
            .map(|header| TransferEncoding::find(&String::from_utf8_lossy(header.value), self.defects))
            .unwrap_or(TransferEncoding::Identity);
        let content_id = section.find("content-id").map(|header| self.reader.text(header.value, self.defects));
        let content_id = content_id.map(|id| id.trim_matches(['<', '>', ' ']).to_owned()).filter(|id| !id.is_empty());
        self.leaves.push(Leaf { path, content_type, disposition, transfer, content_id, body, place });
    }

    fn content_type(&mut self, section: &HeaderSection<'_>) -> HeaderParams {
        if let Some(header) = section.find("content-type") {
            let mut params = HeaderParams::parse(&self.reader.line(header.value, self.defects));
            if !is_type(&params.value) {
                // `Content-Type: text` and worse; RFC 2045 §5.2 says to take it as plain text.
                params.value = "text/plain".to_owned();
            }
            return params;
        }
        let is_digest = self.levels.last().is_some_and(|level| level.kind == MultipartKind::Digest);
        let implied = if is_digest { "message/rfc822" } else { "text/plain" };
        HeaderParams::parse(implied)
    }
}

fn is_type(value: &str) -> bool {
    value.split_once('/').is_some_and(|(kind, subtype)| is_token(kind) && is_token(subtype))
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic() && b != b'/')
}

/// Finds the open multipart of which a line is a boundary, innermost first, and whether the line closes it.
fn find_level(levels: &[OpenMultipart], line: &[u8]) -> Option<(usize, bool)> {
    let line = line.strip_prefix(b"--")?;
    levels.iter().enumerate().rev().find_map(|(index, level)| {
        let rest = line.strip_prefix(level.boundary.as_slice())?;
        match rest.trim_ascii() {
            b"" => Some((index, false)),
            b"--" => Some((index, true)),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mime::source::InMemoryMessage;

    fn read(raw: &str) -> (Vec<(String, String, String)>, Vec<String>) {
        read_within(raw, &MessageLimits::default())
    }

    fn read_within(raw: &str, limits: &MessageLimits) -> (Vec<(String, String, String)>, Vec<String>) {
        let mut defects = Defects::default();
        let raw = raw.as_bytes();
        let section = HeaderSection::read(raw, 0, 1 << 16, |_| false, &mut defects);
        let mut source = InMemoryMessage { raw, received: raw };
        let found = leaves(&mut source, &section, section.body, &HeaderReader::default(), limits, &mut defects);
        let found = found.iter().map(|leaf| {
            let body = String::from_utf8_lossy(&raw[leaf.body.clone()]).into_owned();
            (leaf.path.clone(), leaf.content_type.value.clone(), body)
        });
        (found.collect(), defects.names())
    }

    fn leaf(path: &str, name: &str, body: &str) -> (String, String, String) {
        (path.to_owned(), name.to_owned(), body.to_owned())
    }

    #[test]
    fn parts_are_numbered_like_in_imap() {
        let raw = "Content-Type: multipart/mixed; boundary=\"o\"\n\npreamble\n--o\n\none\n\n--o\n\
                   Content-Type: multipart/alternative; boundary=i\n\n--i\n\ntwo\n--i\nContent-Type: text/html\n\n\
                   three\n--i--\nignored\n--o--\nepilogue\n";

        let (leaves, defects) = read(raw);

        assert_eq!(
            leaves,
            [leaf("1", "text/plain", "one\n"), leaf("2.1", "text/plain", "two"), leaf("2.2", "text/html", "three")]
        );
        assert!(defects.is_empty());
    }

    #[test]
    fn an_outer_boundary_ends_inner_parts() {
        let raw = "Content-Type: multipart/mixed; boundary=o\r\n\r\n--o\r\n\
                   Content-Type: multipart/mixed; boundary=i\r\n\r\n--i\r\n\r\none\r\n--o\r\n\r\ntwo\r\n--o--";

        let (leaves, defects) = read(raw);

        assert_eq!(leaves, [leaf("1.1", "text/plain", "one"), leaf("2", "text/plain", "two")]);
        assert_eq!(defects, ["unclosed_multipart"]);
    }

    #[test]
    fn a_multipart_without_parts_is_a_text() {
        assert_eq!(read("Content-Type: multipart/mixed; boundary=b\n\nhello").0, [leaf("1", "text/plain", "hello")]);
        assert_eq!(read("Content-Type: multipart/mixed\n\nhello").1, ["missing_boundary"]);
    }

    #[test]
    fn a_digest_holds_messages() {
        let raw = "Content-Type: multipart/digest; boundary=b\n\n--b\n\nSubject: x\n\nhi\n--b--\n";

        assert_eq!(read(raw).0, [leaf("1", "message/rfc822", "Subject: x\n\nhi")]);
    }

    #[test]
    fn a_boundary_is_a_whole_line() {
        let raw = "Content-Type: multipart/mixed; boundary=b\n\n--b \n\n--bc\n --b\n--b--x\n--b--\t\n";

        assert_eq!(read(raw).0, [leaf("1", "text/plain", "--bc\n --b\n--b--x")]);
    }

    #[test]
    fn ten_thousand_levels_stop_at_the_limit() {
        let nested: String =
            (0..10_000).map(|i| format!("Content-Type: multipart/mixed; boundary=b{i}\n\n--b{i}\n")).collect();

        let (leaves, defects) = read(&nested);

        assert_eq!(leaves.len(), 1);
        assert_eq!(leaves[0].0.split('.').count(), 32);
        assert!(defects.contains(&"nesting_too_deep".to_owned()));
    }

    #[test]
    fn ten_thousand_parts_stop_at_the_limit() {
        let parts = "--b\n\nx\n".repeat(10_000);
        let unfinished = "--b\nContent-Type: multipart/mixed; boundary=never\n\nx\n".repeat(10_000);

        for body in [parts, unfinished] {
            let (leaves, defects) = read(&format!("Content-Type: multipart/mixed; boundary=b\n\n{body}"));

            assert_eq!(leaves.len(), 1000);
            assert!(defects.contains(&"too_many_parts".to_owned()));
        }
    }
}
