//! `mailroom mailbox connect`: a link by which a person connects their mailbox in a browser.

use domain::{MailboxState, Provider};
use engine::Engine;
use engine::credentials::consent::ConsentRequest;
use providers::app::AppUse;
use providers::registry::DECLARATIONS;
use serde_json::json;
use terminal::{Failure, Output};

use super::add;
use crate::app;
use crate::cli::mailbox::ConsentLinkArgs;
use crate::config::Config;

pub(super) async fn run(
    config: &Config,
    engine: &Engine,
    provider: Provider,
    args: ConsentLinkArgs,
    out: Output,
) -> Result<(), Failure> {
    app::check_app_use(config, provider, AppUse::Consent)?;
    let Some(consent) = DECLARATIONS.consent(provider) else {
        return Err(Failure::usage(format!("{} mailboxes are not connected by consent", provider.as_str())));
    };
    let tenant = app::find_tenant(&engine.store, &args.tenant).await?;
    let address = match &args.address {
        None => None,
        Some(text) => Some(domain::address::canonical(text).ok_or_else(|| {
            Failure::usage(format!("--address must be an email address, such as me@acme.test, not {text:?}"))
        })?),
    };
    if let Some(address) = &address
        && let Some(existing) = engine.store.tenant(tenant.id).find_mailbox(address).await?
        && ![provider, Provider::Files].contains(&existing.provider)
        && existing.state != MailboxState::Disconnected
    {
        let how = existing.provider.as_str();
        return Err(Failure::problem(format!("{address} is already connected by {how}; remove it first")));
    }
    let (settings, backfill) = add::sync_settings(config, &tenant.settings, &args.sync)?;
    let request = ConsentRequest { tenant: tenant.id, provider, actor: app::actor(), address, settings, backfill };
    let (ticket, expires_at) = engine.create_consent_ticket(&request).await?;
    let url = format!("{}{}?ticket={ticket}", config.edge.public_url, consent.start_path());
    if out.json {
        return out.object(&json!({"url": url, "expires_at": expires_at}));
    }
    out.line(
        "Open this link in the browser of the mailbox's owner within ten minutes, while `mailroom serve` is running:",
    )?;
    out.line(&url)
}
