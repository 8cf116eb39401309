//! How far syncs lag behind, and how many mailboxes there are in each state: gauges over all tenants.

use std::time::Duration;

use crate::sql::mailbox_settings::interval_seconds;
use crate::sql::mailboxes::IS_SYNC_ENABLED;
use crate::{Dialect, Row, StoreError, SystemStore, params};

impl SystemStore {
    /// Lists by provider the lag of its worst mailbox in seconds: how long it is overdue, or the time since its last
    /// successful sync beyond its interval, whichever is longer. So neither a scheduler nor workers nor a provider can stand
    /// still unseen. `interval` is that of mailboxes without one of their own or of their tenant.
    pub async fn list_sync_lags(&self, interval: Duration) -> Result<Vec<(String, f64)>, StoreError> {
        let greatest = match self.store.dialect() {
            Dialect::Postgres => "greatest",
            Dialect::Sqlite => "max",
        };
        let own_interval = interval_seconds(self.store.dialect());
        // A mailbox that was paused or connected since is late from then on. The scheduler's jitter is a tenth.
        let synced = "coalesce(s.last_sync_at, m.created_at)";
        let since = format!("case when m.state = 'error' then {synced} else {greatest}({synced}, m.state_since) end");
        let (overdue, unsynced) = (self.millis_since("s.next_sync_at"), self.millis_since(&since));
        let sql = format!(
            "select m.provider, max({greatest}({overdue}, {unsynced} - coalesce({own_interval} * 1000, $1) * 11 / 10))
             from sync_states s
             join mailboxes m on m.tenant_id = s.tenant_id and m.id = s.mailbox_id join tenants t on t.id = m.tenant_id
             where s.next_sync_at is not null and {IS_SYNC_ENABLED} and t.is_active
             group by m.provider"
        );
        let interval = i64::try_from(interval.as_millis()).unwrap_or(i64::MAX / 11);
        self.query(sql, params![interval])
            .await?
            .iter()
            .map(|row: &Row| Ok((row.get(0)?, row.get::<i64>(1)?.max(0) as f64 / 1000.0)))
            .collect()
    }

    fn millis_since(&self, time: &str) -> String {
        match self.store.dialect() {
            Dialect::Postgres => format!("cast(extract(epoch from mailroom_now() - {time}) * 1000 as bigint)"),
            Dialect::Sqlite => format!("cast((julianday(mailroom_now()) - julianday({time})) * 86400000 as integer)"),
        }
    }

    /// Counts the mailboxes of active tenants by provider and state.
    pub async fn count_mailboxes(&self) -> Result<Vec<(String, String, u64)>, StoreError> {
        let sql = "select m.provider, m.state, count(*) from mailboxes m join tenants t on t.id = m.tenant_id
                   where t.is_active group by m.provider, m.state";
        self.query(sql, vec![]).await?.iter().map(|row: &Row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).collect()
    }
}
