//! Against `emulate`, whose makers read Gmail's rules without us: lists, bytes, history, labels, and a watch.

use std::collections::BTreeSet;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::Sha256;
use domain::connector::WatchRequest;
use providers::gmail::{Gmail, GoogleSettings};
use providers::http::{HttpClient, HttpTimeouts};
use reqwest::{Client, Method};
use serde_json::{Value, json};
use testkit::contract::{MailboxReplica, placement_line};

use super::account::account;
use super::shim::{Shim, client};

struct Emulate {
    url: String,
    client: Client,
}

impl Emulate {
    #[expect(clippy::disallowed_methods, reason = "the one who runs the tests says where it is")]
    fn find() -> Self {
        let url = std::env::var("MAILROOM_TEST_GMAIL_URL");
        let url = url.expect("MAILROOM_TEST_GMAIL_URL: `scripts/services/emulate.sh start DIR` starts one");
        Self { url, client: client() }
    }

    async fn call(&self, method: Method, path: &str, body: Value) -> Value {
        let request = self.client.request(method, format!("{}/gmail/v1/users/me/{path}", self.url)).bearer_auth("any");
        let request = match body {
            Value::Null => request,
            body => request.header("content-type", "application/json").body(body.to_string()),
        };
        let answer = request.send().await.unwrap();
        assert!(answer.status().is_success(), "{path}: {}", answer.status());
        serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap_or(Value::Null)
    }

    /// Gives its id.
    async fn deliver(&self, subject: &str, labels: &[&str]) -> String {
        let raw = format!("From: a@x.test\r\nTo: me@gmail.test\r\nSubject: {subject}\r\n\r\nHello, {subject}.\r\n");
        let body = json!({"raw": URL_SAFE_NO_PAD.encode(raw), "labelIds": labels});
        self.call(Method::POST, "messages", body).await["id"].as_str().unwrap().to_owned()
    }

    async fn label(&self, id: &str, add: &[&str], remove: &[&str]) {
        let body = json!({"addLabelIds": add, "removeLabelIds": remove});
        self.call(Method::POST, &format!("messages/{id}/modify"), body).await;
    }

    /// The lines of what is there, sorted.
    async fn truth(&self) -> Vec<String> {
        let list = self.call(Method::GET, "messages?maxResults=500&includeSpamTrash=true", Value::Null).await;
        let mut lines = Vec::new();
        for id in list["messages"].as_array().into_iter().flatten().map(|message| message["id"].as_str().unwrap()) {
            let message = self.call(Method::GET, &format!("messages/{id}?format=raw"), Value::Null).await;
            let labels: BTreeSet<&str> =
                message["labelIds"].as_array().into_iter().flatten().map(|label| label.as_str().unwrap()).collect();
            let folders: Vec<&str> = if labels.contains("TRASH") {
                vec!["TRASH"]
            } else {
                let labels = labels.iter().copied().filter(|label| !["UNREAD", "STARRED"].contains(label));
                labels.chain(["ALL_MAIL"]).collect()
            };
            let mut flags = Vec::new();
            flags.extend(labels.contains("STARRED").then_some("flagged"));
            flags.extend((!labels.contains("UNREAD")).then_some("seen"));
            let bytes = URL_SAFE_NO_PAD.decode(message["raw"].as_str().unwrap().trim_end_matches('=')).unwrap();
            let sha256 = Sha256::of(&bytes).hex();
            lines.extend(folders.into_iter().map(|folder| placement_line(folder, id, &flags, &sha256)));
        }
        lines.sort();
        lines
    }
}

fn lines(replica: &MailboxReplica) -> Vec<String> {
    replica.lines(|folder| folder.id.clone())
}

#[tokio::test]
async fn third_party_gmail_emulator_is_followed() {
    let emulate = Emulate::find();
    let shim = Shim::before(&emulate.url).await;
    let topic = Some("projects/p/topics/t".to_owned());
    let settings = GoogleSettings { api_url: shim.url.clone(), topic, ..GoogleSettings::default() };
    let gmail = Gmail::new(HttpClient::new(HttpTimeouts::default()).unwrap(), &settings).unwrap();
    let mut replica = MailboxReplica::new(Arc::new(gmail), account("any"));
    let mut ids = Vec::new();
    for n in 0..25 {
        ids.push(emulate.deliver(&format!("letter {n}"), &["INBOX", "UNREAD"]).await);
    }
    emulate.label(&ids[0], &[], &["INBOX"]).await;
    emulate.label(&ids[1], &["STARRED"], &["UNREAD"]).await;

    replica.begin().await.unwrap();
    assert_eq!(lines(&replica), emulate.truth().await);
    assert_eq!(replica.listed().await.unwrap(), replica.placements());
    assert_eq!(replica.follow().await, Ok(0));

    let label = emulate.call(Method::POST, "labels", json!({"name": "Taxes/2026"})).await;
    let label = label["id"].as_str().unwrap();
    emulate.label(&ids[2], &[label], &["UNREAD"]).await;
    emulate.label(&ids[1], &["UNREAD"], &["STARRED"]).await;
    emulate.call(Method::POST, &format!("messages/{}/trash", ids[3]), Value::Null).await;
    emulate.call(Method::DELETE, &format!("messages/{}", ids[4]), Value::Null).await;
    emulate.deliver("a new one", &["INBOX", "UNREAD"]).await;
    // It comes and goes before anybody looks.
    let short = emulate.deliver("a short one", &["INBOX"]).await;
    emulate.call(Method::DELETE, &format!("messages/{short}"), Value::Null).await;

    assert!(replica.follow().await.unwrap() > 0);
    assert_eq!(lines(&replica), emulate.truth().await);
    assert!(replica.account.folders.iter().any(|folder| folder.name == "Taxes/2026"));

    emulate.call(Method::POST, &format!("messages/{}/untrash", ids[3]), Value::Null).await;
    emulate.call(Method::DELETE, &format!("labels/{label}"), Value::Null).await;
    replica.follow().await.unwrap();
    assert_eq!(lines(&replica), emulate.truth().await);

    let (connector, account) = (&replica.connector, &replica.account);
    let watch = connector.watch(account, &WatchRequest::without_client_state()).unwrap().await.unwrap();
    assert!(watch.expires_at.as_second() > 1_700_000_000);
    connector.unwatch(account, None).unwrap().await.unwrap();
}
