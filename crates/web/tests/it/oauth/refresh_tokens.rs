//! Mailboxes that are created over the API with a refresh token, or by the right of an organisation.

use serde_json::{Value, json};
use testkit::HttpReply;

use super::consent_app::{ConsentApp, on_each_consent_app};
use super::provider_site::{GoogleSite, MicrosoftSite, ProviderSite, ZOE};
use crate::two_tenants::{stored_emails, text};

async fn create<S>(app: &ConsentApp<S>, base: &Value, more: Value) -> HttpReply {
    let mut body = base.clone();
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    app.post("/v1/mailboxes", &app.acme_key, &body).await
}

#[tokio::test(flavor = "multi_thread")]
async fn google_refresh_token_connects_and_reconnects() {
    on_each_consent_app(async |app: &ConsentApp<GoogleSite>| {
        let (world, ann) = (&app.site.world, GoogleSite::ANN);
        let base = json!({"address": ann, "provider": "gmail", "backfill": "all"});
        create(app, &base, json!({})).await.assert_problem(422, "refresh_token");
        create(app, &base, json!({"host": "imap.gmail.com"})).await.assert_problem(422, "refresh_token");
        let both = json!({"app_only": true, "refresh_token": "x"});
        create(app, &base, both).await.assert_problem(422, "app_only");
        create(app, &base, json!({"app_only": true})).await.assert_problem(403, "operator");
        let token = world.grant(ann).unwrap().refresh_token;
        let created = create(app, &base, json!({"refresh_token": token})).await;
        assert!(!created.expect(201).text().contains("1//"));
        app.run_jobs_until_idle().await;
        assert_eq!(stored_emails(app, &app.acme).await.len(), 5);

        world.revoke_tokens(ann);
        app.sync_address(&app.acme, ann).await;
        assert_eq!(app.state(ann).await, "needs_reauth");
        let path = format!("/v1/mailboxes/{}", text(&created.json()["id"]));
        app.patch(&path, &app.acme_key, &json!({"password": "x"})).await.assert_problem(422, "password");
        let token = world.grant(ann).unwrap().refresh_token;
        let changed = app.patch(&path, &app.acme_key, &json!({"refresh_token": token})).await;
        assert_eq!(changed.expect(200).json()["state"], "connecting");
        app.run_jobs_until_idle().await;
        let health = app.get(&format!("{path}/health"), &app.acme_key).await.json();
        assert_eq!((&health["error_count"], app.state(ann).await), (&json!(0), "active".to_owned()));

        // What another has consented to opens another's mailbox: nothing of it is taken in.
        let token = world.grant(GoogleSite::BOB).unwrap().refresh_token;
        app.patch(&path, &app.acme_key, &json!({"refresh_token": token})).await.expect(200);
        app.run_jobs_until_idle().await;
        assert_eq!(app.state(ann).await, "needs_reauth");
        assert_eq!(stored_emails(app, &app.acme).await.len(), 5);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_operator_opens_a_microsoft_directory() {
    on_each_consent_app(async |app: &ConsentApp<MicrosoftSite>| {
        app.leaves_jobs(&["sync_mailbox", "watch_mailbox"]);
        let base = json!({"address": MicrosoftSite::ANN, "provider": "outlook"});
        for (more, status, says) in [
            (json!({}), 422, "/v1/oauth/microsoft/start"),
            (json!({"refresh_token": "x", "host": "h"}), 422, "is not supported by outlook mailboxes"),
            (json!({"refresh_token": "x", "app_only": true}), 422, "app_only"),
            (json!({"refresh_token": "x", "directory": "a.test"}), 422, "directory"),
            (json!({"app_only": true, "directory": "a/b"}), 422, "directory"),
            (json!({"app_only": true}), 403, "operator"),
            (
                json!({"provider": "gmail", "app_only": true, "directory": "a.test"}),
                422,
                "is not supported by gmail mailboxes",
            ),
        ] {
            create(app, &base, more).await.assert_problem(status, says);
        }
        let created = create(app, &base, json!({"refresh_token": "1//hunter2"})).await;
        assert_eq!(created.expect(201).json()["provider"], "outlook");
        assert!(!created.text().contains("hunter2"));

        let (operator, acme) = (app.operator_key().await, app.acme.id.to_string());
        let body = json!({"address": ZOE, "provider": "outlook", "app_only": true, "directory": "contoso.test"});
        let named = [("X-Tenant-Id", &*acme)];
        app.request_with("POST", "/v1/mailboxes", Some(&operator), Some(&body), &named).await.expect(201);
        assert_eq!(app.count("mailboxes").await, 2);
    })
    .await;
}
