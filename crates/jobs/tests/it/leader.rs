//! Leaders: one at a time, replaced when they die, stopped when they lose the lease.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use jobs::leader::{Election, Leadership, lead};
use jobs::{Gate, NoGate};
use store::Store;
use store::testing::on_each_database;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Long enough for a machine that stops to think for a while.
const LEASE: Duration = Duration::from_secs(4);

fn election(holder: &str) -> Election {
    Election { name: "scheduler".into(), holder: holder.into(), lease: LEASE, gate: Arc::new(NoGate) }
}

#[derive(Debug, PartialEq, Eq)]
enum News {
    Begun(&'static str, u64),
    Ended(&'static str),
}

/// Tells when its work is dropped.
struct Told(&'static str, mpsc::UnboundedSender<News>);

impl Drop for Told {
    fn drop(&mut self) {
        let _ = self.1.send(News::Ended(self.0));
    }
}

/// A candidate that works until it is stopped, and tells of it.
fn candidate(store: &Store, holder: &'static str, news: &mpsc::UnboundedSender<News>) -> JoinHandle<()> {
    let (store, news) = (store.clone(), news.clone());
    tokio::spawn(async move {
        let work = |leadership: Leadership| {
            let told = Told(holder, news.clone());
            news.send(News::Begun(holder, leadership.token)).unwrap();
            async move {
                let _told = told;
                pending::<()>().await;
            }
        };
        lead(&store, &election(holder), pending(), work).await;
    })
}

#[tokio::test]
async fn a_leader_that_dies_is_replaced_and_the_token_grows() {
    on_each_database(|db| async move {
        let (sender, mut news) = mpsc::unbounded_channel();
        let first = candidate(&db.store, "first", &sender);
        assert_eq!(news.recv().await, Some(News::Begun("first", 1)));
        let second = candidate(&db.store, "second", &sender);

        // As in a death: nothing is released.
        first.abort();

        assert_eq!(news.recv().await, Some(News::Ended("first")));
        assert_eq!(news.recv().await, Some(News::Begun("second", 2)));
        second.abort();
    })
    .await;
}

#[tokio::test]
async fn a_leader_that_stops_makes_room_at_once() {
    on_each_database(|db| async move {
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (begun, mut has_begun) = mpsc::unbounded_channel();
        let store = db.store.clone();
        let leading = tokio::spawn(async move {
            let work = |leadership: Leadership| {
                begun.send(leadership.token().token).unwrap();
                pending()
            };
            lead(&store, &election("first"), async { drop(stopped.await) }, work).await;
        });
        let token = has_begun.recv().await.unwrap();

        stop.send(()).unwrap();
        leading.await.unwrap();

        let next = db.store.system().acquire_lease("scheduler", "second", Duration::from_secs(60)).await.unwrap();
        assert_eq!(next, Some(token + 1));
    })
    .await;
}

#[tokio::test]
async fn a_leader_whose_lease_has_gone_to_another_stops() {
    on_each_database(|db| async move {
        let (sender, mut news) = mpsc::unbounded_channel();
        let leading = candidate(&db.store, "first", &sender);
        assert_eq!(news.recv().await, Some(News::Begun("first", 1)));

        // As if it had slept for too long: the lease is free, and another one takes it.
        db.store.system().release_lease("scheduler", "first", 1).await.unwrap();
        let taken = db.store.system().acquire_lease("scheduler", "second", Duration::from_secs(600)).await.unwrap();

        assert_eq!(taken, Some(2));
        assert_eq!(news.recv().await, Some(News::Ended("first")));
        assert!(!leading.is_finished(), "it waits for its next turn");
        leading.abort();
    })
    .await;
}

#[tokio::test]
async fn long_work_keeps_its_lease() {
    on_each_database(|db| async move {
        let (sender, mut news) = mpsc::unbounded_channel();
        let leading = candidate(&db.store, "first", &sender);
        assert_eq!(news.recv().await, Some(News::Begun("first", 1)));

        // For longer than a lease lasts, by the clock that judges it.
        let begun = db.store.system().now().await.unwrap();
        while db.store.system().now().await.unwrap() < begun + LEASE + LEASE / 5 {
            let taken = db.store.system().acquire_lease("scheduler", "second", LEASE).await.unwrap();
            assert_eq!(taken, None);
            tokio::time::sleep(LEASE / 20).await;
        }
        assert!(news.try_recv().is_err());
        leading.abort();
    })
    .await;
}

/// Lets one holder try.
#[derive(Debug)]
struct Only(&'static str);

impl Gate for Only {
    fn may_try<'a>(&'a self, _: &'a str, holder: &'a str, _: Duration) -> BoxFuture<'a, bool> {
        Box::pin(async move { holder == self.0 })
    }

    fn release<'a>(&'a self, _: &'a str, _: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }
}

#[tokio::test]
async fn who_may_not_try_does_not_lead() {
    on_each_database(|db| async move {
        let (begun, mut has_begun) = mpsc::unbounded_channel();
        let lead_as = |holder: &'static str| {
            let (store, begun) = (db.store.clone(), begun.clone());
            tokio::spawn(async move {
                let election = Election { gate: Arc::new(Only("second")), ..election(holder) };
                let work = |_| {
                    begun.send(holder).unwrap();
                    pending()
                };
                lead(&store, &election, pending(), work).await;
            })
        };
        let candidates = [lead_as("first"), lead_as("third"), lead_as("second")];

        assert_eq!(has_begun.recv().await, Some("second"));
        candidates.iter().for_each(JoinHandle::abort);
    })
    .await;
}
