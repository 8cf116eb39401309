use domain::EmailId;
use domain::search::{Phrase, Query};
use store::sql::search::{Page, Start};
use store::testing::on_each_database;
use store::{Location, TenantStore};
use tempfile::tempdir;

use crate::samples::{blobs, email, mailbox, record, tenant, time};

fn phrase(text: &str) -> Phrase {
    let (text, is_prefix) = text.strip_suffix('*').map_or((text, false), |text| (text, true));
    Phrase { tokens: text.split(' ').map(str::to_owned).collect(), is_prefix }
}

fn query(all_of: &[&str], none_of: &[&str]) -> Query {
    Query {
        all_of: all_of.iter().map(|text| phrase(text)).collect(),
        none_of: none_of.iter().map(|text| phrase(text)).collect(),
        ..Query::default()
    }
}

/// Subjects of what is found, in order.
async fn found(tenant: &TenantStore, query: Query) -> Vec<String> {
    let ids = tenant.search(&query, &Page { limit: 100, ..Page::default() }).await.unwrap();
    let emails = tenant.get_emails(&ids).await.unwrap();
    emails.into_iter().filter_map(|email| email.subject).collect()
}

#[tokio::test]
async fn words_phrases_prefixes_and_exclusions_find_the_same_on_both() {
    on_each_database(|db| async move {
        let (folder, acme) = (tempdir().unwrap(), tenant(&db.store, "acme").await);
        let mailbox = mailbox(&acme).await;
        let subjects = ["red apple pie", "green apple", "apple red", "from:ann plum"];
        let emails = subjects.iter().enumerate().map(|(n, subject)| {
            email(mailbox.id, subject, time("2026-01-02T03:04:05Z") + jiff::SignedDuration::from_secs(n as i64))
        });
        record(&acme, &blobs(&folder), emails.collect()).await.unwrap();

        assert_eq!(found(&acme, query(&["apple"], &[])).await, ["apple red", "green apple", "red apple pie"]);
        assert_eq!(found(&acme, query(&["apple", "red"], &[])).await, ["apple red", "red apple pie"]);
        assert_eq!(found(&acme, query(&["red apple"], &[])).await, ["red apple pie"]);
        assert_eq!(found(&acme, query(&["appl*"], &["green"])).await, ["apple red", "red apple pie"]);
        assert_eq!(found(&acme, query(&[], &["apple"])).await, ["from:ann plum"]);
        assert_eq!(found(&acme, query(&["from:ann"], &[])).await, ["from:ann plum"]);
        assert_eq!(found(&acme, query(&["ann"], &[])).await, Vec::<String>::new());
        assert_eq!(found(&acme, query(&[], &[])).await.len(), 4);
    })
    .await;
}

#[tokio::test]
async fn labels_and_dates_narrow_a_search() {
    on_each_database(|db| async move {
        let (folder, acme) = (tempdir().unwrap(), tenant(&db.store, "acme").await);
        let mailbox = mailbox(&acme).await;
        let emails = vec![
            email(mailbox.id, "old", time("2024-01-02T00:00:00Z")),
            email(mailbox.id, "new", time("2026-01-02T00:00:00Z")),
        ];
        record(&acme, &blobs(&folder), emails).await.unwrap();
        let all = Query::default();

        let labelled = Query { labels: vec!["Inbox".into()], ..all.clone() };
        assert_eq!(found(&acme, labelled).await.len(), 2);
        let unlabelled = Query { not_labels: vec!["inbox".into()], ..all.clone() };
        assert_eq!(found(&acme, unlabelled).await.len(), 0);
        let after = Query { after: Some(time("2025-01-01T00:00:00Z")), ..all.clone() };
        assert_eq!(found(&acme, after).await, ["new"]);
        let before = Query { before: Some(time("2026-01-02T00:00:00Z")), ..all };
        assert_eq!(found(&acme, before).await, ["old"]);
    })
    .await;
}

