//! RFC 2047 encoded words, also where standards do not allow them: in quotes, in file names, glued to other text.

use std::borrow::Cow;

use super::charset;
use super::defects::{Defect, Defects};
use super::transfer::{base64, hex};

/// Replaces every encoded word in a text by what it says.
pub fn decode(text: &str, defects: &mut Defects) -> String {
    let mut out = String::with_capacity(text.len());
    let mut pending = PendingWords::default();
    let mut rest = text;
    let mut ends = WordEndFinder::default();
    while let Some(at) = rest.find("=?") {
        let (before, tail) = rest.split_at(at);
        let position = text.len() - tail.len();
        let Some(word) = EncodedWord::read(text, position, &mut ends) else {
            pending.flush(&mut out, defects);
            out.push_str(before);
            out.push_str("=?");
            rest = tail.get(2..).unwrap_or_default();
            continue;
        };
        // White space between two words is only there to separate them.
        if !(pending.is_open && before.chars().all(char::is_whitespace)) {
            pending.flush(&mut out, defects);
            out.push_str(before);
        }
        if !word.is_clean {
            defects.add(Defect::BadEncodedWord);
        }
        pending.push(word, &mut out, defects);
        rest = text.get(position + pending.length..).unwrap_or_default();
    }
    pending.flush(&mut out, defects);
    out.push_str(rest);
    out
}

/// One word: `=?charset?encoding?text?=`.
struct EncodedWord<'a> {
    charset: &'a str,
    bytes: Vec<u8>,
    /// Of the whole word as written.
    length: usize,
    is_clean: bool,
}

/// Caches where the next `?=` is, so that a thousand words without an end cost one search.
#[derive(Default)]
struct WordEndFinder {
    known_from: usize,
    next: Option<usize>,
    is_searched: bool,
}

impl WordEndFinder {
    fn after(&mut self, text: &str, from: usize) -> Option<usize> {
        let is_current = self.is_searched && from >= self.known_from && self.next.is_none_or(|next| next >= from);
        if !is_current {
            self.next = text.get(from..).and_then(|tail| tail.find("?=")).map(|at| from + at);
            self.known_from = from;
            self.is_searched = true;
        }
        self.next
    }
}

impl<'a> EncodedWord<'a> {
    fn read(text: &'a str, start: usize, ends: &mut WordEndFinder) -> Option<Self> {
        let tail = text.get(start + 2..)?;
        // No charset has a longer name; this also keeps a search for `?` short.
        let charset_end = tail.bytes().take(80).position(|b| b == b'?')?;
        let charset = tail.get(..charset_end)?;
        if charset.is_empty() || charset.contains(char::is_whitespace) {
            return None;
        }
        let [encoding, b'?'] = *tail.as_bytes().get(charset_end + 1..charset_end + 3)? else { return None };
        let is_base64 = match encoding {
            b'b' | b'B' => true,
            b'q' | b'Q' => false,
            _ => return None,
        };
        let from = start + 2 + charset_end + 3;
        let (encoded, length, is_ended) = match ends.after(text, from) {
            Some(end) => (text.get(from..end)?, end + 2 - start, true),
            // Cut off: what is left up to the next white space is the word. A longer one is not worth a long search.
            None => {
                let rest = text.get(from..)?;
                let rest = rest.get(..rest.floor_char_boundary(200))?;
                let rest = rest.get(..rest.find(char::is_whitespace).unwrap_or(rest.len()))?;
                (rest, from + rest.len() - start, false)
            }
        };
        // Another word that begins inside means that this one lost its end.
        let (encoded, length, is_ended) = match encoded.find("=?") {
            Some(inner) if encoded.get(inner + 2..).is_some_and(looks_like_word) => {
                (encoded.get(..inner)?, from + inner - start, false)
            }
            _ => (encoded, length, is_ended),
        };
        let (bytes, is_clean) = if is_base64 { base64_word(encoded) } else { (quoted(encoded, charset), true) };
        Some(Self { charset, bytes, length, is_clean: is_clean && is_ended })
    }
}

fn looks_like_word(text: &str) -> bool {
    let mut fields = text.splitn(3, '?');
    let charset = fields.next().unwrap_or_default();
    let encoding = fields.next().unwrap_or_default();
    !charset.is_empty() && charset.len() < 40 && matches!(encoding, "q" | "Q" | "b" | "B")
}

