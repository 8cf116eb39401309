//! Requests that are sent again.

use futures_util::future::join_all;
use serde_json::{Value, json};
use store::Dialect;
use testkit::on_each_app;

use crate::two_tenants::{TwoTenants, select, text};

#[tokio::test(flavor = "multi_thread")]
async fn repeated_request_gets_the_same_reply_and_acts_once() {
    on_each_app(async |app| {
        let two = TwoTenants::without_mail(app).await;
        for schedule in engine::jobs::schedules() {
            jobs::recurring::define(app.store(), app.store().clock(), &schedule).await.unwrap();
        }
        let (path, body) = ("/v1/mailboxes", json!({"address": "new@acme.test", "provider": "files"}));
        let key = [("Idempotency-Key", "one")];
        let created = two.send_with("POST", path, &two.acme_writer, &body, &key).await;
        assert_eq!(created.expect(201).find_header("idempotency-replayed"), None);
        let again = two.send_with("POST", path, &two.acme_writer, &body, &key).await;
        assert_eq!(again.expect(201).body, created.body);
        assert_eq!(
            (again.header("location"), again.header("idempotency-replayed")),
            (created.header("location"), "true")
        );
        let other = json!({"address": "other@acme.test", "provider": "files"});
        let reused = two.send_with("POST", path, &two.acme_writer, &other, &key).await;
        reused.assert_problem(422, "a different request");
        // Another tenant's key of the same name is another key.
        let theirs = two.send_with("POST", path, &two.beta_writer, &body, &key).await;
        assert_ne!(theirs.expect(201).body, created.body);
        for wrong in ["", "\u{fc}ml\u{e4}ut", &"k".repeat(256)] {
            let wrong = [("Idempotency-Key", wrong)];
            let refused = two.send_with("POST", path, &two.acme_writer, &body, &wrong).await;
            refused.assert_problem(422, "Idempotency-Key");
        }
        two.send("POST", path, &two.acme_writer, &body).await.assert_problem(409, "already");

        // Kept for a day.
        let yesterday = match app.store().dialect() {
            Dialect::Sqlite => "'2020-01-01T00:00:00.000Z'",
            Dialect::Postgres => "'2020-01-01'",
        };
        app.db.run(&format!("update idempotency_keys set created_at = {yesterday}")).await;
        let late = two.send_with("POST", path, &two.acme_writer, &other, &key).await;
        assert_eq!(late.expect(201).find_header("idempotency-replayed"), None);
        app.db.run(&format!("update idempotency_keys set created_at = {yesterday}")).await;
        two.send("POST", "/v1/recurring/prune_records/run", &two.operator, &Value::Null).await;
        app.run_jobs_until_idle().await;
        assert_eq!(app.count("idempotency_keys").await, 0, "they are forgotten");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_requests_with_a_key_acts() {
    on_each_app(async |app| {
        let two = TwoTenants::without_mail(app).await;
        for round in 0..5 {
            let (key, body) = (format!("k{round}"), json!({"name": format!("tenant {round}")}));
            let key = [("Idempotency-Key", &*key)];
            let same = (0..8).map(|_| two.send_with("POST", "/v1/tenants", &two.operator, &body, &key));
            let replies = join_all(same).await;
            let created: Vec<_> = replies.iter().filter(|reply| reply.status == 201).collect();
            assert!(!created.is_empty() && created.iter().all(|reply| reply.body == created[0].body), "{replies:?}");
            assert!(replies.iter().all(|reply| [201, 409].contains(&reply.status.as_u16())), "{replies:?}");
        }
        assert_eq!(app.count("tenants where name like 'tenant %'").await, 5);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reply_with_a_key_is_stored_encrypted() {
    on_each_app(async |app| {
        let two = TwoTenants::without_mail(app).await;
        let path = format!("/v1/tenants/{}/api-keys", two.acme.id);
        let (body, once) = (json!({"name": "crm", "scopes": ["read", "write"]}), [("Idempotency-Key", "k")]);
        let created = two.send_with("POST", &path, &two.operator, &body, &once).await;
        assert_eq!(created.expect(201).header("cache-control"), "no-store");
        let key = text(&created.json()["key"]);
        two.get("/v1/emails", &key).await.expect(200);
        assert_eq!(two.send_with("POST", &path, &two.operator, &body, &once).await.body, created.body);
        let kept = select(app, "select coalesce(body, 'sealed') || headers || '' from idempotency_keys").await;
        assert!(kept.len() == 1 && !kept[0].contains(&key[..40]), "{kept:?}");
        let audit = select(app, "select entry from audit").await.concat();
        assert!(audit.contains("\"crm\"") && !audit.contains("mr_tenant_"), "{audit}");

        let of_key = format!("{path}/{}", text(&created.json()["id"]));
        two.send("DELETE", &of_key, &two.operator, &Value::Null).await.expect(204);
        two.get("/v1/emails", &key).await.assert_problem(401, "revoked");
        two.send("DELETE", &of_key, &two.operator, &Value::Null).await.assert_problem(404, "key");
        for (wrong, says) in [
            (json!({"name": ""}), "name"),
            (json!({"name": "a", "scopes": []}), "scopes"),
            (json!({"name": "a", "scopes": ["root"]}), "scopes"),
            (json!({"name": "a", "expires_at": "2020-01-01T00:00:00Z"}), "expires_at"),
            (json!({"name": "a", "expires_at": "soon"}), "expires_at"),
            (json!({"name": "a", "expires_at": null}), "expires_at"),
            (json!({"name": 7}), "name"),
            (json!({"nmae": "a"}), "nmae"),
        ] {
            two.send("POST", &path, &two.operator, &wrong).await.assert_problem(422, says);
        }
    })
    .await;
}
