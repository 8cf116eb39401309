//! Every operation of the description, asked by everybody: what is another's is as if it were not there.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::scene::Scene;
use crate::http::Answer;
use crate::place::{Place, on_each_database};

const NOBODY: &str = "018f0000-0000-7000-8000-000000000000";

/// Who an operation is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum For {
    Operator,
    /// A tenant's key, or the operator's with the tenant's name.
    Tenant,
    /// The operator's with the tenant's name, and nobody else's.
    Landlord,
    /// The same, but not with a key that may only read, though nothing is changed yet.
    Writer,
    /// The same, and the operator for all tenants.
    Anyone,
    /// A browser, which has no key but something else.
    Browser,
    /// A provider, by a token of its own or a secret in what it says; a key opens nothing there. Here no provider is set up.
    Provider,
}

#[derive(Debug)]
struct Operation {
    method: String,
    route: String,
    id: String,
}

/// What an operation needs: who it is for, and a body that it takes. One without a case is a mistake.
fn case(operation: &str) -> (For, Value) {
    let none = Value::Null;
    match operation {
        "list_tenants" | "get_tenant" | "list_api_keys" | "get_usage" | "delete_tenant" | "revoke_api_key"
        | "list_queues" | "pause_queue" | "resume_queue" | "list_recurring" | "run_recurring" | "pause_recurring"
        | "resume_recurring" => (For::Operator, none),
        "create_tenant" => (For::Operator, json!({"name": "gamma"})),
        "change_tenant" => (For::Operator, json!({"plan": "vip"})),
        "create_api_key" => (For::Operator, json!({"name": "another"})),
        "move_job" => (For::Operator, json!({"lane": "high"})),
        "list_mailboxes"
        | "get_mailbox"
        | "get_mailbox_health"
        | "list_folders"
        | "get_completeness"
        | "search_emails"
        | "get_email"
        | "get_email_raw"
        | "delete_email"
        | "get_attachment"
        | "get_attachment_content"
        | "get_attachment_url"
        | "list_events"
        | "follow_events"
        | "delete_mailbox"
        | "sync_mailbox"
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
        | "list_users" => (For::Tenant, none),
        "put_directory" => (For::Landlord, json!({"administrator": "admin@acme.test", "is_paused": true})),
        "discover_directory" => (For::Tenant, json!({"dry_run": true})),
        "start_google_consent" | "start_microsoft_consent" => (For::Writer, none),
        "end_google_consent" | "end_microsoft_consent" => (For::Browser, none),
        "create_mailbox" => (For::Tenant, json!({"address": "new@acme.test", "provider": "files"})),
        "change_mailbox" | "change_webhook" | "rotate_webhook" => (For::Tenant, json!({})),
        "create_webhook" => (For::Tenant, json!({"url": "https://hook.invalid/other"})),
        "resend_since" => (For::Tenant, json!({"since": "2026-01-01T00:00:00Z"})),
        "list_jobs" | "get_job" | "why_job" | "retry_job" | "cancel_job" | "list_dead_letters" | "list_audit" => {
            (For::Anyone, none)
        }
        "replay_dead_letters" => (For::Anyone, json!({"kind": "none such"})),
        "push_gmail" => (For::Provider, json!({"message": {"messageId": "1", "data": "e30="}})),
        "push_graph" | "push_graph_lifecycle" => (For::Provider, json!({"value": []})),
        other => panic!("{other} has no case"),
    }
}

