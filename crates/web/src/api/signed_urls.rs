//! Signed URLs: an attachment can be downloaded for a limited time without a key.

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use domain::{AttachmentId, EmailId, Sha256, TenantId, redact_for_log};
use engine::credentials::secrets::VaultError;
use engine::credentials::signed_urls::DownloadClaims;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use store::TenantStore;
use utoipa::{IntoParams, ToSchema};

use super::auth::TenantReader;
use super::caller::admit;
use super::download::content_not_stored;
use super::problem::Problem;
use super::{Path, Query};
use crate::App;
use crate::edge::{ClientAddress, KeyHistory};

const DEFAULT_EXPIRY_SECONDS: u64 = 300;
const MAX_EXPIRY_SECONDS: u64 = 3600;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AttachmentUrlParams {
    /// Validity in seconds.
    #[param(minimum = 1, maximum = 3600, default = 300)]
    expires_in: Option<u64>,
}

/// URL of an attachment that needs no key.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AttachmentUrl)]
pub struct UrlView {
    url: String,
    #[schema(value_type = String, format = DateTime)]
    expires_at: Timestamp,
}

/// Get a signed URL of an attachment.
///
/// Its content can be downloaded there for a limited time without a key.
#[utoipa::path(get, path = "/v1/attachments/{id}/url", operation_id = "get_attachment_url", tag = "attachments",
    params(("id" = String, Path), AttachmentUrlParams), responses(
    (status = 200, description = "A URL of this server or of its blob store", body = UrlView)))]
pub async fn url(
    TenantReader(store): TenantReader,
    State(app): State<App>,
    Path(attachment): Path<AttachmentId>,
    Query(params): Query<AttachmentUrlParams>,
) -> Result<Json<UrlView>, Problem> {
    let seconds = params.expires_in.unwrap_or(DEFAULT_EXPIRY_SECONDS);
    if !(1..=MAX_EXPIRY_SECONDS).contains(&seconds) {
        return Err(Problem::invalid("expires_in", format!("must be from 1 to {MAX_EXPIRY_SECONDS} seconds")));
    }
    let (email, found) = store.find_attachment(attachment).await?.ok_or_else(|| Problem::not_found("attachment"))?;
    check_not_deleted(&store, email).await?;
    let place = match found.sha256 {
        Some(sha256) => store.find_blob(sha256).await?,
        None => None,
    };
    let place = place.ok_or_else(content_not_stored)?;
    let now = Timestamp::from_second(store.clock().now().as_second()).unwrap_or_default();
    let until = now.checked_add(SignedDuration::from_secs(seconds as i64)).unwrap_or(now);
    if let Some(url) = app.engine.blobs.presign(&place, Duration::from_secs(seconds)).await? {
        return Ok(Json(UrlView { url, expires_at: until }));
    }
    let leave = DownloadClaims { tenant: store.id, attachment, until };
    let signature = leave.sign(&app.engine.vault).await?;
    let (base, tenant, expires) = (&app.edge.settings.public_url, store.id, until.as_second());
    let url =
        format!("{base}/v1/attachments/{attachment}/content?tenant={tenant}&expires={expires}&signature={signature}");
    Ok(Json(UrlView { url, expires_at: until }))
}

/// Fails with 404 if the email is deleted: a signed URL does not outlive it.
async fn check_not_deleted(store: &TenantStore, email: EmailId) -> Result<(), Problem> {
    if !store.has_live_email(email).await? {
        return Err(Problem::not_found("attachment"));
    }
    Ok(())
}

/// Read access to one attachment, by a key or by a signed URL.
#[derive(Debug, Clone)]
pub struct AttachmentAccess(pub TenantStore);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SignedUrlParams {
    tenant: TenantId,
    expires: i64,
    signature: String,
}

impl FromRequestParts<App> for AttachmentAccess {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        if !parts.uri.query().is_some_and(|query| query.contains("signature=")) {
            let TenantReader(store) = TenantReader::from_request_parts(parts, app).await?;
            return Ok(Self(store));
        }
        let Path(attachment) = Path::<AttachmentId>::from_request_parts(parts, app).await?;
        let Query(signed) = Query::<SignedUrlParams>::from_request_parts(parts, app).await.map_err(|_| altered())?;
        let until = Timestamp::from_second(signed.expires).map_err(|_| altered())?;
        if !is_signed(parts, app, DownloadClaims { tenant: signed.tenant, attachment, until }, &signed.signature)
            .await?
        {
            return Err(altered());
        }
        if app.engine.store.clock().now() >= until {
            return Err(Problem::forbidden("this URL has expired"));
        }
        let tenant = app.engine.store.system().find_tenant(&signed.tenant.to_string()).await?;
        let tenant = tenant.filter(|tenant| tenant.is_active);
        let tenant =
            tenant.ok_or_else(|| Problem::forbidden("this tenant is deactivated; the operator can activate it"))?;
        admit(parts, app, tenant.id, tenant.plan_tier).await?;
        let store = app.engine.store.tenant(tenant.id);
        let (email, _) = store.find_attachment(attachment).await?.ok_or_else(|| Problem::not_found("attachment"))?;
        check_not_deleted(&store, email).await?;
        Ok(Self(store))
    }
}

fn altered() -> Problem {
    Problem::forbidden("this URL was altered: its signature does not match")
}

/// Checks a signature. Wrong signatures count towards the throttle of the address, like wrong keys.
async fn is_signed(parts: &Parts, app: &App, leave: DownloadClaims, signature: &str) -> Result<bool, Problem> {
    let (throttle, hash) = (&app.edge.auth_throttle, Sha256::of(signature.as_bytes()));
    let address = parts.extensions.get().map(|ClientAddress(address)| *address);
    if let Some(KeyHistory::Throttled(wait)) = address.map(|address| throttle.check(address, hash)) {
        return Err(Problem::too_many_requests("too many wrong signatures were sent from this address", wait));
    }
    let is_signed = leave.is_signed(signature, &app.engine.vault).await?;
    if let (false, Some(address)) = (is_signed, address) {
        throttle.record_failure(address, hash);
    }
    Ok(is_signed)
}

impl From<VaultError> for Problem {
    fn from(e: VaultError) -> Self {
        match e {
            VaultError::Store(e) => e.into(),
            other => {
                tracing::error!(error = redact_for_log(&other), "request failed");
                Self::internal()
            }
        }
    }
}
