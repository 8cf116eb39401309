//! The control API, as docs/providers/scripted.md has it.

use std::sync::Arc;

use serde_json::{Value, json};
use sim::scripted::{Server, World};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

struct Place {
    server: Server,
    world: Arc<World>,
}

impl Place {
    async fn new() -> Self {
        let now: jiff::Timestamp = "2026-02-01T12:00:00.123456789Z".parse().unwrap();
        let world = Arc::new(World::new(1, 20, Arc::new(move || now)));
        Self { server: Server::start_here(Arc::clone(&world)).await.unwrap(), world }
    }

    /// The status and what came; nothing when the connection ended without an answer.
    async fn call(&self, method: &str, path: &str, body: Value) -> Option<(u16, Value)> {
        let mut stream = TcpStream::connect(self.server.address()).await.unwrap();
        let body = body.to_string();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer t\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some((status, serde_json::from_str(body).unwrap_or(Value::Null)))
    }

    async fn ok(&self, method: &str, path: &str, body: Value) -> Value {
        let (status, told) = self.call(method, path, body).await.unwrap();
        assert!(matches!(status, 200 | 201), "{method} {path}: {status} {told}");
        told
    }

    async fn get(&self, path: &str) -> Value {
        self.ok("GET", path, Value::Null).await
    }
}

const ANN: &str = "/control/accounts/ann@x.test";

async fn with_ann() -> Place {
    let place = Place::new().await;
    let new = json!({"address": "Ann@x.test", "token": "t", "messages": 4, "seed": 5});
    place.ok("POST", "/control/accounts", new).await;
    place
}

#[tokio::test]
async fn accounts_are_made_one_by_one_or_many_at_once() {
    let place = with_ann().await;

    let again = place.call("POST", "/control/accounts", json!({"address": "ann@x.test", "token": "u"})).await.unwrap();
    place.ok("POST", "/control/accounts", json!({"count": 3, "messages": 2})).await;

    assert_eq!(again.0, 409);
    let items = place.get("/control/accounts").await["items"].clone();
    assert_eq!(items[0], json!({"address": "ann@x.test", "token": "t", "messages": 4}));
    assert_eq!(items[3], json!({"address": "box3@scripted.example", "token": "token-3", "messages": 2}));
    assert_eq!(place.get("/control/truth").await.as_object().unwrap().len(), 4);
}

#[tokio::test]
async fn operations_do_what_they_say() {
    let place = with_ann().await;
    let apply = async |operation: Value| place.ok("POST", &format!("{ANN}/apply"), operation).await;
    let places = async |folder: &str| {
        place.get(&format!("{ANN}/truth")).await["folders"][folder]["places"].as_array().unwrap().clone()
    };

    let twins = apply(json!({"op": "deliver", "copies": 2, "folder": "trash"})).await["messages"].clone();
    let folder = apply(json!({"op": "create_folder", "name": "Mine"})).await["folder"].as_str().unwrap().to_owned();
    let trash = places("f6").await;
    let [one, two] = [&trash[trash.len() - 2], &trash[trash.len() - 1]];
    apply(json!({"op": "move", "folder": "trash", "uid": one["uid"], "to": folder})).await;
    apply(json!({"op": "set_flags", "folder": folder, "uid": "1", "flags": ["seen", "flagged", "seen"]})).await;
    apply(json!({"op": "copy", "folder": folder, "uid": "1", "to": folder})).await;
    apply(json!({"op": "delete", "folder": "trash", "uid": two["uid"]})).await;
    apply(json!({"op": "restore", "message": twins[1], "to": folder})).await;
    apply(json!({"op": "expunge", "folder": folder, "uids": ["2"]})).await;

    let mine = places(&folder).await;
    assert_eq!((&one["sha256"], &one["message"]), (&two["sha256"], &twins[0]));
    assert_eq!(mine.len(), 2);
    assert_eq!((&mine[0]["message"], &mine[0]["flags"]), (&twins[0], &json!(["flagged", "seen"])));
    assert_eq!((&mine[1]["message"], &mine[1]["uid"]), (&twins[1], &json!("3")));
    let draft = apply(json!({"op": "draft"})).await["message"].clone();
    assert_eq!(apply(json!({"op": "draft", "message": draft})).await["revision"], 2);
    apply(json!({"op": "rename_folder", "folder": folder, "name": "Ours"})).await;
    assert_eq!(place.get(&format!("{ANN}/truth")).await["folders"][&folder]["name"], "Ours");
    apply(json!({"op": "delete_folder", "folder": folder})).await;
    for refused in [json!({"op": "delete_folder", "folder": "inbox"}), json!({"op": "draft", "message": "m1"})] {
        assert_eq!(place.call("POST", &format!("{ANN}/apply"), refused).await.unwrap().0, 409);
    }
    let page = place.get("/scripted/ann@x.test/history?limit=1").await;
    assert_eq!(page["messages"][0]["received_at"], "2026-02-01T12:00:00.123Z");
}

#[tokio::test]
async fn requests_are_counted_and_faults_come_where_they_are_sent() {
    let place = with_ann().await;
    let check = async || place.call("GET", "/scripted/ann@x.test/check", Value::Null).await.map(|(status, _)| status);
    place.ok("POST", "/control/faults", json!({"kind": "throttled", "count": 1, "route": "check"})).await;
    place.ok("POST", "/control/faults", json!({"kind": "cut", "count": 1, "account": "ann@x.test"})).await;

    let statuses = [check().await, check().await, check().await];

    assert_eq!(statuses, [Some(429), None, Some(200)]);
    assert_eq!(place.get("/control/faults").await["items"][1]["fired"], 1);
    assert_eq!(place.get("/control/requests").await["accounts"]["ann@x.test"]["check"], 3);
    place.ok("DELETE", "/control/requests", Value::Null).await;
    assert_eq!(place.get(&format!("{ANN}/requests")).await["check"], 0);
    place.ok("PUT", &format!("{ANN}/token"), json!({"token": "other"})).await;
    assert_eq!(check().await, Some(401));
}

#[tokio::test]
async fn a_world_with_a_rate_changes_by_itself() {
    let place = with_ann().await;
    let before = place.world.truth("ann@x.test").unwrap();

    place.ok("PUT", "/control/rate", json!({"per_second": 500})).await;
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(120);
    while place.world.truth("ann@x.test").unwrap() == before {
        assert!(tokio::time::Instant::now() < deadline, "nothing changes");
        tokio::task::yield_now().await;
    }
}
