//! Delta queries of a folder, a page at a time: each page ends with a link to the next one (`nextLink`), or with the link
//! for the next round (`deltaLink`).

use domain::ConnectorError;
use outbound::http::{StatusCode, Url};

use super::api::{Collection, GraphClient, GraphFailure};
use super::error_mapping::GraphOperation;
use super::message::{GraphMessage, MESSAGE_FIELDS};
use crate::http::{protocol, unavailable};

/// Messages in a page: Graph's maximum. They are small without their bodies.
pub const MAX_PAGE_SIZE: usize = 1_000;

/// Position in a folder's changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeltaCursor {
    /// `nextLink`: in the middle of a round. It only saves calls: a round can be followed again from the link that it
    /// began with, if it began with one.
    Next { link: String, round_start: Option<String> },
    /// `deltaLink`: for changes since the last round.
    Delta(String),
    /// Graph cannot list this folder's changes. The next sweep over all folders tries it again.
    Stuck,
}

impl DeltaCursor {
    /// Returns the cursor of a link in a round that has no other start than the first listing.
    pub fn next(link: impl Into<String>) -> Self {
        Self::Next { link: link.into(), round_start: None }
    }

    /// Keeps the start of the round that `before` is in, or that begins with it.
    pub fn after(self, before: Option<&Self>) -> Self {
        let round_start = match before {
            Some(Self::Delta(start)) => Some(start),
            Some(Self::Next { round_start, .. }) => round_start.as_ref(),
            Some(Self::Stuck) | None => None,
        };
        match self {
            Self::Next { link, .. } => Self::Next { link, round_start: round_start.cloned() },
            end => end,
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        match text.split_once(' ') {
            Some(("next", links)) => Some(match links.split_once(' ') {
                Some((link, start)) => Self::Next { link: link.to_owned(), round_start: Some(start.to_owned()) },
                None => Self::next(links),
            }),
            Some(("delta", link)) => Some(Self::Delta(link.to_owned())),
            _ => (text == "stuck").then_some(Self::Stuck),
        }
    }

    pub fn text(&self) -> String {
        match self {
            Self::Next { link, round_start: Some(start) } => format!("next {link} {start}"),
            Self::Next { link, round_start: None } => format!("next {link}"),
            Self::Delta(link) => format!("delta {link}"),
            Self::Stuck => "stuck".to_owned(),
        }
    }
}

/// A page of changed messages.
pub struct DeltaPage {
    pub messages: Vec<GraphMessage>,
    pub cursor: DeltaCursor,
}

/// Returns the URL of a folder's first round, which lists all its messages.
pub fn initial_url(client: GraphClient<'_>, folder: &str) -> Url {
    let mut url = client.url(&["mailFolders", folder, "messages", "delta"]);
    url.query_pairs_mut().append_pair("$select", MESSAGE_FIELDS);
    url
}

/// Returns the URL of a folder's first round with the newest messages first.
pub fn initial_url_newest_first(client: GraphClient<'_>, folder: &str) -> Url {
    let mut url = initial_url(client, folder);
    url.query_pairs_mut().append_pair("$orderby", "receivedDateTime desc");
    url
}

/// Reads a page of at most `size` messages.
pub async fn page(client: GraphClient<'_>, url: Url, size: usize) -> Result<DeltaPage, GraphFailure> {
    let page = match request_page(client, url.clone(), size).await {
        // Graph may have time for a smaller page.
        Err(GraphFailure {
            status: Some(StatusCode::GATEWAY_TIMEOUT), error: ConnectorError::Unavailable(_), ..
        }) => request_page(client, url, size / 10).await?,
        page => page?,
    };
    let cursor = match (page.next_link, page.delta_link) {
        (Some(link), None) => DeltaCursor::next(link),
        (None, Some(link)) => DeltaCursor::Delta(link),
        _ => return Err(protocol("a delta page has neither a nextLink nor a deltaLink").into()),
    };
    Ok(DeltaPage { messages: page.value, cursor })
}

async fn request_page(
    client: GraphClient<'_>,
    url: Url,
    size: usize,
) -> Result<Collection<GraphMessage>, GraphFailure> {
    client.get(GraphOperation::Delta, url, &format!("odata.maxpagesize={size}")).await
}

/// Returns the error for a sync state that Graph has only just given and lost.
pub fn sync_state_lost() -> ConnectorError {
    unavailable("Graph keeps losing the sync state")
}

/// Reads all messages of a folder because Graph has lost its sync state, from `location` if it named one. Returns `None`
/// if there are more than `max_messages`.
pub async fn read_whole_folder(
    client: GraphClient<'_>,
    folder: &str,
    location: Option<String>,
    max_messages: usize,
) -> Result<Option<DeltaPage>, ConnectorError> {
    let mut url = match location.as_deref().map(|link| client.link(link)) {
        Some(Ok(url)) => url,
        _ => initial_url(client, folder),
    };
    let mut all: Vec<GraphMessage> = Vec::new();
    loop {
        let next = page(client, url, MAX_PAGE_SIZE).await.map_err(|failure| match failure.error {
            ConnectorError::CursorExpired => sync_state_lost(),
            e => e,
        })?;
        all.extend(next.messages);
        match next.cursor {
            DeltaCursor::Next { .. } if all.len() > max_messages => return Ok(None),
            DeltaCursor::Next { link, .. } => url = client.link(&link)?,
            cursor => return Ok(Some(DeltaPage { messages: all, cursor })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_survives_its_text() {
        let begun = DeltaCursor::Delta("https://graph.test/a?$deltatoken=1".to_owned());
        let next = DeltaCursor::next("https://graph.test/a?$skiptoken=2");

        for cursor in [begun.clone(), next.clone(), next.clone().after(Some(&begun)), DeltaCursor::Stuck] {
            assert_eq!(DeltaCursor::parse(&cursor.text()), Some(cursor));
        }
        assert_eq!(next.clone().after(Some(&next)), next);
    }
}
