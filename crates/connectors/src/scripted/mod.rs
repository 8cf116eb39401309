//! The scripted source of `sim`: for trials and tests, and the plainest example of a connector.

mod api;
mod fetch;
mod translate;

use domain::connector::{Account, Answer, Cursors, Page, Sink, Wanted, names};
use domain::{Connector, Provider};
use jiff::Timestamp;

use crate::http::Http;
use api::{Call, Listing};

#[derive(Debug)]
pub struct Scripted {
    http: Http,
}

impl Scripted {
    pub fn new(http: Http) -> Self {
        Self { http }
    }
}

impl Connector for Scripted {
    fn provider(&self) -> Provider {
        Provider::Scripted
    }

    fn changes<'a>(&'a self, account: &'a Account, cursors: &'a Cursors) -> Answer<'a, Page> {
        Box::pin(async move {
            let page = Call::new(&self.http, account)?.page(Listing::Changes, cursors, None).await?;
            translate::page(page, translate::Next::Follow)
        })
    }

    fn history<'a>(
        &'a self,
        account: &'a Account,
        cursors: &'a Cursors,
        _told: &'a Cursors,
        since: Option<Timestamp>,
    ) -> Answer<'a, Page> {
        Box::pin(async move {
            let page = Call::new(&self.http, account)?.page(Listing::History, cursors, since).await?;
            translate::page(page, translate::Next::EndOnce)
        })
    }

    fn list<'a>(
        &'a self,
        account: &'a Account,
        cursors: &'a Cursors,
        _told: Option<&'a Cursors>,
        _since: Option<Timestamp>,
    ) -> Answer<'a, Page> {
        Box::pin(async move {
            let page = Call::new(&self.http, account)?.page(Listing::List, cursors, None).await?;
            translate::page(page, translate::Next::EndOnce)
        })
    }

    fn fetch<'a>(&'a self, account: &'a Account, wanted: &'a [Wanted], sink: &'a mut dyn Sink) -> Answer<'a, ()> {
        Box::pin(async move {
            sink.room(&names(wanted)).await?;
            let body = Call::new(&self.http, account)?.fetch(wanted).await?;
            fetch::messages(body, wanted, sink).await
        })
    }

    fn check<'a>(&'a self, account: &'a Account) -> Answer<'a, ()> {
        Box::pin(async move { Call::new(&self.http, account)?.check().await })
    }
}