/// Decodes a Base64 word. Lost padding is too common in headers to be worth a defect.
fn base64_word(encoded: &str) -> (Vec<u8>, bool) {
    let (bytes, is_clean) = base64(encoded.trim_end_matches('?').as_bytes());
    let is_plain = encoded.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=' | b' '));
    (bytes, is_clean || is_plain)
}

fn quoted(encoded: &str, charset: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(encoded.len());
    // Raw letters among the encoded ones are in the charset of the word, which they lost when the header was read.
    let bytes = if encoded.is_ascii() { Cow::Borrowed(encoded.as_bytes()) } else { charset::encode(encoded, charset) };
    let mut rest = bytes.as_ref();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        match byte {
            b'_' => out.push(b' '),
            b'=' => match tail {
                [high, low, after @ ..] if hex(*high).is_some() && hex(*low).is_some() => {
                    out.push(hex(*high).unwrap_or_default() << 4 | hex(*low).unwrap_or_default());
                    rest = after;
                }
                _ => out.push(b'='),
            },
            _ => out.push(byte),
        }
    }
    out
}

/// Words that follow each other: characters may be split between them, so they are decoded as one.
#[derive(Default)]
struct PendingWords {
    is_open: bool,
    charset: String,
    bytes: Vec<u8>,
    /// Of the last word as written.
    length: usize,
}

impl PendingWords {
    fn push(&mut self, word: EncodedWord<'_>, out: &mut String, defects: &mut Defects) {
        // RFC 2231 allows a language behind the charset.
        let charset = word.charset.split('*').next().unwrap_or_default();
        if self.is_open && !self.charset.eq_ignore_ascii_case(charset) {
            self.flush(out, defects);
        }
        self.is_open = true;
        self.length = word.length;
        if self.bytes.is_empty() {
            charset.clone_into(&mut self.charset);
            self.bytes = word.bytes;
        } else {
            self.bytes.extend_from_slice(&word.bytes);
        }
    }

    fn flush(&mut self, out: &mut String, defects: &mut Defects) {
        if self.is_open {
            out.push_str(&charset::decode(&self.bytes, Some(&self.charset), defects));
            self.bytes.clear();
            self.is_open = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> String {
        decode(text, &mut Defects::default())
    }

    fn defects(text: &str) -> Vec<String> {
        let mut defects = Defects::default();
        decode(text, &mut defects);
        defects.names()
    }

    #[test]
    fn adjacent_words_are_decoded_together() {
        assert_eq!(read("=?utf-8?Q?a?= =?utf-8?Q?b?= c"), "ab c");
        assert_eq!(read("=?UTF-8?q?=C3?= =?utf-8?q?=A9?="), "é");
        assert_eq!(read("=?utf-8?b?w6k=?= =?iso-8859-1?q?=E9?="), "éé");
        assert_eq!(read("x =?utf-8?q?a_b?= y"), "x a b y");
    }

    #[test]
    fn words_are_found_where_they_may_not_be() {
        assert_eq!(read("Re:=?utf-8?q?=C3=A9?=-mail"), "Re:é-mail");
        assert_eq!(read("=?utf-8?Q?with a space?="), "with a space");
        assert_eq!(read("=?utf-8*en?Q?lang?="), "lang");
        assert_eq!(read("=?iso-8859-1?Q?Fr\u{F6}sche_=F6?="), "Frösche ö");
    }

    #[test]
    fn broken_words_give_what_they_can() {
        assert_eq!(read("=?utf-8?B?SGVsbG8"), "Hello");
        assert_eq!(defects("=?utf-8?B?SGVsbG8"), ["bad_encoded_word"]);
        assert_eq!(read("=?utf-8?Q?one =?utf-8?Q?two?="), "one two");
        assert_eq!(read("=?utf-8?X?nope?="), "=?utf-8?X?nope?=");
        assert_eq!(read("1 =? 2"), "1 =? 2");
        assert_eq!(read("=?x-nope?q?caf=E9?="), "café");
        assert_eq!(defects("=?x-nope?q?caf=E9?="), ["unknown_charset"]);
    }

    #[test]
    fn many_words_take_linear_time() {
        assert_eq!(read(&"=?utf-8?q?a?= ".repeat(100_000)).trim_end().len(), 100_000);
        read(&"=?a?q?x".repeat(100_000));
        read(&"=?".repeat(200_000));
    }
}
