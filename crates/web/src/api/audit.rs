//! Who changed what.

use axum::Json;
use axum::extract::State;
use domain::TenantId;
use jiff::Timestamp;
use serde::Serialize;
use store::sql::audit::AuditEntry;
use utoipa::ToSchema;

use super::Query;
use super::auth::Viewer;
use super::page::{Page, Paging};
use super::problem::Problem;
use crate::App;

/// One change, and who made it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AuditEntry)]
pub struct AuditView {
    /// Without gaps, per tenant.
    seq: u64,
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// `operator`, `key:` and the id of a key, `jwt:` and whom the token is for, `command:` and the number of a user, or
    /// `system`.
    #[schema(example = "operator")]
    actor: String,
    #[schema(example = "mailbox.pause")]
    action: String,
    /// The id or name of what was changed.
    target: String,
    /// From where.
    address: Option<String>,
    request_id: Option<String>,
    #[schema(value_type = Option<Object>)]
    before: serde_json::Value,
    #[schema(value_type = Option<Object>)]
    after: serde_json::Value,
    /// SHA-256 of the hash before and this entry.
    hash: String,
}

impl From<AuditEntry> for AuditView {
    fn from(entry: AuditEntry) -> Self {
        // What was tampered with is shown as far as it can be read; `mailroom audit verify` names it.
        let mut read: serde_json::Value = serde_json::from_str(&entry.entry).unwrap_or_default();
        let text = |name: &str| read[name].as_str().map(str::to_owned);
        Self {
            seq: entry.seq,
            at: entry.at,
            actor: text("actor").unwrap_or_default(),
            action: text("action").unwrap_or_default(),
            target: text("target").unwrap_or_default(),
            address: text("address"),
            request_id: text("request_id"),
            hash: entry.hash,
            before: read["before"].take(),
            after: read["after"].take(),
        }
    }
}

/// Who changed what, the newest first. The operator who names no tenant sees what is nobody's: lanes and schedules.
#[utoipa::path(get, path = "/v1/audit", operation_id = "list_audit", tag = "audit", params(Paging), responses(
    (status = 200, description = "What was asked for", body = Page<AuditView>)))]
pub async fn list(
    viewer: Viewer,
    State(app): State<App>,
    Query(paging): Query<Paging>,
) -> Result<Json<Page<AuditView>>, Problem> {
    let (limit, before) = (paging.limit()?, paging.after::<u64>()?);
    if before.is_some_and(|before| i64::try_from(before).is_err()) {
        return Err(Problem::invalid("cursor", "no list gave this"));
    }
    let store = app.engine.store.tenant(viewer.tenant.unwrap_or(TenantId::SYSTEM));
    let entries = store.list_audit(before, limit + 1).await?;
    Ok(Json(Page::cut(entries, limit, |entry| entry.seq).map(AuditView::from)))
}
