//! Changes of emails, mailboxes and jobs, what the audit says of them, and bodies that are refused.

use axum::body::Body;
use axum::http::Request;
use domain::Provider;
use jobs::probe::Probe;
use serde_json::{Value, json};
use store::sql::jobs::JobScope;
use testkit::{HttpReply, TestApp, on_each_app};

use crate::two_tenants::{TwoTenants, assert_audit_intact, generated, select, text};

#[tokio::test(flavor = "multi_thread")]
async fn audit_says_who_changed_what() {
    on_each_app(async |app| {
        let two = TwoTenants::new(app).await;
        app.leaves_jobs(&["fetch_failed", "sync_mailbox"]);
        let first = two.get("/v1/audit", &two.acme_reader).await.json();
        assert_eq!((&first["items"][1]["action"], &first["items"][1]["seq"]), (&json!("api_key.create"), &json!(1)));
        assert_eq!(first["items"][1]["actor"], "operator", "{first}");
        let mailbox = two.ids("/v1/mailboxes", &two.acme_reader).await.remove(0);
        for action in ["pause", "resume", "pause"] {
            let path = format!("/v1/mailboxes/{mailbox}/{action}");
            let id = [("X-Request-Id", "my-request")];
            two.send_with("POST", &path, &two.acme_writer, &Value::Null, &id).await.expect(200);
        }
        let entries = two.get("/v1/audit?limit=2", &two.acme_reader).await.json();
        let newest = &entries["items"][0];
        assert_eq!(
            (&newest["action"], &newest["target"], &newest["seq"]),
            (&json!("mailbox.pause"), &json!(mailbox), &json!(5))
        );
        assert_eq!((&newest["address"], &newest["request_id"]), (&json!("127.0.0.1"), &json!("my-request")));
        assert_eq!((&newest["before"]["state"], &newest["after"]["state"]), (&json!("active"), &json!("paused")));
        assert!(text(&newest["actor"]).starts_with("key:"), "{newest}");
        let next = format!("/v1/audit?limit=2&cursor={}", text(&entries["next_cursor"]));
        assert_eq!(two.get(&next, &two.acme_reader).await.json()["items"][0]["seq"], 3);
        two.get("/v1/audit?cursor=x", &two.acme_reader).await.assert_problem(422, "cursor");
        two.send("POST", "/v1/queues/low/pause", &two.operator, &Value::Null).await.expect(204);
        assert_eq!(two.get("/v1/audit", &two.operator).await.json()["items"][0]["action"], "queue.pause");
        assert_audit_intact(app).await;

        let of = format!("tenant_id = '{}'", two.acme.id);
        let (falsify, restore) = (
            format!("update audit set entry = replace(entry, 'my-request', 'no-request') where seq = 4 and {of}"),
            format!("update audit set entry = replace(entry, 'no-request', 'my-request') where seq = 4 and {of}"),
        );
        assert_broken(app, &falsify, &restore, 4, "").await;
        let (hide, show) = (
            format!("update audit set seq = 7 where seq = 5 and {of}"),
            format!("update audit set seq = 5 where seq = 7 and {of}"),
        );
        assert_broken(app, &hide, &show, 5, "it is missing").await;
        let (extend, cut) = (
            format!("update audit_heads set seq = 9 where {of}"),
            format!("update audit_heads set seq = 5 where {of}"),
        );
        assert_broken(app, &extend, &cut, 6, "it is missing").await;
    })
    .await;
}

