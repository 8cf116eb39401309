//! A client for Microsoft Graph. Every call waits for a permit and its quota, carries an access token, asks for immutable
//! ids, and is repeated once with a renewed token if Graph rejects the first one.

use domain::connector::ConnectorAccount;
use domain::{ConnectorError, MailboxId, Secret};
use outbound::http::header::{CONTENT_TYPE, LOCATION};
use outbound::http::{Method, RequestBuilder, StatusCode, Url};
use outbound::limits::MAX_OUTLOOK_REQUESTS_PER_MAILBOX;
use outbound::permits::Permit;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Outlook;
use super::error_mapping::{GraphOperation, connector_error, is_token_rejected};
use super::subscriptions::{GraphCaller, GraphReply};
use crate::http::{HttpResponse, protocol};
use crate::oauth::{is_app_only, user};

/// The part of an error response that is read at most.
const MAX_ERROR_BODY_BYTES: usize = 64 << 10;

/// The preference for ids that stay the same when a message is moved.
pub const PREFER_IMMUTABLE_IDS: &str = "IdType=\"ImmutableId\"";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SignedInUser {
    pub mail: Option<String>,
    pub user_principal_name: Option<String>,
}

impl SignedInUser {
    pub fn has_address(&self, address: &str) -> bool {
        let names = [&self.mail, &self.user_principal_name].into_iter().flatten();
        names.filter_map(|name| domain::address::canonical(name)).any(|name| name == address)
    }
}

/// A page of an OData collection.
#[derive(Debug, Deserialize)]
pub struct Collection<T> {
    #[serde(default = "Vec::new")]
    pub value: Vec<T>,
    #[serde(rename = "@odata.nextLink")]
    pub next_link: Option<String>,
    #[serde(rename = "@odata.deltaLink")]
    pub delta_link: Option<String>,
}

/// A response that is being read. It holds the request's permit until it is dropped.
#[derive(Debug)]
pub struct GraphResponse {
    pub http: HttpResponse,
    /// The access token of the request.
    pub token: Secret<String>,
    _permit: Permit<MailboxId>,
}

/// An error with the details that some callers need.
#[derive(Debug)]
pub struct GraphFailure {
    pub error: ConnectorError,
    pub status: Option<StatusCode>,
    /// `Location` of the response: where to continue instead.
    pub location: Option<String>,
    body: bytes::Bytes,
}

impl GraphFailure {
    /// Returns whether Graph itself answered that it cannot serve the request.
    pub fn is_server_error(&self) -> bool {
        self.status.is_some() && matches!(self.error, ConnectorError::Unavailable(_))
    }
}

impl From<ConnectorError> for GraphFailure {
    fn from(error: ConnectorError) -> Self {
        Self { error, status: None, location: None, body: bytes::Bytes::new() }
    }
}

impl From<GraphFailure> for ConnectorError {
    fn from(failure: GraphFailure) -> Self {
        failure.error
    }
}

/// Graph as seen by one account.
#[derive(Debug, Clone, Copy)]
pub struct GraphClient<'a> {
    pub outlook: &'a Outlook,
    pub account: &'a ConnectorAccount,
}

