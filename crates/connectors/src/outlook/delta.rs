//! What has changed in a folder, a page at a time: Graph gives a link for the next page, or one for the next time.

use domain::ConnectorError;
use reqwest::{StatusCode, Url};

use super::api::{Call, Collection, Refusal};
use super::message::{FIELDS, Message};
use super::refusal::What;
use crate::http::{protocol, unavailable};

/// Messages in a page: the most that Graph gives. They are small without their texts.
pub const PAGE: usize = 1_000;

/// Where a folder's changes go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum At {
    /// In the middle of a round.
    Next(String),
    /// When something has happened.
    Delta(String),
    /// Graph does not tell of this folder's changes. It is asked again with the next look at everything.
    Stuck,
}

impl At {
    pub fn read(text: &str) -> Option<Self> {
        match text.split_once(' ') {
            Some(("next", link)) => Some(Self::Next(link.to_owned())),
            Some(("delta", link)) => Some(Self::Delta(link.to_owned())),
            _ => (text == "stuck").then_some(Self::Stuck),
        }
    }

    pub fn text(&self) -> String {
        match self {
            Self::Next(link) => format!("next {link}"),
            Self::Delta(link) => format!("delta {link}"),
            Self::Stuck => "stuck".to_owned(),
        }
    }
}

pub struct Told {
    pub messages: Vec<Message>,
    pub at: At,
}

/// Of everything in a folder, from the beginning.
pub fn beginning(call: Call<'_>, folder: &str) -> Url {
    let mut url = call.url(&["mailFolders", folder, "messages", "delta"]);
    url.query_pairs_mut().append_pair("$select", FIELDS);
    url
}

/// The same, newest first.
pub fn newest_first(call: Call<'_>, folder: &str) -> Url {
    let mut url = beginning(call, folder);
    url.query_pairs_mut().append_pair("$orderby", "receivedDateTime desc");
    url
}

pub async fn page(call: Call<'_>, url: Url, size: usize) -> Result<Told, Refusal> {
    let ask = async |size: usize| {
        call.get::<Collection<Message>>(What::Delta, url.clone(), &format!("odata.maxpagesize={size}")).await
    };
    let page = match ask(size).await {
        // What takes Graph too long, it may have time for in part.
        Err(Refusal { status: Some(StatusCode::GATEWAY_TIMEOUT), error: ConnectorError::Unavailable(_), .. }) => {
            ask(size / 10).await?
        }
        page => page?,
    };
    let at = match (page.next_link, page.delta_link) {
        (Some(link), None) => At::Next(link),
        (None, Some(link)) => At::Delta(link),
        _ => return Err(protocol("a page that does not say how it goes on").into()),
    };
    Ok(Told { messages: page.value, at })
}

/// What it has only just told.
pub fn forgets() -> ConnectorError {
    unavailable("Graph forgets where we are")
}

/// Everything that is in a folder, at once, because Graph has forgotten what it told us before. `None`: that is too much.
pub async fn anew(
    call: Call<'_>,
    folder: &str,
    location: Option<String>,
    most: usize,
) -> Result<Option<Told>, ConnectorError> {
    let mut url = match location.as_deref().map(|link| call.link(link)) {
        Some(Ok(url)) => url,
        _ => beginning(call, folder),
    };
    let mut all: Vec<Message> = Vec::new();
    loop {
        let told = page(call, url, PAGE).await.map_err(|refusal| match refusal.error {
            ConnectorError::CursorExpired => forgets(),
            e => e,
        })?;
        all.extend(told.messages);
        match told.at {
            At::Next(_) if all.len() > most => return Ok(None),
            At::Next(link) => url = call.link(&link)?,
            at => return Ok(Some(Told { messages: all, at })),
        }
    }
}
