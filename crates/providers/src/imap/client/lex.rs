//! A lexer for responses that borrows from the buffer: only strings with escapes are copied.

use std::borrow::Cow;

/// No response that we request is nested deeper than three; an unsolicited BODYSTRUCTURE may be.
const MAX_NESTING: usize = 64;

/// Reads a response from left to right. Every method returns `None`, and may have moved on, if the input is not what it
/// reads.
#[derive(Debug, Clone, Copy)]
pub struct Lexer<'a> {
    rest: &'a [u8],
}

impl<'a> Lexer<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    pub fn spaces(&mut self) {
        let count = self.rest.iter().take_while(|byte| **byte == b' ').count();
        self.rest = &self.rest[count..];
    }

    /// Skips this byte. Returns `false` if another one is next.
    pub fn eat(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        if is_next {
            self.rest = &self.rest[1..];
        }
        is_next
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    /// Reads everything up to a blank, a parenthesis, a quote or the end: more than RFC 3501 allows, for flags and numbers.
    pub fn atom(&mut self) -> Option<&'a [u8]> {
        let end = self.rest.iter().position(|byte| matches!(byte, b' ' | b'(' | b')' | b'"' | b'\r' | b'\n'));
        let count = end.unwrap_or(self.rest.len());
        if count == 0 { None } else { self.take(count) }
    }

    pub fn number(&mut self) -> Option<u64> {
        number(self.atom()?)
    }

    pub fn number32(&mut self) -> Option<u32> {
        number(self.atom()?)
    }

    /// Reads the name of a FETCH item: `FLAGS`, `BODY[HEADER.FIELDS (DATE)]<0>`.
    pub fn item(&mut self) -> Option<&'a [u8]> {
        let mut is_inside = false;
        let end = self.rest.iter().position(|byte| {
            is_inside = (is_inside || *byte == b'[') && *byte != b']';
            !is_inside && matches!(byte, b' ' | b'(' | b')' | b'"' | b'{') || matches!(byte, b'\r' | b'\n')
        });
        let count = end.unwrap_or(self.rest.len());
        if count == 0 { None } else { self.take(count) }
    }

    /// Reads a quoted string or a literal.
    pub fn string(&mut self) -> Option<Cow<'a, [u8]>> {
        match self.peek()? {
            b'"' => self.quoted(),
            b'{' | b'~' => self.literal().map(Cow::Borrowed),
            _ => None,
        }
    }

    fn quoted(&mut self) -> Option<Cow<'a, [u8]>> {
        self.eat(b'"');
        let end = memchr::memchr2(b'"', b'\\', self.rest)?;
        if self.rest[end] == b'"' {
            let text = self.take(end)?;
            self.eat(b'"');
            return Some(Cow::Borrowed(text));
        }
        let mut text = self.take(end)?.to_vec();
        loop {
            match self.take(1)?[0] {
                b'"' => return Some(Cow::Owned(text)),
                b'\\' => text.push(self.take(1)?[0]),
                b'\n' => return None,
                byte => text.push(byte),
            }
        }
    }

    fn literal(&mut self) -> Option<&'a [u8]> {
        let line = memchr::memchr(b'\n', self.rest)?;
        let length = literal_length(&self.rest[..=line])?;
        self.take(line + 1)?;
        self.take(usize::try_from(length).ok()?)
    }

    /// Reads a string or an atom (`astring`), as folder names are.
    pub fn name(&mut self) -> Option<Cow<'a, [u8]>> {
        match self.peek()? {
            b'"' | b'{' => self.string(),
            b'~' if self.rest.get(1) == Some(&b'{') => self.string(),
            _ => self.atom().map(Cow::Borrowed),
        }
    }

    /// Reads a parenthesized list and returns a lexer of its content.
    pub fn parenthesized(&mut self) -> Option<Lexer<'a>> {
        let start = self.rest;
        self.value()?;
        let inside = start[..start.len() - self.rest.len()].strip_prefix(b"(")?.strip_suffix(b")")?;
        Some(Lexer::new(inside))
    }

    /// Skips one value of any kind.
    pub fn value(&mut self) -> Option<()> {
        let mut depth = 0;
        loop {
            match self.peek()? {
                b'(' => {
                    depth += 1;
                    self.eat(b'(');
                }
                b')' => {
                    depth = usize::checked_sub(depth, 1)?;
                    self.eat(b')');
                }
                b' ' if depth > 0 => self.spaces(),
                b'"' => drop(self.quoted()?),
                b'{' => drop(self.literal()?),
                b'~' if self.rest.get(1) == Some(&b'{') => drop(self.literal()?),
                _ => drop(self.item()?),
            }
            match depth {
                0 => return Some(()),
                MAX_NESTING.. => return None,
                _ => {}
            }
        }
    }
}

