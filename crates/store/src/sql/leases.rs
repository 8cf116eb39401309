//! Who may act for all. A lease is speed: it keeps others from doing the same. Safety is its token, which grows with
//! every change of holder and is checked inside the commit of whatever the holder writes.

use std::time::Duration;

use jiff::Timestamp;

use super::jobs::later;
use crate::failpoint::{self, Effect, Guard};
use crate::{Dialect, StoreError, SystemStore, TenantUnit, Unit, params};

/// What a holder is told that somebody else has followed.
pub const NO_LONGER_LEADER: &str = "somebody else holds this lease now";

impl SystemStore {
    /// The token, if the lease was free or had run out by the database's clock. A lease that is held is not given again,
    /// not even to its holder.
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
        failpoint::before(Effect::TakeLease);
        let committed = self.commit(unit).await?;
        failpoint::after(Effect::TakeLease);
        committed.returned(taken).first().map(|row| row.get(0)).transpose()
    }

    /// `false`: somebody else has it. One that ran out and that nobody took goes on.
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
        failpoint::before(Effect::RenewLease);
        let committed = self.commit(unit).await?;
        failpoint::after(Effect::RenewLease);
        Ok(committed.changed(renewed) == 1)
    }

    /// Others need not wait until it has run out. The row stays, so that tokens never fall.
    pub async fn release_lease(&self, name: &str, holder: &str, token: u64) -> Result<(), StoreError> {
        let mut unit = Unit::default();
        unit.op(
            "update leases set until = mailroom_now() where name = $1 and holder = $2 and token = $3",
            params![name, holder, token],
        );
        failpoint::before(Effect::ReleaseLease);
        self.commit(unit).await?;
        failpoint::after(Effect::ReleaseLease);
        Ok(())
    }

    /// Forgets some whose names begin so and that nobody has held since; whether there may be more. Their tokens begin anew,
    /// so it has to be long after anybody could act by one.
    pub async fn prune_leases(&self, prefix: &str, before: Timestamp, limit: u64) -> Result<bool, StoreError> {
        let mut unit = Unit::default();
        let pruned = unit.op(
            "delete from leases where name in (
                 select name from leases where name like $1 and until < $2 order by until limit $3)",
            params![format!("{prefix}%"), before, limit],
        );
        Ok(self.commit(unit).await?.changed(pruned) >= limit)
    }

    /// Who holds it, if anybody does.
    pub async fn find_lease_holder(&self, name: &str) -> Result<Option<String>, StoreError> {
        let sql = "select holder from leases where name = $1 and until > mailroom_now()";
        self.query_one(sql, params![name]).await?.map(|row| row.get(0)).transpose()
    }
}

impl TenantUnit {
    /// Nothing of the unit happens when the lease has gone to somebody else. For units of the system: a tenant sees no
    /// leases.
    pub fn guard_lease(&mut self, name: &str, token: u64) {
        if failpoint::is_off(Guard::LeaseToken) {
            return;
        }
        // Whoever wants to take it over waits for this unit.
        let lock = match self.store.dialect() {
            Dialect::Postgres => "for share",
            Dialect::Sqlite => "",
        };
        self.unit.op_returning_exactly(
            1,
            NO_LONGER_LEADER,
            format!("select 1 from leases where name = $1 and token = $2 {lock}"),
            params![name, token],
        );
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
