//! Graph's words, and the one place that says them: every call waits for its turn and its part of the quota, has a token,
//! asks for ids that hold, and is made once more with another token when that one is refused.

use domain::connector::Account;
use domain::{ConnectorError, Secret};
use reqwest::header::{CONTENT_TYPE, LOCATION};
use reqwest::{Method, RequestBuilder, StatusCode, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Outlook;
use super::lanes::Lane;
use super::refusal::{What, is_about_the_token, refusal};
use super::subscriptions::{Caller, Reply};
use crate::http::{Answered, LARGEST_ANSWER, protocol, unavailable};
use crate::oauth::is_app_only;

/// The most of a refusal that is looked at.
const LARGEST_REFUSAL: usize = 64 << 10;

/// Ids that stay the same when a message is moved.
pub const IMMUTABLE: &str = "IdType=\"ImmutableId\"";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct User {
    pub mail: Option<String>,
    pub user_principal_name: Option<String>,
}

impl User {
    pub fn is_called(&self, address: &str) -> bool {
        let names = [&self.mail, &self.user_principal_name].into_iter().flatten();
        names.filter_map(|name| domain::address::canonical(name)).any(|name| name == address)
    }
}

/// A page of something.
#[derive(Debug, Deserialize)]
pub struct Collection<T> {
    #[serde(default = "Vec::new")]
    pub value: Vec<T>,
    #[serde(rename = "@odata.nextLink")]
    pub next_link: Option<String>,
    #[serde(rename = "@odata.deltaLink")]
    pub delta_link: Option<String>,
}

/// An answer that is being read. Its lane is free again when it is dropped.
#[derive(Debug)]
pub struct Answer {
    pub answered: Answered,
    /// It was made with.
    pub token: Secret<String>,
    _lane: Lane,
}

/// A refusal, with what one may still want to know.
#[derive(Debug)]
pub struct Refusal {
    pub error: ConnectorError,
    pub status: Option<StatusCode>,
    /// Where to go on instead.
    pub location: Option<String>,
    body: bytes::Bytes,
}

impl Refusal {
    /// There was an answer, which says that there is none.
    pub fn is_of_a_broken_server(&self) -> bool {
        self.status.is_some() && matches!(self.error, ConnectorError::Unavailable(_))
    }
}

impl From<ConnectorError> for Refusal {
    fn from(error: ConnectorError) -> Self {
        Self { error, status: None, location: None, body: bytes::Bytes::new() }
    }
}

impl From<Refusal> for ConnectorError {
    fn from(refusal: Refusal) -> Self {
        refusal.error
    }
}

/// Calls for one account.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    pub outlook: &'a Outlook,
    pub account: &'a Account,
}

