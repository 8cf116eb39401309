//! Builds commands as they are sent.

use domain::Secret;

use super::capabilities::Capabilities;

/// A command without its tag. It may hold a password, so its memory is wiped on drop and `Debug` does not show it.
#[derive(Debug)]
pub struct Command {
    bytes: Secret<Vec<u8>>,
    /// Offsets of synchronizing literals, before each of which the server has to send a continuation request.
    synchronizing_literals: Vec<usize>,
}

/// The longest non-synchronizing literal with LITERAL- (RFC 7888).
const MAX_LITERAL_MINUS_BYTES: usize = 4_096;

impl Command {
    pub fn new(text: &str) -> Self {
        Self { bytes: Secret::new(text.as_bytes().to_vec()), synchronizing_literals: Vec::new() }
    }

    /// Appends text as it is.
    pub fn text(self, text: &str) -> Self {
        self.append(text.as_bytes())
    }

    /// Appends bytes in a new buffer: one that grows would leave copies of a password in memory.
    fn append(self, more: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(self.bytes.expose().len() + more.len());
        bytes.extend_from_slice(self.bytes.expose());
        bytes.extend_from_slice(more);
        Self { bytes: Secret::new(bytes), synchronizing_literals: self.synchronizing_literals }
    }

    /// Appends a string, quoted if possible and otherwise as a literal.
    pub fn string(self, value: &[u8], capabilities: &Capabilities, is_utf8: bool) -> Self {
        let is_text = value.is_ascii() || is_utf8 && std::str::from_utf8(value).is_ok();
        if is_text && !value.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n' | 0x7f)) {
            return self.quoted(value);
        }
        if capabilities.has("LITERAL+") || capabilities.has("LITERAL-") && value.len() <= MAX_LITERAL_MINUS_BYTES {
            return self.text(&format!("{{{}+}}\r\n", value.len())).append(value);
        }
        let mut command = self.text(&format!("{{{}}}\r\n", value.len()));
        command.synchronizing_literals.push(command.bytes.expose().len());
        command.append(value)
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
        self.append(quoted.expose())
    }

    /// Returns whether it has to wait for continuation requests, so that no command can be sent right after it.
    pub fn has_synchronizing_literal(&self) -> bool {
        !self.synchronizing_literals.is_empty()
    }

    /// Returns the pieces to send, each but the first after a continuation request.
    pub fn pieces(&self, tag: u32) -> Vec<Secret<Vec<u8>>> {
        let bytes = self.bytes.expose();
        let (mut pieces, mut from) = (Vec::new(), 0);
        for to in self.synchronizing_literals.iter().copied().chain([bytes.len()]) {
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
    fn other_strings_are_literals() {
        assert_eq!(sent("ü", "", false), ["A7 X {2}\r\n", "ü y\r\n"]);
        assert_eq!(sent("a\r\nb", "LITERAL+", false), ["A7 X {4+}\r\na\r\nb y\r\n"]);
        assert_eq!(sent("ü", "LITERAL-", false), ["A7 X {2+}\r\nü y\r\n"]);
        let long = "ü".repeat(3_000);
        assert_eq!(sent(&long, "LITERAL-", false), ["A7 X {6000}\r\n".to_owned(), format!("{long} y\r\n")]);
    }

    #[test]
    fn debug_does_not_show_the_command() {
        assert!(!format!("{:?}", Command::new("LOGIN secret")).contains("secret"));
    }
}
