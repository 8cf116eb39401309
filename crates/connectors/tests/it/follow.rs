//! Whoever follows a mailbox by the rules ends with what is in it, whatever the provider does on the way.

use std::collections::BTreeSet;

use connectors::scripted::Scripted;
use domain::connector::{Account, Cursors, Page};
use domain::{Connector, ConnectorError};
use sim::scripted::{Fault, Kind, Operation};

use crate::model::{Model, Taken};
use crate::place::{ADDRESS, Place, assert_says_nothing};

/// A source of choices with a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

/// A sync engine reduced to what it asks for.
struct Follower<'a> {
    place: &'a Place,
    account: Account,
    model: Model,
    changes: Cursors,
    history: Cursors,
    is_history_done: bool,
    dice: Dice,
    expired: usize,
}

impl<'a> Follower<'a> {
    fn new(place: &'a Place, seed: u64) -> Self {
        Self {
            place,
            account: place.account.clone(),
            model: Model::default(),
            changes: Cursors::new(),
            history: Cursors::new(),
            is_history_done: false,
            dice: Dice(seed),
            expired: 0,
        }
    }

    fn connector(&self) -> &'a Scripted {
        &self.place.connector
    }

    /// Life goes on between two calls, and the size of pages is never the same.
    fn something_happens(&mut self) {
        self.place.world.step(ADDRESS, self.dice.below(4));
        let mut settings: serde_json::Value = serde_json::from_str(&self.account.settings).unwrap();
        settings["page_size"] = (1 + self.dice.below(12)).into();
        self.account.settings = settings.to_string();
    }

    /// One page of changes; whether nothing follows.
    async fn follow(&mut self) -> bool {
        let page = self.connector().changes(&self.account, &self.changes).await;
        match page {
            Ok(page) => {
                self.model.apply(&page, &mut self.changes);
                page.is_last
            }
            Err(ConnectorError::CursorExpired) => {
                self.expired += 1;
                self.compare().await;
                false
            }
            Err(error) => self.bear(&error),
        }
    }

    async fn look_back(&mut self) {
        let page = self.connector().history(&self.account, &self.history, &Cursors::new(), None).await;
        match page {
            Ok(page) => {
                self.model.apply(&page, &mut self.history);
                self.is_history_done = page.is_last;
            }
            Err(ConnectorError::CursorExpired) => self.history.clear(),
            Err(error) => drop(self.bear(&error)),
        }
    }

    /// First the place from which on changes are told, then all there is, then what else we have goes.
    async fn compare(&mut self) {
        self.changes.clear();
        while self.changes.is_empty() {
            match self.connector().changes(&self.account, &Cursors::new()).await {
                Ok(page) => self.model.apply(&page, &mut self.changes),
                Err(error) => drop(self.bear(&error)),
            }
        }
        self.model.begin_listing();
        let mut folders = BTreeSet::new();
        let mut cursors = Cursors::new();
        loop {
            self.something_happens();
            match self.connector().list(&self.account, &cursors, None, None).await {
                Ok(page) => {
                    folders.extend(page.folders.iter().map(|folder| folder.id.clone()));
                    self.model.apply(&page, &mut cursors);
                    if page.is_last {
                        break;
                    }
                }
                Err(ConnectorError::CursorExpired) => {
                    cursors.clear();
                    self.model.begin_listing();
                }
                Err(error) => drop(self.bear(&error)),
            }
        }
        self.model.end_listing(&folders);
    }

    async fn fetch(&mut self) {
        let mut wanted = self.model.wanted();
        wanted.truncate(1 + self.dice.below(20));
        if wanted.is_empty() {
            return;
        }
        let mut taken = Taken::default();
        let outcome = self.connector().fetch(&self.account, &wanted, &mut taken).await;
        if let Err(error) = &outcome {
            self.bear(error);
        } else {
            assert_eq!(taken.whole.len() + taken.failed.len(), wanted.len(), "a message was not spoken of");
        }
        self.model.take(taken);
    }

    fn bear(&self, error: &ConnectorError) -> bool {
        assert_says_nothing(error);
        assert!(!matches!(error, ConnectorError::Gone | ConnectorError::CursorExpired), "{error}");
        false
    }

    async fn catch_up(&mut self) {
        self.account = self.place.account.clone();
        while !(self.follow().await && self.is_history_done) {
            self.look_back().await;
        }
        while !self.model.wanted().is_empty() {
            self.fetch().await;
        }
    }
}

fn usual_trouble(place: &Place) {
    for kind in [
        Kind::Throttled { retry_after: Some(1) },
        Kind::Unavailable,
        Kind::Unauthorized,
        Kind::Cut,
        Kind::CutBody,
        Kind::Garbage,
        Kind::TruncatedJson,
        Kind::ShortMessage { goes_on: true },
        Kind::ShortMessage { goes_on: false },
        Kind::Gone,
    ] {
        place.world.add_fault(Fault::sometimes(kind, 0.04));
    }
    place.world.add_fault(Fault::sometimes(Kind::RepeatPage, 0.3));
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_follows_a_mailbox_under_change_and_faults_ends_with_the_truth() {
    for seed in 0..6 {
        let place = Place::new(seed, 60).await;
        usual_trouble(&place);
        let mut follower = Follower::new(&place, seed);
        while follower.changes.is_empty() {
            follower.follow().await;
        }

        for round in 0..250 {
            follower.something_happens();
            match follower.dice.below(10) {
                0..5 => drop(follower.follow().await),
                5..7 if !follower.is_history_done => follower.look_back().await,
                _ => follower.fetch().await,
            }
            if round % 90 == 89 {
                let expire = Operation::ExpireCursors { listings: round % 2 == 0 };
                let now = "2026-02-01T12:00:00Z".parse().unwrap();
                place.world.with(ADDRESS, |account, letters| account.apply(expire, letters, now)).unwrap().unwrap();
            }
        }
        place.world.clear_faults();
        follower.catch_up().await;

        follower.model.assert_is(&place.world.truth(ADDRESS).unwrap());
        assert!(follower.expired > 0);
    }
}

#[tokio::test]
async fn without_a_cursor_there_are_folders_and_no_messages() {
    let place = Place::new(1, 30).await;

    let page: Page = place.changes().await.unwrap();

    assert_eq!((page.folders.len(), page.messages.len(), page.is_last), (6, 0, true));
    assert_eq!(page.folders.iter().filter(|folder| folder.role.is_some()).count(), 6);
    assert_eq!(page.cursors.len(), 1);
}

#[tokio::test]
async fn a_history_since_some_day_ends_there_and_forgets_its_cursor() {
    let mut place = Place::new(1, 30).await;
    place.set_page_size(4);
    let since = "2026-02-01T12:00:00Z".parse::<jiff::Timestamp>().unwrap() - jiff::SignedDuration::from_mins(150);
    let mut cursors = Cursors::new();
    let mut model = Model::default();
    let mut times = Vec::new();

    loop {
        let page = place.connector.history(&place.account, &cursors, &Cursors::new(), Some(since)).await.unwrap();
        times.extend(page.messages.iter().map(|seen| seen.received_at.unwrap()));
        model.apply(&page, &mut cursors);
        if page.is_last {
            break;
        }
    }

    assert!(times.len() == 10 && times.is_sorted_by(|a, b| a >= b), "{times:?}");
    assert!(cursors.is_empty());
}
