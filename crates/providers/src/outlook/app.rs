//! Our app at Microsoft, as `[providers.microsoft]` configures it: its secret or certificate, whose accounts it may open,
//! where Graph notifies us, and how much may be called.

use std::sync::Arc;

use domain::{Connector, ConsentFlow, ProviderDeclaration, PushReader};
use jwt::Documents;
use outbound::CallBudgets;
use outbound::budget::Budget;

use super::app_settings::{GraphPush, MicrosoftSettings, is_directory};
use super::certificate::Certificate;
use super::declaration::DECLARATION;
use super::push::GraphPushReader;
use super::{MicrosoftOAuth, Outlook};
use crate::app::{AppUse, ProviderApp, ProviderFolder};
use crate::http::{HttpClient, HttpClientError};
use crate::rates::{self, ProviderRates, RateKeys, rate_keys};
use crate::settings_source::{
    AppSettingError, SettingsSource, client_secret, invalid_setting, optional, secret_file, url,
};

pub const FOLDER: ProviderFolder = ProviderFolder {
    declaration: &DECLARATION,
    read_app: |source, public_url| Ok(Arc::new(MicrosoftApp::read(source, public_url)?)),
};

const RATES: RateKeys = rate_keys!("microsoft");

const APP_CREDENTIALS: &str = "providers.microsoft.client_id, and client_secret_file or certificate_file";

const SECRET: &str = "providers.microsoft.client_secret";
const SECRET_FILE: &str = "providers.microsoft.client_secret_file";
const CERTIFICATE: &str = "providers.microsoft.certificate_file";

const PUSH_NEEDS_HTTPS: &str = "Graph sends notifications to https:// URLs only, and neither server.public_url nor providers.microsoft.notification_url is one; mailboxes are synced at intervals";

#[derive(Debug, Clone)]
pub struct MicrosoftApp {
    pub settings: MicrosoftSettings,
    pub rates: ProviderRates,
    /// 0: no limit.
    pub mailbox_requests_per_10_minutes: usize,
}

impl MicrosoftApp {
    /// Reads the settings; `public_url` is where Graph reaches this server.
    pub fn read(source: &mut dyn SettingsSource, public_url: &str) -> Result<Self, AppSettingError> {
        let client_id = optional(source, "providers.microsoft.client_id", "the id of an app")?;
        let client_secret = client_secret(source, SECRET, SECRET_FILE)?;
        let certificate = secret_file(
            source,
            CERTIFICATE,
            "a certificate and its private key, both in PEM, one after the other",
            |text| Certificate::parse(text).err().map(|why| why.to_string()),
        )?;
        if client_secret.is_some() && certificate.is_some() {
            return Err(AppSettingError(format!("`{SECRET}` and `{CERTIFICATE}` are both given; keep one of them")));
        }
        let settings = MicrosoftSettings {
            authority_url: url(source, "providers.microsoft.authority_url")?,
            authority: authority(source)?,
            graph_url: url(source, "providers.microsoft.graph_url")?,
            client_id,
            client_secret,
            certificate,
            push: None,
        };
        let push = push(source, public_url, &settings)?;
        Ok(Self {
            settings: MicrosoftSettings { push, ..settings },
            rates: rates::rates(source, RATES)?,
            mailbox_requests_per_10_minutes: source
                .count("providers.microsoft.mailbox_requests_per_10_minutes", 0..=1_000_000_000)?,
        })
    }

    /// Describes what is configured. Fails with the first setting that is missing.
    pub fn status(&self) -> Result<String, String> {
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
}

impl ProviderApp for MicrosoftApp {
    fn declaration(&self) -> &'static ProviderDeclaration {
        &DECLARATION
    }

    fn connector(&self, http: HttpClient) -> Result<Arc<dyn Connector>, HttpClientError> {
        Ok(Arc::new(Outlook::new(http, &self.settings)?))
    }

    fn budgets(&self) -> CallBudgets {
        let requests = Some(self.mailbox_requests_per_10_minutes).filter(|requests| *requests > 0);
        self.rates.budgets().with_units(None, requests.map(|requests| Budget::per_ten_minutes(requests as f64)))
    }

    fn push_reader(&self, _documents: Box<dyn Documents>) -> Option<Arc<dyn PushReader>> {
        self.requests_pushes().then(|| Arc::new(GraphPushReader) as Arc<dyn PushReader>)
    }

    fn consent_flow(&self, http: HttpClient) -> Option<Arc<dyn ConsentFlow>> {
        let settings = Some(&self.settings).filter(|settings| settings.has_client())?;
        Some(Arc::new(MicrosoftOAuth::new(http, settings.clone())))
    }

    fn requests_pushes(&self) -> bool {
        self.settings.push.is_some()
    }

    fn missing_push_reason(&self) -> Option<&'static str> {
        (self.settings.has_client() && self.settings.push.is_none()).then_some(PUSH_NEEDS_HTTPS)
    }

    fn setup_status(&self) -> Option<(&'static str, Result<String, String>)> {
        Some(("microsoft", self.status()))
    }

    fn check_use(&self, intended: AppUse) -> Result<(), String> {
        if self.settings.has_client() {
            return Ok(());
        }
        Err(match intended {
            AppUse::AppOnly => format!("--app-only requires an app registered at Microsoft; set {APP_CREDENTIALS}"),
            AppUse::RefreshToken => {
                format!("a refresh token can only be used by the OAuth client it was issued to; set {APP_CREDENTIALS}")
            }
            AppUse::Consent => format!("consent requires an OAuth client; set {APP_CREDENTIALS}"),
            AppUse::AdminConsent => {
                format!("authorisation requires an app registered at Microsoft; set {APP_CREDENTIALS}")
            }
            AppUse::Directory => {
                format!("a directory at Microsoft requires an app registered there; set {APP_CREDENTIALS}")
            }
        })
    }
}

fn authority(source: &mut dyn SettingsSource) -> Result<String, AppSettingError> {
    const KEY: &str = "providers.microsoft.authority";
    const EXPECTED: &str = "common, organizations, consumers, or a directory by its id or one of its domains";
    let Some((text, origin)) = source.text(KEY, EXPECTED)? else {
        return Err(invalid_setting(KEY, "default", &format!("must be {EXPECTED}")));
    };
    let text = text.trim().to_owned();
    if !["common", "organizations", "consumers"].contains(&&*text) && !is_directory(&text) {
        return Err(invalid_setting(KEY, &origin, &format!("must be {EXPECTED}, not {}", text.escape_debug())));
    }
    source.show(KEY, text.clone(), &origin);
    Ok(text)
}

/// Graph sends notifications to https:// URLs only; the simulated one also to http://.
fn push(
    source: &mut dyn SettingsSource,
    public_url: &str,
    settings: &MicrosoftSettings,
) -> Result<Option<GraphPush>, AppSettingError> {
    const KEY: &str = "providers.microsoft.notification_url";
    let notification_url = if source.is_given(KEY) {
        url(source, KEY)?
    } else {
        source.show(KEY, "server.public_url followed by /v1/hooks/graph".to_owned(), "default");
        format!("{public_url}/v1/hooks/graph")
    };
    let is_accepted = notification_url.starts_with("https://") || settings.graph_url.starts_with("http://");
    let lifecycle_url = format!("{notification_url}/lifecycle");
    Ok((settings.has_client() && is_accepted).then_some(GraphPush { notification_url, lifecycle_url }))
}
