use store::StoreError;
use store::testing::on_each_database;
use tempfile::tempdir;

use crate::samples::{blobs, email, mailbox, pack, tenant, time};

#[tokio::test]
async fn failed_precondition_changes_nothing() {
    on_each_database(|db| async move {
        let (folder, acme) = (tempdir().unwrap(), tenant(&db.store, "acme").await);
        let mailbox = mailbox(&acme).await;
        let blobs = blobs(&folder);
        let unit = |n: usize| {
            let (acme, blobs) = (acme.clone(), blobs.clone());
            async move {
                let subject = format!("Subject {n}");
                let mut unit = acme.write();
                let id = pack(&acme, &blobs, &mut unit, &[subject.as_bytes()]).await;
                unit.record_emails(vec![email(mailbox.id, &subject, time("2026-01-02T03:04:05Z"))], &[]);
                if n % 2 == 1 {
                    unit.record_pack(id, 1, &[]); // it is live already, so this cannot hold
                }
                unit.commit().await
            }
        };

        let outcomes: Vec<_> = (0..20).map(|n| tokio::spawn(unit(n))).collect();

        for (n, outcome) in outcomes.into_iter().enumerate() {
            match outcome.await.unwrap() {
                Ok(_) => assert_eq!(n % 2, 0),
                Err(e) => assert!(n % 2 == 1 && matches!(e, StoreError::Precondition(_)), "{e}"),
            }
        }
        let totals = acme.totals().await.unwrap();
        assert_eq!((totals.emails, totals.blobs), (10, 10));
    })
    .await;
}

#[tokio::test]
async fn empty_unit_commits() {
    on_each_database(|db| async move {
        let acme = tenant(&db.store, "acme").await;

        assert!(acme.write().commit().await.is_ok());
    })
    .await;
}
