//! Walks the table of operations: each is on record under its actor, acts once under its idempotency key, and is refused
//! for a tenant for which it must not be done. An operation without a case fails.

mod installation_cases;
mod mail_cases;
mod queue_cases;
mod reader_cases;
mod subject;
mod tenant_cases;

use std::collections::BTreeSet;

use domain::Actor;
use engine::operations::{self, Operation, Refusal, Resource, TenantRequirement};
use serde_json::Value;
use store::Dialect;
use testkit::{TestApp, on_each_app};

use subject::Subject;

/// Does an operation to what was prepared for it.
async fn perform(operation: &Operation, subject: &Subject<'_>) -> Result<(), Refusal> {
    match operation.on {
        Resource::Installation => installation_cases::perform(operation, subject).await,
        Resource::Tenant | Resource::ApiKey => tenant_cases::perform(operation, subject).await,
        Resource::Mailbox | Resource::Email | Resource::Directory | Resource::Webhook => {
            mail_cases::perform(operation, subject).await
        }
        Resource::Job | Resource::Queue | Resource::DeadLetters | Resource::Recurring => {
            queue_cases::perform(operation, subject).await
        }
        Resource::SqlReader => reader_cases::perform(operation, subject).await,
    }
}

/// Lists the actions that are on record under an actor.
async fn audited_actions(app: &TestApp, actor: &Actor) -> Vec<String> {
    let rows = app.db.rows("select cast(entry as text) from audit").await;
    let entries = rows.iter().map(|row| serde_json::from_str::<Value>(&row.get::<String>(0).unwrap()).unwrap());
    let own = entries.filter(|entry| entry["actor"] == actor.to_string());
    own.map(|entry| entry["action"].as_str().unwrap().to_owned()).collect()
}

/// What a walk leaves behind for workers that never come.
fn allow_leftovers(app: &TestApp) {
    app.may_leave_jobs(&[
        "discover_directory",
        "erase_mailbox",
        "fetch_failed",
        "noop",
        "reindex",
        "remove_missing",
        "sync_mailbox",
        "upkeep",
    ]);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_is_audited_once_under_its_key() {
    on_each_app(async |app| {
        allow_leftovers(app);
        for operation in operations::ALL {
            let subject = Subject::new(app, operation).await.with_key();
            let (actor, key) = (&subject.actor, subject.key.unwrap());

            let done = perform(operation, &subject).await;

            if operation.on == Resource::SqlReader && app.store().dialect() == Dialect::Sqlite {
                // It has no logins.
                assert!(matches!(done, Err(Refusal::Conflict(_))), "{}: {done:?}", operation.name);
                assert_eq!(audited_actions(app, actor).await, [""; 0]);
                continue;
            }
            assert!(done.is_ok(), "{}: {done:?}", operation.name);
            assert_eq!(audited_actions(app, actor).await, [operation.name]);
            let (request, reply) = operations::find_reply(&app.engine, key.tenant, key.hash).await.unwrap().unwrap();
            assert_eq!((request, reply.body.as_str()), (key.request, subject.reply()), "{}", operation.name);
            let again = perform(operation, &subject).await;
            assert!(again.is_err(), "{}: the reply is kept, and it is not done again", operation.name);
            assert_eq!(audited_actions(app, actor).await, [operation.name]);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operation_is_refused_for_a_tenant_that_forbids_it() {
    on_each_app(async |app| {
        allow_leftovers(app);
        for operation in operations::ALL {
            let state = match operation.tenant {
                TenantRequirement::None => continue,
                TenantRequirement::Active => "is_active = false",
                TenantRequirement::NotHeld => "hold_reason = 'a lawsuit'",
            };
            let subject = Subject::new(app, operation).await;
            app.db.run(&format!("update tenants set {state} where id = '{}'", subject.tenant.id)).await;

            let refused = perform(operation, &subject).await;

            let expected = match operation.tenant {
                TenantRequirement::Active => matches!(refused, Err(Refusal::TenantInactive)),
                _ => matches!(refused, Err(Refusal::TenantHeld { .. })),
            };
            assert!(expected, "{}: {refused:?}", operation.name);
            assert_eq!(audited_actions(app, &subject.actor).await, [""; 0], "{}", operation.name);
        }
    })
    .await;
}

#[test]
fn operations_have_names_of_their_own() {
    let names: BTreeSet<&str> = operations::ALL.iter().map(|operation| operation.name).collect();

    assert_eq!(names.len(), operations::ALL.len());
}
