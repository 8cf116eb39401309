//! Every operation of the OpenAPI description with every kind of key: what is another tenant's is as if it were not there.

use std::collections::{BTreeMap, BTreeSet};

use jobs::probe::Probe;
use serde_json::{Value, json};
use store::sql::jobs::JobScope;
use testkit::{HttpReply, on_each_app};

use crate::two_tenants::{TwoTenants, select, text};

/// An id that nothing has.
const ABSENT: &str = "018f0000-0000-7000-8000-000000000000";

/// The callers that an operation is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Audience {
    Operator,
    /// A tenant's key, or the operator's with the tenant's id.
    Tenant,
    /// The operator's key with the tenant's id, and no other.
    OperatorForTenant,
    /// Like `Tenant`, but not a key that may only read, though nothing is changed yet.
    Writer,
    /// Like `Tenant`, and the operator for all tenants.
    Anyone,
    /// A browser, which has no key but something else.
    Browser,
    /// A provider, by a token of its own or a secret in its message; a key opens nothing there. Here no provider is set up.
    Provider,
}

#[derive(Debug)]
struct ApiOperation {
    method: String,
    route: String,
    id: String,
    audience: Audience,
    /// A body that it accepts.
    body: Value,
}

/// The audience of an operation, and a body that it accepts. One without a case is a mistake.
fn case(operation: &str) -> (Audience, Value) {
    let none = Value::Null;
    match operation {
        "list_tenants" | "get_tenant" | "list_api_keys" | "get_usage" | "delete_tenant" | "undelete_tenant"
        | "revoke_api_key" | "list_queues" | "pause_queue" | "resume_queue" | "list_recurring" | "run_recurring"
        | "pause_recurring" | "resume_recurring" => (Audience::Operator, none),
        "create_tenant" => (Audience::Operator, json!({"name": "gamma"})),
        "change_tenant" => (Audience::Operator, json!({"plan": "vip"})),
        "create_api_key" => (Audience::Operator, json!({"name": "another"})),
        "move_job" => (Audience::Operator, json!({"lane": "high"})),
        "list_mailboxes"
        | "get_mailbox"
        | "get_mailbox_health"
        | "list_folders"
        | "get_completeness"
        | "search_emails"
        | "get_email"
        | "get_email_raw"
        | "delete_email"
        | "restore_email"
        | "get_attachment"
        | "get_attachment_content"
        | "get_attachment_url"
        | "list_events"
        | "follow_events"
        | "delete_mailbox"
        | "sync_mailbox"
        | "apply_mailbox_removals"
        | "pause_mailbox"
        | "resume_mailbox"
        | "list_webhooks"
        | "get_webhook"
        | "delete_webhook"
        | "ping_webhook"
        | "list_deliveries"
        | "get_delivery"
        | "resend_delivery"
        | "list_directories"
        | "get_directory"
        | "delete_directory"
        | "list_users" => (Audience::Tenant, none),
        "put_directory" => {
            (Audience::OperatorForTenant, json!({"administrator": "admin@acme.test", "is_paused": true}))
        }
        "discover_directory" => (Audience::Tenant, json!({"dry_run": true})),
        "start_consent" | "start_google_consent" | "start_microsoft_consent" => (Audience::Writer, none),
        "end_consent" | "end_google_consent" | "end_microsoft_consent" => (Audience::Browser, none),
        "create_mailbox" => (Audience::Tenant, json!({"address": "new@acme.test", "provider": "files"})),
        "change_mailbox" | "change_webhook" | "rotate_webhook" => (Audience::Tenant, json!({})),
        "create_webhook" => (Audience::Tenant, json!({"url": "https://hook.invalid/other"})),
        "resend_since" => (Audience::Tenant, json!({"since": "2026-01-01T00:00:00Z"})),
        "list_jobs" | "get_job" | "why_job" | "retry_job" | "cancel_job" | "list_dead_letters" | "list_audit" => {
            (Audience::Anyone, none)
        }
        "replay_dead_letters" => (Audience::Anyone, json!({"kind": "none such"})),
        "push" | "push_gmail" => (Audience::Provider, json!({"message": {"messageId": "1", "data": "e30="}})),
        "push_graph" | "push_graph_lifecycle" => (Audience::Provider, json!({"value": []})),
        other => panic!("{other} has no case"),
    }
}

