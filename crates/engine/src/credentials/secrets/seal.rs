//! Encrypts with AES-256-GCM, with a random 96-bit nonce in front. The context of a ciphertext is associated data: moved
//! elsewhere, it does not open.

use aes_gcm::aead::{Aead, KeyInit, Payload};
use aes_gcm::{Aes256Gcm, Nonce};
use anyhow::Context;
use domain::{Secret, SecretId, SecretKind, TenantId};

/// 256 bits. Keys are generated here and nowhere else, and never from a password.
pub(super) type AesKey = Secret<[u8; 32]>;

const NONCE_BYTES: usize = 12;

/// What a ciphertext belongs to. Every part but the last has a fixed width, so different contexts never have the same
/// bytes.
#[derive(Debug, Clone, Copy)]
pub(super) enum CiphertextContext<'a> {
    TenantKey {
        tenant: TenantId,
        version: u32,
        master: &'a str,
    },
    Secret {
        tenant: TenantId,
        id: SecretId,
        key_version: u32,
        kind: SecretKind,
    },
    /// A payload that a client carries.
    Portable {
        purpose: &'a str,
    },
}

impl CiphertextContext<'_> {
    fn bytes(self) -> Vec<u8> {
        match self {
            Self::TenantKey { tenant, version, master } => {
                [b"mailroom tenant key 1 ", tenant.0.as_bytes().as_slice(), &version.to_be_bytes(), master.as_bytes()]
                    .concat()
            }
            Self::Secret { tenant, id, key_version, kind } => [
                b"mailroom secret 1 ",
                tenant.0.as_bytes().as_slice(),
                id.0.as_bytes(),
                &key_version.to_be_bytes(),
                kind.as_str().as_bytes(),
            ]
            .concat(),
            Self::Portable { purpose } => [b"mailroom carried 1 ".as_slice(), purpose.as_bytes()].concat(),
        }
    }
}

pub(super) fn random_key() -> anyhow::Result<AesKey> {
    Ok(Secret::new(random()?))
}

pub(super) fn seal(key: &AesKey, context: CiphertextContext<'_>, plaintext: &[u8]) -> anyhow::Result<Vec<u8>> {
    let nonce: [u8; NONCE_BYTES] = random()?;
    let payload = Payload { msg: plaintext, aad: &context.bytes() };
    let sealed = cipher(key).encrypt(&Nonce::from(nonce), payload);
    // Only lengths near 64 GB are refused.
    let sealed = sealed.map_err(|_| anyhow::anyhow!("a secret is too long to be encrypted"))?;
    Ok([nonce.as_slice(), &sealed].concat())
}

/// Opens a ciphertext. Returns `None` if it was not sealed by this key for this context, or is damaged.
pub(super) fn open(key: &AesKey, context: CiphertextContext<'_>, sealed: &[u8]) -> Option<Secret<Vec<u8>>> {
    let (nonce, ciphertext) = sealed.split_first_chunk::<NONCE_BYTES>()?;
    let payload = Payload { msg: ciphertext, aad: &context.bytes() };
    cipher(key).decrypt(&Nonce::from(*nonce), payload).ok().map(Secret::new)
}

fn cipher(key: &AesKey) -> Aes256Gcm {
    Aes256Gcm::new(key.expose().into())
}

fn random<const N: usize>() -> anyhow::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).context("asking the system for random bytes")?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use domain::SystemClock;

    use super::*;

    fn ids() -> (TenantId, SecretId) {
        (TenantId::new(&SystemClock), SecretId::new(&SystemClock))
    }

    #[test]
    fn ciphertext_opens_in_its_context_only() {
        let key = random_key().unwrap();
        let ((tenant, id), (other_tenant, other_id)) = (ids(), ids());
        let kind = SecretKind::Password;
        let here = CiphertextContext::Secret { tenant, id, key_version: 1, kind };
        let sealed = seal(&key, here, b"hunter2").unwrap();

        assert_eq!(open(&key, here, &sealed).unwrap().expose(), b"hunter2");
        assert!(open(&random_key().unwrap(), here, &sealed).is_none());
        for elsewhere in [
            CiphertextContext::Secret { tenant: other_tenant, id, key_version: 1, kind },
            CiphertextContext::Secret { tenant, id: other_id, key_version: 1, kind },
            CiphertextContext::Secret { tenant, id, key_version: 2, kind },
            CiphertextContext::Secret { tenant, id, key_version: 1, kind: SecretKind::RefreshToken },
            CiphertextContext::TenantKey { tenant, version: 1, master: "x" },
        ] {
            assert!(open(&key, elsewhere, &sealed).is_none(), "{elsewhere:?}");
        }
    }

    #[test]
    fn altered_ciphertext_does_not_open() {
        let key = random_key().unwrap();
        let (tenant, _) = ids();
        let here = CiphertextContext::TenantKey { tenant, version: 1, master: "x" };
        let sealed = seal(&key, here, b"k").unwrap();

        for bit in 0..sealed.len() * 8 {
            let mut flipped = sealed.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(open(&key, here, &flipped).is_none(), "bit {bit}");
        }
        for length in 0..sealed.len() {
            assert!(open(&key, here, &sealed[..length]).is_none(), "{length} bytes");
        }
    }

    #[test]
    fn equal_texts_have_different_ciphertexts() {
        let key = random_key().unwrap();
        let (tenant, id) = ids();
        let here = CiphertextContext::Secret { tenant, id, key_version: 1, kind: SecretKind::Password };

        assert_ne!(seal(&key, here, b"same").unwrap(), seal(&key, here, b"same").unwrap());
    }

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|n| u8::from_str_radix(&text[n..n + 2], 16).unwrap()).collect()
    }

    /// NIST's test case 16 of AES-256-GCM with associated data: what we call by that name is that.
    #[test]
    fn cipher_is_aes_256_gcm() {
        let key: [u8; 32] = hex("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308").try_into().unwrap();
        let nonce: [u8; 12] = hex("cafebabefacedbaddecaf888").try_into().unwrap();
        let msg = hex(
            "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
        );
        let aad = hex("feedfacedeadbeeffeedfacedeadbeefabaddad2");

        let sealed = cipher(&Secret::new(key)).encrypt(&Nonce::from(nonce), Payload { msg: &msg, aad: &aad }).unwrap();

        assert_eq!(domain::hash::hex(&sealed[msg.len()..]), "76fc6ece0f4e1768cddf8853bb2d551b");
    }
}
