//! Where it ends: a person comes back from the provider, with a code or without.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use domain::{ConnectorError, Consent, Consented, MailboxId, MailboxState, Provider, Secret};
use engine::audit::Entry;
use engine::consent::{Returned, Strange, Wish};
use engine::grants::HeldGrant;
use engine::mailboxes::{Connect, is_changed};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use store::record::Record;
use store::sql::mailboxes::{MAILBOX_CHANGED, Mailbox};
use tracing::Instrument as _;
use utoipa::IntoParams;

use super::page::{self, Stop};
use super::site::{GOOGLE, MICROSOFT, Site};
use super::{cookie, keep, must_be_welcome, was_made_up};
use crate::App;
use crate::api::Query;
use crate::api::caller::admit;
use crate::edge::{ClientAddress, RequestId};

/// Whoever else holds an account's consent is through with it in less, as a rule.
const PATIENCE: Duration = Duration::from_secs(5);

/// Somebody else may change it at the same moment, but hardly again and again.
const TRIES: usize = 5;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Back {
    /// As it was sent to the provider.
    state: Option<String>,
    /// What the person's consent is exchanged for.
    code: Option<String>,
    /// Why there is none.
    error: Option<String>,
    /// `True` when it was the administrator of a directory at Microsoft, who has let this Mailroom in.
    admin_consent: Option<String>,
}

/// Where Google sends a person back to. It connects the mailbox, or says in a page why not. No key is needed.
#[utoipa::path(get, path = "/v1/oauth/google/callback", operation_id = "end_google_consent", tag = "mailboxes",
    params(Back), security(()), responses(
    (status = 200, description = "The mailbox is connected: a page for people", content_type = "text/html", body = String),
    (status = 400, description = "It is not what was sent, or too old", content_type = "text/html", body = String),
    (status = 403, description = "Something was not allowed, or this is another browser", content_type = "text/html", body = String),
    (status = 409, description = "It is another mailbox than was wanted", content_type = "text/html", body = String)))]
pub async fn end_google(State(app): State<App>, Query(back): Query<Back>, parts: Parts) -> Response {
    end(&app, &GOOGLE, back, &parts).await
}

/// Where Microsoft sends a person back to. It connects the mailbox, or says in a page why not. No key is needed. The
/// administrator of a directory, who lets this Mailroom in, comes back here as well.
#[utoipa::path(get, path = "/v1/oauth/microsoft/callback", operation_id = "end_microsoft_consent", tag = "mailboxes",
    params(Back), security(()), responses(
    (status = 200, description = "The mailbox is connected: a page for people", content_type = "text/html", body = String),
    (status = 400, description = "It is not what was sent, or too old", content_type = "text/html", body = String),
    (status = 403, description = "Something was not allowed, or this is another browser", content_type = "text/html", body = String),
    (status = 409, description = "It is another mailbox than was wanted", content_type = "text/html", body = String)))]
pub async fn end_microsoft(State(app): State<App>, Query(back): Query<Back>, parts: Parts) -> Response {
    end(&app, &MICROSOFT, back, &parts).await
}

async fn end(app: &App, site: &'static Site, back: Back, parts: &Parts) -> Response {
    let mut used = None;
    let mut response = match go_on(app, site, parts, back, &mut used).await {
        Ok(response) => response,
        Err(stop) => {
            tracing::info!(status = stop.status.as_u16(), "a consent came to nothing: {}", stop.title);
            stop.answer(&parts.headers)
        }
    };
    if let Some(cookie) = used {
        keep(&mut response, app, &cookie, "");
    }
    response
}

async fn go_on(
    app: &App,
    site: &'static Site,
    parts: &Parts,
    back: Back,
    used: &mut Option<String>,
) -> Result<Response, Stop> {
    let state = back.state.as_deref().unwrap_or_default();
    must_be_welcome(parts, app, state)?;
    if site.provider == Provider::Outlook
        && let Some(directory) = app.engine.end_admin_consent(state).await?
    {
        return admitted(parts, &back, &directory);
    }
    let returned = open(app, site, parts, state).await?;
    *used = Some(returned.cookie.clone());
    let wish = &returned.wish;
    let tenant = app.engine.store.system().find_tenant(&wish.tenant.to_string()).await?;
    let Some(tenant) = tenant.filter(|tenant| tenant.is_active) else {
        return Err(forbidden("Nothing was connected", "The account that this was for is not active any more."));
    };
    admit(parts, app, tenant.id, tenant.plan_tier).await?;
    let code = code(site, back)?;
    let provider = app.consents.get(&site.provider);
    let provider = provider.ok_or_else(|| Stop::new(StatusCode::CONFLICT, "That did not work", site.not_set_up))?;
    let exchange = Exchange { app: app.clone(), site, provider: provider.clone(), parts: parts.clone(), returned };
    // A task of its own: whoever closes the page or loads it again must not lose what the provider has just given.
    let task = tokio::spawn(async move { exchange.run(&code).await }.in_current_span());
    let mailbox = task.await.map_err(|_| anyhow::anyhow!("the exchange of a code broke off"))??;
    Ok(tell(parts, &mailbox, &tenant.name))
}

