//! Decodes Content-Transfer-Encoding (Base64, quoted-printable, uuencode), as far as possible where it is broken.

use std::borrow::Cow;
use std::ops::Range;

use super::defects::{Defect, Defects};
use super::uuencode;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferEncoding {
    Identity,
    Base64,
    QuotedPrintable,
    Uuencode,
}

impl TransferEncoding {
    /// Returns the encoding by the header's value; an unknown one means that the bytes are taken as they are.
    pub fn find(name: &str, defects: &mut Defects) -> Self {
        let token = name.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, '"' | '\''));
        let end = token.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '_')).unwrap_or(token.len());
        match token.get(..end).unwrap_or_default().to_ascii_lowercase().as_str() {
            "" | "7bit" | "8bit" | "binary" | "7-bit" | "8-bit" | "none" | "7bits" | "8bits" => Self::Identity,
            "base64" | "base-64" | "b" | "x-base64" => Self::Base64,
            "quoted-printable" | "quoted_printable" | "quotedprintable" | "quoted" | "q" | "qp" => {
                Self::QuotedPrintable
            }
            "x-uuencode" | "uuencode" | "x-uue" | "uue" => Self::Uuencode,
            _ => {
                defects.add(Defect::UnknownEncoding);
                Self::Identity
            }
        }
    }

    /// Returns an upper bound on the decoded size.
    pub fn bound(self, encoded: usize) -> usize {
        match self {
            Self::Identity | Self::QuotedPrintable | Self::Uuencode => encoded,
            Self::Base64 => encoded / 4 * 3 + 3,
        }
    }

    pub fn decode<'a>(self, bytes: &'a [u8], defects: &mut Defects) -> Cow<'a, [u8]> {
        let (decoded, is_clean) = match self {
            Self::Identity => return Cow::Borrowed(bytes),
            Self::Base64 => base64(bytes),
            Self::QuotedPrintable => quoted_printable(bytes),
            Self::Uuencode => match uuencode::decode_all(bytes) {
                Some(decoded) => (decoded, true),
                None => {
                    defects.add(Defect::BadEncoding);
                    return Cow::Borrowed(bytes);
                }
            },
        };
        if !is_clean {
            defects.add(Defect::BadEncoding);
        }
        Cow::Owned(decoded)
    }
}

const SKIP: u8 = 64; // white space, which is everywhere and harmless
const JUNK: u8 = 65;
const PAD: u8 = 66;

static ALPHABET: [u8; 256] = alphabet();

const fn alphabet() -> [u8; 256] {
    let mut table = [JUNK; 256];
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut i = 0;
    while i < letters.len() {
        table[letters[i] as usize] = i as u8;
        i += 1;
    }
    table[b'=' as usize] = PAD;
    table[b' ' as usize] = SKIP;
    table[b'\t' as usize] = SKIP;
    table[b'\r' as usize] = SKIP;
    table[b'\n' as usize] = SKIP;
    table
}

/// Decodes Base64; returns the bytes and whether it was valid. Junk between characters is skipped; what follows the
/// padding is decoded only if it is more Base64 (some mailers encode piece by piece), not if it is a mailing list's
/// footer.
pub fn base64(encoded: &[u8]) -> (Vec<u8>, bool) {
    let mut out = Vec::with_capacity(encoded.len() / 4 * 3 + 3);
    let mut decoder = Base64Decoder::default();
    decoder.feed(encoded, 0, &mut || last_junk(encoded), &mut out);
    let is_clean = decoder.finish(&mut out);
    (out, is_clean)
}

fn last_junk(encoded: &[u8]) -> usize {
    encoded.iter().rposition(|&b| ALPHABET[b as usize] == JUNK).map_or(0, |at| at + 1)
}

/// The decoder's state between two pieces.
#[derive(Default)]
struct Base64Decoder {
    bits: u32,
    count: u32,
    is_unclean: bool,
    is_padded: bool,
    /// Computed only when something follows padding, which is rare.
    junk_end: Option<usize>,
}

