//! A message in the spool, read through a window of constant size.

use std::borrow::Cow;
use std::io::{self, Write};
use std::ops::Range;

use super::attachments::DecodeBudget;
use super::defects::{Defect, Defects};
use super::headers::HeaderSection;
use super::prologue::{self, LineSource};
use super::source::{MessageHead, MessageSource, without_line_end};
use super::transfer::{PIECE_BYTES, PieceSource, TransferEncoding};
use crate::spool::{Spool, SpoolableBytes, SpooledBytes};

/// How much of a line is inspected: more than any meaningful header or boundary.
const MAX_LINE_BYTES: usize = 64 << 10;
/// Several lines fit, so that most steps move nothing.
const WINDOW_BYTES: usize = 256 << 10;
/// Most header sections end within this.
const HEAD_BYTES: usize = 16 << 10;

/// A message in the spool. Reading never fails for the parser: after an error everything seems to be empty, and the
/// caller gets the error instead of the email.
#[derive(Debug)]
pub struct SpooledMessage<'s> {
    raw: SpooledBytes,
    /// The same before line ends were repaired.
    received: SpooledBytes,
    spool: &'s Spool,
    window: Vec<u8>,
    window_at: usize,
    pub failed: Option<io::Error>,
}

impl<'s> SpooledMessage<'s> {
    /// Opens a message; returns it and where its headers start, after anything that must not precede them.
    pub fn open(received: &SpooledBytes, spool: &'s Spool, defects: &mut Defects) -> io::Result<(Self, usize)> {
        let mut raw = received.clone();
        let mut received = received.clone();
        if let Some(encoding) = prologue::utf16(&raw.read_range(0..2)?)
            && let Some(text) = transcode(&raw, encoding, spool)?
        {
            defects.add(Defect::ByteOrderMark);
            received = text.clone();
            raw = text;
        }
        if has_bare_cr(&raw)? {
            defects.add(Defect::BareCr);
            raw = with_line_feeds(&raw, spool)?;
        }
        let mut message = Self { raw, received, spool, window: Vec::new(), window_at: 0, failed: None };
        let start = prologue::skip(&mut message, defects);
        Ok((message, start))
    }

    /// Returns `want` bytes from a position on, or fewer if the message ends before.
    fn look(&mut self, at: usize, want: usize) -> &[u8] {
        let is_inside = at >= self.window_at && at.saturating_add(want) <= self.window_at + self.window.len();
        let is_end = at >= self.window_at && self.window_at + self.window.len() >= self.len();
        if !is_inside && !is_end {
            self.window.resize(WINDOW_BYTES.max(want), 0);
            self.window_at = at;
            let count = self.raw.read_at(at as u64, &mut self.window);
            let count = self.checked(count);
            self.window.truncate(count);
        }
        self.window.get(at - self.window_at..).unwrap_or_default()
    }

    fn checked<T: Default>(&mut self, result: io::Result<T>) -> T {
        match result {
            Ok(value) if self.failed.is_none() => value,
            Ok(_) => T::default(),
            Err(e) => {
                self.failed.get_or_insert(e);
                T::default()
            }
        }
    }

    /// Returns lines from a position on, and whether the message ends with them. The last line is complete unless it
    /// starts before `limit` and does not end.
    fn lines(&mut self, start: usize, most: usize, limit: usize) -> (Vec<u8>, bool) {
        let range = start as u64..(start + most) as u64;
        let bytes = self.raw.read_range(range);
        let mut bytes = self.checked(bytes);
        let is_end = bytes.len() < most || start + bytes.len() >= self.len();
        let last = memchr::memrchr(b'\n', &bytes).map_or(0, |end| end + 1);
        if !is_end && (last >= limit || most < limit) {
            bytes.truncate(last);
        }
        (bytes, is_end)
    }

    /// Returns the end of a header section that goes on beyond all limits.
    fn pass_headers(&mut self, mut at: usize, is_boundary: impl Fn(&[u8]) -> bool) -> usize {
        while at < self.len() {
            let (line, next) = self.line(at);
            let line = [&line, b"\n".as_slice()].concat();
            let section = HeaderSection::read(&line, 0, 0, &is_boundary, &mut Defects::default());
            if section.is_ended {
                return if section.body > 0 { next } else { at };
            }
            at = next;
        }
        at
    }

