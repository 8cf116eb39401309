//! A tenant's own server is told of what happens, by a running Mailroom.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use domain::Sha256;
use serde_json::{Value, json};

use super::scene::Scene;
use crate::mail;
use crate::place::{Place, on_each_database};
use crate::processes::wait_until;

#[derive(Debug, Clone, Default)]
struct Received {
    id: String,
    timestamp: String,
    signatures: Vec<String>,
    body: Vec<u8>,
}

/// Takes whatever comes and answers 200.
struct Receiver {
    address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Receiver {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::new(Mutex::new(Vec::new()));
        let kept = received.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let kept = kept.clone();
                thread::spawn(move || {
                    let mut reader = BufReader::new(stream);
                    while let Some(one) = read_one(&mut reader) {
                        kept.lock().unwrap().push(one);
                        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                        if reader.get_mut().write_all(answer).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self { address, received }
    }

    fn all(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    fn of_type(&self, kind: &str) -> Vec<Received> {
        self.all().into_iter().filter(|one| one.json()["type"] == kind).collect()
    }
}

fn read_one(reader: &mut impl BufRead) -> Option<Received> {
    let (mut one, mut length) = (Received::default(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line.trim().is_empty() {
            break;
        }
        let Some((name, value)) = line.trim().split_once(": ") else { continue };
        match name.to_lowercase().as_str() {
            "webhook-id" => one.id = value.to_owned(),
            "webhook-timestamp" => one.timestamp = value.to_owned(),
            "webhook-signature" => one.signatures = value.split(' ').map(str::to_owned).collect(),
            "content-length" => length = value.parse().unwrap(),
            _ => {}
        }
    }
    one.body = vec![0; length];
    reader.read_exact(&mut one.body).ok()?;
    Some(one)
}

impl Received {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// As RFC 2104 has it, from nothing but a hash: not with what made the signature.
    fn is_signed_by(&self, secret: &str) -> bool {
        let mut key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
        key.resize(64, 0);
        let padded = |with: u8| key.iter().map(|byte| byte ^ with).collect::<Vec<u8>>();
        let message = [format!("{}.{}.", self.id, self.timestamp).as_bytes(), &self.body].concat();
        let inner = Sha256::of(&[padded(0x36), message].concat());
        let outer = Sha256::of(&[padded(0x5c), inner.0.to_vec()].concat());
        self.signatures.contains(&format!("v1,{}", STANDARD.encode(outer.0)))
    }
}

const OPENED: [(&str, &str); 1] = [("MAILROOM_WEBHOOKS__ALLOW_NETWORKS", "[\"127.0.0.0/8\"]")];

#[test]
fn what_happens_is_told_signed_and_written_down() {
    on_each_database(|place| {
        let scene = Scene::start_with(place, &OPENED);
        let receiver = Receiver::start();
        let url = format!("http://{}/hook", receiver.address);
        let new = json!({"url": url, "types": ["email.received"], "with_backfill": true, "description": "crm"});
        let once = [("Idempotency-Key", "k")];
        let made = scene.tell_with("POST", "/v1/webhooks", &scene.acme_writer, &new, &once);
        assert_eq!(made.status, 201, "{made:?}");
        assert_eq!(scene.tell_with("POST", "/v1/webhooks", &scene.acme_writer, &new, &once).body, made.body);
        let secret = made.json()["secret"].as_str().unwrap().to_owned();
        let path = made.headers["location"].clone();

        let more = place.write("more.mbox", mail::mbox(3, 20));
        place.ok(&["import", &more, "--tenant", "acme", "--mailbox", "more@acme.test"]);
        place.ok(&["import", &more, "--tenant", "beta", "--mailbox", "more@beta.test"]);
        let told = "select count(*) || '' from events e join tenants t on t.id = e.tenant_id
                    where t.name = 'acme' and e.type = 'email.received' and e.email_id in
                        (select id from emails where mailbox_id = (select id from mailboxes where address = 'more@acme.test'))";
        let told: usize = place.select(told)[0].parse().unwrap();
        assert!(told > 0);
        wait_until("all came", || receiver.all().len() >= told);
        assert!(receiver.all().iter().all(|one| one.is_signed_by(&secret)));
        let mut ids: Vec<String> = receiver.all().iter().map(|one| one.id.clone()).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), told, "each once, and nothing of the other tenant");

        let list = |state: &str| scene.get(&format!("{path}/deliveries?limit=500{state}"), &scene.acme).json();
        wait_until("it is written down", || list("&state=delivered")["items"].as_array().unwrap().len() == told);
        let first = list("")["items"][0].clone();
        assert_eq!(
            (&first["last_status"], &first["attempts"], &first["last_answer"]),
            (&json!(200), &json!(1), &json!("ok"))
        );

        rotated_and_pinged(&scene, &receiver, &path, &secret);
        let delivery = first["id"].as_str().unwrap();
        let again = || receiver.all().iter().filter(|one| one.id == delivery).count();
        let resend = format!("{path}/deliveries/{delivery}/resend");
        assert_eq!(scene.tell("POST", &resend, &scene.acme_writer, &Value::Null).status, 202);
        wait_until("it came again", || again() == 2);
        let since = json!({"since": "2020-01-01T00:00:00Z", "delivered_too": true});
        assert_eq!(scene.tell("POST", &format!("{path}/resend"), &scene.acme_writer, &since).status, 202);
        wait_until("all came again", || again() == 3);

        assert_eq!(scene.tell("DELETE", &path, &scene.acme_writer, &Value::Null).status, 204);
        scene.get(&path, &scene.acme).assert_problem(404, "webhook");
        let shown: String = place.select("select entry from audit").concat();
        assert!(shown.contains("webhook.create") && !shown.contains("whsec_"), "{shown}");
    });
}

/// With a new secret both sign for a while.
fn rotated_and_pinged(scene: &Scene, receiver: &Receiver, path: &str, old: &str) {
    let rotated = scene.tell("POST", &format!("{path}/rotate"), &scene.acme_writer, &json!({}));
    let new = rotated.json()["secret"].as_str().unwrap_or_else(|| panic!("{rotated:?}")).to_owned();
    assert_ne!(new, old);
    assert_eq!(scene.tell("POST", &format!("{path}/ping"), &scene.acme_writer, &Value::Null).status, 202);
    wait_until("the ping came", || !receiver.of_type("webhook.ping").is_empty());
    let ping = receiver.of_type("webhook.ping").remove(0);
    assert!(ping.signatures.len() == 2 && ping.is_signed_by(old) && ping.is_signed_by(&new), "{ping:?}");
    let tag = scene.get(path, &scene.acme).headers["etag"].clone();
    let paused = scene.tell_with("PATCH", path, &scene.acme_writer, &json!({"state": "paused"}), &[("If-Match", &tag)]);
    assert_eq!((paused.status, &paused.json()["state"]), (200, &json!("paused")), "{paused:?}");
    let ping = scene.tell("POST", &format!("{path}/ping"), &scene.acme_writer, &Value::Null);
    ping.assert_problem(409, "make it active first");
    scene
        .tell_with("PATCH", path, &scene.acme_writer, &json!({"state": "active"}), &[("If-Match", &tag)])
        .assert_problem(412, "read it again");
    assert_eq!(scene.tell("PATCH", path, &scene.acme_writer, &json!({"state": "active"})).json()["state"], "active");
}

#[test]
fn a_place_that_is_not_of_the_open_internet_is_refused() {
    let place = Place::sqlite();
    let scene = Scene::start(&place);
    for url in [
        "http://127.0.0.1/",
        "https://127.0.0.1/",
        "https://10.0.0.1/",
        "https://169.254.169.254/latest/meta-data",
        "https://[::1]/",
        "https://[::ffff:10.0.0.1]/",
        "https://2130706433/",
        "https://0x7f.1/",
        "http://example.com/",
        "ftp://example.com/",
        "https://user:pass@example.com/",
        "nonsense",
        "",
    ] {
        let new = json!({"url": url});
        scene.tell("POST", "/v1/webhooks", &scene.acme_writer, &new).assert_problem(422, "url");
    }
    for (field, value) in [
        ("types", json!(["Not A Type"])),
        ("types", json!("email.received")),
        ("secret", json!("whsec_short")),
        ("mailbox_id", json!("018f0000-0000-7000-8000-000000000000")),
        ("description", json!("x".repeat(1001))),
        ("tpyes", json!([])),
    ] {
        let mut new = json!({"url": "https://hook.invalid/"});
        new[field] = value;
        scene.tell("POST", "/v1/webhooks", &scene.acme_writer, &new).assert_problem(422, field);
    }
}
