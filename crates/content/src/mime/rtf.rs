//! Outlook's rich text bodies: decompressing them, and extracting the HTML or text they were made from (MS-OXRTFCP,
//! MS-OXRTFEX). Formatting is of no interest here.

use super::charset;
use super::defects::Defects;

#[derive(Debug, PartialEq, Eq)]
pub enum RtfContent {
    Html(String),
    Text(String),
}

/// The dictionary with which every decompression begins.
const PRELOADED: &[u8] =
    b"{\\rtf1\\ansi\\mac\\deff0\\deftab720{\\fonttbl;}{\\f0\\fnil \\froman \\fswiss \\fmodern \\fscript \
\\fdecor MS Sans SerifSymbolArialTimes New RomanCourier{\\colortbl\\red0\\green0\\blue0\r\n\\par \
\\pard\\plain\\f0\\fs20\\b\\i\\u\\tab\\tx";
const RTF_WINDOW_BYTES: usize = 4096;

/// Returns at most `most` bytes of the text in a compressed stream; `None` if it is none.
pub fn decompress(packed: &[u8], most: usize) -> Option<Vec<u8>> {
    let (header, data) = packed.split_at_checked(16)?;
    let size = usize::try_from(little_endian_u32(header, 4)?).ok()?.min(most);
    match little_endian_u32(header, 8)? {
        0x414C_454D => Some(data.get(..size).unwrap_or(data).to_vec()),
        0x7546_5A4C => Some(inflate(data, size)),
        _ => None,
    }
}

fn little_endian_u32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes)
}

