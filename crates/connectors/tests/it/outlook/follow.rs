//! Against our simulator, which holds every call and every answer against Microsoft's own description.

use std::collections::BTreeMap;
use std::sync::Arc;

use connectors::http::{Deadlines, Http};
use connectors::microsoft::MicrosoftSettings;
use connectors::outlook::Outlook;
use domain::connector::Cursors;
use domain::{Clock, ConnectorError, SystemClock};
use sim::microsoft::{Fault, Kind, NewAccount, Operation, Route, Server, World};

use crate::mirror::{Fixed, Mirror};

const ANN: &str = "ann@sim.example";

/// Folders in which there is no mail of anybody.
const NO_MAIL: [&str; 6] = ["outbox", "syncissues", "conflicts", "localfailures", "serverfailures", "scheduled"];

struct Place {
    world: Arc<World>,
    mirror: Mirror,
    _server: Server,
}

impl Place {
    async fn new(messages: usize, seed: u64) -> Self {
        let world = Arc::new(World::new(seed, 20, Arc::new(|| SystemClock.now())));
        assert!(world.create(&NewAccount { address: ANN.to_owned(), messages, seed: Some(seed) }));
        let server = Server::start_here(Arc::clone(&world)).await.unwrap();
        let token = world.grant(ANN).unwrap().access_token;
        let settings = MicrosoftSettings { graph_url: server.url(), ..MicrosoftSettings::default() };
        let outlook = Outlook::new(Http::new(Deadlines::default()).unwrap(), &settings).unwrap();
        Self { world, mirror: Mirror::new(outlook, Arc::new(Fixed(token))), _server: server }
    }

    /// Whatever is gone for good shows by this alone.
    async fn sweep(&mut self) {
        self.mirror.account.sweep_since = Some(SystemClock.now());
        self.mirror.follow().await.unwrap();
    }

    /// Every message with its folder, flags and bytes: as it is told, and as it is.
    fn assert_is_true(&self) {
        let truth = self.world.truth(ANN).unwrap();
        let has_mail = |id: &String| {
            let folder = &truth.folders[id];
            let above = |known: &&str| folder.path.split('/').any(|part| part.eq_ignore_ascii_case(known));
            !folder.is_hidden
                && !folder.is_search
                && !folder.well_known.as_deref().is_some_and(|name| NO_MAIL.contains(&name))
                && !NO_MAIL.iter().any(above)
        };
        let messages = truth.messages.iter().filter(|(_, message)| has_mail(&message.folder_id));
        let messages = messages.map(|(id, message)| {
            let marks = [(message.is_draft, "draft"), (message.is_flagged, "flagged"), (message.is_read, "seen")];
            let flags: Vec<&str> = marks.iter().filter(|(is_set, _)| *is_set).map(|(_, name)| *name).collect();
            (id.clone(), format!("{:?} {flags:?} {}", [&message.folder_id], message.sha256))
        });
        let told = self.mirror.messages.iter().map(|(id, copy)| {
            let hash = copy.sha256.map(|hash| hash.hex()).unwrap_or_default();
            (id.clone(), format!("{:?} {:?} {hash}", copy.folders.iter().collect::<Vec<_>>(), copy.flags))
        });
        let (told, messages): (BTreeMap<_, _>, BTreeMap<_, _>) = (told.collect(), messages.collect());
        let wrong = messages.iter().filter(|(id, is)| told.get(*id) != Some(is));
        let wrong = wrong.map(|(id, is)| format!("{id} is {is}, told {:?}", told.get(id)));
        let ghosts = told
            .iter()
            .filter(|(id, _)| !messages.contains_key(*id))
            .map(|(id, told)| format!("{id} is not, told {told}"));
        assert_eq!(wrong.chain(ghosts).collect::<Vec<_>>(), Vec::<String>::new());
        assert_eq!(self.world.violations(), []);
        assert_eq!(self.world.without_immutable_ids(), BTreeMap::new());
    }
}

