//! Mailboxes are connected, changed, paused, looked at and let go.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use domain::{MailboxId, MailboxState, Provider, Secret};
use engine::jobs::EraseMailbox;
use engine::mailboxes::{Backfill, Connect, is_changed, state_when_resumed, state_with_new_secret};
use serde::Deserialize;
use serde_json::{Value, json};
use store::StoreError;
use store::sql::mailboxes::{MAILBOX_CHANGED, MAILBOX_EXISTS, Mailbox};
use utoipa::{IntoParams, ToSchema};

use super::auth::Writer;
use super::body::given;
use super::change::{Change, Told, What};
use super::mailbox_settings::{Encryption, Wanted};
use super::mailboxes::{MailboxView, find};
use super::problem::Problem;
use super::{Path, Query};
use crate::App;

/// Somebody else may change it at the same moment, but hardly again and again.
const TRIES: usize = 5;

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewMailbox {
    #[schema(example = "me@acme.test", min_length = 3, max_length = 320)]
    address: String,
    provider: Where,
    /// Of the mail server.
    #[serde(default, deserialize_with = "given")]
    #[schema(example = "imap.acme.test", nullable = false)]
    host: Option<String>,
    #[serde(default, deserialize_with = "given")]
    #[schema(example = 993, minimum = 1, nullable = false)]
    port: Option<u16>,
    /// Left out: implicit.
    #[serde(default, deserialize_with = "given")]
    #[schema(nullable = false)]
    tls: Option<Encryption>,
    /// Left out: the address.
    #[serde(default, deserialize_with = "given")]
    #[schema(nullable = false)]
    user: Option<String>,
    #[serde(default, deserialize_with = "given")]
    #[schema(nullable = false, format = Password)]
    password: Option<String>,
    /// An access token of OAuth 2.0 in the place of a password.
    #[serde(default, deserialize_with = "given")]
    #[schema(nullable = false, format = Password)]
    token: Option<String>,
    /// Of a mailbox at Gmail or Outlook, as its owner's consent gave it.
    #[serde(default, deserialize_with = "given")]
    #[schema(nullable = false, format = Password)]
    refresh_token: Option<String>,
    /// Our app opens the mailbox by itself: at Gmail its domain has delegated it to
    /// `providers.google.service_account_file`, at Outlook its directory has let `providers.microsoft.client_id` in.
    #[serde(default)]
    app_only: bool,
    /// In which directory at Microsoft the mailbox is, by its id or one of its domains, with `app_only`. Left out: by the
    /// domain of the address.
    #[serde(default, deserialize_with = "given")]
    #[schema(example = "acme.onmicrosoft.com", nullable = false)]
    directory: Option<String>,
    /// Certificates, as PEM, of an authority that is trusted beside those of the system.
    #[serde(default, deserialize_with = "given")]
    #[schema(nullable = false)]
    ca_pem: Option<String>,
    /// Sends the password in the open where `tls` is none and the server is not on this machine.
    #[serde(default)]
    allow_plaintext: bool,
    /// Only these, by name. Left out: all but drafts, spam and trash.
    #[serde(default, deserialize_with = "given")]
    #[schema(nullable = false)]
    folders: Option<Vec<String>>,
    #[serde(default, deserialize_with = "given")]
    #[schema(nullable = false)]
    exclude: Option<Vec<String>>,
    /// How often it is looked at.
    #[serde(default, deserialize_with = "given")]
    #[schema(minimum = 1, maximum = 2_592_000, nullable = false)]
    interval_seconds: Option<u64>,
    /// 0: as much as there is.
    #[serde(default, deserialize_with = "given")]
    #[schema(nullable = false)]
    bytes_per_day: Option<u64>,
    /// How much of what is there already is wanted: `all`, `none`, or the last days, like `30d`. Left out: 30d.
    #[serde(default, deserialize_with = "given")]
    #[schema(example = "30d", nullable = false)]
    backfill: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Where {
    /// At a server that speaks IMAP.
    Imap,
    /// At Google.
    Gmail,
    /// At Microsoft.
    Outlook,
    /// Nowhere else: files are imported into it.
    Files,
}

/// What is left out stays as it is.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MailboxChange {
    #[serde(default, deserialize_with = "given")]
    #[schema(example = "imap.acme.test", nullable = false)]
    host: Option<String>,
    #[serde(default, deserialize_with = "given")]
    #[schema(example = 993, minimum = 1, nullable = false)]
    port: Option<u16>,
    #[serde(default, deserialize_with = "given")]
    #[schema(nullable = false)]
    tls: Option<Encryption>,
    #[serde(default, deserialize_with = "given")]
    #[schema(nullable = false)]
    user: Option<String>,
    #[serde(default, deserialize_with = "given")]
    #[schema(nullable = false, format = Password)]
    password: Option<String>,
    #[serde(default, deserialize_with = "given")]
    #[schema(nullable = false, format = Password)]
    token: Option<String>,
    /// Of a mailbox at Gmail or Outlook, in the place of the one that opens it now.
    #[serde(default, deserialize_with = "given")]
    #[schema(nullable = false, format = Password)]
    refresh_token: Option<String>,
    #[serde(default, deserialize_with = "given")]
    #[schema(nullable = false)]
    ca_pem: Option<String>,
    #[serde(default)]
    allow_plaintext: bool,
    #[serde(default, deserialize_with = "given")]
    #[schema(nullable = false)]
    folders: Option<Vec<String>>,
    #[serde(default, deserialize_with = "given")]
    #[schema(nullable = false)]
    exclude: Option<Vec<String>>,
    #[serde(default, deserialize_with = "given")]
    #[schema(minimum = 1, maximum = 2_592_000, nullable = false)]
    interval_seconds: Option<u64>,
    #[serde(default, deserialize_with = "given")]
    #[schema(nullable = false)]
    bytes_per_day: Option<u64>,
}

