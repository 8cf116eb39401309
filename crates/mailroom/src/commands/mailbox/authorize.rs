//! `mailroom mailbox authorize`: a link by which an administrator authorises this server for an organisation.

use domain::Provider;
use engine::Engine;
use providers::outlook::is_directory;
use providers::registry::DECLARATIONS;
use serde_json::json;
use terminal::{Failure, Output};

use crate::app;
use crate::config::Config;

pub(super) async fn outlook(config: &Config, engine: &Engine, directory: &str, out: Output) -> Result<(), Failure> {
    if config.providers.microsoft.settings.client_id.is_none() {
        return Err(Failure::usage(
            "authorisation requires an app registered at Microsoft; set providers.microsoft.client_id",
        ));
    }
    let Some(consent) = DECLARATIONS.consent(Provider::Outlook).filter(|_| is_directory(directory)) else {
        return Err(Failure::usage(format!(
            "--directory must be the id of a directory or one of its domains, not {directory:?}"
        )));
    };
    let state = engine.begin_admin_consent(directory).await?;
    let redirect_uri = format!("{}{}", config.edge.public_url, consent.callback_path());
    let flows = app::consents(config)?;
    let flow = flows.get(&Provider::Outlook).and_then(|flow| flow.admin_consent_url(directory, &redirect_uri, &state));
    let Some(url) = flow else { return Err(Failure::usage(consent.not_configured)) };
    if out.json {
        return out.object(&json!({"url": url, "directory": directory}));
    }
    out.line(&format!(
        "Have an administrator of {directory} open this link within a week, while `mailroom serve` is running:"
    ))?;
    out.line(&url)
}
