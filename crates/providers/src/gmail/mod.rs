//! The Gmail connector, by the Gmail API. `api` makes single calls and `batch` many at once; `changes` and `list` are the
//! listings, `labels` maps labels to folders, `directory` lists users and groups. `oauth` obtains tokens by refresh token
//! or with a `service_account`, `consent` is where people grant them; `push` reads what Google pushes. docs/providers/gmail.md has the
//! facts that it relies on.

mod api;
mod app;
mod app_settings;
mod batch;
mod batch_receiver;
mod batch_sizing;
mod changes;
mod consent;
mod declaration;
mod directory;
mod error_mapping;
mod labels;
mod list;
mod oauth;
mod push;
mod service_account;

use domain::connector::{
    ConnectorAccount, ConnectorFuture, Cursors, FetchRequest, ListingPage, MessageSink, TokenGrant, Watch,
    WatchRequest, message_ids,
};
use domain::{Connector, ConnectorError, DirectoryPeoplePage, GroupMembersPage, Provider};
use jiff::Timestamp;
use outbound::http::Url;

use crate::http::{HttpClient, HttpClientError, protocol};
use crate::oauth::user;
use api::GmailClient;
pub use app::{FOLDER, GoogleApp};
pub use app_settings::GoogleSettings;
use batch_receiver::BatchReceiver;
use batch_sizing::BatchSizer;
pub use declaration::DECLARATION;
pub use labels::placements;
pub use oauth::GoogleOAuth;
pub use push::{GmailPushReader, GmailPushSettings};
pub use service_account::{InvalidServiceAccount, ServiceAccount};

#[derive(Debug)]
pub struct Gmail {
    http: HttpClient,
    oauth: GoogleOAuth,
    /// URL before `/gmail/v1`.
    base: Url,
    batch_url: Url,
    /// URL before `/admin/directory/v1`.
    directory: Url,
    topic: Option<String>,
    batch_sizer: BatchSizer,
}

impl Gmail {
    pub fn new(http: HttpClient, settings: &GoogleSettings) -> Result<Self, HttpClientError> {
        let base = base_url(&settings.api_url, "providers.google.api_url is not a URL")?;
        let directory = base_url(&settings.directory_url, "providers.google.directory_url is not a URL")?;
        let mut batch_url = base.clone();
        if let Ok(mut segments) = batch_url.path_segments_mut() {
            segments.extend(["batch", "gmail", "v1"]);
        }
        let batch_sizer = BatchSizer::new(settings.max_batch_size());
        let oauth = GoogleOAuth::new(http.clone(), settings.clone());
        Ok(Self { http, oauth, base, batch_url, directory, topic: settings.topic.clone(), batch_sizer })
    }

    /// Returns the API client for one account.
    fn client<'a>(&'a self, account: &'a ConnectorAccount) -> GmailClient<'a> {
        GmailClient { gmail: self, account }
    }
}

impl Connector for Gmail {
    fn provider(&self) -> Provider {
        Provider::Gmail
    }

