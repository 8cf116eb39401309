//! Commands as they are sent.

use domain::Secret;

use super::capabilities::Capabilities;

/// A command without its tag. It may hold a password, so it is wiped when it goes and does not print.
#[derive(Debug)]
pub struct Command {
    bytes: Secret<Vec<u8>>,
    /// Where the server must ask for what follows.
    pauses: Vec<usize>,
}

/// The longest literal that may follow at once where LITERAL- is offered (RFC 7888).
const SHORT: usize = 4_096;

impl Command {
    pub fn new(text: &str) -> Self {
        Self { bytes: Secret::new(text.as_bytes().to_vec()), pauses: Vec::new() }
    }

    pub fn text(self, text: &str) -> Self {
        self.with(text.as_bytes())
    }

    /// A new buffer each time: one that grows would leave copies of a password behind.
    fn with(self, more: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(self.bytes.expose().len() + more.len());
        bytes.extend_from_slice(self.bytes.expose());
        bytes.extend_from_slice(more);
        Self { bytes: Secret::new(bytes), pauses: self.pauses }
    }

    /// Any bytes, quoted if they can be and otherwise as a literal.
    pub fn string(self, value: &[u8], capabilities: &Capabilities, is_utf8: bool) -> Self {
        let can_be_quoted = |byte: &u8| !matches!(byte, 0 | b'\r' | b'\n' | 0x7f) && (byte.is_ascii() || is_utf8);
        if value.iter().all(can_be_quoted) && (value.is_ascii() || std::str::from_utf8(value).is_ok()) {
            return self.quoted(value);
        }
        let is_at_once = capabilities.has("LITERAL+") || capabilities.has("LITERAL-") && value.len() <= SHORT;
        if is_at_once {
            return self.text(&format!("{{{}+}}\r\n", value.len())).with(value);
        }
        let mut command = self.text(&format!("{{{}}}\r\n", value.len()));
        command.pauses.push(command.bytes.expose().len());
        command.with(value)
    }

    fn quoted(self, value: &[u8]) -> Self {
        let mut quoted = Vec::with_capacity(2 * value.len() + 2);
        quoted.push(b'"');
        for byte in value {
            if matches!(byte, b'"' | b'\\') {
                quoted.push(b'\\');
            }
            quoted.push(*byte);
        }
        quoted.push(b'"');
        let quoted = Secret::new(quoted);
        self.with(quoted.expose())
    }

    /// Whether the server has to ask for parts of it, so that nothing can be sent behind it.
    pub fn has_pauses(&self) -> bool {
        !self.pauses.is_empty()
    }

    /// What is sent piece by piece, each but the first when the server asks for it.
    pub fn pieces(&self, tag: u32) -> Vec<Secret<Vec<u8>>> {
        let bytes = self.bytes.expose();
        let (mut pieces, mut from) = (Vec::new(), 0);
        for to in self.pauses.iter().copied().chain([bytes.len()]) {
            let (tag, end) = (if from == 0 { format!("A{tag} ") } else { String::new() }, bytes.len() == to);
            let piece = [tag.as_bytes(), &bytes[from..to], if end { b"\r\n" } else { b"" }].concat();
            pieces.push(Secret::new(piece));
            from = to;
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(value: &str, capabilities: &str, is_utf8: bool) -> Vec<String> {
        let capabilities = Capabilities::parse(capabilities.as_bytes());
        let command = Command::new("X ").string(value.as_bytes(), &capabilities, is_utf8).text(" y");
        let pieces = command.pieces(7);
        pieces.iter().map(|piece| String::from_utf8(piece.expose().clone()).unwrap()).collect()
    }

    #[test]
    fn strings_are_quoted_where_they_can_be() {
        assert_eq!(sent("a b", "", false), ["A7 X \"a b\" y\r\n"]);
        assert_eq!(sent("a\"\\b", "", false), ["A7 X \"a\\\"\\\\b\" y\r\n"]);
        assert_eq!(sent("", "", false), ["A7 X \"\" y\r\n"]);
        assert_eq!(sent("ü", "", true), ["A7 X \"ü\" y\r\n"]);
    }

    #[test]
    fn other_strings_are_literals_which_wait_unless_the_server_takes_them_at_once() {
        assert_eq!(sent("ü", "", false), ["A7 X {2}\r\n", "ü y\r\n"]);
        assert_eq!(sent("a\r\nb", "LITERAL+", false), ["A7 X {4+}\r\na\r\nb y\r\n"]);
        assert_eq!(sent("ü", "LITERAL-", false), ["A7 X {2+}\r\nü y\r\n"]);
        let long = "ü".repeat(3_000);
        assert_eq!(sent(&long, "LITERAL-", false), ["A7 X {6000}\r\n".to_owned(), format!("{long} y\r\n")]);
    }

    #[test]
    fn a_command_does_not_print() {
        assert!(!format!("{:?}", Command::new("LOGIN secret")).contains("secret"));
    }
}
