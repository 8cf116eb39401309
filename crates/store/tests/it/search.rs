use domain::EmailId;
use domain::search::{Phrase, SearchQuery};
use store::sql::search::{PageStart, SearchPage};
use store::testing::on_each_database;
use store::{Location, TenantStore};
use tempfile::tempdir;

use crate::samples::{blobs, email, mailbox, record, tenant, time};

fn phrase(text: &str) -> Phrase {
    let (text, is_prefix) = text.strip_suffix('*').map_or((text, false), |text| (text, true));
    Phrase { tokens: text.split(' ').map(str::to_owned).collect(), is_prefix }
}

fn query(all_of: &[&str], none_of: &[&str]) -> SearchQuery {
    SearchQuery {
        all_of: all_of.iter().map(|text| phrase(text)).collect(),
        none_of: none_of.iter().map(|text| phrase(text)).collect(),
        ..SearchQuery::default()
    }
}

/// Subjects of what is found, in order.
async fn found(tenant: &TenantStore, query: SearchQuery) -> Vec<String> {
    let ids = tenant.search(&query, &SearchPage { limit: 100, ..SearchPage::default() }).await.unwrap();
    let emails = tenant.get_emails(&ids).await.unwrap();
    emails.into_iter().filter_map(|email| email.subject).collect()
}

#[tokio::test]
async fn queries_find_the_same_on_both_databases() {
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
        let all = SearchQuery::default();

        let labelled = SearchQuery { labels: vec!["Inbox".into()], ..all.clone() };
        assert_eq!(found(&acme, labelled).await.len(), 2);
        let unlabelled = SearchQuery { not_labels: vec!["inbox".into()], ..all.clone() };
        assert_eq!(found(&acme, unlabelled).await.len(), 0);
        let after = SearchQuery { after: Some(time("2025-01-01T00:00:00Z")), ..all.clone() };
        assert_eq!(found(&acme, after).await, ["new"]);
        let before = SearchQuery { before: Some(time("2026-01-02T00:00:00Z")), ..all };
        assert_eq!(found(&acme, before).await, ["old"]);
    })
    .await;
}

#[tokio::test]
async fn search_pages_have_no_gap_or_repeat() {
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

        for query in [query(&["word"], &[]), SearchQuery::default()] {
            let mut seen: Vec<EmailId> = Vec::new();
            loop {
                let page =
                    SearchPage { start: seen.last().copied().map(PageStart::After), limit: 4, ..SearchPage::default() };
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
async fn token_text_cannot_break_out_of_the_query() {
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
async fn overfull_second_is_still_searchable() {
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

fn at(second: i64) -> jiff::Timestamp {
    time("2026-01-02T00:00:00Z") + jiff::SignedDuration::from_secs(second)
}

#[tokio::test]
async fn page_continues_after_a_removed_email() {
    on_each_database(|db| async move {
        let (folder, acme) = (tempdir().unwrap(), tenant(&db.store, "acme").await);
        let mailbox = mailbox(&acme).await;
        let emails = (0..3).map(|n| email(mailbox.id, &format!("word {n}"), at(n * 10)));
        record(&acme, &blobs(&folder), emails.collect()).await.unwrap();
        let gone = email(mailbox.id, "word gone", at(15)).id;

        for query in [query(&["word"], &[]), SearchQuery::default()] {
            let page = SearchPage { start: Some(PageStart::After(gone)), limit: 10, ..SearchPage::default() };
            assert_eq!(acme.search(&query, &page).await.unwrap().len(), 2);
        }
    })
    .await;
}