    fn find(&mut self, mut at: usize, needle: &[u8]) -> Option<usize> {
        loop {
            let bytes = self.look(at, MAX_LINE_BYTES);
            if let Some(found) = memchr::memmem::find(bytes, needle) {
                return Some(at + found);
            }
            let passed = bytes.len().saturating_sub(needle.len() - 1);
            if bytes.len() < MAX_LINE_BYTES || passed == 0 {
                return None;
            }
            at += passed;
        }
    }

    /// Decodes a part into the spool.
    fn spool_part(
        &mut self,
        range: Range<usize>,
        transfer: TransferEncoding,
        defects: &mut Defects,
    ) -> io::Result<SpoolableBytes> {
        let mut writer = self.spool.create()?;
        let mut written = Ok(());
        let mut take = |piece: &[u8]| {
            written = writer.write_all(piece);
            written.is_ok()
        };
        let from = if transfer == TransferEncoding::Identity { &self.received } else { &self.raw };
        let mut pieces = FilePieces { from, buffer: Vec::new(), failed: None };
        transfer.decode_pieces(&mut pieces, range, &mut take, defects);
        pieces.failed.map_or(Ok(()), Err)?;
        written?;
        Ok(SpoolableBytes::Spooled(writer.finish()))
    }
}

impl LineSource for SpooledMessage<'_> {
    fn length(&self) -> usize {
        self.len()
    }

    fn line(&mut self, at: usize) -> (Cow<'_, [u8]>, usize) {
        let bytes = self.look(at, MAX_LINE_BYTES);
        let (piece, is_line) = match memchr::memchr(b'\n', bytes) {
            Some(end) => (bytes.get(..end).unwrap_or_default(), true),
            None => (bytes.get(..MAX_LINE_BYTES).unwrap_or(bytes), false),
        };
        let mut line = piece.to_vec();
        let next = if is_line { at + line.len() + 1 } else { self.find(at, b"\n").map_or(self.len(), |end| end + 1) };
        while line.ends_with(b"\r") {
            line.pop();
        }
        (Cow::Owned(line), next)
    }
}

impl MessageSource<'static> for SpooledMessage<'_> {
    fn len(&self) -> usize {
        // Beyond what a machine of 32 bits can count, the rest of a message is not parsed.
        usize::try_from(self.raw.len()).unwrap_or(usize::MAX)
    }

    fn start(&mut self, most: usize) -> Cow<'static, [u8]> {
        let bytes = self.look(0, most);
        Cow::Owned(bytes.get(..most).unwrap_or(bytes).to_vec())
    }

    fn head(&mut self, start: usize, limit: usize, is_boundary: impl Fn(&[u8]) -> bool) -> MessageHead<'static> {
        let most = limit.saturating_add(MAX_LINE_BYTES);
        let mut want = HEAD_BYTES.min(most);
        loop {
            let (bytes, is_end) = self.lines(start, want, limit);
            let section = HeaderSection::read(&bytes, 0, limit, &is_boundary, &mut Defects::default());
            if section.is_ended || is_end {
                return MessageHead { bytes: Cow::Owned(bytes), body: None };
            }
            if want == most {
                let last = memchr::memrchr(b'\n', &bytes).map_or(0, |end| end + 1);
                let next = if last == bytes.len() { start + last } else { self.line(start + last).1 };
                let body = self.pass_headers(next, is_boundary);
                return MessageHead { bytes: Cow::Owned(bytes), body: Some(body) };
            }
            want = want.saturating_mul(8).min(most);
        }
    }

    fn find_line<T>(&mut self, from: usize, find: impl Fn(&[u8]) -> Option<T>) -> Option<(Range<usize>, T)> {
        let mut at = from;
        loop {
            if self.look(at, 2).starts_with(b"--") {
                let (line, next) = self.line(at);
                if let Some(found) = find(&line) {
                    return Some((at..next, found));
                }
            }
            at = self.find(at, b"\n--")? + 1;
        }
    }

    fn line_end_before(&mut self, at: usize) -> usize {
        let start = at.saturating_sub(2);
        let bytes = self.raw.read_range(start as u64..at as u64);
        start + without_line_end(&self.checked(bytes))
    }

    fn is_blank(&mut self, range: Range<usize>) -> bool {
        let mut at = range.start;
        while at < range.end {
            let bytes = self.look(at, 1);
            let bytes = bytes.get(..range.end - at).unwrap_or(bytes);
            if bytes.is_empty() || !bytes.trim_ascii().is_empty() {
                return bytes.is_empty();
            }
            at += bytes.len();
        }
        true
    }

    fn beginning(
        &mut self,
        range: Range<usize>,
        transfer: TransferEncoding,
        most: usize,
        defects: &mut Defects,
    ) -> (Cow<'static, [u8]>, bool) {
        let mut pieces = FilePieces { from: &self.raw, buffer: Vec::new(), failed: None };
        let (decoded, is_cut) = transfer.decode_beginning(&mut pieces, range, most, defects);
        self.failed = self.failed.take().or(pieces.failed);
        (Cow::Owned(decoded), is_cut)
    }

    fn part(
        &mut self,
        range: Range<usize>,
        transfer: TransferEncoding,
        budget: &mut DecodeBudget,
        defects: &mut Defects,
    ) -> SpoolableBytes {
        if !budget.holds(range.len()) {
            let spooled = self.spool_part(range, transfer, defects);
            return self.checked(spooled);
        }
        let from = if transfer == TransferEncoding::Identity { &self.received } else { &self.raw };
        let bytes = from.read_range(range.start as u64..range.end as u64);
        let bytes = self.checked(bytes);
        let decoded = match transfer.decode(&bytes, defects) {
            Cow::Owned(decoded) => decoded,
            Cow::Borrowed(_) => bytes,
        };
        budget.keep(Cow::Owned(decoded))
    }
}

