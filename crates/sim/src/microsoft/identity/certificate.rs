//! A client's certificate, and verification of what its key has signed.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use ring::rsa::PublicKeyComponents;
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, RSA_PSS_2048_8192_SHA256};
use serde_json::Value;

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
/// `[0]` before the serial number of a certificate of version 3.
const VERSION: u8 = 0xA0;

#[derive(Debug)]
pub struct Certificate {
    der: Vec<u8>,
    modulus: Vec<u8>,
    exponent: Vec<u8>,
}

impl Certificate {
    /// Parses a PEM certificate with an RSA key.
    pub fn from_pem(pem: &str) -> Option<Self> {
        let lines = pem.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("-----"));
        let der = STANDARD.decode(lines.collect::<String>()).ok()?;
        let (modulus, exponent) = public_key(&der)?;
        Some(Self { der, modulus, exponent })
    }

    /// Returns the claims of a token that names this certificate and is signed with its key.
    pub fn open(&self, token: &str) -> Option<Value> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let [header, claims, signature] = [header, claims, signature].map(|part| URL_SAFE_NO_PAD.decode(part).ok());
        let header: Value = serde_json::from_slice(&header?).ok()?;
        let sha256 = URL_SAFE_NO_PAD.encode(digest(&SHA256, &self.der));
        let sha1 = URL_SAFE_NO_PAD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &self.der));
        if header["x5t#S256"] != sha256.as_str() && header["x5t"] != sha1.as_str() {
            return None;
        }
        let algorithm = match header["alg"].as_str()? {
            "PS256" => &RSA_PSS_2048_8192_SHA256,
            "RS256" => &RSA_PKCS1_2048_8192_SHA256,
            _ => return None,
        };
        let key = PublicKeyComponents { n: &self.modulus, e: &self.exponent };
        key.verify(algorithm, signed.as_bytes(), &signature?).ok()?;
        serde_json::from_slice(&claims?).ok()
    }
}

/// Extracts modulus and exponent from a DER certificate.
fn public_key(der: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let (certificate, _) = element(der, SEQUENCE)?;
    let (to_be_signed, _) = element(certificate, SEQUENCE)?;
    let after_version = element(to_be_signed, VERSION).map_or(to_be_signed, |(_, rest)| rest);
    let (_, mut rest) = element(after_version, INTEGER)?;
    // The signature's algorithm, the issuer, the validity, the subject.
    for _ in 0..4 {
        rest = element(rest, SEQUENCE)?.1;
    }
    let (key_info, _) = element(rest, SEQUENCE)?;
    let (_, after_algorithm) = element(key_info, SEQUENCE)?;
    let (bits, _) = element(after_algorithm, BIT_STRING)?;
    let (key, _) = element(bits.strip_prefix(&[0])?, SEQUENCE)?;
    let (modulus, rest) = element(key, INTEGER)?;
    let (exponent, _) = element(rest, INTEGER)?;
    // A zero in front says that the number is not negative.
    let [modulus, exponent] = [modulus, exponent].map(|number| number.strip_prefix(&[0]).unwrap_or(number).to_vec());
    Some((modulus, exponent))
}

/// Reads the first DER element if it is of this kind. Returns its content and the rest.
fn element(bytes: &[u8], kind: u8) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = bytes.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    if found != kind {
        return None;
    }
    let mut length = usize::from(first);
    if first & 0x80 != 0 {
        let (digits, after) = rest.split_at_checked(usize::from(first & 0x7F))?;
        length = digits.iter().try_fold(0_usize, |sum, digit| Some(sum.checked_mul(256)? + usize::from(*digit)))?;
        rest = after;
    }
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{certificate_pem, sign_as_client};
    use super::*;

    #[test]
    fn certificate_verifies_what_its_key_signed() {
        let certificate = Certificate::from_pem(&certificate_pem()).unwrap();
        for is_old_form in [false, true] {
            let token = sign_as_client(&json!({"sub": "me"}), is_old_form);

            assert_eq!(certificate.open(&token), Some(json!({"sub": "me"})));
            let (signed, signature) = token.rsplit_once('.').unwrap();
            assert_eq!(certificate.open(&format!("{signed}x.{signature}")), None);
        }
    }

    #[test]
    fn malformed_certificate_is_refused() {
        assert!(Certificate::from_pem("").is_none());
        assert!(Certificate::from_pem("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----").is_none());
    }
}
