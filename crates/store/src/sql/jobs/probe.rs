//! What the built-in job `probe` leaves behind.

use domain::{JobId, TenantId};

use super::Claimed;
use crate::{Row, StoreError, SystemStore, TenantUnit, params};

impl TenantUnit {
    pub fn record_probe(&mut self, job: &Claimed) {
        self.unit.op(
            "insert into probe_effects (tenant_id, job_id, token, at) values ($1, $2, $3, mailroom_now())",
            params![job.tenant, job.id, job.token],
        );
    }
}

impl SystemStore {
    /// Every effect of every probe: whose, which, and by which token.
    pub async fn list_probe_effects(&self) -> Result<Vec<(TenantId, JobId, u64)>, StoreError> {
        let sql = "select tenant_id, job_id, token from probe_effects order by at";
        let effect = |row: &Row| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        self.query(sql, vec![]).await?.iter().map(effect).collect()
    }
}
