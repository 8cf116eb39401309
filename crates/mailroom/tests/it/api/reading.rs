//! Who may read what, and what they are told otherwise.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;

use domain::Sha256;
use serde_json::Value;

use super::scene::Scene;
use crate::http::serve;
use crate::mail;
use crate::place::{Place, on_each_database};
use crate::processes::{DEADLINE, wait_until};

#[test]
fn a_tenant_reads_its_mail_and_its_exact_bytes() {
    on_each_database(|place| {
        let scene = Scene::start(place);

        let mut ids = Vec::new();
        let mut path = "/v1/emails?limit=7".to_owned();
        loop {
            let page = scene.get(&path, &scene.acme).json();
            ids.extend(page["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()));
            match page["next_cursor"].as_str() {
                Some(cursor) => path = format!("/v1/emails?limit=7&cursor={cursor}"),
                None => break,
            }
        }
        let there = place.emails("acme");
        assert_eq!(ids, there.iter().map(|email| email["id"].as_str().unwrap()).collect::<Vec<_>>());

        for email in &there {
            let path = format!("/v1/emails/{}", email["id"].as_str().unwrap());
            assert_eq!(&scene.get(&path, &scene.acme).json(), email);
            let raw = scene.get(&format!("{path}/raw"), &scene.acme);
            assert_eq!(Sha256::of(&raw.body).hex(), email["sha256"].as_str().unwrap());
            assert_eq!(raw.headers["x-content-type-options"], "nosniff");
            assert!(raw.headers["content-disposition"].starts_with("attachment"), "{raw:?}");
            for attachment in email["attachments"].as_array().unwrap() {
                let path = format!("/v1/attachments/{}", attachment["id"].as_str().unwrap());
                assert_eq!(scene.get(&path, &scene.acme).json()["email_id"], email["id"]);
                let content = scene.get(&format!("{path}/content"), &scene.acme);
                assert_eq!(Sha256::of(&content.body).hex(), attachment["sha256"].as_str().unwrap());
            }
        }
        let raw = format!("/v1/emails/{}/raw", ids[0]);
        let authorization = format!("Bearer {}", scene.acme);
        let part = scene.ask("GET", &raw, &[("Authorization", &authorization), ("Range", "bytes=5-9")]);
        assert_eq!((part.status, part.body.as_slice()), (206, &scene.get(&raw, &scene.acme).body[5..10]));
        let tag = part.headers["etag"].clone();
        let known = scene.ask("GET", &raw, &[("Authorization", &authorization), ("If-None-Match", &tag)]);
        assert_eq!((known.status, known.body.len()), (304, 0));
        let beyond = scene.ask("GET", &raw, &[("Authorization", &authorization), ("Range", "bytes=99999999-")]);
        beyond.assert_problem(416, "bytes");

        let mailboxes = scene.get("/v1/mailboxes", &scene.acme).json();
        let mailbox = &mailboxes["items"][0];
        assert_eq!((&mailbox["address"], mailbox.get("secret_ref")), (&Value::from("me@acme.test"), None));
        let id = mailbox["id"].as_str().unwrap();
        let health = scene.get(&format!("/v1/mailboxes/{id}/health"), &scene.acme).json();
        assert_eq!(
            (&health["state"], &health["backlog"], &health["backfill"]),
            (&"active".into(), &0.into(), &Value::Null)
        );
        assert_eq!(health["budget"]["calls"]["limits"], serde_json::json!([]), "{health}");
        let counts = scene.get(&format!("/v1/mailboxes/{id}/completeness"), &scene.acme).json();
        assert_eq!((&counts["processed"], &counts["is_complete"]), (&there.len().into(), &true.into()), "{counts}");
        let folders = scene.get(&format!("/v1/mailboxes/{id}/folders"), &scene.acme).json();
        let folders = folders["items"].as_array().unwrap();
        assert_eq!(folders.iter().map(|folder| folder["emails"].as_u64().unwrap()).sum::<u64>(), there.len() as u64);
        let named = there.iter().flat_map(|email| email["folders"].as_array().unwrap()).collect::<Vec<_>>();
        assert!(folders.iter().all(|folder| named.contains(&&folder["name"])), "{folders:?}");
        assert_eq!(scene.ids(&format!("/v1/emails?mailbox={id}&limit=500"), &scene.acme).len(), there.len());
        assert_eq!(scene.ids("/v1/emails?after=2999", &scene.acme).len(), 0);
        let live = scene.get("/v1/events", &scene.acme).json();
        assert_eq!(live["items"].as_array().unwrap().len(), 0, "an import brings what was there before");
        let page = scene.get("/v1/events?backfill=true&limit=3&types=email.received", &scene.acme).json();
        assert_eq!(page["items"].as_array().unwrap().len(), 3);
        let next = page["next_cursor"].as_str().unwrap();
        let rest = scene.get(&format!("/v1/events?backfill=true&limit=500&cursor={next}"), &scene.acme).json();
        assert_eq!(rest["items"].as_array().unwrap().len() + 3, there.len());
    });
}

#[test]
fn a_key_that_is_revoked_and_a_tenant_that_is_stopped_are_refused_at_once() {
    on_each_database(|place| {
        let scene = Scene::start(place);
        assert_eq!(scene.get("/v1/emails", &scene.acme).status, 200);
        place.ok(&["tenant", "deactivate", "acme"]);
        scene.get("/v1/emails", &scene.acme).assert_problem(403, "not active");
        place.ok(&["tenant", "activate", "acme"]);
        assert_eq!(scene.get("/v1/emails", &scene.acme).status, 200);
        let key = place.objects(&["key", "list", "--tenant", "acme"]).remove(0);
        place.ok(&["key", "revoke", "--tenant", "acme", key["id"].as_str().unwrap()]);
        scene.get("/v1/emails", &scene.acme).assert_problem(401, "revoked");
    });
}

#[test]
fn what_makes_no_sense_is_named() {
    let place = Place::sqlite();
    let scene = Scene::start(&place);
    for (path, says) in [
        ("/v1/emails?limit=0", "limit"),
        ("/v1/emails?limit=501", "limit: it is at most 500"),
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
        let answer = scene.get(path, &scene.acme);
        assert_eq!(answer.status, 422, "{path}: {answer:?}");
        answer.assert_problem(422, says);
    }
    for path in ["/v1/emails?q=';drop table emails--", "/v1/emails?q=NEAR(a%20b)", "/v1/emails?q=%F0%9F%98%80*"] {
        let status = scene.get(&path.replace(' ', "%20"), &scene.acme).status;
        assert!([200, 422].contains(&status), "{path}: {status}");
    }
    for path in ["/v1/emails/1", "/v1/emails/..%2F..%2Fetc", "/v1/nothing", "/"] {
        scene.get(path, &scene.acme).assert_problem(404, "there is nothing at this address");
    }
    scene.ask("POST", "/v1/events", &[("Content-Length", "0")]).assert_problem(405, "method");
}

#[test]
fn the_operators_key_is_made_once_and_is_for_its_owner_only() {
    let place = Place::postgres();
    place.ok(&["tenant", "create", "acme"]);
    let servers = [serve(&place), serve(&place), serve(&place)];
    let file = place.data_dir().join("admin.key");
    let key = fs::read_to_string(&file).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let hash = Sha256::of(key.trim().as_bytes()).hex();
    assert_eq!(place.select("select fingerprint from key_fingerprints where name = 'operator'"), [hash]);
    drop(servers);

    fs::remove_file(&file).unwrap();
    let (_server, _) = serve(&place);
    assert!(!file.exists(), "it is kept elsewhere");
}

/// Also one to whom there is always something to tell.
#[test]
fn who_follows_with_a_key_that_is_revoked_is_cut_off() {
    let place = Place::sqlite();
    let scene = Scene::start(&place);
    let live = follow(&scene, "");
    let has_ended = std::thread::spawn(move || live.count());
    let key = place.objects(&["key", "list", "--tenant", "acme"]).remove(0);
    place.ok(&["key", "revoke", "--tenant", "acme", key["id"].as_str().unwrap()]);
    let mut seed = 100;
    wait_until("it is cut off", || {
        seed += 1;
        let more = place.write("more.mbox", mail::mbox(seed, 3));
        place.ok(&["import", &more, "--tenant", "acme", "--mailbox", "more@acme.test"]);
        has_ended.is_finished()
    });
}

/// Numbers of the events that come on a stream, as they come.
fn follow(scene: &Scene, headers: &str) -> impl Iterator<Item = u64> + use<> {
    let mut stream = TcpStream::connect(scene.address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let (path, key) = ("/v1/events/stream?backfill=true&types=email.received", &scene.acme);
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {key}\r\n{headers}\r\n"
    )
    .unwrap();
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next().unwrap().unwrap();
    assert!(first.contains("200"), "{first}");
    let lines = lines.map_while(Result::ok);
    lines.filter_map(|line| line.strip_prefix("id: ").map(|number| number.trim().parse().unwrap()))
}

#[test]
fn who_follows_events_misses_none_and_gets_none_twice() {
    on_each_database(|place| {
        let mut scene = Scene::start(place);
        let mut live = follow(&scene, "");
        let more = place.write("more.mbox", mail::mbox(3, 20));
        place.ok(&["import", &more, "--tenant", "acme", "--mailbox", "more@acme.test"]);
        let told = "select cast(e.seq as text) from events e join tenants t on t.id = e.tenant_id
                    where t.name = 'acme' and e.type = 'email.received' order by e.seq";
        let told: Vec<u64> = place.select(told).iter().map(|number| number.parse().unwrap()).collect();

        let came: Vec<u64> = live.by_ref().take(20).collect();
        assert_eq!(came, told[told.len() - 20..], "from the moment on at which it began");
        let again: Vec<u64> = follow(&scene, &format!("Last-Event-ID: {}\r\n", told[4])).take(told.len() - 5).collect();
        assert_eq!(again, told[5..]);
        let authorization = format!("Bearer {}", scene.acme);
        let odd = [("Authorization", &*authorization), ("Last-Event-ID", "yesterday")];
        scene.ask("GET", "/v1/events/stream", &odd).assert_problem(422, "Last-Event-ID");

        scene.server.terminate();
        assert_eq!(live.next(), None, "a server that stops ends what is followed");
        wait_until("it has stopped", || scene.server.has_ended());
    });
}
