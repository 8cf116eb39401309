//! Google's OAuth 2.0: access tokens by refresh token or by service account, and the meaning of each error of the token
//! endpoint. People consent in [`consent`](super::consent).

use std::sync::Arc;

use domain::connector::{ConnectorAccount, TokenGrant};
use domain::{Clock, ConnectorError, Secret, SystemClock};

use super::app_settings::GoogleSettings;
use super::service_account::{InvalidServiceAccount, ServiceAccount};
use crate::http::{ErrorResponse, HttpClient, unavailable};
use crate::oauth::{
    TokenError, TokenResponse, app_rejected, form, is_app_only, is_clock_wrong, request_token, unauthorized, user,
};

/// The scope for mail: we only read.
pub const READ_MAIL_SCOPE: &str = "https://www.googleapis.com/auth/gmail.readonly";

/// The scopes for an organisation's users and for its group members.
pub const READ_USERS_SCOPE: &str = "https://www.googleapis.com/auth/admin.directory.user.readonly";
pub const READ_MEMBERS_SCOPE: &str = "https://www.googleapis.com/auth/admin.directory.group.member.readonly";

/// Cheap to clone.
#[derive(Debug, Clone)]
pub struct GoogleOAuth {
    pub(super) http: HttpClient,
    pub(super) settings: Arc<GoogleSettings>,
    service_account: Option<Result<Arc<ServiceAccount>, InvalidServiceAccount>>,
}

/// The grant type of a token request: the same error code means something else for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GoogleGrantType {
    AuthorizationCode,
    RefreshToken,
    JwtBearer,
    /// A [`GoogleGrantType::JwtBearer`] in the name of an administrator, for the directory.
    DirectoryJwtBearer,
}

impl GoogleOAuth {
    pub fn new(http: HttpClient, settings: GoogleSettings) -> Self {
        let service_account = settings.service_account.as_ref().map(|text| ServiceAccount::parse(text).map(Arc::new));
        Self { http, settings: Arc::new(settings), service_account }
    }

    /// Returns whether people can be asked for their consent.
    pub fn has_client(&self) -> bool {
        self.settings.client_id.is_some() && self.settings.client_secret.is_some()
    }

    /// Requests an access token: by the account's refresh token, or by the service account if the settings say `app_only`.
    pub async fn obtain_token(&self, account: &ConnectorAccount) -> Result<TokenGrant, ConnectorError> {
        let token = if is_app_only(&account.settings) {
            self.request_jwt_token(&user(account), READ_MAIL_SCOPE, GoogleGrantType::JwtBearer).await?
        } else {
            let Some(refresh) = &account.secret else {
                return Err(unauthorized("the mailbox has no refresh token; connect it again"));
            };
            let (id, secret) = self.client()?;
            let form = [
                ("grant_type", "refresh_token"),
                ("refresh_token", refresh.expose()),
                ("client_id", id),
                ("client_secret", secret.expose()),
            ];
            self.request_token(&form, GoogleGrantType::RefreshToken).await?
        };
        Ok(token.into_grant(account))
    }

    /// Requests a token for the directory, by the service account in the name of the administrator whose address this is.
    /// A request with a scope that is not delegated fails as a whole, so only what is needed is requested.
    pub async fn obtain_directory_token(&self, account: &ConnectorAccount) -> Result<TokenGrant, ConnectorError> {
        let scope = if wants_groups(&account.settings) {
            format!("{READ_USERS_SCOPE} {READ_MEMBERS_SCOPE}")
        } else {
            READ_USERS_SCOPE.to_owned()
        };
        Ok(self
            .request_jwt_token(&account.address, &scope, GoogleGrantType::DirectoryJwtBearer)
            .await?
            .into_grant(account))
    }

    /// Requests a token in the name of the person with this address (RFC 7523).
    async fn request_jwt_token(
        &self,
        address: &str,
        scope: &str,
        grant: GoogleGrantType,
    ) -> Result<TokenResponse, ConnectorError> {
        let assertion = self.assertion(address, scope)?;
        let grant_type = "urn:ietf:params:oauth:grant-type:jwt-bearer";
        self.request_token(&[("grant_type", grant_type), ("assertion", assertion.expose())], grant).await
    }

    /// Revokes a token and its grant. A token that Google does not know counts as revoked.
    pub async fn revoke(&self, token: &Secret<String>) -> Result<(), ConnectorError> {
        let token_url = &self.settings.token_url;
        let base = token_url.rsplit_once('/').map_or(&**token_url, |(base, _)| base);
        let request = form(self.http.client.post(format!("{base}/revoke")), &[("token", token.expose())])?;
        match self.http.try_send(request).await? {
            Ok(()) => Ok(()),
            Err(response) if response.status.as_u16() == 400 => Ok(()),
            Err(response) => Err(response.error()),
        }
    }

