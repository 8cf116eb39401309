//! Microsoft's OAuth 2.0: consent in a browser, and tokens by what that gave us or by what a directory has allowed our app.

use std::sync::Arc;

use domain::connector::{Account, Answer, Grant};
use domain::{Clock, ConnectorError, Consent, Consented, Provider, Question, Secret, SystemClock};
use serde_json::Value;

use super::refusal::{Asked, refusal};
use super::{Certificate, MicrosoftSettings, NotACertificate, is_directory};
use crate::http::{Http, unavailable};
use crate::oauth::{TokenAnswer, ask_token, claims_for, is_app_only, operator, unauthorized, with_query};

/// Of everybody who is in no directory but Microsoft's own, which looks whose address it is.
const PERSONAL: &str = "9188040d-6c67-4c5b-b112-36a304b66dad";

const BY_ASSERTION: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// Cheap to clone.
#[derive(Debug, Clone)]
pub struct MicrosoftOAuth {
    http: Http,
    settings: Arc<MicrosoftSettings>,
    certificate: Option<Result<Arc<Certificate>, NotACertificate>>,
}

impl MicrosoftOAuth {
    pub fn new(http: Http, settings: MicrosoftSettings) -> Self {
        let certificate = settings.certificate.as_ref().map(|text| Certificate::parse(text).map(Arc::new));
        Self { http, settings: Arc::new(settings), certificate }
    }

    /// A token for calls: by the account's refresh token, or in our own name where the settings say `app_only`.
    pub async fn grant(&self, account: &Account) -> Result<Grant, ConnectorError> {
        let answer = if is_app_only(&account.settings) {
            let directory = directory(account).ok_or_else(|| {
                unauthorized(
                    "it is not known in which directory it is; name that with --directory, by its id or a domain",
                )
            })?;
            let scope = format!("{}/.default", self.settings.resource());
            let fields = [("grant_type", "client_credentials"), ("scope", &scope)];
            self.ask(&directory, &fields, Asked::AppOnly).await?
        } else {
            let Some(refresh) = &account.secret else {
                return Err(unauthorized("it has no refresh token; connect it again"));
            };
            let fields = [("grant_type", "refresh_token"), ("refresh_token", refresh.expose())];
            self.ask(&self.settings.authority, &fields, Asked::Refresh).await?
        };
        Ok(answer.grant(account))
    }

    /// Where the administrator of a directory lets our app in; they come back with `state`.
    pub fn admin_consent(&self, directory: &str, redirect_uri: &str, state: &str) -> String {
        let fields = [
            ("client_id", self.settings.client_id.as_deref().unwrap_or_default()),
            ("redirect_uri", redirect_uri),
            ("state", state),
        ];
        with_query(&format!("{}/{directory}/adminconsent", self.settings.authority_url), &fields)
    }

    /// Asks as the client that we are.
    async fn ask(&self, directory: &str, fields: &[(&str, &str)], asked: Asked) -> Result<TokenAnswer, ConnectorError> {
        let url = self.settings.token_url(directory);
        let Some(client_id) = &self.settings.client_id else {
            return Err(operator("providers.microsoft.client_id is not set"));
        };
        let assertion;
        let mut form = vec![("client_id", client_id.as_str())];
        match (&self.certificate, &self.settings.client_secret) {
            (Some(Ok(certificate)), _) => {
                let made = certificate.assertion(client_id, &url, SystemClock.now());
                assertion = made.ok_or_else(|| unavailable("an assertion cannot be signed"))?;
                form.extend([("client_assertion_type", BY_ASSERTION), ("client_assertion", assertion.expose())]);
            }
            (Some(Err(why)), _) => return Err(operator(&format!("providers.microsoft.certificate_file {why}"))),
            (None, Some(secret)) => form.push(("client_secret", secret.expose())),
            (None, None) => {
                return Err(operator("providers.microsoft.client_secret_file or certificate_file is not set"));
            }
        }
        form.extend_from_slice(fields);
        ask_token(&self.http, &url, &form).await?.map_err(|refused| refusal(&refused, asked, directory))
    }

    async fn consented(
        &self,
        code: &Secret<String>,
        verifier: &Secret<String>,
        redirect_uri: &str,
    ) -> Result<Consented, ConnectorError> {
        let fields = [
            ("grant_type", "authorization_code"),
            ("code", code.expose()),
            ("redirect_uri", redirect_uri),
            ("code_verifier", verifier.expose()),
        ];
        let answer = self.ask(&self.settings.authority, &fields, Asked::Code).await?;
        let may_read = answer.has_scope(|scope| is_read_mail(scope, self.settings.resource()));
        let client_id = self.settings.client_id.as_deref().unwrap_or_default();
        let claims = answer.id_token.as_deref().and_then(|id_token| claims_for(client_id, id_token));
        Ok(Consented {
            address: claims.as_ref().and_then(owner),
            secret: answer.lasting(),
            token: Secret::new(answer.access_token),
            missing: if may_read { Vec::new() } else { vec!["to read your email"] },
        })
    }
}

