//! The edge of the HTTP API: who is let in, how many, how fast, and what everybody is told.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::http::{Answer, ask, send, serve_with};
use crate::mail;
use crate::place::Place;
use crate::processes::{DEADLINE, Running, wait_until};
use crate::servers::Redis;

struct Scene {
    address: SocketAddr,
    key: String,
    _server: Running,
    place: Place,
}

impl Scene {
    fn start(settings: &[(&str, &str)]) -> Self {
        let place = Place::sqlite();
        place.ok(&["tenant", "create", "acme"]);
        let key = key(&place, "acme");
        let (server, address) = serve_with(&place, settings);
        Self { address, key, _server: server, place }
    }

    fn get(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let bearer = format!("Bearer {}", self.key);
        ask(self.address, "GET", path, &[&[("Authorization", bearer.as_str())], headers].concat())
    }

    fn metrics(&self) -> String {
        String::from_utf8(ask(self.address, "GET", "/metrics", &[]).body).unwrap()
    }

    /// Bytes as they are, and all that is answered until the connection ends.
    fn raw(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let _ = stream.write_all(bytes);
        let mut answered = Vec::new();
        let _ = stream.read_to_end(&mut answered);
        answered
    }
}

fn key(place: &Place, tenant: &str) -> String {
    let made = place.object(&["key", "create", "--tenant", tenant, "--name", "test", "--scopes", "read"]);
    made["key"].as_str().unwrap().to_owned()
}

#[test]
fn every_answer_has_the_id_of_its_request_and_is_counted_by_its_route() {
    let scene = Scene::start(&[]);
    let mine = scene.get("/v1/emails", &[("X-Request-Id", "order-66")]);
    assert_eq!((mine.status, mine.headers["x-request-id"].as_str()), (200, "order-66"));
    let made = scene.get("/v1/emails/018f0000-0000-7000-8000-000000000000?x=1", &[("X-Request-Id", "a b")]);
    made.assert_problem(404, "email");
    assert_eq!(made.headers["x-request-id"].len(), 36);
    assert_eq!(made.json()["instance"], "/v1/emails/018f0000-0000-7000-8000-000000000000");
    let lost = ask(scene.address, "GET", "/v1/018f", &[]);
    assert_eq!((lost.status, lost.headers["x-request-id"].len()), (404, 36));

    let metrics = scene.metrics();
    for counted in [
        "{route=\"/v1/emails\",status=\"200\"} 1",
        "{route=\"/v1/emails/{id}\",status=\"404\"} 1",
        "{route=\"none\",status=\"404\"} 1",
    ] {
        assert!(metrics.contains(&format!("mailroom_http_requests_total{counted}")), "{counted}: {metrics}");
    }
    assert!(!metrics.contains("018f"), "{metrics}");
}

#[test]
fn a_tenant_that_asks_too_often_is_told_when_to_come_again_and_others_are_not() {
    let scene = Scene::start(&[("MAILROOM_LIMITS__REQUESTS_STANDARD", "1")]);
    scene.place.ok(&["tenant", "create", "beta", "--plan", "vip"]);
    let beta = format!("Bearer {}", key(&scene.place, "beta"));
    let first = scene.get("/v1/emails", &[]);
    assert_eq!(first.headers["ratelimit-policy"], "\"standard\";q=2;w=2");
    assert_eq!(first.headers["ratelimit"], "\"standard\";r=1;t=1");

    let mut last = scene.get("/v1/emails", &[]);
    wait_until("it is too much", || {
        last = scene.get("/v1/emails", &[]);
        last.status != 200
    });

    last.assert_problem(429, "plan");
    assert_eq!(
        (last.headers["retry-after"].as_str(), last.headers["ratelimit"].as_str()),
        ("1", "\"standard\";r=0;t=2")
    );
    let other = ask(scene.address, "GET", "/v1/emails", &[("Authorization", &beta)]);
    assert_eq!((other.status, other.headers["ratelimit-policy"].as_str()), (200, "\"vip\";q=2000;w=2"));
    let operator = std::fs::read_to_string(scene.place.data_dir().join("admin.key")).unwrap();
    for _ in 0..5 {
        let asked =
            ask(scene.address, "GET", "/v1/tenants", &[("Authorization", &format!("Bearer {}", operator.trim()))]);
        assert_eq!((asked.status, asked.headers.get("ratelimit")), (200, None));
    }
    wait_until("it may ask again", || scene.get("/v1/emails", &[]).status == 200);
}

