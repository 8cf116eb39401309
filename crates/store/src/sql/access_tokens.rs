//! Access tokens of mailboxes. They are stored like other secrets, but only by the process that holds the mailbox's token
//! lease, and only while the secret that they were obtained with is still the mailbox's.

use domain::{MailboxId, MailboxState, TenantId};

use super::schedules::LeaseToken;
use super::secrets::SealedSecret;
use crate::failpoint::Effect;
use crate::{Dialect, Precondition, StoreError, SystemStore, params};

#[derive(Debug, Clone, Copy)]
pub struct NewAccessToken<'a> {
    pub mailbox: MailboxId,
    pub token: &'a SealedSecret,
    /// The secret that it was obtained with, as it was read. `None`: our app opens the mailbox by itself.
    pub obtained_with: Option<&'a SealedSecret>,
    /// Replaces that secret from now on.
    pub rotated: Option<&'a SealedSecret>,
}

impl SystemStore {
    /// Stores a token and releases the lease. Refused with [`Precondition::LeaseTakenOver`] or
    /// [`Precondition::SecretChanged`].
    pub async fn store_access_token(
        &self,
        tenant: TenantId,
        lease: Option<LeaseToken<'_>>,
        new: NewAccessToken<'_>,
    ) -> Result<(), StoreError> {
        let mut unit = self.write_for(tenant);
        // In the order in which others lock them.
        let lock = match self.store.dialect() {
            Dialect::Postgres => "for share",
            Dialect::Sqlite => "",
        };
        if let Some(lease) = &lease {
            unit.guard_lease(lease.name, lease.token);
        }
        unit.unit.op_returning_exactly(
            1,
            Precondition::SecretChanged,
            format!(
                "select 1 from mailboxes where tenant_id = $1 and id = $2 and state <> $3
                 and coalesce(secret_ref, '') = $4 {lock}"
            ),
            params![
                tenant,
                new.mailbox,
                MailboxState::Disconnected,
                new.obtained_with.map(|by| by.id.to_string()).unwrap_or_default()
            ],
        );
        if let Some(by) = new.obtained_with {
            // Two ciphertexts are never the same, so this one shows whether the row is what was read.
            unit.unit.op_returning_exactly(
                1,
                Precondition::SecretChanged,
                format!("select 1 from secrets where tenant_id = $1 and id = $2 and ciphertext = $3 {lock}"),
                params![tenant, by.id, by.ciphertext.as_slice()],
            );
        }
        unit.put_secret(new.token);
        if let Some(rotated) = new.rotated {
            unit.put_secret(rotated);
        }
        if let Some(lease) = &lease {
            unit.unit.op(
                "update leases set until = mailroom_now() where name = $1 and token = $2",
                params![lease.name, lease.token],
            );
        }
        unit.commit_at(Effect::StoreToken).await?;
        Ok(())
    }
}