macro_rules! wanted {
    ($from:expr) => {
        Wanted {
            host: $from.host.clone(),
            port: $from.port,
            tls: $from.tls,
            user: $from.user.clone(),
            password: $from.password.clone().map(Secret::new),
            token: $from.token.clone().map(Secret::new),
            refresh_token: $from.refresh_token.clone().map(Secret::new),
            app_only: false,
            directory: None,
            ca_pem: $from.ca_pem.clone(),
            allow_plaintext: $from.allow_plaintext,
            folders: $from.folders.clone(),
            exclude: $from.exclude.clone(),
            interval_seconds: $from.interval_seconds,
            bytes_per_day: $from.bytes_per_day,
        }
    };
}

/// Connect a mailbox. It is looked at right away; whether that works, its health says.
#[utoipa::path(post, path = "/v1/mailboxes", operation_id = "create_mailbox", tag = "mailboxes",
    params(super::IdempotencyKey), request_body = NewMailbox, responses(
    (status = 201, description = "It is there", body = MailboxView, headers(("Location" = String)))))]
pub async fn create(State(app): State<App>, change: Change<Writer, NewMailbox>) -> Result<Response, Problem> {
    let new = &change.body;
    let address = domain::address::canonical(&new.address);
    let address = address.ok_or_else(|| Problem::invalid("address", "it is like somebody@somewhere"))?;
    let backfill = backfill(new.backfill.as_deref())?;
    let wanted = Wanted { app_only: new.app_only, directory: new.directory.clone(), ..wanted!(new) };
    let (provider, settings, secret) = match new.provider {
        Where::Files => (Provider::Files, wanted.for_files()?, None),
        Where::Imap => {
            let (settings, secret) = wanted.for_imap(&address)?;
            (Provider::Imap, settings, Some(secret))
        }
        at @ (Where::Gmail | Where::Outlook) => {
            let provider = if at == Where::Gmail { Provider::Gmail } else { Provider::Outlook };
            let (settings, secret) = wanted.for_consent(provider)?;
            if new.app_only && !change.by.is_operator {
                // The app is the operator's, and opens the mailboxes of every organization that trusts it.
                return Err(Problem::forbidden("app_only is for the operator: it opens any mailbox of a domain"));
            }
            (provider, settings, secret)
        }
    };
    let store = &change.by.store;
    let there = store.find_mailbox(&address).await?;
    let taken = |there: &Mailbox| there.state != MailboxState::Disconnected && there.provider != Provider::Files;
    if there.as_ref().is_some_and(|there| provider == Provider::Files || taken(there)) {
        return Err(Problem::conflict(MAILBOX_EXISTS));
    }
    let id = there.as_ref().map_or_else(|| MailboxId::new(store.clock()), |there| there.id);
    let state = if provider == Provider::Files { MailboxState::Active } else { MailboxState::Connecting };
    let mailbox = Mailbox {
        id,
        tenant_id: store.id,
        provider,
        address: address.clone(),
        state,
        state_reason: None,
        state_since: change.now,
        settings: settings.clone(),
        secret_ref: None,
        is_active: true,
        created_at: there.as_ref().map_or(change.now, |there| there.created_at),
        updated_at: change.now,
        version: there.map_or(1, |there| there.version + 1),
    };
    let told = Told::created(format!("/v1/mailboxes/{id}"), &MailboxView::from(mailbox.clone()))?;
    let recording = change.record(&app, what("mailbox.create", None, Some(&mailbox))?, told).await?;
    let is_made = match provider {
        Provider::Files => recording.engine.store.tenant(store.id).add_files_mailbox(id, &address).await?,
        _ => {
            let connect = Connect { provider, address, settings, secret, backfill };
            recording.engine.connect_as(store.id, id, connect).await?
        }
    };
    if !is_made {
        return Err(Problem::conflict(MAILBOX_EXISTS));
    }
    app.engine.tell_workers().await;
    recording.done().await
}

