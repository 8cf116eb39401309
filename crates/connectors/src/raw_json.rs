//! A message in JSON, whose bytes are a text of any length in it. They are decoded as they come and never held; what else
//! is in the object is kept as a small JSON of its own.

use memchr::memchr2;

use domain::ConnectorError;

use crate::http::protocol;

/// The most that is kept: labels, a snippet and some numbers.
const LARGEST_REST: usize = 1 << 20;

/// The object under way.
#[derive(Debug)]
pub struct RawJson {
    /// The name of the text that is decoded.
    of: &'static [u8],
    depth: usize,
    string: Option<Text>,
    /// The last name at the outermost level, and whether its value comes next.
    key: Vec<u8>,
    is_value_next: bool,
    escape: Vec<u8>,
    /// The object without the bytes.
    pub rest: Vec<u8>,
    /// How long that was when the bytes began.
    pub before: usize,
    decoder: Decoder,
    /// The object has ended.
    pub is_done: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Text {
    /// Begins at this place of `rest`.
    Kept(usize),
    Raw,
}

impl RawJson {
    /// Of an object in which the bytes are a text of this name.
    pub fn of(name: &'static str) -> Self {
        Self {
            of: name.as_bytes(),
            depth: 0,
            string: None,
            key: Vec::new(),
            is_value_next: false,
            escape: Vec::new(),
            rest: Vec::new(),
            before: 0,
            decoder: Decoder::default(),
            is_done: false,
        }
    }

    /// Takes what belongs to the object, and gives the bytes of the message in it to `taken`; how many it took.
    pub fn feed<E: From<ConnectorError>>(
        &mut self,
        bytes: &[u8],
        taken: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<usize, E> {
        let mut at = 0;
        while at < bytes.len() && !self.is_done {
            at += match self.string {
                Some(Text::Raw) => self.feed_raw(&bytes[at..], taken)?,
                Some(Text::Kept(start)) => self.feed_text(&bytes[at..], start),
                None => self.feed_mark(bytes[at])?,
            };
            if self.rest.len() > LARGEST_REST {
                return Err(protocol("an answer is too large").into());
            }
        }
        Ok(at)
    }

    fn feed_mark(&mut self, byte: u8) -> Result<usize, ConnectorError> {
        match byte {
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.depth = self.depth.checked_sub(1).ok_or_else(|| protocol("an answer is not JSON"))?;
                self.is_done = self.depth == 0;
            }
            b'"' if self.depth == 1 && self.is_value_next && self.key == self.of => {
                self.string = Some(Text::Raw);
                self.before = self.rest.len();
            }
            b'"' => self.string = Some(Text::Kept(self.rest.len() + 1)),
            b':' if self.depth == 1 => self.is_value_next = true,
            b',' if self.depth == 1 => self.is_value_next = false,
            byte if self.depth == 0 && !byte.is_ascii_whitespace() => return Err(protocol("an answer is not JSON")),
            _ => {}
        }
        self.rest.push(byte);
        Ok(1)
    }

    /// Up to its end, or to what escapes it.
    fn feed_text(&mut self, bytes: &[u8], start: usize) -> usize {
        if !self.escape.is_empty() {
            self.escape.clear();
            self.rest.push(bytes[0]);
            return 1;
        }
        let end = memchr2(b'"', b'\\', bytes);
        self.rest.extend_from_slice(&bytes[..end.unwrap_or(bytes.len())]);
        let Some(end) = end else { return bytes.len() };
        self.rest.push(bytes[end]);
        if bytes[end] == b'\\' {
            self.escape.push(b'\\');
        } else {
            if self.depth == 1 && !self.is_value_next {
                self.key = self.rest[start..self.rest.len() - 1].to_vec();
            }
            self.string = None;
        }
        end + 1
    }

