//! `mailroom mailbox authorize`: a link by which an administrator authorises this server for an organisation.

use domain::{DirectoryLocation, Provider};
use engine::Engine;
use providers::app::AppUse;
use providers::registry::DECLARATIONS;
use serde_json::json;
use terminal::{Failure, Output};

use crate::app;
use crate::config::Config;

pub(super) async fn run(
    config: &Config,
    engine: &Engine,
    provider: Provider,
    directory: &str,
    out: Output,
) -> Result<(), Failure> {
    app::check_app_use(config, provider, AppUse::AdminConsent)?;
    let Some(consent) = DECLARATIONS.consent(provider) else {
        return Err(Failure::usage(format!("{} has no directories to authorise", provider.as_str())));
    };
    if let Some(declared) = DECLARATIONS.directory(provider) {
        let location = DirectoryLocation { directory: Some(directory.to_owned()), administrator: None };
        (declared.check)(location).map_err(|wrong| Failure::usage(format!("--directory {}", wrong.why)))?;
    }
    let state = engine.begin_admin_consent(directory).await?;
    let redirect_uri = format!("{}{}", config.edge.public_url, consent.callback_path());
    let flows = app::consents(config)?;
    let flow = flows.get(&provider).and_then(|flow| flow.admin_consent_url(directory, &redirect_uri, &state));
    let Some(url) = flow else { return Err(Failure::usage(consent.not_configured)) };
    if out.json {
        return out.object(&json!({"url": url, "directory": directory}));
    }
    out.line(&format!(
        "Have an administrator of {directory} open this link within a week, while `mailroom serve` is running:"
    ))?;
    out.line(&url)
}
