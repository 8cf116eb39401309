//! What callers change, what is written down of it, and what they are told when they ask again.

use std::thread;

use serde_json::{Value, json};

use super::scene::{Scene, try_tell};
use crate::place::{Place, on_each_database};
use crate::processes::wait_until;

#[test]
fn the_same_request_again_is_answered_the_same_and_happens_once() {
    on_each_database(|place| {
        let scene = Scene::start(place);
        let (path, body) = ("/v1/mailboxes", json!({"address": "new@acme.test", "provider": "files"}));
        let key = [("Idempotency-Key", "one")];
        let made = scene.tell_with("POST", path, &scene.acme_writer, &body, &key);
        assert_eq!((made.status, made.headers.get("idempotency-replayed")), (201, None), "{made:?}");
        let again = scene.tell_with("POST", path, &scene.acme_writer, &body, &key);
        assert_eq!((again.status, &again.body), (201, &made.body));
        assert_eq!(
            (&again.headers["location"], &*again.headers["idempotency-replayed"]),
            (&made.headers["location"], "true")
        );
        let other = json!({"address": "other@acme.test", "provider": "files"});
        scene.tell_with("POST", path, &scene.acme_writer, &other, &key).assert_problem(422, "another request");
        // Another tenant's key of the same name is another key.
        let theirs = scene.tell_with("POST", path, &scene.beta_writer, &body, &key);
        assert_eq!((theirs.status, theirs.body == made.body), (201, false));
        for wrong in ["", "\u{fc}ml\u{e4}ut", &"k".repeat(256)] {
            let wrong = [("Idempotency-Key", wrong)];
            scene.tell_with("POST", path, &scene.acme_writer, &body, &wrong).assert_problem(422, "Idempotency-Key");
        }
        scene.tell("POST", path, &scene.acme_writer, &body).assert_problem(409, "already");

        // Kept for a day.
        let yesterday = if place.is_sqlite() { "'2020-01-01T00:00:00.000Z'" } else { "'2020-01-01'" };
        place.sql(&format!("update idempotency_keys set created_at = {yesterday}"));
        let late = scene.tell_with("POST", path, &scene.acme_writer, &other, &key);
        assert_eq!((late.status, late.headers.get("idempotency-replayed")), (201, None), "{late:?}");
        place.sql(&format!("update idempotency_keys set created_at = {yesterday}"));
        scene.tell("POST", "/v1/recurring/prune_records/run", &scene.operator, &Value::Null);
        wait_until("they are forgotten", || place.select("select count(*) || '' from idempotency_keys") == ["0"]);
    });
}

/// Many at once with one key: one of them does it, and nobody is told anything else.
#[test]
fn of_many_with_the_same_key_one_does_it() {
    on_each_database(|place| {
        let scene = Scene::start(place);
        for round in 0..5 {
            let (key, body) = (format!("k{round}"), json!({"name": format!("tenant {round}")}));
            let answers: Vec<_> = thread::scope(|all| {
                let ask = || {
                    let key = [("Idempotency-Key", &*key)];
                    scene.tell_with("POST", "/v1/tenants", &scene.operator, &body, &key)
                };
                let asked: Vec<_> = (0..8).map(|_| all.spawn(ask)).collect();
                asked.into_iter().map(|asked| asked.join().unwrap()).collect()
            });
            let made: Vec<_> = answers.iter().filter(|answer| answer.status == 201).collect();
            assert!(!made.is_empty() && made.iter().all(|answer| answer.body == made[0].body), "{answers:?}");
            assert!(answers.iter().all(|answer| [201, 409].contains(&answer.status)), "{answers:?}");
        }
        assert_eq!(place.select("select count(*) || '' from tenants where name like 'tenant %'"), ["5"]);
    });
}

