//! The jobs that erase the mail of a mailbox or all of a tenant, as they are requested. What they do when they run is in
//! [`crate::jobs`].

use domain::{Clock, Lane, MailboxId, TenantId};
use jiff::{SignedDuration, Timestamp};
use jobs::{Job, new_job};
use serde::{Deserialize, Serialize};
use store::sql::jobs::{NewJob, StartTime};

/// Erases the emails of a disconnected mailbox, unless it was connected again.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EraseMailbox {
    pub(crate) mailbox: MailboxId,
}

/// Erases all data of a tenant, if it is still deleted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EraseTenant {
    pub(crate) tenant: TenantId,
    /// Identifies the deletion: the tenant may have been restored and deleted again.
    pub(crate) deleted_at: Timestamp,
}

impl Job for EraseMailbox {
    const KIND: &'static str = "erase_mailbox";
    const LANE: Lane = Lane::Low;
}

impl Job for EraseTenant {
    const KIND: &'static str = "erase_tenant";
    const LANE: Lane = Lane::Low;
}

impl EraseMailbox {
    pub fn request(clock: &dyn Clock, mailbox: MailboxId) -> Result<NewJob, serde_json::Error> {
        new_job(&Self { mailbox }, clock, None)
    }
}

impl EraseTenant {
    /// Requests the erasure of a deleted tenant after its grace period.
    pub fn request(
        clock: &dyn Clock,
        tenant: TenantId,
        deleted_at: Timestamp,
        grace: SignedDuration,
    ) -> anyhow::Result<NewJob> {
        let job = new_job(&Self { tenant, deleted_at }, clock, None)?;
        Ok(NewJob { when: StartTime::At(deleted_at.saturating_add(grace)?), ..job })
    }
}