impl Base64Decoder {
    /// Takes the piece that stands at `at`; false when nothing after it counts. `junk_end` tells where the last byte
    /// that is no base64 ends in the whole.
    fn feed(&mut self, piece: &[u8], at: usize, junk_end: &mut dyn FnMut() -> usize, out: &mut Vec<u8>) -> bool {
        let mut rest = piece;
        loop {
            // The common case, four good characters at a time.
            if self.count == 0 && !self.is_padded {
                while let Some((quad, tail)) = rest.split_first_chunk::<4>() {
                    let [a, b, c, d] = quad.map(|byte| u32::from(ALPHABET[byte as usize]));
                    if (a | b | c | d) >= u32::from(SKIP) {
                        break;
                    }
                    let [_, x, y, z] = (a << 18 | b << 12 | c << 6 | d).to_be_bytes();
                    out.extend_from_slice(&[x, y, z]);
                    rest = tail;
                }
            }
            let Some((&byte, tail)) = rest.split_first() else { return true };
            let value = ALPHABET[byte as usize];
            if self.is_padded && !matches!(value, SKIP | PAD) {
                self.is_padded = false;
                self.is_unclean = true;
                let place = at + piece.len() - rest.len();
                if place < *self.junk_end.get_or_insert_with(&mut *junk_end) {
                    return false;
                }
            }
            rest = tail;
            match value {
                SKIP => {}
                PAD if self.is_padded => {}
                JUNK => self.is_unclean = true,
                PAD => {
                    self.is_unclean |= self.count < 2;
                    self.flush(out);
                    self.is_padded = true;
                }
                value => {
                    self.bits = self.bits << 6 | u32::from(value);
                    self.count += 1;
                    if self.count == 4 {
                        let [_, x, y, z] = self.bits.to_be_bytes();
                        out.extend_from_slice(&[x, y, z]);
                        (self.bits, self.count) = (0, 0);
                    }
                }
            }
        }
    }

    /// Ends the decoding; returns whether the input was valid.
    fn finish(mut self, out: &mut Vec<u8>) -> bool {
        self.is_unclean |= self.count != 0;
        self.flush(out);
        !self.is_unclean
    }

    /// Writes the bytes of an unfinished group of two or three characters.
    fn flush(&mut self, out: &mut Vec<u8>) {
        match self.count {
            2 => out.push((self.bits >> 4) as u8),
            3 => out.extend_from_slice(&[(self.bits >> 10) as u8, (self.bits >> 2) as u8]),
            _ => {}
        }
        (self.bits, self.count) = (0, 0);
    }
}

/// Decodes quoted-printable; returns the bytes and whether it was valid. An `=` that begins no escape is kept as it is.
pub fn quoted_printable(encoded: &[u8]) -> (Vec<u8>, bool) {
    let mut out = Vec::with_capacity(encoded.len());
    let (_, is_clean) = quoted_printable_piece(encoded, true, &mut || true, &mut out);
    (out, is_clean)
}

/// Decodes a piece: how much of it (or all that follows, too), and whether nothing was wrong. An `=` too near the end of a piece that is not the
/// last is left to the next one. `is_white` tells whether only white space follows the piece.
fn quoted_printable_piece(
    piece: &[u8],
    is_last: bool,
    is_white: &mut dyn FnMut() -> bool,
    out: &mut Vec<u8>,
) -> (usize, bool) {
    let mut is_clean = true;
    let mut rest = piece;
    while let Some(at) = memchr::memchr(b'=', rest) {
        let (before, tail) = rest.split_at(at);
        out.extend_from_slice(before);
        if !is_last && tail.len() <= MAX_LINE_PADDING_BYTES + 1 {
            return (piece.len() - tail.len(), is_clean);
        }
        let tail = tail.get(1..).unwrap_or_default();
        if let [high, low, after @ ..] = tail
            && let (Some(high), Some(low)) = (hex(*high), hex(*low))
        {
            out.push(high << 4 | low);
            rest = after;
        } else if let Some(after) = soft_break(tail) {
            rest = after;
        } else if tail.iter().all(is_padding) && is_white() {
            return (usize::MAX, is_clean);
        } else {
            is_clean = false;
            out.push(b'=');
            rest = tail;
        }
    }
    out.extend_from_slice(rest);
    (piece.len(), is_clean)
}

/// Transports pad lines a little, never by more than a line's length; looking further would make this quadratic.
const MAX_LINE_PADDING_BYTES: usize = 80;

/// Returns what follows a soft line break, with white space before it skipped.
fn soft_break(tail: &[u8]) -> Option<&[u8]> {
    let end = tail.iter().take(MAX_LINE_PADDING_BYTES).position(|b| !is_padding(b))?;
    if tail.get(end) == Some(&b'\n') { tail.get(end + 1..) } else { None }
}

fn is_padding(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r')
}

/// Bytes that are read in pieces, from memory or the spool.
pub trait PieceSource {
    /// Returns at most `most` bytes from a position on; none only at the end.
    fn piece(&mut self, at: usize, most: usize) -> Cow<'_, [u8]>;
}

