//! Operations on tenants and their keys.

use domain::{PlanTier, TenantSettings};
use engine::operations::api_keys::{self, NewKey};
use engine::operations::tenants::{self, NewTenant, TenantChange};
use engine::operations::{Operation, Refusal};
use jiff::SignedDuration;
use store::sql::tenants::Tenant;

use super::subject::Subject;

pub async fn perform(operation: &Operation, subject: &Subject<'_>) -> Result<(), Refusal> {
    let id = subject.tenant.id;
    match operation.name {
        "tenant.create" => {
            let (name, settings) = (format!("new {id}"), TenantSettings::default());
            tenants::create(&subject.call().await, NewTenant { name, plan: PlanTier::Vip, settings }).await.map(drop)
        }
        "tenant.change" => {
            let change = TenantChange { plan: Some(PlanTier::Vip), ..TenantChange::default() };
            tenants::change(&subject.call().await, &tenant(subject).await, change).await.map(drop)
        }
        "tenant.delete" => {
            let call = subject.call().await;
            tenants::delete(&call, &tenant(subject).await, SignedDuration::from_hours(1)).await.map(drop)
        }
        "tenant.undelete" => {
            // Deleted by somebody else before.
            let deleted = "update tenants set is_active = false, deleted_at = created_at";
            subject.app.db.run(&format!("{deleted} where id = '{id}' and deleted_at is null")).await;
            tenants::undelete(&subject.call().await, &tenant(subject).await).await.map(drop)
        }
        "api_key.create" => {
            let new = NewKey { name: "ci".to_owned(), scopes: vec!["read".to_owned()], expires_at: None };
            api_keys::create(&subject.call().await, id, new).await.map(drop)
        }
        "api_key.revoke" => {
            let scopes = ["read".to_owned()];
            let created = engine::credentials::api_keys::create(&subject.tenant, "ci", &scopes, None).await;
            api_keys::revoke(&subject.call().await, id, created?.0).await
        }
        other => panic!("{other} has no case"),
    }
}

async fn tenant(subject: &Subject<'_>) -> Tenant {
    let system = subject.app.store().system();
    system.find_tenant(&subject.tenant.id.to_string()).await.unwrap().unwrap()
}
