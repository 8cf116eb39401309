//! Our app at Google, as `[providers.google]` configures it: an OAuth client, a service account, a topic for pushes, and
//! how much may be called.

use std::sync::Arc;

use domain::{Connector, ConsentFlow, ProviderDeclaration, PushReader, Secret};
use jwt::Documents;
use outbound::CallBudgets;
use outbound::budget::Budget;

use super::app_settings::GoogleSettings;
use super::declaration::DECLARATION;
use super::push::{GmailPushReader, GmailPushSettings};
use super::service_account::ServiceAccount;
use super::{Gmail, GoogleOAuth};
use crate::app::{AppUse, ProviderApp, ProviderFolder};
use crate::http::{HttpClient, HttpClientError};
use crate::rates::{self, ProviderRates, RateKeys, rate_keys};
use crate::settings_source::{
    AppSettingError, SettingsSource, client_secret, invalid_setting, optional, secret_file, url,
};

pub const FOLDER: ProviderFolder = ProviderFolder {
    declaration: &DECLARATION,
    read_app: |source, public_url| Ok(Arc::new(GoogleApp::read(source, public_url)?)),
};

const RATES: RateKeys = rate_keys!("google");

const OAUTH_CLIENT: &str = "providers.google.client_id and client_secret_file";

#[derive(Debug, Clone)]
pub struct GoogleApp {
    pub settings: GoogleSettings,
    pub push_audience: String,
    pub push_service_account: Option<String>,
    pub rates: ProviderRates,
    /// 0: no limit.
    pub project_units_per_minute: usize,
}

impl GoogleApp {
    /// Reads the settings; `public_url` is where Pub/Sub reaches this server.
    pub fn read(source: &mut dyn SettingsSource, public_url: &str) -> Result<Self, AppSettingError> {
        const MAX_UNITS: usize = 1_000_000_000;
        let client_id = optional(source, "providers.google.client_id", "the id of an OAuth client")?;
        let client_secret =
            client_secret(source, "providers.google.client_secret", "providers.google.client_secret_file")?;
        let service_account = service_account(source)?;
        let topic = topic(source)?;
        let push_service_account = push_service_account(source)?;
        let push_audience = push_audience(source, public_url)?;
        let user_units = source.count("providers.google.user_units_per_minute", 0..=MAX_UNITS)?;
        let user_units_per_minute = u32::try_from(user_units).ok().filter(|units| *units > 0);
        Ok(Self {
            settings: GoogleSettings {
                auth_url: url(source, "providers.google.auth_url")?,
                token_url: url(source, "providers.google.token_url")?,
                api_url: url(source, "providers.google.api_url")?,
                directory_url: url(source, "providers.google.directory_url")?,
                jwks_url: url(source, "providers.google.jwks_url")?,
                client_id,
                client_secret,
                service_account,
                topic,
                user_units_per_minute,
            },
            push_audience,
            push_service_account,
            rates: rates::rates(source, RATES)?,
            project_units_per_minute: source.count("providers.google.project_units_per_minute", 0..=MAX_UNITS)?,
        })
    }

    /// Describes what is configured. Fails with the first setting that is missing.
    pub fn status(&self) -> Result<String, String> {
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

    fn has_client(&self) -> bool {
        self.settings.client_id.is_some() && self.settings.client_secret.is_some()
    }
}

impl ProviderApp for GoogleApp {
    fn declaration(&self) -> &'static ProviderDeclaration {
        &DECLARATION
    }

    fn connector(&self, http: HttpClient) -> Result<Arc<dyn Connector>, HttpClientError> {
        Ok(Arc::new(Gmail::new(http, &self.settings)?))
    }

    fn budgets(&self) -> CallBudgets {
        let project = Some(self.project_units_per_minute).filter(|units| *units > 0);
        self.rates.budgets().with_units(
            project.map(|units| Budget::per_minute(units as f64)),
            self.settings.user_units_per_minute.map(|units| Budget::per_minute(units.into())),
        )
    }

