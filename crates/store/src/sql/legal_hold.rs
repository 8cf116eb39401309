//! The legal hold of a tenant: units that remove or hide its mail are refused.

use domain::TenantId;

use crate::{Dialect, Precondition, Unit, params};

/// The advisory lock of a tenant's hold on PostgreSQL. A tenant's role may not lock the tenant's row.
const HOLD_LOCK: &str = "(hashtextextended('mailroom legal hold ' || $1::text, 0))";

impl Unit {
    /// Refuses the unit while the tenant is on legal hold. To be added first: a hold that is set from then on waits for
    /// the unit's end, so that nothing goes once somebody was told that it is set.
    pub(super) fn expect_not_held(&mut self, dialect: Dialect, tenant: TenantId) {
        if dialect == Dialect::Postgres {
            self.op(format!("select pg_advisory_xact_lock_shared{HOLD_LOCK}"), params![tenant.to_string()]);
        }
        self.op_returning_exactly(
            1,
            Precondition::TenantHeld,
            "select id from tenants where id = $1 and hold_reason is null",
            params![tenant],
        );
    }

    /// Waits for units that found no hold. SQLite has one writer.
    pub(super) fn wait_for_removals(&mut self, dialect: Dialect, tenant: TenantId) {
        if dialect == Dialect::Postgres {
            self.op(format!("select pg_advisory_xact_lock{HOLD_LOCK}"), params![tenant.to_string()]);
        }
    }
}
