//! Each fault is the error that makes the engine do the right thing, and no short message counts as one.

use std::time::Duration;

use connectors::http::Deadlines;
use domain::connector::{Cursors, Wanted};
use domain::{Connector, ConnectorError, Secret};
use sim::scripted::{Fault, Kind, MessageId, Operation};

use crate::model::{Model, Taken};
use crate::place::{ADDRESS, Place, assert_says_nothing, connector, impatient};

async fn wanted(place: &Place) -> Vec<Wanted> {
    let (mut model, mut cursors) = (Model::default(), Cursors::new());
    model.apply(&place.connector.list(&place.account, &cursors, None, None).await.unwrap(), &mut cursors);
    model.wanted()
}

async fn fetch(place: &Place, wanted: &[Wanted]) -> (Taken, Result<(), ConnectorError>) {
    let mut taken = Taken::default();
    let outcome = place.connector.fetch(&place.account, wanted, &mut taken).await;
    (taken, outcome)
}

fn is_unavailable(error: &ConnectorError) -> bool {
    matches!(error, ConnectorError::Unavailable(_))
}

#[tokio::test]
async fn every_fault_of_an_answer_is_the_right_error_on_every_route() {
    let mut place = Place::new(1, 10).await;
    let wanted = wanted(&place).await;
    let is_protocol = |e: &ConnectorError| matches!(e, ConnectorError::Protocol(_));
    let is_throttled =
        |e: &ConnectorError| *e == ConnectorError::Throttled { retry_after: Some(Duration::from_secs(7)) };
    type Check = fn(&ConnectorError) -> bool;
    let cases: [(Kind, Check); 8] = [
        (Kind::Throttled { retry_after: Some(7) }, is_throttled),
        (Kind::Throttled { retry_after: None }, |e| *e == ConnectorError::Throttled { retry_after: None }),
        (Kind::Unavailable, is_unavailable),
        (Kind::Unauthorized, |e| matches!(e, ConnectorError::Unauthorized(_))),
        (Kind::Hang { ms: 3_600_000 }, |e| *e == ConnectorError::Unavailable("no answer in time".to_owned())),
        (Kind::Cut, is_unavailable),
        (Kind::CutBody, is_unavailable),
        (Kind::Garbage, is_protocol),
    ];

    for (kind, is_right) in cases {
        place.world.clear_faults();
        place.world.add_fault(Fault::always(kind.clone()));
        let is_hanging = matches!(kind, Kind::Hang { .. });
        place.connector = connector(if is_hanging { impatient() } else { Deadlines::default() });
        let (connector, account, none) = (&place.connector, &place.account, Cursors::new());
        let mut errors = vec![
            connector.changes(account, &none).await.unwrap_err(),
            connector.history(account, &none, &none, None).await.unwrap_err(),
            connector.list(account, &none, None, None).await.unwrap_err(),
        ];
        let (taken, fetched) = fetch(&place, &wanted).await;
        errors.push(fetched.unwrap_err());
        // A check has too short an answer to be cut in the middle.
        if kind != Kind::CutBody {
            errors.push(connector.check(account).await.unwrap_err());
            assert!(taken.whole.is_empty());
        }

        for error in &errors {
            assert!(is_right(error), "{kind:?}: {error:?}");
            assert_says_nothing(error);
        }
    }
    place.world.clear_faults();
    place.connector.check(&place.account).await.unwrap();
}

#[tokio::test]
async fn half_a_page_is_tried_again() {
    let place = Place::new(1, 10).await;
    place.world.add_fault(Fault::once(Kind::TruncatedJson));

    let first = place.changes().await;

    assert!(is_unavailable(&first.unwrap_err()));
    place.changes().await.unwrap();
}

#[tokio::test]
async fn expired_cursors_are_told() {
    let place = Place::new(1, 10).await;
    let cursors = place.changes().await.unwrap().cursors;
    let expire = Operation::ExpireCursors { listings: false };
    let now = "2026-02-01T12:00:00Z".parse().unwrap();
    place.world.with(ADDRESS, |account, letters| account.apply(expire, letters, now)).unwrap().unwrap();

    let error = place.connector.changes(&place.account, &cursors).await.unwrap_err();

    assert_eq!(error, ConnectorError::CursorExpired);
    assert!(place.changes().await.is_ok());
}

#[tokio::test]
async fn a_wrong_token_or_none_is_unauthorized() {
    let mut place = Place::new(1, 1).await;
    for secret in [Some("wrong"), Some("with a\nnew line"), None] {
        place.account.secret = secret.map(|secret| Secret::new(secret.to_owned()));

        let error = place.connector.check(&place.account).await.unwrap_err();

        assert!(matches!(error, ConnectorError::Unauthorized(_)), "{secret:?}: {error:?}");
        assert_says_nothing(&error);
    }
}

