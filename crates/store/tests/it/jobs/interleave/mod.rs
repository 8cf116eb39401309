//! No wake-up is lost: two calls at once, stepped through every order in which their statements can reach the database.

mod again;
mod stage;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use domain::{JobId, Lane, PlanTier, TenantId};
use store::failpoint::{Guard, VARIABLE};
use store::sql::jobs::{Cancelling, NewJob, OnConflict};
use store::sql::tenants::Tenant;
use store::testing::{admin_url, migrated_postgres, run_sql};
use tokio_postgres::NoTls;

use self::stage::*;
use super::moves::{claim, job};
use super::truth::assert_true;

#[tokio::test]
async fn a_child_comes_while_its_parent_ends() {
    every_interleaving("child | finish", async |place| {
        let parent = job("a");
        let [held] = place.running([&parent]).await;
        let child = child_of(&[&parent]);
        let id = child.id;
        scene(enqueue(place, vec![child]), finish(place, &held), move |ended| ended.ran_once(id))
    })
    .await;
    every_interleaving("child | finish in a unit", async |place| {
        let parent = job("a");
        let [held] = place.running([&parent]).await;
        let child = child_of(&[&parent]);
        let id = child.id;
        scene(enqueue(place, vec![child]), finish_in_unit(place, &held), move |ended| ended.ran_once(id))
    })
    .await;
}

#[tokio::test]
async fn a_child_comes_while_its_parent_dies() {
    every_interleaving("child | death", async |place| {
        let parent = job("a");
        let [held] = place.running([&parent]).await;
        let child = child_of(&[&parent]);
        let id = child.id;
        scene(enqueue(place, vec![child]), kill(place, &held), move |ended| {
            assert_eq!((ended.runs(id), ended.state(id)), (0, "cancelled"));
        })
    })
    .await;
}

#[tokio::test]
async fn another_of_an_ordering_key_comes_while_the_first_ends() {
    every_interleaving("key | finish", async |place| {
        let first = keyed("a");
        let [held] = place.running([&first]).await;
        let next = keyed("a");
        let id = next.id;
        scene(enqueue(place, vec![next]), finish(place, &held), move |ended| ended.ran_once(id))
    })
    .await;
}

#[tokio::test]
async fn another_of_an_ordering_key_comes_while_the_first_is_cancelled() {
    every_interleaving("key | cancel", async |place| {
        let (first, next) = (keyed("a"), keyed("a"));
        enqueue(place, vec![first.clone()]).await;
        let id = next.id;
        let cancelled = cancel(place, first.id, &[Cancelling::Cancelled]);
        scene(enqueue(place, vec![next]), cancelled, move |ended| ended.ran_once(id))
    })
    .await;
}

#[tokio::test]
async fn two_parents_end_at_once() {
    every_interleaving("finish | finish", async |place| {
        let (one, two) = (job("a"), job("a"));
        let [first, second] = place.running([&one, &two]).await;
        let child = child_of(&[&one, &two]);
        let id = child.id;
        enqueue(place, vec![child]).await;
        scene(finish(place, &first), finish_in_unit(place, &second), move |ended| ended.ran_once(id))
    })
    .await;
}

#[tokio::test]
async fn one_parent_ends_and_the_other_dies() {
    every_interleaving("finish | death", async |place| {
        let (one, two) = (job("a"), job("a"));
        let [first, second] = place.running([&one, &two]).await;
        let child = child_of(&[&one, &two]);
        let id = child.id;
        enqueue(place, vec![child]).await;
        scene(finish(place, &first), kill(place, &second), move |ended| {
            assert_eq!((ended.runs(id), ended.state(id)), (0, "cancelled"));
        })
    })
    .await;
}

#[tokio::test]
async fn the_parent_and_the_head_of_the_key_end_at_once() {
    every_interleaving("finish parent | finish head", async |place| {
        let (parent, head) = (job("a"), keyed("a"));
        let [first, second] = place.running([&parent, &head]).await;
        let child = NewJob { order_key: Some("key".into()), ..child_of(&[&parent]) };
        let id = child.id;
        enqueue(place, vec![child]).await;
        scene(finish(place, &first), finish(place, &second), move |ended| ended.ran_once(id))
    })
    .await;
}

