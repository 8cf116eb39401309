//! The audit log.

use axum::Json;
use axum::extract::State;
use domain::TenantId;
use jiff::Timestamp;
use serde::Serialize;
use store::sql::audit::AuditEntry;
use utoipa::ToSchema;

use super::Query;
use super::auth::ReadAccess;
use super::page::{self, Page, PageParams};
use super::problem::Problem;
use crate::App;

/// One change in the audit log.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AuditEntry)]
pub struct AuditView {
    /// Sequence number, without gaps per tenant.
    seq: u64,
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// `operator`, `key:` and the id of an API key, `jwt:` and the subject of a token, `command:` and the id of a system
    /// user, or `system`.
    #[schema(example = "operator")]
    actor: String,
    #[schema(example = "mailbox.pause")]
    action: String,
    /// Id or name of the changed resource.
    target: String,
    /// Address of the client.
    address: Option<String>,
    request_id: Option<String>,
    #[schema(value_type = Option<Object>)]
    before: serde_json::Value,
    #[schema(value_type = Option<Object>)]
    after: serde_json::Value,
    /// SHA-256 of the previous hash and this entry.
    hash: String,
}

impl From<AuditEntry> for AuditView {
    fn from(entry: AuditEntry) -> Self {
        // An entry that was tampered with is shown as far as it can be read; `mailroom audit verify` names it.
        let mut read: serde_json::Value = serde_json::from_str(&entry.entry).unwrap_or_default();
        Self {
            seq: entry.seq,
            at: entry.at,
            actor: text(&read, "actor").unwrap_or_default(),
            action: text(&read, "action").unwrap_or_default(),
            target: text(&read, "target").unwrap_or_default(),
            address: text(&read, "address"),
            request_id: text(&read, "request_id"),
            hash: entry.hash,
            before: read["before"].take(),
            after: read["after"].take(),
        }
    }
}

fn text(entry: &serde_json::Value, name: &str) -> Option<String> {
    entry[name].as_str().map(str::to_owned)
}

/// List the audit log, newest first.
///
/// Without `X-Tenant-Id` the operator gets the changes that belong to no tenant, such as those of queues, schedules and keys.
#[utoipa::path(get, path = "/v1/audit", operation_id = "list_audit", tag = "audit", params(PageParams), responses(
    (status = 200, description = "Audit entries", body = Page<AuditView>)))]
pub async fn list(
    access: ReadAccess,
    State(app): State<App>,
    Query(paging): Query<PageParams>,
) -> Result<Json<Page<AuditView>>, Problem> {
    let (limit, before) = (paging.limit()?, paging.after::<u64>()?);
    if before.is_some_and(|before| i64::try_from(before).is_err()) {
        return Err(page::invalid_cursor());
    }
    let store = app.engine.store.tenant(access.tenant.unwrap_or(TenantId::SYSTEM));
    let entries = store.list_audit(before, limit + 1).await?;
    Ok(Json(Page::cut(entries, limit, |entry| entry.seq).map(AuditView::from)))
}
