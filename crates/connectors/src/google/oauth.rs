//! Google's OAuth 2.0: consent in a browser, tokens by what that gave us or by a service account, and what each refusal
//! means.

use std::sync::Arc;

use domain::connector::{Account, Answer, Grant};
use domain::{Clock, ConnectorError, Consent, Consented, Provider, Question, Secret, SystemClock};
use serde::Deserialize;

use super::{GoogleSettings, NotAServiceAccount, ServiceAccount};
use crate::http::{Http, Refused, unavailable};
use crate::oauth::{
    ErrorAnswer, TokenAnswer, ask_token, claims_for, form, is_app_only, is_clock_wrong, operator, unauthorized, user,
    with_query,
};

/// All that we ever do is read.
pub const READ_MAIL: &str = "https://www.googleapis.com/auth/gmail.readonly";

/// Who there is in an organisation, and who is in its groups.
pub const READ_PEOPLE: &str = "https://www.googleapis.com/auth/admin.directory.user.readonly";
pub const READ_MEMBERS: &str = "https://www.googleapis.com/auth/admin.directory.group.member.readonly";

/// Cheap to clone.
#[derive(Debug, Clone)]
pub struct GoogleOAuth {
    http: Http,
    settings: Arc<GoogleSettings>,
    service_account: Option<Result<Arc<ServiceAccount>, NotAServiceAccount>>,
}

/// Which kind of question the token endpoint has refused: the same word means something else each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Code,
    Refresh,
    Assertion,
    /// An assertion for an administrator.
    Directory,
}

impl GoogleOAuth {
    pub fn new(http: Http, settings: GoogleSettings) -> Self {
        let service_account = settings.service_account.as_ref().map(|text| ServiceAccount::parse(text).map(Arc::new));
        Self { http, settings: Arc::new(settings), service_account }
    }

    /// Whether people can be asked for their consent.
    pub fn has_client(&self) -> bool {
        self.settings.client_id.is_some() && self.settings.client_secret.is_some()
    }

    /// A token for calls: by the account's refresh token, or by the service account where the settings say `app_only`.
    pub async fn grant(&self, account: &Account) -> Result<Grant, ConnectorError> {
        let answer = if is_app_only(&account.settings) {
            self.ask_for(&user(account), READ_MAIL, Asked::Assertion).await?
        } else {
            let Some(refresh) = &account.secret else {
                return Err(unauthorized("it has no refresh token; connect it again"));
            };
            let (id, secret) = self.client()?;
            let form = [
                ("grant_type", "refresh_token"),
                ("refresh_token", refresh.expose()),
                ("client_id", id),
                ("client_secret", secret.expose()),
            ];
            self.ask_token(&form, Asked::Refresh).await?
        };
        Ok(answer.grant(account))
    }

    /// A token to read the directory with, by the service account for the administrator whose address this is. What is not
    /// delegated must not be asked for: then nothing is given.
    pub async fn directory_grant(&self, account: &Account) -> Result<Grant, ConnectorError> {
        let scope = match reads_groups(&account.settings) {
            true => format!("{READ_PEOPLE} {READ_MEMBERS}"),
            false => READ_PEOPLE.to_owned(),
        };
        Ok(self.ask_for(&account.address, &scope, Asked::Directory).await?.grant(account))
    }

    /// In the name of somebody.
    async fn ask_for(&self, address: &str, scope: &str, asked: Asked) -> Result<TokenAnswer, ConnectorError> {
        let assertion = self.assertion(address, scope)?;
        let grant_type = "urn:ietf:params:oauth:grant-type:jwt-bearer";
        self.ask_token(&[("grant_type", grant_type), ("assertion", assertion.expose())], asked).await
    }

    /// Google forgets what this token was given for. One that it does not know is forgotten already.
    pub async fn revoke(&self, token: &Secret<String>) -> Result<(), ConnectorError> {
        let token_url = &self.settings.token_url;
        let base = token_url.rsplit_once('/').map_or(&**token_url, |(base, _)| base);
        let request = form(self.http.client.post(format!("{base}/revoke")), &[("token", token.expose())])?;
        match self.http.done(request).await? {
            Ok(()) => Ok(()),
            Err(refused) if refused.status.as_u16() == 400 => Ok(()),
            Err(refused) => Err(refused.error()),
        }
    }

    fn client(&self) -> Result<(&str, &Secret<String>), ConnectorError> {
        match (&self.settings.client_id, &self.settings.client_secret) {
            (Some(id), Some(secret)) => Ok((id, secret)),
            _ => Err(operator("providers.google.client_id and client_secret are not set")),
        }
    }

    fn assertion(&self, address: &str, scope: &str) -> Result<Secret<String>, ConnectorError> {
        let account = match &self.service_account {
            Some(Ok(account)) => account,
            Some(Err(why)) => return Err(operator(&format!("providers.google.service_account_file {why}"))),
            None => return Err(operator("providers.google.service_account_file is not set")),
        };
        let assertion = account.assertion(address, scope, &self.settings.token_url, SystemClock.now());
        assertion.ok_or_else(|| unavailable("an assertion cannot be signed"))
    }

    async fn ask_token(&self, fields: &[(&str, &str)], asked: Asked) -> Result<TokenAnswer, ConnectorError> {
        let asking = ask_token(&self.http, &self.settings.token_url, fields).await?;
        asking.map_err(|refused| refusal(&refused, asked))
    }

