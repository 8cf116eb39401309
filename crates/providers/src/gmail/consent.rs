//! Consent at Google in a browser: the owner of a mailbox lets our app read it.

use domain::connector::ConnectorFuture;
use domain::{AuthorizationRequest, ConnectorError, ConsentFlow, ConsentGrant, Provider, Secret};
use serde::Deserialize;

use super::oauth::{GoogleGrantType, GoogleOAuth, READ_MAIL_SCOPE};
use crate::oauth::{claims_for, with_query};

impl ConsentFlow for GoogleOAuth {
    fn provider(&self) -> Provider {
        Provider::Gmail
    }

    fn authorization_url(&self, question: &AuthorizationRequest<'_>) -> String {
        let scope = format!("openid email {READ_MAIL_SCOPE}");
        let mut fields = vec![
            ("client_id", self.settings.client_id.as_deref().unwrap_or_default()),
            ("redirect_uri", question.redirect_uri),
            ("response_type", "code"),
            ("scope", &scope),
            ("state", question.state),
            ("code_challenge", question.challenge),
            ("code_challenge_method", "S256"),
            // With these each consent returns a refresh token, not only the first one.
            ("access_type", "offline"),
            ("prompt", "consent"),
            ("include_granted_scopes", "true"),
        ];
        fields.extend(question.address.map(|address| ("login_hint", address)));
        with_query(&self.settings.auth_url, &fields)
    }

    fn exchange<'a>(
        &'a self,
        code: &'a Secret<String>,
        verifier: &'a Secret<String>,
        redirect_uri: &'a str,
    ) -> ConnectorFuture<'a, ConsentGrant> {
        Box::pin(self.exchange_code(code, verifier, redirect_uri))
    }

    fn revoke<'a>(&'a self, token: &'a Secret<String>) -> ConnectorFuture<'a, ()> {
        Box::pin(Self::revoke(self, token))
    }
}

impl GoogleOAuth {
    async fn exchange_code(
        &self,
        code: &Secret<String>,
        verifier: &Secret<String>,
        redirect_uri: &str,
    ) -> Result<ConsentGrant, ConnectorError> {
        let (id, secret) = self.client()?;
        let form = [
            ("grant_type", "authorization_code"),
            ("code", code.expose()),
            ("client_id", id),
            ("client_secret", secret.expose()),
            ("redirect_uri", redirect_uri),
            ("code_verifier", verifier.expose()),
        ];
        let response = self.request_token(&form, GoogleGrantType::AuthorizationCode).await?;
        let may_read = response.has_scope(|scope| scope == READ_MAIL_SCOPE);
        let secret = response.lasting_refresh_token();
        let token = Secret::new(response.access_token);
        let mut address = response.id_token.as_deref().and_then(|id_token| verified_email(id_token, id));
        if address.is_none() && may_read {
            address = Some(self.mailbox_address(&token).await?);
        }
        Ok(ConsentGrant {
            address,
            secret,
            token,
            missing: if may_read { Vec::new() } else { vec!["to read your email"] },
        })
    }

    /// Returns the address of the mailbox that a token opens.
    async fn mailbox_address(&self, token: &Secret<String>) -> Result<String, ConnectorError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct ProfileResponse {
            email_address: String,
        }
        let url = format!("{}/gmail/v1/users/me/profile", self.settings.api_url);
        let profile: ProfileResponse = self.http.json(self.http.client.get(url).bearer_auth(token.expose())).await?;
        Ok(profile.email_address)
    }
}

/// Returns the address of the id token if Google has verified it.
fn verified_email(id_token: &str, client_id: &str) -> Option<String> {
    let claims = claims_for(client_id, id_token)?;
    let is_verified = claims["email_verified"] == true || claims["email_verified"] == "true";
    claims["email"].as_str().filter(|_| is_verified).map(str::to_owned)
}