#[test]
fn a_key_is_shown_once_and_its_answer_is_kept_sealed() {
    on_each_database(|place| {
        let scene = Scene::start(place);
        let acme = scene.ids("/v1/tenants", &scene.operator).remove(0);
        let path = format!("/v1/tenants/{acme}/api-keys");
        let (body, once) = (json!({"name": "crm", "scopes": ["read", "write"]}), [("Idempotency-Key", "k")]);
        let made = scene.tell_with("POST", &path, &scene.operator, &body, &once);
        assert_eq!((made.status, &*made.headers["cache-control"]), (201, "no-store"), "{made:?}");
        let key = made.json()["key"].as_str().unwrap().to_owned();
        assert_eq!(scene.get("/v1/emails", &key).status, 200);
        assert_eq!(scene.tell_with("POST", &path, &scene.operator, &body, &once).body, made.body);
        let kept = place.select("select coalesce(body, 'sealed') || headers || '' from idempotency_keys");
        assert!(kept.len() == 1 && !kept[0].contains(&key[..40]), "{kept:?}");
        let audit = place.select("select entry from audit").concat();
        assert!(audit.contains("\"crm\"") && !audit.contains("mr_tenant_"), "{audit}");

        let id = made.json()["id"].as_str().unwrap().to_owned();
        assert_eq!(scene.tell("DELETE", &format!("{path}/{id}"), &scene.operator, &Value::Null).status, 204);
        scene.get("/v1/emails", &key).assert_problem(401, "revoked");
        scene.tell("DELETE", &format!("{path}/{id}"), &scene.operator, &Value::Null).assert_problem(404, "key");
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
            scene.tell("POST", &path, &scene.operator, &wrong).assert_problem(422, says);
        }
    });
}

#[test]
fn who_changed_what_is_written_down_and_a_change_of_that_shows() {
    on_each_database(|place| {
        let scene = Scene::start(place);
        // Its two keys were made by commands.
        let made = scene.get("/v1/audit", &scene.acme).json();
        assert_eq!(
            (&made["items"][1]["action"], &made["items"][1]["seq"]),
            (&json!("api_key.create"), &json!(1)),
            "{made}"
        );
        assert!(made["items"][1]["actor"].as_str().unwrap().starts_with("command:"), "{made}");
        let mailbox = scene.ids("/v1/mailboxes", &scene.acme).remove(0);
        for action in ["pause", "resume", "pause"] {
            let more = [("X-Request-Id", "my-request")];
            let path = format!("/v1/mailboxes/{mailbox}/{action}");
            assert_eq!(scene.tell_with("POST", &path, &scene.acme_writer, &Value::Null, &more).status, 200);
        }
        let entries = scene.get("/v1/audit?limit=2", &scene.acme).json();
        let newest = &entries["items"][0];
        assert_eq!(
            (&newest["action"], &newest["target"], &newest["seq"]),
            (&json!("mailbox.pause"), &json!(mailbox), &json!(5))
        );
        assert_eq!((&newest["address"], &newest["request_id"]), (&json!("127.0.0.1"), &json!("my-request")));
        assert_eq!((&newest["before"]["state"], &newest["after"]["state"]), (&json!("active"), &json!("paused")));
        assert!(newest["actor"].as_str().unwrap().starts_with("key:"), "{newest}");
        let next = format!("/v1/audit?limit=2&cursor={}", entries["next_cursor"].as_str().unwrap());
        assert_eq!(scene.get(&next, &scene.acme).json()["items"][0]["seq"], 3);
        scene.get("/v1/audit?cursor=x", &scene.acme).assert_problem(422, "cursor");
        assert_eq!(scene.tell("POST", "/v1/queues/low/pause", &scene.operator, &Value::Null).status, 204);
        assert_eq!(scene.get("/v1/audit", &scene.operator).json()["items"][0]["action"], "queue.pause");
        place.ok(&["audit", "verify"]);

        let damage = |sql: &str, mend: &str, says: &str| {
            place.sql(sql);
            let verified = place.run(&["audit", "verify"]);
            assert_eq!(verified.code, Some(1), "{sql}");
            assert!(verified.text().contains(says), "{verified}");
            place.sql(mend);
            place.ok(&["audit", "verify"]);
        };
        let of = "tenant_id = (select id from tenants where name = 'acme')";
        damage(
            &format!("update audit set entry = replace(entry, 'my-request', 'no-request') where seq = 4 and {of}"),
            &format!("update audit set entry = replace(entry, 'no-request', 'my-request') where seq = 4 and {of}"),
            "acme: entry 4 is broken",
        );
        damage(
            &format!("update audit set seq = 7 where seq = 5 and {of}"),
            &format!("update audit set seq = 5 where seq = 7 and {of}"),
            "acme: entry 5 is broken: it is missing",
        );
        damage(
            &format!("update audit_heads set seq = 9 where {of}"),
            &format!("update audit_heads set seq = 5 where {of}"),
            "acme: entry 6 is broken: it is missing",
        );
    });
}

