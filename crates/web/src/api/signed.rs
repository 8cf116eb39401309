//! URLs under which an attachment can be fetched for a while, without a key: for browsers and other programs.

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use domain::{AttachmentId, EmailId, Sha256, TenantId};
use engine::secrets::VaultError;
use engine::signed::Leave;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use store::TenantStore;
use utoipa::{IntoParams, ToSchema};

use super::auth::Reader;
use super::caller::admit;
use super::problem::Problem;
use super::{Path, Query};
use crate::App;
use crate::edge::{ClientAddress, Known};

const USUAL_SECONDS: u64 = 300;
const MOST_SECONDS: u64 = 3600;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Wanted {
    /// For how many seconds.
    #[param(minimum = 1, maximum = 3600, default = 300)]
    expires_in: Option<u64>,
}

/// Where an attachment can be fetched without a key.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AttachmentUrl)]
pub struct UrlView {
    url: String,
    #[schema(value_type = String, format = DateTime)]
    expires_at: Timestamp,
}

/// A URL under which the bytes of an attachment can be fetched for a while, without a key.
#[utoipa::path(get, path = "/v1/attachments/{id}/url", operation_id = "get_attachment_url", tag = "attachments",
    params(("id" = String, Path), Wanted), responses(
    (status = 200, description = "Of this server, or of the store that the bytes are in", body = UrlView)))]
pub async fn url(
    Reader(store): Reader,
    State(app): State<App>,
    Path(attachment): Path<AttachmentId>,
    Query(wanted): Query<Wanted>,
) -> Result<Json<UrlView>, Problem> {
    let seconds = wanted.expires_in.unwrap_or(USUAL_SECONDS);
    if !(1..=MOST_SECONDS).contains(&seconds) {
        return Err(Problem::invalid("expires_in", format!("it is from 1 to {MOST_SECONDS} seconds")));
    }
    let (email, found) = store.find_attachment(attachment).await?.ok_or_else(|| Problem::absent("attachment"))?;
    must_be_there(&store, email).await?;
    let place = match found.sha256 {
        Some(sha256) => store.find_blob(sha256).await?,
        None => None,
    };
    let place = place.ok_or_else(|| Problem::absent("content: its bytes are not stored"))?;
    let now = Timestamp::from_second(store.clock().now().as_second()).unwrap_or_default();
    let until = now.checked_add(SignedDuration::from_secs(seconds as i64)).unwrap_or(now);
    if let Some(url) = app.engine.blobs.presign(&place, Duration::from_secs(seconds)).await? {
        return Ok(Json(UrlView { url, expires_at: until }));
    }
    let leave = Leave { tenant: store.id, attachment, until };
    let signature = leave.sign(&app.engine.vault).await?;
    let (base, tenant, expires) = (&app.edge.settings.public_url, store.id, until.as_second());
    let url =
        format!("{base}/v1/attachments/{attachment}/content?tenant={tenant}&expires={expires}&signature={signature}");
    Ok(Json(UrlView { url, expires_at: until }))
}

/// What is deleted cannot be fetched under a URL that was given before.
async fn must_be_there(store: &TenantStore, email: EmailId) -> Result<(), Problem> {
    match store.is_email_there(email).await? {
        true => Ok(()),
        false => Err(Problem::absent("attachment")),
    }
}

/// Who may fetch one attachment: with a key, or with a URL that was signed for it.
#[derive(Debug, Clone)]
pub struct Bearer(pub TenantStore);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Signed {
    tenant: TenantId,
    expires: i64,
    signature: String,
}

impl FromRequestParts<App> for Bearer {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        if !parts.uri.query().is_some_and(|query| query.contains("signature=")) {
            let Reader(store) = Reader::from_request_parts(parts, app).await?;
            return Ok(Self(store));
        }
        let altered = || Problem::forbidden("this URL was altered: its signature does not fit");
        let Path(attachment) = Path::<AttachmentId>::from_request_parts(parts, app).await?;
        let Query(signed) = Query::<Signed>::from_request_parts(parts, app).await.map_err(|_| altered())?;
        let until = Timestamp::from_second(signed.expires).map_err(|_| altered())?;
        if !is_signed(parts, app, Leave { tenant: signed.tenant, attachment, until }, &signed.signature).await? {
            return Err(altered());
        }
        if app.engine.store.clock().now() >= until {
            return Err(Problem::forbidden("this URL has expired"));
        }
        let tenant = app.engine.store.system().find_tenant(&signed.tenant.to_string()).await?;
        let tenant = tenant.filter(|tenant| tenant.is_active);
        let tenant = tenant.ok_or_else(|| Problem::forbidden("this tenant is not active"))?;
        admit(parts, app, tenant.id, tenant.plan_tier).await?;
        let store = app.engine.store.tenant(tenant.id);
        let (email, _) = store.find_attachment(attachment).await?.ok_or_else(|| Problem::absent("attachment"))?;
        must_be_there(&store, email).await?;
        Ok(Self(store))
    }
}

/// Wrong ones count like wrong keys.
async fn is_signed(parts: &Parts, app: &App, leave: Leave, signature: &str) -> Result<bool, Problem> {
    let (guesses, hash) = (&app.edge.guesses, Sha256::of(signature.as_bytes()));
    let address = parts.extensions.get().map(|ClientAddress(address)| *address);
    if let Some(Known::TooMany(wait)) = address.map(|address| guesses.look(address, hash)) {
        return Err(Problem::too_many("too many wrong signatures came from your address", wait));
    }
    let is_signed = leave.is_signed(signature, &app.engine.vault).await?;
    if let (false, Some(address)) = (is_signed, address) {
        guesses.was_wrong(address, hash);
    }
    Ok(is_signed)
}

impl From<VaultError> for Problem {
    fn from(e: VaultError) -> Self {
        match e {
            VaultError::Store(e) => e.into(),
            other => {
                tracing::error!("a request met a problem: {other}");
                Self::internal()
            }
        }
    }
}
