//! SHA-256 digests, which identify content.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::Digest;

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sha256(pub [u8; 32]);

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a SHA-256 must be 64 hexadecimal digits")]
pub struct InvalidHash;

impl Sha256 {
    pub fn of(bytes: &[u8]) -> Self {
        Self(sha2::Sha256::digest(bytes).into())
    }

    pub fn hex(&self) -> String {
        hex(&self.0)
    }
}

/// Computes a [`Sha256`] over content that arrives in pieces.
#[derive(Debug, Clone, Default)]
pub struct Hasher(sha2::Sha256);

impl Hasher {
    pub fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    pub fn finish(self) -> Sha256 {
        Sha256(self.0.finalize().into())
    }
}

/// Returns the lower-case hexadecimal digits of any bytes.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.hex())
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Sha256 {
    type Err = InvalidHash;

    fn from_str(text: &str) -> Result<Self, InvalidHash> {
        if text.len() != 64 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(InvalidHash);
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            *byte = hex_digit(pair[0]) << 4 | hex_digit(pair[1]);
        }
        Ok(Self(bytes))
    }
}

fn hex_digit(b: u8) -> u8 {
    char::from(b).to_digit(16).expect("the caller has checked that it is one") as u8
}

impl Serialize for Sha256 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.hex())
    }
}

impl<'de> Deserialize<'de> for Sha256 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_parses_from_its_hex() {
        let hash = Sha256::of(b"mail");

        assert_eq!(hash.hex().parse(), Ok(hash));
        let mut pieces = Hasher::default();
        pieces.update(b"ma");
        pieces.update(b"il");
        assert_eq!(pieces.finish(), hash);
        assert_eq!("zz".repeat(32).parse::<Sha256>(), Err(InvalidHash));
    }
}
