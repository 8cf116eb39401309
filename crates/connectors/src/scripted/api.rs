//! The provider's words: what is sent and what comes back. `docs/providers/scripted.md` has them all.

use domain::ConnectorError;
use domain::connector::{Account, Cursors, Wanted};
use jiff::Timestamp;
use reqwest::header::CONTENT_TYPE;
use reqwest::{RequestBuilder, Url};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::http::{Body, Http, protocol};

/// There is one scope: the whole mailbox.
pub const SCOPE: &str = "mailbox";

/// Messages in a page unless the settings say otherwise.
const PAGE_SIZE: usize = 500;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    url: String,
    page_size: Option<usize>,
}

#[derive(Debug, Clone, Copy)]
pub enum Listing {
    Changes,
    History,
    List,
}

/// An account that can be called for.
#[derive(Debug)]
pub struct Call<'a> {
    http: &'a Http,
    /// With the address as its last segment.
    url: Url,
    token: &'a str,
    page_size: usize,
}

#[derive(Debug, Deserialize)]
pub struct Page {
    pub folders: Vec<Folder>,
    pub gone_folders: Vec<String>,
    pub messages: Vec<Message>,
    pub vanished: Vec<Place>,
    pub present: Vec<Present>,
    pub cursor: String,
    pub is_last: bool,
}

#[derive(Debug, Deserialize)]
pub struct Folder {
    pub id: String,
    pub name: String,
    pub role: Option<String>,
    pub delimiter: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct Message {
    pub id: String,
    pub folder: String,
    pub uid: String,
    pub flags: Vec<String>,
    pub size: u64,
    pub received_at: Timestamp,
    pub revision: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct Place {
    pub folder: String,
    pub uid: String,
}

#[derive(Debug, Deserialize)]
pub struct Present {
    pub folder: String,
    pub uids: Vec<String>,
}

/// The lines between the messages of a fetch.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Frame {
    Message {
        message: String,
        status: u16,
        length: Option<u64>,
        received_at: Option<Timestamp>,
        revision: Option<String>,
    },
    /// That was this message.
    End { end: String },
    /// That was everything.
    Done { done: bool },
}

impl<'a> Call<'a> {
    pub fn new(http: &'a Http, account: &'a Account) -> Result<Self, ConnectorError> {
        let unusable = || protocol("the account's settings need an address under `url`");
        let settings: Settings = serde_json::from_str(&account.settings).map_err(|_| unusable())?;
        let mut url = Url::parse(&settings.url).map_err(|_| unusable())?;
        url.path_segments_mut().map_err(|()| unusable())?.pop_if_empty().extend(["scripted", &account.address]);
        let unusable =
            || ConnectorError::Unauthorized("the account has no token, or one that cannot be sent".to_owned());
        let token = account.secret.as_ref().ok_or_else(unusable)?.expose();
        if token.contains(char::is_control) {
            return Err(unusable());
        }
        Ok(Self { http, url, token, page_size: settings.page_size.unwrap_or(PAGE_SIZE) })
    }

    pub async fn page(
        &self,
        listing: Listing,
        cursors: &Cursors,
        since: Option<Timestamp>,
    ) -> Result<Page, ConnectorError> {
        let mut url = self.path(match listing {
            Listing::Changes => "changes",
            Listing::History => "history",
            Listing::List => "list",
        });
        url.query_pairs_mut().append_pair("limit", &self.page_size.to_string());
        if let Some(cursor) = cursors.get(SCOPE) {
            url.query_pairs_mut().append_pair("cursor", cursor);
        }
        if let Some(since) = since {
            url.query_pairs_mut().append_pair("since", &since.as_second().to_string());
        }
        self.http.json(self.authorized(self.http.client.get(url))).await
    }

    pub async fn fetch(&self, wanted: &[Wanted]) -> Result<Body, ConnectorError> {
        let ids: Vec<&str> = wanted.iter().map(|wanted| wanted.message.as_str()).collect();
        let body = serde_json::json!({ "ids": ids }).to_string();
        let request = self.http.client.post(self.path("fetch")).header(CONTENT_TYPE, "application/json").body(body);
        self.http.stream(self.authorized(request)).await
    }

    pub async fn check(&self) -> Result<(), ConnectorError> {
        let request = self.authorized(self.http.client.get(self.path("check")));
        self.http.json::<IgnoredAny>(request).await.map(drop)
    }

    fn path(&self, operation: &str) -> Url {
        let mut url = self.url.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.push(operation);
        }
        url
    }

    fn authorized(&self, request: RequestBuilder) -> RequestBuilder {
        request.bearer_auth(self.token)
    }
}