#[test]
fn a_stale_version_is_refused() {
    on_each_database(|place| {
        let scene = Scene::start(place);
        let acme = scene.ids("/v1/tenants", &scene.operator).remove(0);
        let mailbox = scene.ids("/v1/mailboxes", &scene.acme).remove(0);
        let paths = [
            (format!("/v1/tenants/{acme}"), &scene.operator),
            (format!("/v1/mailboxes/{mailbox}"), &scene.acme_writer),
        ];
        for (path, key) in &paths {
            let tag = scene.get(path, key).headers["etag"].clone();
            let changed = scene.tell_with("PATCH", path, key, &json!({}), &[("If-Match", &tag)]);
            assert_eq!(changed.status, 200, "{changed:?}");
            let stale = [("If-Match", &*tag)];
            scene.tell_with("PATCH", path, key, &json!({}), &stale).assert_problem(412, "read it again");
            scene.tell_with("DELETE", path, key, &Value::Null, &stale).assert_problem(412, "read it again");
            assert_eq!(scene.get(path, key).headers["etag"], changed.headers["etag"]);
            assert_eq!(scene.tell_with("PATCH", path, key, &json!({}), &[("If-Match", "*")]).status, 200);
        }
    });
}

#[test]
fn a_tenant_is_stopped_held_deleted_brought_back_and_erased() {
    on_each_database(|place| {
        let scene = Scene::start(place);
        let acme = scene.ids("/v1/tenants", &scene.operator).remove(0);
        let path = format!("/v1/tenants/{acme}");
        let change = |body: Value| scene.tell("PATCH", &path, &scene.operator, &body);
        assert_eq!(change(json!({"is_active": false})).status, 200);
        scene.get("/v1/emails", &scene.acme).assert_problem(403, "not active");
        assert_eq!(change(json!({"is_active": true, "name": "acme & sons", "plan": "vip"})).json()["plan"], "vip");
        change(json!({"name": "beta"})).assert_problem(409, "name");
        change(json!({"name": ""})).assert_problem(422, "name");
        change(json!({"plan": "gold"})).assert_problem(422, "plan");

        assert_eq!(change(json!({"hold_reason": "a lawsuit"})).status, 200);
        scene.tell("DELETE", &path, &scene.operator, &Value::Null).assert_problem(409, "a lawsuit");
        assert_eq!(change(json!({"hold_reason": null})).json()["hold_reason"], Value::Null);
        let deleted = scene.tell("DELETE", &path, &scene.operator, &Value::Null);
        assert_eq!((deleted.status, deleted.json()["deleted_at"].is_string()), (202, true));
        scene.get("/v1/emails", &scene.acme).assert_problem(403, "not active");
        scene.tell("DELETE", &path, &scene.operator, &Value::Null).assert_problem(409, "already");
        assert_eq!(change(json!({"is_active": true})).json()["deleted_at"], Value::Null);
        assert_eq!(scene.get("/v1/emails", &scene.acme).status, 200);

        assert_eq!(scene.tell("DELETE", &path, &scene.operator, &Value::Null).status, 202);
        let now = if place.is_sqlite() { "'2026-01-01T00:00:00.000Z'" } else { "now()" };
        place.sql(&format!("update tenants set erasing_at = {now} where id = '{acme}'"));
        change(json!({"is_active": true})).assert_problem(409, "being erased");
        place.run(&["tenant", "activate", &acme]).assert_refused(1, &["is being erased"]);
        // Its time comes now; the job of the deletion that was taken back finds that it was.
        let jobs = scene.ids("/v1/jobs?kind=erase_tenant&state=scheduled", &scene.operator);
        assert_eq!(jobs.len(), 2);
        for job in jobs {
            assert_eq!(scene.tell("POST", &format!("/v1/jobs/{job}/retry"), &scene.operator, &Value::Null).status, 204);
        }
        wait_until("it is erased", || scene.get(&path, &scene.operator).status == 404);
        for table in ["emails", "mailboxes", "api_keys", "ledger", "placements", "blobs", "packs", "events", "audit"] {
            let left = place.select(&format!("select count(*) || '' from {table} where tenant_id = '{acme}'"));
            assert_eq!(left, ["0"], "{table}");
        }
        scene.get("/v1/emails", &scene.acme).assert_problem(401, "not valid");
        assert_eq!(scene.get("/v1/audit", &scene.operator).json()["items"][0]["action"], "tenant.erase");
        assert_eq!(scene.get("/v1/emails", &scene.beta).status, 200);
        place.assert_whole();
        place.ok(&["audit", "verify"]);
    });
}

