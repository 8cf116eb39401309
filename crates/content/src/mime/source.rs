//! Access to a message's bytes in memory or, for large messages, in the spool. The parser requests headers, boundaries
//! and parts, so both are read by the same code.

use std::borrow::Cow;
use std::ops::Range;

use super::attachments::DecodeBudget;
use super::defects::{Defect, Defects};
use super::headers::{HeaderSection, line_at};
use super::transfer::TransferEncoding;
use crate::spool::SpoolableBytes;

pub trait MessageSource<'a> {
    fn len(&self) -> usize;

    /// Returns the bytes up to `most` from the start.
    fn start(&mut self, most: usize) -> Cow<'a, [u8]>;

    /// Returns the header section that starts here.
    fn head(&mut self, start: usize, limit: usize, is_boundary: impl Fn(&[u8]) -> bool) -> MessageHead<'a>;

    /// Returns the first line from `from` on (which is the start of a line) that begins with `--` and that `find`
    /// wants.
    fn find_line<T>(&mut self, from: usize, find: impl Fn(&[u8]) -> Option<T>) -> Option<(Range<usize>, T)>;

    /// Returns where the line before `at` ends.
    fn line_end_before(&mut self, at: usize) -> usize;

    fn is_blank(&mut self, range: Range<usize>) -> bool;

    /// Returns the decoded beginning of a part, and whether that is not all of it.
    fn beginning(
        &mut self,
        range: Range<usize>,
        transfer: TransferEncoding,
        most: usize,
        defects: &mut Defects,
    ) -> (Cow<'a, [u8]>, bool);

    /// Returns a decoded part as a whole. One that is not encoded is returned as received, not with its line ends
    /// repaired.
    fn part(
        &mut self,
        range: Range<usize>,
        transfer: TransferEncoding,
        budget: &mut DecodeBudget,
        defects: &mut Defects,
    ) -> SpoolableBytes;
}

/// The bytes of a header section, and perhaps more.
#[derive(Debug)]
pub struct MessageHead<'a> {
    pub bytes: Cow<'a, [u8]>,
    /// Where the body starts, if these bytes do not reach so far.
    pub body: Option<usize>,
}

impl MessageHead<'_> {
    /// Returns the headers of the part, and where its body starts in the message.
    pub fn read(
        &self,
        start: usize,
        limit: usize,
        is_boundary: impl Fn(&[u8]) -> bool,
        defects: &mut Defects,
    ) -> (HeaderSection<'_>, usize) {
        let section = HeaderSection::read(&self.bytes, 0, limit, is_boundary, defects);
        if self.body.is_some() {
            defects.add(Defect::HeadersTruncated);
        }
        let body = self.body.unwrap_or(start + section.body);
        (section, body)
    }
}

/// A message in memory.
#[derive(Debug)]
pub struct InMemoryMessage<'a> {
    pub raw: &'a [u8],
    /// The same before line ends were repaired.
    pub received: &'a [u8],
}

impl<'a> MessageSource<'a> for InMemoryMessage<'a> {
    fn len(&self) -> usize {
        self.raw.len()
    }

    fn start(&mut self, most: usize) -> Cow<'a, [u8]> {
        Cow::Borrowed(self.raw.get(..most).unwrap_or(self.raw))
    }

    fn head(&mut self, start: usize, _limit: usize, _is_boundary: impl Fn(&[u8]) -> bool) -> MessageHead<'a> {
        MessageHead { bytes: Cow::Borrowed(self.raw.get(start..).unwrap_or_default()), body: None }
    }

    fn find_line<T>(&mut self, from: usize, find: impl Fn(&[u8]) -> Option<T>) -> Option<(Range<usize>, T)> {
        let rest = self.raw.get(from..)?;
        let first = rest.starts_with(b"--").then_some(from);
        let others = memchr::memmem::find_iter(rest, b"\n--").map(|at| from + at + 1);
        first.into_iter().chain(others).find_map(|at| {
            let (line, next) = line_at(self.raw, at);
            find(line).map(|found| (at..next, found))
        })
    }

    fn line_end_before(&mut self, at: usize) -> usize {
        without_line_end(self.raw.get(..at).unwrap_or_default())
    }

    fn is_blank(&mut self, range: Range<usize>) -> bool {
        self.raw.get(range).unwrap_or_default().trim_ascii().is_empty()
    }

    fn beginning(
        &mut self,
        range: Range<usize>,
        transfer: TransferEncoding,
        most: usize,
        defects: &mut Defects,
    ) -> (Cow<'a, [u8]>, bool) {
        let body = self.raw.get(range).unwrap_or_default();
        // Nothing grows by being decoded.
        if body.len() <= most {
            return (transfer.decode(body, defects), false);
        }
        let mut body = body;
        let length = body.len();
        let (decoded, is_cut) = transfer.decode_beginning(&mut body, 0..length, most, defects);
        (Cow::Owned(decoded), is_cut)
    }

    fn part(
        &mut self,
        range: Range<usize>,
        transfer: TransferEncoding,
        budget: &mut DecodeBudget,
        defects: &mut Defects,
    ) -> SpoolableBytes {
        let bytes = match transfer {
            TransferEncoding::Identity => Cow::Borrowed(self.received.get(range).unwrap_or_default()),
            encoded => encoded.decode(self.raw.get(range).unwrap_or_default(), defects),
        };
        budget.keep(bytes)
    }
}

/// Returns the length of bytes without the line end that they end with.
pub fn without_line_end(bytes: &[u8]) -> usize {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    bytes.strip_suffix(b"\r").unwrap_or(bytes).len()
}
