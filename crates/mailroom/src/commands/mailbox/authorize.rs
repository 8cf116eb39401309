//! A link under which an administrator lets us into a whole organization.

use connectors::microsoft::is_directory;
use domain::Provider;
use engine::Engine;
use serde_json::json;
use web::Site;

use crate::app;
use crate::config::Config;
use crate::failure::Failure;
use crate::output::Output;

pub(super) async fn outlook(config: &Config, engine: &Engine, directory: &str, out: Output) -> Result<(), Failure> {
    if config.providers.microsoft.settings.client_id.is_none() {
        return Err(Failure::usage("nobody can be let in without an app: set providers.microsoft.client_id"));
    }
    let site = Site::of(Provider::Outlook).filter(|_| is_directory(directory));
    let Some(site) = site else {
        return Err(Failure::usage(format!(
            "--directory wants the id of a directory or one of its domains, not {directory:?}"
        )));
    };
    let state = engine.begin_admin_consent(directory).await?;
    let redirect_uri = format!("{}{}", config.edge.public_url, site.callback);
    let url = app::microsoft(config)?.admin_consent(directory, &redirect_uri, &state);
    if out.json {
        return out.object(&json!({"url": url, "directory": directory}));
    }
    out.line(&format!("An administrator of {directory} opens this, within a week and while `mailroom serve` runs:"))?;
    out.line(&url)
}
