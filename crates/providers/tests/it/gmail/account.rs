//! A Gmail account whose calls go to a given address.

use std::sync::Arc;
use std::time::Duration;

use domain::ConnectorError;
use domain::connector::ConnectorAccount;
use providers::gmail::{Gmail, GoogleSettings};
use providers::http::{HttpClient, HttpTimeouts};
use testkit::contract::{self, FixedToken, GmailUnderTest};

pub const ADDRESS: &str = GmailUnderTest::ADDRESS;

pub fn connector(url: &str, timeouts: HttpTimeouts) -> Gmail {
    let settings = GoogleSettings { api_url: url.to_owned(), ..GoogleSettings::default() };
    Gmail::new(HttpClient::new(timeouts).unwrap(), &settings).unwrap()
}

pub fn account(token: &str) -> ConnectorAccount {
    contract::account(ADDRESS, "{}".to_owned(), None, Arc::new(FixedToken(token.to_owned())))
}

/// For what hangs on purpose, and nothing else: on a busy machine an honest response may take as long.
pub fn short_timeouts() -> HttpTimeouts {
    let (response, stream) = (Duration::from_secs(2), Duration::from_secs(20));
    HttpTimeouts { read: Duration::from_millis(300), response, stream, ..HttpTimeouts::default() }
}

/// Fails if an error, as it goes into rows and logs, tells where or for whom the call was.
pub fn assert_private(error: &ConnectorError, token: &str) {
    let text = format!("{error} {error:?}");
    for private in [ADDRESS, token, "ann@", "sim.example", "127.0.0.1", "http:"] {
        assert!(!text.contains(private), "{text}");
    }
}
