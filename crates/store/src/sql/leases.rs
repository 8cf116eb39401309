//! Leases with fence tokens. The lease keeps other processes from doing the same work; safety comes from the token, which grows
//! with every change of holder and is checked in the commit of whatever the holder writes.
//!
//! These are leases by name. A sync holds its lease in the row of its state (`sql::sync`, `guard_sync`), a running job in its
//! own row (`sql::jobs::finish`); webhooks, directories and listeners keep theirs in their rows too.

use std::time::Duration;

use jiff::Timestamp;

use super::jobs::later;
use crate::failpoint::{self, Effect, Guard};
use crate::{Dialect, Precondition, StoreError, SystemStore, TenantUnit, Unit, params};

impl SystemStore {
    /// Acquires a lease that is free or has expired by the database's clock, and returns its token. A lease that is held is not
    /// given again, not even to its holder.
    pub async fn acquire_lease(&self, name: &str, holder: &str, duration: Duration) -> Result<Option<u64>, StoreError> {
        let until = later(self.store.dialect(), "$3");
        let mut unit = Unit::default();
        let taken = unit.op_returning(
            format!(
                "insert into leases (name, holder, token, until) values ($1, $2, 1, {until})
                 on conflict (name) do update set holder = excluded.holder, token = leases.token + 1, until = excluded.until
                 where leases.until <= mailroom_now()
                 returning token"
            ),
            params![name, holder, millis(duration)],
        );
        let committed = self.commit_at(Effect::TakeLease, unit).await?;
        committed.returned(taken).first().map(|row| row.get(0)).transpose()
    }

    /// Renews a lease, also one that has expired and that no process took. Returns `false` if another process holds it.
    pub async fn renew_lease(
        &self,
        name: &str,
        holder: &str,
        token: u64,
        duration: Duration,
    ) -> Result<bool, StoreError> {
        let until = later(self.store.dialect(), "$4");
        let mut unit = Unit::default();
        let renewed = unit.op(
            format!("update leases set until = {until} where name = $1 and holder = $2 and token = $3"),
            params![name, holder, token, millis(duration)],
        );
        let committed = self.commit_at(Effect::RenewLease, unit).await?;
        Ok(committed.changed(renewed) == 1)
    }

    /// Releases a lease before it expires. The row stays, so that tokens never fall.
    pub async fn release_lease(&self, name: &str, holder: &str, token: u64) -> Result<(), StoreError> {
        let mut unit = Unit::default();
        unit.op(
            "update leases set until = mailroom_now() where name = $1 and holder = $2 and token = $3",
            params![name, holder, token],
        );
        self.commit_at(Effect::ReleaseLease, unit).await?;
        Ok(())
    }

    /// Deletes leases with this prefix that expired before that moment; returns whether there may be more. Their tokens begin
    /// anew, so it must be long after any process could act by one.
    pub async fn prune_leases(&self, prefix: &str, before: Timestamp, limit: u64) -> Result<bool, StoreError> {
        let mut unit = Unit::default();
        let pruned = unit.op(
            "delete from leases where name in (
                 select name from leases where name like $1 and until < $2 order by until limit $3)",
            params![format!("{prefix}%"), before, limit],
        );
        Ok(self.commit(unit).await?.changed(pruned) >= limit)
    }

    /// Finds the holder of a lease that has not expired.
    pub async fn find_lease_holder(&self, name: &str) -> Result<Option<String>, StoreError> {
        let sql = "select holder from leases where name = $1 and until > mailroom_now()";
        self.query_one(sql, params![name]).await?.map(|row| row.get(0)).transpose()
    }
}

impl TenantUnit {
    /// Refuses the unit when another process has taken over the lease. For units of the system: a tenant sees no leases.
    pub fn guard_lease(&mut self, name: &str, token: u64) {
        if failpoint::is_off(Guard::LeaseToken) {
            return;
        }
        // A process that takes it over waits for this unit.
        let lock = match self.store.dialect() {
            Dialect::Postgres => "for share",
            Dialect::Sqlite => "",
        };
        self.unit.op_returning_exactly(
            1,
            Precondition::LeaseTakenOver,
            format!("select 1 from leases where name = $1 and token = $2 {lock}"),
            params![name, token],
        );
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