    pub(super) fn client(&self) -> Result<(&str, &Secret<String>), ConnectorError> {
        match (&self.settings.client_id, &self.settings.client_secret) {
            (Some(id), Some(secret)) => Ok((id, secret)),
            _ => Err(app_rejected("providers.google.client_id and client_secret are not set")),
        }
    }

    fn assertion(&self, address: &str, scope: &str) -> Result<Secret<String>, ConnectorError> {
        let account = match &self.service_account {
            Some(Ok(account)) => account,
            Some(Err(why)) => return Err(app_rejected(&format!("providers.google.service_account_file {why}"))),
            None => return Err(app_rejected("providers.google.service_account_file is not set")),
        };
        let assertion = account.assertion(address, scope, &self.settings.token_url, SystemClock.now());
        assertion.ok_or_else(|| unavailable("the assertion cannot be signed"))
    }

    pub(super) async fn request_token(
        &self,
        fields: &[(&str, &str)],
        grant: GoogleGrantType,
    ) -> Result<TokenResponse, ConnectorError> {
        let requested = request_token(&self.http, &self.settings.token_url, fields).await?;
        requested.map_err(|response| connector_error(&response, grant))
    }
}

/// Returns whether the settings ask for group members as well.
fn wants_groups(settings: &str) -> bool {
    serde_json::from_str(settings).is_ok_and(|settings: serde_json::Value| settings["groups"] == true)
}

/// Returns the error that an error of the token endpoint means. Only an explicit end of this very grant is `Unauthorized`;
/// everything else is transient or not the account's fault.
fn connector_error(response: &ErrorResponse, grant: GoogleGrantType) -> ConnectorError {
    let by_status = response.error();
    if matches!(by_status, ConnectorError::Throttled { .. } | ConnectorError::Unavailable(_)) {
        return by_status;
    }
    match (&*TokenError::of(response).error, grant) {
        ("invalid_grant", GoogleGrantType::RefreshToken) => {
            unauthorized("the consent has expired or was revoked (invalid_grant); connect it again")
        }
        ("invalid_grant", GoogleGrantType::AuthorizationCode) => {
            unauthorized("the authorization code was used before or has expired (invalid_grant)")
        }
        ("invalid_grant", GoogleGrantType::JwtBearer | GoogleGrantType::DirectoryJwtBearer)
            if is_clock_wrong(response) =>
        {
            app_rejected(
                "this machine's clock differs from Google's; synchronize it with a time server (invalid_grant)",
            )
        }
        ("invalid_grant", GoogleGrantType::JwtBearer | GoogleGrantType::DirectoryJwtBearer) => unauthorized(
            "the service account cannot act for this address (invalid_grant); it may be suspended, deleted, or of another domain",
        ),
        ("admin_policy_enforced", _) => unauthorized(
            "the domain's administrator does not allow this app (admin_policy_enforced); once that is changed, connect it again",
        ),
        ("unauthorized_client" | "access_denied" | "invalid_scope", GoogleGrantType::JwtBearer) => unauthorized(
            "the domain has not delegated access (unauthorized_client); its administrator must allow the client id of the service account the scope gmail.readonly, in the admin console under API controls, domain-wide delegation",
        ),
        ("unauthorized_client" | "access_denied" | "invalid_scope", GoogleGrantType::DirectoryJwtBearer) => {
            unauthorized(
                "the domain has not delegated access (unauthorized_client); its administrator must allow the client id of the service account the scope admin.directory.user.readonly, and admin.directory.group.member.readonly where rules name groups, in the admin console under API controls, domain-wide delegation",
            )
        }
        (
            "invalid_client" | "deleted_client" | "disabled_client",
            GoogleGrantType::JwtBearer | GoogleGrantType::DirectoryJwtBearer,
        ) => {
            app_rejected("the service account is unknown (invalid_client); check providers.google.service_account_file")
        }
        ("invalid_client" | "unauthorized_client", _) => app_rejected(
            "the OAuth client is unknown or its secret is wrong (invalid_client); check providers.google.client_id and client_secret",
        ),
        ("deleted_client" | "disabled_client", _) => {
            app_rejected("the OAuth client was deleted or disabled (deleted_client); check it in Google's console")
        }
        ("redirect_uri_mismatch", _) => app_rejected(
            "the redirect URI is not registered for the OAuth client; add server.public_url followed by /v1/oauth/google/callback there",
        ),
        ("slow_down" | "rate_limit_exceeded", _) => ConnectorError::Throttled { retry_after: None },
        _ => ConnectorError::Unavailable(format!("the token request failed with status {}", response.status.as_u16())),
    }
}
