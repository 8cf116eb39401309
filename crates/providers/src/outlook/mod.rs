//! The Outlook connector, by Microsoft Graph. `api` makes single calls and `batch` many at once; `changes` follows the
//! folders one by one by `delta`, `list` has the listings, `folders` the folder tree, `directory` users and groups.
//! `oauth` obtains tokens, by refresh token or for the app itself, `consent` is where people grant them; `push` reads
//! what Graph notifies, and `subscriptions` requests it. docs/providers/outlook.md has the facts that it relies on.

mod api;
mod app;
mod app_settings;
mod batch;
mod certificate;
mod changes;
mod consent;
mod declaration;
mod delta;
mod directory;
mod error_mapping;
mod fetch;
mod folders;
mod list;
mod message;
mod oauth;
mod push;
mod push_message;
pub mod subscriptions;
mod token_errors;

use domain::connector::{
    ConnectorAccount, ConnectorFuture, Cursors, FetchRequest, ListingPage, MessageSink, TokenGrant, Watch, WatchRequest,
};
use domain::{
    Clock, Connector, ConnectorError, DirectoryPeoplePage, GroupMembersPage, MailboxId, Provider, SystemClock,
};
use jiff::Timestamp;
use outbound::http::Url;
use outbound::limits::Limit;
use outbound::permits::PermitTable;

use crate::http::{HttpClient, HttpClientError};
use crate::oauth::address;
use api::GraphClient;
pub use app::{FOLDER, MicrosoftApp};
pub use app_settings::{GraphPush, MicrosoftSettings, is_directory};
pub use certificate::{Certificate, InvalidCertificate};
pub use declaration::DECLARATION;
pub use oauth::MicrosoftOAuth;
pub use push::GraphPushReader;
use subscriptions::Subscriptions;

#[derive(Debug)]
pub struct Outlook {
    http: HttpClient,
    oauth: MicrosoftOAuth,
    /// URL of Graph, with `/v1.0`.
    base: Url,
    push: Option<GraphPush>,
    /// Requests in flight, which Microsoft limits by mailbox.
    requests: PermitTable<MailboxId>,
}

impl Outlook {
    pub fn new(http: HttpClient, settings: &MicrosoftSettings) -> Result<Self, HttpClientError> {
        let base = Url::parse(&settings.graph_url).ok().filter(|url| !url.cannot_be_a_base());
        let mut base = base.ok_or_else(|| HttpClientError::new("providers.microsoft.graph_url is not a URL"))?;
        if let Ok(mut segments) = base.path_segments_mut() {
            segments.pop_if_empty().push("v1.0");
        }
        let oauth = MicrosoftOAuth::new(http.clone(), settings.clone());
        Ok(Self { http, oauth, base, push: settings.push.clone(), requests: PermitTable::new(Limit::MailboxRequests) })
    }

    /// Returns the Graph client for one account.
    fn client<'a>(&'a self, account: &'a ConnectorAccount) -> GraphClient<'a> {
        GraphClient { outlook: self, account }
    }
}

impl Connector for Outlook {
    fn provider(&self) -> Provider {
        Provider::Outlook
    }

    fn changes<'a>(&'a self, account: &'a ConnectorAccount, cursors: &'a Cursors) -> ConnectorFuture<'a, ListingPage> {
        Box::pin(changes::page(self.client(account), cursors))
    }

    fn history<'a>(
        &'a self,
        account: &'a ConnectorAccount,
        cursors: &'a Cursors,
        changes_cursors: &'a Cursors,
        since: Option<Timestamp>,
    ) -> ConnectorFuture<'a, ListingPage> {
        Box::pin(list::list_history(self.client(account), cursors, changes_cursors, since))
    }

    fn list<'a>(
        &'a self,
        account: &'a ConnectorAccount,
        cursors: &'a Cursors,
        _changes_cursors: Option<&'a Cursors>,
        _since: Option<Timestamp>,
    ) -> ConnectorFuture<'a, ListingPage> {
        Box::pin(list::list_all(self.client(account), cursors))
    }

    fn fetch<'a>(
        &'a self,
        account: &'a ConnectorAccount,
        wanted: &'a [FetchRequest],
        sink: &'a mut dyn MessageSink,
    ) -> ConnectorFuture<'a, ()> {
        Box::pin(fetch::fetch_messages(self.client(account), wanted, sink))
    }

    fn check<'a>(&'a self, account: &'a ConnectorAccount) -> ConnectorFuture<'a, ()> {
        Box::pin(async move {
            let client = self.client(account);
            // A token opens the mailbox of the person who consented, whatever address the mailbox was added under. A token
            // of the app itself is for the requested address, and may have no permission but mail.
            if !client.is_app_only() && !client.me().await?.has_address(&address(account)) {
                return Err(ConnectorError::Unauthorized("the consent is for another mailbox".to_owned()));
            }
            client.check_inbox().await
        })
    }

    fn obtain_token<'a>(&'a self, account: &'a ConnectorAccount) -> Option<ConnectorFuture<'a, TokenGrant>> {
        Some(Box::pin(self.oauth.obtain_token(account)))
    }

    fn watch<'a>(
        &'a self,
        account: &'a ConnectorAccount,
        request: &'a WatchRequest,
    ) -> Option<ConnectorFuture<'a, Watch>> {
        let push = self.push.as_ref()?;
        Some(Box::pin(async move {
            let client = self.client(account);
            let now = SystemClock.now();
            Subscriptions { caller: &client, push, resource: &client.resource(), address: &address(account), now }
                .watch(request)
                .await
        }))
    }

    fn unwatch<'a>(&'a self, account: &'a ConnectorAccount, name: Option<&'a str>) -> Option<ConnectorFuture<'a, ()>> {
        let push = self.push.as_ref()?;
        Some(Box::pin(async move {
            let client = self.client(account);
            let now = SystemClock.now();
            Subscriptions { caller: &client, push, resource: &client.resource(), address: &address(account), now }
                .unwatch(name)
                .await
        }))
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

    /// Requests the token of the app itself, as for mail.
    fn obtain_directory_token<'a>(&'a self, account: &'a ConnectorAccount) -> Option<ConnectorFuture<'a, TokenGrant>> {
        Some(Box::pin(self.oauth.obtain_token(account)))
    }
}
