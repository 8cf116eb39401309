//! Operations on jobs, queues, dead letters and recurring jobs.

use domain::{Lane, PlanTier, TenantId};
use engine::operations::dead_letters::{self, DeadLetters};
use engine::operations::jobs::{self as job_operations, EnqueueRequest};
use engine::operations::{Operation, Refusal, queues, recurring};
use serde_json::json;
use store::sql::jobs::{JobScope, LimitChange, ReplayOptions};
use store::sql::schedules::Schedule;

use super::subject::Subject;

pub async fn perform(operation: &Operation, subject: &Subject<'_>) -> Result<(), Refusal> {
    match operation.name.split_once('.').unwrap().0 {
        "job" => on_job(operation, subject).await,
        "queue" => on_queue(operation, subject).await,
        "dead_letters" => on_dead_letters(operation, subject).await,
        _ => on_recurring(operation, subject).await,
    }
}

async fn on_job(operation: &Operation, subject: &Subject<'_>) -> Result<(), Refusal> {
    let job = subject.job().await;
    match operation.name {
        "job.enqueue" => {
            let request =
                EnqueueRequest { kind: "noop".to_owned(), lane: Lane::Low, payload: json!({}), delay: None, count: 2 };
            job_operations::enqueue(&subject.call().await, subject.tenant.id, &request).await.map(drop)
        }
        "job.retry" => job_operations::retry(&subject.call().await, &job).await.map(drop),
        "job.cancel" => job_operations::cancel(&subject.call().await, &job, "not needed").await.map(drop),
        "job.move" => job_operations::move_to(&subject.call().await, &job, Lane::Low).await.map(drop),
        other => panic!("{other} has no case"),
    }
}

async fn on_queue(operation: &Operation, subject: &Subject<'_>) -> Result<(), Refusal> {
    let scope = JobScope::Tenant(subject.tenant.id);
    match operation.name {
        "queue.pause" => queues::pause(&subject.call().await, &scope).await.map(drop),
        "queue.resume" => queues::resume(&subject.call().await, &scope).await.map(drop),
        "queue.limit" => queues::limit(&subject.call().await, &scope, LimitChange::AtMost(3), LimitChange::Keep).await,
        "queue.weight" => queues::set_weight(&subject.call().await, PlanTier::Vip, 8).await,
        other => panic!("{other} has no case"),
    }
}

async fn on_dead_letters(operation: &Operation, subject: &Subject<'_>) -> Result<(), Refusal> {
    let job = subject.dead_letter().await;
    let letters = DeadLetters::One(Box::new(job.clone()));
    let done = match operation.name {
        "dead_letters.replay" => {
            dead_letters::replay(&subject.call().await, &letters, &ReplayOptions::default()).await.map(drop)
        }
        "dead_letters.discard" => dead_letters::discard(&subject.call().await, &letters).await.map(drop),
        other => panic!("{other} has no case"),
    };
    // What a refused repetition leaves.
    subject.app.store().system().discard_one(job.tenant_id, job.id).await.unwrap();
    done
}

async fn on_recurring(operation: &Operation, subject: &Subject<'_>) -> Result<(), Refusal> {
    let schedule = upkeep(subject).await;
    match operation.name {
        "recurring.run" => recurring::run(&subject.call().await, &schedule).await.map(drop),
        "recurring.pause" => recurring::pause(&subject.call().await, &schedule).await.map(drop),
        "recurring.resume" => recurring::resume(&subject.call().await, &schedule).await.map(drop),
        other => panic!("{other} has no case"),
    }
}

async fn upkeep(subject: &Subject<'_>) -> Schedule {
    let store = subject.app.store();
    for schedule in engine::jobs::schedules() {
        jobs::recurring::define(store, store.clock(), &schedule).await.unwrap();
    }
    store.system().find_schedule(TenantId::SYSTEM, "upkeep").await.unwrap().unwrap()
}
