//! What is asked for again while it is cancelled, replayed or pruned.

use std::time::Duration;

use store::sql::jobs::{CancelOutcome, JobRetention, NewJob, OnConflict, ReplayOptions, UniqueKey};

use super::super::transitions::job;
use super::stage::{OrderTrial, call_pair, cancel, child_of, enqueue, every_interleaving, kill, successor, unique};

const POLICIES: [OnConflict; 3] = [OnConflict::Merge, OnConflict::Replace, OnConflict::Keep];

#[tokio::test]
async fn enqueued_again_while_its_worker_stops_it() {
    for policy in POLICIES {
        every_interleaving(&format!("{policy:?} | stop"), async |trial| {
            let first = unique(policy);
            let [held] = trial.running([&first]).await;
            cancel(trial, first.id, &[CancelOutcome::Requested]).await;
            let system = trial.store.system();
            let stop = async move { assert!(system.end_cancelled(&held, "stop", successor()).await.unwrap()) };
            call_pair(enqueue(trial, vec![unique(policy)]), stop, move |ended| {
                assert_eq!((ended.state(first.id), ended.runs.values().sum::<u32>()), ("cancelled", 1));
            })
        })
        .await;
    }
}

#[tokio::test]
async fn enqueued_again_while_its_worker_returns_it() {
    for policy in POLICIES {
        every_interleaving(&format!("{policy:?} | give back"), async |trial| {
            let first = unique(policy);
            let [held] = trial.running([&first]).await;
            cancel(trial, first.id, &[CancelOutcome::Requested]).await;
            let (system, worker) = (trial.store.system(), trial.worker);
            let give_back = async move { assert_eq!(system.return_jobs(worker, &[held.id]).await.unwrap(), 1) };
            call_pair(enqueue(trial, vec![unique(policy)]), give_back, |ended| {
                assert_eq!(ended.runs.values().sum::<u32>(), 1);
            })
        })
        .await;
    }
}

#[tokio::test]
async fn doomed_job_enqueued_again_while_cancelled() {
    for policy in POLICIES {
        every_interleaving(&format!("{policy:?} | cancel the doomed"), async |trial| {
            let parent = job("a");
            let [held] = trial.running([&parent]).await;
            let key = UniqueKey { key: "only".into(), policy };
            let child = NewJob { unique: Some(key.clone()), ..child_of(&[&parent]) };
            let (doomed, again) = (child.id, NewJob { unique: Some(key), ..job("b") });
            enqueue(trial, vec![child]).await;
            kill(trial, &held).await;
            let (system, id) = (trial.store.system(), again.id);
            let cancelled = async move { assert_eq!(system.cancel_doomed_jobs().await.unwrap(), 1) };
            call_pair(enqueue(trial, vec![again]), cancelled, move |ended| {
                assert_eq!(ended.state(doomed), "cancelled");
                ended.ran_once(id);
            })
        })
        .await;
    }
}

async fn dead_parent(trial: &OrderTrial<'_>) -> NewJob {
    let parent = job("a");
    let [held] = trial.running([&parent]).await;
    kill(trial, &held).await;
    parent
}

#[tokio::test]
async fn child_added_while_its_parent_is_replayed() {
    every_interleaving("child | replay", async |trial| {
        let parent = dead_parent(trial).await;
        let child = child_of(&[&parent]);
        let (id, parent, tenant) = (child.id, parent.id, trial.tenant);
        let system = trial.store.system();
        let replay =
            async move { assert!(system.replay_one(tenant, parent, &ReplayOptions::default()).await.unwrap()) };
        call_pair(enqueue(trial, vec![child]), replay, move |ended| {
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
async fn child_added_while_its_parent_is_pruned() {
    every_interleaving("child | prune", async |trial| {
        // Jobs of other trials would be pruned as well, in statements that not every order has.
        trial.db.run("delete from finished_jobs").await;
        let parent = dead_parent(trial).await;
        trial.db.run("update finished_jobs set ended_at = '2020-01-01T00:00:00Z'").await;
        let child = child_of(&[&parent]);
        let (id, system) = (child.id, trial.store.system());
        let hour = Duration::from_secs(3600);
        let keep = JobRetention { finished: hour, dead: hour };
        let prune = async move { assert!(system.prune_jobs(keep).await.unwrap().jobs > 0) };
        call_pair(enqueue(trial, vec![child]), prune, move |ended| {
            let outcome = (ended.runs(id), ended.state(id));
            assert!(outcome == (1, "done") || outcome == (0, "cancelled"), "{outcome:?}");
        })
    })
    .await;
}

#[tokio::test]
async fn job_with_keys_is_replayed_twice_at_once() {
    every_interleaving("replay | replay", async |trial| {
        let keyed = NewJob { order_key: Some("key".into()), ..unique(OnConflict::Merge) };
        let [held] = trial.running([&keyed]).await;
        kill(trial, &held).await;
        let replay = || {
            let (system, tenant, id) = (trial.store.system(), trial.tenant, keyed.id);
            async move {
                // One of them comes too late.
                let _ = system.replay_one(tenant, id, &ReplayOptions::default()).await.unwrap();
            }
        };
        let id = keyed.id;
        call_pair(replay(), replay(), move |ended| ended.ran_once(id))
    })
    .await;
}
