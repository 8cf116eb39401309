use domain::{EmailId, Sha256};
use store::sql::search::SearchPage;
use store::testing::on_each_database;
use tempfile::tempdir;

use crate::samples::{attachment, blobs, email, mailbox, record, tenant, time};

#[tokio::test]
async fn email_reads_back_as_recorded() {
    on_each_database(|db| async move {
        let (folder, acme) = (tempdir().unwrap(), tenant(&db.store, "acme").await);
        let mailbox = mailbox(&acme).await;
        let mut new = email(mailbox.id, "Quarterly report", time("2026-01-02T03:04:05.678Z"));
        new.attachments = vec![attachment(new.id, b"Quarterly report")];

        record(&acme, &blobs(&folder), vec![new.clone()]).await.unwrap();

        let read = acme.find_email(new.id).await.unwrap().unwrap();
        assert_eq!(read.subject.as_deref(), Some("Quarterly report"));
        assert_eq!(read.from.unwrap().address, "ann@acme.test");
        assert_eq!(read.to[0].address, "bob@acme.test");
        assert_eq!(read.cc[0].address, "carol@acme.test");
        assert_eq!(read.received_at, time("2026-01-02T03:04:05.678Z"));
        assert_eq!(read.sha256, new.raw_sha256);
        assert_eq!(read.headers, serde_json::json!([["Subject", "Quarterly report"]]));
        assert_eq!(read.defects, serde_json::json!(["bad_date"]));
        assert_eq!((read.folders, read.flags), (vec!["INBOX".to_owned()], vec!["seen".to_owned()]));
        assert_eq!(read.attachments[0].sha256, Some(Sha256::of(b"Quarterly report")));
        assert_eq!(read.attachments[0].message, Some(serde_json::json!({"subject": "inner"})));
        assert!(acme.verify_rows(None).await.unwrap().is_empty());
    })
    .await;
}

#[tokio::test]
async fn recording_again_stores_nothing_new() {
    on_each_database(|db| async move {
        let (folder, acme) = (tempdir().unwrap(), tenant(&db.store, "acme").await);
        let mailbox = mailbox(&acme).await;
        let new = email(mailbox.id, "Once", time("2026-01-02T03:04:05Z"));

        let (first, op) = record(&acme, &blobs(&folder), vec![new.clone()]).await.unwrap();
        let (again, op_again) = record(&acme, &blobs(&folder), vec![new]).await.unwrap();

        assert_eq!((first.changed(op), again.changed(op_again)), (1, 0));
        assert_eq!(acme.totals().await.unwrap().emails, 1);
        assert!(acme.verify_rows(None).await.unwrap().is_empty());
    })
    .await;
}

/// The second import of the same bytes derives another id, because its mbox names another time.
#[tokio::test]
async fn race_loser_binds_to_the_winners_email() {
    on_each_database(|db| async move {
        let (folder, acme) = (tempdir().unwrap(), tenant(&db.store, "acme").await);
        let mailbox = mailbox(&acme).await;
        let winner = email(mailbox.id, "Same bytes", time("2026-01-02T03:04:05Z"));
        let loser = email(mailbox.id, "Same bytes", time("2026-01-09T00:00:00Z"));
        assert_ne!(winner.id, loser.id);

        record(&acme, &blobs(&folder), vec![winner.clone()]).await.unwrap();
        let (committed, stored) = record(&acme, &blobs(&folder), vec![loser.clone()]).await.unwrap();

        assert_eq!(committed.changed(stored), 0);
        assert!(acme.find_email(loser.id).await.unwrap().is_none());
        assert_eq!(acme.find_email(winner.id).await.unwrap().unwrap().to.len(), 1);
        assert!(acme.verify_rows(None).await.unwrap().is_empty());
    })
    .await;
}

#[tokio::test]
async fn concurrent_writers_record_each_message_once() {
    on_each_database(|db| async move {
        let (folder, acme) = (tempdir().unwrap(), tenant(&db.store, "acme").await);
        let mailbox = mailbox(&acme).await;
        let blobs = blobs(&folder);
        let batch = |shift: i64| {
            let emails = (0..40).map(move |n| {
                email(
                    mailbox.id,
                    &format!("Subject {n}"),
                    time("2026-01-02T03:04:05Z") + jiff::SignedDuration::from_secs(shift),
                )
            });
            emails.collect::<Vec<_>>()
        };
        acme.ensure_folders(mailbox.id, &["INBOX".into()]).await.unwrap();

        let writers = (0..6).map(|n| {
            let (acme, blobs, mut batch) = (acme.clone(), blobs.clone(), batch(n % 2));
            if n % 3 == 0 {
                batch.reverse(); // opposite lock order: on PostgreSQL the loser of the deadlock is sent again
            }
            tokio::spawn(async move { record(&acme, &blobs, batch).await })
        });
        let mut stored = 0;
        for writer in writers.collect::<Vec<_>>() {
            let (committed, op) = writer.await.unwrap().unwrap();
            stored += committed.changed(op);
        }

        assert_eq!(stored, 40);
        assert_eq!(acme.totals().await.unwrap().emails, 40);
        assert!(acme.verify_rows(None).await.unwrap().is_empty());
    })
    .await;
}

#[tokio::test]
async fn another_tenant_sees_nothing() {
    on_each_database(|db| async move {
        let folder = tempdir().unwrap();
        let (acme, other) = (tenant(&db.store, "acme").await, tenant(&db.store, "other").await);
        let mailbox = mailbox(&acme).await;
        let new = email(mailbox.id, "Secret", time("2026-01-02T03:04:05Z"));
        record(&acme, &blobs(&folder), vec![new.clone()]).await.unwrap();

        assert!(other.find_email(new.id).await.unwrap().is_none());
        assert!(other.find_mailbox("me@acme.test").await.unwrap().is_none());
        assert!(other.find_blob(new.raw_sha256).await.unwrap().is_none());
        let found =
            other.search(&Default::default(), &SearchPage { limit: 10, ..SearchPage::default() }).await.unwrap();
        assert_eq!(found, Vec::<EmailId>::new());
    })
    .await;
}
