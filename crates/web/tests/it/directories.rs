//! An organisation that is connected as a whole, against a simulated Google.

use std::sync::Arc;

use domain::{Clock, Secret, SystemClock};
use providers::gmail::{Gmail, GoogleSettings};
use providers::http::{HttpClient, HttpTimeouts};
use serde_json::{Value, json};
use sim::google::{GmailOperation, GoogleServer, GoogleWorld};
use sim::people::{DirectoryProvider, NewOrganisation, PeopleOperation};
use store::testing::on_each_database;
use testkit::simulated::google_settings;
use testkit::{AppOptions, HttpReply, TestApp};

use crate::two_tenants::{TwoTenants, text};

const DOMAIN: &str = "harbour.example";
const ADMIN: &str = "user1@harbour.example";
const LEAVER: &str = "user2@harbour.example";

fn settings(world: &GoogleWorld, server: &GoogleServer) -> GoogleSettings {
    let service_account = Some(Secret::new(world.service_account_key().to_string()));
    GoogleSettings { service_account, directory_url: server.url(), ..google_settings(server) }
}

#[tokio::test(flavor = "multi_thread")]
async fn organisation_is_connected_once_and_its_mail_arrives() {
    on_each_database(|db| async move {
        let world = Arc::new(GoogleWorld::new(7, 20, Arc::new(|| SystemClock.now())));
        let organisation =
            NewOrganisation { domain: DOMAIN.to_owned(), people: 6, messages: 3, ..NewOrganisation::default() };
        world.create_organisation(&organisation).unwrap();
        let server = GoogleServer::start_here(world.clone()).await.unwrap();
        let gmail = Gmail::new(HttpClient::new(HttpTimeouts::default()).unwrap(), &settings(&world, &server)).unwrap();
        let app = TestApp::new(db, AppOptions::default().connector(Arc::new(gmail)));
        assert_organisation_is_connected(&app, &world).await;
        app.finish().await;
    })
    .await;
}

async fn get(two: &TwoTenants<'_>, path: &str) -> Value {
    two.get(path, &two.acme_reader).await.expect(200).json()
}

async fn discover(two: &TwoTenants<'_>, body: Value) -> HttpReply {
    let requested = two.send("POST", "/v1/directory/discover", &two.acme_writer, &body).await;
    requested.expect(202);
    two.app.run_jobs_until_idle().await;
    requested
}

fn length(page: &Value) -> usize {
    page["items"].as_array().unwrap().len()
}

async fn assert_organisation_is_connected(app: &TestApp, world: &GoogleWorld) {
    let two = TwoTenants::without_mail(app).await;
    let named = [("X-Tenant-Id", &*two.acme.id.to_string())];
    let definition = json!({"administrator": ADMIN, "backfill": "all", "rules": {"exclude": {"units": ["/Nowhere"]}}});
    let (gmail, imap) = ("/v1/directories/gmail", "/v1/directories/imap");
    two.send("PUT", gmail, &two.acme_writer, &definition).await.assert_problem(403, "operator");
    let unknown = two.send_with("PUT", imap, &two.operator, &definition, &named).await;
    unknown.assert_problem(404, "no such directory");
    let odd = json!({"administrator": ADMIN, "rules": {"exclude": {"addresses": ["x"]}}});
    let odd = two.send_with("PUT", gmail, &two.operator, &odd, &named).await;
    odd.assert_problem(422, "rules.exclude.addresses");
    let none = two.send("POST", "/v1/directory/discover", &two.acme_writer, &json!({})).await;
    none.assert_problem(404, "no such directory");
    let put = two.send_with("PUT", gmail, &two.operator, &definition, &named).await;
    assert_eq!(put.expect(200).json()["interval_seconds"], 21_600);
    app.run_jobs_until_idle().await;

    assert_eq!(get(&two, gmail).await["last_run"]["outcome"], "done");
    assert_eq!(app.count("mailboxes where state = 'active'").await, 5);
    assert_eq!(app.count("(select distinct mailbox_id from emails) m").await, 5, "everybody has mail");
    assert_eq!(get(&two, "/v1/directories").await["items"][0]["last_run"]["added"], 5);
    assert_users_are_listed(&two).await;
    assert_leaver_is_switched_off(&two, world).await;
    two.send("DELETE", gmail, &two.acme_writer, &Value::Null).await.expect(204);
    assert_eq!(get(&two, "/v1/users").await["items"], json!([]));
}