impl GraphClient<'_> {
    pub fn is_app_only(self) -> bool {
        is_app_only(&self.account.settings)
    }

    /// Builds a URL below the account: `/me` with the owner's token, `/users/{user}` with the app's.
    pub fn url(self, path: &[&str]) -> Url {
        let mut url = self.outlook.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            if self.is_app_only() {
                segments.push("users").push(&user(self.account));
            } else {
                segments.push("me");
            }
            segments.extend(path);
        }
        url
    }

    /// Builds a URL directly below `/v1.0`.
    pub fn root_url(self, path: &[&str]) -> Url {
        let mut url = self.outlook.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.extend(path);
        }
        url
    }

    /// Returns the account's messages as the resource of a subscription.
    pub fn resource(self) -> String {
        if self.is_app_only() { format!("users/{}/messages", user(self.account)) } else { "me/messages".to_owned() }
    }

    /// Returns the URL of a request within a batch, which is relative to `/v1.0`.
    pub fn batch_path(self, url: &Url) -> String {
        let path = url.path().strip_prefix(self.outlook.base.path()).unwrap_or(url.path());
        match url.query() {
            Some(query) => format!("{path}?{query}"),
            None => path.to_owned(),
        }
    }

    /// Parses a link that Graph gave. It must not lead our token to another server.
    pub fn link(self, text: &str) -> Result<Url, ConnectorError> {
        let url = Url::parse(text).ok().filter(|url| url.origin() == self.outlook.base.origin());
        url.ok_or_else(|| protocol("a link leads to another server"))
    }

    /// Returns the user whose token this is.
    pub async fn me(self) -> Result<SignedInUser, ConnectorError> {
        let mut url = self.url(&[]);
        url.query_pairs_mut().append_pair("$select", "id,mail,userPrincipalName");
        Ok(self.get(GraphOperation::User, url, "").await?)
    }

    /// Checks that the mailbox can be read: whether there is one shows only when its inbox is opened.
    pub async fn check_inbox(self) -> Result<(), ConnectorError> {
        let mut url = self.url(&["mailFolders", "inbox"]);
        url.query_pairs_mut().append_pair("$select", "id");
        self.get::<Value>(GraphOperation::Other, url, "").await?;
        Ok(())
    }

    /// Gets a resource. `prefer` is added to the `Prefer` header.
    pub async fn get<T: DeserializeOwned>(
        self,
        operation: GraphOperation,
        url: Url,
        prefer: &str,
    ) -> Result<T, GraphFailure> {
        let prefer = if prefer.is_empty() {
            PREFER_IMMUTABLE_IDS.to_owned()
        } else {
            format!("{PREFER_IMMUTABLE_IDS}, {prefer}")
        };
        let response =
            self.send(1, operation, |outlook| outlook.http.client.get(url.clone()).header("Prefer", &prefer));
        Ok(response.await?.http.body.json().await?)
    }

    /// Gets bytes as a stream.
    pub async fn bytes(self, operation: GraphOperation, url: Url) -> Result<GraphResponse, GraphFailure> {
        self.send(0, operation, |outlook| outlook.http.client.get(url.clone()).header("Prefer", PREFER_IMMUTABLE_IDS))
            .await
    }

    /// Sends a batch of requests; the response has an item for each.
    pub async fn batch(self, requests: &[Value]) -> Result<GraphResponse, GraphFailure> {
        let url = self.root_url(&["$batch"]);
        let body = serde_json::json!({ "requests": requests }).to_string();
        self.send(0, GraphOperation::Other, |outlook| {
            let request = outlook.http.client.post(url.clone()).header(CONTENT_TYPE, "application/json");
            request.header("Prefer", PREFER_IMMUTABLE_IDS).body(body.clone())
        })
        .await
    }

    async fn send(
        self,
        units: u32,
        operation: GraphOperation,
        request: impl Fn(&Outlook) -> RequestBuilder,
    ) -> Result<GraphResponse, GraphFailure> {
        let access = &self.account.access;
        if units > 0 {
            access.acquire_quota(units).await?;
        }
        let mut token = access.token(None).await?;
        for is_last in [false, true] {
            let permit = self.outlook.requests.wait(&[(self.account.mailbox, MAX_OUTLOOK_REQUESTS_PER_MAILBOX)]).await;
            let request = request(self.outlook).bearer_auth(token.expose());
            let mut http = self.outlook.http.response(request).await?;
            if http.status.is_success() {
                return Ok(GraphResponse { http, token, _permit: permit });
            }
            if is_token_rejected(http.status, &http.headers) && !is_last {
                drop((http, permit));
                token = access.token(Some(&token)).await?;
                continue;
            }
            let body = http.body.read_whole(MAX_ERROR_BODY_BYTES).await.unwrap_or_default();
            let location = http.headers.get(LOCATION).and_then(|value| value.to_str().ok()).map(str::to_owned);
            let error = connector_error(operation, http.status, &http.headers, &body);
            return Err(GraphFailure { error, status: Some(http.status), location, body });
        }
        Err(protocol("the request was not sent").into())
    }
}

impl GraphCaller for GraphClient<'_> {
    fn call<'a>(
        &'a self,
        method: Method,
        path: &'a str,
        body: Option<Value>,
    ) -> domain::connector::ConnectorFuture<'a, GraphReply> {
        Box::pin(async move {
            let (path, query) = path.split_once('?').unwrap_or((path, ""));
            let mut url = self.root_url(&path.split('/').filter(|part| !part.is_empty()).collect::<Vec<_>>());
            url.set_query(Some(query).filter(|query| !query.is_empty()));
            let response = self.send(1, GraphOperation::Subscription, |outlook| {
                let request = outlook.http.client.request(method.clone(), url.clone());
                let request = request.header("Prefer", PREFER_IMMUTABLE_IDS);
                match &body {
                    Some(body) => request.header(CONTENT_TYPE, "application/json").body(body.to_string()),
                    None => request,
                }
            });
            match response.await {
                Ok(mut response) => {
                    let status = response.http.status.as_u16();
                    let body = if status == 204 { Value::Null } else { response.http.body.json().await? };
                    Ok(GraphReply { status, body })
                }
                Err(GraphFailure { status: Some(status), body, .. })
                    if [400, 403, 404, 409].contains(&status.as_u16()) =>
                {
                    Ok(GraphReply { status: status.as_u16(), body: serde_json::from_slice(&body).unwrap_or_default() })
                }
                Err(failure) => Err(failure.error),
            }
        })
    }
}
