//! No wake-up is lost: two concurrent calls, stepped through every order in which their statements can reach the database.

mod enqueued_again;
mod stage;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use domain::{JobId, Lane, PlanTier, TenantId};
use store::failpoint::{Guard, VARIABLE};
use store::sql::jobs::{CancelOutcome, NewJob, OnConflict};
use store::sql::tenants::Tenant;
use store::testing::{admin_url, migrated_postgres, run_sql};
use tokio_postgres::NoTls;

use self::stage::*;
use super::invariants::assert_invariants;
use super::transitions::{claim, job};

#[tokio::test]
async fn child_added_while_its_parent_ends() {
    every_interleaving("child | finish", async |trial| {
        let parent = job("a");
        let [held] = trial.running([&parent]).await;
        let child = child_of(&[&parent]);
        let id = child.id;
        call_pair(enqueue(trial, vec![child]), finish(trial, &held), move |ended| ended.ran_once(id))
    })
    .await;
    every_interleaving("child | finish in a unit", async |trial| {
        let parent = job("a");
        let [held] = trial.running([&parent]).await;
        let child = child_of(&[&parent]);
        let id = child.id;
        call_pair(enqueue(trial, vec![child]), finish_in_unit(trial, &held), move |ended| ended.ran_once(id))
    })
    .await;
}

#[tokio::test]
async fn child_added_while_its_parent_dies() {
    every_interleaving("child | death", async |trial| {
        let parent = job("a");
        let [held] = trial.running([&parent]).await;
        let child = child_of(&[&parent]);
        let id = child.id;
        call_pair(enqueue(trial, vec![child]), kill(trial, &held), move |ended| {
            assert_eq!((ended.runs(id), ended.state(id)), (0, "cancelled"));
        })
    })
    .await;
}

#[tokio::test]
async fn next_of_a_key_added_while_the_head_ends() {
    every_interleaving("key | finish", async |trial| {
        let first = keyed("a");
        let [held] = trial.running([&first]).await;
        let next = keyed("a");
        let id = next.id;
        call_pair(enqueue(trial, vec![next]), finish(trial, &held), move |ended| ended.ran_once(id))
    })
    .await;
}

#[tokio::test]
async fn next_of_a_key_added_while_head_is_cancelled() {
    every_interleaving("key | cancel", async |trial| {
        let (first, next) = (keyed("a"), keyed("a"));
        enqueue(trial, vec![first.clone()]).await;
        let id = next.id;
        let cancelled = cancel(trial, first.id, &[CancelOutcome::Cancelled]);
        call_pair(enqueue(trial, vec![next]), cancelled, move |ended| ended.ran_once(id))
    })
    .await;
}

#[tokio::test]
async fn two_parents_end_at_once() {
    every_interleaving("finish | finish", async |trial| {
        let (one, two) = (job("a"), job("a"));
        let [first, second] = trial.running([&one, &two]).await;
        let child = child_of(&[&one, &two]);
        let id = child.id;
        enqueue(trial, vec![child]).await;
        call_pair(finish(trial, &first), finish_in_unit(trial, &second), move |ended| ended.ran_once(id))
    })
    .await;
}

#[tokio::test]
async fn one_parent_ends_and_the_other_dies() {
    every_interleaving("finish | death", async |trial| {
        let (one, two) = (job("a"), job("a"));
        let [first, second] = trial.running([&one, &two]).await;
        let child = child_of(&[&one, &two]);
        let id = child.id;
        enqueue(trial, vec![child]).await;
        call_pair(finish(trial, &first), kill(trial, &second), move |ended| {
            assert_eq!((ended.runs(id), ended.state(id)), (0, "cancelled"));
        })
    })
    .await;
}

#[tokio::test]
async fn parent_and_head_of_the_key_end_at_once() {
    every_interleaving("finish parent | finish head", async |trial| {
        let (parent, head) = (job("a"), keyed("a"));
        let [first, second] = trial.running([&parent, &head]).await;
        let child = NewJob { order_key: Some("key".into()), ..child_of(&[&parent]) };
        let id = child.id;
        enqueue(trial, vec![child]).await;
        call_pair(finish(trial, &first), finish(trial, &second), move |ended| ended.ran_once(id))
    })
    .await;
}

#[tokio::test]
async fn job_enqueued_again_while_it_ends() {
    for policy in [OnConflict::Merge, OnConflict::Replace, OnConflict::Keep] {
        every_interleaving(&format!("{policy:?} | finish"), async |trial| {
            let first = unique(policy);
            let [held] = trial.running([&first]).await;
            let again = enqueue(trial, vec![unique(policy)]);
            call_pair(again, finish(trial, &held), move |ended| {
                // Kept: it is the one that ends, or a new one.
                let others: u32 = ended.runs.values().sum();
                assert!(others == 1 || (policy == OnConflict::Keep && others == 0), "{others} runs after the first");
            })
        })
        .await;
    }
}

