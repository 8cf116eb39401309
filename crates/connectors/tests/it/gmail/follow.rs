//! Against our simulator, which holds every call and every answer against Google's own description.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use connectors::google::GoogleSettings;
use domain::connector::Cursors;
use domain::{Clock, ConnectorError, SystemClock};
use sim::google::{Fault, Kind, NewAccount, Operation, Route, Server, World};

use super::mirror;
use crate::mirror::{Fixed, Mirror};

const ANN: &str = "ann@sim.example";

struct Place {
    server: Server,
    world: Arc<World>,
    mirror: Mirror,
}

impl Place {
    async fn new(messages: usize, seed: u64) -> Self {
        let world = Arc::new(World::new(seed, 20, Arc::new(|| SystemClock.now())));
        assert!(world.create(&NewAccount { address: ANN.to_owned(), messages, seed: Some(seed) }));
        let server = Server::start_here(Arc::clone(&world)).await.unwrap();
        let token = world.grant(ANN).unwrap().access_token;
        let settings = GoogleSettings { api_url: server.url(), ..GoogleSettings::default() };
        Self { server, world, mirror: mirror(&settings, Arc::new(Fixed(token))) }
    }

    /// Every folder with its messages, each with its flags and bytes: as it is told, and as it is.
    fn assert_is_true(&self) {
        let truth = self.world.truth(ANN).unwrap();
        let known: BTreeSet<&str> = self.mirror.account.folders.iter().map(|folder| &*folder.id).collect();
        let mut messages = BTreeMap::new();
        for (id, message) in &truth.messages {
            let has = |label: &str| message.label_ids.iter().any(|has| has == label);
            let of = |labels: [&str; 2]| labels.into_iter().filter(|label| has(label)).map(str::to_owned).collect();
            let (hidden, apart): (BTreeSet<String>, BTreeSet<String>) = (of(["TRASH", "SPAM"]), of(["CHAT", "DRAFT"]));
            let folders: BTreeSet<String> = match (hidden.is_empty(), apart.is_empty()) {
                (false, _) => hidden,
                (true, false) => apart,
                (true, true) => {
                    let labels = message.label_ids.iter().filter(|label| *label != "UNREAD" && *label != "STARRED");
                    labels.cloned().chain(["ALL_MAIL".to_owned()]).collect()
                }
            };
            let marks = [(has("DRAFT"), "draft"), (has("STARRED"), "flagged"), (!has("UNREAD"), "seen")];
            let flags: Vec<&str> = marks.iter().filter(|(is_set, _)| *is_set).map(|(_, name)| *name).collect();
            assert!(folders.iter().all(|folder| known.contains(&**folder)), "{folders:?} of {known:?}");
            messages.insert(id.clone(), format!("{folders:?} {flags:?} {}", message.sha256));
        }
        let told = self.mirror.messages.iter().map(|(id, copy)| {
            let hash = copy.sha256.map(|hash| hash.hex()).unwrap_or_default();
            (id.clone(), format!("{:?} {:?} {hash}", copy.folders, copy.flags))
        });
        assert_eq!(told.collect::<BTreeMap<_, _>>(), messages);
        assert_eq!(self.world.violations(), []);
    }
}

#[tokio::test]
async fn everything_that_is_there_comes_in_pages_and_can_be_counted() {
    let mut place = Place::new(1_200, 3).await;
    for name in ["Taxes/2026", "Häuser \u{1f3e0}"] {
        place.world.apply(ANN, Operation::CreateLabel { name: name.to_owned() }).unwrap();
    }
    place.world.step(ANN, 300);

    place.mirror.begin().await;

    place.assert_is_true();
    let (counted, told) = (place.mirror.count().await, place.mirror.places());
    for folder in counted.keys().chain(told.keys()) {
        let of = |places: &BTreeMap<String, BTreeSet<String>>| places.get(folder).cloned().unwrap_or_default();
        let differences: Vec<_> = of(&counted).symmetric_difference(&of(&told)).cloned().collect();
        let labels = |id: &String| place.world.truth(ANN).unwrap().messages[id].label_ids.clone();
        let differences: Vec<_> = differences.iter().map(labels).collect();
        assert_eq!(differences, Vec::<Vec<String>>::new(), "in {folder}");
    }
    // Nothing is new: one call.
    place.world.forget_requests();
    assert_eq!(place.mirror.follow().await, Ok(0));
    assert_eq!(place.world.requests().all.routes, BTreeMap::from([(Route::HistoryList, 1)]));
}

