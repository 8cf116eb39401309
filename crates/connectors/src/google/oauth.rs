//! Google's OAuth 2.0: consent in a browser, tokens by what that gave us or by a service account, and what each refusal
//! means.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::connector::{Account, Answer, Grant};
use domain::{Clock, ConnectorError, Consent, Consented, Provider, Question, Secret, SystemClock};
use jiff::SignedDuration;
use reqwest::header::CONTENT_TYPE;
use reqwest::{RequestBuilder, Url};
use serde::Deserialize;
use serde_json::Value;

use super::{GoogleSettings, NotAServiceAccount, ServiceAccount};
use crate::http::{Http, Refused, protocol, unavailable};

/// All that we ever do is read.
pub const READ_MAIL: &str = "https://www.googleapis.com/auth/gmail.readonly";

/// More than this apart, and an assertion of ours is of the past or the future to Google.
const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_mins(4);

/// What an answer means that does not say for how long its token is good.
const USUAL_LIFE_SECONDS: u64 = 3600;

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
}

#[derive(Deserialize)]
struct TokenAnswer {
    access_token: String,
    expires_in: Option<Value>,
    refresh_token: Option<String>,
    scope: Option<String>,
    id_token: Option<String>,
}

impl TokenAnswer {
    /// A number, which some write as a text.
    fn expires_in(&self) -> Duration {
        let seconds = match &self.expires_in {
            Some(Value::String(text)) => text.parse().unwrap_or(0),
            Some(number) => number.as_u64().unwrap_or(0),
            None => USUAL_LIFE_SECONDS,
        };
        // Nothing that long is ever given; it only has to be a time that can be reckoned with.
        Duration::from_secs(seconds.min(86_400))
    }
}

#[derive(Deserialize)]
struct ErrorAnswer {
    error: Option<Value>,
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
            let assertion = self.assertion(&account.address)?;
            let grant_type = "urn:ietf:params:oauth:grant-type:jwt-bearer";
            self.ask_token(&[("grant_type", grant_type), ("assertion", assertion.expose())], Asked::Assertion).await?
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
        let expires_in = answer.expires_in();
        Ok(Grant {
            token: Secret::new(answer.access_token),
            expires_in,
            // Usually none comes; one that is the same is no news.
            secret: answer.refresh_token.map(Secret::new).filter(|secret| {
                let known = account.secret.as_ref().map(Secret::expose);
                !secret.expose().is_empty() && known.is_some_and(|known| known != secret.expose())
            }),
        })
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

    fn assertion(&self, address: &str) -> Result<Secret<String>, ConnectorError> {
        let account = match &self.service_account {
            Some(Ok(account)) => account,
            Some(Err(why)) => return Err(operator(&format!("providers.google.service_account_file {why}"))),
            None => return Err(operator("providers.google.service_account_file is not set")),
        };
        let assertion = account.assertion(address, READ_MAIL, &self.settings.token_url, SystemClock.now());
        assertion.ok_or_else(|| unavailable("an assertion cannot be signed"))
    }