#[tokio::test]
async fn unique_job_is_enqueued_twice_at_once() {
    every_interleaving("merge | merge", async |trial| {
        let [one, two] = [unique(OnConflict::Merge), unique(OnConflict::Merge)];
        call_pair(enqueue(trial, vec![one]), enqueue(trial, vec![two]), |ended| {
            assert_eq!(ended.runs.values().sum::<u32>(), 1);
        })
    })
    .await;
}

#[tokio::test]
async fn child_cancelled_while_its_parent_ends() {
    every_interleaving("cancel | finish", async |trial| {
        let parent = job("a");
        let [held] = trial.running([&parent]).await;
        let child = child_of(&[&parent]);
        let id = child.id;
        enqueue(trial, vec![child]).await;
        let cancelled = cancel(trial, id, &[CancelOutcome::Cancelled]);
        call_pair(cancelled, finish(trial, &held), move |ended| {
            assert_eq!((ended.runs(id), ended.state(id)), (0, "cancelled"));
        })
    })
    .await;
}

#[tokio::test]
async fn job_cancelled_while_it_is_claimed() {
    every_interleaving("cancel | claim", async |trial| {
        let one = job("a");
        let id = one.id;
        enqueue(trial, vec![one]).await;
        trial.store.system().count_arrivals().await.unwrap();
        let cancelled = cancel(trial, id, &[CancelOutcome::Cancelled, CancelOutcome::Requested]);
        call_pair(cancelled, take_all(trial, Lane::Normal), move |ended| {
            assert_eq!(ended.runs(id) == 0, ended.state(id) == "cancelled");
        })
    })
    .await;
}

/// A unit that changes a job locks its row, and a claim skips it; but it must find it later.
#[tokio::test]
async fn waiting_job_changed_while_others_are_claimed() {
    every_interleaving("merge | claim", async |trial| {
        let (one, two) = (unique(OnConflict::Merge), job("a"));
        let ids = [one.id, two.id];
        enqueue(trial, vec![one]).await;
        enqueue(trial, vec![two]).await;
        trial.store.system().count_arrivals().await.unwrap();
        let again = enqueue(trial, vec![unique(OnConflict::Merge)]);
        call_pair(again, take_all(trial, Lane::Normal), move |ended| {
            ended.ran_once(ids[1]);
            assert!(ended.runs(ids[0]) >= 1);
        })
    })
    .await;
    every_interleaving("child | claim", async |trial| {
        let (one, two) = (job("a"), job("a"));
        let child = child_of(&[&one]);
        let ids = [one.id, two.id, child.id];
        enqueue(trial, vec![one, two]).await;
        trial.store.system().count_arrivals().await.unwrap();
        call_pair(enqueue(trial, vec![child]), take_all(trial, Lane::Normal), move |ended| {
            ids.iter().for_each(|id| ended.ran_once(*id));
        })
    })
    .await;
}

#[tokio::test]
async fn two_claim_at_once() {
    every_interleaving("claim | claim", async |trial| {
        let jobs = vec![job("a"), job("a")];
        let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
        enqueue(trial, jobs).await;
        trial.store.system().count_arrivals().await.unwrap();
        call_pair(take_all(trial, Lane::Normal), take_all(trial, Lane::Normal), move |ended| {
            ids.iter().for_each(|id| ended.ran_once(*id));
        })
    })
    .await;
}

#[tokio::test]
async fn arrivals_counted_while_they_are_claimed() {
    every_interleaving("count | claim", async |trial| {
        let (early, late) = (job("a"), job("a"));
        let ids = [early.id, late.id];
        enqueue(trial, vec![early]).await;
        trial.store.system().count_arrivals().await.unwrap();
        enqueue(trial, vec![late]).await;
        let system = trial.store.system();
        let counted = async move { system.count_arrivals().await.unwrap() };
        call_pair(counted, take_all(trial, Lane::Normal), move |ended| ids.iter().for_each(|id| ended.ran_once(*id)))
    })
    .await;
}

#[tokio::test]
async fn job_ends_while_it_is_reclaimed() {
    every_interleaving("finish | take back", async |trial| {
        let dead = trial.store.system().register_worker("dead", &[], Duration::ZERO).await.unwrap();
        let one = job("a");
        let id = one.id;
        enqueue(trial, vec![one]).await;
        let held = claim(&trial.store, dead, 10).await;
        let (system, other) = (trial.store.system(), trial.store.system());
        let finished = async move { drop(system.finish_done(&held, successor).await.unwrap()) };
        let taken = async move {
            other.reclaim_abandoned_jobs(successor).await.unwrap();
        };
        call_pair(finished, taken, move |ended| assert!(ended.runs(id) <= 1 && ended.state(id) == "done"))
    })
    .await;
}