/// A code becomes a mailbox.
struct Exchange {
    app: App,
    site: &'static Site,
    provider: Arc<dyn Consent>,
    parts: Parts,
    returned: Returned,
}

impl Exchange {
    async fn run(&self, code: &Secret<String>) -> Result<Mailbox, Stop> {
        // Before the exchange, so that what it gives is not taken back together with what was given before.
        let grant = match &self.returned.wish.address {
            Some(address) => self.hold(address).await?,
            None => None,
        };
        let mailbox = self.consented(code).await;
        if let Some(grant) = grant {
            grant.release().await;
        }
        mailbox
    }

    async fn consented(&self, code: &Secret<String>) -> Result<Mailbox, Stop> {
        let Self { app, site, provider, parts, returned } = self;
        let exchanged = provider.exchange(code, &returned.verifier, &returned.redirect_uri).await;
        let consented = exchanged.map_err(|e| refused(site, &e))?;
        let grant = match whose(&consented).filter(|_| returned.wish.address.is_none()) {
            Some(address) => match self.hold(&address).await {
                Ok(grant) => grant,
                Err(stop) => {
                    give_back_later(app.clone(), provider.clone(), consented, address);
                    return Err(stop);
                }
            },
            None => None,
        };
        let outcome = match connect(app, site, parts, returned, &consented).await {
            Err(stop) => Err(give_back(app, provider.as_ref(), &consented, stop).await),
            connected => connected,
        };
        if let Some(grant) = grant {
            grant.release().await;
        }
        outcome
    }

    /// Nobody takes this account's consent back meanwhile. `None`: nobody but its owner can.
    async fn hold(&self, address: &str) -> Result<Option<HeldGrant>, Stop> {
        if self.provider.taken_back_at().is_some() {
            return Ok(None);
        }
        let held = self.app.engine.wait_for_grant(self.site.provider, address, PATIENCE).await?;
        held.map(Some).ok_or_else(|| {
            let text = "Somebody else connects or removes this account at this very moment. Begin again in a while.";
            Stop::new(StatusCode::CONFLICT, "Please begin again", text)
        })
    }
}

fn whose(consented: &Consented) -> Option<String> {
    consented.address.as_deref().and_then(domain::address::canonical)
}

fn code(site: &Site, back: Back) -> Result<Secret<String>, Stop> {
    match (back.error.as_deref(), back.code) {
        (Some("access_denied"), _) => {
            Err(forbidden("Nothing was connected", "You did not allow it, so nothing has changed."))
        }
        (Some(_), _) => {
            let name = site.name;
            let text =
                format!("{name} did not let you in, and nothing has changed. Its page said why; then begin again.");
            Err(Stop::new(StatusCode::BAD_REQUEST, "The provider said no", text))
        }
        (None, None) => Err(again("There is no code in this address.")),
        (None, Some(code)) => Ok(Secret::new(code)),
    }
}

/// An administrator was asked, and nothing here changes by what they said: it is told, that is all.
fn admitted(parts: &Parts, back: &Back, directory: &str) -> Result<Response, Stop> {
    let has_agreed = back.admin_consent.as_deref().is_some_and(|said| said.eq_ignore_ascii_case("true"));
    if back.error.is_some() || !has_agreed {
        let text = format!("{directory} has not let Mailroom in: nobody said yes there who may. Nothing has changed.");
        return Err(forbidden("Mailroom was not let in", text));
    }
    let text =
        format!("{directory} has let Mailroom in. Whoever runs it can add mailboxes now. You can close this page.");
    let json = json!({"directory": directory, "admin_consent": true});
    Ok(page::done(&parts.headers, "Mailroom was let in", &text, json))
}

async fn open(app: &App, site: &Site, parts: &Parts, state: &str) -> Result<Returned, Stop> {
    match app.engine.end_consent(state, |name| cookie(&parts.headers, name)).await? {
        // What was sent to one provider does not come back from another.
        Ok(returned) if returned.wish.provider == site.provider => Ok(returned),
        Ok(_) | Err(Strange::NotOurs) => {
            was_made_up(parts, app, state);
            Err(again("This address was altered, or its ten minutes have passed."))
        }
        Err(Strange::OtherBrowser) => {
            let text =
                "This was begun in another browser. Open the link once more in this one, or go back to the other.";
            Err(forbidden("Another browser", text))
        }
    }
}

