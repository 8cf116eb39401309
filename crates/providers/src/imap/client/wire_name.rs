//! Folder names as the protocol has them.

/// The bytes that name a folder at the server, whether or not they are readable text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WireName(Vec<u8>);

impl WireName {
    /// INBOX is the only name that is not case-sensitive.
    pub fn new(bytes: &[u8]) -> Self {
        Self(if bytes.eq_ignore_ascii_case(b"INBOX") { b"INBOX".to_vec() } else { bytes.to_vec() })
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the name as text that any database can store and that [`WireName::from_text`] reads: printable ASCII as it
    /// is, all other bytes and `%` as `%XX`.
    pub fn to_text(&self) -> String {
        let text = self.0.iter().map(|byte| match byte {
            b'%' | 0..=0x1f | 0x7f.. => format!("%{byte:02X}"),
            byte => char::from(*byte).to_string(),
        });
        text.collect()
    }

    /// Reads the text of [`WireName::to_text`]; another `%` stays as it is.
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
    fn any_name_round_trips_as_text() {
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
