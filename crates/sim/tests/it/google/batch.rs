//! Batch requests.

use serde_json::{Value, json};
use sim::google::{GmailOperation, GoogleFault, GoogleFaultKind, GoogleRoute};

use super::harness::{ANN, GoogleHarness};
use crate::client::HttpReply;

/// A part of a batch response.
#[derive(Debug)]
pub struct BatchReplyPart {
    pub id: String,
    pub status: u16,
    pub head: String,
    pub body: Value,
}

pub fn written(targets: &[String]) -> String {
    targets
        .iter()
        .enumerate()
        .map(|(number, target)| {
            format!("--b\r\nContent-Type: application/http\r\nContent-ID: <part-{number}>\r\n\r\nGET {target}\r\n\r\n")
        })
        .chain(["--b--\r\n".to_owned()])
        .collect()
}

async fn send(harness: &GoogleHarness, targets: &[String]) -> Option<HttpReply> {
    let authorization = format!("Bearer {}", harness.token());
    let fields = [("Authorization", authorization.as_str()), ("Content-Type", "multipart/mixed; boundary=b")];
    harness.send("POST", "/batch/gmail/v1", &fields, written(targets).as_bytes()).await
}

fn parts(answered: &HttpReply) -> Vec<BatchReplyPart> {
    let boundary = answered.header("content-type").unwrap().split_once("boundary=").unwrap().1;
    let text = answered.text();
    let (whole, _) = text.split_once(&format!("--{boundary}--")).unwrap();
    whole
        .split(&format!("--{boundary}\r\n"))
        .skip(1)
        .map(|part| {
            let (outer, inner) = part.split_once("\r\n\r\n").unwrap();
            let (head, body) = inner.split_once("\r\n\r\n").unwrap();
            let id = outer.lines().find_map(|line| line.strip_prefix("Content-ID: ")).unwrap_or_default();
            let status = head.split(' ').nth(1).unwrap().parse().unwrap();
            BatchReplyPart {
                id: id.to_owned(),
                status,
                head: head.to_owned(),
                body: serde_json::from_str(body).unwrap_or(Value::Null),
            }
        })
        .collect()
}

fn target(rest: &str) -> String {
    format!("/gmail/v1/users/me/{rest}")
}

fn raw_target(id: &str) -> String {
    target(&format!("messages/{id}?format=raw"))
}

#[tokio::test]
async fn part_has_a_status_and_its_request_id() {
    let harness = GoogleHarness::with_ann(2).await;
    let ids: Vec<String> = harness.world.truth(ANN).unwrap().messages.into_keys().collect();
    harness.world.apply(ANN, GmailOperation::Delete { message: ids[1].clone() }).unwrap();

    let answered = send(&harness, &[raw_target(&ids[0]), raw_target(&ids[1]), target("profile")]).await.unwrap();

    let parts = parts(&answered);
    let told: Vec<(&str, u16)> = parts.iter().map(|part| (part.id.as_str(), part.status)).collect();
    assert_eq!(told, [("<response-part-0>", 200), ("<response-part-1>", 404), ("<response-part-2>", 200)]);
    assert_eq!((&parts[0].body["id"], parts[0].body["raw"].is_string()), (&json!(ids[0]), true));
    assert_eq!(parts[1].body["error"]["errors"][0]["reason"], "notFound");
    let log = harness.world.request_log();
    let seen: Vec<(GoogleRoute, u16, bool)> =
        log.iter().map(|entry| (entry.route, entry.status, entry.in_batch)).collect();
    let expected = [
        (GoogleRoute::MessagesGet, 200, true),
        (GoogleRoute::MessagesGet, 404, true),
        (GoogleRoute::Profile, 200, true),
        (GoogleRoute::Batch, 200, false),
    ];
    assert_eq!(seen, expected);
    assert!(log.iter().all(|entry| entry.account == ANN));
    harness.assert_no_violations();
}

#[tokio::test]
async fn parts_are_throttled_separately() {
    let harness = GoogleHarness::with_ann(1).await;
    let kind = GoogleFaultKind::Throttled { retry_after: Some(7) };
    harness.world.add_fault(GoogleFault {
        route: Some(GoogleRoute::Profile),
        count: Some(2),
        ..GoogleFault::always(kind)
    });

    let parts = parts(&send(&harness, &vec![target("profile"); 4]).await.unwrap());

    let statuses: Vec<u16> = parts.iter().map(|part| part.status).collect();
    assert_eq!(statuses, [429, 429, 200, 200]);
    assert!(parts[0].head.to_lowercase().contains("retry-after: 7"));
    assert_eq!(parts[0].body["error"]["status"], "RESOURCE_EXHAUSTED");
}

#[tokio::test]
async fn faults_drop_reorder_and_cut_parts() {
    let harness = GoogleHarness::with_ann(1).await;
    let both = [target("profile"), target("labels")];
    let ids = async |kind| {
        harness.world.clear_faults();
        harness.world.add_fault(GoogleFault::once(kind));
        let answered = send(&harness, &both).await?;
        Some(parts(&answered).into_iter().map(|part| part.id).collect::<Vec<_>>())
    };

    assert_eq!(ids(GoogleFaultKind::MissingPart).await.unwrap(), ["<response-part-0>"]);
    assert_eq!(ids(GoogleFaultKind::ShuffledParts).await.unwrap(), ["<response-part-1>", "<response-part-0>"]);
    assert_eq!(ids(GoogleFaultKind::CutBody).await, None);
    assert_eq!(ids(GoogleFaultKind::Cut).await, None);
}

#[tokio::test]
async fn oversized_or_malformed_batch_is_refused() {
    let harness = GoogleHarness::with_ann(0).await;

    let hundred = send(&harness, &vec![target("profile"); 100]).await.unwrap();
    let more = send(&harness, &vec![target("profile"); 101]).await.unwrap();
    let outside = send(&harness, &["https://gmail.googleapis.com/gmail/v1/users/me/profile".to_owned()]).await.unwrap();

    assert_eq!((hundred.status, parts(&hundred).len()), (200, 100));
    assert_eq!((more.status, more.reason().as_str()), (400, "badRequest"));
    assert_eq!(outside.status, 400);
    assert_eq!(harness.world.violations().len(), 2);
}

#[tokio::test]
async fn parts_without_a_token_are_refused() {
    let harness = GoogleHarness::with_ann(0).await;
    let body = format!(
        "--b\r\nContent-Type: application/http\r\n\r\nGET {0}\r\nAuthorization: Bearer {1}\r\n\r\n\r\n\
         --b\r\nContent-Type: application/http\r\n\r\nGET {0}\r\n\r\n--b--",
        target("profile"),
        harness.token()
    );

    let fields = [("Content-Type", "multipart/mixed; boundary=b")];
    let answered = harness.send("POST", "/batch/gmail/v1", &fields, body.as_bytes()).await.unwrap();

    let statuses: Vec<u16> = parts(&answered).iter().map(|part| part.status).collect();
    assert_eq!(statuses, [200, 401]);
}
