//! Each fault of Google becomes the right error, and no truncated message is delivered.

use std::sync::Arc;
use std::time::Duration;

use domain::connector::{ConnectorAccount, Cursors, FetchRequest, ListingPage};
use domain::{Connector, ConnectorError, Secret, Sha256};
use providers::gmail::{Gmail, GoogleOAuth};
use providers::http::{HttpClient, HttpTimeouts};
use sim::google::{GoogleFault, GoogleFaultKind, GoogleRoute};
use testkit::contract::{ConnectorUnderTest, FetchedMessages, FixedToken, GmailUnderTest};
use testkit::simulated::google_settings;

use super::account::{ADDRESS, account, assert_private, connector, short_timeouts};

/// A Gmail account at which calls go wrong.
struct FaultyGmail {
    gmail: GmailUnderTest,
    connector: Gmail,
    account: ConnectorAccount,
}

impl FaultyGmail {
    async fn new(messages: usize) -> Self {
        let gmail = GmailUnderTest::new(messages, 1).await;
        // Without known folders there is nothing to list, and no call.
        let mut replica = gmail.replica();
        replica.follow().await.unwrap();
        Self { connector: gmail.connector_with(HttpTimeouts::default()), account: replica.account, gmail }
    }

    fn set_timeouts(&mut self, timeouts: HttpTimeouts) {
        self.connector = self.gmail.connector_with(timeouts);
    }

    fn set_fault(&self, fault: GoogleFault) {
        self.gmail.world.clear_faults();
        self.gmail.world.add_fault(fault);
    }

    async fn changes(&self) -> Result<ListingPage, ConnectorError> {
        self.connector.changes(&self.account, &Cursors::new()).await
    }

    /// Requests of all messages.
    fn requests(&self) -> Vec<FetchRequest> {
        let messages = self.gmail.world.truth(ADDRESS).unwrap().messages.into_keys();
        messages.map(|message| FetchRequest { message, placements: Vec::new(), size_bytes: None }).collect()
    }

    async fn fetch(&self) -> (FetchedMessages, Result<(), ConnectorError>) {
        let mut collected = FetchedMessages::default();
        let outcome = self.connector.fetch(&self.account, &self.requests(), &mut collected).await;
        (collected, outcome)
    }
}

fn is_unavailable(error: &ConnectorError) -> bool {
    matches!(error, ConnectorError::Unavailable(_))
}

fn is_throttled(error: &ConnectorError) -> bool {
    matches!(error, ConnectorError::Throttled { .. })
}

#[tokio::test]
async fn each_fault_is_the_right_error_on_every_route() {
    let mut faulty = FaultyGmail::new(10).await;
    #[expect(clippy::type_complexity, reason = "a table of cases")]
    let cases: [(GoogleFaultKind, fn(&ConnectorError) -> bool); 10] = [
        (GoogleFaultKind::Throttled { retry_after: Some(7) }, |e| {
            *e == ConnectorError::Throttled { retry_after: Some(Duration::from_secs(7)) }
        }),
        (GoogleFaultKind::Throttled { retry_after: None }, is_throttled),
        (GoogleFaultKind::UserRateLimited { retry_after: None }, is_throttled),
        (GoogleFaultKind::Unavailable { retry_after: None }, is_unavailable),
        (GoogleFaultKind::Internal, is_unavailable),
        (GoogleFaultKind::Unauthorized, |e| matches!(e, ConnectorError::Unauthorized(_))),
        (GoogleFaultKind::Hang { ms: 3_600_000 }, |e| {
            *e == ConnectorError::Unavailable("no response in time".to_owned())
        }),
        (GoogleFaultKind::Cut, is_unavailable),
        (GoogleFaultKind::CutBody, is_unavailable),
        (GoogleFaultKind::Garbage, |e| matches!(e, ConnectorError::Protocol(_))),
    ];
    for (kind, is_right) in cases {
        faulty.set_fault(GoogleFault::always(kind.clone()));
        let is_hanging = matches!(kind, GoogleFaultKind::Hang { .. });
        faulty.set_timeouts(if is_hanging { short_timeouts() } else { HttpTimeouts::default() });
        let (connector, account, none) = (&faulty.connector, &faulty.account, Cursors::new());
        let mut errors = vec![
            connector.changes(account, &none).await.unwrap_err(),
            connector.history(account, &none, &none, None).await.unwrap_err(),
            connector.list(account, &none, None, None).await.unwrap_err(),
        ];
        let (collected, fetched) = faulty.fetch().await;
        errors.push(fetched.unwrap_err());
        // A check has too short a response to be cut in the middle.
        if kind != GoogleFaultKind::CutBody {
            errors.push(connector.check(account).await.unwrap_err());
            assert!(collected.whole.is_empty());
        }

        for error in &errors {
            assert!(is_right(error), "{kind:?}: {error:?}");
            assert_private(error, &faulty.gmail.token);
        }
    }
    faulty.gmail.world.clear_faults();
    faulty.set_timeouts(HttpTimeouts::default());
    faulty.connector.check(&faulty.account).await.unwrap();
}

#[tokio::test]
async fn truncated_page_is_retryable() {
    let faulty = FaultyGmail::new(10).await;
    faulty.set_fault(GoogleFault::once(GoogleFaultKind::TruncatedJson));

    let first = faulty.changes().await;

    assert!(is_unavailable(&first.unwrap_err()));
    faulty.changes().await.unwrap();
}