    async fn ask_token(&self, fields: &[(&str, &str)], asked: Asked) -> Result<TokenAnswer, ConnectorError> {
        let request = form(self.http.client.post(&self.settings.token_url), fields)?;
        match self.http.attempt::<TokenAnswer>(request).await {
            Ok(Ok(answer)) if !answer.access_token.is_empty() => Ok(answer),
            Ok(Ok(_)) | Err(ConnectorError::Protocol(_)) => {
                Err(unavailable("the answer to a token call makes no sense"))
            }
            Ok(Err(refused)) => Err(refusal(&refused, asked)),
            Err(e) => Err(e),
        }
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
        // Without a word about scopes all of them were granted (RFC 6749, 5.1).
        let may_read =
            answer.scope.as_deref().is_none_or(|scope| scope.split_ascii_whitespace().any(|s| s == READ_MAIL));
        let token = Secret::new(answer.access_token);
        let mut address = answer.id_token.as_deref().and_then(|id_token| verified_email(id_token, id));
        if address.is_none() && may_read {
            address = Some(self.profile(&token).await?);
        }
        Ok(Consented {
            address,
            secret: answer.refresh_token.filter(|secret| !secret.is_empty()).map(Secret::new),
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
        let base = &self.settings.auth_url;
        Url::parse_with_params(base, &fields).map_or_else(|_| base.clone(), Into::into)
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

/// Whether our app opens the mailbox by itself.
pub fn is_app_only(settings: &str) -> bool {
    let settings: Option<Value> = serde_json::from_str(settings).ok();
    settings.is_some_and(|settings| settings["app_only"] == true)
}

fn form(request: RequestBuilder, fields: &[(&str, &str)]) -> Result<RequestBuilder, ConnectorError> {
    // A form is written as a query is.
    let url = Url::parse_with_params("http://form", fields).map_err(|_| protocol("a form that cannot be written"))?;
    let body = url.query().unwrap_or_default().to_owned();
    Ok(request.header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(body))
}

/// The address that Google vouches for. The token comes from Google itself over TLS, so nobody else can have made it
/// (OpenID Connect Core, 3.1.3.7); that it is for us is looked at all the same.
fn verified_email(id_token: &str, client_id: &str) -> Option<String> {
    let claims = URL_SAFE_NO_PAD.decode(id_token.split('.').nth(1)?.trim_end_matches('=')).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    let is_for_us = claims["aud"] == client_id
        || claims["aud"].as_array().is_some_and(|all| all.iter().any(|aud| aud == client_id));
    let is_verified = claims["email_verified"] == true || claims["email_verified"] == "true";
    claims["email"].as_str().filter(|_| is_for_us && is_verified).map(str::to_owned)
}

/// Only what says that this very grant has ended does end it: everything else passes, or is not the account's fault.
fn refusal(refused: &Refused, asked: Asked) -> ConnectorError {
    let by_status = refused.error();
    if matches!(by_status, ConnectorError::Throttled { .. } | ConnectorError::Unavailable(_)) {
        return by_status;
    }
    let error = refused.json::<ErrorAnswer>().and_then(|answer| answer.error);
    match (error.as_ref().and_then(Value::as_str).unwrap_or_default(), asked) {
        ("invalid_grant", Asked::Refresh) => {
            unauthorized("its consent has ended or was taken back (invalid_grant); connect it again")
        }
        ("invalid_grant", Asked::Code) => unauthorized("the code was used before or is too old (invalid_grant)"),
        ("invalid_grant", Asked::Assertion) if is_clock_wrong(refused) => {
            operator("this machine's clock differs from Google's; let it follow a time server (invalid_grant)")
        }
        ("invalid_grant", Asked::Assertion) => unauthorized(
            "the service account cannot act for this address (invalid_grant); it may be suspended, deleted, or of another domain",
        ),
        ("admin_policy_enforced", _) => unauthorized(
            "its administrator does not allow this app (admin_policy_enforced); once that is changed, connect it again",
        ),
        ("unauthorized_client" | "access_denied" | "invalid_scope", Asked::Assertion) => unauthorized(
            "the domain has not delegated it (unauthorized_client); its administrator allows the client id of the service account the scope gmail.readonly, in the admin console under API controls, domain-wide delegation",
        ),
        ("invalid_client" | "deleted_client" | "disabled_client", Asked::Assertion) => {
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

fn is_clock_wrong(refused: &Refused) -> bool {
    refused.date().is_some_and(|theirs| theirs.duration_since(SystemClock.now()).abs() > CLOCK_TOLERANCE)
}

fn unauthorized(what: &str) -> ConnectorError {
    ConnectorError::Unauthorized(what.to_owned())
}

fn operator(what: &str) -> ConnectorError {
    ConnectorError::Operator(what.to_owned())
}
