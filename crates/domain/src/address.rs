//! Email addresses and recipients.

use serde::{Deserialize, Serialize};

/// One name and address as written in a header. The address keeps its case; rows hold it lower-cased.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    pub name: Option<String>,
    pub address: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecipientKind {
    To,
    Cc,
    Bcc,
    ReplyTo,
}

impl RecipientKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::To => "to",
            Self::Cc => "cc",
            Self::Bcc => "bcc",
            Self::ReplyTo => "reply_to",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::To, Self::Cc, Self::Bcc, Self::ReplyTo].into_iter().find(|kind| kind.as_str() == text)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recipient {
    pub kind: RecipientKind,
    #[serde(flatten)]
    pub address: Address,
}

/// Returns the canonical spelling of an address (trimmed, lower-case), or `None` if it cannot be an address.
pub fn canonical(address: &str) -> Option<String> {
    let address = address.trim();
    let (local, host) = address.rsplit_once('@')?;
    let fits = address.len() <= 320 && !local.is_empty() && !host.is_empty() && address.chars().all(is_allowed);
    fits.then(|| address.to_lowercase())
}

fn is_allowed(c: char) -> bool {
    !c.is_whitespace() && !c.is_control() && !"<>,;".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_has_one_canonical_spelling() {
        assert_eq!(canonical(" Me@Acme.Test "), Some("me@acme.test".to_owned()));
        assert_eq!(canonical("me"), None);
        assert_eq!(canonical("@acme.test"), None);
        assert_eq!(canonical("a b@acme.test"), None);
    }
}
