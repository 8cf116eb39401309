//! Settings of the Google client and its rate limits.

use domain::Secret;
use providers::gmail::{GoogleSettings, ServiceAccount};

use super::ConfigError;
use super::provider_client::{client_secret, optional, secret_file, url};
use super::provider_rates::{self, ProviderRates, rates};
use super::reader::{SettingsReader, invalid_setting};

#[derive(Debug, Clone)]
pub struct GoogleConfig {
    pub settings: GoogleSettings,
    /// `None`: the URL that push messages are sent to; see [`super::Config::push_audience`].
    pub push_audience: Option<String>,
    pub push_service_account: Option<String>,
    pub rates: ProviderRates,
    /// 0: no limit.
    pub project_units_per_minute: usize,
}

pub(super) fn google(read: &mut SettingsReader) -> Result<GoogleConfig, ConfigError> {
    const MAX_UNITS: usize = 1_000_000_000;
    let client_id = optional(read, "providers.google.client_id", "the id of an OAuth client")?;
    let client_secret = client_secret(read, "providers.google.client_secret", "providers.google.client_secret_file")?;
    let service_account = service_account(read)?;
    let topic = topic(read)?;
    let push_service_account = push_service_account(read)?;
    let push_audience = push_audience(read)?;
    let user_units = read.count("providers.google.user_units_per_minute", 0..=MAX_UNITS)?;
    let user_units_per_minute = u32::try_from(user_units).ok().filter(|units| *units > 0);
    Ok(GoogleConfig {
        settings: GoogleSettings {
            auth_url: url(read, "providers.google.auth_url")?,
            token_url: url(read, "providers.google.token_url")?,
            api_url: url(read, "providers.google.api_url")?,
            directory_url: url(read, "providers.google.directory_url")?,
            jwks_url: url(read, "providers.google.jwks_url")?,
            client_id,
            client_secret,
            service_account,
            topic,
            user_units_per_minute,
        },
        push_audience,
        push_service_account,
        rates: rates(read, provider_rates::GOOGLE)?,
        project_units_per_minute: read.count("providers.google.project_units_per_minute", 0..=MAX_UNITS)?,
    })
}

impl GoogleConfig {
    /// Describes what is configured. Fails with the first setting that is missing.
    pub fn setup_status(&self) -> Result<String, String> {
        let GoogleSettings { client_id, client_secret, service_account, topic, .. } = &self.settings;
        match (client_id, client_secret) {
            (Some(_), None) => {
                return Err("client_id is set without a secret; set providers.google.client_secret_file".to_owned());
            }
            (None, Some(_)) => {
                return Err("client_secret is set without an id; set providers.google.client_id".to_owned());
            }
            _ => {}
        }
        match (topic, &self.push_service_account) {
            (Some(_), None) => {
                return Err("pubsub_topic is set without a trusted sender; set providers.google.push_service_account to the service account of the subscription".to_owned());
            }
            (None, Some(_)) => {
                return Err("push_service_account is set without a topic; set providers.google.pubsub_topic".to_owned());
            }
            _ => {}
        }
        if topic.is_some() && client_id.is_none() && service_account.is_none() {
            return Err("pubsub_topic is set, but no mailbox can be opened; set providers.google.client_id or providers.google.service_account_file".to_owned());
        }
        let mut parts = Vec::new();
        parts.extend(client_id.as_ref().map(|_| "an OAuth client"));
        parts.extend(service_account.as_ref().map(|_| "a service account"));
        if parts.is_empty() {
            return Ok("not configured; see docs/providers/gmail.md".to_owned());
        }
        parts.push(if topic.is_some() { "push" } else { "no push: mailboxes are synced at intervals" });
        Ok(parts.join(", "))
    }
}

fn service_account(read: &mut SettingsReader) -> Result<Option<Secret<String>>, ConfigError> {
    secret_file(read, "providers.google.service_account_file", "the JSON key file of a service account", |text| {
        ServiceAccount::parse(text).err().map(|why| why.to_string())
    })
}

fn topic(read: &mut SettingsReader) -> Result<Option<String>, ConfigError> {
    const KEY: &str = "providers.google.pubsub_topic";
    const EXPECTED: &str = "a topic such as \"projects/PROJECT/topics/TOPIC\"";
    let Some((topic, origin)) = read.text(KEY, EXPECTED)? else {
        read.show(KEY, "none", &"default");
        return Ok(None);
    };
    let parts: Vec<&str> = topic.split('/').collect();
    if !matches!(parts.as_slice(), ["projects", project, "topics", name] if is_name(project) && is_name(name)) {
        return Err(invalid_setting(KEY, &origin, &format!("must be {EXPECTED}, not {}", topic.escape_debug())));
    }
    read.show(KEY, topic.clone(), &origin);
    Ok(Some(topic))
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic())
}

fn push_service_account(read: &mut SettingsReader) -> Result<Option<String>, ConfigError> {
    const KEY: &str = "providers.google.push_service_account";
    const EXPECTED: &str = "the address of a service account such as \"push@PROJECT.iam.gserviceaccount.com\"";
    match read.text(KEY, EXPECTED)? {
        Some((text, origin)) if !text.contains('@') => {
            Err(invalid_setting(KEY, &origin, &format!("must be {EXPECTED}, not {}", text.escape_debug())))
        }
        _ => optional(read, KEY, EXPECTED),
    }
}

fn push_audience(read: &mut SettingsReader) -> Result<Option<String>, ConfigError> {
    const KEY: &str = "providers.google.push_audience";
    if read.is_given(KEY) {
        return optional(read, KEY, "the audience of a subscription");
    }
    read.show(KEY, "server.public_url followed by /v1/hooks/gmail", &"default");
    Ok(None)
}
