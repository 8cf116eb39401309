//! Events as they happen, over `/v1/events/stream`.

use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::http::Request;
use futures_util::StreamExt;
use testkit::{AppOptions, TestApp, on_each_app, on_each_app_with, wait_until};

use crate::two_tenants::{TwoTenants, generated, import, select};

/// Longer than a stream goes without checking its key.
const KEY_CHECK_INTERVAL: Duration = Duration::from_secs(16);

/// Sequence numbers of the events on a stream, as they come.
struct EventNumbers {
    body: BodyDataStream,
    text: String,
}

fn stream_request(key: &str, headers: &[(&'static str, &str)]) -> Request<Body> {
    let path = "/v1/events/stream?backfill=true&types=email.received";
    let mut request = testkit::http::request("GET", path, Some(key), None);
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    request
}

impl EventNumbers {
    async fn follow(app: &TestApp, key: &str, headers: &[(&'static str, &str)]) -> Self {
        let response = app.open(stream_request(key, headers)).await;
        assert_eq!(response.status(), 200);
        Self { body: response.into_body().into_data_stream(), text: String::new() }
    }

    async fn next(&mut self) -> Option<u64> {
        loop {
            if let Some((line, rest)) = self.text.split_once('\n') {
                let number = line.strip_prefix("id: ").map(|number| number.trim().parse().unwrap());
                self.text = rest.to_owned();
                match number {
                    Some(number) => return Some(number),
                    None => continue,
                }
            }
            let piece = self.body.next().await?.ok()?;
            self.text.push_str(str::from_utf8(&piece).unwrap());
        }
    }

    async fn take(&mut self, count: usize) -> Vec<u64> {
        let mut numbers = Vec::new();
        while numbers.len() < count {
            numbers.push(self.next().await.unwrap());
        }
        numbers
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_delivers_every_event_once() {
    on_each_app(async |app| {
        let two = TwoTenants::new(app).await;
        let mut live = EventNumbers::follow(app, &two.acme_reader, &[]).await;
        import(app, &two.acme, "more@acme.test", &generated(3, 20)).await;
        let sql = "select cast(e.seq as text) from events e join tenants t on t.id = e.tenant_id
                   where t.name = 'acme' and e.type = 'email.received' order by e.seq";
        let expected: Vec<u64> = select(app, sql).await.iter().map(|number| number.parse().unwrap()).collect();

        assert_eq!(live.take(20).await, expected[expected.len() - 20..], "from the moment on at which it began");
        let last = expected[4].to_string();
        let mut again = EventNumbers::follow(app, &two.acme_reader, &[("Last-Event-ID", &last)]).await;
        assert_eq!(again.take(expected.len() - 5).await, expected[5..]);
        let odd = stream_request(&two.acme_reader, &[("Last-Event-ID", "yesterday")]);
        app.send(odd).await.assert_problem(422, "Last-Event-ID");
    })
    .await;
}

/// Also a stream that always has something to deliver.
#[tokio::test]
async fn stream_ends_when_its_key_is_revoked() {
    on_each_app(async |app| {
        let two = TwoTenants::without_mail(app).await;
        let mut live = EventNumbers::follow(app, &two.acme_reader, &[]).await;
        let reading = tokio::spawn(async move { while live.next().await.is_some() {} });
        two.revoke_acme_reader().await;

        tokio::time::pause();
        tokio::time::advance(KEY_CHECK_INTERVAL).await;
        tokio::time::resume();
        let mut seed = 100;
        wait_until("the stream has ended", async || {
            seed += 1;
            import(app, &two.acme, "more@acme.test", &generated(seed, 3)).await;
            reading.is_finished()
        })
        .await;
    })
    .await;
}

/// Streams have permits of their own, and a tenant gets half of them.
#[tokio::test(flavor = "multi_thread")]
async fn streams_are_limited_apart_from_requests() {
    on_each_app_with(few_streams, async |app| {
        let two = TwoTenants::without_mail(app).await;
        let first = app.open(stream_request(&two.acme_reader, &[])).await;
        let second = app.open(stream_request(&two.acme_reader, &[])).await;
        assert_eq!((first.status().as_u16(), second.status().as_u16()), (200, 200));
        app.send(stream_request(&two.acme_reader, &[])).await.expect(503);
        two.get("/v1/emails", &two.acme_reader).await.expect(200);
        drop(second);
        wait_until("there is a permit again", async || {
            app.open(stream_request(&two.acme_reader, &[])).await.status() == 200
        })
        .await;
        drop(first);
    })
    .await;
}

fn few_streams() -> AppOptions {
    let mut http = testkit::http::HttpOptions::default();
    (http.edge.limits.streams, http.edge.limits.in_flight) = (4, 1);
    AppOptions::default().http(http)
}

#[tokio::test]
async fn number_from_before_a_restore_is_refused() {
    on_each_app(async |app| {
        let two = TwoTenants::new(app).await;
        let events = two.get("/v1/events?backfill=true&limit=500", &two.acme_reader).await.json();
        let last = events["items"].as_array().unwrap().last().unwrap()["seq"].as_u64().unwrap();
        store::restored::mark(&app.db.location, "a backup").await.unwrap();
        app.db.store.migrate().await.unwrap();

        for path in ["/v1/events", "/v1/events/stream"] {
            let lost = two.get(&format!("{path}?after={}", last + 1), &two.acme_reader).await;

            lost.assert_problem(410, "from before this installation was restored");
            let goes_on = lost.json()["continue_after"].as_u64().unwrap();
            assert!(lost.json()["detail"].as_str().unwrap().ends_with(&format!("go on with after={goes_on}")));
            let read = two.get(&format!("/v1/events?after={goes_on}"), &two.acme_reader).await;
            assert_eq!(read.json()["items"][0]["type"], "installation.restored");
        }
        let known = two.get(&format!("/v1/events?after={last}"), &two.acme_reader).await;
        assert_eq!(known.json()["items"][0]["data"], serde_json::json!({"after": last}));
    })
    .await;
}

#[tokio::test]
async fn number_of_pruned_events_is_refused() {
    on_each_app(async |app| {
        let two = TwoTenants::new(app).await;
        app.db.run("delete from events where seq < 3").await;

        let lost = two.get("/v1/events?after=1", &two.acme_reader).await;

        lost.assert_problem(410, "are no longer kept");
        assert_eq!(lost.json()["continue_after"], 2);
        for after in [0, 2] {
            let read = two.get(&format!("/v1/events?backfill=true&after={after}"), &two.acme_reader).await;
            assert_eq!(read.json()["items"][0]["seq"], 3, "after {after}");
        }
    })
    .await;
}