impl Call<'_> {
    pub fn is_app_only(self) -> bool {
        is_app_only(&self.account.settings)
    }

    /// Whose mailbox it is, in an address: a token of its owner, or one of ours that names it.
    fn root(self) -> Vec<&'static str> {
        if self.is_app_only() { vec!["users"] } else { vec!["me"] }
    }

    /// Below the account's own address.
    pub fn url(self, path: &[&str]) -> Url {
        let mut url = self.outlook.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.extend(self.root());
            if self.is_app_only() {
                segments.push(&self.account.address);
            }
            segments.extend(path);
        }
        url
    }

    /// Below `/v1.0` alone.
    pub fn wide_url(self, path: &[&str]) -> Url {
        let mut url = self.outlook.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.extend(path);
        }
        url
    }

    /// Its messages, as a subscription names them.
    pub fn resource(self) -> String {
        match self.is_app_only() {
            true => format!("users/{}/messages", self.account.address),
            false => "me/messages".to_owned(),
        }
    }

    /// For a call within a batch.
    pub fn within(self, url: &Url) -> String {
        let path = url.path().strip_prefix(self.outlook.base.path()).unwrap_or(url.path());
        match url.query() {
            Some(query) => format!("{path}?{query}"),
            None => path.to_owned(),
        }
    }

    /// A link of theirs, which is followed as it is. It must not lead our token elsewhere.
    pub fn link(self, text: &str) -> Result<Url, ConnectorError> {
        let url = Url::parse(text).ok().filter(|url| url.origin() == self.outlook.base.origin());
        url.ok_or_else(|| protocol("a link that leads elsewhere"))
    }

    pub async fn me(self) -> Result<User, ConnectorError> {
        let mut url = self.url(&[]);
        url.query_pairs_mut().append_pair("$select", "id,mail,userPrincipalName");
        Ok(self.get(What::User, url, "").await?)
    }

    /// Whether there is a mailbox at all shows only when it is opened.
    pub async fn inbox(self) -> Result<(), ConnectorError> {
        let mut url = self.url(&["mailFolders", "inbox"]);
        url.query_pairs_mut().append_pair("$select", "id");
        self.get::<Value>(What::Other, url, "").await?;
        Ok(())
    }

    /// `prefer` is said beside what is always preferred.
    pub async fn get<T: DeserializeOwned>(self, what: What, url: Url, prefer: &str) -> Result<T, Refusal> {
        let prefer = if prefer.is_empty() { IMMUTABLE.to_owned() } else { format!("{IMMUTABLE}, {prefer}") };
        let request = |outlook: &Outlook| outlook.http.client.get(url.clone()).header("Prefer", &prefer);
        Ok(read(self.make(1, what, request).await?).await?)
    }

    /// Bytes, as they come.
    pub async fn bytes(self, what: What, url: Url) -> Result<Answer, Refusal> {
        self.make(0, what, |outlook| outlook.http.client.get(url.clone()).header("Prefer", IMMUTABLE)).await
    }

    /// Several calls in one; each has an answer of its own.
    pub async fn batch(self, requests: &[Value]) -> Result<Answer, Refusal> {
        let url = self.wide_url(&["$batch"]);
        let body = serde_json::json!({ "requests": requests }).to_string();
        let request = |outlook: &Outlook| {
            let request = outlook.http.client.post(url.clone()).header(CONTENT_TYPE, "application/json");
            request.header("Prefer", IMMUTABLE).body(body.clone())
        };
        self.make(0, What::Other, request).await
    }

    async fn make(
        self,
        units: u32,
        what: What,
        request: impl Fn(&Outlook) -> RequestBuilder,
    ) -> Result<Answer, Refusal> {
        let access = &self.account.access;
        if units > 0 {
            access.spend(units).await?;
        }
        let mut token = access.token().await?;
        for is_last in [false, true] {
            let lane = self.outlook.lanes.take(self.account.mailbox).await?;
            let request = request(self.outlook).bearer_auth(token.expose());
            let mut answered = self.outlook.http.answer(request).await?;
            if answered.status.is_success() {
                return Ok(Answer { answered, token, _lane: lane });
            }
            if is_about_the_token(answered.status, &answered.headers) && !is_last {
                drop((answered, lane));
                token = access.renew(&token).await?;
                continue;
            }
            let body = answered.body.read_whole(LARGEST_REFUSAL).await.unwrap_or_default();
            let location = answered.headers.get(LOCATION).and_then(|value| value.to_str().ok()).map(str::to_owned);
            let error = refusal(what, answered.status, &answered.headers, &body);
            return Err(Refusal { error, status: Some(answered.status), location, body });
        }
        Err(protocol("a call was not made").into())
    }
}

impl Caller for Call<'_> {
    fn call<'a>(&'a self, method: Method, path: &'a str, body: Option<Value>) -> domain::connector::Answer<'a, Reply> {
        Box::pin(async move {
            let (path, query) = path.split_once('?').unwrap_or((path, ""));
            let mut url = self.wide_url(&path.split('/').filter(|part| !part.is_empty()).collect::<Vec<_>>());
            url.set_query(Some(query).filter(|query| !query.is_empty()));
            let request = |outlook: &Outlook| {
                let request = outlook.http.client.request(method.clone(), url.clone()).header("Prefer", IMMUTABLE);
                match &body {
                    Some(body) => request.header(CONTENT_TYPE, "application/json").body(body.to_string()),
                    None => request,
                }
            };
            match self.make(1, What::Subscription, request).await {
                Ok(answer) => {
                    let status = answer.answered.status.as_u16();
                    let body = if status == 204 { Value::Null } else { read(answer).await? };
                    Ok(Reply { status, body })
                }
                Err(Refusal { status: Some(status), body, .. }) if [400, 403, 404, 409].contains(&status.as_u16()) => {
                    Ok(Reply { status: status.as_u16(), body: serde_json::from_slice(&body).unwrap_or_default() })
                }
                Err(refusal) => Err(refusal.error),
            }
        })
    }
}

async fn read<T: DeserializeOwned>(mut answer: Answer) -> Result<T, ConnectorError> {
    let bytes = answer.answered.body.read_whole(LARGEST_ANSWER).await?;
    serde_json::from_slice(&bytes).map_err(|e| match e.is_eof() {
        true => unavailable("an answer ends too early"),
        false => protocol("an answer is not the JSON it should be"),
    })
}
