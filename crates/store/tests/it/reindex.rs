//! Tokens that are replaced after ingest: found by what they are now, and only for emails that are still there.

use domain::EmailId;
use domain::search::{Phrase, SearchQuery};
use store::sql::ingest::NewEmail;
use store::sql::reindex::{IndexEntryState, ReindexRange, TokenReplacement};
use store::sql::search::SearchPage;
use store::testing::{TestDatabase, on_each_database};
use store::{Precondition, StoreError, TenantStore, TenantUnit};
use tempfile::{TempDir, tempdir};

use crate::samples::{blobs, email, mailbox, record, tenant, time};

async fn store_emails(db: &TestDatabase, folder: &TempDir, subjects: &[&str]) -> (TenantStore, Vec<NewEmail>) {
    let acme = tenant(&db.store, "acme").await;
    let mailbox = mailbox(&acme).await;
    let emails: Vec<NewEmail> = (0..)
        .zip(subjects)
        .map(|(n, subject): (i64, &&str)| {
            email(mailbox.id, subject, time("2026-01-02T03:04:05Z") + jiff::SignedDuration::from_hours(n))
        })
        .collect();
    record(&acme, &blobs(folder), emails.clone()).await.unwrap();
    (acme, emails)
}

fn replacement(email: &NewEmail, tokens: &str) -> TokenReplacement {
    TokenReplacement { email: email.id, raw_sha256: email.raw_sha256, is_missing: false, tokens: tokens.to_owned() }
}

fn replacing(tenant: &TenantStore, replacements: Vec<TokenReplacement>) -> TenantUnit {
    let mut unit = tenant.write();
    unit.replace_tokens(replacements);
    unit
}

async fn find(tenant: &TenantStore, words: &str) -> Vec<EmailId> {
    let phrase = Phrase { tokens: words.split(' ').map(str::to_owned).collect(), is_prefix: false };
    let query = SearchQuery { all_of: vec![phrase], ..SearchQuery::default() };
    tenant.search(&query, &SearchPage { limit: 100, ..SearchPage::default() }).await.unwrap()
}

async fn states(tenant: &TenantStore, version: u32) -> Vec<IndexEntryState> {
    let entries = tenant.list_index_entries(ReindexRange::default(), version, 100).await.unwrap();
    entries.into_iter().map(|entry| entry.state).collect()
}

/// Removes all entries of the text index, as damage would.
async fn empty_the_index(db: &TestDatabase) {
    db.run("delete from email_search").await;
}

#[tokio::test]
async fn replaced_tokens_are_found_and_old_ones_are_not() {
    on_each_database(|db| async move {
        let folder = tempdir().unwrap();
        let (acme, emails) = store_emails(&db, &folder, &["red apple", "green plum"]).await;

        replacing(&acme, vec![replacement(&emails[0], "ripe red apple pie")]).commit().await.unwrap();

        assert_eq!(find(&acme, "ripe red").await, [emails[0].id]);
        assert_eq!(find(&acme, "apple pie").await, [emails[0].id]);
        assert_eq!(find(&acme, "green plum").await, [emails[1].id]);

        replacing(&acme, vec![replacement(&emails[0], "blue berry")]).commit().await.unwrap();

        assert!(find(&acme, "apple").await.is_empty());
        assert_eq!(find(&acme, "blue berry").await, [emails[0].id]);
        assert!(acme.verify_rows(None).await.unwrap().is_empty());
        assert!(db.store.system().verify_index().await.unwrap().is_none());
    })
    .await;
}

#[tokio::test]
async fn replacing_twice_is_as_replacing_once() {
    on_each_database(|db| async move {
        let folder = tempdir().unwrap();
        let (acme, emails) = store_emails(&db, &folder, &["red apple"]).await;

        // Side by side, so that SQLite may commit them as one group.
        let (first, second) = tokio::join!(
            replacing(&acme, vec![replacement(&emails[0], "blue berry")]).commit(),
            replacing(&acme, vec![replacement(&emails[0], "blue berry")]).commit()
        );
        first.unwrap();
        second.unwrap();

        assert_eq!((find(&acme, "blue").await, find(&acme, "red").await), (vec![emails[0].id], vec![]));
        assert!(acme.verify_rows(None).await.unwrap().is_empty());
    })
    .await;
}

#[tokio::test]
async fn held_tenants_mail_is_not_purged() {
    on_each_database(|db| async move {
        let folder = tempdir().unwrap();
        let (acme, emails) = store_emails(&db, &folder, &["red apple"]).await;
        db.run("update tenants set hold_reason = 'a lawsuit'").await;

        let refused = acme.purge_emails(&[emails[0].id]).await;

        assert!(matches!(refused, Err(StoreError::Precondition(Precondition::TenantHeld))), "{refused:?}");
        assert_eq!(find(&acme, "red").await, [emails[0].id]);
        db.run("update tenants set hold_reason = null").await;
        assert_eq!(acme.purge_emails(&[emails[0].id]).await.unwrap(), 1);
    })
    .await;
}

#[tokio::test]
async fn purged_email_gets_no_tokens_back() {
    on_each_database(|db| async move {
        let folder = tempdir().unwrap();
        let (acme, emails) = store_emails(&db, &folder, &["red apple", "green plum"]).await;
        let unit = replacing(&acme, emails.iter().map(|email| replacement(email, "blue berry")).collect());
        acme.purge_emails(&[emails[0].id]).await.unwrap();

        unit.commit().await.unwrap();

        assert_eq!(find(&acme, "blue").await, [emails[1].id]);
        assert!(acme.verify_rows(None).await.unwrap().is_empty());
    })
    .await;
}

