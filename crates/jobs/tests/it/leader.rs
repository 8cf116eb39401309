//! Leader election: one leader at a time, replaced when it dies, stopped when it loses the lease.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use jobs::leader::{Election, Leadership, lead};
use jobs::{LeaseGate, OpenLeaseGate};
use store::Store;
use store::testing::on_each_database;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Long enough for a machine that stalls for a while.
const LEASE: Duration = Duration::from_secs(4);

fn election(holder: &str) -> Election {
    Election { name: "scheduler".into(), holder: holder.into(), lease: LEASE, gate: Arc::new(OpenLeaseGate) }
}

#[derive(Debug, PartialEq, Eq)]
enum LeaderEvent {
    Begun(&'static str, u64),
    Ended(&'static str),
}

/// Sends an event when the work that holds it is dropped.
struct EndNotifier(&'static str, mpsc::UnboundedSender<LeaderEvent>);

impl Drop for EndNotifier {
    fn drop(&mut self) {
        let _ = self.1.send(LeaderEvent::Ended(self.0));
    }
}

/// Starts a candidate that works until it is stopped, and reports both.
fn candidate(store: &Store, holder: &'static str, events: &mpsc::UnboundedSender<LeaderEvent>) -> JoinHandle<()> {
    let (store, events) = (store.clone(), events.clone());
    tokio::spawn(async move {
        lead(&store, &election(holder), pending(), |leadership: Leadership| {
            let notifier = EndNotifier(holder, events.clone());
            events.send(LeaderEvent::Begun(holder, leadership.token)).unwrap();
            async move {
                let _notifier = notifier;
                pending::<()>().await;
            }
        })
        .await;
    })
}

#[tokio::test]
async fn dead_leader_is_replaced_with_a_higher_token() {
    on_each_database(|db| async move {
        let (sender, mut events) = mpsc::unbounded_channel();
        let first = candidate(&db.store, "first", &sender);
        assert_eq!(events.recv().await, Some(LeaderEvent::Begun("first", 1)));
        let second = candidate(&db.store, "second", &sender);

        // As in a death: nothing is released.
        first.abort();

        assert_eq!(events.recv().await, Some(LeaderEvent::Ended("first")));
        assert_eq!(events.recv().await, Some(LeaderEvent::Begun("second", 2)));
        second.abort();
    })
    .await;
}

#[tokio::test]
async fn stopped_leader_releases_its_lease() {
    on_each_database(|db| async move {
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (begun, mut has_begun) = mpsc::unbounded_channel();
        let store = db.store.clone();
        let leading = tokio::spawn(async move {
            lead(&store, &election("first"), async { drop(stopped.await) }, |leadership: Leadership| {
                begun.send(leadership.token().token).unwrap();
                pending()
            })
            .await;
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
async fn leader_that_lost_its_lease_stops() {
    on_each_database(|db| async move {
        let (sender, mut events) = mpsc::unbounded_channel();
        let leading = candidate(&db.store, "first", &sender);
        assert_eq!(events.recv().await, Some(LeaderEvent::Begun("first", 1)));

        // As if it had slept for too long: the lease is free, and another one takes it.
        db.store.system().release_lease("scheduler", "first", 1).await.unwrap();
        let taken = db.store.system().acquire_lease("scheduler", "second", Duration::from_secs(600)).await.unwrap();

        assert_eq!(taken, Some(2));
        assert_eq!(events.recv().await, Some(LeaderEvent::Ended("first")));
        assert!(!leading.is_finished(), "it waits for the next election");
        leading.abort();
    })
    .await;
}

#[tokio::test]
async fn long_work_keeps_its_lease() {
    on_each_database(|db| async move {
        let (sender, mut events) = mpsc::unbounded_channel();
        let leading = candidate(&db.store, "first", &sender);
        assert_eq!(events.recv().await, Some(LeaderEvent::Begun("first", 1)));

        // For longer than a lease lasts, by the clock that judges it.
        let begun = db.store.system().now().await.unwrap();
        while db.store.system().now().await.unwrap() < begun + LEASE + LEASE / 5 {
            let taken = db.store.system().acquire_lease("scheduler", "second", LEASE).await.unwrap();
            assert_eq!(taken, None);
            tokio::time::sleep(LEASE / 20).await;
        }
        assert!(events.try_recv().is_err());
        leading.abort();
    })
    .await;
}

/// Lets one holder try.
#[derive(Debug)]
struct SingleHolderGate(&'static str);

impl LeaseGate for SingleHolderGate {
    fn may_acquire<'a>(&'a self, _: &'a str, holder: &'a str, _: Duration) -> BoxFuture<'a, bool> {
        Box::pin(async move { holder == self.0 })
    }

    fn release<'a>(&'a self, _: &'a str, _: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }
}

#[tokio::test]
async fn holder_behind_the_gate_does_not_lead() {
    on_each_database(|db| async move {
        let (begun, mut has_begun) = mpsc::unbounded_channel();
        let candidates = ["first", "third", "second"].map(|holder| {
            let (store, begun) = (db.store.clone(), begun.clone());
            tokio::spawn(async move {
                let election = Election { gate: Arc::new(SingleHolderGate("second")), ..election(holder) };
                lead(&store, &election, pending(), |_| {
                    begun.send(holder).unwrap();
                    pending()
                })
                .await;
            })
        });

        assert_eq!(has_begun.recv().await, Some("second"));
        candidates.iter().for_each(JoinHandle::abort);
    })
    .await;
}
