//! Header fields: ASCII only, folded, with RFC 2047 encoded words and RFC 2231 parameters.

use super::Charset;
use super::encode::{append_base64_line, quoted};

/// The column before which lines are folded, if there is a space (RFC 5322 section 2.1.1).
const FOLD_COLUMN: usize = 78;
/// The maximum length of an encoded word (RFC 2047 section 2).
const MAX_ENCODED_WORD_BYTES: usize = 75;

/// The maximum width of an address field's name with colon and space, as in `Reply-To: `.
const MAX_FIELD_NAME_COLUMNS: usize = 10;

/// The two encodings of RFC 2047.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WordStyle {
    Base64,
    Quoted,
}

/// A builder of a header block.
#[derive(Debug, Default)]
pub struct Headers {
    pub text: String,
}

impl Headers {
    /// Appends a field with an ASCII value, folded at spaces.
    pub fn field(&mut self, name: &str, value: &str) {
        debug_assert!(value.is_ascii(), "{name}: {value}");
        self.text.push_str(name);
        self.text.push(':');
        let mut column = name.len() + 1;
        for word in value.split(' ') {
            if column + 1 + word.len() > FOLD_COLUMN && column > name.len() + 1 {
                self.text.push_str("\r\n");
                column = 0;
            }
            self.text.push(' ');
            self.text.push_str(word);
            column += 1 + word.len();
        }
        self.text.push_str("\r\n");
    }

    /// Appends a field of free text in any language.
    pub fn unstructured(&mut self, name: &str, value: &str, charset: Charset, style: WordStyle) {
        if value.is_ascii() {
            self.field(name, value);
        } else {
            self.field(name, &encoded_words(value, charset, style, name.len() + 2));
        }
    }

    /// Appends an address field. Names that are not plain words are quoted or encoded.
    pub fn addresses<'a>(
        &mut self,
        name: &str,
        people: impl Iterator<Item = (&'a str, &'a str)>,
        charset: Charset,
        style: WordStyle,
    ) {
        let mut value = String::new();
        for (display, address) in people {
            if !value.is_empty() {
                value.push_str(", ");
            }
            value.push_str(&mailbox(display, address, charset, style));
        }
        self.field(name, &value);
    }
}

/// Renders `Name <address>`, with the name quoted or encoded as needed.
pub fn mailbox(display: &str, address: &str, charset: Charset, style: WordStyle) -> String {
    if display.is_empty() {
        return address.to_owned();
    }
    if !display.is_ascii() {
        return format!("{} <{address}>", encoded_words(display, charset, style, MAX_FIELD_NAME_COLUMNS));
    }
    let is_plain = display.bytes().all(|b| b.is_ascii_alphanumeric() || b == b' ' || b == b'-' || b == b'\'');
    if is_plain { format!("{display} <{address}>") } else { format!("\"{display}\" <{address}>") }
}

/// Encodes text as encoded words with a space between them, which readers drop. Falls back to UTF-8 if the charset
/// lacks a letter.
///
/// The first word leaves `lead` columns for the field name, so that no line exceeds 76 (RFC 2047 section 2).
fn encoded_words(text: &str, charset: Charset, style: WordStyle, lead: usize) -> String {
    let charset = if charset.encode(text).is_some() { charset } else { Charset::Utf8 };
    let frame = format!("=?{}?{}?", charset.name(), if style == WordStyle::Base64 { 'B' } else { 'Q' });
    let mut room = MAX_ENCODED_WORD_BYTES - frame.len() - 2 - lead;
    let mut words = String::new();
    let mut piece = String::new();
    for letter in text.chars() {
        piece.push(letter);
        // Letters and escape sequences are never split: each word must decode on its own (section 5).
        if encoded_length(&charset.encode(&piece).unwrap_or_default(), style) > room {
            piece.pop();
            append_word(&mut words, &frame, &charset.encode(&piece).unwrap_or_default(), style);
            piece.clear();
            piece.push(letter);
            room = MAX_ENCODED_WORD_BYTES - frame.len() - 2;
        }
    }
    append_word(&mut words, &frame, &charset.encode(&piece).unwrap_or_default(), style);
    words
}

fn encoded_length(bytes: &[u8], style: WordStyle) -> usize {
    match style {
        WordStyle::Base64 => bytes.len().div_ceil(3) * 4,
        WordStyle::Quoted => bytes.iter().map(|&b| if is_plain_in_word(b) || b == b' ' { 1 } else { 3 }).sum(),
    }
}

fn append_word(words: &mut String, frame: &str, bytes: &[u8], style: WordStyle) {
    let mut coded = Vec::with_capacity(MAX_ENCODED_WORD_BYTES);
    match style {
        WordStyle::Base64 => append_base64_line(&mut coded, bytes),
        WordStyle::Quoted => {
            for &byte in bytes {
                match byte {
                    b' ' => coded.push(b'_'),
                    _ if is_plain_in_word(byte) => coded.push(byte),
                    _ => coded.extend_from_slice(&quoted(byte)),
                }
            }
        }
    }
    if !words.is_empty() {
        words.push(' ');
    }
    words.push_str(frame);
    words.extend(coded.into_iter().map(char::from));
    words.push_str("?=");
}

/// Returns whether a byte needs no escape in a Q-encoded word of a display name (RFC 2047 section 5, rule 3).
fn is_plain_in_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'!' | b'*' | b'+' | b'-' | b'/')
}

/// Appends `; name="value"`, or the RFC 2231 form in pieces if the value is not ASCII.
pub fn append_parameter(out: &mut String, name: &str, value: &str) {
    if value.is_ascii() {
        out.push_str(&format!(";\r\n {name}=\"{value}\""));
        return;
    }
    let mut pieces = vec![String::new()];
    for letter in value.chars() {
        let mut coded = String::new();
        for byte in letter.encode_utf8(&mut [0; 4]).bytes() {
            if byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'-' || byte == b'_' {
                coded.push(char::from(byte));
            } else {
                let [_, high, low] = quoted(byte);
                coded.extend(['%', char::from(high), char::from(low)]);
            }
        }
        if pieces.last().is_some_and(|piece| piece.len() + coded.len() > 56) {
            pieces.push(String::new());
        }
        if let Some(piece) = pieces.last_mut() {
            piece.push_str(&coded);
        }
    }
    if let [piece] = pieces.as_slice() {
        out.push_str(&format!(";\r\n {name}*=utf-8''{piece}"));
        return;
    }
    for (number, piece) in pieces.iter().enumerate() {
        let charset = if number == 0 { "utf-8''" } else { "" };
        out.push_str(&format!(";\r\n {name}*{number}*={charset}{piece}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_becomes_several_encoded_words() {
        let text = "Απόφαση για το νέο συμβόλαιο συντήρησης και τις επόμενες παραδόσεις";
        for style in [WordStyle::Base64, WordStyle::Quoted] {
            let mut headers = Headers::default();

            headers.unstructured("Subject", text, Charset::Utf8, style);

            assert!(headers.text.lines().all(|line| line.len() <= FOLD_COLUMN));
            let parsed = mail_parser::MessageParser::default().parse(headers.text.as_bytes()).unwrap();
            assert_eq!(parsed.subject(), Some(text));
        }
    }

    #[test]
    fn names_with_commas_are_quoted() {
        assert_eq!(mailbox("Finch, Ada", "a@b.test", Charset::Utf8, WordStyle::Quoted), "\"Finch, Ada\" <a@b.test>");
    }
}