#[test]
fn an_email_that_is_deleted_is_found_no_more() {
    on_each_database(|place| {
        let scene = Scene::start(place);
        let ids = scene.ids("/v1/emails?limit=500", &scene.acme);
        let path = format!("/v1/emails/{}", ids[3]);
        assert_eq!(scene.tell("DELETE", &path, &scene.acme_writer, &Value::Null).status, 204);
        let left = scene.ids("/v1/emails?limit=500", &scene.acme);
        assert_eq!((left.len(), left.contains(&ids[3])), (ids.len() - 1, false));
        assert!(scene.get(&path, &scene.acme).json()["deleted_at"].is_string());
        let events = scene.get("/v1/events?types=email.deleted", &scene.acme).json();
        assert_eq!((&events["items"][0]["email_id"], events["items"].as_array().unwrap().len()), (&json!(ids[3]), 1));
        // Once more changes nothing.
        assert_eq!(scene.tell("DELETE", &path, &scene.acme_writer, &Value::Null).status, 204);
        assert_eq!(scene.get("/v1/events?types=email.deleted", &scene.acme).json(), events);
        place.assert_whole();
        // The same mail again does not bring it back.
        let again = place.path("acme.mbox").display().to_string();
        place.ok(&["import", &again, "--tenant", "acme", "--mailbox", "me@acme.test", "--folder", "Elsewhere"]);
        assert_eq!(scene.ids("/v1/emails?limit=500", &scene.acme).len(), ids.len() - 1);
        place.assert_whole();
    });
}

#[test]
fn mailboxes_are_connected_changed_and_let_go() {
    on_each_database(|place| {
        let scene = Scene::start(place);
        let new = json!({"address": "Me@Acme.Example", "provider": "imap", "host": "127.0.0.1", "port": 1, "tls": "none",
                         "password": "canary-7391", "folders": ["INBOX"], "backfill": "none"});
        let made = scene.tell("POST", "/v1/mailboxes", &scene.acme_writer, &new);
        assert_eq!((made.status, &made.json()["address"]), (201, &json!("me@acme.example")), "{made:?}");
        let path = made.headers["location"].clone();
        scene.tell("POST", "/v1/mailboxes", &scene.acme_writer, &new).assert_problem(409, "already");
        let changed =
            scene.tell("PATCH", &path, &scene.acme_writer, &json!({"interval_seconds": 60, "token": "canary-7392"}));
        assert_eq!((changed.status, &changed.json()["settings"]["interval_seconds"]), (200, &json!(60)), "{changed:?}");
        assert_eq!(changed.json()["settings"]["connection"]["auth"], "token");
        assert_eq!(
            scene.tell("POST", &format!("{path}/pause"), &scene.acme_writer, &Value::Null).json()["state"],
            "paused"
        );
        scene.tell("POST", &format!("{path}/sync"), &scene.acme_writer, &Value::Null).assert_problem(409, "paused");
        assert_eq!(
            scene.tell("POST", &format!("{path}/resume"), &scene.acme_writer, &Value::Null).json()["state"],
            "active"
        );
        assert_eq!(scene.tell("POST", &format!("{path}/sync"), &scene.acme_writer, &Value::Null).status, 202);
        let gone = scene.tell("DELETE", &path, &scene.acme_writer, &Value::Null);
        assert_eq!((gone.status, &gone.json()["state"]), (200, &json!("disconnected")));
        scene.tell("PATCH", &path, &scene.acme_writer, &json!({})).assert_problem(409, "disconnected");
        // The same address again is the same mailbox. What opens it is not sent to a place that somebody else names.
        let again = scene.tell("POST", "/v1/mailboxes", &scene.acme_writer, &new);
        assert_eq!((again.status, &again.json()["id"]), (201, &made.json()["id"]));

        for elsewhere in
            [json!({"host": "elsewhere.example", "tls": "implicit"}), json!({"port": 2}), json!({"user": "x"})]
        {
            scene.tell("PATCH", &path, &scene.acme_writer, &elsewhere).assert_problem(422, "password");
        }

        let told: String = place.select("select entry from audit").concat();
        assert!(told.contains("mailbox.create") && !told.contains("canary"), "{told}");
        for answer in [&made, &changed, &again] {
            assert!(!String::from_utf8_lossy(&answer.body).contains("canary"), "{answer:?}");
        }
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
        ] {
            let mut wrong = new.clone();
            wrong["address"] = json!("wrong@acme.example");
            wrong[field] = value;
            scene.tell("POST", "/v1/mailboxes", &scene.acme_writer, &wrong).assert_problem(422, field);
        }
        let open = json!({"address": "o@acme.example", "provider": "imap", "host": "mail.example", "tls": "none", "password": "x"});
        scene.tell("POST", "/v1/mailboxes", &scene.acme_writer, &open).assert_problem(422, "in the open");
    });
}

