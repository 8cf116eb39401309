//! Soft-deletes emails here, and brings deleted ones back.
//!
//! A discarded email is hidden until it is restored or purged; what its provider does to it meanwhile causes no event. A
//! restored one is there whether or not its provider has it, until the provider deletes it from then on.

use domain::{EmailId, EventType};

use super::any;
use super::events::{EVENT_STEP, INTO_DRAFTS};
use crate::{Dialect, Precondition, TenantUnit, params};

impl TenantUnit {
    /// Soft-deletes an email. Refused while the tenant is on legal hold.
    pub fn discard_email(&mut self, id: EmailId) {
        self.unit.is_erasing = true; // the row becomes longer and moves within the file
        self.unit.expect_not_held(self.store.dialect(), self.tenant);
        self.unit.op_exactly(
            1,
            Precondition::NoSuchEmail,
            "insert into discarded_emails (tenant_id, email_id, at)
             select tenant_id, id, mailroom_now() from emails where tenant_id = $1 and id = $2 on conflict do nothing",
            params![self.tenant, id],
        );
        self.draft_by_api(id, EventType::EmailDeleted, "deleted_at is null");
        self.unit.op("delete from restored_emails where tenant_id = $1 and email_id = $2", params![self.tenant, id]);
        self.unit.op(
            "update emails set deleted_at = mailroom_now() where tenant_id = $1 and id = $2 and deleted_at is null",
            params![self.tenant, id],
        );
        self.set_live(id, false);
    }

    /// Restores a soft-deleted email, whoever deleted it. Fails with [`Precondition::NoSuchEmail`] if it is not deleted.
    pub fn restore_email(&mut self, id: EmailId) {
        self.unit.is_erasing = true;
        self.draft_by_api(id, EventType::EmailRestored, "deleted_at is not null");
        self.unit.op_exactly(
            1,
            Precondition::NoSuchEmail,
            "update emails set deleted_at = null where tenant_id = $1 and id = $2 and deleted_at is not null",
            params![self.tenant, id],
        );
        self.unit.op(
            "insert into restored_emails (tenant_id, email_id, at) values ($1, $2, mailroom_now()) on conflict do nothing",
            params![self.tenant, id],
        );
        self.unit.op("delete from discarded_emails where tenant_id = $1 and email_id = $2", params![self.tenant, id]);
        self.set_live(id, true);
    }

    /// Hides those of these emails that were discarded: their rows are new.
    pub(super) fn keep_discarded(&mut self, ids: &[EmailId]) {
        let dialect = self.store.dialect();
        let discarded = "(select email_id from discarded_emails where tenant_id = $1)";
        self.unit.op(
            format!(
                "update emails set deleted_at = mailroom_now() where tenant_id = $1 and {} and id in {discarded}",
                any(dialect, "id", 2)
            ),
            params![self.tenant, ids.to_vec()],
        );
        if dialect == Dialect::Postgres {
            let sql = format!(
                "update email_search set is_live = false where tenant_id = $1 and {} and email_id in {discarded}",
                any(dialect, "email_id", 2)
            );
            self.unit.op(sql, params![self.tenant, ids.to_vec()]);
        }
    }

    fn draft_by_api(&mut self, id: EmailId, kind: EventType, condition: &str) {
        let drafts = self.draft_id();
        self.unit.op(
            format!(
                "insert into {INTO_DRAFTS} select tenant_id, $3, {EVENT_STEP}, '{kind}', mailbox_id, id, false, $4
                 from emails where tenant_id = $1 and id = $2 and {condition}"
            ),
            params![self.tenant, id, drafts, serde_json::json!({"by": "api"})],
        );
    }

    /// Only PostgreSQL's text index says whether an email is deleted.
    fn set_live(&mut self, id: EmailId, is_live: bool) {
        if self.store.dialect() == Dialect::Postgres {
            let sql = "update email_search set is_live = $3 where tenant_id = $1 and email_id = $2";
            self.unit.op(sql, params![self.tenant, id, is_live]);
        }
    }
}
