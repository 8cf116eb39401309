//! Tenants: their rows, activation and deletion.

use domain::{PlanTier, TenantId, TenantSettings};
use jiff::Timestamp;
use serde::Serialize;

use super::mailbox_settings::tenant_settings;
use crate::failpoint::Effect;
use crate::sql::jobs::control::{catch_up_shares, revoke_running_jobs};
use crate::sql::jobs::{JobScope, NewJob};
use crate::{Precondition, Row, StoreError, SystemStore, TenantStore, Unit, params};

#[derive(Debug, Clone, Serialize)]
pub struct Tenant {
    pub id: TenantId,
    pub name: String,
    pub plan_tier: PlanTier,
    pub is_active: bool,
    pub settings: TenantSettings,
    pub version: u64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// When it was deleted; it is erased some time after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<Timestamp>,
    /// The legal hold: why it must not be deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold_reason: Option<String>,
    /// Since when it is being erased, which cannot be undone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub erasing_at: Option<Timestamp>,
}

const COLUMNS: &str =
    "id, name, plan_tier, is_active, version, created_at, updated_at, deleted_at, hold_reason, erasing_at, settings";

impl SystemStore {
    /// Creates a tenant. Returns `None` if the name is taken.
    pub async fn create_tenant(&self, name: &str, plan: PlanTier) -> Result<Option<Tenant>, StoreError> {
        let tenant = Tenant::new(TenantId::new(self.store.clock()), name, plan, self.now().await?);
        match self.add_tenant(&tenant).await {
            Ok(()) => Ok(Some(tenant)),
            Err(StoreError::Precondition(Precondition::TenantNameTaken)) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Adds a tenant. Fails with [`Precondition::TenantNameTaken`].
    pub async fn add_tenant(&self, tenant: &Tenant) -> Result<(), StoreError> {
        let Tenant { id, name, plan_tier, settings, created_at, .. } = tenant;
        let mut unit = Unit::default();
        unit.op_exactly(
            1,
            Precondition::TenantNameTaken,
            "insert into tenants (id, name, plan_tier, settings, created_at, updated_at) values ($1, $2, $3, $4, $5, $5)
             on conflict (name) do nothing",
            params![*id, name, *plan_tier, settings.clone(), *created_at],
        );
        self.commit_at(Effect::MakeTenant, unit).await?;
        Ok(())
    }

    /// Changes a tenant from `before` to `after`. Fails with [`Precondition::TenantChanged`] or
    /// [`Precondition::TenantNameTaken`].
    pub async fn change_tenant(&self, before: &Tenant, after: &Tenant) -> Result<(), StoreError> {
        self.commit(self.changed_tenant(before, after)).await.map(drop)
    }

    /// Deletes a tenant: its access ends at once, and the job erases its data.
    pub async fn delete_tenant(&self, before: &Tenant, after: &Tenant, erase: NewJob) -> Result<(), StoreError> {
        let mut unit = self.write_for(TenantId::SYSTEM);
        unit.unit = self.changed_tenant(before, after);
        unit.enqueue(vec![erase]);
        unit.commit().await.map(drop)
    }

    /// Begins to erase a tenant, which cannot be undone. Returns `false` if it was restored, put on hold or changed meanwhile.
    pub async fn begin_erasing(&self, tenant: &Tenant) -> Result<bool, StoreError> {
        let mut unit = Unit::default();
        let begun = unit.op(
            "update tenants set erasing_at = coalesce(erasing_at, mailroom_now())
             where id = $1 and version = $2 and deleted_at is not null and hold_reason is null and not is_active",
            params![tenant.id, tenant.version],
        );
        Ok(self.commit(unit).await?.changed(begun) == 1)
    }

    fn changed_tenant(&self, before: &Tenant, after: &Tenant) -> Unit {
        let mut unit = Unit::default();
        if after.hold_reason.is_some() {
            unit.wait_for_removals(self.store.dialect(), before.id);
        }
        // Of two that take a name at once, one gets a less friendly error.
        unit.op_returning_exactly(
            0,
            Precondition::TenantNameTaken,
            "select id from tenants where name = $1 and id <> $2",
            params![&after.name, before.id],
        );
        unit.op_exactly(
            1,
            Precondition::TenantChanged,
            "update tenants set name = $3, plan_tier = $4, is_active = $5, deleted_at = $6, hold_reason = $7,
                 settings = $8, version = version + 1, updated_at = $9
             where id = $1 and version = $2 and erasing_at is null",
            params![
                before.id,
                before.version,
                &after.name,
                after.plan_tier,
                after.is_active,
                after.deleted_at,
                after.hold_reason.clone(),
                after.settings.clone(),
                after.updated_at,
            ],
        );
        if after.is_active && !before.is_active {
            catch_up_shares(&mut unit, &JobScope::Tenant(before.id));
        }
        if before.is_active && !after.is_active {
            // A sync that lists one of its mailboxes at this moment cannot record another page.
            unit.op(
                "update sync_states set token = token + 1, holder = null, held_until = null where tenant_id = $1",
                params![before.id],
            );
            revoke_running_jobs(&mut unit, self.store.dialect(), before.id);
        }
        unit
    }

    /// Finds a tenant by name or by id.
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

    /// Lists tenants in the order in which they were made, after a given one.
    pub async fn list_tenants_after(&self, after: Option<TenantId>, limit: u64) -> Result<Vec<Tenant>, StoreError> {
        let after = after.unwrap_or(TenantId(uuid::Uuid::nil()));
        let sql = format!("select {COLUMNS} from tenants where id > $1 order by id limit $2");
        self.query(sql, params![after, limit]).await?.iter().map(tenant).collect()
    }

    /// Activates or deactivates a tenant; returns whether anything changed.
    #[cfg(feature = "testing")]
    pub async fn set_tenant_active(&self, id: TenantId, is_active: bool) -> Result<bool, StoreError> {
        loop {
            let Some(before) = self.find_tenant(&id.to_string()).await? else { return Ok(false) };
            if before.is_active == is_active || before.erasing_at.is_some() {
                return Ok(false);
            }
            // A tenant that is activated again is not to be erased.
            let deleted_at = before.deleted_at.filter(|_| !is_active);
            let after = Tenant { is_active, deleted_at, ..before.changed_at(self.now().await?) };
            match self.change_tenant(&before, &after).await {
                Err(StoreError::Precondition(Precondition::TenantChanged)) => {}
                changed => return changed.map(|()| true),
            }
        }
    }
}

impl TenantStore {
    /// Returns whether the tenant is active.
    pub async fn is_active(&self) -> Result<bool, StoreError> {
        Ok(self.query_one("select 1 from tenants where id = $1 and is_active", params![self.id]).await?.is_some())
    }

    /// Returns the settings of the tenant.
    pub async fn tenant_settings(&self) -> Result<TenantSettings, StoreError> {
        let row = self.query_one("select settings from tenants where id = $1", params![self.id]).await?;
        row.map_or_else(|| Ok(TenantSettings::default()), |row| tenant_settings(&row, 0, self.id))
    }
}

impl Tenant {
    pub fn new(id: TenantId, name: &str, plan_tier: PlanTier, now: Timestamp) -> Self {
        Self {
            id,
            name: name.to_owned(),
            plan_tier,
            is_active: true,
            settings: TenantSettings::default(),
            version: 1,
            created_at: now,
            updated_at: now,
            deleted_at: None,
            hold_reason: None,
            erasing_at: None,
        }
    }

    /// Returns a copy with the next version.
    pub fn changed_at(&self, now: Timestamp) -> Self {
        Self { version: self.version + 1, updated_at: now, ..self.clone() }
    }
}

fn tenant(row: &Row) -> Result<Tenant, StoreError> {
    let id = row.get(0)?;
    Ok(Tenant {
        id,
        name: row.get(1)?,
        plan_tier: row.get(2)?,
        is_active: row.get(3)?,
        settings: tenant_settings(row, 10, id)?,
        version: row.get(4)?,
        created_at: row.get(5)?,
        updated_at: row.get(6)?,
        deleted_at: row.get(7)?,
        hold_reason: row.get(8)?,
        erasing_at: row.get(9)?,
    })
}