/// Two processes share what a tenant may send; without Redis each has its own.
#[test]
fn what_a_tenant_may_send_is_shared_through_redis() {
    let redis = Redis::start();
    let place = Place::postgres();
    place.ok(&["tenant", "create", "acme"]);
    let key = format!("Bearer {}", key(&place, "acme"));
    let settings = [("MAILROOM_CACHE__URL", redis.url()), ("MAILROOM_LIMITS__REQUESTS_STANDARD", "20")];
    let servers = [serve_with(&place, &settings), serve_with(&place, &settings)];
    let addresses = servers.each_ref().map(|(_, address)| *address);
    let get = |server: usize| ask(addresses[server], "GET", "/v1/events", &[("Authorization", &key)]);
    let get = &get;

    // On a busy machine Redis may not answer in time, and then each has its own for a second.
    wait_until("they share", || {
        let started = std::time::Instant::now();
        let given = std::thread::scope(|scope| {
            let all: Vec<_> = (0..120).map(|number| scope.spawn(move || get(number % 2).status)).collect();
            all.into_iter().map(|one| one.join().unwrap()).filter(|status| *status == 200).count()
        });
        // What came back meanwhile is theirs, and each may hold one more.
        let most = 40.0 + 20.0 * started.elapsed().as_secs_f64() + 2.0;
        let are_sharing = (40..120).contains(&given) && given as f64 <= most;
        if !are_sharing {
            std::thread::sleep(Duration::from_secs(2)); // until all is there again
        }
        are_sharing
    });

    redis.halt();
    wait_until("each has its own", || get(0).status == 200 && get(1).status == 200);
    assert!(get(0).headers.contains_key("ratelimit"));
}

#[test]
fn many_wrong_keys_from_an_address_must_wait_and_a_good_one_from_there_passes() {
    let scene =
        Scene::start(&[("MAILROOM_SERVER__TRUSTED_PROXIES", "127.0.0.1/32"), ("MAILROOM_LIMITS__FAILED_LOGINS", "5")]);
    let here = [("X-Forwarded-For", "6.6.6.6, 203.0.113.9")];
    assert_eq!(scene.get("/v1/emails", &here).status, 200);
    let wrong = |address: &str, number: usize| {
        let bearer = format!("Bearer mr_tenant_{number}");
        ask(scene.address, "GET", "/v1/emails", &[("Authorization", &bearer), ("X-Forwarded-For", address)])
    };
    for number in 0..5 {
        wrong("203.0.113.9", number).assert_problem(401, "not valid");
    }

    let mut number = 5;
    wait_until("it must wait", || {
        number += 1;
        wrong("203.0.113.9", number).status == 429
    });

    let refused = wrong("203.0.113.9", 99);
    refused.assert_problem(429, "wrong keys");
    assert!(refused.headers["retry-after"].parse::<u64>().unwrap() >= 1);
    assert_eq!(scene.get("/v1/emails", &here).status, 200, "it was good before, from there");
    wrong("203.0.113.10", 1).assert_problem(401, "not valid");
    assert_eq!(scene.get("/v1/emails", &[("X-Forwarded-For", "203.0.113.10")]).status, 200);
}

#[test]
fn what_is_too_large_is_refused_before_it_is_read() {
    let scene = Scene::start(&[("MAILROOM_LIMITS__API_BODY", "1 KiB")]);
    let large = send(scene.address, "POST", "/v1/emails", &[("Content-Length", "1025")], &[b'x'; 1025]);
    large.assert_problem(413, "limits.api_body");
    let long = format!("GET /v1/emails HTTP/1.1\r\nHost: x\r\nX-Long: {}\r\n\r\n", "x".repeat(70 << 10));
    let many = format!("GET /v1/emails HTTP/1.1\r\nHost: x\r\n{}\r\n", "X-Many: x\r\n".repeat(101));
    for head in [long, many] {
        let answered = String::from_utf8(scene.raw(head.as_bytes())).unwrap();
        assert!(answered.starts_with("HTTP/1.1 431 "), "{answered}");
    }
}

