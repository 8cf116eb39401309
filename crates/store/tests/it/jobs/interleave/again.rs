//! What is asked for again while it is cancelled, replayed or pruned.

use std::time::Duration;

use store::sql::jobs::{Cancelling, KeepFor, NewJob, OnConflict, Replay, Unique};

use super::super::moves::job;
use super::stage::{Place, cancel, child_of, enqueue, every_interleaving, kill, scene, successor, unique};

const POLICIES: [OnConflict; 3] = [OnConflict::Merge, OnConflict::Replace, OnConflict::Keep];

#[tokio::test]
async fn a_job_is_asked_for_again_while_its_worker_stops_it() {
    for policy in POLICIES {
        every_interleaving(&format!("{policy:?} | stop"), async |place| {
            let first = unique(policy);
            let [held] = place.running([&first]).await;
            cancel(place, first.id, &[Cancelling::Asked]).await;
            let system = place.store.system();
            let stop = async move { assert!(system.end_cancelled(&held, "stop", successor()).await.unwrap()) };
            scene(enqueue(place, vec![unique(policy)]), stop, move |ended| {
                assert_eq!((ended.state(first.id), ended.runs.values().sum::<u32>()), ("cancelled", 1));
            })
        })
        .await;
    }
}

#[tokio::test]
async fn a_job_is_asked_for_again_while_its_worker_lets_go_of_it() {
    for policy in POLICIES {
        every_interleaving(&format!("{policy:?} | give back"), async |place| {
            let first = unique(policy);
            let [held] = place.running([&first]).await;
            cancel(place, first.id, &[Cancelling::Asked]).await;
            let (system, worker) = (place.store.system(), place.worker);
            let give_back = async move { assert_eq!(system.give_back(worker, &[held.id]).await.unwrap(), 1) };
            scene(enqueue(place, vec![unique(policy)]), give_back, |ended| {
                assert_eq!(ended.runs.values().sum::<u32>(), 1);
            })
        })
        .await;
    }
}

#[tokio::test]
async fn a_doomed_job_is_asked_for_again_while_it_is_cancelled() {
    for policy in POLICIES {
        every_interleaving(&format!("{policy:?} | cancel the doomed"), async |place| {
            let parent = job("a");
            let [held] = place.running([&parent]).await;
            let key = Unique { key: "only".into(), policy };
            let child = NewJob { unique: Some(key.clone()), ..child_of(&[&parent]) };
            let (doomed, again) = (child.id, NewJob { unique: Some(key), ..job("b") });
            enqueue(place, vec![child]).await;
            kill(place, &held).await;
            let (system, id) = (place.store.system(), again.id);
            let cancelled = async move { assert_eq!(system.cancel_doomed_jobs().await.unwrap(), 1) };
            scene(enqueue(place, vec![again]), cancelled, move |ended| {
                assert_eq!(ended.state(doomed), "cancelled");
                ended.ran_once(id);
            })
        })
        .await;
    }
}

async fn dead_parent(place: &Place<'_>) -> NewJob {
    let parent = job("a");
    let [held] = place.running([&parent]).await;
    kill(place, &held).await;
    parent
}

#[tokio::test]
async fn a_child_comes_while_its_parent_is_replayed() {
    every_interleaving("child | replay", async |place| {
        let parent = dead_parent(place).await;
        let child = child_of(&[&parent]);
        let (id, parent, tenant) = (child.id, parent.id, place.tenant);
        let system = place.store.system();
        let replay = async move { assert!(system.replay_one(tenant, parent, &Replay::default()).await.unwrap()) };
        scene(enqueue(place, vec![child]), replay, move |ended| {
            ended.ran_once(parent);
            // Before the replay its parent was dead, after it the child runs behind it.
            let is_behind =
                ended.order.iter().position(|ran| *ran == id) > ended.order.iter().position(|ran| *ran == parent);
            let expected = if ended.runs(id) == 1 { is_behind } else { ended.state(id) == "cancelled" };
            assert!(expected, "{} after {:?}", ended.state(id), ended.order);
        })
    })
    .await;
}

#[tokio::test]
async fn a_child_comes_while_its_parent_is_pruned() {
    every_interleaving("child | prune", async |place| {
        let parent = dead_parent(place).await;
        place.db.run("update finished_jobs set ended_at = '2020-01-01T00:00:00Z'").await;
        let child = child_of(&[&parent]);
        let (id, system) = (child.id, place.store.system());
        let hour = Duration::from_secs(3600);
        let keep = KeepFor { finished: hour, dead: hour };
        let prune = async move { assert!(system.prune_jobs(keep).await.unwrap().jobs > 0) };
        scene(enqueue(place, vec![child]), prune, move |ended| {
            let outcome = (ended.runs(id), ended.state(id));
            assert!(outcome == (1, "done") || outcome == (0, "cancelled"), "{outcome:?}");
        })
    })
    .await;
}

#[tokio::test]
async fn two_replay_a_job_with_keys_at_once() {
    every_interleaving("replay | replay", async |place| {
        let keyed = NewJob { order_key: Some("key".into()), ..unique(OnConflict::Merge) };
        let [held] = place.running([&keyed]).await;
        kill(place, &held).await;
        let replay = || {
            let (system, tenant, id) = (place.store.system(), place.tenant, keyed.id);
            async move {
                // One of them comes too late.
                let _ = system.replay_one(tenant, id, &Replay::default()).await.unwrap();
            }
        };
        let id = keyed.id;
        scene(replay(), replay(), move |ended| ended.ran_once(id))
    })
    .await;
}