fn inflate(data: &[u8], size: usize) -> Vec<u8> {
    let mut window = [0u8; RTF_WINDOW_BYTES];
    window[..PRELOADED.len()].copy_from_slice(PRELOADED);
    let mut at = PRELOADED.len();
    let mut out = Vec::with_capacity(size.min(data.len().saturating_mul(4)));
    let mut bytes = data.iter().copied();
    'groups: while let Some(control) = bytes.next() {
        for bit in 0..8 {
            if out.len() >= size {
                break 'groups;
            }
            if control >> bit & 1 == 0 {
                let Some(byte) = bytes.next() else { break 'groups };
                out.push(byte);
                window[at % RTF_WINDOW_BYTES] = byte;
                at += 1;
                continue;
            }
            let (Some(high), Some(low)) = (bytes.next(), bytes.next()) else { break 'groups };
            let reference = usize::from(u16::from_be_bytes([high, low]));
            let (offset, length) = (reference >> 4, (reference & 0xF) + 2);
            if offset == at % RTF_WINDOW_BYTES {
                break 'groups; // a reference to the write position marks the end
            }
            for i in 0..length {
                let byte = window[(offset + i) % RTF_WINDOW_BYTES];
                out.push(byte);
                window[at % RTF_WINDOW_BYTES] = byte;
                at += 1;
            }
        }
    }
    out.truncate(size);
    out
}

/// Returns the HTML that was wrapped into rich text, or else its plain text.
pub fn read(rich: &[u8]) -> RtfContent {
    let head = rich.get(..1000).unwrap_or(rich);
    let is_html = memchr::memmem::find(head, b"\\fromhtml").is_some();
    let mut reader = RtfReader { is_html, groups: vec![RtfGroup::default()], ..RtfReader::default() };
    reader.run(rich);
    reader.flush();
    if is_html { RtfContent::Html(reader.out) } else { RtfContent::Text(reader.out) }
}

/// Deeper groups are counted but not kept: no writer needs them.
const MAX_GROUP_DEPTH: usize = 1000;

#[derive(Default)]
struct RtfReader {
    is_html: bool,
    out: String,
    /// Bytes in the document's code page, not yet decoded.
    pending: Vec<u8>,
    charset: Option<String>,
    groups: Vec<RtfGroup>,
    beyond: usize,
    /// Characters to skip behind a Unicode one: its stand-in for old readers.
    skip: usize,
}

#[derive(Clone, Copy)]
struct RtfGroup {
    /// A table, a picture or anything else that is not text.
    is_hidden: bool,
    /// Rich text that the wrapped HTML does not have.
    is_rtf_only: bool,
    stand_ins: usize,
}

impl Default for RtfGroup {
    fn default() -> Self {
        Self { is_hidden: false, is_rtf_only: false, stand_ins: 1 }
    }
}

impl RtfReader {
    fn run(&mut self, rich: &[u8]) {
        let mut rest = rich;
        while let Some((&byte, tail)) = rest.split_first() {
            rest = tail;
            match byte {
                b'{' if self.groups.len() >= MAX_GROUP_DEPTH => self.beyond += 1,
                b'{' => self.groups.push(self.groups.last().copied().unwrap_or_default()),
                b'}' if self.beyond > 0 => self.beyond -= 1,
                b'}' => {
                    if self.groups.len() > 1 {
                        self.groups.pop();
                    }
                }
                b'\\' => rest = self.control(tail),
                b'\r' | b'\n' | 0 => {} // streams are often padded with NUL
                _ => self.byte(byte),
            }
        }
    }

    /// Reads what follows a backslash and gives what comes after it.
    fn control<'a>(&mut self, tail: &'a [u8]) -> &'a [u8] {
        let Some(&first) = tail.first() else { return tail };
        let after = tail.get(1..).unwrap_or_default();
        if !first.is_ascii_alphabetic() {
            match first {
                b'\'' => {
                    let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
                    if let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
                        self.byte(byte);
                    }
                    return after.get(2..).unwrap_or_default();
                }
                b'*' => return self.destination(after),
                b'~' => self.push("\u{A0}"),
                b'\\' | b'{' | b'}' => self.byte(first),
                b'\r' | b'\n' => self.push("\n"),
                _ => {}
            }
            return after;
        }
        let letters = tail.iter().take(32).take_while(|b| b.is_ascii_alphabetic()).count();
        let (name, rest) = tail.split_at(letters);
        let sign = usize::from(rest.first() == Some(&b'-'));
        let digits = rest.iter().skip(sign).take(10).take_while(|b| b.is_ascii_digit()).count();
        let digits = if digits == 0 { 0 } else { digits + sign };
        let (number, rest) = rest.split_at(digits);
        let number = std::str::from_utf8(number).ok().and_then(|digits| digits.parse::<i64>().ok());
        self.word(name, number);
        rest.strip_prefix(b" ").unwrap_or(rest)
    }

    /// Begins a destination `\*\name`: unknown ones are ignored, except those that hold the HTML.
    fn destination<'a>(&mut self, after: &'a [u8]) -> &'a [u8] {
        let is_tag = self.is_html && after.starts_with(b"\\htmltag");
        if let Some(group) = self.groups.last_mut() {
            group.is_hidden |= !is_tag;
            group.is_rtf_only &= !is_tag;
        }
        after
    }

    fn word(&mut self, name: &[u8], number: Option<i64>) {
        match name {
            b"par" | b"line" | b"sect" | b"row" => self.push("\n"),
            b"tab" | b"cell" => self.push("\t"),
            b"u" => {
                let code = number.unwrap_or(0);
                let code = u32::try_from(if code < 0 { code + 65536 } else { code }).unwrap_or(0);
                let mut buffer = [0; 4];
                // Surrogates come one by one; half a character is none.
                let c = char::from_u32(code).filter(|&c| c != '\0').unwrap_or(char::REPLACEMENT_CHARACTER);
                self.push(c.encode_utf8(&mut buffer));
                self.skip = self.groups.last().map_or(1, |group| group.stand_ins);
            }
            b"uc" => {
                if let Some(group) = self.groups.last_mut() {
                    group.stand_ins = usize::try_from(number.unwrap_or(1)).unwrap_or(1).min(16);
                }
            }
            b"ansicpg" => self.charset = number.and_then(super::mapi::code_page),
            b"htmlrtf" => {
                if let Some(group) = self.groups.last_mut() {
                    group.is_rtf_only = number != Some(0);
                }
            }
            b"fonttbl" | b"colortbl" | b"stylesheet" | b"info" | b"pict" | b"object" | b"header" | b"footer"
            | b"footnote" => {
                if let Some(group) = self.groups.last_mut() {
                    group.is_hidden = true;
                }
            }
            b"lquote" => self.push("‘"),
            b"rquote" => self.push("’"),
            b"ldblquote" => self.push("“"),
            b"rdblquote" => self.push("”"),
            b"bullet" => self.push("•"),
            b"endash" => self.push("–"),
            b"emdash" => self.push("—"),
            _ => {}
        }
    }

    fn is_visible(&self) -> bool {
        let group = self.groups.last().copied().unwrap_or_default();
        !(group.is_hidden || self.is_html && group.is_rtf_only)
    }

    fn byte(&mut self, byte: u8) {
        if self.skip > 0 {
            self.skip -= 1;
        } else if self.is_visible() {
            self.pending.push(byte);
        }
    }

    fn push(&mut self, text: &str) {
        if self.is_visible() {
            self.flush();
            self.out.push_str(text);
        }
    }

    fn flush(&mut self) {
        if !self.pending.is_empty() {
            let label = self.charset.as_deref().or(Some("windows-1252"));
            self.out.push_str(&charset::decode(&self.pending, label, &mut Defects::default()));
            self.pending.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressed_text_is_unpacked() {
        // The first example of MS-OXRTFCP §4.1.1.
        let packed: &[u8] =
            b"\x2d\0\0\0\x2b\0\0\0\x4c\x5a\x46\x75\xf1\xc5\xc7\xa7\x03\0\x0a\0\x72\x63\x70\x67\x31\x32\x35\
\x42\x32\x0a\xf3\x20\x68\x65\x6c\x09\0\x20\x62\x77\x05\xb0\x6c\x64\x7d\x0a\x80\x0f\xa0";

        let rich = decompress(packed, 1000).unwrap();

        assert_eq!(rich, b"{\\rtf1\\ansi\\ansicpg1252\\pard hello world}\r\n");
        assert_eq!(read(&rich), RtfContent::Text("hello world".to_owned()));
        assert_eq!(decompress(packed, 5).unwrap(), b"{\\rtf");
    }

    #[test]
    fn wrapped_html_is_unwrapped() {
        let rich = br"{\rtf1\ansi\ansicpg1252\fromhtml1 {\fonttbl{\f0 Arial;}}{\*\htmltag64 <p>}\htmlrtf {\htmlrtf0 caf\'e9 \u8364 ?{\*\htmltag72 </p>}\htmlrtf }\htmlrtf0 {\*\mhtmltag no}}";

        assert_eq!(read(rich), RtfContent::Html("<p>café €</p>".to_owned()));
    }

    #[test]
    fn hostile_rich_text_is_bounded() {
        read(&b"{".repeat(200_000));
        read(&b"{\\u".repeat(100_000));
        let mut bomb = b"\0\0\0\0\xFF\xFF\xFF\xFF\x4c\x5a\x46\x75\0\0\0\0".to_vec();
        bomb.extend(b"\xFF\0\x0F".repeat(1000));

        assert!(decompress(&bomb, 100).unwrap().len() <= 100);
    }
}
