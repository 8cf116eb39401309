//! Tenants.

use domain::{PlanTier, TenantId};
use jiff::Timestamp;
use serde::Serialize;

use crate::failpoint::{self, Effect};
use crate::sql::jobs::Target;
use crate::sql::jobs::control::catch_up;
use crate::{Row, StoreError, SystemStore, Unit, params};

#[derive(Debug, Clone, Serialize)]
pub struct Tenant {
    pub id: TenantId,
    pub name: String,
    pub plan_tier: PlanTier,
    pub is_active: bool,
    pub version: u64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

const COLUMNS: &str = "id, name, plan_tier, is_active, version, created_at, updated_at";

impl SystemStore {
    /// `None` when the name is taken.
    pub async fn create_tenant(&self, name: &str, plan: PlanTier) -> Result<Option<Tenant>, StoreError> {
        let id = TenantId::new(self.store.clock());
        let mut unit = Unit::default();
        let created = unit.op(
            "insert into tenants (id, name, plan_tier, created_at, updated_at)
             values ($1, $2, $3, mailroom_now(), mailroom_now()) on conflict (name) do nothing",
            params![id, name, plan],
        );
        failpoint::before(Effect::MakeTenant);
        let committed = self.commit(unit).await?;
        failpoint::after(Effect::MakeTenant);
        if committed.changed(created) == 0 {
            return Ok(None);
        }
        self.find_tenant(&id.to_string()).await
    }

    /// By name or by id.
    pub async fn find_tenant(&self, name_or_id: &str) -> Result<Option<Tenant>, StoreError> {
        let row = match name_or_id.parse::<TenantId>() {
            Ok(id) => self.query_one(format!("select {COLUMNS} from tenants where id = $1"), params![id]).await?,
            Err(_) => {
                self.query_one(format!("select {COLUMNS} from tenants where name = $1"), params![name_or_id]).await?
            }
        };
        row.as_ref().map(tenant).transpose()
    }

    pub async fn list_tenants(&self) -> Result<Vec<Tenant>, StoreError> {
        let rows = self.query(format!("select {COLUMNS} from tenants order by name"), vec![]).await?;
        rows.iter().map(tenant).collect()
    }

    /// In the order in which they were made, after a given one.
    pub async fn list_tenants_after(&self, after: Option<TenantId>, limit: u64) -> Result<Vec<Tenant>, StoreError> {
        let after = after.unwrap_or(TenantId(uuid::Uuid::nil()));
        let sql = format!("select {COLUMNS} from tenants where id > $1 order by id limit $2");
        self.query(sql, params![after, limit]).await?.iter().map(tenant).collect()
    }

    /// Whether anything changed.
    pub async fn set_tenant_active(&self, id: TenantId, is_active: bool) -> Result<bool, StoreError> {
        let mut unit = Unit::default();
        let changed = unit.op(
            "update tenants set is_active = $2, version = version + 1, updated_at = mailroom_now()
             where id = $1 and is_active <> $2",
            params![id, is_active],
        );
        if is_active {
            catch_up(&mut unit, &Target::Tenant(id));
        }
        Ok(self.commit(unit).await?.changed(changed) == 1)
    }
}

fn tenant(row: &Row) -> Result<Tenant, StoreError> {
    Ok(Tenant {
        id: row.get(0)?,
        name: row.get(1)?,
        plan_tier: row.get(2)?,
        is_active: row.get(3)?,
        version: row.get(4)?,
        created_at: row.get(5)?,
        updated_at: row.get(6)?,
    })
}
