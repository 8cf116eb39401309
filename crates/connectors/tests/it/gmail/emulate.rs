//! Against `emulate`, whose makers read Gmail's rules without us: lists, bytes, history, labels, and a watch.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use connectors::google::GoogleSettings;
use domain::Sha256;
use domain::connector::WatchWish;
use reqwest::{Client, Method};
use serde_json::{Value, json};

use super::mirror;
use super::shim::{Shim, client};
use crate::mirror::{Copy, Fixed};

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

    /// What is really there, as far as it is wanted of a mailbox.
    async fn truth(&self) -> BTreeMap<String, Copy> {
        let list = self.call(Method::GET, "messages?maxResults=500&includeSpamTrash=true", Value::Null).await;
        let mut truth = BTreeMap::new();
        for id in list["messages"].as_array().into_iter().flatten().map(|message| message["id"].as_str().unwrap()) {
            let message = self.call(Method::GET, &format!("messages/{id}?format=raw"), Value::Null).await;
            let labels: BTreeSet<&str> =
                message["labelIds"].as_array().into_iter().flatten().map(|label| label.as_str().unwrap()).collect();
            let folders: BTreeSet<String> = match labels.contains("TRASH") {
                true => BTreeSet::from(["TRASH".to_owned()]),
                false => {
                    let labels = labels.iter().filter(|label| !["UNREAD", "STARRED"].contains(label));
                    labels.map(|label| (*label).to_owned()).chain(["ALL_MAIL".to_owned()]).collect()
                }
            };
            let marks = [(labels.contains("STARRED"), "flagged"), (!labels.contains("UNREAD"), "seen")];
            let flags = marks.iter().filter(|(is_set, _)| *is_set).map(|(_, name)| (*name).to_owned()).collect();
            let bytes = URL_SAFE_NO_PAD.decode(message["raw"].as_str().unwrap().trim_end_matches('=')).unwrap();
            truth.insert(id.to_owned(), Copy { folders, flags, sha256: Some(Sha256::of(&bytes)), revision: None });
        }
        truth
    }
}

#[tokio::test]
async fn a_gmail_that_we_did_not_write_is_followed() {
    let emulate = Emulate::find();
    let shim = Shim::before(&emulate.url).await;
    let topic = Some("projects/p/topics/t".to_owned());
    let settings = GoogleSettings { api_url: shim.url.clone(), topic, ..GoogleSettings::default() };
    let mut mirror = mirror(&settings, Arc::new(Fixed("any".to_owned())));
    let mut ids = Vec::new();
    for n in 0..25 {
        ids.push(emulate.deliver(&format!("letter {n}"), &["INBOX", "UNREAD"]).await);
    }
    emulate.label(&ids[0], &[], &["INBOX"]).await;
    emulate.label(&ids[1], &["STARRED"], &["UNREAD"]).await;

    mirror.begin().await;
    assert_eq!(mirror.messages, emulate.truth().await);
    assert_eq!(mirror.count().await, mirror.places());
    assert_eq!(mirror.follow().await, Ok(0));

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

    assert!(mirror.follow().await.unwrap() > 0);
    assert_eq!(mirror.messages, emulate.truth().await);
    assert!(mirror.account.folders.iter().any(|folder| folder.name == "Taxes/2026"));

    emulate.call(Method::POST, &format!("messages/{}/untrash", ids[3]), Value::Null).await;
    emulate.call(Method::DELETE, &format!("labels/{label}"), Value::Null).await;
    mirror.follow().await.unwrap();
    assert_eq!(mirror.messages, emulate.truth().await);

    let watch = mirror.connector.watch(&mirror.account, &WatchWish::plain()).unwrap().await.unwrap();
    assert!(watch.expires_at.as_second() > 1_700_000_000);
    mirror.connector.unwatch(&mirror.account, None).unwrap().await.unwrap();
}