#[test]
fn who_is_slow_is_cut_off_and_who_is_silent_is_let_go() {
    let scene = Scene::start(&[("MAILROOM_SERVER__HEAD_TIMEOUT", "1s"), ("MAILROOM_SERVER__IDLE_TIMEOUT", "2s")]);
    assert_eq!(scene.raw(b""), b"", "one who says nothing");
    assert_eq!(scene.raw(b"GET /healthz HT"), b"", "one who does not finish");
    assert_eq!(scene.raw(b"PRI * HT"), b"", "nor this");
    let mut slow = TcpStream::connect(scene.address).unwrap();
    wait_until("one who sends a byte at a time is cut off", || {
        std::thread::sleep(Duration::from_millis(50));
        slow.write_all(b"G").is_err()
    });
    let answered = String::from_utf8(scene.raw(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")).unwrap();
    assert!(answered.starts_with("HTTP/1.1 200 ") && answered.ends_with("}"), "{answered}");
    let begun = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /healthz";
    let answered = String::from_utf8(scene.raw(begun)).unwrap();
    assert_eq!(answered.matches("HTTP/1.1 200 ").count(), 1, "{answered}");
}

/// Known from the start, as `curl --http2-prior-knowledge` speaks it.
#[test]
fn http2_is_spoken_without_an_upgrade() {
    let scene = Scene::start(&[("MAILROOM_SERVER__IDLE_TIMEOUT", "1s")]);
    // The preface, empty settings, and `GET /healthz` with everything from the static table but path and authority.
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    let block = [&[0x82, 0x86, 0x04, 8][..], b"/healthz", &[0x01, 1], b"x"].concat();
    sent.extend([&[0, 0, block.len() as u8, 1, 5, 0, 0, 0, 1], &block[..]].concat());
    let answered = scene.raw(&sent);
    let has = |text: &[u8]| answered.windows(text.len()).any(|piece| piece == text);
    assert!(has(b"{\"status\":\"ok\"}"), "{:?}", String::from_utf8_lossy(&answered));
}

/// Those who follow have seats of their own, and a tenant has half of them.
#[test]
fn there_are_only_so_many_followers_and_they_do_not_keep_others_out() {
    let scene = Scene::start(&[("MAILROOM_SERVER__MAX_STREAMS", "4"), ("MAILROOM_SERVER__MAX_IN_FLIGHT", "1")]);
    let follow = || {
        let mut stream = TcpStream::connect(scene.address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        write!(stream, "GET /v1/events/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\r\n", scene.key)
            .unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).unwrap();
        (String::from_utf8(first.to_vec()).unwrap(), stream)
    };
    let mut followers = vec![follow(), follow()];
    assert!(followers.iter().all(|(status, _)| status == "HTTP/1.1 200"), "{followers:?}");
    assert_eq!(follow().0, "HTTP/1.1 503");
    assert_eq!(scene.get("/v1/emails", &[]).status, 200);
    followers.pop();
    wait_until("there is room again", || follow().0 == "HTTP/1.1 200");
}

#[test]
fn methods_are_told_heads_have_no_body_and_other_origins_ask_only_when_they_may() {
    let scene = Scene::start(&[("MAILROOM_SERVER__CORS_ORIGINS", "https://app.example")]);
    let wrong = ask(scene.address, "DELETE", "/v1/events", &[]);
    wrong.assert_problem(405, "method");
    assert_eq!(wrong.headers["allow"], "GET,HEAD");
    let options = ask(scene.address, "OPTIONS", "/v1/events", &[]);
    assert_eq!((options.status, options.headers["allow"].as_str()), (204, "GET,HEAD"));
    ask(scene.address, "OPTIONS", "/v1/nothing", &[]).assert_problem(404, "nothing");

    let bearer = format!("Bearer {}", scene.key);
    for path in ["/v1/mailboxes", "/v1/emails/018f0000-0000-7000-8000-000000000000", "/docs"] {
        let (get, head) = (
            ask(scene.address, "GET", path, &[("Authorization", &bearer)]),
            ask(scene.address, "HEAD", path, &[("Authorization", &bearer)]),
        );
        let told = |answer: &Answer| (answer.status, answer.headers.get("content-length").cloned());
        assert_eq!((told(&get), head.body.len()), (told(&head), 0), "{path}");
    }

    let preflight = |origin: &str| {
        let asks = [
            ("Origin", origin),
            ("Access-Control-Request-Method", "PATCH"),
            ("Access-Control-Request-Headers", "authorization,if-match"),
        ];
        ask(scene.address, "OPTIONS", "/v1/mailboxes", &asks)
    };
    let may = preflight("https://app.example");
    assert_eq!((may.status, may.headers["access-control-allow-origin"].as_str()), (200, "https://app.example"));
    assert!(
        may.headers["access-control-allow-methods"].contains("PATCH")
            && may.headers["access-control-allow-headers"].contains("if-match")
    );
    assert_eq!(preflight("https://evil.example").headers.get("access-control-allow-origin"), None);
    let asked = scene.get("/v1/mailboxes", &[("Origin", "https://app.example")]);
    assert!(asked.headers["access-control-expose-headers"].contains("ratelimit"), "{asked:?}");
    assert_eq!(asked.headers.get("access-control-allow-credentials"), None);
}

#[test]
fn the_page_of_the_documentation_loads_nothing_from_elsewhere() {
    let scene = Scene::start(&[]);
    let page = ask(scene.address, "GET", "/docs", &[]);
    assert_eq!((page.status, page.headers["content-type"].as_str()), (200, "text/html; charset=utf-8"));
    assert!(page.headers["content-security-policy"].starts_with("default-src 'none'; script-src 'self';"));
    let text = String::from_utf8(page.body).unwrap();
    let urls: Vec<&str> = text.split(['"']).filter(|piece| piece.starts_with('/') || piece.contains("://")).collect();
    assert_eq!(urls, ["/docs/docs.css", "/docs/docs.js", "/openapi.json", "/openapi.json"]);
    assert!(!text.contains("<style") && !text.contains("onclick") && !text.contains("<script>"));
    for (url, content_type) in
        [("/docs/docs.css", "text/css"), ("/docs/docs.js", "text/javascript"), ("/openapi.json", "application/json")]
    {
        let asset = ask(scene.address, "GET", url, &[("Accept-Encoding", "identity")]);
        assert_eq!(asset.status, 200, "{url}");
        assert!(asset.headers["content-type"].starts_with(content_type), "{asset:?}");
        let is_example = url == "/openapi.json";
        assert!(is_example || !String::from_utf8(asset.body).unwrap().contains("https://"), "{url}");
    }
    for coding in ["gzip", "br", "zstd"] {
        let packed = ask(scene.address, "GET", "/openapi.json", &[("Accept-Encoding", coding)]);
        assert_eq!(packed.headers["content-encoding"], coding);
        assert!(packed.headers["vary"].to_lowercase().contains("accept-encoding"), "{coding}");
        assert!(packed.body.len() < 40_000, "{coding}: {}", packed.body.len());
    }
}

/// What is larger than the buffers between us stays here until it is read, or until the reader is given up.
#[test]
fn who_reads_nothing_is_cut_off_and_who_reads_slowly_is_not() {
    let place = Place::sqlite();
    let large = mail::simple("large", &"All of this is one long body.\r\n".repeat(500_000));
    place.import(&place.write("large.eml", &large));
    let bearer = key(&place, "acme");
    let (_server, address) = serve_with(&place, &[("MAILROOM_SERVER__STALL_TIMEOUT", "1s")]);
    let id = place.emails("acme")[0]["id"].as_str().unwrap().to_owned();
    // Bytes that came after a first pause, and short ones between the pieces.
    let read = |first: Duration| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let head = format!(
            "GET /v1/emails/{id}/raw HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {bearer}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        std::thread::sleep(first);
        let (mut piece, mut count) = (vec![0; 1 << 20], 0);
        while let Ok(more @ 1..) = stream.read(&mut piece) {
            count += more;
            std::thread::sleep(Duration::from_millis(10));
        }
        count
    };

    assert!(read(Duration::ZERO) > large.len());
    let mut pause = Duration::from_millis(1500);
    wait_until("one who reads nothing is cut off", || {
        pause *= 2;
        read(pause) < large.len()
    });
}

#[test]
fn who_finds_no_seat_is_told_at_once() {
    let scene =
        Scene::start(&[("MAILROOM_SERVER__MAX_IN_FLIGHT", "1"), ("MAILROOM_LIMITS__REQUESTS_STANDARD", "100000")]);
    let refused = std::sync::Mutex::new(None);
    wait_until("somebody finds no seat", || {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let answer = scene.get("/v1/emails?q=invoice", &[]);
                    if answer.status != 200 {
                        *refused.lock().unwrap() = Some(answer);
                    }
                });
            }
        });
        refused.lock().unwrap().is_some()
    });
    let refused = refused.into_inner().unwrap().unwrap();
    refused.assert_problem(503, "under way");
    assert_eq!(refused.headers["retry-after"], "1");
    assert_eq!(ask(scene.address, "GET", "/healthz", &[]).status, 200);
}