fn again(why: &str) -> Stop {
    Stop::new(StatusCode::BAD_REQUEST, "Please begin again", format!("{why} Nothing has changed; begin again."))
}

fn forbidden(title: &'static str, text: impl Into<String>) -> Stop {
    Stop::new(StatusCode::FORBIDDEN, title, text)
}

fn refused(site: &Site, e: &ConnectorError) -> Stop {
    let name = site.name;
    match e {
        ConnectorError::Unauthorized(_) => {
            again(&format!("{name} does not take this code: it was used before, or is too old."))
        }
        ConnectorError::Operator(_) => {
            tracing::warn!(provider = site.provider.as_str(), "nobody can be let in: {e}");
            let text =
                format!("{name} does not know this Mailroom. Tell whoever runs it; `mailroom doctor` says more.");
            Stop::new(StatusCode::BAD_GATEWAY, "That did not work", text)
        }
        e => {
            tracing::warn!(provider = site.provider.as_str(), "a code could not be exchanged: {e}");
            let text = format!("{name} does not answer as it should. Nothing has changed; begin again in a while.");
            Stop::new(StatusCode::BAD_GATEWAY, "That did not work", text)
        }
    }
}

/// What is of no use to us is not kept by the provider either; unless somebody's mailbox lives by it. Where only its owner
/// can take it back, they are told so.
async fn give_back(app: &App, provider: &dyn Consent, consented: &Consented, mut stop: Stop) -> Stop {
    let is_given_back = give_back_unused(app, provider, consented).await;
    if let Some(place) = provider.taken_back_at().filter(|_| is_given_back) {
        stop.text = format!("{} What you allowed can be taken back at {place}.", stop.text);
    }
    stop
}

/// `false`: somebody's mailbox lives by it.
async fn give_back_unused(app: &App, provider: &dyn Consent, consented: &Consented) -> bool {
    let is_used = match &whose(consented) {
        Some(address) => app.engine.store.system().is_connected(provider.provider(), address).await.unwrap_or(true),
        None => false,
    };
    if is_used {
        return false;
    }
    if let Err(e) = provider.revoke(consented.secret.as_ref().unwrap_or(&consented.token)).await {
        let provider = provider.provider().as_str();
        tracing::info!(provider, "a consent that came to nothing was not taken back: {e}");
    }
    true
}

/// Whoever holds the account's consent may be about to connect it: what is of no use is given back once they are through.
fn give_back_later(app: App, provider: Arc<dyn Consent>, consented: Consented, address: String) {
    tokio::spawn(async move {
        match app.engine.wait_for_grant(provider.provider(), &address, engine::grants::HELD_FOR * 2).await {
            Ok(Some(grant)) => {
                give_back_unused(&app, provider.as_ref(), &consented).await;
                grant.release().await;
            }
            _ => {
                let provider = provider.provider().as_str();
                tracing::info!(provider, "a consent that came to nothing was not taken back: others hold it");
            }
        }
    });
}

async fn connect(
    app: &App,
    site: &Site,
    parts: &Parts,
    back: &Returned,
    consented: &Consented,
) -> Result<Mailbox, Stop> {
    let wish = &back.wish;
    if !consented.missing.is_empty() {
        let text = format!(
            "Mailroom cannot work without what you left out. Begin again and tick the box that lets it {}.",
            consented.missing.join(", and ").trim_start_matches("to ")
        );
        return Err(forbidden("A box was not ticked", text));
    }
    let address = whose(consented);
    let address = address.ok_or_else(|| again(&format!("{} did not say whose mailbox it is.", site.name)))?;
    if wish.address.as_ref().is_some_and(|wanted| *wanted != address) {
        let text = "You chose another account than the one that was asked for. Begin again and choose that one.";
        return Err(Stop::new(StatusCode::CONFLICT, "Another account", text));
    }
    let store = app.engine.store.tenant(wish.tenant);
    for _ in 0..TRIES {
        let there = store.find_mailbox(&address).await?;
        let made = match &there {
            Some(there) if !is_free(there) => reconnect(app, parts, wish, there, consented).await,
            there => connect_new(app, parts, wish, there.as_ref(), &address, consented).await,
        };
        match made {
            Ok(true) => {
                app.engine.tell_workers().await;
                let mailbox = store.find_mailbox(&address).await?;
                return mailbox.ok_or_else(|| again("The mailbox was removed meanwhile."));
            }
            Ok(false) => {}
            Err(Trouble::Engine(e)) if is_changed(&e) => {}
            Err(Trouble::Engine(e)) => return Err(e.into()),
            Err(Trouble::Stop(stop)) => return Err(stop),
        }
    }
    Err(store::StoreError::Precondition(MAILBOX_CHANGED).into())
}

