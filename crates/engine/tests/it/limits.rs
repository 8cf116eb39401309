//! P9: past a limit an email is stored with a defect that says so, and its original stays whole.

use domain::search::Query;
use domain::{Flags, Limits};
use engine::Progress;
use engine::ingest::{Ingested, Message, Source};
use store::sql::emails::Email;
use store::sql::search::Page;
use store::testing::on_each_database;

use crate::bench::Bench;

/// Small enough that a test passes each of them with little mail.
fn small() -> Limits {
    Limits {
        attachment_bytes: 2_000,
        decoded_bytes: 5_000,
        header_bytes: 2_000,
        nesting: 5,
        parts: 20,
        body_bytes: 1_000,
        ..Limits::default()
    }
}

fn multipart(parts: impl Iterator<Item = String>) -> String {
    let parts: String = parts.map(|part| format!("--b\n{part}\n")).collect();
    format!("Subject: parts\nContent-Type: multipart/mixed; boundary=b\n\n{parts}--b--\n")
}

fn file(name: &str, bytes: usize) -> String {
    format!("Content-Disposition: attachment; filename={name}\n\n{}", "x".repeat(bytes))
}

/// Mail that passes a limit, and the defect that it gets for it.
fn over_the_limits() -> Vec<(&'static str, Vec<u8>)> {
    let nested: String = (0..50).map(|n| format!("Content-Type: multipart/mixed; boundary=b{n}\n\n--b{n}\n")).collect();
    let addresses = (0..500).map(|n| format!("a{n}@acme.test")).collect::<Vec<_>>().join(", ");
    let headers: String = (0..500).map(|n| format!("X-Header-{n}: value\n")).collect();
    let texts: Vec<(&str, String)> = vec![
        ("nesting_too_deep", format!("Subject: nested\n{nested}deep")),
        ("too_many_parts", multipart((0..100).map(|n| file(&format!("{n}.txt"), 1)))),
        ("attachment_too_large", multipart([file("large.bin", 3_000)].into_iter())),
        ("decoded_too_large", multipart((0..10).map(|n| file(&format!("{n}.bin"), 1_500)))),
        ("headers_truncated", format!("Subject: many\n{headers}\nbody")),
        ("headers_truncated", format!("To: {addresses}\nSubject: long\n\nbody")),
        ("headers_truncated", format!("Subject: {}\n\nbody", "long ".repeat(10_000))),
        ("body_truncated", format!("Subject: body\n\n{}", "word ".repeat(1_000))),
        ("body_truncated", format!("Subject: one line\n\n{}", "x".repeat(5_000_000))),
        (
            "body_truncated",
            format!("Subject: html\nContent-Type: text/html\n\n{}{}", "<div>".repeat(50_000), "x".repeat(2_000)),
        ),
        ("nul_stripped", "Subject: a\0b\n\nc\0d\n".to_owned()),
        ("no_receive_time", "Subject: never\n\nx\n".to_owned()),
        ("receive_time_out_of_range", "Subject: later\nDate: Fri, 01 Jan 2100 00:00:00 +0000\n\nx\n".to_owned()),
        ("no_headers", "\n".to_owned()),
    ];
    texts.into_iter().map(|(defect, text)| (defect, text.into_bytes())).collect()
}

async fn all(bench: &Bench) -> Vec<Email> {
    let page = Page { limit: 10_000, ..Page::default() };
    let ids = bench.tenant.search(&Query::default(), &page).await.unwrap();
    bench.tenant.get_emails(&ids).await.unwrap()
}

async fn store_all(bench: &Bench, mails: Vec<Vec<u8>>) -> Ingested {
    let folder = bench.folders(&["INBOX".to_owned()]).await["INBOX"];
    let message = |raw: Vec<u8>| Message {
        raw: raw.into(),
        source: Source::File { folder, flags: Flags::default() },
        received_at: None,
        origin: String::new(),
    };
    bench.ingest(mails.into_iter().map(message)).await
}

#[tokio::test]
async fn mail_over_a_limit_is_stored_with_the_defect_that_says_so() {
    on_each_database(|database| async move {
        let folder = tempfile::tempdir().unwrap();
        let bench = Bench::new(database.store, folder.path(), small()).await;
        let mails = over_the_limits();

        let ingested = store_all(&bench, mails.iter().map(|(_, raw)| raw.clone()).collect()).await;

        assert_eq!((ingested.stored, ingested.duplicates), (mails.len() as u64, 0));
        let emails = all(&bench).await;
        for (defect, raw) in &mails {
            let sha256 = domain::Sha256::of(raw);
            let email = emails.iter().find(|email| email.sha256 == sha256).unwrap();
            let defects: Vec<&str> = email.defects.as_array().unwrap().iter().filter_map(|d| d.as_str()).collect();
            assert!(defects.contains(defect), "{defect} is not in {defects:?} of {:?}", email.subject);
            assert!(
                bench.engine.read_raw(&bench.tenant, email).await.unwrap() == *raw,
                "{defect}: the original differs"
            );
        }
    })
    .await;
}

#[tokio::test]
async fn any_bytes_are_stored_and_whole() {
    on_each_database(|database| async move {
        let folder = tempfile::tempdir().unwrap();
        let bench = Bench::new(database.store, folder.path(), Limits::default()).await;
        let mut mails: Vec<Vec<u8>> = (0..=255_u8).map(|byte| vec![byte; 100]).collect();
        mails.push(Vec::new());
        mails.push((0..=255).collect());
        mails.push(b"Subject: \xed\xa0\x80 surrogate \xf4\x90\x80\x80\n\n\xff".to_vec());
        mails.push("Subject: \u{0}\u{1}\u{fffe}\u{10ffff}\nFrom: \u{0}@\u{0}\n\n\u{0}".into());
        let count = mails.len() as u64;

        let ingested = store_all(&bench, mails).await;

        assert_eq!(ingested.stored, count);
        let report = bench.engine.verify(&bench.tenant, None, true, &Progress::default()).await.unwrap();
        assert!(report.differences.is_empty(), "{:?}", report.differences);
    })
    .await;
}

#[tokio::test]
async fn what_was_cut_from_search_is_a_defect() {
    on_each_database(|database| async move {
        let folder = tempfile::tempdir().unwrap();
        let bench = Bench::new(database.store, folder.path(), Limits::default()).await;
        let words: String = (0..50_000).map(|n| format!("word{n} ")).collect();

        store_all(&bench, vec![format!("Subject: words\n\n{words}").into_bytes()]).await;

        let email = all(&bench).await.remove(0);
        assert!(email.defects.as_array().unwrap().contains(&"search_truncated".into()), "{}", email.defects);
        assert!(email.body_text.unwrap().contains("word49999"));
    })
    .await;
}
