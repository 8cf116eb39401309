//! Many calls in one.

use serde_json::{Value, json};
use sim::google::{Fault, Kind, Operation, Route};

use super::place::{ANN, Answered, Place};

/// A part of the answer: its id, status, header fields and JSON.
#[derive(Debug)]
pub struct Part {
    pub id: String,
    pub status: u16,
    pub head: String,
    pub body: Value,
}

pub fn written(targets: &[String]) -> String {
    let part = |(number, target): (usize, &String)| {
        format!("--b\r\nContent-Type: application/http\r\nContent-ID: <part-{number}>\r\n\r\nGET {target}\r\n\r\n")
    };
    targets.iter().enumerate().map(part).chain(["--b--\r\n".to_owned()]).collect()
}

async fn send(place: &Place, targets: &[String]) -> Option<Answered> {
    let authorization = format!("Bearer {}", place.token());
    let fields = [("Authorization", authorization.as_str()), ("Content-Type", "multipart/mixed; boundary=b")];
    place.send("POST", "/batch/gmail/v1", &fields, written(targets).as_bytes()).await
}

fn parts(answered: &Answered) -> Vec<Part> {
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
            Part {
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

#[tokio::test]
async fn each_part_has_a_status_and_the_name_of_its_request() {
    let place = Place::with_ann(2).await;
    let ids: Vec<String> = place.world.truth(ANN).unwrap().messages.into_keys().collect();
    place.world.apply(ANN, Operation::Delete { message: ids[1].clone() }).unwrap();
    let get = |id: &str| target(&format!("messages/{id}?format=raw"));

    let answered = send(&place, &[get(&ids[0]), get(&ids[1]), target("profile")]).await.unwrap();

    let parts = parts(&answered);
    let told: Vec<(&str, u16)> = parts.iter().map(|part| (part.id.as_str(), part.status)).collect();
    assert_eq!(told, [("<response-part-0>", 200), ("<response-part-1>", 404), ("<response-part-2>", 200)]);
    assert_eq!((&parts[0].body["id"], parts[0].body["raw"].is_string()), (&json!(ids[0]), true));
    assert_eq!(parts[1].body["error"]["errors"][0]["reason"], "notFound");
    let log = place.world.request_log();
    let seen: Vec<(Route, u16, bool)> = log.iter().map(|entry| (entry.route, entry.status, entry.in_batch)).collect();
    let expected = [
        (Route::MessagesGet, 200, true),
        (Route::MessagesGet, 404, true),
        (Route::Profile, 200, true),
        (Route::Batch, 200, false),
    ];
    assert_eq!(seen, expected);
    assert!(log.iter().all(|entry| entry.account == ANN));
    place.assert_no_violations();
}

#[tokio::test]
async fn some_parts_are_throttled_and_others_come() {
    let place = Place::with_ann(1).await;
    let kind = Kind::Throttled { retry_after: Some(7) };
    place.world.add_fault(Fault { route: Some(Route::Profile), count: Some(2), ..Fault::always(kind) });

    let parts = parts(&send(&place, &vec![target("profile"); 4]).await.unwrap());

    let statuses: Vec<u16> = parts.iter().map(|part| part.status).collect();
    assert_eq!(statuses, [429, 429, 200, 200]);
    assert!(parts[0].head.to_lowercase().contains("retry-after: 7"));
    assert_eq!(parts[0].body["error"]["status"], "RESOURCE_EXHAUSTED");
}

#[tokio::test]
async fn parts_go_missing_come_in_another_order_and_break_off_when_it_is_scripted() {
    let place = Place::with_ann(1).await;
    let both = [target("profile"), target("labels")];
    let ids = async |kind| {
        place.world.clear_faults();
        place.world.add_fault(Fault::once(kind));
        let answered = send(&place, &both).await?;
        Some(parts(&answered).into_iter().map(|part| part.id).collect::<Vec<_>>())
    };

    assert_eq!(ids(Kind::MissingPart).await.unwrap(), ["<response-part-0>"]);
    assert_eq!(ids(Kind::ShuffledParts).await.unwrap(), ["<response-part-1>", "<response-part-0>"]);
    assert_eq!(ids(Kind::CutBody).await, None);
    assert_eq!(ids(Kind::Cut).await, None);
}

#[tokio::test]
async fn a_batch_of_more_than_a_hundred_or_none_at_all_is_refused() {
    let place = Place::with_ann(0).await;

    let hundred = send(&place, &vec![target("profile"); 100]).await.unwrap();
    let more = send(&place, &vec![target("profile"); 101]).await.unwrap();
    let outside = send(&place, &["https://gmail.googleapis.com/gmail/v1/users/me/profile".to_owned()]).await.unwrap();

    assert_eq!((hundred.status, parts(&hundred).len()), (200, 100));
    assert_eq!((more.status, more.reason().as_str()), (400, "badRequest"));
    assert_eq!(outside.status, 400);
    assert_eq!(place.world.violations().len(), 2);
}

#[tokio::test]
async fn parts_without_a_token_are_refused_one_by_one() {
    let place = Place::with_ann(0).await;
    let body = format!(
        "--b\r\nContent-Type: application/http\r\n\r\nGET {0}\r\nAuthorization: Bearer {1}\r\n\r\n\r\n\
         --b\r\nContent-Type: application/http\r\n\r\nGET {0}\r\n\r\n--b--",
        target("profile"),
        place.token()
    );

    let fields = [("Content-Type", "multipart/mixed; boundary=b")];
    let answered = place.send("POST", "/batch/gmail/v1", &fields, body.as_bytes()).await.unwrap();

    let statuses: Vec<u16> = parts(&answered).iter().map(|part| part.status).collect();
    assert_eq!(statuses, [200, 401]);
}
