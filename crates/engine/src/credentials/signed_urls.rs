//! Signed URLs that allow downloading one attachment for a while without an API key.
//!
//! Signed by a key derived from the master key, so all processes of one database accept the same signatures. A change
//! of the master key invalidates them.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::{AttachmentId, TenantId};
use jiff::Timestamp;
use ring::hmac;

use crate::credentials::secrets::{Vault, VaultError};

/// The label of the derived key; no other key is derived under this name.
const KEY_LABEL: &str = "mailroom attachment urls 1";

/// What a URL permits: one attachment of one tenant, until a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DownloadClaims {
    pub tenant: TenantId,
    pub attachment: AttachmentId,
    pub until: Timestamp,
}

impl DownloadClaims {
    pub async fn sign(&self, vault: &Vault) -> Result<String, VaultError> {
        let key = vault.derive(KEY_LABEL).await?;
        Ok(URL_SAFE_NO_PAD.encode(hmac::sign(&key, &self.bytes())))
    }

    /// Returns whether the signature is ours, in constant time. The caller checks whether it has expired.
    pub async fn is_signed(&self, signature: &str, vault: &Vault) -> Result<bool, VaultError> {
        let Ok(signature) = URL_SAFE_NO_PAD.decode(signature) else { return Ok(false) };
        let key = vault.derive(KEY_LABEL).await?;
        Ok(hmac::verify(&key, &self.bytes(), &signature).is_ok())
    }

    /// Returns the signed bytes. Each part has a fixed width, so different claims never have the same bytes.
    fn bytes(&self) -> Vec<u8> {
        let until = self.until.as_second().to_be_bytes();
        [self.tenant.0.as_bytes().as_slice(), self.attachment.0.as_bytes(), &until].concat()
    }
}