    async fn consented(
        &self,
        code: &Secret<String>,
        verifier: &Secret<String>,
        redirect_uri: &str,
    ) -> Result<Consented, ConnectorError> {
        let (id, secret) = self.client()?;
        let form = [
            ("grant_type", "authorization_code"),
            ("code", code.expose()),
            ("client_id", id),
            ("client_secret", secret.expose()),
            ("redirect_uri", redirect_uri),
            ("code_verifier", verifier.expose()),
        ];
        let answer = self.ask_token(&form, Asked::Code).await?;
        let may_read = answer.has_scope(|scope| scope == READ_MAIL);
        let secret = answer.lasting();
        let token = Secret::new(answer.access_token);
        let mut address = answer.id_token.as_deref().and_then(|id_token| verified_email(id_token, id));
        if address.is_none() && may_read {
            address = Some(self.profile(&token).await?);
        }
        Ok(Consented {
            address,
            secret,
            token,
            missing: if may_read { Vec::new() } else { vec!["to read your email"] },
        })
    }

    /// Whose mailbox a token opens.
    async fn profile(&self, token: &Secret<String>) -> Result<String, ConnectorError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Profile {
            email_address: String,
        }
        let url = format!("{}/gmail/v1/users/me/profile", self.settings.api_url);
        let profile: Profile = self.http.json(self.http.client.get(url).bearer_auth(token.expose())).await?;
        Ok(profile.email_address)
    }
}

impl Consent for GoogleOAuth {
    fn provider(&self) -> Provider {
        Provider::Gmail
    }

    fn ask(&self, question: &Question<'_>) -> String {
        let scope = format!("openid email {READ_MAIL}");
        let mut fields = vec![
            ("client_id", self.settings.client_id.as_deref().unwrap_or_default()),
            ("redirect_uri", question.redirect_uri),
            ("response_type", "code"),
            ("scope", &scope),
            ("state", question.state),
            ("code_challenge", question.challenge),
            ("code_challenge_method", "S256"),
            // With these a refresh token comes each time, not only at the first consent.
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
    ) -> Answer<'a, Consented> {
        Box::pin(self.consented(code, verifier, redirect_uri))
    }

    fn revoke<'a>(&'a self, token: &'a Secret<String>) -> Answer<'a, ()> {
        Box::pin(Self::revoke(self, token))
    }
}

/// Whether those who are in groups are wanted as well.
fn reads_groups(settings: &str) -> bool {
    serde_json::from_str(settings).is_ok_and(|settings: serde_json::Value| settings["groups"] == true)
}

/// The address that Google vouches for.
fn verified_email(id_token: &str, client_id: &str) -> Option<String> {
    let claims = claims_for(client_id, id_token)?;
    let is_verified = claims["email_verified"] == true || claims["email_verified"] == "true";
    claims["email"].as_str().filter(|_| is_verified).map(str::to_owned)
}

/// Only what says that this very grant has ended does end it: everything else passes, or is not the account's fault.
fn refusal(refused: &Refused, asked: Asked) -> ConnectorError {
    let by_status = refused.error();
    if matches!(by_status, ConnectorError::Throttled { .. } | ConnectorError::Unavailable(_)) {
        return by_status;
    }
    match (&*ErrorAnswer::of(refused).error, asked) {
        ("invalid_grant", Asked::Refresh) => {
            unauthorized("its consent has ended or was taken back (invalid_grant); connect it again")
        }
        ("invalid_grant", Asked::Code) => unauthorized("the code was used before or is too old (invalid_grant)"),
        ("invalid_grant", Asked::Assertion | Asked::Directory) if is_clock_wrong(refused) => {
            operator("this machine's clock differs from Google's; let it follow a time server (invalid_grant)")
        }
        ("invalid_grant", Asked::Assertion | Asked::Directory) => unauthorized(
            "the service account cannot act for this address (invalid_grant); it may be suspended, deleted, or of another domain",
        ),
        ("admin_policy_enforced", _) => unauthorized(
            "its administrator does not allow this app (admin_policy_enforced); once that is changed, connect it again",
        ),
        ("unauthorized_client" | "access_denied" | "invalid_scope", Asked::Assertion) => unauthorized(
            "the domain has not delegated it (unauthorized_client); its administrator allows the client id of the service account the scope gmail.readonly, in the admin console under API controls, domain-wide delegation",
        ),
        ("unauthorized_client" | "access_denied" | "invalid_scope", Asked::Directory) => unauthorized(
            "the domain has not delegated it (unauthorized_client); its administrator allows the client id of the service account the scope admin.directory.user.readonly, and admin.directory.group.member.readonly where rules name groups, in the admin console under API controls, domain-wide delegation",
        ),
        ("invalid_client" | "deleted_client" | "disabled_client", Asked::Assertion | Asked::Directory) => {
            operator("the service account is not known (invalid_client); check providers.google.service_account_file")
        }
        ("invalid_client" | "unauthorized_client", _) => operator(
            "the OAuth client is not known or its secret is wrong (invalid_client); check providers.google.client_id and client_secret",
        ),
        ("deleted_client" | "disabled_client", _) => {
            operator("the OAuth client was deleted or switched off (deleted_client); check it in Google's console")
        }
        ("redirect_uri_mismatch", _) => operator(
            "the redirect URI is not one of the OAuth client's; add server.public_url followed by /v1/oauth/google/callback there",
        ),
        ("slow_down" | "rate_limit_exceeded", _) => ConnectorError::Throttled { retry_after: None },
        _ => ConnectorError::Unavailable(format!("a token call was refused with status {}", refused.status.as_u16())),
    }
}
