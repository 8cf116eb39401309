//! In the browser, with Google: the way there and back, and what follows from it.

use domain::{Actor, Backfill, MailboxSettings, Provider};
use engine::credentials::consent::ConsentRequest;
use providers::registry::DECLARATIONS;
use serde_json::{Value, json};
use sim::google::Consent;

use super::browser::{Browser, assert_page, parameter};
use super::consent_app::{ConsentApp, on_each_consent_app};
use super::provider_site::{GoogleSite, ProviderSite, automatic};
use crate::two_tenants::{select, stored_emails, text};

const ANN: &str = GoogleSite::ANN;
const BOB: &str = GoogleSite::BOB;

#[tokio::test(flavor = "multi_thread")]
async fn owner_connects_a_mailbox_in_a_browser() {
    on_each_consent_app(async |app: &ConsentApp<GoogleSite>| {
        let link = app.link(&app.acme_key, &format!("?address={ANN}&backfill=all")).await;
        let mut browser = Browser::default();

        let sent = browser.open(app, &link).await;
        let cookie = sent.header("set-cookie");
        for part in ["HttpOnly", "SameSite=Lax", "Path=/v1/oauth", "Max-Age=600"] {
            assert!(cookie.contains(part), "{cookie}");
        }
        assert!(!cookie.contains("Secure"), "http:// would not send it back");
        let url = sent.header("location");
        for (name, value) in [
            ("response_type", "code"),
            ("code_challenge_method", "S256"),
            ("access_type", "offline"),
            ("prompt", "consent"),
            ("include_granted_scopes", "true"),
            ("login_hint", "ann%40gmail.test"),
        ] {
            assert_eq!(parameter(url, name).as_deref(), Some(value), "{url}");
        }
        let back = Browser::default().consent(app, &link).await;
        // That was another browser.
        assert_page(&browser.open(app, &back).await, 403, "another browser");
        let back = browser.consent(app, &link).await;
        assert_page(&browser.open(app, &back).await, 200, "ann@gmail.test is connected for acme");

        app.run_jobs_until_idle().await;
        assert_eq!(stored_emails(app, &app.acme).await.len(), 5);
        assert_eq!(app.state(ANN).await, "active");
        assert_eq!((app.secrets("refresh_token").await, app.secrets("access_token").await), (1, 1));
        let entry = select(app, "select entry from audit order by seq desc").await.remove(0);
        let entry: Value = serde_json::from_str(&entry).unwrap();
        assert_eq!(entry["action"], "mailbox.connect", "{entry}");
        assert!(text(&entry["actor"]).starts_with("key:"), "{entry}");
        assert_eq!(app.mailboxes(&app.beta_key).await, Vec::<Value>::new());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn consent_starts_under_the_name_of_the_provider() {
    on_each_consent_app(async |app: &ConsentApp<GoogleSite>| {
        let link = app.get("/v1/oauth/gmail/start", &app.acme_key).await.expect(200).json();

        assert!(text(&link["url"]).contains("/v1/oauth/google/start?ticket="), "{link}");
        for unknown in ["imap", "files", "nobody"] {
            let path = format!("/v1/oauth/{unknown}/start");
            app.get(&path, &app.acme_key).await.assert_problem(404, "no such route");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_account_does_not_revoke_a_connected_one() {
    on_each_consent_app(async |app: &ConsentApp<GoogleSite>| {
        let connected = app.go_through(&app.beta_key, &format!("?address={BOB}")).await;
        assert_page(&connected, 200, "connected");
        app.run_jobs_until_idle().await;
        assert_eq!(app.state(BOB).await, "active");

        app.site.set_consent(Consent { account: Some(BOB.to_owned()), ..automatic() });
        assert_page(&app.go_through(&app.acme_key, &format!("?address={ANN}")).await, 409, "another account");

        assert_eq!(app.site.revocations(), 0, "Google knows one consent of Bob to this app");
        app.site.world.expire_access_tokens(None);
        app.sync_address(&app.beta, BOB).await;
        assert_eq!(app.state(BOB).await, "active");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reconnected_mailbox_keeps_its_mail_and_settings() {
    on_each_consent_app(async |app: &ConsentApp<GoogleSite>| {
        let query = format!("?address={ANN}&backfill=all&exclude=Notes");
        assert_page(&app.go_through(&app.acme_key, &query).await, 200, "connected");
        app.run_jobs_until_idle().await;
        let before = email_ids(app).await;
        assert_eq!(before.len(), 5);
        let id = app.mailboxes(&app.acme_key).await[0]["id"].clone();

        app.site.world.revoke_tokens(ANN);
        app.sync_address(&app.acme, ANN).await;
        assert_eq!(app.state(ANN).await, "needs_reauth");
        let refreshes = app.site.world.token_counts()[ANN].refreshed;
        app.sync_address(&app.acme, ANN).await;
        assert_eq!(app.site.world.token_counts()[ANN].refreshed, refreshes, "nobody asks any more");

        // By a link such as the command prints, which needs no key.
        let mut browser = Browser::default();
        let back = browser.consent(app, &operator_link(app).await).await;
        assert_page(&browser.open(app, &back).await, 200, "connected");
        app.run_jobs_until_idle().await;
        assert_eq!(app.state(ANN).await, "active");
        let mailbox = app.mailboxes(&app.acme_key).await.remove(0);
        assert_eq!((email_ids(app).await, &mailbox["id"]), (before, &id));
        assert_eq!(mailbox["settings"]["exclude"], json!(["Notes"]), "as it was wanted");

        // Also after it was removed.
        app.delete(&format!("/v1/mailboxes/{}", text(&id)), &app.acme_key).await.expect(200);
        app.run_jobs_until_idle().await;
        assert_eq!(app.site.revocations(), 1, "Google has forgotten it");
        assert_eq!((app.secrets("refresh_token").await, app.secrets("access_token").await), (0, 0));
        let query = format!("?address={ANN}&backfill=all");
        assert_page(&app.go_through(&app.acme_key, &query).await, 200, "connected");
        app.run_jobs_until_idle().await;
        assert_eq!((app.state(ANN).await, &app.mailboxes(&app.acme_key).await[0]["id"]), ("active".to_owned(), &id));
        assert_eq!(email_ids(app).await.len(), 5);
    })
    .await;
}

async fn email_ids(app: &ConsentApp<GoogleSite>) -> Vec<Value> {
    stored_emails(app, &app.acme).await.iter().map(|email| email["id"].clone()).collect()
}

/// As `mailroom mailbox connect gmail` makes it.
async fn operator_link(app: &ConsentApp<GoogleSite>) -> String {
    let request = ConsentRequest {
        tenant: app.acme.id,
        provider: Provider::Gmail,
        actor: Actor::Command { user: 0 },
        address: Some(ANN.to_owned()),
        settings: MailboxSettings::default(),
        backfill: Backfill::All,
    };
    let (ticket, _) = app.engine.create_consent_ticket(&request).await.unwrap();
    format!("{}?ticket={ticket}", DECLARATIONS.consent(Provider::Gmail).unwrap().start_path())
}
