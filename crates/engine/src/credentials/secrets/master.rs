//! The master key, which wraps all other keys. It is in no database, which has only its fingerprint.

use anyhow::Context;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use domain::{Secret, Sha256};

use super::seal::{self, AesKey};

const KEY_PREFIX: &str = "mr_master1_";
const KEY_DIGITS: usize = 64;
const CHECKSUM_DIGITS: usize = 8;
/// 64 bits: enough to distinguish the keys of one installation, too few to reveal anything of 256 random ones.
const FINGERPRINT_DIGITS: usize = 16;

#[derive(Debug, Clone)]
pub struct MasterKey {
    pub(super) key: AesKey,
    fingerprint: String,
}

impl MasterKey {
    pub fn random() -> anyhow::Result<Self> {
        Ok(Self::new(seal::random_key()?))
    }

    fn new(key: AesKey) -> Self {
        let hashed = Secret::new([b"mailroom master key fingerprint ".as_slice(), key.expose()].concat());
        let fingerprint = Sha256::of(hashed.expose()).hex()[..FINGERPRINT_DIGITS].to_owned();
        Self { key, fingerprint }
    }

    /// Returns the fingerprint, which may be shown.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Parses our own format (`mr_master1_`, 64 hexadecimal digits and 8 of a checksum), or those of other programs: 64
    /// hexadecimal digits, or 32 bytes in Base64. The error says nothing of the text.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let text = text.trim();
        let digits = match text.strip_prefix(KEY_PREFIX) {
            None => text,
            Some(rest) => {
                let split = rest.split_at_checked(KEY_DIGITS).filter(|(_, sum)| sum.len() == CHECKSUM_DIGITS);
                let (digits, sum) = split.context("the key is truncated, or has something added")?;
                anyhow::ensure!(checksum(digits) == sum, "the checksum of the key is wrong: a character was changed");
                digits
            }
        };
        if let Ok(Sha256(bytes)) = digits.parse() {
            return Ok(Self::new(Secret::new(bytes)));
        }
        let bytes = Secret::new(STANDARD.decode(text).unwrap_or_default());
        let bytes = <[u8; 32]>::try_from(bytes.expose().as_slice());
        let bytes = bytes.map_err(|_| anyhow::anyhow!("a key must be 64 hexadecimal digits, or 32 bytes in Base64"))?;
        Ok(Self::new(Secret::new(bytes)))
    }

    /// Returns the line for a key file.
    pub(super) fn line(&self) -> Secret<String> {
        let digits = Secret::new(domain::hash::hex(self.key.expose()));
        Secret::new(format!("{KEY_PREFIX}{}{}\n", digits.expose(), checksum(digits.expose())))
    }
}

fn checksum(digits: &str) -> String {
    let hashed = Secret::new(format!("{KEY_PREFIX}{digits}"));
    Sha256::of(hashed.expose().as_bytes()).hex()[..CHECKSUM_DIGITS].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_parsed_in_all_formats() {
        let key = MasterKey::random().unwrap();
        let hex = domain::hash::hex(key.key.expose());
        let base64 = STANDARD.encode(key.key.expose());

        for text in [key.line().expose(), &hex, &hex.to_uppercase(), &format!("  {base64}\n")] {
            assert_eq!(MasterKey::parse(text).unwrap().fingerprint(), key.fingerprint());
        }
        assert_ne!(MasterKey::random().unwrap().fingerprint(), key.fingerprint());
    }

    #[test]
    fn damaged_key_line_is_refused_and_not_shown() {
        let line = MasterKey::random().unwrap().line();
        let line = line.expose().trim();

        for at in 0..line.len() {
            let other = if &line[at..=at] == "0" { "1" } else { "0" };
            let damaged = format!("{}{other}{}", &line[..at], &line[at + 1..]);
            let error = MasterKey::parse(&damaged).unwrap_err().to_string();
            assert!(!error.contains(&line[12..20]), "{error}");
        }
        for text in ["", &line[..40], &line[..line.len() - 1], &format!("{line}0"), "hunter2", "ümläut"] {
            assert!(MasterKey::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn debug_output_hides_the_key() {
        let key = MasterKey::random().unwrap();
        let shown = format!("{key:?}");

        assert!(shown.contains("***") && !shown.contains(&domain::hash::hex(key.key.expose())[..8]), "{shown}");
    }
}
