//! Leave to fetch one attachment for a while, without a key: whoever has the URL may.
//!
//! Signed by a key that is derived from the master key, so all processes of one database sign and believe the same. When
//! the master key changes, what was signed before ends with it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::{AttachmentId, TenantId};
use jiff::Timestamp;
use ring::hmac;

use crate::secrets::{Vault, VaultError};

/// Nothing else is derived under this name.
const LABEL: &str = "mailroom attachment urls 1";

/// What is signed. It fits one tenant, one attachment and one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leave {
    pub tenant: TenantId,
    pub attachment: AttachmentId,
    pub until: Timestamp,
}

impl Leave {
    pub async fn sign(&self, vault: &Vault) -> Result<String, VaultError> {
        let key = vault.derive(LABEL).await?;
        Ok(URL_SAFE_NO_PAD.encode(hmac::sign(&key, &self.bytes())))
    }

    /// How long the comparison takes says nothing. Whether its time has passed is for the caller to see.
    pub async fn is_signed(&self, signature: &str, vault: &Vault) -> Result<bool, VaultError> {
        let Ok(signature) = URL_SAFE_NO_PAD.decode(signature) else { return Ok(false) };
        let key = vault.derive(LABEL).await?;
        Ok(hmac::verify(&key, &self.bytes(), &signature).is_ok())
    }

    /// Each part has a fixed width, so two different ones are never the same bytes.
    fn bytes(&self) -> Vec<u8> {
        let until = self.until.as_second().to_be_bytes();
        [self.tenant.0.as_bytes().as_slice(), self.attachment.0.as_bytes(), &until].concat()
    }
}
