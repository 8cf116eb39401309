//! Soft-deletes emails here. Their provider may keep them, and what it does to them from then on causes no event; they are
//! hidden until they are purged.

use domain::{EmailId, EventType};

use super::events::{EVENT_STEP, INTO_DRAFTS};
use crate::{Dialect, Precondition, TenantUnit, params};

impl TenantUnit {
    /// Soft-deletes an email. Refused while the tenant is on legal hold.
    pub fn discard_email(&mut self, id: EmailId) {
        let drafts = self.draft_id();
        self.unit.expect_not_held(self.store.dialect(), self.tenant);
        self.unit.op_exactly(
            1,
            Precondition::NoSuchEmail,
            "insert into discarded_emails (tenant_id, email_id, at)
             select tenant_id, id, mailroom_now() from emails where tenant_id = $1 and id = $2 on conflict do nothing",
            params![self.tenant, id],
        );
        self.unit.op(
            format!(
                "insert into {INTO_DRAFTS} select tenant_id, $3, {EVENT_STEP}, '{kind}', mailbox_id, id, false, $4
                 from emails where tenant_id = $1 and id = $2 and deleted_at is null",
                kind = EventType::EmailDeleted,
            ),
            params![self.tenant, id, drafts, serde_json::json!({"by": "api"})],
        );
        self.unit.op(
            "update emails set deleted_at = mailroom_now() where tenant_id = $1 and id = $2 and deleted_at is null",
            params![self.tenant, id],
        );
        if self.store.dialect() == Dialect::Postgres {
            let sql = "update email_search set is_live = false where tenant_id = $1 and email_id = $2";
            self.unit.op(sql, params![self.tenant, id]);
        }
    }
}