/// A worker that claims its jobs sees that it is inactive, or cannot end them.
#[tokio::test]
async fn tenant_deactivated_while_its_jobs_are_claimed() {
    each_order("claim | off", async |trial, wanted, watcher| {
        let system = trial.store.system();
        let on = system.create_tenant(&trial.tenant.to_string(), PlanTier::Standard).await.unwrap().unwrap();
        let trial = OrderTrial { tenant: on.id, store: trial.store.clone(), claimed: Arc::default(), ..*trial };
        enqueue(&trial, vec![job("a")]).await;
        system.count_arrivals().await.unwrap();
        let (taking, store, sees) =
            (take_all(&trial, Lane::Normal), trial.store.tenant(on.id), Arc::new(AtomicBool::new(false)));
        let saw = sees.clone();
        let claims = async move {
            taking.await;
            sees.store(store.is_active().await.unwrap(), Ordering::SeqCst);
        };
        let off = Tenant { is_active: false, ..on.changed_at(on.updated_at) };
        let switches = async move { system.change_tenant(&on, &off).await.unwrap() };

        let tried = run([Box::pin(claims), Box::pin(switches)], wanted, watcher).await;

        let held = std::mem::take(&mut *trial.claimed.lock().unwrap());
        if saw.load(Ordering::SeqCst) {
            let ended = trial.store.system().finish_done(&held, successor).await.unwrap();
            assert!(ended.is_empty(), "it ends after its tenant is off, order {:?}", tried.0);
        }
        tried
    })
    .await;
}

/// A claim sees jobs as they were when it began, but its queue as it is when it locks it. In between a job with an early
/// place may have come back.
#[tokio::test]
async fn job_returned_while_a_claim_begins() {
    let db = migrated_postgres().await;
    let store::Location::Postgres { url, .. } = &db.location else { unreachable!() };
    // Claims stop between the two while this lock is held.
    let stop = "create function stop_claims() returns boolean language plpgsql as $$ begin
                    if current_query() like '%mailroom_claim_jobs%' then perform pg_advisory_xact_lock_shared(4711); end if;
                    return true;
                end $$;
                grant execute on function stop_claims to mailroom_system;
                create policy stop_claims on job_queues as restrictive to mailroom_system using (stop_claims())";
    run_sql(url, stop).await.unwrap();
    let (holder, connection) = tokio_postgres::connect(&admin_url(url), NoTls).await.unwrap();
    tokio::spawn(connection);
    let worker = db.store.system().register_worker("test", &[], Duration::from_secs(3600)).await.unwrap();
    let tenant = TenantId::SYSTEM;
    let trial = OrderTrial { db: &db, store: db.store.clone(), tenant, worker, claimed: Arc::default() };
    let [early] = trial.running([&job("a")]).await;
    enqueue(&trial, vec![job("a"), job("a")]).await;
    trial.store.system().count_arrivals().await.unwrap();

    holder.batch_execute("select pg_advisory_lock(4711)").await.unwrap();
    let claiming = tokio::spawn(take_all(&trial, Lane::Normal));
    let waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted";
    while count(&db, waiting).await == 0 {
        tokio::task::yield_now().await;
    }
    trial.store.system().return_jobs(worker, &[early.id]).await.unwrap();
    trial.store.system().count_arrivals().await.unwrap();
    holder.batch_execute("select pg_advisory_unlock(4711)").await.unwrap();
    claiming.await.unwrap();

    assert_invariants(&db, "after the claim").await;
    let ended = trial.ended().await;
    assert_eq!(ended.runs.values().copied().collect::<Vec<_>>(), [1, 1, 1]);
}

/// Runs the same tests in a process without the guard.
#[test]
fn interleavings_fail_without_locks_and_tokens() {
    let guarded_tests = [
        (Guard::ParentLock, "interleave::child_added_while_its_parent_ends", "not so: "),
        (Guard::KeyLock, "interleave::next_of_a_key_added_while_the_head_ends", "not so: "),
        (Guard::JobToken, "model::queue_behaves_like_the_model", "the shortest operations that show it"),
    ];
    for (guard, test, said) in guarded_tests {
        let program = std::env::current_exe().unwrap();
        let outcome = std::process::Command::new(program)
            .args(["--exact", &format!("jobs::{test}"), "--nocapture"])
            .env(VARIABLE, format!("off={}", guard.name()))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&outcome.stderr);
        assert!(!outcome.status.success() && text.contains(said), "{guard:?} guards nothing: {text}");
    }
}
