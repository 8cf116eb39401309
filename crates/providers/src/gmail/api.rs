//! A client for the Gmail API: its resources as types, and the methods that we call. Every call first spends its quota
//! units, carries an access token, and is repeated once with a renewed token if the API rejects the first one.

use domain::connector::ConnectorAccount;
use domain::{ConnectorError, Secret};
use outbound::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use outbound::http::{Method, RequestBuilder, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Gmail;
use super::error_mapping::{GmailOperation, connector_error, is_token_rejected};
use crate::http::{HttpResponse, protocol};
use crate::provider_text::{printable, valid_id};

/// Quota units that each method costs.
pub mod units {
    pub const PROFILE: u32 = 1;
    pub const LABELS: u32 = 1;
    pub const HISTORY: u32 = 2;
    pub const LIST: u32 = 5;
    pub const MESSAGE: u32 = 20;
    pub const WATCH: u32 = 100;
    pub const STOP: u32 = 50;
}

/// The part of an error response that is read at most.
const MAX_ERROR_BODY_BYTES: usize = 64 << 10;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GmailProfile {
    #[serde(default)]
    pub email_address: String,
    /// An unsigned 64-bit number, which the API sends as a string.
    pub history_id: String,
}

#[derive(Debug, Default, Deserialize)]
pub struct LabelList {
    #[serde(default)]
    pub labels: Vec<Label>,
}

#[derive(Debug, Deserialize)]
pub struct Label {
    pub id: String,
    pub name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MessageList {
    #[serde(default)]
    pub messages: Vec<MessageRef>,
    pub next_page_token: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct MessageRef {
    #[serde(deserialize_with = "deserialize_id")]
    pub id: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryPage {
    #[serde(default)]
    pub history: Vec<HistoryRecord>,
    pub next_page_token: Option<String>,
    pub history_id: String,
}

/// The changes of one history record. Its field `messages` only repeats the ids, so it is not read.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HistoryRecord {
    pub messages_added: Vec<HistoryChange>,
    pub messages_deleted: Vec<HistoryChange>,
    pub labels_added: Vec<HistoryChange>,
    pub labels_removed: Vec<HistoryChange>,
}

#[derive(Debug, Deserialize)]
pub struct HistoryChange {
    pub message: MessageRef,
}

/// A message without its bytes.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GmailMessage {
    pub id: String,
    pub thread_id: Option<String>,
    #[serde(default)]
    pub label_ids: Vec<String>,
    /// When Google accepted it, in milliseconds since 1970.
    pub internal_date: Option<String>,
    pub size_estimate: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub struct WatchResponse {
    /// In milliseconds since 1970.
    pub expiration: String,
}

/// The API as seen by one account.
#[derive(Debug, Clone, Copy)]
pub struct GmailClient<'a> {
    pub gmail: &'a Gmail,
    pub account: &'a ConnectorAccount,
}

impl GmailClient<'_> {
    pub async fn profile(self) -> Result<GmailProfile, ConnectorError> {
        self.get(units::PROFILE, GmailOperation::Other, self.gmail.url(&["profile"], &[])).await
    }

    pub async fn labels(self) -> Result<Vec<Label>, ConnectorError> {
        let labels: LabelList =
            self.get(units::LABELS, GmailOperation::Other, self.gmail.url(&["labels"], &[])).await?;
        labels
            .labels
            .into_iter()
            .map(|label| Ok(Label { id: valid_id(label.id)?, name: printable(&label.name) }))
            .collect()
    }

    pub async fn messages(self, query: &[(&str, &str)]) -> Result<MessageList, ConnectorError> {
        self.get(units::LIST, GmailOperation::List, self.gmail.url(&["messages"], query)).await
    }

    pub async fn history(self, query: &[(&str, &str)]) -> Result<HistoryPage, ConnectorError> {
        let is_further = query.iter().any(|(name, _)| *name == "pageToken");
        let operation = if is_further { GmailOperation::HistoryPage } else { GmailOperation::History };
        self.get(units::HISTORY, operation, self.gmail.url(&["history"], query)).await
    }

    pub async fn watch(self, topic: &str) -> Result<WatchResponse, ConnectorError> {
        let body = serde_json::json!({ "topicName": topic });
        self.post(units::WATCH, GmailOperation::Watch, "watch", Some(&body)).await
    }

    pub async fn stop(self) -> Result<(), ConnectorError> {
        let response = self.send(units::STOP, GmailOperation::Watch, |gmail, token| {
            let request =
                gmail.http.client.request(Method::POST, gmail.url(&["stop"], &[])).bearer_auth(token.expose());
            request.header(CONTENT_LENGTH, 0)
        });
        response.await.map(drop)
    }

    /// Sends a batch of calls whose units are already spent; the response has a part for each call. Returns the token too,
    /// because a single part may reject it.
    pub async fn batch(
        self,
        units: u32,
        boundary: &str,
        body: String,
    ) -> Result<(HttpResponse, Secret<String>), ConnectorError> {
        let kind = format!("multipart/mixed; boundary={boundary}");
        self.send_prepaid(units, GmailOperation::Other, |gmail, token| {
            let request = gmail.http.client.request(Method::POST, gmail.batch_url.clone());
            request.bearer_auth(token.expose()).header(CONTENT_TYPE, &kind).body(body.clone())
        })
        .await
    }

    pub async fn get<T: DeserializeOwned>(
        self,
        units: u32,
        operation: GmailOperation,
        url: Url,
    ) -> Result<T, ConnectorError> {
        let response =
            self.send(units, operation, |gmail, token| gmail.http.client.get(url.clone()).bearer_auth(token.expose()));
        response.await?.0.body.json().await
    }

    async fn post<T: DeserializeOwned>(
        self,
        units: u32,
        operation: GmailOperation,
        path: &str,
        body: Option<&Value>,
    ) -> Result<T, ConnectorError> {
        let response = self.send(units, operation, |gmail, token| {
            let request = gmail.http.client.request(Method::POST, gmail.url(&[path], &[])).bearer_auth(token.expose());
            let json = body.map(Value::to_string).unwrap_or_default();
            request.header(CONTENT_TYPE, "application/json").body(json)
        });
        response.await?.0.body.json().await
    }

    async fn send(
        self,
        units: u32,
        operation: GmailOperation,
        request: impl Fn(&Gmail, &Secret<String>) -> RequestBuilder,
    ) -> Result<(HttpResponse, Secret<String>), ConnectorError> {
        if units > 0 {
            self.account.access.acquire_quota(units).await?;
        }
        self.send_prepaid(units, operation, request).await
    }

    async fn send_prepaid(
        self,
        units: u32,
        operation: GmailOperation,
        request: impl Fn(&Gmail, &Secret<String>) -> RequestBuilder,
    ) -> Result<(HttpResponse, Secret<String>), ConnectorError> {
        let access = &self.account.access;
        let mut token = access.token(None).await?;
        for is_last in [false, true] {
            let mut response = self.gmail.http.response(request(self.gmail, &token)).await?;
            if response.status.is_success() {
                return Ok((response, token));
            }
            if is_token_rejected(response.status) && !is_last {
                token = access.token(Some(&token)).await?;
                access.acquire_quota(units).await?;
                continue;
            }
            let body = response.body.read_whole(MAX_ERROR_BODY_BYTES).await.unwrap_or_default();
            let error = connector_error(operation, response.status, &response.headers, &body);
            return Err(self.gmail.batch_sizer.record_error(self.account.mailbox, error));
        }
        Err(protocol("the request was not sent"))
    }
}

/// Checks an id while it is read: it is stored in our database and becomes a part of URLs.
fn deserialize_id<'de, D: serde::Deserializer<'de>>(text: D) -> Result<String, D::Error> {
    valid_id(String::deserialize(text)?).map_err(serde::de::Error::custom)
}

impl Gmail {
    /// Builds a URL of the Directory API, for the organisation whose administrator the token is for.
    pub fn directory_url(&self, path: &[&str]) -> Url {
        let mut url = self.directory.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.extend(["admin", "directory", "v1"]).extend(path);
        }
        url
    }

    /// Builds a URL of the Gmail API, for the account that the token is for (`users/me`).
    pub fn url(&self, path: &[&str], query: &[(&str, &str)]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.extend(["gmail", "v1", "users", "me"]).extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }
}
