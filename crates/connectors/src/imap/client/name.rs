//! What folders are called on the wire.

/// The bytes by which a server knows a folder, whether or not they can be read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WireName(Vec<u8>);

impl WireName {
    /// INBOX is the one name that may come in any case.
    pub fn new(bytes: &[u8]) -> Self {
        Self(if bytes.eq_ignore_ascii_case(b"INBOX") { b"INBOX".to_vec() } else { bytes.to_vec() })
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// As text that any database takes and that gives the same name again: printable ASCII as it is, the rest and `%`
    /// as `%XX`.
    pub fn to_text(&self) -> String {
        let escaped = |byte: &u8| match byte {
            b'%' | 0..=0x1f | 0x7f.. => format!("%{byte:02X}"),
            byte => char::from(*byte).to_string(),
        };
        self.0.iter().map(escaped).collect()
    }

    /// What [`WireName::to_text`] gave; a `%` that is none of its making stays what it is.
    pub fn from_text(text: &str) -> Self {
        let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
        while let Some((byte, after)) = rest.split_first() {
            let escaped = (*byte == b'%').then(|| after.get(..2)).flatten();
            match escaped.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()) {
                Some(byte) => {
                    bytes.push(byte);
                    rest = &after[2..];
                }
                None => {
                    bytes.push(*byte);
                    rest = after;
                }
            }
        }
        Self::new(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_survives_as_text() {
        for name in [&b"INBOX"[..], b"100% A/B", b"\xff\0\r\n%zz", "Entwürfe".as_bytes(), b"%41", b""] {
            let name = WireName::new(name);
            let text = name.to_text();
            assert!(text.bytes().all(|byte| (0x20..0x7f).contains(&byte)), "{text}");
            assert_eq!(WireName::from_text(&text), name, "{text}");
        }
        assert_eq!(WireName::new(b"inbox").to_text(), "INBOX");
        assert_eq!(WireName::new(b"Inbox/Sub").to_text(), "Inbox/Sub");
    }
}
