//! Outlook by Microsoft Graph. `api` makes the calls, `batch` many of them at once; `changes` follows the folders one by
//! one (`delta`), `list` tells what is there, `folders` what the folders are. The facts that this relies on are in
//! docs/providers/outlook.md.

mod api;
mod batch;
mod changes;
mod delta;
mod fetch;
mod folders;
mod lanes;
mod list;
mod message;
mod refusal;
pub mod subscriptions;

use domain::connector::{Account, Answer, Cursors, Grant, Page, Sink, Wanted, Watch, WatchWish};
use domain::{Clock, Connector, ConnectorError, Provider, SystemClock};
use jiff::Timestamp;
use reqwest::Url;

use crate::http::{Http, NoClient};
use crate::microsoft::{GraphPush, MicrosoftOAuth, MicrosoftSettings};
use api::Call;
use lanes::Lanes;
use subscriptions::Subscriptions;

#[derive(Debug)]
pub struct Outlook {
    http: Http,
    oauth: MicrosoftOAuth,
    /// With `/v1.0`.
    base: Url,
    push: Option<GraphPush>,
    lanes: Lanes,
}

impl Outlook {
    pub fn new(http: Http, settings: &MicrosoftSettings) -> Result<Self, NoClient> {
        let base = Url::parse(&settings.graph_url).ok().filter(|url| !url.cannot_be_a_base());
        let mut base = base.ok_or_else(|| NoClient::new("providers.microsoft.graph_url is no address"))?;
        if let Ok(mut segments) = base.path_segments_mut() {
            segments.pop_if_empty().push("v1.0");
        }
        let oauth = MicrosoftOAuth::new(http.clone(), settings.clone());
        Ok(Self { http, oauth, base, push: settings.push.clone(), lanes: Lanes::default() })
    }

    fn call<'a>(&'a self, account: &'a Account) -> Call<'a> {
        Call { outlook: self, account }
    }
}

impl Connector for Outlook {
    fn provider(&self) -> Provider {
        Provider::Outlook
    }

    fn changes<'a>(&'a self, account: &'a Account, cursors: &'a Cursors) -> Answer<'a, Page> {
        Box::pin(changes::page(self.call(account), cursors))
    }

    fn history<'a>(
        &'a self,
        account: &'a Account,
        cursors: &'a Cursors,
        told: &'a Cursors,
        since: Option<Timestamp>,
    ) -> Answer<'a, Page> {
        Box::pin(list::history(self.call(account), cursors, told, since))
    }

    fn list<'a>(
        &'a self,
        account: &'a Account,
        cursors: &'a Cursors,
        _told: Option<&'a Cursors>,
        _since: Option<Timestamp>,
    ) -> Answer<'a, Page> {
        Box::pin(list::everything(self.call(account), cursors))
    }

    fn fetch<'a>(&'a self, account: &'a Account, wanted: &'a [Wanted], sink: &'a mut dyn Sink) -> Answer<'a, ()> {
        Box::pin(fetch::messages(self.call(account), wanted, sink))
    }

    fn check<'a>(&'a self, account: &'a Account) -> Answer<'a, ()> {
        Box::pin(async move {
            let call = self.call(account);
            // A token opens the mailbox of whoever consented, whatever address it was added under. One of our own is for
            // the address that we ask for, and may not be good for anything but mail.
            if !call.is_app_only() && !call.me().await?.is_called(&account.address) {
                return Err(ConnectorError::Unauthorized("what opens it is for another mailbox".to_owned()));
            }
            call.inbox().await
        })
    }

    fn grant<'a>(&'a self, account: &'a Account) -> Option<Answer<'a, Grant>> {
        Some(Box::pin(self.oauth.grant(account)))
    }

    fn watch<'a>(&'a self, account: &'a Account, wish: &'a WatchWish) -> Option<Answer<'a, Watch>> {
        let push = self.push.as_ref()?;
        Some(Box::pin(async move {
            let call = self.call(account);
            let now = SystemClock.now();
            Subscriptions { caller: &call, push, resource: &call.resource(), address: &account.address, now }
                .watch(wish)
                .await
        }))
    }

    fn unwatch<'a>(&'a self, account: &'a Account, name: Option<&'a str>) -> Option<Answer<'a, ()>> {
        let push = self.push.as_ref()?;
        Some(Box::pin(async move {
            let call = self.call(account);
            let now = SystemClock.now();
            Subscriptions { caller: &call, push, resource: &call.resource(), address: &account.address, now }
                .unwatch(name)
                .await
        }))
    }
}
