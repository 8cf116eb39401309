//! How fast messages can be read. A figure, not a bound: run it in a release build with `--ignored --nocapture`.

use std::time::Instant;

use sim::people::{NewOrganisation, Organised};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::batch::written;
use super::place::{ANN, Place};

const MESSAGES: usize = 2_000;
const ROUNDS: usize = 10;

#[tokio::test]
#[ignore = "measures"]
async fn raw_messages_in_batches_of_fifty() {
    let place = Place::with_ann(MESSAGES).await;
    let ids: Vec<String> = place.world.truth(ANN).unwrap().messages.into_keys().collect();
    let target = |id: &String| format!("/gmail/v1/users/me/messages/{id}?format=raw");
    let batches: Vec<String> = ids.chunks(50).map(|ids| written(&ids.iter().map(target).collect::<Vec<_>>())).collect();
    let authorization = place.token();
    let mut stream = TcpStream::connect(place.server.address()).await.unwrap();
    let mut buffer = vec![0; 1 << 20];
    let (mut bytes, began) = (0, Instant::now());

    for batch in batches.iter().cycle().take(batches.len() * ROUNDS) {
        let head = format!(
            "POST /batch/gmail/v1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {authorization}\r\n\
             Content-Type: multipart/mixed; boundary=b\r\nContent-Length: {}\r\n\r\n",
            batch.len()
        );
        stream.write_all(&[head.as_bytes(), batch.as_bytes()].concat()).await.unwrap();
        let mut tail = Vec::new();
        while !tail.ends_with(b"\r\n0\r\n\r\n") {
            let count = stream.read(&mut buffer).await.unwrap();
            assert!(count > 0);
            bytes += count;
            tail = buffer[count.saturating_sub(7)..count].to_vec();
        }
    }

    let seconds = began.elapsed().as_secs_f64();
    let read = MESSAGES * ROUNDS;
    println!("{read} messages, {:.0} a second, {:.0} MB a second", read as f64 / seconds, bytes as f64 / seconds / 1e6);
    place.assert_no_violations();
}

#[tokio::test]
#[ignore = "measures"]
async fn ten_thousand_accounts() {
    let place = Place::new().await;
    let began = Instant::now();

    let made = place.world.create_many(10_000, 20);

    println!("{made} accounts with 20 messages each in {:.2} s", began.elapsed().as_secs_f64());
    assert_eq!(made, 10_000);
}

#[tokio::test]
#[ignore = "measures"]
async fn ten_thousand_people() {
    let place = Place::new().await;
    let began = Instant::now();

    let new =
        NewOrganisation { domain: "large.example".to_owned(), people: 10_000, messages: 20, ..Default::default() };
    place.world.organise(&new).unwrap();

    println!("an organisation of 10,000 people in {:.2} s", began.elapsed().as_secs_f64());
    assert_eq!(place.world.organisation("large.example").unwrap().people.len(), 10_000);
}
