//! Tokens that mailboxes are called with. They are secrets like others; what is special is who may store them: the one
//! who asked for them, while nobody else may, and by what opens the mailbox still.

use domain::{MailboxId, MailboxState, TenantId};

use super::schedules::LeaseToken;
use super::secrets::SealedSecret;
use crate::failpoint::{self, Effect};
use crate::{Dialect, StoreError, SystemStore, params};

/// What who stores a token is told when it was got by what does not open the mailbox any more.
pub const SECRET_CHANGED: &str = "the secret of the mailbox was changed meanwhile";

#[derive(Debug, Clone, Copy)]
pub struct NewToken<'a> {
    pub mailbox: MailboxId,
    pub token: &'a SealedSecret,
    /// By what it was got, as it was read. `None`: our app opens the mailbox by itself.
    pub by: Option<&'a SealedSecret>,
    /// In the place of that from now on.
    pub rotated: Option<&'a SealedSecret>,
}

impl SystemStore {
    /// Refused with [`super::leases::NO_LONGER_LEADER`] or [`SECRET_CHANGED`]. The lease is given back by it.
    pub async fn store_token(
        &self,
        tenant: TenantId,
        lease: Option<LeaseToken<'_>>,
        new: NewToken<'_>,
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
            SECRET_CHANGED,
            format!(
                "select 1 from mailboxes where tenant_id = $1 and id = $2 and state <> $3
                 and coalesce(secret_ref, '') = $4 {lock}"
            ),
            params![
                tenant,
                new.mailbox,
                MailboxState::Disconnected,
                new.by.map(|by| by.id.to_string()).unwrap_or_default()
            ],
        );
        if let Some(by) = new.by {
            // Two ciphertexts are never the same, so this one tells whether the row is what was read.
            unit.unit.op_returning_exactly(
                1,
                SECRET_CHANGED,
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
        failpoint::before(Effect::StoreToken);
        unit.commit().await?;
        failpoint::after(Effect::StoreToken);
        Ok(())
    }
}