#[tokio::test]
async fn pages_follow_each_other_without_gap_or_repeat() {
    on_each_database(|db| async move {
        let (folder, acme) = (tempdir().unwrap(), tenant(&db.store, "acme").await);
        let mailbox = mailbox(&acme).await;
        // Several in the same second, to step through ties as well.
        let emails = (0..30).map(|n| {
            email(
                mailbox.id,
                &format!("word {n}"),
                time("2026-01-02T00:00:00Z") + jiff::SignedDuration::from_secs(n / 7),
            )
        });
        record(&acme, &blobs(&folder), emails.collect()).await.unwrap();

        for query in [query(&["word"], &[]), Query::default()] {
            let mut seen: Vec<EmailId> = Vec::new();
            loop {
                let page = Page { start: seen.last().copied().map(Start::After), limit: 4, ..Page::default() };
                let ids = acme.search(&query, &page).await.unwrap();
                if ids.is_empty() {
                    break;
                }
                seen.extend(ids);
            }
            let mut distinct = seen.clone();
            distinct.sort();
            distinct.dedup();
            assert_eq!((seen.len(), distinct.len()), (30, 30));
            assert!(seen.windows(2).all(|pair| pair[0].received_at() >= pair[1].received_at()));
        }
    })
    .await;
}

#[tokio::test]
async fn no_token_text_can_break_out_of_the_query() {
    on_each_database(|db| async move {
        let acme = tenant(&db.store, "acme").await;

        for nasty in ["'", "\"", "\\", "a'b", "a\"b", "a\\", "*", "(", "&|!", ":*", "near(", "-- x", "😀", "or", "not"]
        {
            assert_eq!(found(&acme, query(&[nasty], &[nasty])).await, Vec::<String>::new(), "{nasty}");
        }
    })
    .await;
}

/// A second has 65,536 places; what comes after them must be stored and found all the same.
#[tokio::test]
async fn more_emails_than_a_second_has_places_for_are_found() {
    on_each_database(|db| async move {
        let Location::Sqlite { path, .. } = &db.location else { return }; // PostgreSQL has no such places
        let (folder, acme) = (tempdir().unwrap(), tenant(&db.store, "acme").await);
        let mailbox = mailbox(&acme).await;
        let second = time("2026-01-02T00:00:00Z");
        record(&acme, &blobs(&folder), vec![email(mailbox.id, "word first", second)]).await.unwrap();
        let take_the_last_place = "update emails set search_rowid = search_rowid | 65535";
        rusqlite::Connection::open(path).unwrap().execute_batch(take_the_last_place).unwrap();

        let more = ["word second", "word third"].map(|subject| email(mailbox.id, subject, second));
        record(&acme, &blobs(&folder), more.to_vec()).await.unwrap();
        let later = email(mailbox.id, "word later", time("2026-01-02T00:00:01Z"));
        record(&acme, &blobs(&folder), vec![later]).await.unwrap();

        let mut subjects = found(&acme, query(&["word"], &[])).await;
        subjects.sort();
        assert_eq!(subjects, ["word later", "word second", "word third"]);
    })
    .await;
}

#[tokio::test]
async fn a_page_goes_on_after_an_email_that_is_gone() {
    on_each_database(|db| async move {
        let (folder, acme) = (tempdir().unwrap(), tenant(&db.store, "acme").await);
        let mailbox = mailbox(&acme).await;
        let at = |second: i64| time("2026-01-02T00:00:00Z") + jiff::SignedDuration::from_secs(second);
        let emails = (0..3).map(|n| email(mailbox.id, &format!("word {n}"), at(n * 10)));
        record(&acme, &blobs(&folder), emails.collect()).await.unwrap();
        let gone = email(mailbox.id, "word gone", at(15)).id;

        for query in [query(&["word"], &[]), Query::default()] {
            let page = Page { start: Some(Start::After(gone)), limit: 10, ..Page::default() };
            assert_eq!(acme.search(&query, &page).await.unwrap().len(), 2);
        }
    })
    .await;
}
