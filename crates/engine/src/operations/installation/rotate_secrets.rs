//! Rotates the keys that encrypt secrets.

use std::path::Path;

use domain::TenantId;

use crate::credentials::secrets::{RotationReport, VaultError};
use crate::operations::invocation::AuditedChange;
use crate::operations::{Invocation, Refusal, SECRETS_ROTATE};

/// Rotates the master key and the keys of all tenants. On record from its beginning. A [`VaultError`] is a
/// [`Refusal::Other`].
pub async fn rotate_secrets(
    call: &Invocation<'_, RotationReport>,
    new_key_file: Option<&Path>,
) -> Result<RotationReport, Refusal> {
    let change = AuditedChange::new(&SECRETS_ROTATE, TenantId::SYSTEM, "master key");
    let begun = call.record_intent(change).await?;
    let rotated = call.engine.vault.rotate(new_key_file).await.map_err(|e: VaultError| Refusal::Other(e.into()))?;
    call.record_reply(begun, &rotated).await?;
    Ok(rotated)
}
