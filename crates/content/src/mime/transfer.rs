//! Content-Transfer-Encoding: seven-bit disguises back to bytes, as much as can be had of broken ones.

use std::borrow::Cow;

use super::defects::{Defect, Defects};
use super::uuencode;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transfer {
    Identity,
    Base64,
    QuotedPrintable,
    Uuencode,
}

impl Transfer {
    /// By the header's value. An unknown name means the bytes are taken as they are.
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

    /// No more than this many bytes come out.
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

/// The bytes and whether nothing was wrong. Junk between characters is skipped; what follows the padding is read on
/// only when it is more base64 (some mailers encode piece by piece), not when it is a mailing list's footer.
pub fn base64(encoded: &[u8]) -> (Vec<u8>, bool) {
    let mut out = Vec::with_capacity(encoded.len() / 4 * 3 + 3);
    let mut is_clean = true;
    let (mut bits, mut count) = (0u32, 0u32);
    let mut rest = encoded;
    // Looked for at the first padding, and only then: nearly always nothing follows it.
    let mut junk_end = None;
    loop {
        // The common case, four good characters at a time.
        if count == 0 {
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
        let Some((&byte, tail)) = rest.split_first() else { break };
        rest = tail;
        match ALPHABET[byte as usize] {
            SKIP => {}
            JUNK => is_clean = false,
            PAD => {
                is_clean &= count >= 2;
                flush(&mut out, bits, count);
                (bits, count) = (0, 0);
                let after = rest.iter().position(|&b| !matches!(b, b'=' | b' ' | b'\t' | b'\r' | b'\n'));
                let Some(after) = after else { break };
                is_clean = false;
                rest = rest.get(after..).unwrap_or_default();
                let is_junk = |&b: &u8| ALPHABET[b as usize] == JUNK;
                let junk_end =
                    *junk_end.get_or_insert_with(|| encoded.iter().rposition(is_junk).map_or(0, |at| at + 1));
                if encoded.len() - rest.len() < junk_end {
                    break;
                }
            }
            value => {
                bits = bits << 6 | u32::from(value);
                count += 1;
                if count == 4 {
                    let [_, x, y, z] = bits.to_be_bytes();
                    out.extend_from_slice(&[x, y, z]);
                    (bits, count) = (0, 0);
                }
            }
        }
    }
    is_clean &= count == 0;
    flush(&mut out, bits, count);
    (out, is_clean)
}

/// The bytes in an unfinished group of two or three characters.
fn flush(out: &mut Vec<u8>, bits: u32, count: u32) {
    match count {
        2 => out.push((bits >> 4) as u8),
        3 => out.extend_from_slice(&[(bits >> 10) as u8, (bits >> 2) as u8]),
        _ => {}
    }
}

/// The bytes and whether nothing was wrong. An `=` that begins nothing is kept as it is.
pub fn quoted_printable(encoded: &[u8]) -> (Vec<u8>, bool) {
    let mut out = Vec::with_capacity(encoded.len());
    let mut is_clean = true;
    let mut rest = encoded;
    while let Some(at) = memchr::memchr(b'=', rest) {
        let (before, tail) = rest.split_at(at);
        out.extend_from_slice(before);
        let tail = tail.get(1..).unwrap_or_default();
        if let [high, low, after @ ..] = tail
            && let (Some(high), Some(low)) = (hex(*high), hex(*low))
        {
            out.push(high << 4 | low);
            rest = after;
        } else if let Some(after) = soft_break(tail) {
            rest = after;
        } else {
            is_clean = false;
            out.push(b'=');
            rest = tail;
        }
    }
    out.extend_from_slice(rest);
    (out, is_clean)
}

/// What follows a line end that does not count, white space before it included.
fn soft_break(tail: &[u8]) -> Option<&[u8]> {
    // Transports pad lines a little, never by more than a line's length; looking further would make this quadratic.
    let end = tail.iter().take(80).position(|&b| !matches!(b, b' ' | b'\t' | b'\r'));
    match end {
        None => tail.iter().all(|&b| matches!(b, b' ' | b'\t' | b'\r')).then_some(&[]),
        Some(end) if tail.get(end) == Some(&b'\n') => tail.get(end + 1..),
        Some(_) => None,
    }
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

    #[test]
    fn encodings_are_named_carelessly() {
        let mut defects = Defects::default();

        assert_eq!(Transfer::find(" BASE64 (really)", &mut defects), Transfer::Base64);
        assert_eq!(Transfer::find("quoted-printable;", &mut defects), Transfer::QuotedPrintable);
        assert!(defects.names().is_empty());
        assert_eq!(Transfer::find("rot13", &mut defects), Transfer::Identity);
        assert_eq!(defects.names(), ["unknown_encoding"]);
    }
}
