//! A streaming reader for a JSON object that has a message as one base64 string of any length. The string is decoded as it
//! arrives and never held in memory; the rest of the object is kept as a small JSON document.

use memchr::memchr2;

use domain::ConnectorError;

use crate::http::protocol;

/// The largest rest of an object: labels, a snippet and some numbers.
const MAX_REST_BYTES: usize = 1 << 20;

/// Reads one object whose field `field` is base64.
#[derive(Debug)]
pub struct Base64FieldReader {
    /// Name of the string that is decoded.
    field: &'static [u8],
    depth: usize,
    string: Option<StringState>,
    /// The last key at the outermost level, and whether its value comes next.
    key: Vec<u8>,
    is_value_next: bool,
    escape: Vec<u8>,
    /// The object with an empty string in place of the base64.
    pub rest: Vec<u8>,
    /// Length of `rest` when the base64 string began.
    pub rest_before_field: usize,
    decoder: Base64Decoder,
    /// The object has ended.
    pub is_done: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StringState {
    /// Copied to `rest`, from this index on.
    Copied(usize),
    Decoded,
}

impl Base64FieldReader {
    pub fn new(field: &'static str) -> Self {
        Self {
            field: field.as_bytes(),
            depth: 0,
            string: None,
            key: Vec::new(),
            is_value_next: false,
            escape: Vec::new(),
            rest: Vec::new(),
            rest_before_field: 0,
            decoder: Base64Decoder::default(),
            is_done: false,
        }
    }

    /// Consumes input up to the end of the object and passes the decoded bytes to `write`. Returns how many it consumed.
    pub fn feed<E: From<ConnectorError>>(
        &mut self,
        bytes: &[u8],
        write: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<usize, E> {
        let mut at = 0;
        while at < bytes.len() && !self.is_done {
            at += match self.string {
                Some(StringState::Decoded) => self.feed_base64(&bytes[at..], write)?,
                Some(StringState::Copied(start)) => self.feed_string(&bytes[at..], start),
                None => self.feed_structure(bytes[at])?,
            };
            if self.rest.len() > MAX_REST_BYTES {
                return Err(protocol("the response is too large").into());
            }
        }
        Ok(at)
    }

    fn feed_structure(&mut self, byte: u8) -> Result<usize, ConnectorError> {
        match byte {
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.depth = self.depth.checked_sub(1).ok_or_else(|| protocol("the response is not JSON"))?;
                self.is_done = self.depth == 0;
            }
            b'"' if self.depth == 1 && self.is_value_next && self.key == self.field => {
                self.string = Some(StringState::Decoded);
                self.rest_before_field = self.rest.len();
            }
            b'"' => self.string = Some(StringState::Copied(self.rest.len() + 1)),
            b':' if self.depth == 1 => self.is_value_next = true,
            b',' if self.depth == 1 => self.is_value_next = false,
            byte if self.depth == 0 && !byte.is_ascii_whitespace() => return Err(protocol("the response is not JSON")),
            _ => {}
        }
        self.rest.push(byte);
        Ok(1)
    }

    /// Copies a string up to its end or to an escape.
    fn feed_string(&mut self, bytes: &[u8], start: usize) -> usize {
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

    fn feed_base64<E: From<ConnectorError>>(
        &mut self,
        bytes: &[u8],
        write: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<usize, E> {
        if !self.escape.is_empty() {
            // Apart from `/` and `+` only ignored characters are ever escaped: `=` as \u003d, and line ends.
            self.escape.push(bytes[0]);
            let length = if self.escape.get(1) == Some(&b'u') { 6 } else { 2 };
            if self.escape.len() == length {
                let sign = match self.escape.as_slice() {
                    br"\/" => b'/',
                    br"\u002b" | br"\u002B" => b'+',
                    _ => b'=',
                };
                self.escape.clear();
                self.decoder.feed(&[sign], write)?;
            }
            return Ok(1);
        }
        let end = memchr2(b'"', b'\\', bytes).unwrap_or(bytes.len());
        self.decoder.feed(&bytes[..end], write)?;
        match bytes.get(end) {
            None => return Ok(end),
            Some(b'\\') => self.escape.push(b'\\'),
            Some(_) => {
                self.decoder.finish(write)?;
                self.rest.push(b'"');
                self.string = None;
            }
        }
        Ok(end + 1)
    }
}

/// Decodes base64 of either alphabet, padded or not, in pieces of any length.
#[derive(Debug, Default)]
struct Base64Decoder {
    bits: u32,
    count: u32,
    out: Vec<u8>,
}

const INVALID_BYTE: u8 = 0xff;
const SKIPPED_BYTE: u8 = 0xfe;

const SEXTETS: [u8; 256] = {
    let mut values = [INVALID_BYTE; 256];
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
    values[b'=' as usize] = SKIPPED_BYTE;
    values[b'\r' as usize] = SKIPPED_BYTE;
    values[b'\n' as usize] = SKIPPED_BYTE;
    values
};

impl Base64Decoder {
    fn feed<E: From<ConnectorError>>(
        &mut self,
        bytes: &[u8],
        write: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.out.clear();
        self.out.reserve(bytes.len() / 4 * 3 + 3);
        for byte in bytes {
            match SEXTETS[*byte as usize] {
                INVALID_BYTE => return Err(protocol("a message is not base64").into()),
                SKIPPED_BYTE => {}
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
        if self.out.is_empty() { Ok(()) } else { write(&self.out) }
    }

    fn finish<E: From<ConnectorError>>(&mut self, write: &mut impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let (bits, count) = (std::mem::take(&mut self.bits), std::mem::take(&mut self.count));
        match count {
            0 => Ok(()),
            2 => write(&[(bits >> 4) as u8]),
            3 => write(&[(bits >> 10) as u8, (bits >> 2) as u8]),
            _ => Err(protocol("the base64 of a message ends too early").into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE, URL_SAFE_NO_PAD};

    use super::*;

    /// Feeds the text in pieces of this length.
    fn read(text: &str, piece: usize) -> Result<(Vec<u8>, serde_json::Value, usize), ConnectorError> {
        let (mut json, mut bytes, mut used) = (Base64FieldReader::new("raw"), Vec::new(), 0);
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
    fn any_alphabet_field_order_and_piece_size_is_decoded() {
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
    fn escaped_characters_are_decoded() {
        assert_eq!(read(r#"{"raw":"YQ\u003d\u003d"}"#, 3).unwrap().0, b"a");
        assert_eq!(read(r#"{"raw":"\/\/\/\/"}"#, 2).unwrap().0, [255, 255, 255]);
    }

    #[test]
    fn malformed_object_is_an_error() {
        assert!(read(r#"{"raw":"a*b"}"#, 5).is_err());
        assert!(read(r#"{"raw":"abcde"}"#, 5).is_err());
        assert!(read("<html></html>", 5).is_err());
        assert!(read("]", 5).is_err());
    }
}