#[tokio::test]
async fn everything_that_is_there_comes_in_pages_and_nothing_new_is_one_call() {
    let mut place = Place::new(700, 3).await;
    place.world.step(ANN, 30);

    place.mirror.begin().await;

    place.assert_is_true();
    assert_eq!(place.mirror.count().await, place.mirror.places());
    place.mirror.follow().await.unwrap();
    place.world.forget_requests();
    assert_eq!(place.mirror.follow().await, Ok(0));
    assert_eq!(place.world.requests().all.routes, BTreeMap::from([(Route::MessagesList, 1)]));
}

#[tokio::test]
async fn whoever_follows_a_mailbox_under_change_and_faults_ends_with_the_truth() {
    let mut place = Place::new(60, 7).await;
    place.mirror.begin().await;
    let faults = [
        Kind::Unavailable { retry_after: None },
        Kind::Throttled { retry_after: Some(0) },
        Kind::GatewayTimeout,
        Kind::Cut,
        Kind::CutBody,
        Kind::TruncatedJson,
        Kind::MissingPart,
        Kind::ShuffledParts,
        Kind::EmptyPage,
        Kind::RepeatedItems,
        Kind::Garbage,
    ];
    for kind in faults {
        place.world.add_fault(Fault::sometimes(kind, 0.02));
    }
    let mut refused = 0;
    for round in 0..60 {
        place.world.step(ANN, 12);
        if round % 5 == 0 {
            place.mirror.account.sweep_since = Some(SystemClock.now());
        }
        // As the engine does: what fails is asked for again.
        while let Err(e) = place.mirror.follow().await {
            assert!(!matches!(e, ConnectorError::CursorExpired | ConnectorError::Unauthorized(_)), "{e}");
            refused += 1;
        }
    }
    place.world.clear_faults();
    place.sweep().await;

    assert!(refused > 10, "{refused}");
    place.assert_is_true();
}

#[tokio::test]
async fn a_folder_whose_changes_are_forgotten_is_told_anew_and_only_that() {
    let mut place = Place::new(150, 5).await;
    place.mirror.begin().await;
    place.world.step(ANN, 40);
    place.world.apply(ANN, Operation::ExpireDelta { folder: Some("inbox".to_owned()) }).unwrap();
    place.world.step(ANN, 10);

    place.sweep().await;
    place.assert_is_true();

    place.world.apply(ANN, Operation::ExpireDelta { folder: None }).unwrap();
    place.world.step(ANN, 20);
    place.sweep().await;
    place.assert_is_true();
}

#[tokio::test]
async fn a_folder_of_which_nothing_is_told_is_followed_by_what_was_touched() {
    let mut place = Place::new(50, 9).await;
    place.mirror.begin().await;
    let fault = Fault { route: Some(Route::MessagesDelta), ..Fault::always(Kind::DeltaQuota) };
    place.world.add_fault(fault);
    place.sweep().await;
    let before = place.mirror.messages.len();
    for _ in 0..3 {
        place.world.apply(ANN, Operation::deliver()).unwrap();
    }
    place.mirror.follow().await.unwrap();
    assert_eq!(place.mirror.messages.len(), before + 3);

    place.world.clear_faults();
    place.world.step(ANN, 30);
    place.sweep().await;
    place.assert_is_true();
}

#[tokio::test]
async fn moves_are_told_by_the_probe_without_a_word_of_the_folder_they_left() {
    let mut place = Place::new(30, 4).await;
    place.mirror.begin().await;
    let truth = place.world.truth(ANN).unwrap();
    let id =
        truth.messages.iter().find(|(_, message)| message.folder.ends_with("Inbox") || !message.is_draft).unwrap().0;
    place.world.apply(ANN, Operation::Move { message: id.clone(), folder: "archive".to_owned() }).unwrap();
    place.mirror.follow().await.unwrap();
    place.assert_is_true();
}

