//! Settings of the Microsoft app and its rate limits.

use providers::outlook::{Certificate, GraphPush, MicrosoftSettings, is_directory};

use super::ConfigError;
use super::provider_client::{client_secret, optional, secret_file, url};
use super::provider_rates::{self, ProviderRates, rates};
use super::reader::{SettingsReader, invalid_setting};

#[derive(Debug, Clone)]
pub struct MicrosoftConfig {
    pub settings: MicrosoftSettings,
    pub rates: ProviderRates,
    /// 0: no limit.
    pub mailbox_requests_per_10_minutes: usize,
}

const SECRET: &str = "providers.microsoft.client_secret";
const SECRET_FILE: &str = "providers.microsoft.client_secret_file";
const CERTIFICATE: &str = "providers.microsoft.certificate_file";

const PUSH_NEEDS_HTTPS: &str = "Graph sends notifications to https:// URLs only, and neither server.public_url nor providers.microsoft.notification_url is one; mailboxes are synced at intervals";

/// Reads the settings; `public_url` is where Graph reaches this server.
pub(super) fn microsoft(read: &mut SettingsReader, public_url: &str) -> Result<MicrosoftConfig, ConfigError> {
    let client_id = optional(read, "providers.microsoft.client_id", "the id of an app")?;
    let client_secret = client_secret(read, SECRET, SECRET_FILE)?;
    let certificate = secret_file(
        read,
        CERTIFICATE,
        "a certificate and its private key, both in PEM, one after the other",
        |text| Certificate::parse(text).err().map(|why| why.to_string()),
    )?;
    if client_secret.is_some() && certificate.is_some() {
        return Err(ConfigError::new(format!("`{SECRET}` and `{CERTIFICATE}` are both given; keep one of them")));
    }
    let settings = MicrosoftSettings {
        authority_url: url(read, "providers.microsoft.authority_url")?,
        authority: authority(read)?,
        graph_url: url(read, "providers.microsoft.graph_url")?,
        client_id,
        client_secret,
        certificate,
        push: None,
    };
    let push = push(read, public_url, &settings)?;
    Ok(MicrosoftConfig {
        settings: MicrosoftSettings { push, ..settings },
        rates: rates(read, provider_rates::MICROSOFT)?,
        mailbox_requests_per_10_minutes: read
            .count("providers.microsoft.mailbox_requests_per_10_minutes", 0..=1_000_000_000)?,
    })
}

impl MicrosoftConfig {
    /// Describes what is configured. Fails with the first setting that is missing.
    pub fn setup_status(&self) -> Result<String, String> {
        let MicrosoftSettings { client_id, client_secret, certificate, push, .. } = &self.settings;
        let by = match (client_id, client_secret, certificate) {
            (None, None, None) => return Ok("not configured; see docs/providers/outlook.md".to_owned()),
            (None, ..) => {
                return Err(
                    "a secret or certificate is set without an id; set providers.microsoft.client_id".to_owned()
                );
            }
            (Some(_), None, None) => {
                return Err("client_id is set without a secret or certificate; set providers.microsoft.client_secret_file or providers.microsoft.certificate_file".to_owned());
            }
            (Some(_), Some(_), _) => "an app with a secret",
            (Some(_), None, Some(_)) => "an app with a certificate",
        };
        match push {
            Some(_) => Ok(format!("{by}, push")),
            None => Ok(format!("{by}, no push: {PUSH_NEEDS_HTTPS}")),
        }
    }

    /// Returns why there is no push although an app is configured.
    pub fn missing_push_reason(&self) -> Option<&'static str> {
        (self.settings.has_client() && self.settings.push.is_none()).then_some(PUSH_NEEDS_HTTPS)
    }
}

fn authority(read: &mut SettingsReader) -> Result<String, ConfigError> {
    const KEY: &str = "providers.microsoft.authority";
    const EXPECTED: &str = "common, organizations, consumers, or a directory by its id or one of its domains";
    let Some((text, origin)) = read.text(KEY, EXPECTED)? else {
        return Err(invalid_setting(KEY, "default", &format!("must be {EXPECTED}")));
    };
    let text = text.trim().to_owned();
    if !["common", "organizations", "consumers"].contains(&&*text) && !is_directory(&text) {
        return Err(invalid_setting(KEY, &origin, &format!("must be {EXPECTED}, not {}", text.escape_debug())));
    }
    read.show(KEY, text.clone(), &origin);
    Ok(text)
}

/// Graph sends notifications to https:// URLs only; the simulated one also to http://.
fn push(
    read: &mut SettingsReader,
    public_url: &str,
    settings: &MicrosoftSettings,
) -> Result<Option<GraphPush>, ConfigError> {
    const KEY: &str = "providers.microsoft.notification_url";
    let notification_url = if read.is_given(KEY) {
        url(read, KEY)?
    } else {
        read.show(KEY, "server.public_url followed by /v1/hooks/graph", &"default");
        format!("{public_url}/v1/hooks/graph")
    };
    let is_accepted = notification_url.starts_with("https://") || settings.graph_url.starts_with("http://");
    let lifecycle_url = format!("{notification_url}/lifecycle");
    Ok((settings.has_client() && is_accepted).then_some(GraphPush { notification_url, lifecycle_url }))
}