/// Acme's, by what the address begins with.
fn theirs(scene: &Scene, place: &Place, acme: &str) -> BTreeMap<&'static str, String> {
    let email = scene.ids("/v1/emails?q=has:attachment", &scene.acme).remove(0);
    let email_json = scene.get(&format!("/v1/emails/{email}"), &scene.acme).json();
    // Nobody runs it, so it stays.
    place.ok(&["jobs", "pause", "--tenant", "acme"]);
    place.ok(&["jobs", "enqueue", "--kind", "probe", "--tenant", "acme", "--payload", "{}"]);
    let job = scene.ids("/v1/jobs?kind=probe", &scene.acme).remove(0);
    assert_eq!(scene.ids("/v1/jobs?kind=probe", &scene.beta), Vec::<String>::new());
    assert_eq!(scene.ids("/v1/jobs?kind=probe&state=ready", &scene.operator), std::slice::from_ref(&job));
    let why = scene.get(&format!("/v1/jobs/{job}/why"), &scene.acme).json();
    assert!(why["reasons"][0].as_str().unwrap().contains("paused"), "{why}");
    let webhook = json!({"url": "https://hook.invalid/", "types": ["none.such"]});
    let made = scene.tell("POST", "/v1/webhooks", &scene.acme_writer, &webhook).json();
    let webhook = made["webhook"]["id"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
    assert_eq!(
        scene.tell("POST", &format!("/v1/webhooks/{webhook}/ping"), &scene.acme_writer, &Value::Null).status,
        202
    );
    let delivery = scene.ids(&format!("/v1/webhooks/{webhook}/deliveries"), &scene.acme).remove(0);
    let directory = json!({"administrator": "admin@acme.test", "is_paused": true});
    let named = [("X-Tenant-Id", acme)];
    let put = scene.tell_with("PUT", "/v1/directories/gmail", &scene.operator, &directory, &named);
    assert_eq!(put.status, 200, "{put:?}");
    BTreeMap::from([
        ("{delivery}", delivery),
        ("/v1/webhooks/{id}", webhook),
        ("/v1/jobs/{id}", job),
        ("/v1/tenants/{id}", acme.to_owned()),
        ("/v1/mailboxes/{id}", scene.ids("/v1/mailboxes", &scene.acme).remove(0)),
        ("/v1/attachments/{id}", email_json["attachments"][0]["id"].as_str().unwrap().to_owned()),
        ("/v1/emails/{id}", email),
    ])
}

/// What is destroyed comes last.
fn operations(description: &Value) -> Vec<Operation> {
    let mut all = Vec::new();
    for (route, methods) in description["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap_or_else(|| panic!("{route} has no name")).to_owned();
            for answer in operation["responses"].as_object().unwrap().values() {
                assert!(answer["description"].is_string(), "{id}: {answer}");
            }
            all.push(Operation { method: method.to_uppercase(), route: route.clone(), id });
        }
    }
    let names: BTreeSet<&str> = all.iter().map(|operation| &*operation.id).collect();
    assert_eq!(names.len(), all.len(), "a client has one function for each");
    all.sort_by_key(|operation| (operation.method == "DELETE", operation.route == "/v1/tenants/{id}"));
    all
}

/// The status and what is said, without what differs from request to request.
fn shape(answer: &Answer) -> (u16, Value) {
    let mut body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    if let Some(body) = body.as_object_mut() {
        body.remove("instance");
    }
    (answer.status, body)
}

/// A path of the route, with this id.
fn fill(route: &str, id: &str) -> String {
    let name = if route.contains("/queues/") { "low" } else { "upkeep" };
    route
        .replace("{id}", id)
        .replace("{key}", NOBODY)
        .replace("{delivery}", NOBODY)
        .replace("{name}", name)
        .replace("{provider}", "gmail")
}

fn keys_say_nothing(scene: &Scene, method: &str, path: &str, body: &Value, id: &str) {
    let json = [("Accept", "application/json")];
    let nothing = shape(&scene.ask(method, path, &json));
    assert_eq!(nothing.0, 400, "{id}");
    for key in [&scene.acme_writer, &scene.beta_writer, &scene.operator] {
        let answer = scene.tell_with(method, path, key, body, &json);
        assert_eq!(shape(&answer), nothing, "{id}: a key says nothing here");
    }
}