    fn feed_raw<E: From<ConnectorError>>(
        &mut self,
        bytes: &[u8],
        taken: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<usize, E> {
        if !self.escape.is_empty() {
            // Only signs that mean nothing here are ever escaped: `=` as \u003d, and the ends of lines.
            self.escape.push(bytes[0]);
            let length = if self.escape.get(1) == Some(&b'u') { 6 } else { 2 };
            if self.escape.len() == length {
                let sign = match self.escape.as_slice() {
                    br"\/" => b'/',
                    br"\u002b" | br"\u002B" => b'+',
                    _ => b'=',
                };
                self.escape.clear();
                self.decoder.feed(&[sign], taken)?;
            }
            return Ok(1);
        }
        let end = memchr2(b'"', b'\\', bytes).unwrap_or(bytes.len());
        self.decoder.feed(&bytes[..end], taken)?;
        match bytes.get(end) {
            None => return Ok(end),
            Some(b'\\') => self.escape.push(b'\\'),
            Some(_) => {
                self.decoder.finish(taken)?;
                self.rest.push(b'"');
                self.string = None;
            }
        }
        Ok(end + 1)
    }
}

/// Base64 of either alphabet, padded or not, in pieces of any length.
#[derive(Debug, Default)]
struct Decoder {
    bits: u32,
    count: u32,
    out: Vec<u8>,
}

const NONE: u8 = 0xff;
const SKIP: u8 = 0xfe;

const VALUES: [u8; 256] = {
    let mut values = [NONE; 256];
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let mut i = 0;
    while i < alphabet.len() {
        values[alphabet[i] as usize] = i as u8;
        i += 1;
    }
    values[b'-' as usize] = 62;
    values[b'+' as usize] = 62;
    values[b'_' as usize] = 63;
    values[b'/' as usize] = 63;
    values[b'=' as usize] = SKIP;
    values[b'\r' as usize] = SKIP;
    values[b'\n' as usize] = SKIP;
    values
};

impl Decoder {
    fn feed<E: From<ConnectorError>>(
        &mut self,
        bytes: &[u8],
        taken: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.out.clear();
        self.out.reserve(bytes.len() / 4 * 3 + 3);
        for byte in bytes {
            match VALUES[*byte as usize] {
                NONE => return Err(protocol("the bytes of a message are not base64").into()),
                SKIP => {}
                value => {
                    self.bits = self.bits << 6 | u32::from(value);
                    self.count += 1;
                    if self.count == 4 {
                        self.out.extend_from_slice(&self.bits.to_be_bytes()[1..]);
                        (self.bits, self.count) = (0, 0);
                    }
                }
            }
        }
        if self.out.is_empty() { Ok(()) } else { taken(&self.out) }
    }

    fn finish<E: From<ConnectorError>>(&mut self, taken: &mut impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let (bits, count) = (std::mem::take(&mut self.bits), std::mem::take(&mut self.count));
        match count {
            0 => Ok(()),
            2 => taken(&[(bits >> 4) as u8]),
            3 => taken(&[(bits >> 10) as u8, (bits >> 2) as u8]),
            _ => Err(protocol("the bytes of a message end too early").into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE, URL_SAFE_NO_PAD};

    use super::*;

    /// In pieces of this length.
    fn read(text: &str, piece: usize) -> Result<(Vec<u8>, serde_json::Value, usize), ConnectorError> {
        let (mut json, mut bytes, mut used) = (RawJson::of("raw"), Vec::new(), 0);
        for piece in text.as_bytes().chunks(piece) {
            used += json.feed(piece, &mut |more: &[u8]| {
                bytes.extend_from_slice(more);
                Ok::<_, ConnectorError>(())
            })?;
        }
        assert!(json.is_done);
        Ok((bytes, serde_json::from_slice(&json.rest).unwrap(), used))
    }

    #[test]
    fn bytes_come_out_whatever_the_alphabet_the_order_and_the_pieces() {
        for length in 0..100_u32 {
            let bytes: Vec<u8> = (0..length).map(|n| (n * 37 + length) as u8).collect();
            let texts = [STANDARD.encode(&bytes), URL_SAFE.encode(&bytes), URL_SAFE_NO_PAD.encode(&bytes)];
            for text in texts {
                let object = format!(
                    r#" {{"id": "a\"raw\":{{", "raw": "{text}", "x": {{"raw": "no", "y": ["]", "\\"]}}, "sizeEstimate": 7}}"#
                );
                for piece in [1, 7, 1000] {
                    let (found, rest, used) = read(&format!("{object}\r\n--x"), piece).unwrap();
                    assert_eq!(found, bytes);
                    assert_eq!(used, object.len());
                    assert_eq!(
                        (&rest["id"], &rest["raw"], &rest["x"]["raw"]),
                        (&"a\"raw\":{".into(), &"".into(), &"no".into())
                    );
                }
            }
        }
    }

    #[test]
    fn signs_may_be_escaped() {
        assert_eq!(read(r#"{"raw":"YQ\u003d\u003d"}"#, 3).unwrap().0, b"a");
        assert_eq!(read(r#"{"raw":"\/\/\/\/"}"#, 2).unwrap().0, [255, 255, 255]);
    }

    #[test]
    fn what_is_not_such_an_object_is_refused() {
        assert!(read(r#"{"raw":"a*b"}"#, 5).is_err());
        assert!(read(r#"{"raw":"abcde"}"#, 5).is_err());
        assert!(read("<html></html>", 5).is_err());
        assert!(read("]", 5).is_err());
    }
}
