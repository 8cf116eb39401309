//! Microsoft's OAuth 2.0: access tokens by refresh token or by client credentials. People consent in
//! [`consent`](super::consent).

use std::sync::Arc;

use domain::connector::{ConnectorAccount, TokenGrant};
use domain::{Clock, ConnectorError, SystemClock};
use serde_json::Value;

use super::app_settings::{MicrosoftSettings, is_directory};
use super::certificate::{Certificate, InvalidCertificate};
use super::token_errors::{MicrosoftGrantType, connector_error};
use crate::http::{HttpClient, unavailable};
use crate::oauth::{TokenResponse, app_rejected, is_app_only, request_token, unauthorized};

const CLIENT_ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// Cheap to clone.
#[derive(Debug, Clone)]
pub struct MicrosoftOAuth {
    http: HttpClient,
    pub(super) settings: Arc<MicrosoftSettings>,
    certificate: Option<Result<Arc<Certificate>, InvalidCertificate>>,
}

impl MicrosoftOAuth {
    pub fn new(http: HttpClient, settings: MicrosoftSettings) -> Self {
        let certificate = settings.certificate.as_ref().map(|text| Certificate::parse(text).map(Arc::new));
        Self { http, settings: Arc::new(settings), certificate }
    }

    /// Requests an access token: by the account's refresh token, or by client credentials if the settings say `app_only`.
    pub async fn obtain_token(&self, account: &ConnectorAccount) -> Result<TokenGrant, ConnectorError> {
        let token = if is_app_only(&account.settings) {
            let directory = directory(account).ok_or_else(|| {
                unauthorized("the mailbox's directory is unknown; name it with --directory, by its id or a domain")
            })?;
            let scope = format!("{}/.default", self.settings.resource());
            let fields = [("grant_type", "client_credentials"), ("scope", &scope)];
            self.request(&directory, &fields, MicrosoftGrantType::ClientCredentials).await?
        } else {
            let Some(refresh) = &account.secret else {
                return Err(unauthorized("the mailbox has no refresh token; connect it again"));
            };
            let fields = [("grant_type", "refresh_token"), ("refresh_token", refresh.expose())];
            self.request(&self.settings.authority, &fields, MicrosoftGrantType::RefreshToken).await?
        };
        Ok(token.into_grant(account))
    }

    /// Requests a token, authenticated by our certificate or secret.
    pub(super) async fn request(
        &self,
        directory: &str,
        fields: &[(&str, &str)],
        grant_type: MicrosoftGrantType,
    ) -> Result<TokenResponse, ConnectorError> {
        let url = self.settings.token_url(directory);
        let Some(client_id) = &self.settings.client_id else {
            return Err(app_rejected("providers.microsoft.client_id is not set"));
        };
        let assertion;
        let mut form = vec![("client_id", client_id.as_str())];
        match (&self.certificate, &self.settings.client_secret) {
            (Some(Ok(certificate)), _) => {
                let made = certificate.assertion(client_id, &url, SystemClock.now());
                assertion = made.ok_or_else(|| unavailable("the assertion cannot be signed"))?;
                form.extend([
                    ("client_assertion_type", CLIENT_ASSERTION_TYPE),
                    ("client_assertion", assertion.expose()),
                ]);
            }
            (Some(Err(why)), _) => return Err(app_rejected(&format!("providers.microsoft.certificate_file {why}"))),
            (None, Some(secret)) => form.push(("client_secret", secret.expose())),
            (None, None) => {
                return Err(app_rejected("providers.microsoft.client_secret_file or certificate_file is not set"));
            }
        }
        form.extend_from_slice(fields);
        request_token(&self.http, &url, &form)
            .await?
            .map_err(|response| connector_error(&response, grant_type, directory))
    }
}

/// Returns the directory for client credentials: the one in the mailbox's settings, else the domain of its address.
fn directory(account: &ConnectorAccount) -> Option<String> {
    let settings: Value = serde_json::from_str(&account.settings).unwrap_or_default();
    let named = settings["directory"].as_str();
    let domain = account.address.rsplit_once('@').map(|(_, domain)| domain);
    named.or(domain).filter(|name| is_directory(name)).map(str::to_owned)
}
