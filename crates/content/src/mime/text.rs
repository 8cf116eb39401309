//! Cleans strings for storage and display: no NUL anywhere, no line breaks where one line is meant.

use super::defects::{Defect, Defects};

/// Cleans a header or name: line breaks and control characters become spaces, NUL is removed.
pub fn single_line(text: String, defects: &mut Defects) -> String {
    if !text.chars().any(is_control) {
        return trimmed(text);
    }
    if text.contains('\0') {
        defects.add(Defect::NulStripped);
    }
    let mut out = String::with_capacity(text.len());
    let mut was_break = false;
    for c in text.chars().filter(|&c| c != '\0') {
        let is_break = matches!(c, '\r' | '\n');
        match (is_break, was_break) {
            (true, true) => {} // CR LF is one break
            _ if is_control(c) => out.push(' '),
            _ => out.push(c),
        }
        was_break = is_break;
    }
    trimmed(out)
}

/// Cleans a body: NUL is removed, CR LF and CR become LF.
pub fn lines(text: String, defects: &mut Defects) -> String {
    let text = without_nul(text, defects);
    if !text.contains('\r') {
        return text;
    }
    // In place, for a text may be long. What follows a line end moves towards the start.
    let mut bytes = text.into_bytes();
    let (mut kept, mut at) = (0, 0);
    while let Some(length) = memchr::memchr(b'\r', &bytes[at..]) {
        bytes.copy_within(at..at + length, kept);
        (kept, at) = (kept + length, at + length);
        // `\r\r\n` is one line end that passed through a careless gateway.
        at += match &bytes[at..] {
            [b'\r', b'\r', b'\n', ..] => 3,
            [b'\r', b'\n', ..] => 2,
            _ => 1,
        };
        bytes[kept] = b'\n';
        kept += 1;
    }
    bytes.copy_within(at.., kept);
    bytes.truncate(kept + bytes.len() - at);
    String::from_utf8(bytes).expect("only whole characters went away")
}

pub fn without_nul(mut text: String, defects: &mut Defects) -> String {
    if text.contains('\0') {
        defects.add(Defect::NulStripped);
        text.retain(|c| c != '\0');
    }
    text
}

/// Cuts at a character's edge.
pub fn truncate(text: &mut String, most: usize, defects: &mut Defects) {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most));
        text.shrink_to_fit(); // it may have been much longer, and is kept for a while
        defects.add(Defect::BodyTruncated);
    }
}

fn is_control(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')
}

fn trimmed(text: String) -> String {
    if text.starts_with(char::is_whitespace) || text.ends_with(char::is_whitespace) {
        return text.trim().to_owned();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_ends_of_every_kind_become_one() {
        let mut defects = Defects::default();

        assert_eq!(lines("a\r\nb\rc\nd\r\r\ne\r".to_owned(), &mut defects), "a\nb\nc\nd\ne\n");
        assert!(defects.names().is_empty());
    }

    #[test]
    fn nul_disappears_and_is_told() {
        let mut defects = Defects::default();

        assert_eq!(single_line(" a\0b\tc\r\nd ".to_owned(), &mut defects), "ab c d");
        assert_eq!(defects.names(), ["nul_stripped"]);
    }

    #[test]
    fn text_is_cut_between_characters() {
        let mut text = "aé".to_owned();

        truncate(&mut text, 2, &mut Defects::default());

        assert_eq!(text, "a");
    }
}