#[tokio::test]
async fn a_message_that_is_shorter_than_announced_is_never_handed_over() {
    let place = Place::new(2, 12).await;
    let truth = place.world.truth(ADDRESS).unwrap();
    let wanted = wanted(&place).await;
    for kind in [Kind::ShortMessage { goes_on: false }, Kind::ShortMessage { goes_on: true }, Kind::CutBody] {
        place.world.clear_faults();
        place.world.add_fault(Fault::always(kind.clone()));

        let (taken, outcome) = fetch(&place, &wanted).await;

        assert!(is_unavailable(&outcome.unwrap_err()), "{kind:?}");
        assert_eq!(taken.failed.len(), 1, "{kind:?}: the one that was under way");
        let places: Vec<_> = truth.folders.values().flat_map(|folder| &folder.places).collect();
        for (message, (_, bytes)) in &taken.whole {
            let place = places.iter().find(|place| place.message == *message).unwrap();
            assert_eq!(domain::Sha256::of(bytes).hex(), place.sha256, "{kind:?}");
        }
        assert!(taken.whole.len() < wanted.len());
    }
}

#[tokio::test]
async fn one_message_that_is_gone_or_fails_leaves_the_others_alone() {
    let place = Place::new(2, 12).await;
    let wanted = wanted(&place).await;
    let failing = MessageId::parse(&wanted[3].message).unwrap();
    place.world.add_fault(Fault::always(Kind::Gone));
    place.world.add_fault(Fault::always(Kind::FailingMessage { message: failing, status: 500 }));

    let (taken, outcome) = fetch(&place, &wanted).await;

    outcome.unwrap();
    assert_eq!(taken.failed[&wanted[0].message], ConnectorError::Gone);
    assert!(is_unavailable(&taken.failed[&wanted[3].message]));
    assert_eq!((taken.whole.len(), taken.failed.len()), (10, 2));
}

#[tokio::test]
async fn a_message_deleted_after_it_was_listed_is_gone() {
    let place = Place::new(2, 3).await;
    let wanted = wanted(&place).await;
    let at = &wanted[1].places[0];
    let delete = format!(r#"{{"op":"delete","folder":"{}","uid":"{}"}}"#, at.folder, at.uid);
    let delete: Operation = serde_json::from_str(&delete).unwrap();
    let now = "2026-02-01T12:00:00Z".parse().unwrap();
    place.world.with(ADDRESS, |account, letters| account.apply(delete, letters, now)).unwrap().unwrap();

    let (taken, outcome) = fetch(&place, &wanted).await;

    outcome.unwrap();
    assert_eq!(taken.failed[&wanted[1].message], ConnectorError::Gone);
    assert_eq!(taken.whole.len(), 2);
}

#[tokio::test]
async fn slow_bytes_are_waited_for_but_not_for_ever() {
    let mut place = Place::new(2, 12).await;
    place.world.add_fault(Fault::once(Kind::Slow { bytes: 2_000, ms: 1 }));
    place.connector.list(&place.account, &Cursors::new(), None, None).await.unwrap();
    // Never silent for long, and never done: ten bytes a second.
    place.world.add_fault(Fault::once(Kind::Slow { bytes: 1, ms: 100 }));
    place.connector = connector(Deadlines { answer: Duration::from_secs(2), ..Deadlines::default() });

    let error = place.connector.list(&place.account, &Cursors::new(), None, None).await.unwrap_err();

    assert_eq!(error, ConnectorError::Unavailable("an answer takes too long".to_owned()));
}

#[tokio::test]
async fn a_fetch_that_drips_ends_at_its_deadline_with_the_message_failed() {
    let deadlines = Deadlines { stream: Duration::from_millis(500), ..Deadlines::default() };
    let place = Place::with(2, 2, deadlines).await;
    let wanted = wanted(&place).await;
    place.world.add_fault(Fault::always(Kind::Slow { bytes: 200, ms: 50 }));

    let (taken, outcome) = fetch(&place, &wanted).await;

    assert!(is_unavailable(&outcome.unwrap_err()));
    assert!(taken.failed.len() <= 1 && taken.whole.len() < 2);
}

#[tokio::test]
async fn a_sink_that_takes_no_more_ends_the_call() {
    let place = Place::new(2, 3).await;
    let wanted = wanted(&place).await;
    let mut taken = Taken::at_most(100);

    let outcome = place.connector.fetch(&place.account, &wanted, &mut taken).await;

    assert!(is_unavailable(&outcome.unwrap_err()));
    assert_eq!((taken.whole.len(), taken.failed.len()), (0, 1));
}

#[tokio::test]
async fn nobody_listening_is_unavailable_and_bad_settings_are_our_fault() {
    let mut place = Place::new(2, 1).await;
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    place.account.settings = format!(r#"{{"url":"http://{free}"}}"#);
    let error = place.connector.check(&place.account).await.unwrap_err();
    assert!(is_unavailable(&error), "{error:?}");
    assert_says_nothing(&error);

    for settings in ["", "{}", r#"{"url":7}"#, r#"{"url":"mailto:ann"}"#, r#"{"url":"http://x","tokn":1}"#] {
        place.account.settings = settings.to_owned();
        let error = place.connector.check(&place.account).await.unwrap_err();
        assert!(matches!(error, ConnectorError::Protocol(_)), "{settings}: {error:?}");
    }
}
