//! The capabilities of a server.

/// The names that the server lists, in upper case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capabilities(Vec<String>);

/// Extensions that are part of IMAP4rev2 (RFC 9051, appendix E).
const IMAP4REV2_EXTENSIONS: &[&str] = &[
    "NAMESPACE",
    "UNSELECT",
    "UIDPLUS",
    "ESEARCH",
    "ENABLE",
    "IDLE",
    "SASL-IR",
    "LIST-EXTENDED",
    "LIST-STATUS",
    "MOVE",
    "LITERAL-",
    "SPECIAL-USE",
];

/// No server offers more; the rest is ignored.
const MAX_CAPABILITIES: usize = 200;

impl Capabilities {
    pub(super) fn parse(words: &[u8]) -> Self {
        let words = words
            .split(|byte| *byte == b' ')
            .filter(|word| !word.is_empty() && word.len() < 100)
            .take(MAX_CAPABILITIES);
        Self(words.map(|word| String::from_utf8_lossy(word).to_uppercase()).collect())
    }

    /// Returns whether the server has this capability, named in upper case. A server with IMAP4rev2 only need not list
    /// the extensions that are part of it.
    pub fn has(&self, name: &str) -> bool {
        let is_rev2_only = self.is_listed("IMAP4REV2") && !self.is_listed("IMAP4REV1");
        self.is_listed(name) || IMAP4REV2_EXTENSIONS.contains(&name) && is_rev2_only
    }

    fn is_listed(&self, name: &str) -> bool {
        self.0.iter().any(|listed| listed == name)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether messages have modification sequences (RFC 7162).
    pub fn has_modseq(&self) -> bool {
        self.has("CONDSTORE") || self.has("QRESYNC")
    }

    pub fn is_gmail(&self) -> bool {
        self.has("X-GM-EXT-1")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capability_is_found_in_any_case_and_by_revision() {
        let old = Capabilities::parse(b"IMAP4rev1  idle AUTH=Plain");
        assert!(old.has("IDLE") && old.has("AUTH=PLAIN") && !old.has("ESEARCH"));
        assert!(Capabilities::parse(b"IMAP4rev2").has("ESEARCH"));
        assert!(!Capabilities::parse(b"IMAP4rev2 IMAP4rev1").has("ESEARCH"));
        assert!(!Capabilities::parse(b"IMAP4rev2").has("QRESYNC"));
        assert!(Capabilities::parse(b"").is_empty());
    }
}