async fn assert_users_are_listed(two: &TwoTenants<'_>) {
    let users = get(two, "/v1/users?limit=4").await;
    assert_eq!(length(&users), 4);
    let rest = get(two, &format!("/v1/users?limit=4&cursor={}", text(&users["next_cursor"]))).await;
    assert_eq!((length(&rest), &rest["next_cursor"]), (2, &Value::Null));
    assert_eq!(length(&get(two, "/v1/users?left_out=unlicensed").await), 1);
    assert_eq!(get(two, &format!("/v1/users?address={ADMIN}")).await["items"][0]["state"], "active");
    two.get("/v1/users?state=odd", &two.acme_reader).await.assert_problem(422, "state");
}

async fn assert_leaver_is_switched_off(two: &TwoTenants<'_>, world: &GoogleWorld) {
    world.apply_to_people(DOMAIN, PeopleOperation::Delete { person: LEAVER.to_owned() }).unwrap();
    let tried = discover(two, json!({"dry_run": true})).await;
    assert_eq!(tried.json()["providers"][0], "gmail");
    let dry_run = get(two, "/v1/directories/gmail").await["dry_run"].clone();
    assert_eq!(dry_run["left"], 1, "{dry_run}");
    let item = &dry_run["items"][0];
    assert_eq!((item["action"].as_str(), item["reason"].as_str()), (Some("leave"), Some("gone")));
    assert_eq!(length(&get(two, "/v1/users?state=active").await), 5);
    discover(two, json!({"provider": "gmail"})).await;
    assert!(get(two, "/v1/users?left_out=gone").await["items"][0].is_object());
    let mailboxes = get(two, "/v1/mailboxes").await;
    let off: Vec<&Value> =
        mailboxes["items"].as_array().unwrap().iter().filter(|mailbox| mailbox["is_active"] == false).collect();
    assert_eq!(off.len(), 1);
    let id = text(&off[0]["id"]);
    assert_off(&get(two, &format!("/v1/mailboxes/{id}/health")).await);
    let sync = format!("/v1/mailboxes/{id}/sync");
    two.send("POST", &sync, &two.acme_writer, &Value::Null).await.assert_problem(409, "cannot be synced");
    let their_emails = format!("emails where mailbox_id = '{id}'");
    let before = two.app.count(&their_emails).await;
    assert!(before > 0, "the mail stays");

    // What came meanwhile is there once they are back, and what was there before is not there twice.
    world.apply_to_people(DOMAIN, PeopleOperation::Restore { person: LEAVER.to_owned() }).unwrap();
    world.apply(LEAVER, GmailOperation::deliver()).unwrap();
    discover(two, json!({})).await;
    assert_eq!(two.app.count(&their_emails).await, before + 1);
    let again = get(two, &format!("/v1/mailboxes/{id}")).await;
    assert_eq!((&again["is_active"], &again["address"]), (&json!(true), &json!(LEAVER)));
    assert_eq!(two.app.count("mailboxes").await, 5);
}

/// The health of a mailbox whose owner has left.
fn assert_off(health: &Value) {
    let state = (&health["is_active"], &health["left_out"], &health["next_sync_at"]);
    assert_eq!(state, (&json!(false), &json!("gone"), &Value::Null), "{health}");
    let push = (health["push"]["state"].as_str(), health["push"]["reason"].as_str());
    assert_eq!(push, (Some("off"), Some("the mailbox is inactive")));
}