#[test]
fn nobody_learns_of_what_is_not_theirs() {
    on_each_database(|place| {
        let scene = Scene::start(place);
        let tenants = scene.ids("/v1/tenants", &scene.operator);
        let [acme, beta] = tenants.as_slice() else { panic!("{tenants:?}") };
        let theirs = theirs(&scene, place, acme);
        let description = scene.ask("GET", "/openapi.json", &[]).json();
        let operations = operations(&description);
        let own = |route: &str| {
            let found = theirs.iter().find(|(prefix, _)| route.starts_with(*prefix));
            let route = route.replace("{delivery}", &theirs["{delivery}"]);
            found.map(|(_, id)| fill(&route, id)).unwrap_or_else(|| fill(&route, NOBODY))
        };
        let changes = || place.select("select count(*) || '' from audit");
        let before = changes();
        for Operation { method, route, id } in &operations {
            let (whom, body) = case(id);
            let (mine, absent) = (own(route), fill(route, NOBODY));
            if whom == For::Browser {
                keys_say_nothing(&scene, method, &mine, &body, id);
                continue;
            }
            if whom == For::Provider {
                scene.ask(method, &mine, &[]).assert_problem(404, "not set up");
                for key in ["mr_tenant_nonsense", &scene.acme_writer, &scene.operator] {
                    scene.tell(method, &mine, key, &body).assert_problem(404, "not set up");
                }
                continue;
            }
            for path in [&mine, &absent] {
                scene.ask(method, path, &[]).assert_problem(401, "Authorization");
                scene.tell(method, path, "mr_tenant_nonsense", &body).assert_problem(401, "not valid");
            }
            if whom == For::Operator {
                for key in [&scene.acme, &scene.acme_writer, &scene.beta_writer] {
                    scene.tell(method, &mine, key, &body).assert_problem(403, "operator");
                    scene.tell(method, &absent, key, &body).assert_problem(403, "operator");
                }
                continue;
            }
            if whom == For::Landlord {
                for key in [&scene.acme_writer, &scene.beta_writer] {
                    scene.tell(method, &mine, key, &body).assert_problem(403, "operator");
                }
                scene.tell(method, &mine, &scene.acme, &body).assert_problem(403, "write");
                scene.tell(method, &mine, &scene.operator, &body).assert_problem(422, "X-Tenant-Id");
                continue;
            }
            let named = [("X-Tenant-Id", &**beta)];
            let other = scene.tell_with(method, &mine, &scene.acme_writer, &body, &named);
            other.assert_problem(403, "another tenant");
            if whom == For::Tenant || whom == For::Writer {
                scene.tell(method, &mine, &scene.operator, &body).assert_problem(422, "X-Tenant-Id");
            }
            if method != "GET" || whom == For::Writer {
                scene.tell(method, &mine, &scene.acme, &body).assert_problem(403, "write");
                scene.tell(method, &absent, &scene.acme, &body).assert_problem(403, "write");
            }
            if !route.contains('{') {
                continue;
            }
            let foreign = shape(&scene.tell(method, &mine, &scene.beta_writer, &body));
            let nothing = shape(&scene.tell(method, &absent, &scene.beta_writer, &body));
            assert_eq!((foreign.0, &foreign), (404, &nothing), "{id}");
            assert_eq!(shape(&scene.tell_with(method, &mine, &scene.operator, &body, &named)), nothing, "{id}");
            if method == "GET" {
                assert_eq!(shape(&scene.get(&mine, &scene.beta)), nothing, "{id}");
            }
        }
        assert_eq!(changes(), before, "nobody changed anything");
        owners_get_what_is_theirs(&scene, &operations, own, acme);
        let mine = scene.ids("/v1/emails?limit=500", &scene.beta);
        assert!(!mine.contains(&theirs["/v1/emails/{id}"]));
        let told = scene.get("/v1/audit", &scene.beta).json()["items"].to_string();
        assert!(told.contains("api_key.create") && !told.contains(acme), "{told}");
    });
}

fn owners_get_what_is_theirs(scene: &Scene, operations: &[Operation], own: impl Fn(&str) -> String, acme: &str) {
    for Operation { method, route, id } in operations {
        let (whom, body) = case(id);
        if id == "follow_events" || matches!(whom, For::Browser | For::Provider) {
            continue; // it never ends; or there is nothing that a key would open
        }
        let path = own(route);
        let may = |answer: &Answer, who: &str| {
            // A state in which it makes no sense is not a refusal.
            let is_fine = (200..300).contains(&answer.status) || answer.status == 409 || id == "revoke_api_key";
            assert!(is_fine, "{id} by {who}: {answer:?}");
        };
        if whom == For::Operator {
            may(&scene.tell(method, &path, &scene.operator, &body), "the operator");
            continue;
        }
        if whom == For::Landlord {
            let named = [("X-Tenant-Id", acme)];
            may(&scene.tell_with(method, &path, &scene.operator, &body, &named), "the operator for the tenant");
            continue;
        }
        if method == "GET" && whom != For::Writer {
            may(&scene.get(&path, &scene.acme), "who may read");
        }
        let named = [("X-Tenant-Id", acme)];
        // What is deleted cannot be deleted again.
        if method != "DELETE" {
            may(&scene.tell_with(method, &path, &scene.operator, &body, &named), "the operator for the tenant");
        }
        may(&scene.tell(method, &path, &scene.acme_writer, &body), "who may write");
        if whom == For::Anyone {
            may(&scene.tell(method, &path, &scene.operator, &body), "the operator");
        }
    }
}
