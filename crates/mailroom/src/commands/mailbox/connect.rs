//! A link under which somebody connects their mailbox in a browser.

use domain::{MailboxState, Provider};
use engine::Engine;
use engine::consent::Wish;
use serde_json::json;
use web::Site;

use super::add;
use crate::app;
use crate::cli::mailbox::Wish as Args;
use crate::config::Config;
use crate::failure::Failure;
use crate::output::Output;

pub(super) async fn gmail(config: &Config, engine: &Engine, args: Args, out: Output) -> Result<(), Failure> {
    let google = &config.providers.google.settings;
    if google.client_id.is_none() || google.client_secret.is_none() {
        return Err(nobody("providers.google.client_id and client_secret_file"));
    }
    link(config, engine, Provider::Gmail, args, out).await
}

pub(super) async fn outlook(config: &Config, engine: &Engine, args: Args, out: Output) -> Result<(), Failure> {
    if !config.providers.microsoft.settings.has_client() {
        return Err(nobody("providers.microsoft.client_id, and client_secret_file or certificate_file"));
    }
    link(config, engine, Provider::Outlook, args, out).await
}

fn nobody(settings: &str) -> Failure {
    Failure::usage(format!("nobody can be asked for consent without an OAuth client: set {settings}"))
}

async fn link(config: &Config, engine: &Engine, provider: Provider, args: Args, out: Output) -> Result<(), Failure> {
    let Some(site) = Site::of(provider) else {
        return Err(Failure::usage(format!("nobody is asked for consent at {}", provider.as_str())));
    };
    let tenant = app::tenant(&engine.store, &args.tenant).await?;
    let address = match &args.address {
        None => None,
        Some(text) => Some(
            domain::address::canonical(text)
                .ok_or_else(|| Failure::usage(format!("{text:?} is not an address; it wants somebody@somewhere")))?,
        ),
    };
    if let Some(address) = &address
        && let Some(there) = engine.store.tenant(tenant.id).find_mailbox(address).await?
        && ![provider, Provider::Files].contains(&there.provider)
        && there.state != MailboxState::Disconnected
    {
        let how = there.provider.as_str();
        return Err(Failure::problem(format!("{address} is connected by {how} already; remove it there first")));
    }
    let (settings, backfill) = add::wanted(config, &args.wanted)?;
    let actor = format!("command:{}", rustix::process::getuid().as_raw());
    let wish = Wish { tenant: tenant.id, provider, actor, address, settings, backfill };
    let (ticket, expires_at) = engine.consent_ticket(&wish).await?;
    let url = format!("{}{}?ticket={ticket}", config.edge.public_url, site.start);
    if out.json {
        return out.object(&json!({"url": url, "expires_at": expires_at}));
    }
    out.line("Open this in the browser of the mailbox's owner, within ten minutes and while `mailroom serve` runs:")?;
    out.line(&url)
}
