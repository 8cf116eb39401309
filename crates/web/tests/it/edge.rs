//! Limits, request ids, methods and origins in front of all handlers, and the page of the documentation.

use futures_util::future::join_all;
use metrics_exporter_prometheus::PrometheusBuilder;
use testkit::http::HttpOptions;
use testkit::{AppOptions, HttpReply, TestApp, on_each_app, on_each_app_with, wait_until};
use web::EdgeSettings;

use crate::two_tenants::TwoTenants;

fn options(change: impl Fn(&mut EdgeSettings)) -> AppOptions {
    let mut http = HttpOptions::default();
    change(&mut http.edge);
    AppOptions::default().http(http)
}

async fn get_with(app: &TestApp, path: &str, key: &str, headers: &[(&'static str, &str)]) -> HttpReply {
    app.request_with("GET", path, Some(key), None, headers).await
}

/// On a runtime of one thread: counters are this thread's.
#[tokio::test]
async fn replies_carry_request_ids_and_are_counted_by_route() {
    on_each_app(async |app| {
        let two = TwoTenants::without_mail(app).await;
        let recorder = PrometheusBuilder::new().build_recorder();
        let _recording = metrics::set_default_local_recorder(&recorder);
        let given = get_with(app, "/v1/emails", &two.acme_reader, &[("X-Request-Id", "order-66")]).await;
        assert_eq!(given.expect(200).header("x-request-id"), "order-66");
        let path = "/v1/emails/018f0000-0000-7000-8000-000000000000";
        let made_up = get_with(app, &format!("{path}?x=1"), &two.acme_reader, &[("X-Request-Id", "a b")]).await;
        made_up.assert_problem(404, "email");
        assert_eq!(made_up.header("x-request-id").len(), 36);
        assert_eq!(made_up.json()["instance"], path);
        let unknown = app.request("GET", "/v1/018f", None, None).await;
        assert_eq!(unknown.expect(404).header("x-request-id").len(), 36);

        let metrics = recorder.handle().render();
        for counted in [
            "{route=\"/v1/emails\",status=\"200\"} 1",
            "{route=\"/v1/emails/{id}\",status=\"404\"} 1",
            "{route=\"none\",status=\"404\"} 1",
        ] {
            assert!(metrics.contains(&format!("mailroom_http_requests_total{counted}")), "{counted}: {metrics}");
        }
        assert!(!metrics.contains("018f"), "{metrics}");
    })
    .await;
}

fn one_request_per_second() -> AppOptions {
    options(|edge| edge.limits.per_second = outbound::limits::PlanRates { standard: 1, vip: 1000 })
}

#[tokio::test(flavor = "multi_thread")]
async fn rate_limit_holds_per_tenant_and_says_when_to_retry() {
    on_each_app_with(one_request_per_second, async |app| {
        let two = TwoTenants::without_mail(app).await;
        let path = format!("/v1/tenants/{}", two.beta.id);
        app.patch(&path, &two.operator, &serde_json::json!({"plan": "vip"})).await.expect(200);
        let first = two.get("/v1/emails", &two.acme_reader).await;
        assert_eq!(first.header("ratelimit-policy"), "\"standard\";q=2;w=2");
        assert_eq!(first.header("ratelimit"), "\"standard\";r=1;t=1");

        let mut last = two.get("/v1/emails", &two.acme_reader).await;
        wait_until("it is too much", async || {
            last = two.get("/v1/emails", &two.acme_reader).await;
            last.status != 200
        })
        .await;

        last.assert_problem(429, "plan");
        assert_eq!((last.header("retry-after"), last.header("ratelimit")), ("1", "\"standard\";r=0;t=2"));
        let other = two.get("/v1/emails", &two.beta_reader).await;
        assert_eq!(other.expect(200).header("ratelimit-policy"), "\"vip\";q=2000;w=2");
        for _ in 0..5 {
            let by_operator = two.get("/v1/tenants", &two.operator).await;
            assert_eq!(by_operator.expect(200).find_header("ratelimit"), None);
        }
        wait_until("it may ask again", async || two.get("/v1/emails", &two.acme_reader).await.status == 200).await;
    })
    .await;
}

fn five_wrong_keys() -> AppOptions {
    options(|edge| {
        edge.trusted_proxies = vec!["127.0.0.1/32".parse().unwrap()];
        edge.limits.wrong_keys = 5;
    })
}

async fn wrong_key(app: &TestApp, address: &str, number: usize) -> HttpReply {
    get_with(app, "/v1/emails", &format!("mr_tenant_{number}"), &[("X-Forwarded-For", address)]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_keys_throttle_their_address_but_not_good_keys() {
    on_each_app_with(five_wrong_keys, async |app| {
        let two = TwoTenants::without_mail(app).await;
        let here = [("X-Forwarded-For", "6.6.6.6, 203.0.113.9")];
        get_with(app, "/v1/emails", &two.acme_reader, &here).await.expect(200);
        for number in 0..5 {
            wrong_key(app, "203.0.113.9", number).await.assert_problem(401, "not valid");
        }

        let mut number = 5;
        wait_until("the address is throttled", async || {
            number += 1;
            wrong_key(app, "203.0.113.9", number).await.status == 429
        })
        .await;

        let refused = wrong_key(app, "203.0.113.9", 99).await;
        refused.assert_problem(429, "invalid keys");
        assert!(refused.header("retry-after").parse::<u64>().unwrap() >= 1);
        get_with(app, "/v1/emails", &two.acme_reader, &here).await.expect(200);
        wrong_key(app, "203.0.113.10", 1).await.assert_problem(401, "not valid");
        let there = [("X-Forwarded-For", "203.0.113.10")];
        get_with(app, "/v1/emails", &two.acme_reader, &there).await.expect(200);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_body_is_refused_before_it_is_read() {
    on_each_app_with(
        || options(|edge| edge.max_body = 1 << 10),
        async |app| {
            let request = axum::http::Request::post("/v1/emails").header("content-length", "1025");
            let large = app.send(request.body(vec![b'x'; 1025].into()).unwrap()).await;
            large.assert_problem(413, "limits.api_body");
        },
    )
    .await;
}

fn one_origin() -> AppOptions {
    options(|edge| edge.cors_origins = vec!["https://app.example".to_owned()])
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_method_and_options_name_the_allowed_ones() {
    on_each_app(async |app| {
        let wrong = app.request("DELETE", "/v1/events", None, None).await;
        wrong.assert_problem(405, "method");
        assert_eq!(wrong.header("allow"), "GET,HEAD");
        let options = app.request("OPTIONS", "/v1/events", None, None).await;
        assert_eq!(options.expect(204).header("allow"), "GET,HEAD");
        app.request("OPTIONS", "/v1/nothing", None, None).await.assert_problem(404, "no such route");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn head_answers_like_get_without_a_body() {
    on_each_app(async |app| {
        let two = TwoTenants::without_mail(app).await;
        for path in ["/v1/mailboxes", "/v1/emails/018f0000-0000-7000-8000-000000000000", "/docs"] {
            let get = two.get(path, &two.acme_reader).await;
            let head = app.request("HEAD", path, Some(&two.acme_reader), None).await;
            assert_eq!((get.status, head.body.len()), (head.status, 0), "{path}");
            assert_eq!(get.find_header("content-length"), head.find_header("content-length"), "{path}");
        }
    })
    .await;
}

async fn preflight(app: &TestApp, origin: &str) -> HttpReply {
    let headers = [
        ("Origin", origin),
        ("Access-Control-Request-Method", "PATCH"),
        ("Access-Control-Request-Headers", "authorization,if-match"),
    ];
    app.request_with("OPTIONS", "/v1/mailboxes", None, None, &headers).await
}

#[tokio::test(flavor = "multi_thread")]
async fn only_configured_origins_may_call() {
    on_each_app_with(one_origin, async |app| {
        let two = TwoTenants::without_mail(app).await;
        let allowed = preflight(app, "https://app.example").await;
        assert_eq!(allowed.expect(200).header("access-control-allow-origin"), "https://app.example");
        assert!(allowed.header("access-control-allow-methods").contains("PATCH"));
        assert!(allowed.header("access-control-allow-headers").contains("if-match"));
        let refused = preflight(app, "https://evil.example").await;
        assert_eq!(refused.find_header("access-control-allow-origin"), None);
        let origin = [("Origin", "https://app.example")];
        let reply = get_with(app, "/v1/mailboxes", &two.acme_reader, &origin).await;
        assert!(reply.header("access-control-expose-headers").contains("ratelimit"), "{reply:?}");
        assert_eq!(reply.find_header("access-control-allow-credentials"), None);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn documentation_page_loads_nothing_from_elsewhere() {
    on_each_app(async |app| {
        let page = app.request("GET", "/docs", None, None).await;
        assert_eq!(page.expect(200).header("content-type"), "text/html; charset=utf-8");
        assert!(page.header("content-security-policy").starts_with("default-src 'none'; script-src 'self';"));
        let html = page.text();
        let urls: Vec<&str> = html.split('"').filter(|piece| piece.starts_with('/') || piece.contains("://")).collect();
        assert_eq!(urls, ["/docs/docs.css", "/docs/docs.js", "/openapi.json", "/openapi.json"]);
        assert!(!html.contains("<style") && !html.contains("onclick") && !html.contains("<script>"));
        for (url, content_type) in [
            ("/docs/docs.css", "text/css"),
            ("/docs/docs.js", "text/javascript"),
            ("/openapi.json", "application/json"),
        ] {
            let asset = app.request_with("GET", url, None, None, &[("Accept-Encoding", "identity")]).await;
            assert!(asset.expect(200).header("content-type").starts_with(content_type), "{url}: {:?}", asset.headers);
            let is_example = url == "/openapi.json";
            assert!(is_example || !asset.text().contains("https://"), "{url}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn openapi_description_is_compressed() {
    on_each_app(async |app| {
        for coding in ["gzip", "br", "zstd"] {
            let packed = app.request_with("GET", "/openapi.json", None, None, &[("Accept-Encoding", coding)]).await;
            assert_eq!(packed.header("content-encoding"), coding);
            assert!(packed.header("vary").to_lowercase().contains("accept-encoding"), "{coding}");
            assert!(packed.body.len() < 40_000, "{coding}: {}", packed.body.len());
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn request_above_the_concurrency_limit_is_refused_at_once() {
    on_each_app_with(
        || options(|edge| edge.limits.in_flight = 1),
        async |app| {
            let two = TwoTenants::without_mail(app).await;
            let mut refused = None;
            wait_until("a request finds no permit", async || {
                let many = (0..8).map(|_| two.get("/v1/emails?q=invoice", &two.acme_reader));
                refused = join_all(many).await.into_iter().find(|reply| reply.status != 200);
                refused.is_some()
            })
            .await;
            let refused = refused.unwrap();
            refused.assert_problem(503, "in flight");
            assert_eq!(refused.header("retry-after"), "1");
            app.request("GET", "/healthz", None, None).await.expect(200);
        },
    )
    .await;
}