impl Consent for MicrosoftOAuth {
    fn provider(&self) -> Provider {
        Provider::Outlook
    }

    fn ask(&self, question: &Question<'_>) -> String {
        // Whose mailbox a token opens is looked at before it is believed, which takes a permission of its own.
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
            // Whoever is signed in with several accounts says which one it is.
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
    ) -> Answer<'a, Consented> {
        Box::pin(self.consented(code, verifier, redirect_uri))
    }

    /// Microsoft has nothing that ends a consent but its owner; see [`Consent::taken_back_at`].
    fn revoke<'a>(&'a self, _: &'a Secret<String>) -> Answer<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn taken_back_at(&self) -> Option<&'static str> {
        Some(
            "https://myapps.microsoft.com for an account of an organization, https://account.live.com/consent/Manage for one of your own",
        )
    }
}

/// Granted scopes of Graph come with its address before them or without.
fn is_read_mail(scope: &str, resource: &str) -> bool {
    let name = scope.strip_prefix(resource).map_or(scope, |rest| rest.trim_start_matches('/'));
    // Who was allowed more may read as well.
    ["mail.read", "mail.readwrite"].contains(&&*name.to_ascii_lowercase())
}

/// In which directory our app asks for itself: as the mailbox says, else by the domain of its address.
fn directory(account: &Account) -> Option<String> {
    let settings: Value = serde_json::from_str(&account.settings).unwrap_or_default();
    let said = settings["directory"].as_str();
    let domain = account.address.rsplit_once('@').map(|(_, domain)| domain);
    said.or(domain).filter(|name| is_directory(name)).map(str::to_owned)
}

/// Whose mailbox it is. What a directory writes into `email` is what its administrator likes, be it somebody else's
/// address; so it counts only where Microsoft has looked: it says so (`xms_edov`), the account is no directory's, or the
/// domain is that of the name which the person signs in with, for a directory has to prove that domain.
fn owner(claims: &Value) -> Option<String> {
    let text = |claim: &str| claims[claim].as_str().filter(|text| text.contains('@'));
    let domain = |address: &str| address.rsplit_once('@').map(|(_, domain)| domain.to_lowercase());
    let (email, name) = (text("email"), text("preferred_username"));
    let edov = &claims["xms_edov"];
    let is_looked_at = *edov == true || *edov == 1 || *edov == "1" || *edov == "true" || claims["tid"] == PERSONAL;
    let is_of_the_same_domain = |email: &str| name.and_then(domain).is_some_and(|own| domain(email) == Some(own));
    email.filter(|email| is_looked_at || is_of_the_same_domain(email)).or(name).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_address_that_a_directory_made_up_is_not_believed() {
        let of = |claims: Value| owner(&claims);
        let named = |email: &str, name: &str| json!({"tid": "t", "email": email, "preferred_username": name});

        assert_eq!(of(named("ann@acme.test", "ann@acme.test")).as_deref(), Some("ann@acme.test"));
        assert_eq!(of(named("ann.b@ACME.test", "ann@acme.test")).as_deref(), Some("ann.b@ACME.test"));
        assert_eq!(of(named("victim@other.test", "eve@evil.test")).as_deref(), Some("eve@evil.test"));
        assert_eq!(of(json!({"tid": "t", "email": "victim@other.test"})), None);
        let mut looked_at = named("ann@acme.test", "ann@acme.onmicrosoft.test");
        looked_at["xms_edov"] = json!(true);
        assert_eq!(of(looked_at).as_deref(), Some("ann@acme.test"));
        assert_eq!(of(json!({"tid": PERSONAL, "email": "ann@outlook.test"})).as_deref(), Some("ann@outlook.test"));
        assert_eq!(of(json!({"tid": PERSONAL, "preferred_username": "+4912345"})), None);
    }

    #[test]
    fn reading_is_granted_under_its_short_name_and_under_its_long_one() {
        let is = |scope: &str| is_read_mail(scope, "https://graph.microsoft.com");
        assert!(is("Mail.Read") && is("https://graph.microsoft.com/Mail.Read") && is("mail.readwrite"));
        assert!(!is("Mail.ReadBasic") && !is("https://elsewhere.test/Mail.Read") && !is("User.Read"));
    }
}
