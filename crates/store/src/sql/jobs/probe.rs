//! For tests: what the built-in job `probe` leaves behind.

use super::ClaimedJob;
use crate::{TenantUnit, params};

impl TenantUnit {
    pub fn record_probe(&mut self, job: &ClaimedJob) {
        self.unit.op(
            "insert into probe_effects (tenant_id, job_id, token, at) values ($1, $2, $3, mailroom_now())",
            params![job.tenant, job.id, job.token],
        );
    }
}
