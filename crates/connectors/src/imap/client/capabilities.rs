//! What a server offers.

/// Asked for once before and once after the login; looking is cheap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capabilities(Vec<String>);

/// What a server has that knows only the newer version of the protocol (RFC 9051, appendix E).
const REV2: &[&str] = &[
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

/// No server offers more, and no more is remembered.
const MOST: usize = 200;

impl Capabilities {
    pub(super) fn parse(words: &[u8]) -> Self {
        let words = words.split(|byte| *byte == b' ').filter(|word| !word.is_empty() && word.len() < 100).take(MOST);
        Self(words.map(|word| String::from_utf8_lossy(word).to_uppercase()).collect())
    }

    /// By its name in capital letters.
    pub fn has(&self, name: &str) -> bool {
        let is_listed = |name: &str| self.0.iter().any(|word| word == name);
        is_listed(name) || REV2.contains(&name) && is_listed("IMAP4REV2") && !is_listed("IMAP4REV1")
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Changes since a moment can be asked for.
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
    fn what_is_offered_is_found_in_any_case_and_by_the_version() {
        let old = Capabilities::parse(b"IMAP4rev1  idle AUTH=Plain");
        assert!(old.has("IDLE") && old.has("AUTH=PLAIN") && !old.has("ESEARCH"));
        assert!(Capabilities::parse(b"IMAP4rev2").has("ESEARCH"));
        assert!(!Capabilities::parse(b"IMAP4rev2 IMAP4rev1").has("ESEARCH"));
        assert!(!Capabilities::parse(b"IMAP4rev2").has("QRESYNC"));
        assert!(Capabilities::parse(b"").is_empty());
    }
}