impl PieceSource for &[u8] {
    fn piece(&mut self, at: usize, most: usize) -> Cow<'_, [u8]> {
        let rest = self.get(at..).unwrap_or_default();
        Cow::Borrowed(rest.get(..most).unwrap_or(rest))
    }
}

/// Large enough that reading a piece costs little beside decoding it.
pub const PIECE_BYTES: usize = 64 << 10;

/// Uuencoded parts beyond this are taken as they are: whether a block is good is only known at its end.
const MAX_UUENCODED_BYTES: usize = 16 << 20;

impl TransferEncoding {
    /// Decodes what stands in a range piece by piece, until the taker has had enough and says false.
    pub fn decode_pieces(
        self,
        source: &mut dyn PieceSource,
        range: Range<usize>,
        take: &mut dyn FnMut(&[u8]) -> bool,
        defects: &mut Defects,
    ) {
        let is_clean = match self {
            Self::Identity => copy(source, range, take),
            Self::Base64 => base64_pieces(source, range, take),
            Self::QuotedPrintable => quoted_printable_pieces(source, range, take),
            Self::Uuencode => {
                let mut whole = Vec::new();
                if range.len() <= MAX_UUENCODED_BYTES {
                    copy(source, range.clone(), &mut |piece| {
                        whole.extend_from_slice(piece);
                        true
                    });
                }
                match uuencode::decode_all(&whole) {
                    Some(decoded) => {
                        take(&decoded);
                        true
                    }
                    None => {
                        copy(source, range, take);
                        false
                    }
                }
            }
        };
        if !is_clean {
            defects.add(Defect::BadEncoding);
        }
    }

    /// Decodes at most `most` bytes; returns them and whether there are more.
    pub fn decode_beginning(
        self,
        source: &mut dyn PieceSource,
        range: Range<usize>,
        most: usize,
        defects: &mut Defects,
    ) -> (Vec<u8>, bool) {
        let mut out = Vec::with_capacity(most.min(range.len()));
        let mut is_cut = false;
        self.decode_pieces(
            source,
            range,
            &mut |piece| {
                let room = most - out.len();
                is_cut |= piece.len() > room;
                out.extend_from_slice(piece.get(..room).unwrap_or(piece));
                !is_cut
            },
            defects,
        );
        (out, is_cut)
    }
}

fn copy(source: &mut dyn PieceSource, range: Range<usize>, take: &mut dyn FnMut(&[u8]) -> bool) -> bool {
    let mut at = range.start;
    while at < range.end {
        let piece = source.piece(at, PIECE_BYTES.min(range.end - at));
        if piece.is_empty() || !take(&piece) {
            break;
        }
        at += piece.len();
    }
    true
}

fn base64_pieces(source: &mut dyn PieceSource, range: Range<usize>, take: &mut dyn FnMut(&[u8]) -> bool) -> bool {
    let mut decoder = Base64Decoder::default();
    let mut out = Vec::with_capacity(PIECE_BYTES);
    let mut at = range.start;
    while at < range.end {
        let piece = source.piece(at, PIECE_BYTES.min(range.end - at)).into_owned();
        out.clear();
        let goes_on = decoder.feed(&piece, at, &mut || junk_end(source, range.clone()), &mut out);
        if !take(&out) {
            return !decoder.is_unclean;
        }
        if piece.is_empty() || !goes_on {
            break;
        }
        at += piece.len();
    }
    out.clear();
    let is_clean = decoder.finish(&mut out);
    take(&out);
    is_clean
}

/// Returns where the last byte that is not base64 ends, or 0.
fn junk_end(source: &mut dyn PieceSource, range: Range<usize>) -> usize {
    let (mut end, mut from) = (0, range.start);
    copy(source, range, &mut |piece| {
        end = Some(last_junk(piece)).filter(|&end| end > 0).map_or(end, |end| from + end);
        from += piece.len();
        true
    });
    end
}

fn quoted_printable_pieces(
    source: &mut dyn PieceSource,
    range: Range<usize>,
    take: &mut dyn FnMut(&[u8]) -> bool,
) -> bool {
    let mut is_clean = true;
    let mut out = Vec::with_capacity(PIECE_BYTES);
    let mut at = range.start;
    while at < range.end {
        let piece = source.piece(at, PIECE_BYTES.min(range.end - at)).into_owned();
        let end = at + piece.len();
        out.clear();
        let (used, is_good) =
            quoted_printable_piece(&piece, end == range.end, &mut || is_white(source, end..range.end), &mut out);
        is_clean &= is_good;
        if used == 0 || !take(&out) {
            break;
        }
        at = at.saturating_add(used);
    }
    is_clean
}

