use store::testing::{on_each_database, run_sql};
use store::{Location, TenantStore};
use tempfile::tempdir;

use crate::samples::{blobs, email, mailbox, record, tenant, time};

async fn damage(location: &Location, sql: &str) {
    match location {
        Location::Sqlite { path, .. } => {
            let connection = rusqlite::Connection::open(path).unwrap();
            connection.execute_batch(&format!("pragma foreign_keys = off; {sql}")).unwrap();
        }
        Location::Postgres { url, .. } => {
            run_sql(url, &format!("set session_replication_role = replica; {sql}")).await.unwrap();
        }
    }
}

async fn differences(tenant: &TenantStore) -> Vec<String> {
    tenant.verify_rows(None).await.unwrap().into_iter().map(|difference| difference.what).collect()
}

#[tokio::test]
async fn each_kind_of_row_damage_is_reported() {
    on_each_database(|db| async move {
        let (folder, acme) = (tempdir().unwrap(), tenant(&db.store, "acme").await);
        let mailbox = mailbox(&acme).await;
        let emails = (0..3).map(|n| email(mailbox.id, &format!("word {n}"), time("2026-01-02T00:00:00Z")));
        record(&acme, &blobs(&folder), emails.collect()).await.unwrap();
        assert_eq!(differences(&acme).await, Vec::<String>::new());

        let homeless = "emails are not deleted though they are in no folder";
        damage(&db.location, "update packs set state = 'dead'").await;
        assert_eq!(differences(&acme).await, ["blobs lie in packs that are not live"]);
        damage(&db.location, "update packs set state = 'live'; delete from placements").await;
        assert_eq!(differences(&acme).await, ["ledger rows have no live placement though they are not gone", homeless]);
        damage(&db.location, "delete from ledger").await;
        assert_eq!(differences(&acme).await, [homeless, "emails have no ledger row"]);
        damage(&db.location, "delete from email_contents").await;
        assert_eq!(
            differences(&acme).await,
            [homeless, "emails have no ledger row", "emails differ from the content that their mailbox knows"]
        );
        damage(&db.location, "delete from email_search").await;
        assert!(differences(&acme).await.contains(&"emails are not in the text index".to_owned()));
    })
    .await;
}