#[tokio::test]
async fn wrong_token_is_unauthorized() {
    let mut faulty = FaultyGmail::new(1).await;
    for token in ["wrong", "with a\nnew line"] {
        faulty.account.access = Arc::new(FixedToken(token.to_owned()));

        let error = faulty.connector.check(&faulty.account).await.unwrap_err();

        let is_refused = matches!(error, ConnectorError::Unauthorized(_) | ConnectorError::Protocol(_));
        assert!(is_refused, "{token:?}: {error:?}");
        assert_private(&error, token);
    }
}

#[tokio::test]
async fn truncated_message_is_never_delivered() {
    let faulty = FaultyGmail::new(12).await;
    let truth = faulty.gmail.world.truth(ADDRESS).unwrap();
    for kind in [GoogleFaultKind::CutBody, GoogleFaultKind::TruncatedJson] {
        faulty.set_fault(GoogleFault::always(kind.clone()));

        let (collected, outcome) = faulty.fetch().await;

        assert!(outcome.is_err() || !collected.failed.is_empty(), "{kind:?}");
        for (message, (_, bytes)) in &collected.whole {
            assert_eq!(Sha256::of(bytes).hex(), truth.messages[message].sha256, "{kind:?}");
        }
        assert!(collected.whole.len() < truth.messages.len(), "{kind:?}");
    }
}

#[tokio::test]
async fn failing_message_does_not_affect_others() {
    let faulty = FaultyGmail::new(12).await;
    for kind in [GoogleFaultKind::NotFound, GoogleFaultKind::Internal] {
        let route = Some(GoogleRoute::MessagesGet);
        faulty.gmail.world.add_fault(GoogleFault { route, ..GoogleFault::once(kind) });
    }

    let (collected, outcome) = faulty.fetch().await;

    outcome.unwrap();
    let mut errors: Vec<&ConnectorError> = collected.failed.values().collect();
    errors.sort_by_key(|error| is_unavailable(error));
    assert_eq!((errors.len(), collected.whole.len()), (2, 10));
    assert!(*errors[0] == ConnectorError::Gone && is_unavailable(errors[1]), "{errors:?}");
}

#[tokio::test]
async fn slow_response_ends_at_its_timeout() {
    let mut faulty = FaultyGmail::new(12).await;
    faulty.set_fault(GoogleFault::once(GoogleFaultKind::Slow { bytes: 2_000, ms: 1 }));
    faulty.changes().await.unwrap();
    // Never silent for long, and never done: ten bytes a second.
    faulty.set_fault(GoogleFault::once(GoogleFaultKind::Slow { bytes: 1, ms: 100 }));
    faulty.set_timeouts(HttpTimeouts { stream: Duration::from_secs(2), ..HttpTimeouts::default() });

    let error = faulty.changes().await.unwrap_err();

    assert_eq!(error, ConnectorError::Unavailable("the response takes too long".to_owned()));
}

#[tokio::test]
async fn slow_token_ends_at_its_timeout() {
    let faulty = FaultyGmail::new(1).await;
    let refresh_token = faulty.gmail.world.grant(ADDRESS).unwrap().refresh_token.map(Secret::new);
    let account = ConnectorAccount { secret: refresh_token, ..faulty.account };
    faulty.gmail.world.add_fault(GoogleFault::once(GoogleFaultKind::Slow { bytes: 1, ms: 100 }));
    let timeouts = HttpTimeouts { response: Duration::from_secs(2), ..HttpTimeouts::default() };
    let oauth = GoogleOAuth::new(HttpClient::new(timeouts).unwrap(), google_settings(&faulty.gmail.server));

    let error = oauth.obtain_token(&account).await.unwrap_err();

    assert_eq!(error, ConnectorError::Unavailable("the response takes too long".to_owned()));
    oauth.obtain_token(&account).await.unwrap();
}

#[tokio::test]
async fn slow_fetch_ends_at_its_timeout() {
    let mut faulty = FaultyGmail::new(2).await;
    faulty.set_timeouts(HttpTimeouts { stream: Duration::from_millis(500), ..HttpTimeouts::default() });
    faulty.set_fault(GoogleFault::always(GoogleFaultKind::Slow { bytes: 200, ms: 50 }));

    let (collected, outcome) = faulty.fetch().await;

    assert!(is_unavailable(&outcome.unwrap_err()));
    assert!(collected.failed.len() <= 1 && collected.whole.len() < 2);
}

#[tokio::test]
async fn full_sink_ends_the_call() {
    let faulty = FaultyGmail::new(3).await;
    let mut collected = FetchedMessages::at_most(100);

    let outcome = faulty.connector.fetch(&faulty.account, &faulty.requests(), &mut collected).await;

    assert!(is_unavailable(&outcome.unwrap_err()));
    assert_eq!((collected.whole.len(), collected.failed.len()), (0, 1));
}

#[tokio::test]
async fn closed_port_is_unavailable() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let connector = connector(&format!("http://{free}"), HttpTimeouts::default());

    let error = connector.check(&account("token")).await.unwrap_err();

    assert!(is_unavailable(&error), "{error:?}");
    assert_private(&error, "token");
}