pub fn backfill(text: Option<&str>) -> Result<Backfill, Problem> {
    let days = |text: &str| text.strip_suffix('d').and_then(|days| days.parse::<u32>().ok());
    match text.unwrap_or("30d") {
        "all" => Ok(Backfill::All),
        "none" => Ok(Backfill::None),
        text => match days(text) {
            Some(days) => Ok(Backfill::Last(Duration::from_secs(u64::from(days) * 86_400))),
            None => Err(Problem::invalid("backfill", "it is all, none, or days like 30d")),
        },
    }
}

fn what(action: &'static str, before: Option<&Mailbox>, after: Option<&Mailbox>) -> Result<What, Problem> {
    let either = after.or(before).ok_or_else(Problem::internal)?;
    let view =
        |mailbox: &Mailbox| serde_json::to_value(MailboxView::from(mailbox.clone())).map_err(anyhow::Error::from);
    Ok(What {
        tenant: either.tenant_id,
        action,
        target: either.id.to_string(),
        before: before.map(view).transpose()?,
        after: after.map(view).transpose()?,
    })
}

/// Change how a mailbox is reached, or what is wanted of it.
#[utoipa::path(patch, path = "/v1/mailboxes/{id}", operation_id = "change_mailbox", tag = "mailboxes",
    params(("id" = String, Path), super::IdempotencyKey, super::IfMatch), request_body = MailboxChange, responses(
    (status = 200, description = "As it is now", body = MailboxView, headers(("ETag" = String)))))]
pub async fn change(
    State(app): State<App>,
    Path(id): Path<MailboxId>,
    change: Change<Writer, MailboxChange>,
) -> Result<Response, Problem> {
    let before = find(&change.by.store, id).await?;
    change.expect_version(before.version)?;
    if before.state == MailboxState::Disconnected {
        return Err(Problem::conflict("this mailbox is disconnected; connect it again with POST /v1/mailboxes"));
    }
    let (settings, secret) = wanted!(change.body).over(&before)?;
    let moved = secret.as_ref().and_then(|_| state_with_new_secret(&before));
    let mut after = Mailbox {
        settings: settings.clone(),
        version: before.version + 1 + u64::from(moved.is_some()),
        updated_at: change.now,
        ..before.clone()
    };
    if let Some(state) = moved {
        after = Mailbox { state, state_reason: None, state_since: change.now, ..after };
    }
    let told = Told::json(StatusCode::OK, &MailboxView::from(after.clone()))?.with_etag(after.version);
    let recording = change.record(&app, what("mailbox.change", Some(&before), Some(&after))?, told).await?;
    recording.engine.change_mailbox(&before, settings, secret).await?;
    recording.done().await
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Going {
    /// Its mail goes with it, for good; otherwise it stays.
    #[serde(default)]
    erase: bool,
}

/// Disconnect a mailbox: its provider is never called again, and its secret is forgotten.
#[utoipa::path(delete, path = "/v1/mailboxes/{id}", operation_id = "delete_mailbox", tag = "mailboxes",
    params(("id" = String, Path), Going, super::IdempotencyKey, super::IfMatch), responses(
    (status = 200, description = "As it is now", body = MailboxView)))]
pub async fn delete(
    State(app): State<App>,
    Path(id): Path<MailboxId>,
    Query(going): Query<Going>,
    change: Change<Writer>,
) -> Result<Response, Problem> {
    for _ in 0..TRIES {
        let before = find(&change.by.store, id).await?;
        change.expect_version(before.version)?;
        let after = moved(&before, MailboxState::Disconnected, Some("disconnected by somebody"), &change);
        let told = Told::json(StatusCode::OK, &MailboxView::from(after.clone()))?;
        let erase = if going.erase { Some(EraseMailbox::now(&app.engine, id)?) } else { None };
        let action = if going.erase { "mailbox.erase" } else { "mailbox.disconnect" };
        let recording = change.record(&app, what(action, Some(&before), Some(&after))?, told).await?;
        match recording.engine.disconnect(&before, erase).await {
            Err(e) if is_changed(&e) => {}
            done => {
                done?;
                app.engine.tell_workers().await;
                return recording.done().await;
            }
        }
    }
    Err(StoreError::Precondition(MAILBOX_CHANGED).into())
}