/// Nobody has it, or only files are imported into it.
fn is_free(there: &Mailbox) -> bool {
    there.state == MailboxState::Disconnected || there.provider == Provider::Files
}

enum Trouble {
    Stop(Stop),
    Engine(anyhow::Error),
}

impl From<anyhow::Error> for Trouble {
    fn from(e: anyhow::Error) -> Self {
        Self::Engine(e)
    }
}

impl From<store::StoreError> for Trouble {
    fn from(e: store::StoreError) -> Self {
        Self::Engine(e.into())
    }
}

/// `false`: somebody was faster.
async fn connect_new(
    app: &App,
    parts: &Parts,
    wish: &Wish,
    there: Option<&Mailbox>,
    address: &str,
    consented: &Consented,
) -> Result<bool, Trouble> {
    let Some(secret) = consented.secret.clone() else { return Err(Trouble::Stop(no_secret(wish))) };
    let id = there.map_or_else(|| MailboxId::new(app.engine.store.clock()), |there| there.id);
    let mut settings = wish.settings.clone();
    settings.insert("connection".to_owned(), json!({}));
    let connect = Connect {
        provider: wish.provider,
        address: address.to_owned(),
        settings: Value::Object(settings),
        secret: Some(secret),
        backfill: wish.backfill,
    };
    let record = record(app, parts, wish, id, there, &connect.settings).await?;
    Ok(app.engine.recording(record).connect_as(wish.tenant, id, connect).await?)
}

/// The same mailbox with another secret: its mail and what is wanted of it stay.
async fn reconnect(
    app: &App,
    parts: &Parts,
    wish: &Wish,
    there: &Mailbox,
    consented: &Consented,
) -> Result<bool, Trouble> {
    if there.provider != wish.provider {
        let text = "This mailbox is connected in another way already. Remove it there first.";
        return Err(Trouble::Stop(Stop::new(StatusCode::CONFLICT, "Connected already", text)));
    }
    let mut settings = there.settings.as_object().cloned().unwrap_or_default();
    settings.extend(wish.settings.clone());
    settings.insert("connection".to_owned(), json!({}));
    let settings = Value::Object(settings);
    let record = record(app, parts, wish, there.id, Some(there), &settings).await?;
    let engine = app.engine.recording(record);
    match (&consented.secret, &there.secret_ref) {
        (Some(secret), _) => engine.change_mailbox(there, settings, Some(secret.clone())).await?,
        // What was given before still opens it.
        (None, Some(_)) => drop(engine.resume_mailbox(there, None).await?),
        (None, None) => return Err(Trouble::Stop(no_secret(wish))),
    }
    Ok(true)
}

fn no_secret(wish: &Wish) -> Stop {
    let text = Site::of(wish.provider).map_or("It gave nothing that lasts; begin again.", |site| site.gave_nothing);
    Stop::new(StatusCode::CONFLICT, "Please begin again", text)
}

async fn record(
    app: &App,
    parts: &Parts,
    wish: &Wish,
    id: MailboxId,
    before: Option<&Mailbox>,
    settings: &Value,
) -> Result<Record, Trouble> {
    let now = app.engine.store.system().now().await?;
    let at = Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now);
    let entry = Entry {
        at,
        actor: wish.actor.clone(),
        action: if before.is_some() { "mailbox.reconnect" } else { "mailbox.connect" },
        target: id.to_string(),
        address: parts.extensions.get::<ClientAddress>().map(|address| address.0.to_string()),
        request_id: parts.extensions.get::<RequestId>().map(ToString::to_string),
        before: before.map(|before| json!({"state": before.state.as_str(), "settings": before.settings})),
        after: Some(json!({"provider": wish.provider.as_str(), "settings": settings})),
    };
    Ok(Record { tenant: wish.tenant, at, entry: Some(entry.text()), answer: None })
}

fn tell(parts: &Parts, mailbox: &Mailbox, tenant: &str) -> Response {
    let json = json!({"mailbox_id": mailbox.id, "address": mailbox.address, "state": mailbox.state.as_str()});
    let more = if mailbox.state == MailboxState::Paused {
        "It is paused, and goes on once somebody resumes it."
    } else {
        "Its mail is being fetched."
    };
    let text = format!("{} is connected for {tenant}. {more} You can close this page.", mailbox.address);
    page::done(&parts.headers, "The mailbox is connected", &text, json)
}