/// The damage is found at this entry of one tenant, and nothing is found after the repair.
async fn assert_broken(app: &TestApp, damage: &str, repair: &str, seq: u64, says: &str) {
    app.db.run(damage).await;
    let chains = app.engine.verify_audit(None).await.unwrap();
    let broken: Vec<_> = chains.iter().filter_map(|chain| chain.broken.as_ref()).collect();
    assert_eq!((broken.len(), broken[0].seq), (1, seq), "{damage}: {chains:?}");
    assert!(broken[0].problem.contains(says), "{broken:?}");
    app.db.run(repair).await;
    assert_audit_intact(app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_version_is_refused() {
    on_each_app(async |app| {
        let two = TwoTenants::new(app).await;
        app.leaves_jobs(&["sync_mailbox"]);
        let mailbox = two.ids("/v1/mailboxes", &two.acme_reader).await.remove(0);
        let paths = [
            (format!("/v1/tenants/{}", two.acme.id), &two.operator),
            (format!("/v1/mailboxes/{mailbox}"), &two.acme_writer),
        ];
        for (path, key) in &paths {
            let before = two.get(path, key).await;
            let stale = [("If-Match", before.header("etag"))];
            let changed = two.send_with("PATCH", path, key, &json!({}), &stale).await;
            changed.expect(200);
            two.send_with("PATCH", path, key, &json!({}), &stale).await.assert_problem(412, "read it again");
            two.send_with("DELETE", path, key, &Value::Null, &stale).await.assert_problem(412, "read it again");
            assert_eq!(two.get(path, key).await.header("etag"), changed.header("etag"));
            two.send_with("PATCH", path, key, &json!({}), &[("If-Match", "*")]).await.expect(200);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_email_is_found_no_more() {
    on_each_app(async |app| {
        let two = TwoTenants::new(app).await;
        let ids = two.ids("/v1/emails?limit=500", &two.acme_reader).await;
        let path = format!("/v1/emails/{}", ids[3]);
        two.send("DELETE", &path, &two.acme_writer, &Value::Null).await.expect(204);
        let left = two.ids("/v1/emails?limit=500", &two.acme_reader).await;
        assert_eq!((left.len(), left.contains(&ids[3])), (ids.len() - 1, false));
        assert!(two.get(&path, &two.acme_reader).await.json()["deleted_at"].is_string());
        let events = two.get("/v1/events?types=email.deleted", &two.acme_reader).await.json();
        assert_eq!((&events["items"][0]["email_id"], events["items"].as_array().unwrap().len()), (&json!(ids[3]), 1));
        assert_eq!(events["items"][0]["data"], json!({"by": "api"}), "as the description of the type says");
        // It is found where somebody asks for it.
        assert_eq!(two.ids("/v1/emails?q=is:deleted", &two.acme_reader).await, [ids[3].clone()]);
        assert_eq!(two.ids("/v1/emails?limit=500&include_deleted=true", &two.acme_reader).await.len(), ids.len());
        // Once more changes nothing.
        two.send("DELETE", &path, &two.acme_writer, &Value::Null).await.expect(204);
        assert_eq!(two.get("/v1/events?types=email.deleted", &two.acme_reader).await.json(), events);
        two.assert_intact().await;
        // The same mail again does not bring it back.
        let same = generated(1, 30).into_iter().map(|message| message.raw);
        app.import(&two.acme, "me@acme.test", "Elsewhere", same).await;
        assert_eq!(two.ids("/v1/emails?limit=500", &two.acme_reader).await.len(), ids.len() - 1);
        two.assert_intact().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_email_is_restored() {
    on_each_app(async |app| {
        let two = TwoTenants::new(app).await;
        let ids = two.ids("/v1/emails?limit=500", &two.acme_reader).await;
        let path = format!("/v1/emails/{}", ids[3]);
        two.send("DELETE", &path, &two.acme_writer, &Value::Null).await.expect(204);
        let restore = format!("{path}/restore");

        two.send("POST", &restore, &two.acme_writer, &Value::Null).await.expect(204);
        two.send("POST", &restore, &two.acme_writer, &Value::Null).await.expect(204);

        assert_eq!(two.ids("/v1/emails?limit=500", &two.acme_reader).await, ids);
        assert!(two.get(&path, &two.acme_reader).await.json()["deleted_at"].is_null());
        let events = two.get("/v1/events?types=email.restored", &two.acme_reader).await.json();
        assert_eq!(events["items"].as_array().unwrap().len(), 1, "once");
        assert_eq!(events["items"][0]["data"], json!({"by": "api"}), "as the description of the type says");
        two.assert_intact().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn held_tenant_is_told_why_nothing_is_deleted() {
    on_each_app(async |app| {
        let two = TwoTenants::new(app).await;
        let ids = two.ids("/v1/emails?limit=500", &two.acme_reader).await;
        app.db.run("update tenants set hold_reason = 'a lawsuit' where name = 'acme'").await;

        let refused = two.send("DELETE", &format!("/v1/emails/{}", ids[3]), &two.acme_writer, &Value::Null).await;

        refused.assert_problem(409, "legal hold (a lawsuit)");
        assert_eq!(two.ids("/v1/emails?limit=500", &two.acme_reader).await, ids);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mailbox_is_connected_changed_and_removed() {
    on_each_app(async |app| {
        let two = TwoTenants::without_mail(app).await;
        app.leaves_jobs(&["fetch_failed", "sync_mailbox"]);
        let writer = &two.acme_writer;
        let new = json!({"address": "Me@Acme.Example", "provider": "imap", "host": "127.0.0.1", "port": 1, "tls": "none",
                         "password": "canary-7391", "folders": ["INBOX"], "backfill": "none"});
        let created = two.send("POST", "/v1/mailboxes", writer, &new).await;
        assert_eq!(created.expect(201).json()["address"], "me@acme.example");
        let path = created.header("location").to_owned();
        two.send("POST", "/v1/mailboxes", writer, &new).await.assert_problem(409, "already");
        let changed = two.send("PATCH", &path, writer, &json!({"interval_seconds": 60, "token": "canary-7392"})).await;
        assert_eq!(changed.expect(200).json()["settings"]["interval_seconds"], 60);
        assert_eq!(changed.json()["settings"]["connection"]["auth"], "token");
        let paused = two.send("POST", &format!("{path}/pause"), writer, &Value::Null).await;
        assert_eq!(paused.json()["state"], "paused");
        two.send("POST", &format!("{path}/sync"), writer, &Value::Null).await.assert_problem(409, "paused");
        let resumed = two.send("POST", &format!("{path}/resume"), writer, &Value::Null).await;
        assert_eq!(resumed.json()["state"], "active");
        two.send("POST", &format!("{path}/sync"), writer, &Value::Null).await.expect(202);
        let removed = two.send("DELETE", &path, writer, &Value::Null).await;
        assert_eq!(removed.expect(200).json()["state"], "disconnected");
        two.send("PATCH", &path, writer, &json!({})).await.assert_problem(409, "disconnected");
        // The same address again is the same mailbox. What opens it is not sent to a place that somebody else names.
        let again = two.send("POST", "/v1/mailboxes", writer, &new).await;
        assert_eq!(again.expect(201).json()["id"], created.json()["id"]);
        for elsewhere in
            [json!({"host": "elsewhere.example", "tls": "implicit"}), json!({"port": 2}), json!({"user": "x"})]
        {
            two.send("PATCH", &path, writer, &elsewhere).await.assert_problem(422, "password");
        }

        let audit = select(app, "select entry from audit").await.concat();
        assert!(audit.contains("mailbox.create") && !audit.contains("canary"), "{audit}");
        for reply in [&created, &changed, &again] {
            assert!(!reply.text().contains("canary"), "{reply:?}");
        }
    })
    .await;
}

/// Leaves out what is not the row's. Times are compared too: a reply is the row that was written, not a guess of it.
fn stored_fields(mailbox: &Value) -> Value {
    let mut mailbox = mailbox.clone();
    mailbox.as_object_mut().unwrap().remove("push");
    mailbox
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_show_the_mailbox_as_it_is_stored() {
    on_each_app(async |app| {
        let two = TwoTenants::without_mail(app).await;
        app.leaves_jobs(&["fetch_failed", "fetch_forgotten", "stop_watch", "sync_mailbox", "watch_mailbox"]);
        let writer = &two.acme_writer;
        let new = json!({"address": "me@acme.example", "provider": "imap", "host": "127.0.0.1", "port": 1, "tls": "none",
                         "password": "x", "folders": ["INBOX"], "backfill": "none"});
        let imap = two.send("POST", "/v1/mailboxes", writer, &new).await.expect(201).header("location").to_owned();
        let gmail = app.add_mailbox(&two.acme, Provider::Gmail, "you@acme.example").await;
        let secret = json!({"password": "y"});
        let steps = [("PATCH", "", &secret), ("POST", "/pause", &Value::Null), ("POST", "/resume", &Value::Null)];
        for (path, steps) in [(imap, &steps[..]), (format!("/v1/mailboxes/{gmail}"), &steps[1..])] {
            for state in ["connecting", "active", "error", "needs_reauth", "paused"] {
                for (method, action, body) in steps {
                    // A directory switched it off and was removed since: a person switches it on again.
                    for is_active in [true, false] {
                        app.db.run(&format!("update mailboxes set state = '{state}', is_active = {is_active}")).await;
                        let reply = two.send(method, &format!("{path}{action}"), writer, body).await;
                        let stored = two.get(&path, &two.acme_reader).await;
                        let what = format!("{method} {path}{action} of {state}, {is_active}");
                        assert_eq!(stored_fields(&reply.expect(200).json()), stored_fields(&stored.json()), "{what}");
                        if *method == "PATCH" {
                            assert_eq!(reply.header("etag"), stored.header("etag"), "{what}");
                            assert_eq!(stored.json()["is_active"], true, "{what}");
                        }
                    }
                }
            }
            let removed = two.send("DELETE", &path, writer, &Value::Null).await;
            let stored = two.get(&path, &two.acme_reader).await;
            assert_eq!(stored_fields(&removed.expect(200).json()), stored_fields(&stored.json()));
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_mailbox_settings_are_named() {
    on_each_app(async |app| {
        let two = TwoTenants::without_mail(app).await;
        for (field, value) in [
            ("address", json!("nobody")),
            ("provider", json!("pop3")),
            ("host", json!("a b")),
            ("port", json!(0)),
            ("port", json!(70000)),
            ("tls", json!("maybe")),
            ("password", json!("a\nb")),
            ("backfill", json!("some")),
            ("folders", json!([""])),
            ("interval_seconds", json!(0)),
            ("bytes_per_day", json!(-1)),
            ("ca_pem", json!("none")),
            ("hots", json!("x")),
            ("app_only", json!(true)),
        ] {
            let mut wrong = json!({"address": "wrong@acme.example", "provider": "imap", "host": "127.0.0.1", "port": 1,
                                   "tls": "none", "password": "x", "folders": ["INBOX"], "backfill": "none"});
            wrong[field] = value;
            two.send("POST", "/v1/mailboxes", &two.acme_writer, &wrong).await.assert_problem(422, field);
        }
        let open = json!({"address": "o@acme.example", "provider": "imap", "host": "mail.example", "tls": "none", "password": "x"});
        two.send("POST", "/v1/mailboxes", &two.acme_writer, &open).await.assert_problem(422, "sent unencrypted");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn job_is_cancelled_retried_and_moved() {
    on_each_app(async |app| {
        let two = TwoTenants::without_mail(app).await;
        let acme = JobScope::Tenant(two.acme.id);
        assert!(app.store().system().pause_jobs(&acme).await.unwrap());
        app.enqueue(two.acme.id, &Probe::default()).await;
        let job = two.ids("/v1/jobs?kind=probe", &two.acme_reader).await.remove(0);
        let path = format!("/v1/jobs/{job}");
        let (cancel, retry, move_to) = (format!("{path}/cancel"), format!("{path}/retry"), format!("{path}/move"));
        let writer = &two.acme_writer;
        two.send("POST", &retry, writer, &Value::Null).await.assert_problem(409, "cannot be retried");
        two.send("POST", &move_to, &two.operator, &json!({"lane": "low"})).await.expect(204);
        assert_eq!(two.get(&path, &two.acme_reader).await.json()["lane"], "low");
        two.send("POST", &move_to, &two.operator, &json!({"lane": "fast"})).await.assert_problem(422, "lane");
        two.send("POST", &cancel, writer, &Value::Null).await.expect(204);
        assert_eq!(two.get(&path, &two.acme_reader).await.json()["state"], "cancelled");
        two.send("POST", &cancel, writer, &Value::Null).await.assert_problem(409, "already cancelled");
        two.send("POST", &retry, writer, &Value::Null).await.expect(204);
        assert_eq!(two.get(&path, &two.acme_reader).await.json()["state"], "ready");
        assert!(app.store().system().resume_jobs(&acme).await.unwrap());
        app.run_jobs_until_idle().await;
        assert_eq!(two.get(&path, &two.acme_reader).await.json()["state"], "done");
    })
    .await;
}

async fn create_tenant(two: &TwoTenants<'_>, body: impl Into<Body>, content_type: &str) -> HttpReply {
    let request = Request::post("/v1/tenants").header("authorization", format!("Bearer {}", two.operator));
    two.app.send(request.header("content-type", content_type).body(body.into()).unwrap()).await
}

/// No client of ours would send them.
#[tokio::test(flavor = "multi_thread")]
async fn malformed_bodies_are_refused() {
    on_each_app(async |app| {
        let two = TwoTenants::without_mail(app).await;
        let json_type = "application/json";
        let deep = vec![b'['; 200_000];
        let bodies: [(&[u8], u16, &str); 8] = [
            (b"{\"name\": ", 400, "JSON"),
            (b"\xff\xfe", 400, "JSON"),
            (b"{\"name\": \"\\ud800\"}", 400, "JSON"),
            (b"{\"name\": \"a\\u0000b\"}", 422, "name"),
            (b"[1]", 422, "body"),
            (b"{\"name\": 1e999}", 400, "JSON"),
            (b"{\"name\": \"a\", \"name\": \"b\"}", 422, "name"),
            (&deep, 400, "JSON"),
        ];
        for (body, status, says) in bodies {
            create_tenant(&two, body.to_vec(), json_type).await.assert_problem(status, says);
        }
        create_tenant(&two, r#"{"name": "a"}"#, "text/plain").await.assert_problem(415, "application/json");
        let large = json!({"name": "x".repeat(3 << 20)}).to_string();
        create_tenant(&two, large, json_type).await.assert_problem(413, "larger");
    })
    .await;
}
