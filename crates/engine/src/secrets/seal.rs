//! AES-256-GCM with a random 96-bit nonce in front. What a ciphertext belongs to is associated data: moved elsewhere, it
//! does not open.

use aes_gcm::aead::{Aead, KeyInit, Payload};
use aes_gcm::{Aes256Gcm, Nonce};
use anyhow::Context;
use domain::{Secret, SecretId, SecretKind, TenantId};

/// 256 bits. A key is made here and nowhere else, and never from words.
pub(super) type Key = Secret<[u8; 32]>;

const NONCE_BYTES: usize = 12;

/// What a ciphertext belongs to. Every part but the last has a fixed width, so two different ones are never the same
/// bytes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place<'a> {
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
    /// Somebody carries it around for us.
    Carried {
        purpose: &'a str,
    },
}

impl Place<'_> {
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
            Self::Carried { purpose } => [b"mailroom carried 1 ".as_slice(), purpose.as_bytes()].concat(),
        }
    }
}

pub(super) fn random_key() -> anyhow::Result<Key> {
    Ok(Secret::new(random()?))
}

pub(super) fn seal(key: &Key, place: Place<'_>, plaintext: &[u8]) -> anyhow::Result<Vec<u8>> {
    let nonce: [u8; NONCE_BYTES] = random()?;
    let payload = Payload { msg: plaintext, aad: &place.bytes() };
    let sealed = cipher(key).encrypt(&Nonce::from(nonce), payload);
    // Only lengths near 64 GB are refused.
    let sealed = sealed.map_err(|_| anyhow::anyhow!("a secret is too long to be encrypted"))?;
    Ok([nonce.as_slice(), &sealed].concat())
}

/// `None`: it was not sealed by this key for this place, or it is damaged.
pub(super) fn open(key: &Key, place: Place<'_>, sealed: &[u8]) -> Option<Secret<Vec<u8>>> {
    let (nonce, ciphertext) = sealed.split_first_chunk::<NONCE_BYTES>()?;
    let payload = Payload { msg: ciphertext, aad: &place.bytes() };
    cipher(key).decrypt(&Nonce::from(*nonce), payload).ok().map(Secret::new)
}

fn cipher(key: &Key) -> Aes256Gcm {
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

    fn place() -> (TenantId, SecretId) {
        (TenantId::new(&SystemClock), SecretId::new(&SystemClock))
    }

    #[test]
    fn what_is_sealed_opens_in_its_place_only() {
        let key = random_key().unwrap();
        let ((tenant, id), (other_tenant, other_id)) = (place(), place());
        let kind = SecretKind::Password;
        let here = Place::Secret { tenant, id, key_version: 1, kind };
        let sealed = seal(&key, here, b"hunter2").unwrap();

        assert_eq!(open(&key, here, &sealed).unwrap().expose(), b"hunter2");
        assert!(open(&random_key().unwrap(), here, &sealed).is_none());
        for elsewhere in [
            Place::Secret { tenant: other_tenant, id, key_version: 1, kind },
            Place::Secret { tenant, id: other_id, key_version: 1, kind },
            Place::Secret { tenant, id, key_version: 2, kind },
            Place::Secret { tenant, id, key_version: 1, kind: SecretKind::RefreshToken },
            Place::TenantKey { tenant, version: 1, master: "x" },
        ] {
            assert!(open(&key, elsewhere, &sealed).is_none(), "{elsewhere:?}");
        }
    }

    #[test]
    fn no_bit_can_be_changed_and_no_byte_left_out() {
        let key = random_key().unwrap();
        let (tenant, _) = place();
        let here = Place::TenantKey { tenant, version: 1, master: "x" };
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
    fn the_same_text_is_never_sealed_to_the_same_bytes() {
        let key = random_key().unwrap();
        let (tenant, id) = place();
        let here = Place::Secret { tenant, id, key_version: 1, kind: SecretKind::Password };

        assert_ne!(seal(&key, here, b"same").unwrap(), seal(&key, here, b"same").unwrap());
    }

    /// NIST's test case 16 of AES-256-GCM with associated data: what we call by that name is that.
    #[test]
    fn it_is_aes_256_gcm() {
        let hex = |text: &str| -> Vec<u8> {
            (0..text.len()).step_by(2).map(|n| u8::from_str_radix(&text[n..n + 2], 16).unwrap()).collect()
        };
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
