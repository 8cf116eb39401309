//! What a tenant reads: its emails, mailboxes and events; and what it is told about odd requests.

use domain::Sha256;
use serde_json::{Value, json};
use testkit::on_each_app;

use crate::two_tenants::{TwoTenants, text};

#[tokio::test(flavor = "multi_thread")]
async fn tenant_reads_its_emails_byte_for_byte() {
    on_each_app(async |app| {
        let two = TwoTenants::new(app).await;
        let mut ids = Vec::new();
        let mut path = "/v1/emails?limit=7".to_owned();
        loop {
            let page = two.get(&path, &two.acme_reader).await.json();
            ids.extend(page["items"].as_array().unwrap().iter().map(|item| text(&item["id"])));
            match page["next_cursor"].as_str() {
                Some(cursor) => path = format!("/v1/emails?limit=7&cursor={cursor}"),
                None => break,
            }
        }
        let stored = two.acme_emails().await;
        assert_eq!(ids, stored.iter().map(|email| text(&email["id"])).collect::<Vec<_>>());

        for email in &stored {
            let path = format!("/v1/emails/{}", text(&email["id"]));
            assert_eq!(&two.get(&path, &two.acme_reader).await.json(), email);
            let raw = two.get(&format!("{path}/raw"), &two.acme_reader).await;
            assert_eq!(Sha256::of(&raw.body).hex(), text(&email["sha256"]));
            assert_eq!(raw.header("x-content-type-options"), "nosniff");
            assert!(raw.header("content-disposition").starts_with("attachment"), "{raw:?}");
            for attachment in email["attachments"].as_array().unwrap() {
                let path = format!("/v1/attachments/{}", text(&attachment["id"]));
                assert_eq!(two.get(&path, &two.acme_reader).await.json()["email_id"], email["id"]);
                let content = two.get(&format!("{path}/content"), &two.acme_reader).await;
                assert_eq!(Sha256::of(&content.body).hex(), text(&attachment["sha256"]));
            }
        }
        let raw = format!("/v1/emails/{}/raw", ids[0]);
        let whole = two.get(&raw, &two.acme_reader).await.body;
        let part = app.request_with("GET", &raw, Some(&two.acme_reader), None, &[("Range", "bytes=5-9")]).await;
        assert_eq!(part.expect(206).body, &whole[5..10]);
        let tag = [("If-None-Match", part.header("etag"))];
        let unchanged = app.request_with("GET", &raw, Some(&two.acme_reader), None, &tag).await;
        assert_eq!(unchanged.expect(304).body.len(), 0);
        let beyond = [("Range", "bytes=99999999-")];
        app.request_with("GET", &raw, Some(&two.acme_reader), None, &beyond).await.assert_problem(416, "bytes");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mailbox_shows_its_health_counts_and_folders() {
    on_each_app(async |app| {
        let two = TwoTenants::new(app).await;
        let stored = two.acme_emails().await;
        let mailboxes = two.get("/v1/mailboxes", &two.acme_reader).await.json();
        let mailbox = &mailboxes["items"][0];
        assert_eq!((&mailbox["address"], mailbox.get("secret_ref")), (&json!("me@acme.test"), None));
        let id = text(&mailbox["id"]);
        let health = two.get(&format!("/v1/mailboxes/{id}/health"), &two.acme_reader).await.json();
        assert_eq!(
            (&health["state"], &health["backlog"], &health["backfill"]),
            (&json!("active"), &json!(0), &Value::Null)
        );
        assert_eq!(health["budget"]["calls"]["limits"], json!([]), "{health}");
        assert_eq!(health.get("last_message_id"), Some(&Value::Null), "imported mail has no provider");
        let counts = two.get(&format!("/v1/mailboxes/{id}/completeness"), &two.acme_reader).await.json();
        assert_eq!((&counts["processed"], &counts["is_complete"]), (&json!(stored.len()), &json!(true)), "{counts}");
        let folders = two.get(&format!("/v1/mailboxes/{id}/folders"), &two.acme_reader).await.json();
        let folders = folders["items"].as_array().unwrap();
        assert_eq!(folders.iter().map(|folder| folder["emails"].as_u64().unwrap()).sum::<u64>(), stored.len() as u64);
        let named: Vec<&Value> = stored.iter().flat_map(|email| email["folders"].as_array().unwrap()).collect();
        assert!(folders.iter().all(|folder| named.contains(&&folder["name"])), "{folders:?}");
        let all = format!("/v1/emails?mailbox={id}&limit=500");
        assert_eq!(two.ids(&all, &two.acme_reader).await.len(), stored.len());
        assert_eq!(two.ids("/v1/emails?after=2999", &two.acme_reader).await.len(), 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn imported_mail_makes_backfill_events() {
    on_each_app(async |app| {
        let two = TwoTenants::new(app).await;
        let live = two.get("/v1/events", &two.acme_reader).await.json();
        assert_eq!(live["items"].as_array().unwrap().len(), 0, "an import brings what was there before");
        let first = "/v1/events?backfill=true&limit=3&types=email.received";
        let page = two.get(first, &two.acme_reader).await.json();
        assert_eq!(page["items"].as_array().unwrap().len(), 3);
        let next = format!("/v1/events?backfill=true&limit=500&cursor={}", text(&page["next_cursor"]));
        let rest = two.get(&next, &two.acme_reader).await.json();
        assert_eq!(rest["items"].as_array().unwrap().len() + 3, two.acme_emails().await.len());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_key_and_inactive_tenant_are_refused_at_once() {
    on_each_app(async |app| {
        let two = TwoTenants::without_mail(app).await;
        two.get("/v1/emails", &two.acme_reader).await.expect(200);
        let system = app.store().system();
        assert!(system.set_tenant_active(two.acme.id, false).await.unwrap());
        two.get("/v1/emails", &two.acme_reader).await.assert_problem(403, "deactivated");
        assert!(system.set_tenant_active(two.acme.id, true).await.unwrap());
        two.get("/v1/emails", &two.acme_reader).await.expect(200);
        two.revoke_acme_reader().await;
        two.get("/v1/emails", &two.acme_reader).await.assert_problem(401, "revoked");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_parameters_are_named() {
    on_each_app(async |app| {
        let two = TwoTenants::new(app).await;
        for (path, says) in [
            ("/v1/emails?limit=0", "limit"),
            ("/v1/emails?limit=501", "limit: must be at most 500"),
            ("/v1/emails?limit=many", "limit"),
            ("/v1/emails?limit=99999999999999999999", "limit"),
            ("/v1/emails?lmit=5", "lmit"),
            ("/v1/emails?cursor=abc", "cursor"),
            ("/v1/mailboxes?cursor=%00", "cursor"),
            ("/v1/emails?after=yesterday", "after"),
            ("/v1/emails?before=2024%20or%201=1", "before"),
            ("/v1/emails?folder=a%22b", "folder"),
            ("/v1/emails?mailbox=me@acme.test", "mailbox"),
            ("/v1/emails?q=after:never", "q"),
            ("/v1/events?after=-1", "after"),
            ("/v1/events?after=18446744073709551615", "after"),
            ("/v1/events?backfill=perhaps", "backfill"),
            ("/v1/jobs?state=lost", "state"),
            ("/v1/jobs?cursor=7", "cursor"),
        ] {
            two.get(path, &two.acme_reader).await.assert_problem(422, says);
        }
        for path in ["/v1/emails?q=';drop%20table%20emails--", "/v1/emails?q=NEAR(a%20b)", "/v1/emails?q=%F0%9F%98%80*"]
        {
            let status = two.get(path, &two.acme_reader).await.status.as_u16();
            assert!([200, 422].contains(&status), "{path}: {status}");
        }
        for path in ["/v1/emails/1", "/v1/emails/..%2F..%2Fetc", "/v1/nothing", "/"] {
            two.get(path, &two.acme_reader).await.assert_problem(404, "there is no such route");
        }
        let empty = [("Content-Length", "0")];
        app.request_with("POST", "/v1/events", None, None, &empty).await.assert_problem(405, "method");
    })
    .await;
}