#[test]
fn jobs_are_cancelled_retried_and_moved() {
    on_each_database(|place| {
        let scene = Scene::start(place);
        place.ok(&["jobs", "pause", "--tenant", "acme"]);
        place.ok(&["jobs", "enqueue", "--kind", "probe", "--tenant", "acme", "--payload", "{}"]);
        let job = scene.ids("/v1/jobs?kind=probe", &scene.acme).remove(0);
        let path = format!("/v1/jobs/{job}");
        let state = || scene.get(&path, &scene.acme).json()["state"].clone();
        let tell = |action: &str| scene.tell("POST", &format!("{path}/{action}"), &scene.acme_writer, &Value::Null);
        tell("retry").assert_problem(409, "nothing to hurry");
        let moved = scene.tell("POST", &format!("{path}/move"), &scene.operator, &json!({"lane": "low"}));
        assert_eq!((moved.status, &scene.get(&path, &scene.acme).json()["lane"]), (204, &json!("low")));
        scene
            .tell("POST", &format!("{path}/move"), &scene.operator, &json!({"lane": "fast"}))
            .assert_problem(422, "lane");
        assert_eq!((tell("cancel").status, state()), (204, json!("cancelled")));
        tell("cancel").assert_problem(409, "cancelled already");
        assert_eq!((tell("retry").status, state()), (204, json!("ready")));
        place.ok(&["jobs", "resume", "--tenant", "acme"]);
        wait_until("it is done", || state() == "done");
    });
}

/// What no client of ours would send.
#[test]
fn bodies_that_make_no_sense_are_refused_by_name() {
    let place = Place::sqlite();
    let scene = Scene::start(&place);
    let raw = |body: &[u8], kind: &str| {
        let authorization = format!("Bearer {}", scene.operator);
        let headers = [("Authorization", &*authorization), ("Content-Type", kind)];
        crate::http::send(scene.address, "POST", "/v1/tenants", &headers, body)
    };
    let json = "application/json";
    raw(b"{\"name\": ", json).assert_problem(400, "JSON");
    raw(b"\xff\xfe", json).assert_problem(400, "JSON");
    raw(b"{\"name\": \"\\ud800\"}", json).assert_problem(400, "JSON");
    raw(b"{\"name\": \"a\\u0000b\"}", json).assert_problem(422, "name");
    raw(b"[1]", json).assert_problem(422, "body");
    raw(b"{\"name\": 1e999}", json).assert_problem(400, "JSON");
    raw(b"{\"name\": \"a\", \"name\": \"b\"}", json).assert_problem(422, "name");
    raw(b"{\"name\": \"a\"}", "text/plain").assert_problem(415, "application/json");
    raw(&vec![b'['; 200_000], json).assert_problem(400, "JSON");
    let answer =
        try_tell(scene.address, "POST", "/v1/tenants", &scene.operator, &json!({"name": "x".repeat(3 << 20)}), &[]);
    // It may hang up before all of it is sent.
    if let Ok(answer) = answer {
        answer.assert_problem(413, "larger");
    }
}