#[tokio::test]
async fn the_changes_tell_that_something_went_of_which_only_a_list_has_told() {
    let mut place = Place::new(30, 11).await;
    place.mirror.begin().await;
    place.mirror.follow().await.unwrap();
    let before: Vec<String> = place.mirror.messages.keys().cloned().collect();
    place.world.apply(ANN, Operation::deliver()).unwrap();

    place.mirror.compare().await;

    place.assert_is_true();
    let new = place.mirror.messages.keys().find(|id| !before.contains(id)).unwrap().clone();
    place.world.apply(ANN, Operation::Purge { message: new }).unwrap();
    place.sweep().await;
    place.assert_is_true();
}

#[tokio::test]
async fn a_list_of_a_folder_that_is_forgotten_all_the_time_ends_all_the_same() {
    let mut place = Place::new(500, 13).await;
    place.mirror.follow().await.unwrap();
    for count in [1, 3, 1000] {
        let fault =
            Fault { route: Some(Route::MessagesDelta), count: Some(count), ..Fault::always(Kind::DeltaExpired) };
        place.world.add_fault(fault);

        place.mirror.compare().await;

        place.world.clear_faults();
        place.assert_is_true();
    }
}

#[tokio::test]
async fn a_list_by_date_passes_nothing_over_when_what_it_has_told_goes_meanwhile() {
    let mut place = Place::new(2_500, 17).await;
    place.mirror.follow().await.unwrap();
    place.world.add_fault(Fault { route: Some(Route::MessagesDelta), ..Fault::always(Kind::DeltaQuota) });
    let told = place.mirror.cursors.clone();
    let (mut cursors, mut met, mut pages) = (Cursors::new(), BTreeMap::new(), 0);
    loop {
        let page = place.mirror.connector.list(&place.mirror.account, &cursors, Some(&told), None).await.unwrap();
        page.move_cursors(&mut cursors);
        for seen in &page.messages {
            *met.entry(seen.message.clone()).or_insert(0) += 1;
        }
        pages += 1;
        if page.is_last {
            break;
        }
        // By counting, the next page would begin so many too late.
        for seen in page.messages.iter().take(20) {
            drop(place.world.apply(ANN, Operation::Purge { message: seen.message.clone() }));
        }
    }

    let truth = place.world.truth(ANN).unwrap();
    let wanted: Vec<_> = place.mirror.account.folders.iter().filter(|known| known.is_in_scope).collect();
    let is_wanted = |folder: &String| wanted.iter().any(|known| known.id == *folder);
    let missed: Vec<_> = truth
        .messages
        .iter()
        .filter(|(id, message)| is_wanted(&message.folder_id) && !met.contains_key(*id))
        .map(|(id, _)| id)
        .collect();
    assert_eq!(missed, Vec::<&String>::new());
    assert!(pages > wanted.len(), "no folder had a second page");
    assert_eq!(place.world.violations(), []);
}

#[tokio::test]
async fn whoever_forgets_all_the_time_is_left_alone_and_not_asked_for_ever() {
    let mut place = Place::new(30, 17).await;
    place.mirror.begin().await;
    place.world.add_fault(Fault { route: Some(Route::MessagesDelta), ..Fault::always(Kind::DeltaExpired) });
    place.mirror.account.sweep_since = Some(SystemClock.now());
    place.world.forget_requests();
    let refused = place.mirror.follow().await;
    assert!(matches!(refused, Err(ConnectorError::Unavailable(_))), "{refused:?}");
    let asked = place.world.requests().all.routes[&Route::MessagesDelta];
    assert!(asked <= 10, "{asked}: some folders, each from its beginning as well");

    place.world.clear_faults();
    place.mirror.follow().await.unwrap();
    place.assert_is_true();
}