#[tokio::test]
async fn a_job_is_asked_for_again_while_it_ends() {
    for policy in [OnConflict::Merge, OnConflict::Replace, OnConflict::Keep] {
        every_interleaving(&format!("{policy:?} | finish"), async |place| {
            let first = unique(policy);
            let [held] = place.running([&first]).await;
            let again = enqueue(place, vec![unique(policy)]);
            scene(again, finish(place, &held), move |ended| {
                // Kept: it is the one that ends, or a new one.
                let others: u32 = ended.runs.values().sum();
                assert!(others == 1 || (policy == OnConflict::Keep && others == 0), "{others} runs after the first");
            })
        })
        .await;
    }
}

#[tokio::test]
async fn two_ask_for_a_unique_job_at_once() {
    every_interleaving("merge | merge", async |place| {
        let [one, two] = [unique(OnConflict::Merge), unique(OnConflict::Merge)];
        scene(enqueue(place, vec![one]), enqueue(place, vec![two]), |ended| {
            assert_eq!(ended.runs.values().sum::<u32>(), 1);
        })
    })
    .await;
}

#[tokio::test]
async fn a_child_is_cancelled_while_its_parent_ends() {
    every_interleaving("cancel | finish", async |place| {
        let parent = job("a");
        let [held] = place.running([&parent]).await;
        let child = child_of(&[&parent]);
        let id = child.id;
        enqueue(place, vec![child]).await;
        let cancelled = cancel(place, id, &[Cancelling::Cancelled]);
        scene(cancelled, finish(place, &held), move |ended| {
            assert_eq!((ended.runs(id), ended.state(id)), (0, "cancelled"));
        })
    })
    .await;
}

#[tokio::test]
async fn a_job_is_cancelled_while_it_is_claimed() {
    every_interleaving("cancel | claim", async |place| {
        let one = job("a");
        let id = one.id;
        enqueue(place, vec![one]).await;
        place.store.system().count_arrivals().await.unwrap();
        let cancelled = cancel(place, id, &[Cancelling::Cancelled, Cancelling::Asked]);
        scene(cancelled, take_all(place, Lane::Normal), move |ended| {
            assert_eq!(ended.runs(id) == 0, ended.state(id) == "cancelled");
        })
    })
    .await;
}

/// Whoever changes a job holds its row, and a claim goes round it; but it must find it later.
#[tokio::test]
async fn a_waiting_job_is_changed_while_others_are_claimed() {
    every_interleaving("merge | claim", async |place| {
        let (one, two) = (unique(OnConflict::Merge), job("a"));
        let ids = [one.id, two.id];
        enqueue(place, vec![one]).await;
        enqueue(place, vec![two]).await;
        place.store.system().count_arrivals().await.unwrap();
        let again = enqueue(place, vec![unique(OnConflict::Merge)]);
        scene(again, take_all(place, Lane::Normal), move |ended| {
            ended.ran_once(ids[1]);
            assert!(ended.runs(ids[0]) >= 1);
        })
    })
    .await;
    every_interleaving("child | claim", async |place| {
        let (one, two) = (job("a"), job("a"));
        let child = child_of(&[&one]);
        let ids = [one.id, two.id, child.id];
        enqueue(place, vec![one, two]).await;
        place.store.system().count_arrivals().await.unwrap();
        scene(enqueue(place, vec![child]), take_all(place, Lane::Normal), move |ended| {
            ids.iter().for_each(|id| ended.ran_once(*id));
        })
    })
    .await;
}

#[tokio::test]
async fn two_claim_at_once() {
    every_interleaving("claim | claim", async |place| {
        let jobs = vec![job("a"), job("a")];
        let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
        enqueue(place, jobs).await;
        place.store.system().count_arrivals().await.unwrap();
        scene(take_all(place, Lane::Normal), take_all(place, Lane::Normal), move |ended| {
            ids.iter().for_each(|id| ended.ran_once(*id));
        })
    })
    .await;
}

#[tokio::test]
async fn what_has_come_is_counted_while_it_is_claimed() {
    every_interleaving("count | claim", async |place| {
        let (early, late) = (job("a"), job("a"));
        let ids = [early.id, late.id];
        enqueue(place, vec![early]).await;
        place.store.system().count_arrivals().await.unwrap();
        enqueue(place, vec![late]).await;
        let system = place.store.system();
        let counted = async move { system.count_arrivals().await.unwrap() };
        scene(counted, take_all(place, Lane::Normal), move |ended| ids.iter().for_each(|id| ended.ran_once(*id)))
    })
    .await;
}

