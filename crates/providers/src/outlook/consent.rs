//! Consent at Microsoft in a browser: the owner of a mailbox lets our app read it, or the administrator of a directory all
//! of its mailboxes.

use domain::connector::ConnectorFuture;
use domain::{AuthorizationRequest, ConnectorError, ConsentFlow, ConsentGrant, Provider, Secret};
use serde_json::Value;

use super::oauth::MicrosoftOAuth;
use super::token_errors::MicrosoftGrantType;
use crate::oauth::{claims_for, with_query};

/// Tenant id of personal accounts, whose addresses Microsoft itself verifies.
const PERSONAL_ACCOUNTS_TENANT_ID: &str = "9188040d-6c67-4c5b-b112-36a304b66dad";

impl ConsentFlow for MicrosoftOAuth {
    fn provider(&self) -> Provider {
        Provider::Outlook
    }

    fn authorization_url(&self, question: &AuthorizationRequest<'_>) -> String {
        // `User.Read` lets us verify whose mailbox a token opens.
        let resource = self.settings.resource();
        let scope = format!("offline_access openid email {resource}/User.Read {resource}/Mail.Read");
        let mut fields = vec![
            ("client_id", self.settings.client_id.as_deref().unwrap_or_default()),
            ("redirect_uri", question.redirect_uri),
            ("response_type", "code"),
            ("response_mode", "query"),
            ("scope", &scope),
            ("state", question.state),
            ("code_challenge", question.challenge),
            ("code_challenge_method", "S256"),
            // A person who is signed in with several accounts chooses one.
            ("prompt", "select_account"),
        ];
        fields.extend(question.address.map(|address| ("login_hint", address)));
        let Self { settings, .. } = self;
        with_query(&format!("{}/{}/oauth2/v2.0/authorize", settings.authority_url, settings.authority), &fields)
    }

    fn exchange<'a>(
        &'a self,
        code: &'a Secret<String>,
        verifier: &'a Secret<String>,
        redirect_uri: &'a str,
    ) -> ConnectorFuture<'a, ConsentGrant> {
        Box::pin(self.exchange_code(code, verifier, redirect_uri))
    }

    /// Does nothing: with Microsoft, only the owner can end a consent; see [`ConsentFlow::revocation_page`].
    fn revoke<'a>(&'a self, _: &'a Secret<String>) -> ConnectorFuture<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn admin_consent_url(&self, directory: &str, redirect_uri: &str, state: &str) -> Option<String> {
        let fields = [
            ("client_id", self.settings.client_id.as_deref().unwrap_or_default()),
            ("redirect_uri", redirect_uri),
            ("state", state),
        ];
        Some(with_query(&format!("{}/{directory}/adminconsent", self.settings.authority_url), &fields))
    }

    fn revocation_page(&self) -> Option<&'static str> {
        Some(
            "https://myapps.microsoft.com for an account of an organization, https://account.live.com/consent/Manage for one of your own",
        )
    }
}

impl MicrosoftOAuth {
    async fn exchange_code(
        &self,
        code: &Secret<String>,
        verifier: &Secret<String>,
        redirect_uri: &str,
    ) -> Result<ConsentGrant, ConnectorError> {
        let fields = [
            ("grant_type", "authorization_code"),
            ("code", code.expose()),
            ("redirect_uri", redirect_uri),
            ("code_verifier", verifier.expose()),
        ];
        let response = self.request(&self.settings.authority, &fields, MicrosoftGrantType::AuthorizationCode).await?;
        let may_read = response.has_scope(|scope| is_read_mail(scope, self.settings.resource()));
        let client_id = self.settings.client_id.as_deref().unwrap_or_default();
        let claims = response.id_token.as_deref().and_then(|id_token| claims_for(client_id, id_token));
        Ok(ConsentGrant {
            address: claims.as_ref().and_then(owner),
            secret: response.lasting_refresh_token(),
            token: Secret::new(response.access_token),
            missing: if may_read { Vec::new() } else { vec!["to read your email"] },
        })
    }
}

/// Returns whether a granted scope allows to read mail. Graph's scopes come with or without its URL as prefix.
fn is_read_mail(scope: &str, resource: &str) -> bool {
    let name = scope.strip_prefix(resource).map_or(scope, |rest| rest.trim_start_matches('/'));
    // `Mail.ReadWrite` includes reading.
    ["mail.read", "mail.readwrite"].contains(&&*name.to_ascii_lowercase())
}

/// Returns the mailbox owner's address. A directory's administrator can write any address into `email`, even that of
/// another person, so it counts only if Microsoft has verified it: it says so (`xms_edov`), the account is a personal one,
/// or the domain is that of the sign-in name, because a directory has to prove that domain.
fn owner(claims: &Value) -> Option<String> {
    let email = claims["email"].as_str().filter(|text| text.contains('@'));
    let name = claims["preferred_username"].as_str().filter(|text| text.contains('@'));
    let edov = &claims["xms_edov"];
    let is_verified = *edov == true || *edov == 1 || *edov == "1" || *edov == "true";
    let is_personal = claims["tid"] == PERSONAL_ACCOUNTS_TENANT_ID;
    let has_own_domain =
        email.and_then(domain).is_some_and(|domain_of_email| name.and_then(domain) == Some(domain_of_email));
    email.filter(|_| is_verified || is_personal || has_own_domain).or(name).map(str::to_owned)
}

fn domain(address: &str) -> Option<String> {
    address.rsplit_once('@').map(|(_, domain)| domain.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unverified_address_of_a_directory_is_not_trusted() {
        for (email, name, expected) in [
            ("ann@acme.test", "ann@acme.test", "ann@acme.test"),
            ("ann.b@ACME.test", "ann@acme.test", "ann.b@ACME.test"),
            ("victim@other.test", "eve@evil.test", "eve@evil.test"),
        ] {
            let claims = json!({"tid": "t", "email": email, "preferred_username": name});
            assert_eq!(owner(&claims).as_deref(), Some(expected));
        }
        assert_eq!(owner(&json!({"tid": "t", "email": "victim@other.test"})), None);
        let verified = json!({"tid": "t", "email": "ann@acme.test", "preferred_username": "ann@acme.onmicrosoft.test",
            "xms_edov": true});
        assert_eq!(owner(&verified).as_deref(), Some("ann@acme.test"));
        let personal = json!({"tid": PERSONAL_ACCOUNTS_TENANT_ID, "email": "ann@outlook.test"});
        assert_eq!(owner(&personal).as_deref(), Some("ann@outlook.test"));
        assert_eq!(owner(&json!({"tid": PERSONAL_ACCOUNTS_TENANT_ID, "preferred_username": "+4912345"})), None);
    }

    #[test]
    fn mail_scope_has_a_short_and_a_long_name() {
        for scope in ["Mail.Read", "https://graph.microsoft.com/Mail.Read", "mail.readwrite"] {
            assert!(is_read_mail(scope, "https://graph.microsoft.com"), "{scope}");
        }
        for scope in ["Mail.ReadBasic", "https://elsewhere.test/Mail.Read", "User.Read"] {
            assert!(!is_read_mail(scope, "https://graph.microsoft.com"), "{scope}");
        }
    }
}