/// Parses digits.
pub fn number<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    if text.first() == Some(&b'+') {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Returns the length of the literal that this line announces at its end: `{12}`, `{12+}`, `~{12}`.
pub fn literal_length(line: &[u8]) -> Option<u64> {
    let line = without_line_end(line).strip_suffix(b"}")?;
    let line = line.strip_suffix(b"+").unwrap_or(line);
    let digits = line.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (before, digits) = line.split_at(line.len() - digits);
    if before.last() == Some(&b'{') { number(digits) } else { None }
}

pub fn without_line_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_without_escapes_are_borrowed() {
        let mut lexer = Lexer::new(b"\"plain\" \"a \\\"b\\\\\" {3}\r\n)\r\n atom ~{1+}\nx\"\xe9\0\"");

        assert!(matches!(lexer.string(), Some(Cow::Borrowed(b"plain"))));
        lexer.spaces();
        assert_eq!(lexer.string().as_deref(), Some(&b"a \"b\\"[..]));
        lexer.spaces();
        assert_eq!(lexer.string().as_deref(), Some(&b")\r\n"[..]));
        lexer.spaces();
        assert_eq!(lexer.name().as_deref(), Some(&b"atom"[..]));
        lexer.spaces();
        assert_eq!(lexer.string().as_deref(), Some(&b"x"[..]));
        assert_eq!(lexer.string().as_deref(), Some(&b"\xe9\0"[..]));
        assert!(lexer.is_at_end());
    }

    #[test]
    fn values_of_any_kind_are_skipped() {
        for text in [
            "atom",
            "(a (b \"(\" c) {3}\r\n(((x NIL)",
            "\"x\"",
            "{2}\r\n((",
            "()",
            "BODY[HEADER.FIELDS (A B)]<0>",
            "((a)(b))",
        ] {
            let text = format!("{text} next");
            let mut lexer = Lexer::new(text.as_bytes());
            assert_eq!(lexer.value(), Some(()), "{text}");
            lexer.spaces();
            assert_eq!(lexer.atom(), Some(&b"next"[..]), "{text}");
        }
    }

    #[test]
    fn truncated_or_too_deep_value_is_none() {
        for text in ["(", "(a", ")", "\"a", "\"a\\", "{3}\r\nab", "{3", "{99999999999999999999}\r\n", "", "(\"a)"] {
            assert_eq!(Lexer::new(text.as_bytes()).value(), None, "{text}");
        }
        let deep = [b"(".repeat(100), b")".repeat(100)].concat();
        assert_eq!(Lexer::new(&deep).value(), None);
        assert_eq!(Lexer::new(b"{5}\r\nab").string(), None);
    }

    #[test]
    fn literal_is_announced_at_the_end_of_a_line() {
        for (line, length) in [
            ("x {12}\r\n", Some(12)),
            ("{0}\n", Some(0)),
            ("~{7+}\r\n", Some(7)),
            ("{12} \r\n", None),
            ("12}\r\n", None),
            ("{}\r\n", None),
            ("{a1}\r\n", None),
            ("{18446744073709551616}\r\n", None),
        ] {
            assert_eq!(literal_length(line.as_bytes()), length, "{line:?}");
        }
    }

    #[test]
    fn numbers_are_digits_only() {
        assert_eq!(number::<u32>(b"0042"), Some(42));
        for text in [&b"+1"[..], b"-1", b"4294967296", b"1a", b"", b"\xff"] {
            assert_eq!(number::<u32>(text), None);
        }
    }
}