#[tokio::test]
async fn concurrent_purge_leaves_no_entry_behind() {
    on_each_database(|db| async move {
        let folder = tempdir().unwrap();
        let (acme, emails) = store_emails(&db, &folder, &["red apple", "green plum", "blue berry"]).await;
        let ids: Vec<EmailId> = emails.iter().map(|email| email.id).collect();

        for round in 0..20 {
            let tokens = format!("round {round}");
            let unit = replacing(&acme, emails.iter().map(|email| replacement(email, &tokens)).collect());
            let (replaced, purged) = tokio::join!(unit.commit(), async {
                if round == 10 { acme.purge_emails(&ids[..1]).await } else { Ok(0) }
            });
            replaced.unwrap();
            purged.unwrap();
        }

        assert_eq!(find(&acme, "round").await, [ids[2], ids[1]]);
        assert!(acme.verify_rows(None).await.unwrap().is_empty());
    })
    .await;
}

#[tokio::test]
async fn tokens_of_other_bytes_are_not_used() {
    on_each_database(|db| async move {
        let folder = tempdir().unwrap();
        let (acme, emails) = store_emails(&db, &folder, &["red apple", "green plum"]).await;
        let outdated = TokenReplacement { raw_sha256: emails[1].raw_sha256, ..replacement(&emails[0], "blue berry") };

        replacing(&acme, vec![outdated]).commit().await.unwrap();

        assert_eq!((find(&acme, "red").await, find(&acme, "blue").await), (vec![emails[0].id], vec![]));
    })
    .await;
}

#[tokio::test]
async fn deleted_email_keeps_its_entry_and_stays_hidden() {
    on_each_database(|db| async move {
        let folder = tempdir().unwrap();
        let (acme, emails) = store_emails(&db, &folder, &["red apple"]).await;
        let mut unit = acme.write();
        unit.discard_email(emails[0].id);
        unit.commit().await.unwrap();

        replacing(&acme, vec![replacement(&emails[0], "blue berry")]).commit().await.unwrap();

        assert!(find(&acme, "blue").await.is_empty());
        assert_eq!(states(&acme, 1).await, [IndexEntryState::Current]);
    })
    .await;
}

#[tokio::test]
async fn missing_entry_is_listed_and_added() {
    on_each_database(|db| async move {
        let folder = tempdir().unwrap();
        let (acme, emails) = store_emails(&db, &folder, &["red apple", "green plum"]).await;
        empty_the_index(&db).await;
        assert_eq!(states(&acme, 1).await, [IndexEntryState::Missing; 2]);
        acme.purge_emails(&[emails[1].id]).await.unwrap();

        let missing = emails.iter().map(|email| TokenReplacement { is_missing: true, ..replacement(email, "blue") });
        replacing(&acme, missing.collect()).commit().await.unwrap();

        assert_eq!(find(&acme, "blue").await, [emails[0].id]);
        assert_eq!(states(&acme, 1).await, [IndexEntryState::Current]);
        assert!(acme.verify_rows(None).await.unwrap().is_empty());
    })
    .await;
}

#[tokio::test]
async fn entry_tells_the_version_of_its_tokens() {
    on_each_database(|db| async move {
        let folder = tempdir().unwrap();
        let (acme, emails) = store_emails(&db, &folder, &["old", "new"]).await;
        assert_eq!(states(&acme, 2).await, [IndexEntryState::Stale; 2]);

        replacing(&acme, vec![replacement(&emails[1], "new :version:2")]).commit().await.unwrap();

        assert_eq!(states(&acme, 2).await, [IndexEntryState::Current, IndexEntryState::Stale]);
        assert_eq!(states(&acme, 1).await, [IndexEntryState::Current; 2]);
        assert_eq!(states(&acme, 3).await, [IndexEntryState::Stale; 2]);
    })
    .await;
}

#[tokio::test]
async fn reindex_range_bounds_and_pages_the_list() {
    on_each_database(|db| async move {
        let folder = tempdir().unwrap();
        let (acme, emails) = store_emails(&db, &folder, &["one", "two", "three", "four"]).await;
        let range = ReindexRange { from: Some(EmailId::first_at(emails[1].received_at)), before: None };

        assert_eq!(acme.count_emails_in(range).await.unwrap(), 3);
        let first = acme.list_index_entries(range, 1, 2).await.unwrap();
        let next = ReindexRange { before: Some(first[1].email), ..range };
        let rest = acme.list_index_entries(next, 1, 2).await.unwrap();

        let listed: Vec<EmailId> = first.iter().chain(&rest).map(|entry| entry.email).collect();
        assert_eq!(listed, [emails[3].id, emails[2].id, emails[1].id]);
        let originals = acme.list_originals(vec![emails[0].id, emails[2].id]).await.unwrap();
        let originals: Vec<_> = originals.iter().map(|original| (original.email, original.raw_sha256)).collect();
        assert_eq!(originals, [(emails[2].id, emails[2].raw_sha256), (emails[0].id, emails[0].raw_sha256)]);
    })
    .await;
}

#[tokio::test]
async fn other_tenant_cannot_replace_tokens() {
    on_each_database(|db| async move {
        let folder = tempdir().unwrap();
        let (acme, emails) = store_emails(&db, &folder, &["red apple"]).await;
        let beta = tenant(&db.store, "beta").await;

        replacing(&beta, vec![replacement(&emails[0], "blue berry")]).commit().await.unwrap();

        assert_eq!((find(&acme, "red").await, find(&acme, "blue").await), (vec![emails[0].id], vec![]));
        assert!(states(&beta, 1).await.is_empty());
    })
    .await;
}