    fn push_reader(&self, documents: Box<dyn Documents>) -> Option<Arc<dyn PushReader>> {
        let settings = GmailPushSettings {
            jwks_url: self.settings.jwks_url.clone(),
            audience: self.push_audience.clone(),
            service_account: self.push_service_account.clone()?,
        };
        Some(Arc::new(GmailPushReader::new(settings, documents)))
    }

    fn consent_flow(&self, http: HttpClient) -> Option<Arc<dyn ConsentFlow>> {
        self.has_client().then(|| Arc::new(GoogleOAuth::new(http, self.settings.clone())) as Arc<dyn ConsentFlow>)
    }

    fn requests_pushes(&self) -> bool {
        self.settings.topic.is_some()
    }

    fn setup_status(&self) -> Option<(&'static str, Result<String, String>)> {
        Some(("google", self.status()))
    }

    fn check_use(&self, intended: AppUse) -> Result<(), String> {
        let has_service_account = self.settings.service_account.is_some();
        match intended {
            AppUse::AppOnly if !has_service_account => {
                Err("--app-only requires a service account; set providers.google.service_account_file".to_owned())
            }
            AppUse::Directory if !has_service_account => {
                Err("a directory at Google requires a service account; set providers.google.service_account_file"
                    .to_owned())
            }
            AppUse::RefreshToken if !self.has_client() => Err(format!(
                "a refresh token can only be used by the OAuth client it was issued to; set {OAUTH_CLIENT}"
            )),
            AppUse::Consent | AppUse::AdminConsent if !self.has_client() => {
                Err(format!("consent requires an OAuth client; set {OAUTH_CLIENT}"))
            }
            _ => Ok(()),
        }
    }
}

fn service_account(source: &mut dyn SettingsSource) -> Result<Option<Secret<String>>, AppSettingError> {
    secret_file(source, "providers.google.service_account_file", "the JSON key file of a service account", |text| {
        ServiceAccount::parse(text).err().map(|why| why.to_string())
    })
}

fn topic(source: &mut dyn SettingsSource) -> Result<Option<String>, AppSettingError> {
    const KEY: &str = "providers.google.pubsub_topic";
    const EXPECTED: &str = "a topic such as \"projects/PROJECT/topics/TOPIC\"";
    let Some((topic, origin)) = source.text(KEY, EXPECTED)? else {
        source.show(KEY, "none".to_owned(), "default");
        return Ok(None);
    };
    let parts: Vec<&str> = topic.split('/').collect();
    if !matches!(parts.as_slice(), ["projects", project, "topics", name] if is_name(project) && is_name(name)) {
        return Err(invalid_setting(KEY, &origin, &format!("must be {EXPECTED}, not {}", topic.escape_debug())));
    }
    source.show(KEY, topic.clone(), &origin);
    Ok(Some(topic))
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic())
}

fn push_service_account(source: &mut dyn SettingsSource) -> Result<Option<String>, AppSettingError> {
    const KEY: &str = "providers.google.push_service_account";
    const EXPECTED: &str = "the address of a service account such as \"push@PROJECT.iam.gserviceaccount.com\"";
    match source.text(KEY, EXPECTED)? {
        Some((text, origin)) if !text.contains('@') => {
            Err(invalid_setting(KEY, &origin, &format!("must be {EXPECTED}, not {}", text.escape_debug())))
        }
        _ => optional(source, KEY, EXPECTED),
    }
}

/// Reads the audience of push tokens; by default it is the URL that they are sent to.
fn push_audience(source: &mut dyn SettingsSource, public_url: &str) -> Result<String, AppSettingError> {
    const KEY: &str = "providers.google.push_audience";
    if source.is_given(KEY) {
        return Ok(optional(source, KEY, "the audience of a subscription")?.unwrap_or_default());
    }
    source.show(KEY, "server.public_url followed by /v1/hooks/gmail".to_owned(), "default");
    Ok(format!("{public_url}/v1/hooks/gmail"))
}
