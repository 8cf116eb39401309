//! Gmail by its own API. `api` makes the calls, `batch` many of them at once, `changes` and
//! `list` are the listings, `labels` turns labels into folders, `directory` tells who there is. The facts that this relies on are in docs/providers/gmail.md.

mod api;
mod batch;
mod changes;
mod directory;
mod fetch;
mod labels;
mod list;
mod pace;
mod refusal;

use domain::connector::{Account, Answer, Cursors, Grant, Page, Sink, Wanted, Watch, WatchWish};
use domain::{Connector, ConnectorError, MembersPage, PeoplePage, Provider};
use jiff::Timestamp;
use reqwest::Url;

use crate::google::{GoogleOAuth, GoogleSettings};
use crate::http::{Http, NoClient, protocol};
use crate::oauth::user;
use api::Call;
pub use labels::places;
use pace::Paces;

#[derive(Debug)]
pub struct Gmail {
    http: Http,
    oauth: GoogleOAuth,
    /// Before `/gmail/v1`.
    base: Url,
    batch_url: Url,
    /// Before `/admin/directory/v1`.
    directory: Url,
    topic: Option<String>,
    paces: Paces,
}

impl Gmail {
    pub fn new(http: Http, settings: &GoogleSettings) -> Result<Self, NoClient> {
        let base = self::base(&settings.api_url, "providers.google.api_url is no address")?;
        let directory = self::base(&settings.directory_url, "providers.google.directory_url is no address")?;
        let mut batch_url = base.clone();
        if let Ok(mut segments) = batch_url.path_segments_mut() {
            segments.extend(["batch", "gmail", "v1"]);
        }
        let paces = Paces::new(settings.largest_batch());
        let oauth = GoogleOAuth::new(http.clone(), settings.clone());
        Ok(Self { http, oauth, base, batch_url, directory, topic: settings.topic.clone(), paces })
    }

    fn call<'a>(&'a self, account: &'a Account) -> Call<'a> {
        Call { gmail: self, account }
    }

    fn batch_size(&self, account: &Account) -> usize {
        self.paces.size(account.mailbox)
    }

    fn went_well(&self, account: &Account) {
        self.paces.went_well(account.mailbox);
    }

    /// How long to wait, where Google does not say.
    fn backoff(&self, account: &Account, e: ConnectorError) -> ConnectorError {
        self.paces.refused(account.mailbox, e)
    }
}

impl Connector for Gmail {
    fn provider(&self) -> Provider {
        Provider::Gmail
    }

    fn changes<'a>(&'a self, account: &'a Account, cursors: &'a Cursors) -> Answer<'a, Page> {
        Box::pin(async move {
            match cursors.get(changes::SCOPE) {
                Some(cursor) => changes::page(self.call(account), cursor).await,
                None => changes::begin(self.call(account)).await,
            }
        })
    }

    fn history<'a>(
        &'a self,
        account: &'a Account,
        cursors: &'a Cursors,
        _told: &'a Cursors,
        since: Option<Timestamp>,
    ) -> Answer<'a, Page> {
        // What came since the changes were looked at last is named here, too; the changes tell when it goes.
        Box::pin(list::history(self.call(account), cursors, since))
    }

    fn list<'a>(
        &'a self,
        account: &'a Account,
        cursors: &'a Cursors,
        told: Option<&'a Cursors>,
        since: Option<Timestamp>,
    ) -> Answer<'a, Page> {
        match told {
            Some(_) => Box::pin(list::everything(self.call(account), cursors, since)),
            None => Box::pin(list::places(self.call(account), cursors, since)),
        }
    }

    fn fetch<'a>(&'a self, account: &'a Account, wanted: &'a [Wanted], sink: &'a mut dyn Sink) -> Answer<'a, ()> {
        Box::pin(fetch::messages(self.call(account), wanted, sink))
    }

    fn check<'a>(&'a self, account: &'a Account) -> Answer<'a, ()> {
        Box::pin(async move {
            let profile = self.call(account).profile().await?;
            match domain::address::canonical(&profile.email_address) {
                // A token opens the mailbox of whoever consented, whatever address it was added under.
                Some(opened) if opened != user(account) => {
                    Err(ConnectorError::Unauthorized("what opens it is for another mailbox".to_owned()))
                }
                _ => Ok(()),
            }
        })
    }

    fn grant<'a>(&'a self, account: &'a Account) -> Option<Answer<'a, Grant>> {
        Some(Box::pin(self.oauth.grant(account)))
    }

    fn revoke<'a>(&'a self, account: &'a Account) -> Option<Answer<'a, ()>> {
        Some(Box::pin(async move {
            match &account.secret {
                Some(secret) => self.oauth.revoke(secret).await,
                // Opened by our app, which has nothing of it that could be forgotten.
                None => Ok(()),
            }
        }))
    }

    fn watch<'a>(&'a self, account: &'a Account, _wish: &'a WatchWish) -> Option<Answer<'a, Watch>> {
        let topic = self.topic.as_deref()?;
        Some(Box::pin(async move {
            let watched = self.call(account).watch(topic).await?;
            let expires_at =
                watched.expiration.parse().ok().and_then(|millis| Timestamp::from_millisecond(millis).ok());
            Ok(Watch { expires_at: expires_at.ok_or_else(|| protocol("a time that is none"))?, name: None })
        }))
    }

    fn unwatch<'a>(&'a self, account: &'a Account, _name: Option<&'a str>) -> Option<Answer<'a, ()>> {
        self.topic.as_ref()?;
        Some(Box::pin(self.call(account).stop()))
    }

    fn users<'a>(&'a self, account: &'a Account, cursors: &'a Cursors) -> Option<Answer<'a, PeoplePage>> {
        Some(Box::pin(directory::users(self.call(account), cursors)))
    }

    fn members<'a>(
        &'a self,
        account: &'a Account,
        group: &'a str,
        cursors: &'a Cursors,
    ) -> Option<Answer<'a, MembersPage>> {
        Some(Box::pin(directory::members(self.call(account), group, cursors)))
    }

    fn directory_grant<'a>(&'a self, account: &'a Account) -> Option<Answer<'a, Grant>> {
        Some(Box::pin(self.oauth.directory_grant(account)))
    }
}

/// An address that others begin with.
fn base(text: &str, why_not: &str) -> Result<Url, NoClient> {
    let url = Url::parse(text).ok().filter(|url| !url.cannot_be_a_base());
    let mut url = url.ok_or_else(|| NoClient::new(why_not))?;
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty();
    }
    Ok(url)
}

impl Gmail {
    /// Of a message, for a call within a batch.
    fn message_path(&self, id: &str, format: &str) -> String {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.extend(["gmail", "v1", "users", "me", "messages", id]);
        }
        format!("{}?format={format}", url.path())
    }
}