fn is_white(source: &mut dyn PieceSource, range: Range<usize>) -> bool {
    let mut is_white = true;
    copy(source, range, &mut |piece| {
        is_white = piece.iter().all(is_padding);
        is_white
    });
    is_white
}

pub fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_survives_line_ends_junk_and_lost_padding() {
        assert_eq!(base64(b"SGVs\r\nbG8="), (b"Hello".to_vec(), true));
        assert_eq!(base64(b"SGVs!bG8="), (b"Hello".to_vec(), false));
        assert_eq!(base64(b"SGVsbG8"), (b"Hello".to_vec(), false));
        assert_eq!(base64(b""), (vec![], true));
    }

    #[test]
    fn base64_pieces_are_joined_and_footers_are_not() {
        assert_eq!(base64(b"SGVsbG8=\nSGVsbG8=").0, b"HelloHello");
        assert_eq!(base64(b"SGVsbG8=\n_____ list footer").0, b"Hello");
    }

    #[test]
    fn endless_padding_takes_linear_time() {
        assert_eq!(base64(&b"=A".repeat(500_000)).0, b"");
        assert_eq!(base64(&b"QQ==".repeat(100_000)).0.len(), 100_000);
    }

    #[test]
    fn quoted_printable_keeps_what_it_cannot_read() {
        assert_eq!(quoted_printable(b"caf=C3=a9 =\r\nau lait"), ("café au lait".as_bytes().to_vec(), true));
        assert_eq!(quoted_printable(b"soft=  \nbreak"), (b"softbreak".to_vec(), true));
        assert_eq!(quoted_printable(b"a=b=ZZ"), (b"a=b=ZZ".to_vec(), false));
        assert_eq!(quoted_printable(b"end="), (b"end".to_vec(), true));
    }

    /// A source that gives less at a time than it is asked for, so that every place is an edge.
    struct SmallPieces<'a>(&'a [u8], usize);

    impl PieceSource for SmallPieces<'_> {
        fn piece(&mut self, at: usize, most: usize) -> Cow<'_, [u8]> {
            let end = self.0.len().min(at + most.min(self.1));
            Cow::Borrowed(self.0.get(at..end).unwrap_or_default())
        }
    }

    #[test]
    fn pieces_decode_like_the_whole() {
        let padding = " ".repeat(200);
        let texts = [
            "SGVs\r\nbG8=".to_owned(),
            "SGVsbG8=\n_____ list footer SGVs".to_owned(),
            "SGVsbG8=\nSGVsbG8=\n".repeat(50),
            format!("QQ=={}SGVs!bG8", "=".repeat(300)),
            "caf=C3=a9 =\r\nau lait".repeat(40),
            format!("a=b{padding}=ZZ={padding}\nx={padding}"),
            format!("end={padding}{padding}"),
            format!("end={padding}{padding}x="),
            "begin 644 hi.txt\r\n%:&5L;&\\ \r\n`\r\nend\r\n".to_owned(),
        ];
        for text in &texts {
            let text = text.as_bytes();
            for transfer in [
                TransferEncoding::Identity,
                TransferEncoding::Base64,
                TransferEncoding::QuotedPrintable,
                TransferEncoding::Uuencode,
            ] {
                let mut whole_defects = Defects::default();
                let whole = transfer.decode(text, &mut whole_defects);
                for size in [90, 127, 1000] {
                    let (mut out, mut defects) = (Vec::new(), Defects::default());
                    transfer.decode_pieces(
                        &mut SmallPieces(text, size),
                        0..text.len(),
                        &mut |piece| {
                            out.extend_from_slice(piece);
                            true
                        },
                        &mut defects,
                    );

                    assert_eq!(String::from_utf8_lossy(&out), String::from_utf8_lossy(&whole), "{transfer:?} {size}");
                    assert_eq!(defects.names(), whole_defects.names());
                }
            }
        }
    }

    #[test]
    fn encodings_are_named_carelessly() {
        let mut defects = Defects::default();

        assert_eq!(TransferEncoding::find(" BASE64 (really)", &mut defects), TransferEncoding::Base64);
        assert_eq!(TransferEncoding::find("quoted-printable;", &mut defects), TransferEncoding::QuotedPrintable);
        assert!(defects.names().is_empty());
        assert_eq!(TransferEncoding::find("rot13", &mut defects), TransferEncoding::Identity);
        assert_eq!(defects.names(), ["unknown_encoding"]);
    }
}