/// All operations; what is destroyed comes last.
fn operations(description: &Value) -> Vec<ApiOperation> {
    let mut all = Vec::new();
    for (route, methods) in description["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap_or_else(|| panic!("{route} has no name")).to_owned();
            for response in operation["responses"].as_object().unwrap().values() {
                assert!(response["description"].is_string(), "{id}: {response}");
            }
            let (audience, body) = case(&id);
            all.push(ApiOperation { method: method.to_uppercase(), route: route.clone(), id, audience, body });
        }
    }
    let names: BTreeSet<&str> = all.iter().map(|operation| &*operation.id).collect();
    assert_eq!(names.len(), all.len(), "a client has one function for each");
    all.sort_by_key(|operation| (operation.method == "DELETE", operation.route == "/v1/tenants/{id}"));
    all
}

/// Acme's ids, by the beginning of the routes that have them.
struct AcmeIds(BTreeMap<&'static str, String>);

impl AcmeIds {
    async fn create(two: &TwoTenants<'_>) -> Self {
        let email = two.ids("/v1/emails?q=has:attachment", &two.acme_reader).await.remove(0);
        let email_json = two.get(&format!("/v1/emails/{email}"), &two.acme_reader).await.json();
        let job = create_job(two).await;
        let webhook = json!({"url": "https://hook.invalid/", "types": ["mailbox.gap_healed"]});
        let webhook = two.send("POST", "/v1/webhooks", &two.acme_writer, &webhook).await.expect(201).json();
        let webhook = text(&webhook["webhook"]["id"]);
        let ping = format!("/v1/webhooks/{webhook}/ping");
        two.send("POST", &ping, &two.acme_writer, &Value::Null).await.expect(202);
        let delivery = two.ids(&format!("/v1/webhooks/{webhook}/deliveries"), &two.acme_reader).await.remove(0);
        let directory = json!({"administrator": "admin@acme.test", "is_paused": true});
        let named = [("X-Tenant-Id", &*two.acme.id.to_string())];
        two.send_with("PUT", "/v1/directories/gmail", &two.operator, &directory, &named).await.expect(200);
        Self(BTreeMap::from([
            ("{delivery}", delivery),
            ("/v1/webhooks/{id}", webhook),
            ("/v1/jobs/{id}", job),
            ("/v1/tenants/{id}", two.acme.id.to_string()),
            ("/v1/mailboxes/{id}", two.ids("/v1/mailboxes", &two.acme_reader).await.remove(0)),
            ("/v1/attachments/{id}", text(&email_json["attachments"][0]["id"])),
            ("/v1/emails/{id}", email),
        ]))
    }

    /// The path of the route for what is acme's.
    fn path(&self, route: &str) -> String {
        let found = self.0.iter().find(|(prefix, _)| route.starts_with(**prefix));
        let route = route.replace("{delivery}", &self.0["{delivery}"]);
        fill(&route, found.map_or(ABSENT, |(_, id)| id))
    }
}

/// A job that stays, since no worker runs the jobs of acme.
async fn create_job(two: &TwoTenants<'_>) -> String {
    assert!(two.app.store().system().pause_jobs(&JobScope::Tenant(two.acme.id)).await.unwrap());
    two.app.enqueue(two.acme.id, &Probe::default()).await;
    let job = two.ids("/v1/jobs?kind=probe", &two.acme_reader).await.remove(0);
    assert_eq!(two.ids("/v1/jobs?kind=probe", &two.beta_reader).await, Vec::<String>::new());
    assert_eq!(two.ids("/v1/jobs?kind=probe&state=ready", &two.operator).await, std::slice::from_ref(&job));
    let why = two.get(&format!("/v1/jobs/{job}/why"), &two.acme_reader).await.json();
    assert!(text(&why["reasons"][0]).contains("paused"), "{why}");
    job
}

/// A path of the route, with this id.
fn fill(route: &str, id: &str) -> String {
    let name = if route.contains("/queues/") { "low" } else { "upkeep" };
    route
        .replace("{id}", id)
        .replace("{key}", ABSENT)
        .replace("{delivery}", ABSENT)
        .replace("{name}", name)
        .replace("{provider}", "gmail")
}

/// The status and the body, without what differs from request to request.
fn shape(reply: &HttpReply) -> (u16, Value) {
    let mut body: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    if let Some(body) = body.as_object_mut() {
        body.remove("instance");
    }
    (reply.status.as_u16(), body)
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_learns_of_what_is_not_theirs() {
    on_each_app(async |app| {
        app.leaves_jobs(&["discover_directory", "fetch_failed", "probe", "sync_mailbox", "upkeep"]);
        for schedule in engine::jobs::schedules() {
            jobs::recurring::define(app.store(), app.store().clock(), &schedule).await.unwrap();
        }
        let two = TwoTenants::new(app).await;
        let ids = AcmeIds::create(&two).await;
        let description = app.request("GET", "/openapi.json", None, None).await.json();
        let operations = operations(&description);
        let before = app.count("audit").await;
        for operation in &operations {
            let (own, absent) = (ids.path(&operation.route), fill(&operation.route, ABSENT));
            match operation.audience {
                Audience::Browser => assert_keys_change_nothing(&two, operation, &own).await,
                Audience::Provider => assert_not_configured(&two, operation, &own).await,
                _ => assert_others_are_refused(&two, operation, &own, &absent).await,
            }
        }
        assert_eq!(app.count("audit").await, before, "nobody changed anything");
        for operation in &operations {
            assert_audience_is_served(&two, operation, &ids.path(&operation.route)).await;
        }
        let known: BTreeSet<&str> = engine::operations::ALL.iter().map(|operation| operation.name).collect();
        for entry in select(app, "select cast(entry as text) from audit").await {
            let entry: Value = serde_json::from_str(&entry).unwrap();
            assert!(known.contains(entry["action"].as_str().unwrap()), "{entry}");
        }
        let of_beta = two.ids("/v1/emails?limit=500", &two.beta_reader).await;
        assert!(!of_beta.contains(&ids.0["/v1/emails/{id}"]));
        let audit = two.get("/v1/audit", &two.beta_reader).await.json()["items"].to_string();
        assert!(audit.contains("api_key.create") && !audit.contains(&two.acme.id.to_string()), "{audit}");
    })
    .await;
}

async fn assert_keys_change_nothing(two: &TwoTenants<'_>, operation: &ApiOperation, path: &str) {
    let ApiOperation { method, id, body, .. } = operation;
    let accept = [("Accept", "application/json")];
    let without = shape(&two.app.request_with(method, path, None, None, &accept).await);
    assert_eq!(without.0, 400, "{id}");
    for key in [&two.acme_writer, &two.beta_writer, &two.operator] {
        let reply = two.send_with(method, path, key, body, &accept).await;
        assert_eq!(shape(&reply), without, "{id}: a key says nothing here");
    }
}

async fn assert_not_configured(two: &TwoTenants<'_>, operation: &ApiOperation, path: &str) {
    let ApiOperation { method, body, .. } = operation;
    two.app.request(method, path, None, None).await.assert_problem(404, "not configured");
    for key in ["mr_tenant_nonsense", &two.acme_writer, &two.operator] {
        two.send(method, path, key, body).await.assert_problem(404, "not configured");
    }
}

/// `own` is the path of what is acme's, `absent` of what does not exist.
async fn assert_others_are_refused(two: &TwoTenants<'_>, operation: &ApiOperation, own: &str, absent: &str) {
    let ApiOperation { method, route, id, audience, body } = operation;
    for path in [own, absent] {
        two.app.request(method, path, None, None).await.assert_problem(401, "Authorization");
        two.send(method, path, "mr_tenant_nonsense", body).await.assert_problem(401, "not valid");
    }
    if *audience == Audience::Operator {
        for key in [&two.acme_reader, &two.acme_writer, &two.beta_writer] {
            two.send(method, own, key, body).await.assert_problem(403, "operator");
            two.send(method, absent, key, body).await.assert_problem(403, "operator");
        }
        return;
    }
    if *audience == Audience::OperatorForTenant {
        for key in [&two.acme_writer, &two.beta_writer] {
            two.send(method, own, key, body).await.assert_problem(403, "operator");
        }
        two.send(method, own, &two.acme_reader, body).await.assert_problem(403, "write");
        two.send(method, own, &two.operator, body).await.assert_problem(422, "X-Tenant-Id");
        return;
    }
    let named_beta = [("X-Tenant-Id", &*two.beta.id.to_string())];
    let other = two.send_with(method, own, &two.acme_writer, body, &named_beta).await;
    other.assert_problem(403, "another tenant");
    if matches!(audience, Audience::Tenant | Audience::Writer) {
        two.send(method, own, &two.operator, body).await.assert_problem(422, "X-Tenant-Id");
    }
    if method != "GET" || *audience == Audience::Writer {
        two.send(method, own, &two.acme_reader, body).await.assert_problem(403, "write");
        two.send(method, absent, &two.acme_reader, body).await.assert_problem(403, "write");
    }
    if !route.contains('{') || *audience == Audience::Writer {
        return;
    }
    let foreign = shape(&two.send(method, own, &two.beta_writer, body).await);
    let missing = shape(&two.send(method, absent, &two.beta_writer, body).await);
    assert_eq!((foreign.0, &foreign), (404, &missing), "{id}");
    assert_eq!(shape(&two.send_with(method, own, &two.operator, body, &named_beta).await), missing, "{id}");
    if method == "GET" {
        assert_eq!(shape(&two.get(own, &two.beta_reader).await), missing, "{id}");
    }
}

async fn assert_audience_is_served(two: &TwoTenants<'_>, operation: &ApiOperation, path: &str) {
    let ApiOperation { method, id, audience, body, .. } = operation;
    if id == "follow_events" || matches!(audience, Audience::Browser | Audience::Provider) {
        return; // it never ends; or there is nothing that a key would open
    }
    let named_acme = [("X-Tenant-Id", &*two.acme.id.to_string())];
    if *audience == Audience::Operator {
        assert_served(id, &two.send(method, path, &two.operator, body).await);
        return;
    }
    if *audience == Audience::OperatorForTenant {
        assert_served(id, &two.send_with(method, path, &two.operator, body, &named_acme).await);
        return;
    }
    if method == "GET" && *audience != Audience::Writer {
        assert_served(id, &two.get(path, &two.acme_reader).await);
    }
    // What is deleted cannot be deleted again.
    if method != "DELETE" {
        assert_served(id, &two.send_with(method, path, &two.operator, body, &named_acme).await);
    }
    assert_served(id, &two.send(method, path, &two.acme_writer, body).await);
    if *audience == Audience::Anyone {
        assert_served(id, &two.send(method, path, &two.operator, body).await);
    }
}

/// A state in which the operation makes no sense is not a refusal.
#[track_caller]
fn assert_served(id: &str, reply: &HttpReply) {
    assert!(reply.status.is_success() || reply.status == 409 || id == "revoke_api_key", "{id}: {reply:?}");
}
