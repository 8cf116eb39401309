//! Gmail's words, and the one place that says them: every call waits for its units, has a token, and is made once more
//! with another token when that one is refused.

use domain::connector::Account;
use domain::{ConnectorError, Secret};
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE};
use reqwest::{Method, RequestBuilder, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Gmail;
use super::refusal::{What, is_about_the_token, refusal};
use crate::http::{Answered, LARGEST_ANSWER, protocol, unavailable};
use crate::names::{name, shown};

/// Quota units of the calls that we make.
pub mod units {
    pub const PROFILE: u32 = 1;
    pub const LABELS: u32 = 1;
    pub const HISTORY: u32 = 2;
    pub const LIST: u32 = 5;
    pub const MESSAGE: u32 = 20;
    pub const WATCH: u32 = 100;
    pub const STOP: u32 = 50;
}

/// The most of a refusal that is looked at.
const LARGEST_REFUSAL: usize = 64 << 10;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Profile {
    #[serde(default)]
    pub email_address: String,
    /// A number, but larger than any of ours may be: a text.
    pub history_id: String,
}

#[derive(Debug, Default, Deserialize)]
pub struct Labels {
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
pub struct Messages {
    #[serde(default)]
    pub messages: Vec<MessageId>,
    pub next_page_token: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct MessageId {
    #[serde(deserialize_with = "id")]
    pub id: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct History {
    #[serde(default)]
    pub history: Vec<Record>,
    pub next_page_token: Option<String>,
    pub history_id: String,
}

/// What happened at once. `messages` beside these says nothing more.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Record {
    pub messages_added: Vec<Happened>,
    pub messages_deleted: Vec<Happened>,
    pub labels_added: Vec<Happened>,
    pub labels_removed: Vec<Happened>,
}

#[derive(Debug, Deserialize)]
pub struct Happened {
    pub message: MessageId,
}

/// A message without its bytes.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Message {
    pub id: String,
    pub thread_id: Option<String>,
    #[serde(default)]
    pub label_ids: Vec<String>,
    /// When Google accepted it, in milliseconds.
    pub internal_date: Option<String>,
    pub size_estimate: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub struct Watched {
    /// In milliseconds.
    pub expiration: String,
}

/// Calls for one account.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    pub gmail: &'a Gmail,
    pub account: &'a Account,
}

impl Call<'_> {
    pub async fn profile(self) -> Result<Profile, ConnectorError> {
        self.get(units::PROFILE, What::Other, &["profile"], &[]).await
    }

    pub async fn labels(self) -> Result<Vec<Label>, ConnectorError> {
        let labels: Labels = self.get(units::LABELS, What::Other, &["labels"], &[]).await?;
        let checked = |label: Label| Ok(Label { id: name(label.id)?, name: shown(&label.name) });
        labels.labels.into_iter().map(checked).collect()
    }

    pub async fn messages(self, query: &[(&str, &str)]) -> Result<Messages, ConnectorError> {
        self.get(units::LIST, What::List, &["messages"], query).await
    }

    pub async fn history(self, query: &[(&str, &str)]) -> Result<History, ConnectorError> {
        self.get(units::HISTORY, What::History, &["history"], query).await
    }

    pub async fn watch(self, topic: &str) -> Result<Watched, ConnectorError> {
        let body = serde_json::json!({ "topicName": topic });
        self.post(units::WATCH, What::Watch, "watch", Some(&body)).await
    }

    pub async fn stop(self) -> Result<(), ConnectorError> {
        let answered = self.make(units::STOP, What::Watch, |gmail, token| {
            let request = gmail.http.client.request(Method::POST, gmail.url(&["stop"])).bearer_auth(token.expose());
            request.header(CONTENT_LENGTH, 0)
        });
        answered.await.map(drop)
    }

    /// Several calls in one, whose units are spent; the answer has a part for each. With the token that was used, which a
    /// part may refuse.
    pub async fn batch(
        self,
        units: u32,
        boundary: &str,
        body: String,
    ) -> Result<(Answered, Secret<String>), ConnectorError> {
        let kind = format!("multipart/mixed; boundary={boundary}");
        self.make_paid(units, What::Other, |gmail, token| {
            let request = gmail.http.client.request(Method::POST, gmail.batch_url.clone());
            request.bearer_auth(token.expose()).header(CONTENT_TYPE, &kind).body(body.clone())
        })
        .await
    }

    async fn get<T: DeserializeOwned>(
        self,
        units: u32,
        what: What,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<T, ConnectorError> {
        let mut url = self.gmail.url(path);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        self.get_from(units, what, url).await
    }

    /// Wherever it is.
    pub async fn get_from<T: DeserializeOwned>(self, units: u32, what: What, url: Url) -> Result<T, ConnectorError> {
        let answered =
            self.make(units, what, |gmail, token| gmail.http.client.get(url.clone()).bearer_auth(token.expose()));
        read(answered.await?.0).await
    }

    async fn post<T: DeserializeOwned>(
        self,
        units: u32,
        what: What,
        path: &str,
        body: Option<&Value>,
    ) -> Result<T, ConnectorError> {
        let answered = self.make(units, what, |gmail, token| {
            let request = gmail.http.client.request(Method::POST, gmail.url(&[path])).bearer_auth(token.expose());
            let json = body.map(Value::to_string).unwrap_or_default();
            request.header(CONTENT_TYPE, "application/json").body(json)
        });
        read(answered.await?.0).await
    }

    async fn make(
        self,
        units: u32,
        what: What,
        request: impl Fn(&Gmail, &Secret<String>) -> RequestBuilder,
    ) -> Result<(Answered, Secret<String>), ConnectorError> {
        if units > 0 {
            self.account.access.spend(units).await?;
        }
        self.make_paid(units, what, request).await
    }

    async fn make_paid(
        self,
        units: u32,
        what: What,
        request: impl Fn(&Gmail, &Secret<String>) -> RequestBuilder,
    ) -> Result<(Answered, Secret<String>), ConnectorError> {
        let access = &self.account.access;
        let mut token = access.token().await?;
        for is_last in [false, true] {
            let mut answered = self.gmail.http.answer(request(self.gmail, &token)).await?;
            if answered.status.is_success() {
                return Ok((answered, token));
            }
            if is_about_the_token(answered.status) && !is_last {
                token = access.renew(&token).await?;
                access.spend(units).await?;
                continue;
            }
            let body = answered.body.read_whole(LARGEST_REFUSAL).await.unwrap_or_default();
            return Err(self.gmail.backoff(self.account, refusal(what, answered.status, &answered.headers, &body)));
        }
        Err(protocol("a call was not made"))
    }
}

/// It becomes a name in our database and a part of addresses.
fn id<'de, D: serde::Deserializer<'de>>(text: D) -> Result<String, D::Error> {
    name(String::deserialize(text)?).map_err(serde::de::Error::custom)
}

async fn read<T: DeserializeOwned>(mut answered: Answered) -> Result<T, ConnectorError> {
    let bytes = answered.body.read_whole(LARGEST_ANSWER).await?;
    serde_json::from_slice(&bytes).map_err(|e| match e.is_eof() {
        true => unavailable("an answer ends too early"),
        false => protocol("an answer is not the JSON it should be"),
    })
}

impl Gmail {
    /// Of the organisation whose administrator the token is for.
    pub fn directory_url(&self, path: &[&str]) -> Url {
        let mut url = self.directory.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.extend(["admin", "directory", "v1"]).extend(path);
        }
        url
    }

    /// Of the account that the token is for.
    fn url(&self, path: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.extend(["gmail", "v1", "users", "me"]).extend(path);
        }
        url
    }
}