    fn changes<'a>(&'a self, account: &'a ConnectorAccount, cursors: &'a Cursors) -> ConnectorFuture<'a, ListingPage> {
        Box::pin(async move {
            match cursors.get(changes::SCOPE) {
                Some(cursor) => changes::page(self.client(account), cursor).await,
                None => changes::start(self.client(account)).await,
            }
        })
    }

    fn history<'a>(
        &'a self,
        account: &'a ConnectorAccount,
        cursors: &'a Cursors,
        _changes_cursors: &'a Cursors,
        since: Option<Timestamp>,
    ) -> ConnectorFuture<'a, ListingPage> {
        // Messages that arrived after the last changes are named here, too; the changes report their removal.
        Box::pin(list::list_history(self.client(account), cursors, since))
    }

    fn list<'a>(
        &'a self,
        account: &'a ConnectorAccount,
        cursors: &'a Cursors,
        changes_cursors: Option<&'a Cursors>,
        since: Option<Timestamp>,
    ) -> ConnectorFuture<'a, ListingPage> {
        match changes_cursors {
            Some(_) => Box::pin(list::list_all(self.client(account), cursors, since)),
            None => Box::pin(list::list_placements(self.client(account), cursors, since)),
        }
    }

    fn fetch<'a>(
        &'a self,
        account: &'a ConnectorAccount,
        wanted: &'a [FetchRequest],
        sink: &'a mut dyn MessageSink,
    ) -> ConnectorFuture<'a, ()> {
        Box::pin(async move {
            let receiver = BatchReceiver::Bytes { sink, is_empty: true };
            batch::get_messages(self.client(account), &message_ids(wanted), receiver).await
        })
    }

    fn check<'a>(&'a self, account: &'a ConnectorAccount) -> ConnectorFuture<'a, ()> {
        Box::pin(async move {
            let profile = self.client(account).profile().await?;
            match domain::address::canonical(&profile.email_address) {
                // A token opens the mailbox of the person who consented, whatever address the mailbox was added under.
                Some(opened) if opened != user(account) => {
                    Err(ConnectorError::Unauthorized("the consent is for another mailbox".to_owned()))
                }
                _ => Ok(()),
            }
        })
    }

    fn obtain_token<'a>(&'a self, account: &'a ConnectorAccount) -> Option<ConnectorFuture<'a, TokenGrant>> {
        Some(Box::pin(self.oauth.obtain_token(account)))
    }

    fn revoke<'a>(&'a self, account: &'a ConnectorAccount) -> Option<ConnectorFuture<'a, ()>> {
        Some(Box::pin(async move {
            match &account.secret {
                Some(secret) => self.oauth.revoke(secret).await,
                // Opened by the service account: there is no token to revoke.
                None => Ok(()),
            }
        }))
    }

    fn watch<'a>(
        &'a self,
        account: &'a ConnectorAccount,
        _request: &'a WatchRequest,
    ) -> Option<ConnectorFuture<'a, Watch>> {
        let topic = self.topic.as_deref()?;
        Some(Box::pin(async move {
            let watched = self.client(account).watch(topic).await?;
            let expires_at =
                watched.expiration.parse().ok().and_then(|millis| Timestamp::from_millisecond(millis).ok());
            Ok(Watch {
                expires_at: expires_at.ok_or_else(|| protocol("a watch expiration is not a time"))?,
                subscription_id: None,
            })
        }))
    }

    fn unwatch<'a>(&'a self, account: &'a ConnectorAccount, _name: Option<&'a str>) -> Option<ConnectorFuture<'a, ()>> {
        self.topic.as_ref()?;
        Some(Box::pin(self.client(account).stop()))
    }

    fn list_users<'a>(
        &'a self,
        account: &'a ConnectorAccount,
        cursors: &'a Cursors,
    ) -> Option<ConnectorFuture<'a, DirectoryPeoplePage>> {
        Some(Box::pin(directory::users(self.client(account), cursors)))
    }

    fn list_members<'a>(
        &'a self,
        account: &'a ConnectorAccount,
        group: &'a str,
        cursors: &'a Cursors,
    ) -> Option<ConnectorFuture<'a, GroupMembersPage>> {
        Some(Box::pin(directory::members(self.client(account), group, cursors)))
    }

    fn obtain_directory_token<'a>(&'a self, account: &'a ConnectorAccount) -> Option<ConnectorFuture<'a, TokenGrant>> {
        Some(Box::pin(self.oauth.obtain_directory_token(account)))
    }
}

/// Parses a URL to which paths are appended.
fn base_url(text: &str, error: &str) -> Result<Url, HttpClientError> {
    let url = Url::parse(text).ok().filter(|url| !url.cannot_be_a_base());
    let mut url = url.ok_or_else(|| HttpClientError::new(error))?;
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty();
    }
    Ok(url)
}
