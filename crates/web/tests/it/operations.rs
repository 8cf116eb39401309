//! Every route that changes something does an operation of the engine's table, which puts it on record.

use std::collections::BTreeSet;

use engine::operations;
use testkit::on_each_app;

/// The operations that a route does. One without a case is a mistake.
fn operations_of(route: &str) -> &'static [&'static str] {
    match route {
        "create_tenant" => &["tenant.create"],
        "change_tenant" => &["tenant.change"],
        "delete_tenant" => &["tenant.delete"],
        "undelete_tenant" => &["tenant.undelete"],
        "create_api_key" => &["api_key.create"],
        "revoke_api_key" => &["api_key.revoke"],
        "create_mailbox" => &["mailbox.create"],
        "change_mailbox" => &["mailbox.change"],
        "delete_mailbox" => &["mailbox.disconnect", "mailbox.erase"],
        "sync_mailbox" => &["mailbox.sync"],
        "apply_mailbox_removals" => &["mailbox.apply_removals"],
        "pause_mailbox" => &["mailbox.pause"],
        "resume_mailbox" => &["mailbox.resume"],
        "end_consent" | "end_google_consent" | "end_microsoft_consent" => &["mailbox.connect", "mailbox.reconnect"],
        "put_directory" => &["directory.put"],
        "delete_directory" => &["directory.delete"],
        "discover_directory" => &["directory.discover"],
        "delete_email" => &["email.delete"],
        "restore_email" => &["email.restore"],
        "create_webhook" => &["webhook.create"],
        "change_webhook" => &["webhook.change"],
        "delete_webhook" => &["webhook.delete"],
        "rotate_webhook" => &["webhook.rotate"],
        "ping_webhook" => &["webhook.ping"],
        "resend_delivery" | "resend_since" => &["webhook.resend"],
        "retry_job" => &["job.retry"],
        "cancel_job" => &["job.cancel"],
        "move_job" => &["job.move"],
        "replay_dead_letters" => &["dead_letters.replay"],
        "pause_queue" => &["queue.pause"],
        "resume_queue" => &["queue.resume"],
        "run_recurring" => &["recurring.run"],
        "pause_recurring" => &["recurring.pause"],
        "resume_recurring" => &["recurring.resume"],
        // A provider calls, not a person, and only says where to look.
        "push" | "push_gmail" | "push_graph" | "push_graph_lifecycle" => &[],
        other => panic!("{other} changes something, but does no operation"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_changing_route_does_an_operation() {
    on_each_app(async |app| {
        let key = app.operator_key().await;
        let description = app.get("/openapi.json", &key).await.json();
        let known: BTreeSet<&str> = operations::ALL.iter().map(|operation| operation.name).collect();
        let methods = description["paths"].as_object().unwrap().values().flat_map(|path| path.as_object().unwrap());
        // A browser comes back from its consent by GET.
        let changing = methods
            .map(|(method, route)| (method.as_str(), route["operationId"].as_str().unwrap()))
            .filter(|(method, route)| *method != "get" || route.ends_with("_consent") && route.starts_with("end_"));

        let done: Vec<&str> = changing.flat_map(|(_, route)| operations_of(route)).copied().collect();

        assert!(done.len() > 30, "{done:?}");
        assert!(done.iter().all(|operation| known.contains(operation)), "{done:?}");
    })
    .await;
}
