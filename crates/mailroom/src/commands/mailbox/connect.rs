//! A link under which somebody connects their mailbox in a browser.

use domain::{MailboxState, Provider};
use engine::Engine;
use engine::consent::Wish;
use serde_json::json;

use super::add;
use crate::app;
use crate::cli::mailbox::ConnectGmail;
use crate::config::Config;
use crate::failure::Failure;
use crate::output::Output;

pub(super) async fn gmail(config: &Config, engine: &Engine, args: ConnectGmail, out: Output) -> Result<(), Failure> {
    let google = &config.providers.google.settings;
    if google.client_id.is_none() || google.client_secret.is_none() {
        let needs = "nobody can be asked for consent without an OAuth client";
        return Err(Failure::usage(format!("{needs}: set providers.google.client_id and client_secret_file")));
    }
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
        && ![Provider::Gmail, Provider::Files].contains(&there.provider)
        && there.state != MailboxState::Disconnected
    {
        let how = there.provider.as_str();
        return Err(Failure::problem(format!("{address} is connected by {how} already; remove it there first")));
    }
    let (settings, backfill) = add::wanted(config, &args.wanted)?;
    let actor = format!("command:{}", rustix::process::getuid().as_raw());
    let wish = Wish { tenant: tenant.id, provider: Provider::Gmail, actor, address, settings, backfill };
    let (ticket, expires_at) = engine.consent_ticket(&wish).await?;
    let url = format!("{}/v1/oauth/google/start?ticket={ticket}", config.edge.public_url);
    if out.json {
        return out.object(&json!({"url": url, "expires_at": expires_at}));
    }
    out.line("Open this in the browser of the mailbox's owner, within ten minutes and while `mailroom serve` runs:")?;
    out.line(&url)
}