#[tokio::test]
async fn whoever_is_asked_to_wait_in_the_middle_keeps_what_was_read_and_does_not_ask_before() {
    let mut place = Place::new(30, 19).await;
    place.mirror.begin().await;
    place.world.apply(ANN, Operation::deliver()).unwrap();
    // The probe has told of it by then.
    let kind = Kind::Throttled { retry_after: Some(3600) };
    place.world.add_fault(Fault { route: Some(Route::MessagesDelta), ..Fault::once(kind) });

    let refused = place.mirror.follow().await;

    let wait = match refused {
        Err(ConnectorError::Throttled { retry_after: Some(wait) }) => wait.as_secs(),
        other => panic!("{other:?}"),
    };
    assert!((3500..=3600).contains(&wait), "{wait}");
    assert_eq!(place.world.truth(ANN).unwrap().messages.len(), place.mirror.messages.len());
    place.world.forget_requests();
    assert!(matches!(place.mirror.follow().await, Err(ConnectorError::Throttled { .. })));
    assert_eq!(place.world.requests().all.routes, BTreeMap::new(), "nobody was asked");
}

#[tokio::test]
async fn what_may_not_be_read_again_is_at_least_not_where_it_was() {
    let mut place = Place::new(30, 23).await;
    place.mirror.begin().await;
    let truth = place.world.truth(ANN).unwrap();
    let purged = truth.messages.keys().next().unwrap().clone();
    place.world.apply(ANN, Operation::Purge { message: purged }).unwrap();
    place.world.add_fault(Fault { route: Some(Route::MessagesGet), ..Fault::always(Kind::AccessDenied) });
    place.sweep().await;
    place.assert_is_true();
}

#[tokio::test]
async fn a_message_that_is_alone_comes_by_itself() {
    let mut place = Place::new(30, 29).await;
    place.mirror.begin().await;
    place.world.forget_requests();
    place.world.apply(ANN, Operation::deliver()).unwrap();
    place.mirror.follow().await.unwrap();
    let routes = place.world.requests().all.routes;
    assert_eq!((routes.get(&Route::Batch), routes.get(&Route::FoldersDelta)), (None, None), "{routes:?}");
    assert_eq!(routes[&Route::MessagesValue], 1);
    place.assert_is_true();
}

#[tokio::test]
async fn a_folder_that_is_forgotten_all_the_time_does_not_keep_a_mailbox_from_being_taken_in() {
    let mut place = Place::new(60, 31).await;
    place.world.add_fault(Fault { route: Some(Route::MessagesDelta), ..Fault::always(Kind::DeltaExpired) });
    place.mirror.begin().await;
    place.assert_is_true();
    assert!(place.world.requests().all.routes[&Route::MessagesDelta] < 100);

    place.world.clear_faults();
    place.world.step(ANN, 20);
    place.sweep().await;
    place.assert_is_true();
}

#[tokio::test]
async fn one_call_that_fails_keeps_no_other_folder_waiting() {
    let mut place = Place::new(60, 37).await;
    place.mirror.begin().await;
    place.world.step(ANN, 20);
    place.world.add_fault(Fault { route: Some(Route::MessagesDelta), ..Fault::once(Kind::Internal) });
    // In the same call.
    place.sweep().await;
    place.assert_is_true();
}

#[tokio::test]
async fn mail_in_folders_that_are_new_comes_however_many_pages_that_takes() {
    let mut place = Place::new(120, 41).await;
    place.mirror.begin().await;
    for n in 0..30 {
        let name = format!("new {n}");
        let made = place.world.apply(ANN, Operation::CreateFolder { name, parent: None }).unwrap();
        let folder = made.folder.unwrap();
        for message in place.world.truth(ANN).unwrap().messages.keys().skip(n).take(1) {
            let to = Operation::Move { message: message.clone(), folder: folder.clone() };
            place.world.apply(ANN, to).unwrap();
        }
    }
    // More than the probe tells of, and later.
    for message in place.world.truth(ANN).unwrap().messages.keys().skip(40).take(70) {
        let mark = Operation::Mark { message: message.clone(), read: None, flagged: Some(true) };
        place.world.apply(ANN, mark).unwrap();
    }
    place.world.apply(ANN, Operation::ExpireDelta { folder: None }).unwrap();
    place.sweep().await;
    place.assert_is_true();
}