fn moved<T>(before: &Mailbox, to: MailboxState, reason: Option<&str>, change: &Change<Writer, T>) -> Mailbox {
    if before.state == to {
        return before.clone();
    }
    Mailbox {
        state: to,
        state_reason: reason.map(str::to_owned),
        state_since: change.now,
        updated_at: change.now,
        version: before.version + 1,
        ..before.clone()
    }
}

/// Look at a mailbox soon, whenever it was to be.
#[utoipa::path(post, path = "/v1/mailboxes/{id}/sync", operation_id = "sync_mailbox", tag = "mailboxes",
    params(("id" = String, Path), super::IdempotencyKey), responses(
    (status = 202, description = "It will be looked at", body = MailboxView)))]
pub async fn sync(
    State(app): State<App>,
    Path(id): Path<MailboxId>,
    change: Change<Writer>,
) -> Result<Response, Problem> {
    let mailbox = find(&change.by.store, id).await?;
    if mailbox.provider == Provider::Files || !mailbox.is_active || !mailbox.state.is_synced() {
        return Err(Problem::conflict(format!("this mailbox is {} and is not synced", named(&mailbox))));
    }
    let told = Told::json(StatusCode::ACCEPTED, &MailboxView::from(mailbox.clone()))?;
    let recording = change.record(&app, simple("mailbox.sync", &mailbox), told).await?;
    recording.engine.request_sync(&mailbox).await?;
    recording.done().await
}

fn named(mailbox: &Mailbox) -> &'static str {
    match mailbox.provider {
        Provider::Files => "for files",
        _ if !mailbox.is_active => "of somebody whom the directory or its rules leave out",
        _ => mailbox.state.as_str(),
    }
}

fn simple(action: &'static str, mailbox: &Mailbox) -> What {
    let state = |state: MailboxState| Some::<Value>(json!({"state": state.as_str()}));
    let before = state(mailbox.state);
    What { tenant: mailbox.tenant_id, action, target: mailbox.id.to_string(), before, after: None }
}

/// Pause a mailbox: its provider is not called until it is resumed.
#[utoipa::path(post, path = "/v1/mailboxes/{id}/pause", operation_id = "pause_mailbox", tag = "mailboxes",
    params(("id" = String, Path), super::IdempotencyKey), responses(
    (status = 200, description = "As it is now", body = MailboxView)))]
pub async fn pause(
    State(app): State<App>,
    Path(id): Path<MailboxId>,
    change: Change<Writer>,
) -> Result<Response, Problem> {
    for _ in 0..TRIES {
        let before = connected(&change, id).await?;
        let after = moved(&before, MailboxState::Paused, Some("paused by somebody"), &change);
        let told = Told::json(StatusCode::OK, &MailboxView::from(after.clone()))?;
        let recording = change.record(&app, what("mailbox.pause", Some(&before), Some(&after))?, told).await?;
        match recording.engine.pause_mailbox(&before).await {
            Err(e) if is_changed(&e) => {}
            done => return done.map(drop).map_err(Problem::from).map(|()| recording)?.done().await,
        }
    }
    Err(StoreError::Precondition(MAILBOX_CHANGED).into())
}

/// Resume a mailbox: it is looked at again, and what was given up is fetched once more.
#[utoipa::path(post, path = "/v1/mailboxes/{id}/resume", operation_id = "resume_mailbox", tag = "mailboxes",
    params(("id" = String, Path), super::IdempotencyKey), responses(
    (status = 200, description = "As it is now", body = MailboxView)))]
pub async fn resume(
    State(app): State<App>,
    Path(id): Path<MailboxId>,
    change: Change<Writer>,
) -> Result<Response, Problem> {
    for _ in 0..TRIES {
        let before = connected(&change, id).await?;
        let mut after = moved(&before, state_when_resumed(&before), None, &change);
        after.is_active |= app.engine.is_left_behind(&before).await?;
        let told = Told::json(StatusCode::OK, &MailboxView::from(after.clone()))?;
        let recording = change.record(&app, what("mailbox.resume", Some(&before), Some(&after))?, told).await?;
        match recording.engine.resume_mailbox(&before, None).await {
            Err(e) if is_changed(&e) => {}
            done => return done.map(drop).map_err(Problem::from).map(|()| recording)?.done().await,
        }
    }
    Err(StoreError::Precondition(MAILBOX_CHANGED).into())
}

async fn connected(change: &Change<Writer>, id: MailboxId) -> Result<Mailbox, Problem> {
    let mailbox = find(&change.by.store, id).await?;
    match mailbox.state {
        MailboxState::Disconnected => Err(Problem::conflict("this mailbox is disconnected")),
        _ => Ok(mailbox),
    }
}
