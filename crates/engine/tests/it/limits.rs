//! P9: past a limit an email is stored with a defect that says so, and its original stays whole.

use domain::MessageLimits;
use domain::search::SearchQuery;
use engine::Progress;
use store::TenantStore;
use store::sql::emails::Email;
use store::sql::search::SearchPage;
use testkit::app::ADDRESS;
use testkit::{AppOptions, on_each_app, on_each_app_with};

/// Small enough that a test passes each of them with little mail.
fn small() -> MessageLimits {
    MessageLimits {
        attachment_bytes: 2_000,
        decoded_bytes: 5_000,
        header_bytes: 2_000,
        nesting: 5,
        parts: 20,
        body_bytes: 1_000,
        ..MessageLimits::default()
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

async fn all_emails(tenant: &TenantStore) -> Vec<Email> {
    let page = SearchPage { limit: 10_000, ..SearchPage::default() };
    let ids = tenant.search(&SearchQuery::default(), &page).await.unwrap();
    tenant.get_emails(&ids).await.unwrap()
}

#[tokio::test]
async fn mail_over_a_limit_is_stored_with_a_defect() {
    on_each_app_with(
        || AppOptions::default().limits(small()),
        async |app| {
            let acme = app.create_tenant("acme").await;
            let mails = over_the_limits();

            let ingested = app.import(&acme, ADDRESS, "INBOX", mails.iter().map(|(_, raw)| raw.clone())).await;

            assert_eq!((ingested.stored, ingested.duplicates), (mails.len() as u64, 0));
            let emails = all_emails(&acme).await;
            for (defect, raw) in &mails {
                let sha256 = domain::Sha256::of(raw);
                let email = emails.iter().find(|email| email.sha256 == sha256).unwrap();
                let defects: Vec<&str> = email.defects.as_array().unwrap().iter().filter_map(|d| d.as_str()).collect();
                assert!(defects.contains(defect), "{defect} is not in {defects:?} of {:?}", email.subject);
                assert!(app.engine.read_raw(&acme, email).await.unwrap() == *raw, "{defect}: the original differs");
            }
        },
    )
    .await;
}

#[tokio::test]
async fn any_bytes_are_stored_exactly() {
    on_each_app(async |app| {
        let acme = app.create_tenant("acme").await;
        let mut mails: Vec<Vec<u8>> = (0..=255_u8).map(|byte| vec![byte; 100]).collect();
        mails.push(Vec::new());
        mails.push((0..=255).collect());
        mails.push(b"Subject: \xed\xa0\x80 surrogate \xf4\x90\x80\x80\n\n\xff".to_vec());
        mails.push("Subject: \u{0}\u{1}\u{fffe}\u{10ffff}\nFrom: \u{0}@\u{0}\n\n\u{0}".into());
        let count = mails.len() as u64;

        let ingested = app.import(&acme, ADDRESS, "INBOX", mails).await;

        assert_eq!(ingested.stored, count);
        let report = app.engine.verify(&acme, None, true, &Progress::default()).await.unwrap();
        assert!(report.differences.is_empty(), "{:?}", report.differences);
    })
    .await;
}

#[tokio::test]
async fn truncated_search_text_is_a_defect() {
    on_each_app(async |app| {
        let acme = app.create_tenant("acme").await;
        let words: String = (0..50_000).map(|n| format!("word{n} ")).collect();

        app.import(&acme, ADDRESS, "INBOX", [format!("Subject: words\n\n{words}")]).await;

        let email = all_emails(&acme).await.remove(0);
        assert!(email.defects.as_array().unwrap().contains(&"search_truncated".into()), "{}", email.defects);
        assert!(email.body_text.unwrap().contains("word49999"));
    })
    .await;
}