#[tokio::test]
async fn whoever_follows_a_mailbox_under_change_and_faults_ends_with_the_truth() {
    let mut place = Place::new(60, 7).await;
    place.mirror.begin().await;
    let faults = [
        Kind::Unavailable { retry_after: None },
        Kind::Throttled { retry_after: Some(0) },
        Kind::UserRateLimited { retry_after: None },
        Kind::Cut,
        Kind::CutBody,
        Kind::TruncatedJson,
        Kind::MissingPart,
        Kind::ShuffledParts,
        Kind::Padded,
        Kind::Garbage,
    ];
    for kind in faults {
        place.world.add_fault(Fault { route: None, ..Fault::sometimes(kind, 0.03) });
    }
    let mut refused = 0;
    for _ in 0..60 {
        place.world.step(ANN, 12);
        // As the engine does: what fails is asked for again.
        while let Err(e) = place.mirror.follow().await {
            assert!(!matches!(e, ConnectorError::CursorExpired | ConnectorError::Unauthorized(_)), "{e}");
            refused += 1;
        }
    }
    place.world.clear_faults();
    place.mirror.follow().await.unwrap();

    assert!(refused > 10, "{refused}");
    place.assert_is_true();
}

#[tokio::test]
async fn a_history_that_has_expired_is_told_and_everything_is_listed_as_it_is_now() {
    let mut place = Place::new(230, 5).await;
    place.mirror.begin().await;
    place.world.step(ANN, 40);
    place.world.apply(ANN, Operation::ExpireHistory).unwrap();
    place.world.step(ANN, 10);
    assert_eq!(place.mirror.follow().await, Err(ConnectorError::CursorExpired));

    place.mirror.cursors = Cursors::new();
    place.mirror.follow().await.unwrap();
    place.world.step(ANN, 20);
    place.mirror.compare().await;
    place.mirror.follow().await.unwrap();

    place.assert_is_true();
}

#[tokio::test]
async fn a_page_without_messages_is_not_the_last() {
    let mut place = Place::new(30, 2).await;
    let route = Some(Route::MessagesList);
    place.world.add_fault(Fault { route, count: Some(3), ..Fault::always(Kind::EmptyPage) });

    place.mirror.begin().await;

    place.assert_is_true();
}

#[tokio::test]
async fn only_what_came_since_a_day_is_named() {
    let place = Place::new(0, 2).await;
    let at = |text: &str| Some(text.parse().unwrap());
    for received_at in [at("2026-01-01T00:00:00Z"), at("2026-03-01T00:00:00Z"), at("2026-03-02T00:00:00Z")] {
        let deliver = Operation::Deliver { labels: None, count: None, reply_to: None, raw: None, received_at };
        place.world.apply(ANN, deliver).unwrap();
    }
    let Place { mut mirror, server: _server, .. } = place;
    mirror.follow().await.unwrap();

    let since = at("2026-03-01T00:00:00Z");
    let page = mirror.connector.history(&mirror.account, &Cursors::new(), &Cursors::new(), since).await.unwrap();
    assert_eq!(page.named.len(), 2);

    // Counted, the old one is told apart from those that are wanted.
    let (mut cursors, mut wanted, mut all) = (Cursors::new(), BTreeSet::new(), BTreeSet::new());
    loop {
        let page = mirror.connector.list(&mirror.account, &cursors, None, since).await.unwrap();
        page.move_cursors(&mut cursors);
        wanted.extend(page.messages.into_iter().map(|seen| seen.message));
        all.extend(page.marked.into_iter().map(|seen| seen.message));
        if page.is_last {
            break;
        }
    }
    assert_eq!((wanted.len(), all.len()), (2, 3));
}
