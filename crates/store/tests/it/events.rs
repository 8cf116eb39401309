//! A reader that remembers the last number it saw never misses an event.

use std::sync::atomic::{AtomicBool, Ordering};

use domain::EventType;
use serde_json::json;
use store::failpoint::{Guard, VARIABLE};
use store::testing::{TestDatabase, on_each_database};
use store::{Dialect, Store};

use crate::samples::tenant;

const WRITERS: u64 = 6;
const UNITS: u64 = 40;

fn another(db: &TestDatabase) -> Store {
    match db.store.dialect() {
        Dialect::Postgres => db.second_store(),
        Dialect::Sqlite => db.store.clone(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn event_reader_beside_writers_misses_nothing() {
    on_each_database(|db| async move {
        let tenant = tenant(&db.store, "acme").await.id;
        let is_over = AtomicBool::new(false);
        let write = async |writer: u64| {
            let store = if writer.is_multiple_of(2) { db.store.clone() } else { another(&db) };
            for n in 0..UNITS {
                let mut unit = store.tenant(tenant).write();
                for event in 0..=(n + writer) % 3 {
                    unit.emit_event(
                        EventType::SyncCompleted,
                        None,
                        json!({"writer": writer, "unit": n, "event": event}),
                    );
                }
                unit.commit().await.unwrap();
            }
        };
        let read = async {
            let (mut last, mut seen, reader) = (0, Vec::new(), another(&db).tenant(tenant));
            loop {
                // Asked before the look: what is committed by then must be seen by it.
                let was_over = is_over.load(Ordering::SeqCst);
                let events = reader.list_events(last, 7).await.unwrap();
                for event in &events {
                    assert_eq!(event.seq, last + 1, "a number was left out, or came late");
                    last = event.seq;
                    seen.push(event.data.to_string());
                }
                if events.is_empty() && was_over {
                    return seen;
                }
            }
        };
        let writing = async {
            let writers: Vec<_> = (0..WRITERS).map(write).collect();
            futures_util::future::join_all(writers).await;
            is_over.store(true, Ordering::SeqCst);
        };
        let (mut seen, ()) = tokio::join!(read, writing);

        let count = seen.len() as u64;
        assert_eq!(count, (0..WRITERS).flat_map(|w| (0..UNITS).map(move |n| (n + w) % 3 + 1)).sum::<u64>());
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len() as u64, count, "an event was listed twice");
        assert!(db.rows("select 1 from event_drafts").await.is_empty(), "drafts are left");
    })
    .await;
}

/// The same test in a process in which numbers are taken from what is there.
#[test]
fn event_reader_fails_without_the_counter() {
    let program = std::env::current_exe().unwrap();
    let outcome = std::process::Command::new(program)
        .args(["--exact", "events::event_reader_beside_writers_misses_nothing", "--nocapture"])
        .env(VARIABLE, format!("off={}", Guard::EventCounter.name()))
        .output()
        .unwrap();
    assert!(!outcome.status.success(), "the counter guards nothing");
}