struct FilePieces<'a> {
    from: &'a SpooledBytes,
    buffer: Vec<u8>,
    failed: Option<io::Error>,
}

impl PieceSource for FilePieces<'_> {
    fn piece(&mut self, at: usize, most: usize) -> Cow<'_, [u8]> {
        self.buffer.resize(most, 0);
        let count = self.from.read_at(at as u64, &mut self.buffer).unwrap_or_else(|e| {
            self.failed.get_or_insert(e);
            0
        });
        Cow::Borrowed(self.buffer.get(..count).unwrap_or_default())
    }
}

/// Converts to UTF-8; returns `None` if the bytes are not what their byte order mark says.
fn transcode(
    raw: &SpooledBytes,
    encoding: &'static encoding_rs::Encoding,
    spool: &Spool,
) -> io::Result<Option<SpooledBytes>> {
    let mut writer = spool.create()?;
    let mut decoder = encoding.new_decoder_with_bom_removal();
    let mut out = vec![0; PIECE_BYTES * 2];
    let mut at = 0;
    loop {
        let piece = raw.read_range(at..at + PIECE_BYTES as u64)?;
        let is_last = piece.is_empty();
        at += piece.len() as u64;
        let mut rest = piece.as_slice();
        loop {
            let (result, read, written) = decoder.decode_to_utf8_without_replacement(rest, &mut out, is_last);
            writer.write_all(out.get(..written).unwrap_or_default())?;
            rest = rest.get(read..).unwrap_or_default();
            match result {
                encoding_rs::DecoderResult::InputEmpty => break,
                encoding_rs::DecoderResult::OutputFull => {}
                encoding_rs::DecoderResult::Malformed(..) => return Ok(None),
            }
        }
        if is_last {
            return Ok(Some(writer.finish()));
        }
    }
}

fn has_bare_cr(raw: &SpooledBytes) -> io::Result<bool> {
    let mut at = 0;
    loop {
        let piece = raw.read_range(at..at + PIECE_BYTES as u64)?;
        if piece.is_empty() {
            return Ok(false);
        }
        if let Some(end) = memchr::memchr2(b'\r', b'\n', &piece) {
            let at = at + end as u64;
            return Ok(prologue::is_bare_cr(&raw.read_range(at..at + 3)?));
        }
        at += piece.len() as u64;
    }
}

fn with_line_feeds(raw: &SpooledBytes, spool: &Spool) -> io::Result<SpooledBytes> {
    let mut writer = spool.create()?;
    let mut at = 0;
    loop {
        // One byte more, to see what follows a carriage return at the end.
        let mut piece = raw.read_range(at..at + PIECE_BYTES as u64 + 1)?;
        prologue::normalize_lone_crs(&mut piece);
        piece.truncate(PIECE_BYTES);
        if piece.is_empty() {
            return Ok(writer.finish());
        }
        writer.write_all(&piece)?;
        at += piece.len() as u64;
    }
}