#[tokio::test]
async fn a_job_ends_while_it_is_taken_back() {
    every_interleaving("finish | take back", async |place| {
        let dead = place.store.system().register_worker("dead", &[], Duration::ZERO).await.unwrap();
        let one = job("a");
        let id = one.id;
        enqueue(place, vec![one]).await;
        let held = claim(&place.store, dead, 10).await;
        let (system, other) = (place.store.system(), place.store.system());
        let finished = async move { drop(system.finish_done(&held, successor).await.unwrap()) };
        let taken = async move {
            other.take_back_abandoned(successor).await.unwrap();
        };
        scene(finished, taken, move |ended| assert!(ended.runs(id) <= 1 && ended.state(id) == "done"))
    })
    .await;
}

/// Whoever claims its jobs sees that it is off, or does not get to end them.
#[tokio::test]
async fn a_tenant_is_switched_off_while_its_jobs_are_claimed() {
    each_order("claim | off", async |place, wanted, watcher| {
        let system = place.store.system();
        let on = system.create_tenant(&place.tenant.to_string(), PlanTier::Standard).await.unwrap().unwrap();
        let place = Place { tenant: on.id, store: place.store.clone(), claimed: Arc::default(), ..*place };
        enqueue(&place, vec![job("a")]).await;
        system.count_arrivals().await.unwrap();
        let (taking, store, sees) =
            (take_all(&place, Lane::Normal), place.store.tenant(on.id), Arc::new(AtomicBool::new(false)));
        let saw = sees.clone();
        let claims = async move {
            taking.await;
            sees.store(store.is_active().await.unwrap(), Ordering::SeqCst);
        };
        let off = Tenant { is_active: false, ..on.changed_at(on.updated_at) };
        let switches = async move { system.change_tenant(&on, &off).await.unwrap() };

        let tried = run([Box::pin(claims), Box::pin(switches)], wanted, watcher).await;

        let held = std::mem::take(&mut *place.claimed.lock().unwrap());
        if saw.load(Ordering::SeqCst) {
            let ended = place.store.system().finish_done(&held, successor).await.unwrap();
            assert!(ended.is_empty(), "it ends after its tenant is off, order {:?}", tried.0);
        }
        tried
    })
    .await;
}

/// A claim sees jobs as they were when it began, but its queue as it is when it locks it. In between a job with an early
/// place may have come back.
#[tokio::test]
async fn a_job_comes_back_while_a_claim_begins() {
    let db = migrated_postgres().await;
    let store::Location::Postgres { url, .. } = &db.location else { unreachable!() };
    // Claims stop between the two while somebody holds this lock.
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
    let place = Place { db: &db, store: db.store.clone(), tenant, worker, claimed: Arc::default() };
    let [early] = place.running([&job("a")]).await;
    enqueue(&place, vec![job("a"), job("a")]).await;
    place.store.system().count_arrivals().await.unwrap();

    holder.batch_execute("select pg_advisory_lock(4711)").await.unwrap();
    let claiming = tokio::spawn(take_all(&place, Lane::Normal));
    let waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted";
    while count(&db, waiting).await == 0 {
        tokio::task::yield_now().await;
    }
    place.store.system().give_back(worker, &[early.id]).await.unwrap();
    place.store.system().count_arrivals().await.unwrap();
    holder.batch_execute("select pg_advisory_unlock(4711)").await.unwrap();
    claiming.await.unwrap();

    assert_true(&db, "after the claim").await;
    let ended = place.ended().await;
    assert_eq!(ended.runs.values().copied().collect::<Vec<_>>(), [1, 1, 1]);
}

/// The same tests in a process in which something is left out.
#[test]
fn without_the_locks_and_tokens_these_tests_fail() {
    let teeth = [
        (Guard::ParentLock, "interleave::a_child_comes_while_its_parent_ends", "not so: "),
        (Guard::KeyLock, "interleave::another_of_an_ordering_key_comes_while_the_first_ends", "not so: "),
        (Guard::JobToken, "model::the_queue_does_what_a_simple_model_does", "the shortest operations that show it"),
    ];
    for (guard, test, said) in teeth {
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
